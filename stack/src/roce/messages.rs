//! The adapter as a message plane. It keeps the bytes of its regions itself, so it gives them addresses, too.

use super::hca::Hca;
use super::memory::{Access, Memory, Pd, RegisterError};
use super::qp::{Modify, ModifyError, QpConfig, State};
use super::work::{Completion, PostError, SendWr, Sge};
use super::{Arm, CreateError};
use crate::device::messages::{MessageLimits, Messages, Region};
use crate::time::Instant;

/// Regions begin at multiples of this, and never touch: an address behind a region's end is in none.
const SPACING: u64 = 1 << 16;

impl<M: Memory + From<Vec<u8>>> Messages for Hca<M> {
    type Memory = M;

    fn message_limits(&self) -> MessageLimits {
        let limits = self.limits();
        let datagram = self.tuning().datagram_mtu.bytes() as usize;
        MessageLimits { wrs: limits.wrs, cq_depth: limits.cq_depth, inline: limits.inline, datagram }
    }

    fn alloc_pd(&mut self) -> Pd {
        self.alloc_pd()
    }

    fn allocate(&mut self, len: usize) -> Result<M, RegisterError> {
        Ok(M::from(vec![0; len]))
    }

    fn register(&mut self, pd: Pd, memory: M, access: Access) -> Result<Region, RegisterError> {
        let (address, len) = (self.next_address, memory.len());
        let key = self.register(pd, address, memory, access)?;
        self.next_address = address.saturating_add((len / SPACING + 2).saturating_mul(SPACING));
        Ok(Region { address, key, len })
    }

    fn deregister(&mut self, key: u32) -> Option<M> {
        self.deregister(key)
    }

    fn memory(&self, key: u32) -> Option<&M> {
        self.memory(key)
    }

    fn memory_mut(&mut self, key: u32) -> Option<&mut M> {
        self.memory_mut(key)
    }

    fn create_cq(&mut self, depth: usize) -> Result<u32, CreateError> {
        self.create_cq(depth)
    }

    fn destroy_cq(&mut self, cq: u32) -> Result<(), CreateError> {
        self.destroy_cq(cq)
    }

    fn poll_cq(&mut self, cq: u32) -> Option<Completion> {
        self.poll_cq(cq)
    }

    fn arm_cq(&mut self, cq: u32, arm: Arm) {
        self.arm_cq(cq, arm);
    }

    fn take_cq_event(&mut self, cq: u32) -> bool {
        self.take_cq_event(cq)
    }

    fn create_qp(&mut self, config: QpConfig) -> Result<u32, CreateError> {
        self.create_qp(config)
    }

    fn destroy_qp(&mut self, qp: u32) -> Result<(), CreateError> {
        self.destroy_qp(qp)
    }

    fn modify_qp(&mut self, now: Instant, qp: u32, modify: &Modify) -> Result<(), ModifyError> {
        self.modify_qp(now, qp, modify)
    }

    fn qp_state(&self, qp: u32) -> Option<State> {
        self.qp_state(qp)
    }

    fn post_send(&mut self, now: Instant, qp: u32, wr: &SendWr<'_>) -> Result<(), PostError> {
        self.post_send(now, qp, wr)
    }

    fn post_recv(&mut self, now: Instant, qp: u32, id: u64, sges: &[Sge]) -> Result<(), PostError> {
        self.post_recv(now, qp, id, sges)
    }
}
