//! Congestion control: what [`crate::roce::dcqcn`] says, for one queue pair.

use crate::roce::dcqcn::{self, Notifier, Rate};
use crate::roce::memory::Memory;
use crate::roce::packet::datagram::Path;
use crate::roce::packet::{Body, Header};
use crate::roce::psn::Psn;
use crate::roce::qp::{Context, Qp};
use crate::roce::{Flaw, Tuning};
use crate::time::{Instant, earlier};

impl Qp {
    /// When [`Qp::on_timer`] has something to do.
    pub(in crate::roce) fn deadline(&self) -> Option<Instant> {
        earlier(self.req.deadline(), self.rate.as_ref().map(|rate| rate.deadline()))
    }

    /// A packet came that was marked.
    pub(in crate::roce) fn on_mark<M: Memory>(&mut self, cx: &Context<'_, M>) {
        let Some(parameters) = &cx.tuning.dcqcn else { return };
        if cx.tuning.has(Flaw::NotifiesOfEachMark) {
            self.notifier = Notifier::default();
        }
        self.notifier.on_mark(cx.now, parameters);
    }

    /// The peer was told of congestion, by marks.
    pub(in crate::roce) fn on_notification<M: Memory>(&mut self, cx: &Context<'_, M>) {
        let Some(parameters) = cx.tuning.dcqcn.as_ref().filter(|_| !cx.tuning.has(Flaw::IgnoresNotifications)) else { return };
        match &mut self.rate {
            Some(rate) => rate.on_notification(cx.now),
            None => self.rate = Some(Box::new(Rate::new(cx.now, parameters))),
        }
    }

    /// Does what is due. The link's rate is no rate to be held to.
    pub(super) fn on_rate_timer<M: Memory>(&mut self, cx: &Context<'_, M>) {
        if self.rate.as_mut().is_some_and(|rate| rate.on_timer(cx.now)) {
            self.rate = None;
        }
    }

    /// Whether requests and reads' responses are to wait. Then the timer says when they need not any more.
    pub(in crate::roce) fn is_held_back(&mut self, now: Instant) -> bool {
        self.rate.as_mut().is_some_and(|rate| rate.is_held_back(now))
    }

    /// A request or a read's response is sent.
    pub(in crate::roce) fn on_paced<M: Memory>(&mut self, cx: &Context<'_, M>, len: usize) {
        if let Some(rate) = &mut self.rate {
            rate.on_sent(cx.now, len);
        }
    }

    /// Writes the notification that is due.
    pub(in crate::roce) fn notify<M: Memory>(&mut self, cx: &Context<'_, M>, id: u16, out: &mut [u8]) -> Option<usize> {
        if !core::mem::take(&mut self.notifier.is_due) {
            return None;
        }
        let peer = self.peer?;
        let header = Header { pkey: self.pkey, becn: true, ..Header::new(Body::CongestionNotification, peer.dest_qp, Psn::default()) };
        let path = Path { traffic_class: dcqcn::NOTIFICATION_TRAFFIC_CLASS, ..peer.path };
        let fill = |out: &mut [u8]| {
            out.fill(0);
            Some(())
        };
        path.emit_with(id, cx.tuning.crc(), &header, dcqcn::NOTIFICATION_LEN, out, fill)
    }
}

/// The way of a request or a read's response: one that may be marked, where marks mean something.
pub(in crate::roce) fn path_of(tuning: &Tuning, path: &Path) -> Path {
    let traffic_class = if tuning.dcqcn.is_some() { dcqcn::capable(path.traffic_class) } else { path.traffic_class };
    Path { traffic_class, ..*path }
}
