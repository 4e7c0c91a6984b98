//! Connections of the kernel's that a rule has come before: a listener on an interface is the ring's for the second time, say, and the kernel has accepted some
//! meanwhile (a fork's child has them, or had). The ring would answer their segments by a reset. So the kernel is asked about what no ring has; what is its own has its
//! frames go there from then on ([`XdpDevice::leave_to_kernel`]). The segment that it was noticed by is lost, and is sent again.
//!
//! [`XdpDevice::leave_to_kernel`]: crate::card::XdpDevice::leave_to_kernel

use std::hash::{BuildHasher as _, RandomState};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use ringway_host::netlink::SocketDiag;
use ringway_stack::device::{FiveTuple, RxFrame};
use ringway_stack::net::LinkId;

use super::XdpQueues;
use crate::strays::segment;
use crate::umem::Received;

/// Questions in [`WINDOW`] about the hosts of a share: who sends what is nobody's is not to keep the ring busy with them, nor to use up what others need.
const QUESTIONS_MAX: u16 = 50;
/// The same about all.
const ALL_QUESTIONS_MAX: u16 = 1000;
/// Shares, among which hosts are dealt out.
const SHARES: usize = 64;
const WINDOW: Duration = Duration::from_secs(1);

/// Asks the kernel what it has.
#[derive(Debug)]
pub(super) struct Kernels {
    diag: Option<SocketDiag>,
    /// Since when how many questions were asked, by shares.
    asked: Option<(Instant, Box<[u16; SHARES]>)>,
    /// (Nobody is to know with whom he is dealt out.)
    deals: RandomState,
}

impl Default for Kernels {
    fn default() -> Self {
        Self { diag: None, asked: None, deals: RandomState::new() }
    }
}

impl Kernels {
    /// Whether one more question may be asked, about a host's segment.
    fn may_ask(&mut self, now: Instant, host: IpAddr) -> bool {
        let share = self.deals.hash_one(host) as usize % SHARES;
        let (since, asked) = self.asked.get_or_insert_with(|| (now, Box::new([0; SHARES])));
        if now.duration_since(*since) >= WINDOW {
            (*since, **asked) = (now, [0; SHARES]);
        }
        let is_left = asked[share] < QUESTIONS_MAX && asked.iter().sum::<u16>() < ALL_QUESTIONS_MAX;
        asked[share] += u16::from(is_left);
        is_left
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
        if !flow.remote.is_some_and(|host| self.kernels.may_ask(Instant::now(), host.ip())) {
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
        let (now, host) = (Instant::now(), IpAddr::from([10, 0, 0, 9]));
        assert_eq!((0..5000).filter(|_| kernels.may_ask(now, host)).count(), usize::from(QUESTIONS_MAX));
        assert!(!kernels.may_ask(now + WINDOW / 2, host));
        let others = (0..=255).filter(|&last| kernels.may_ask(now + WINDOW / 2, IpAddr::from([10, 0, 1, last]))).count();
        assert!(others > 128, "{others} of 256 other hosts");
        assert!(kernels.may_ask(now + WINDOW, host));
    }
}
