//! What the host asks of a ring: sleeping, pauses, counts.

use std::os::fd::RawFd;

use ringway_host::HostQueues;
use ringway_host::queues::SLEEPER;
use ringway_stack::device::Queues as _;

use super::Mlx5Queues;

impl HostQueues for Mlx5Queues {
    fn begin_sleep(&mut self) -> RawFd {
        self.sleep.sleeper()
    }

    fn is_of_sleeper(event: u64) -> bool {
        event == SLEEPER
    }

    /// Events are taken when the ring is disarmed, which follows.
    fn slept(&mut self, _: impl ExactSizeIterator<Item = u64>) {}

    fn clear_sleeper(&mut self) {
        self.sleep.clear_sleeper();
    }

    fn end_sleep(&mut self) {}

    /// The card's peers do not see each other's processors.
    fn claim_core(&mut self, _: usize) -> bool {
        true
    }

    fn release_core(&mut self, _: usize) {}

    /// (What comes waits in the receive queue, and beyond that is lost: a card signals each frame or none.)
    fn pause(&mut self) {}

    fn resume(&mut self) -> bool {
        self.rx_ready()
    }

    fn queue_frames(&self) -> usize {
        self.receive.usage().0
    }

    fn tx_buffers(&mut self) -> (usize, usize) {
        let all = self.memory.sends();
        (all, all - self.memory.free_sends())
    }

    /// Only heads are copied, and short frames.
    fn copied_bytes(&self) -> u64 {
        0
    }
}
