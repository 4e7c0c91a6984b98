//! The Device: this process's membership in the fabric, which its flow rules belong to.

use std::sync::Arc;

use ringway_stack::device::{
    Attached, Capabilities, Device, FlowRule, OpenError, QueueId, QueuesConfig, RuleError, RuleId, Steering, Target,
};
use ringway_stack::offload::DeviceKind;

use crate::layout::{GATHER_MAX, INLINE_MAX, MTU};
use crate::queues::ShmQueues;
use crate::rendezvous::Rendezvous;

/// Shared memory as a card. A member has one ring, the one that [`crate::attach`] gave with it.
#[derive(Clone, Debug)]
pub struct ShmDevice {
    capabilities: Arc<Capabilities>,
    rendezvous: Arc<Rendezvous>,
}

impl ShmDevice {
    pub(crate) fn new(rendezvous: Arc<Rendezvous>) -> Self {
        let capabilities = Capabilities {
            inline_max: INLINE_MAX,
            gather_max: GATHER_MAX,
            // Memory corrupts nothing, so nobody reads checksums: there is nothing to fill in.
            tx_checksum: true,
            rx_checksum: true,
            // Tags travel beside the frame.
            vlan_insert: true,
            vlan_strip: true,
            point_to_point: true,
            // Of TCP addresses; the sender gives each of those who share one its turn.
            steering: Steering::RSS.union(Steering::IPV6),
            lends_heads: true,
            dummy: true,
            ..Capabilities::least(DeviceKind::Shm, MTU)
        };
        Self { capabilities: Arc::new(capabilities), rendezvous }
    }
}

impl Device for ShmDevice {
    type Queues = ShmQueues;

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn open(&self, _: &QueuesConfig) -> Result<ShmQueues, OpenError> {
        Err(OpenError::Full)
    }

    fn attach(&self, rule: &FlowRule, target: Target) -> Result<Attached, RuleError> {
        only_ring(target)?;
        self.rendezvous.publish(rule).map(|rule| Attached { rule, is_ready: true })
    }

    fn retarget(&self, _: RuleId, target: Target, _: u32) -> Result<(), RuleError> {
        only_ring(target)
    }

    fn detach(&self, rule: RuleId) {
        self.rendezvous.withdraw(rule);
    }
}

fn only_ring(target: Target) -> Result<(), RuleError> {
    if target == Target::Queue(QueueId(0)) { Ok(()) } else { Err(RuleError::NoQueue) }
}
