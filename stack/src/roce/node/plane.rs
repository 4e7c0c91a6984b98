//! The adapter's message plane, as it is.

use super::Node;
use crate::device::messages::{
    Access, Arm, Completion, CreateError, Memory, MessageLimits, Messages, Modify, ModifyError, Pd, PostError, QpConfig, Region,
    RegisterError, SendWr, Sge, State,
};
use crate::time::Instant;

impl<M: Memory + From<Vec<u8>>> Messages for Node<M> {
    type Memory = M;

    fn message_limits(&self) -> MessageLimits {
        Messages::message_limits(&self.hca)
    }

    fn alloc_pd(&mut self) -> Pd {
        Messages::alloc_pd(&mut self.hca)
    }

    fn allocate(&mut self, len: usize) -> Result<M, RegisterError> {
        Messages::allocate(&mut self.hca, len)
    }

    fn register(&mut self, pd: Pd, memory: M, access: Access) -> Result<Region, RegisterError> {
        Messages::register(&mut self.hca, pd, memory, access)
    }

    fn deregister(&mut self, key: u32) -> Option<M> {
        Messages::deregister(&mut self.hca, key)
    }

    fn memory(&self, key: u32) -> Option<&M> {
        Messages::memory(&self.hca, key)
    }

    fn memory_mut(&mut self, key: u32) -> Option<&mut M> {
        Messages::memory_mut(&mut self.hca, key)
    }

    fn create_cq(&mut self, depth: usize) -> Result<u32, CreateError> {
        Messages::create_cq(&mut self.hca, depth)
    }

    fn destroy_cq(&mut self, cq: u32) -> Result<(), CreateError> {
        Messages::destroy_cq(&mut self.hca, cq)
    }

    fn poll_cq(&mut self, cq: u32) -> Option<Completion> {
        Messages::poll_cq(&mut self.hca, cq)
    }

    fn arm_cq(&mut self, cq: u32, arm: Arm) {
        Messages::arm_cq(&mut self.hca, cq, arm);
    }

    fn take_cq_event(&mut self, cq: u32) -> bool {
        Messages::take_cq_event(&mut self.hca, cq)
    }

    fn create_qp(&mut self, config: QpConfig) -> Result<u32, CreateError> {
        Messages::create_qp(&mut self.hca, config)
    }

    fn destroy_qp(&mut self, qp: u32) -> Result<(), CreateError> {
        Messages::destroy_qp(&mut self.hca, qp)
    }

    fn modify_qp(&mut self, now: Instant, qp: u32, modify: &Modify) -> Result<(), ModifyError> {
        Messages::modify_qp(&mut self.hca, now, qp, modify)
    }

    fn qp_state(&self, qp: u32) -> Option<State> {
        Messages::qp_state(&self.hca, qp)
    }

    fn post_send(&mut self, now: Instant, qp: u32, wr: &SendWr<'_>) -> Result<(), PostError> {
        Messages::post_send(&mut self.hca, now, qp, wr)
    }

    fn post_recv(&mut self, now: Instant, qp: u32, id: u64, sges: &[Sge]) -> Result<(), PostError> {
        Messages::post_recv(&mut self.hca, now, qp, id, sges)
    }

    fn share(&mut self, qp: u32, region: &Region) -> bool {
        let Some((peer, _)) = self.hca.peer_of(qp) else { return false };
        let shared = self.sharing.as_mut().and_then(|sharing| sharing.share(peer, qp, region));
        shared.is_some_and(|memory| self.hca.replace_memory(region.key, memory))
    }

    fn place(&mut self, qp: u32, key: u32, address: u64, bytes: &[u8]) -> bool {
        let Some(sharing) = &mut self.sharing else { return false };
        self.hca.peer_of(qp).is_some_and(|(peer, qp)| sharing.place(peer, qp, key, address, bytes))
    }
}
