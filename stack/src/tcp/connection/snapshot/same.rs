//! Whether two connections are one and the same, in all that can still come of them.

use super::{Connection, State, Variables};
use crate::device::{RxBuffer, TxBuffer};

impl<R: RxBuffer, T: TxBuffer> Connection<R, T> {
    /// Whether the two do the same from now on, whatever comes. (Their queues' bytes apart. It is a check's, and takes its time.)
    pub(in crate::tcp::connection) fn does_as(&self, other: &Self) -> bool {
        let essence = |connection: &Self| {
            let (mut variables, held) = connection.written();
            variables.forget_what_is_over();
            let begins_or_ends = (connection.syn_due, connection.reset_due, connection.orphaned, connection.error, connection.edges);
            (variables, held, begins_or_ends, connection.recv.lends(), connection.mss)
        };
        essence(self) == essence(other)
    }
}

impl Variables {
    /// In TIME-WAIT no byte is sent or received any more: what was known for that counts no longer.
    fn forget_what_is_over(&mut self) {
        // (How many segments a frame was is of that frame.)
        self.acks.segments = 1;
        if self.state != State::TimeWait {
            return;
        }
        let blank = Self::blank();
        self.acks = self.acks.without_habits();
        self.window = self.window.without_measurement();
        (self.rtt, self.congestion, self.loss, self.counters) = (blank.rtt, blank.congestion, blank.loss, blank.counters);
        self.flight = blank.flight;
        self.ecn = blank.ecn;
        self.sending.snd_small = self.sending.snd_una;
        self.path.oversized = None;
        let (silence, flags) = (&mut self.silence, &mut self.flags);
        (silence.last_tx, silence.last_data_tx, silence.stalled_since) = (silence.last_rx, silence.last_rx, silence.last_rx);
        (silence.persist_backoff, silence.unanswered_probes) = (0, 0);
        (flags.push, flags.more, flags.held, flags.soft_error) = (false, false, false, None);
        // (No program asks any more.)
        flags.syn_data = false;
    }
}
