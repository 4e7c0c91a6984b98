//! A device: shared memory, or an interface.

use ringway_shm::ShmDevice;
use ringway_stack::device::{Attached, Capabilities, Device, FlowRule, OpenError, QueuesConfig, RuleError, RuleId, Target};
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
