//! What the host asks of a ring.

use ringway_host::{CardQueues, CardSleep};

use super::Mlx5Queues;

impl CardQueues for Mlx5Queues {
    fn sleep(&self) -> &CardSleep {
        &self.sleep
    }

    fn frames(&self) -> usize {
        self.receive.usage().0
    }

    fn send_buffers(&self) -> (usize, usize) {
        let all = self.memory.sends();
        (all, all - self.memory.free_sends())
    }

    /// Only heads are copied, and short frames.
    fn bytes_copied(&self) -> u64 {
        0
    }
}
