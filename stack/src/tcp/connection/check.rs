//! What holds of a connection whenever nobody is inside of it, for who looks for bugs.

use super::{Connection, Snapshot};
use crate::device::{RxBuffer, TxBuffer};
use crate::tcp::reassembly::BLOCKS_MAX;
use crate::tcp::records::Records;
use crate::tcp::scoreboard::RANGES_MAX;
use crate::tcp::{Config, State};
use crate::wire::tcp::SeqNumber;

impl<R: RxBuffer, T: TxBuffer> Connection<R, T> {
    /// Panics where the connection cannot be.
    pub(in crate::tcp) fn check(&self) {
        assert!(self.snd_una.le(self.snd_nxt), "{:?} is acknowledged, {:?} was sent", self.snd_una, self.snd_nxt);
        assert!(self.window.nxt.le(self.window.adv) || !self.state.is_synchronized(), "the window's edge is behind what was received");
        self.check_sending();
        self.check_receiving();
        self.check_snapshot();
    }

    fn check_sending(&self) {
        let ranges = self.scoreboard.ranges();
        assert!(ranges.len() <= RANGES_MAX, "{} ranges are reported", ranges.len());
        assert!(ranges.windows(2).all(|two| two[0].end.lt(two[1].start)), "reported ranges touch: {ranges:?}");
        let is_sent = ranges.iter().all(|range| range.start.ge(self.snd_una) && range.start.lt(range.end) && range.end.le(self.snd_nxt));
        assert!(is_sent, "reported is what was not sent: {ranges:?} of {:?}..{:?}", self.snd_una, self.snd_nxt);
        let reported: usize = ranges.iter().map(|range| range.end.since(range.start)).sum();
        assert_eq!(reported, self.scoreboard.bytes(), "bytes that are reported");
        if self.state.is_synchronized() && self.state != State::TimeWait {
            let records = self.records.written();
            assert!(records.fits(self.snd_una, self.snd_nxt), "{:?}..{:?} is in flight, and {records:?}", self.snd_una, self.snd_nxt);
            // (Segments may have become smaller since they were sent.)
            let most = Records::most(self.in_flight(), usize::from(Config::MSS_MIN) / 2);
            assert!(self.records.queue().len() <= most, "{} records", self.records.queue().len());
        }
    }

    fn check_receiving(&self) {
        if let Some(reassembly) = &self.reassembly {
            let (held, bytes) = reassembly.written();
            assert_eq!(held.len(), bytes.len(), "bytes that came out of order");
            assert!(held.blocks.len() <= BLOCKS_MAX, "{} blocks", held.blocks.len());
            assert!(held.is_within(self.window.nxt, self.window.adv), "{held:?} in {:?}", self.window);
        }
        let undecided = self.recv.undecided();
        assert!(undecided + self.recv.len() <= self.recv.charged().max(self.recv.len()), "what is not decided is charged");
    }

    /// What is written down can be read in again, as the same.
    fn check_snapshot(&self) {
        let Some(snapshot) = self.snapshot_even_if_closed() else { return };
        match Snapshot::from_bytes(&snapshot.to_bytes()) {
            Ok(read) => read.check_written(&snapshot.to_bytes()),
            Err(error) => panic!("a connection that is here is one that can be: {error:?}, {snapshot:?}"),
        }
    }

    /// SND.UNA, SND.NXT, RCV.NXT, and the edge of the window.
    pub(in crate::tcp) fn numbers(&self) -> (SeqNumber, SeqNumber, SeqNumber, SeqNumber) {
        (self.snd_una, self.snd_nxt, self.window.nxt, self.window.adv)
    }

    /// Bytes that wait for their reader, are his, or wait for a gap to be filled.
    pub(in crate::tcp) fn received_and_held(&self) -> usize {
        let held = self.reassembly.as_ref().map_or(0, |reassembly| reassembly.written().1.len());
        self.recv.charged() + held
    }

    /// Bytes that may wait for their reader.
    pub(in crate::tcp) fn receive_limit(&self) -> usize {
        self.window.limit()
    }
}

impl Snapshot {
    /// It was read from `written`, and is written the same.
    pub(in crate::tcp) fn check_written(&self, written: &[u8]) {
        let again = self.to_bytes();
        let first = again.iter().zip(written).position(|(one, other)| one != other);
        assert!(first.is_none() && again.len() == written.len(), "what was read is written the same, but for byte {first:?}: {self:?}");
    }
}
