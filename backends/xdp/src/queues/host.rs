//! What the host asks of a ring: sleeping, pauses, counts.

use std::os::fd::RawFd;

use ringway_host::HostQueues;
use ringway_host::queues::SLEEPER;
use ringway_stack::device::Queues as _;

use super::XdpQueues;

impl HostQueues for XdpQueues {
    fn begin_sleep(&mut self) -> RawFd {
        self.sleep.sleeper()
    }

    fn is_of_sleeper(event: u64) -> bool {
        event == SLEEPER
    }

    /// What has come stays readable until it is taken: nothing is to be asked for once more.
    fn slept(&mut self, _: impl ExactSizeIterator<Item = u64>) {}

    fn clear_sleeper(&mut self) {
        self.sleep.clear_sleeper();
    }

    fn end_sleep(&mut self) {}

    /// The interface's peers do not see each other's processors.
    fn claim_core(&mut self, _: usize) -> bool {
        true
    }

    fn release_core(&mut self, _: usize) {}

    /// (The kernel signals each frame or none: in a pause, none, and what comes waits in the socket's queue.)
    fn pause(&mut self) {}

    fn resume(&mut self) -> bool {
        self.rx_ready()
    }

    fn queue_frames(&self) -> usize {
        self.umem.receives().len()
    }

    fn tx_buffers(&mut self) -> (usize, usize) {
        let all = self.umem.sends().len();
        (all, all - self.free.len())
    }

    fn copied_bytes(&self) -> u64 {
        self.counters.sent_bytes
    }
}
