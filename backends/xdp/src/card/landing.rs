//! Which ring a flow's frames come to: as the interface says, and as was seen.

use core::sync::atomic::Ordering;
use std::net::SocketAddr;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use ringway_stack::device::{FiveTuple, Protocol, QueueId};

use super::XdpDevice;
use crate::rss::Rss;
use crate::strays::segment;

/// How long an interface is believed to spread what it receives as it did.
const RSS_FOR: Duration = Duration::from_secs(1);

/// Where a flow's frames come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Landing {
    /// The interface does not say.
    Unknown,
    /// To that ring.
    At(QueueId),
    /// To a queue that is none of this process's: the kernel has them, or another process.
    Elsewhere,
}

impl XdpDevice {
    /// Whether the interface says by which queue a flow's frames come.
    pub fn knows_queues(&self) -> bool {
        Rss::of_interface(&self.0.settings.interface).is_some()
    }

    /// Where frames of a flow come to, if the interface says so. Among rings, nothing is lost where that turns out to be another one.
    pub fn lands_at(&self, protocol: Protocol, local: SocketAddr, remote: SocketAddr) -> Landing {
        let count = self.rings();
        if count < 2 && !self.is_partial() {
            return Landing::Unknown;
        }
        let mut rss = self.0.rss.lock().unwrap_or_else(PoisonError::into_inner);
        if rss.as_ref().is_none_or(|(_, asked)| asked.elapsed() > RSS_FOR) {
            *rss = Some((Rss::of_interface(&self.0.settings.interface), Instant::now()));
        }
        let known = rss.as_ref().and_then(|(known, _)| known.as_ref());
        let Some(queue) = known.and_then(|rss| rss.queue_of(protocol, local, remote)) else { return Landing::Unknown };
        match self.0.served.iter().position(|served| *served == queue) {
            Some(at) => Landing::At(QueueId(at as u32 % count)),
            None => Landing::Elsewhere,
        }
    }

    /// Connections whose frames were seen to come to other rings than have them since this was asked last: our address, the peer's, and to which ring.
    pub fn take_landings(&self) -> Vec<(SocketAddr, SocketAddr, QueueId)> {
        if !self.0.has_landings.swap(false, Ordering::Relaxed) {
            return Vec::new();
        }
        let landings = self.state().rules.take_landings().into_iter();
        landings.filter_map(|(FiveTuple { local, remote, .. }, ring)| Some((local, remote?, QueueId(ring)))).collect()
    }

    /// The ring that is to have a frame, which came to that one, if it is a connection's with a rule of its own.
    pub(crate) fn home_of(&self, head: &[u8], ring: u32) -> Option<u32> {
        let (connection, _) = segment(head)?;
        let mut state = self.state();
        let home = state.rules.home(&connection)?;
        if home != ring {
            state.rules.note_landing(&connection, ring);
            self.0.has_landings.store(true, Ordering::Relaxed);
        }
        Some(home)
    }
}
