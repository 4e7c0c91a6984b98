//! The message plane, by verbs.

use core::ptr;

use rdma_core_sys as sys;
use ringway_stack::device::messages::{
    Access, Arm, Completion, CreateError, Data, MessageLimits, Messages, Modify, ModifyError, Pd, PostError, QpConfig, Region,
    RegisterError, SendOp, SendWr, Sge, State, Status, Transport,
};
use ringway_stack::time::Instant;

use crate::adapter::{Adapter, PORT, Queue};
use crate::completions::completion_of;
use crate::memory::{CardMemory, Pages};
use crate::numbered::Numbered;
use crate::paths::{Handles, vector_of};
use crate::requests::{Pieces, refusal, request};
use crate::transitions::{change_of, state_after};
use crate::verbs::{CompletionQueue, QueuePair, Registered};

/// What the peers may do with a region: they know it by their key.
const REMOTE: Access = Access::REMOTE_WRITE.union(Access::REMOTE_READ).union(Access::REMOTE_ATOMIC);

/// Why something was not made.
fn refused(error: &std::io::Error) -> CreateError {
    tracing::debug!("not made: {error}");
    match error.raw_os_error() {
        Some(libc::EINVAL) => CreateError::Limit,
        None => CreateError::Missing,
        Some(_) => CreateError::Full,
    }
}

impl<M: CardMemory> Adapter<M> {
    /// A queue's next completion.
    #[inline(never)]
    fn next_completion(&mut self, cq: u32) -> Option<Completion> {
        let cq = self.cqs.get_mut(cq)?;
        loop {
            let completion = completion_of(cq.poll()?);
            if completion.status == Status::Success {
                // (Those of a queue pair that is no more are gone with it.)
                if self.qps.has(completion.qpn) {
                    return Some(completion);
                }
            } else if let Some(queue) = self.qps.get_mut(completion.qpn) {
                // (What fails without a peer's word stops sends alone: IBTA spec, s10.3.1.)
                queue.state = if queue.transport == Transport::Rc { State::Err } else { State::Sqe };
                return Some(completion);
            }
        }
    }
}

impl<M: CardMemory> Messages for Adapter<M> {
    type Memory = M;

    fn message_limits(&self) -> MessageLimits {
        self.limits
    }

    fn alloc_pd(&mut self) -> Pd {
        self.new_domain()
    }

    fn allocate(&mut self, len: usize) -> Result<M, RegisterError> {
        Pages::new(len).map(M::from).map_err(|_| RegisterError::Full)
    }

    fn register(&mut self, pd: Pd, memory: M, access: Access) -> Result<Region, RegisterError> {
        if access.intersects(Access::REMOTE_WRITE | Access::REMOTE_ATOMIC) && !access.contains(Access::LOCAL_WRITE) {
            return Err(RegisterError::Flags);
        }
        let full = |error: std::io::Error| {
            tracing::debug!("memory is not registered: {error}");
            RegisterError::Full
        };
        let domain = self.domain(pd).map_err(full)?;
        let (start, len) = (memory.start().ok_or(RegisterError::Full)?, memory.len());
        let region = Registered::new(&domain, memory, access.bits()).map_err(full)?;
        let (lkey, rkey) = region.keys().ok_or(RegisterError::Full)?;
        // A region has one name here: the peers' key, if they have one. Where a device's keys differ, another region may have the same.
        let key = if access.intersects(REMOTE) { rkey } else { lkey };
        if self.regions.has(key) {
            return Err(RegisterError::Full);
        }
        self.regions.insert(key, region);
        Ok(Region { address: start.as_ptr().expose_provenance() as u64, key, len })
    }

    fn deregister(&mut self, key: u32) -> Option<M> {
        self.regions.remove(key).map(|mut region| {
            region.end();
            region.into_memory()
        })
    }

    fn memory(&self, key: u32) -> Option<&M> {
        self.regions.get(key).map(|region| &region.memory)
    }

    fn memory_mut(&mut self, key: u32) -> Option<&mut M> {
        self.regions.get_mut(key).map(|region| &mut region.memory)
    }

    fn create_cq(&mut self, depth: usize) -> Result<u32, CreateError> {
        if depth == 0 || depth > self.limits.cq_depth {
            return Err(CreateError::Limit);
        }
        let number = self.number();
        let opened = self.opened.as_ref().ok_or(CreateError::Missing)?;
        let cq = CompletionQueue::new(&opened.channel, depth, number).map_err(|error| refused(&error))?;
        self.cqs.insert(number, cq);
        self.unarmed.push(number);
        Ok(number)
    }

    fn destroy_cq(&mut self, cq: u32) -> Result<(), CreateError> {
        if self.cqs.get(cq).ok_or(CreateError::Missing)?.users > 0 {
            return Err(CreateError::InUse);
        }
        self.cqs.remove(cq);
        Ok(())
    }

    /// (Programs that do not sleep call this again and again, so that to find nothing is short.)
    #[inline(always)]
    fn poll_cq(&mut self, cq: u32) -> Option<Completion> {
        if self.cqs.get_mut(cq)?.is_empty() { None } else { self.next_completion(cq) }
    }

    fn arm_cq(&mut self, cq: u32, arm: Arm) {
        if let Some(cq) = self.cqs.get_mut(cq) {
            cq.arm(arm == Arm::Solicited);
        }
    }

    fn take_cq_event(&mut self, cq: u32) -> bool {
        self.cqs.get_mut(cq).is_some_and(|cq| core::mem::take(&mut cq.has_event))
    }

    fn create_qp(&mut self, config: QpConfig) -> Result<u32, CreateError> {
        let domain = self.domain(config.pd).map_err(|error| refused(&error))?;
        let numbers = [config.send_cq, config.recv_cq];
        let [Some(send_cq), Some(recv_cq)] = numbers.map(|number| self.cqs.get(number)) else { return Err(CreateError::Missing) };
        let kind = match config.transport {
            Transport::Rc => sys::IBV_QPT_RC,
            Transport::Uc => sys::IBV_QPT_UC,
            Transport::Ud => sys::IBV_QPT_UD,
        };
        let pair = QueuePair::new(&domain, &config, kind, [send_cq, recv_cq]).map_err(|error| refused(&error))?;
        let number = pair.number();
        for cq in numbers {
            self.cqs.get_mut(cq).ok_or(CreateError::Missing)?.users += 1;
        }
        let queue = Queue {
            pair,
            transport: config.transport,
            state: State::Reset,
            cqs: numbers,
            domain,
            sges_max: config.sges_max,
            inline_max: config.inline_max,
            handles: Handles::default(),
        };
        self.qps.insert(number, queue);
        Ok(number)
    }

    fn destroy_qp(&mut self, qp: u32) -> Result<(), CreateError> {
        let queue = self.qps.remove(qp).ok_or(CreateError::Missing)?;
        for cq in queue.cqs {
            if let Some(cq) = self.cqs.get_mut(cq) {
                cq.users -= 1;
            }
        }
        Ok(())
    }

    fn modify_qp(&mut self, _now: Instant, qp: u32, modify: &Modify) -> Result<(), ModifyError> {
        let queue = self.qps.get_mut(qp).ok_or(ModifyError::NoQp)?;
        let vector = match modify {
            Modify::Rtr(peer) => Some(vector_of(&queue.domain.context, PORT, &peer.path).ok_or(ModifyError::Attribute)?),
            _ => None,
        };
        let mut change = change_of(queue.transport, queue.state, PORT, modify, vector).ok_or(ModifyError::Transition)?;
        // (Verbs say EINVAL of both: of transitions that there are not, and of attributes.)
        queue.pair.modify(&mut change.attr, change.mask).map_err(|_| ModifyError::Transition)?;
        queue.state = state_after(queue.state, modify);
        Ok(())
    }

    fn qp_state(&self, qp: u32) -> Option<State> {
        self.qps.get(qp).map(|queue| queue.state)
    }

    fn post_send(&mut self, _now: Instant, qp: u32, wr: &SendWr<'_>) -> Result<(), PostError> {
        let Self { qps, regions, .. } = self;
        let queue = qps.get_mut(qp).ok_or(PostError::NoQp)?;
        let mut pieces = Pieces::new();
        match wr.data {
            Data::Gather(sges) if sges.len() <= queue.sges_max => pieces.gather(sges, |key| local_key(regions, key))?,
            Data::Inline(bytes) if bytes.len() <= queue.inline_max => pieces.inline(bytes)?,
            Data::Gather(_) | Data::Inline(_) => return Err(PostError::TooLong),
        }
        let address = match (&wr.op, queue.transport) {
            (SendOp::Datagram { path, .. }, Transport::Ud) => {
                queue.handles.of(&queue.domain, PORT, path).map_err(|_| PostError::Operation)?
            }
            (SendOp::Datagram { .. }, _) | (_, Transport::Ud) => return Err(PostError::Operation),
            _ => ptr::null_mut(),
        };
        let mut raw = request(wr, address);
        (raw.sg_list, raw.num_sge) = pieces.raw();
        let mut bad = ptr::null_mut();
        // SAFETY: the queue pair is there; the request and its pieces are copied before the call returns, and inline bytes with them. What other pieces name is
        // registered memory, or else the request fails.
        posted(unsafe { sys::ibv_post_send(queue.pair.raw(), &raw mut raw, &raw mut bad) })
    }

    fn post_recv(&mut self, _now: Instant, qp: u32, id: u64, sges: &[Sge]) -> Result<(), PostError> {
        let Self { qps, regions, .. } = self;
        let queue = qps.get_mut(qp).ok_or(PostError::NoQp)?;
        if sges.len() > queue.sges_max {
            return Err(PostError::TooLong);
        }
        let mut pieces = Pieces::new();
        pieces.gather(sges, |key| local_key(regions, key))?;
        let (sg_list, num_sge) = pieces.raw();
        let mut raw = sys::ibv_recv_wr { wr_id: id, next: ptr::null_mut(), sg_list, num_sge };
        let mut bad = ptr::null_mut();
        // SAFETY: as above.
        posted(unsafe { sys::ibv_post_recv(queue.pair.raw(), &raw mut raw, &raw mut bad) })
    }
}

fn posted(errno: i32) -> Result<(), PostError> {
    // (Some drivers give -1 and errno.)
    match errno {
        0 => Ok(()),
        -1 => Err(refusal(std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EINVAL))),
        errno => Err(refusal(errno.abs())),
    }
}

/// A region's key for requests of our own. What is none of ours is left to the device to refuse.
fn local_key<M: CardMemory>(regions: &Numbered<Registered<M>>, key: u32) -> u32 {
    regions.get(key).and_then(Registered::keys).map_or(key, |(lkey, _)| lkey)
}
