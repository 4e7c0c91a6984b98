//! A device: shared memory, or an interface.

use ringway_shm::ShmDevice;
use ringway_stack::device::{Attached, Capabilities, Device, FiveTuple, FlowRule, OpenError, QueuesConfig, RuleError, RuleId, Target};
use ringway_xdp::XdpDevice;

use super::RingQueues;

/// See the module's documentation.
#[derive(Clone, Debug)]
pub(crate) enum Card {
    Shm(ShmDevice),
    Xdp(XdpDevice),
}

macro_rules! by_device {
    ($this:expr, $of:ident => $call:expr) => {
        match $this {
            Self::Shm($of) => $call,
            Self::Xdp($of) => $call,
        }
    };
}

impl Card {
    /// Has the frames of a connection go to the kernel from now on, although a wider rule matches them. Whether they do: shared memory has no kernel beside it.
    pub(crate) fn leave_to_kernel(&self, flow: &FiveTuple) -> bool {
        match self {
            Self::Shm(_) => false,
            Self::Xdp(of) => of.leave_to_kernel(flow),
        }
    }
}

impl Device for Card {
    type Queues = RingQueues;

    #[inline]
    fn capabilities(&self) -> &Capabilities {
        by_device!(self, of => of.capabilities())
    }

    fn open(&self, config: &QueuesConfig) -> Result<RingQueues, OpenError> {
        match self {
            Self::Shm(of) => of.open(config).map(RingQueues::shm),
            Self::Xdp(of) => of.open(config).map(RingQueues::xdp),
        }
    }

    fn attach(&self, rule: &FlowRule, target: Target) -> Result<Attached, RuleError> {
        by_device!(self, of => of.attach(rule, target))
    }

    fn retarget(&self, rule: RuleId, target: Target, tag: u32) -> Result<(), RuleError> {
        by_device!(self, of => of.retarget(rule, target, tag))
    }

    fn detach(&self, rule: RuleId) {
        by_device!(self, of => of.detach(rule));
    }
}
