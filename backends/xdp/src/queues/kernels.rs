//! Connections of the kernel's that a rule has come before: a listener on an interface is the ring's for the second time, say, and the kernel has accepted some
//! meanwhile (a fork's child has them, or had). The ring would answer their segments by a reset. So the kernel is asked about what no ring has; what is its own has its
//! frames go there from then on ([`XdpDevice::leave_to_kernel`]). The segment that it was noticed by is lost, and is sent again.
//!
//! [`XdpDevice::leave_to_kernel`]: crate::card::XdpDevice::leave_to_kernel

use std::time::{Duration, Instant};

use ringway_host::netlink::SocketDiag;
use ringway_stack::device::{FiveTuple, RxFrame};
use ringway_stack::net::LinkId;

use super::XdpQueues;
use crate::strays::segment;
use crate::umem::Received;

/// Questions in [`WINDOW`]: who sends what is nobody's is not to keep the ring busy with them.
const QUESTIONS_MAX: u32 = 1000;
const WINDOW: Duration = Duration::from_secs(1);

/// Asks the kernel what it has.
#[derive(Debug, Default)]
pub(super) struct Kernels {
    diag: Option<SocketDiag>,
    /// Since when how many questions were asked.
    asked: Option<(Instant, u32)>,
}

impl Kernels {
    /// Whether one more question may be asked.
    fn may_ask(&mut self, now: Instant) -> bool {
        let (since, asked) = self.asked.get_or_insert((now, 0));
        if now.duration_since(*since) >= WINDOW {
            (*since, *asked) = (now, 0);
        }
        *asked += 1;
        *asked <= QUESTIONS_MAX
    }

    /// Whether the kernel has a connection. `None`: it does not say.
    fn has(&mut self, flow: &FiveTuple, link: LinkId) -> Option<bool> {
        if self.diag.is_none() {
            self.diag = SocketDiag::open().inspect_err(|error| tracing::debug!("the kernel's sockets are not known: {error}")).ok();
        }
        let answer = self.diag.as_mut()?.has_connection(flow.local, flow.remote?, link);
        answer.inspect_err(|error| tracing::debug!("the kernel does not say whether it has {flow:?}: {error}")).ok()
    }
}

impl XdpQueues {
    /// Whether a frame that no ring has is a connection's of the kernel, which has what follows from now on. (Of too many questions, the rest are not answered: it is sent
    /// again.)
    pub(super) fn is_kernels(&mut self, frame: &RxFrame<Received>) -> bool {
        let Some((flow, _)) = segment(frame.head()) else { return false };
        if !self.kernels.may_ask(Instant::now()) {
            return true;
        }
        let link = LinkId(self.device.interface().index);
        let is_there = self.kernels.has(&flow, link) == Some(true) && self.device.leave_to_kernel(&flow);
        if is_there {
            self.counters.left_to_kernel += 1;
            tracing::debug!("the kernel has the connection of {:?} with {}, and gets what comes for it", flow.remote, flow.local);
        }
        is_there
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_questions_are_asked_and_then_none_for_a_while() {
        let mut kernels = Kernels::default();
        let now = Instant::now();
        assert_eq!((0..5000).filter(|_| kernels.may_ask(now)).count(), QUESTIONS_MAX as usize);
        assert!(!kernels.may_ask(now + WINDOW / 2));
        assert!(kernels.may_ask(now + WINDOW));
    }
}
