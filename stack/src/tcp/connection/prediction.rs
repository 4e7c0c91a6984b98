//! The short way of a segment out: what header prediction is to a segment that comes in (`receive.rs`).
//!
//! Most programs write less than a segment at a time, with TCP_NODELAY, on a stream that nothing disturbs. What such a write needs of the long way
//! (`transmit.rs`) is here, in one piece; whatever else may be the matter leads to the long way. Both do the same to the connection, and put
//! the same on the wire.

use super::{Connection, Phase};
use crate::device::{RxBuffer, SendError, TxBuffer, TxSlice};
use crate::tcp::{Segment, State};
use crate::time::Instant;
use crate::wire::tcp::{Flags, Header, Options, SeqNumber};

/// A segment that goes the short way, but for its payload: that is one slice.
pub(crate) struct Predicted {
    ports: (u16, u16),
    seq: SeqNumber,
    ack: SeqNumber,
    window: u16,
    timestamps: Option<(u32, u32)>,
    capable: bool,
    pub(crate) len: usize,
    /// The right edge of our window that the header announces.
    edge: SeqNumber,
    rto_ns: u64,
}

impl Predicted {
    /// With its payload, which is as long as it says.
    #[inline(always)]
    pub(crate) fn segment<'a, T>(&self, payload: &'a [TxSlice<'a, T>]) -> Segment<'a, T> {
        Segment { header: self.header(), payload, payload_len: self.len, cut: None, unsolicited: false, capable: self.capable }
    }

    /// (Made where it is used, so that it need not be in memory.)
    #[inline(always)]
    fn header(&self) -> Header {
        Header {
            src_port: self.ports.0,
            dst_port: self.ports.1,
            seq: self.seq,
            ack: self.ack,
            flags: Flags::ACK.union(Flags::PSH),
            window: self.window,
            options: Options { timestamps: self.timestamps, ..Options::default() },
            ..Header::default()
        }
    }
}

impl<R: RxBuffer, T: TxBuffer> Connection<R, T> {
    /// All that was written and never sent, if that is one partial segment which nothing holds back. `None`: it is not, or there is nothing:
    /// [`Connection::poll_at_length`]. (Whoever sends it says how that went: [`Connection::on_predicted_sent`].)
    #[inline(always)]
    pub(crate) fn predict(&self, now: Instant) -> Option<(Predicted, TxSlice<'_, T>)> {
        if !self.is_predictable() {
            return None;
        }
        let (seq, flight) = (self.snd_nxt, self.in_flight());
        let len = self.send.end().since(seq);
        // (Less than half of the largest window is less than a full segment, however small the window is.)
        let is_partial = len > 0 && len < self.mss && len < self.snd_wnd_max as usize / 2;
        let fits = flight + len <= self.snd_wnd as usize && (flight == 0 || flight + len <= self.cwnd);
        let rto_ns = self.rtt.rto_ns();
        // (After a pause, the congestion window is another: RFC 5681 s4.1.)
        let is_fresh = flight > 0 || now.as_nanos().saturating_sub(self.last_data_tx.as_nanos()) <= rto_ns;
        if !is_partial || !fits || !is_fresh {
            return None;
        }
        let slice = self.send.in_one_piece(seq, len)?;
        let (window, edge) = self.window.select(self.charged(), self.acks.peer_mss);
        let timestamps = if self.agreement.timestamps { Some((self.timestamp(now), self.ts_recent)) } else { None };
        let ports = (self.local_port, self.remote_port);
        let capable = self.agreement.ecn;
        Some((Predicted { ports, seq, ack: self.window.nxt, window, timestamps, capable, len, edge, rto_ns }, slice))
    }

    /// How the device took what was predicted. (At [`SendError::Full`] it is to be sent again; other errors lose it, as a network might.)
    #[inline(always)]
    pub(crate) fn on_predicted_sent(&mut self, now: Instant, predicted: &Predicted, sent: &Result<(), SendError>) {
        if matches!(sent, Err(SendError::Full)) {
            return;
        }
        let &Predicted { seq, len, edge, rto_ns, .. } = predicted;
        self.tx_pending = false;
        self.counters.tx_packets += 1;
        self.counters.tx_bytes += len as u64;
        (self.last_tx, self.last_data_tx) = (self.last_tx.max(now), now);
        self.acknowledged_peer(edge);
        self.snd_nxt = seq + len;
        self.snd_small = self.snd_nxt;
        let flight = seq.since(self.snd_una);
        if flight == 0 {
            // (Of what is sent beside other segments outside of a recovery, controllers have nothing to learn.)
            self.tell_sending(now, len, 0);
        }
        self.records.push(now, (seq, self.snd_nxt), flight, self.mss);
        self.acks.on_answer(now, self.config.delayed_ack_ns);
        self.held = false;
        self.start_timeout(Instant::from_nanos(now.as_nanos().saturating_add(rto_ns)));
        self.time_probe(now);
    }

    /// Whether what is to be sent would go the short way.
    #[cfg(test)]
    pub(in crate::tcp) fn is_predicted_out(&self, now: Instant) -> bool {
        self.predict(now).is_some()
    }

    /// Whether nothing is due but new bytes, and nothing is known that would hold a partial segment back. (A mutant goes the long way, where what is wrong
    /// with it is.)
    #[inline(always)]
    fn is_predictable(&self) -> bool {
        let is_paced = self.congestion.is_paced();
        let is_due = is_paced | self.peer_exited | self.reset_due | self.syn_due | self.probe_due | self.push | self.fin_queued;
        let waits = self.more | self.config.cork | !self.config.nodelay;
        self.tx_pending
            && self.state == State::Established
            && self.phase == Phase::Open
            && !is_due
            && !waits
            && self.dupacks == 0
            && self.tail_probe.is_none()
            && self.ecn.is_quiet()
            && self.reassembly.is_none()
            && self.scoreboard.is_empty()
            && self.config.mutation().is_healthy()
    }
}
