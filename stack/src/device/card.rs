//! A card: what its rings share.

use core::marker::PhantomData;

use super::{Capabilities, CyclicId, FlowRule, Queues, RuleError, RuleId, Unsupported};

/// Names the queues of one ring among those of its device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueueId(pub u32);

/// Where a flow rule steers frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Target {
    /// The receive queue that [`Queues::poll_rx`] polls.
    Queue(QueueId),
    /// A cyclic queue of that ring ([`Queues::cyclic_create`]).
    Cyclic(QueueId, CyclicId),
}

impl Target {
    /// The ring that gets the frames.
    pub const fn queue(self) -> QueueId {
        match self {
            Self::Queue(queue) | Self::Cyclic(queue, _) => queue,
        }
    }
}

impl From<QueueId> for Target {
    fn from(queue: QueueId) -> Self {
        Self::Queue(queue)
    }
}

/// A flow rule that the device has taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attached {
    /// Its name, for [`Device::retarget`] and [`Device::detach`].
    pub rule: RuleId,
    /// It steers from now on. If not, [`super::DeviceEvent::RuleReady`] or [`super::DeviceEvent::RuleFailed`] comes to the ring that it steers to: firmware
    /// may take milliseconds, and nobody who holds a ring's lock waits for it.
    pub is_ready: bool,
}

/// What a ring asks for when it is opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueuesConfig {
    /// It gets what rules steer to it and nothing else: no share of what no rule matches (ARP, neighbour discovery, ICMP).
    pub steered_only: bool,
}

/// Why a ring was not opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// The device has [`Capabilities::rings_max`] of them, or the system refused a resource.
    #[error("no room for another ring")]
    Full,
    /// The device lacks what was asked for.
    #[error(transparent)]
    Unsupported(#[from] Unsupported),
}

/// A card, an interface, or a fabric of shared memory: a handle on it, whose clones name the same one.
///
/// What is asked of it here are control operations. None blocks, and none is on the path of a packet; those that take long complete later
/// ([`Attached::is_ready`]), in the order in which they were asked for.
pub trait Device: Clone {
    /// One ring's queues.
    type Queues: Queues<Device = Self>;

    /// What the device can do; constant for its life.
    fn capabilities(&self) -> &Capabilities;

    /// Opens another ring.
    ///
    /// # Errors
    /// [`OpenError`].
    fn open(&self, config: &QueuesConfig) -> Result<Self::Queues, OpenError>;

    /// Steers matching frames to `target`, or makes it a member of the group that equal shared rules form ([`FlowRule::shared`]). A ring's rules
    /// end with it.
    ///
    /// # Errors
    /// [`RuleError`]: taken by another ring, no room, more than the device can steer by, or no such cyclic queue.
    fn attach(&self, rule: &FlowRule, target: Target) -> Result<Attached, RuleError>;

    /// Steers what a rule matches elsewhere from now on, under the mark `tag`. No frame is lost or delivered twice by that; those that have arrived before
    /// stay where they are. A rule that is not ready yet goes there once it is, and the news of it, too.
    ///
    /// # Errors
    /// [`RuleError::NoQueue`]; [`RuleError::Unsupported`] on a device whose rules cannot be moved, [`RuleError::Full`] where it cannot be moved now: the rule
    /// steers as before. [`RuleError::Ended`].
    fn retarget(&self, rule: RuleId, target: Target, tag: u32) -> Result<(), RuleError>;

    /// Ends what [`Device::attach`] began. A rule that is not ready yet never will be, and nothing more is said of it; one that ended with its ring has
    /// ended already.
    fn detach(&self, rule: RuleId);
}

/// A device with one ring, to which everything comes: it has nothing to steer.
#[derive(Debug)]
pub struct SingleQueue<Q> {
    capabilities: Capabilities,
    queues: PhantomData<fn() -> Q>,
}

impl<Q> SingleQueue<Q> {
    /// With these capabilities.
    pub const fn new(capabilities: Capabilities) -> Self {
        Self { capabilities, queues: PhantomData }
    }
}

impl<Q> Clone for SingleQueue<Q> {
    fn clone(&self) -> Self {
        Self::new(self.capabilities.clone())
    }
}

impl<Q: Queues<Device = Self>> Device for SingleQueue<Q> {
    type Queues = Q;

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn open(&self, _: &QueuesConfig) -> Result<Q, OpenError> {
        Err(OpenError::Full)
    }

    fn attach(&self, _: &FlowRule, _: Target) -> Result<Attached, RuleError> {
        Ok(Attached { rule: RuleId(0), is_ready: true })
    }

    fn retarget(&self, _: RuleId, _: Target, _: u32) -> Result<(), RuleError> {
        Ok(())
    }

    fn detach(&self, _: RuleId) {}
}
