//! What the host asks of a ring.

use ringway_host::{CardQueues, CardSleep};

use super::XdpQueues;

impl CardQueues for XdpQueues {
    fn sleep(&self) -> &CardSleep {
        &self.sleep
    }

    fn frames(&self) -> usize {
        self.umem.receives().len()
    }

    fn send_buffers(&self) -> (usize, usize) {
        let all = self.umem.sends().len();
        (all, all - self.free.len())
    }

    fn bytes_copied(&self) -> u64 {
        self.counters.sent_bytes
    }
}
