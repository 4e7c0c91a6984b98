//! A ring's receive queue: chunks posted, frames taken.
//!
//! An entry has one buffer. Which chunk lies at which entry the queue remembers, since a completion names the entry alone. When an entry fails, the card receives
//! no more: the queue is emptied, reset, and filled again; flow rules lead to it all the while.

use std::io;
use std::sync::Arc;

use rdma_core_sys as sys;

use crate::cqe::{CompletionQueue, Cqe};
use crate::doorbell::Doorbell;
use crate::memory::Memory;
use crate::verbs::{Channel, Cq, Pd, Wq};

/// Bytes of a data segment.
const SEGMENT: usize = size_of::<sys::mlx5_wqe_data_seg>();

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct ReceiveQueue {
    wq: Arc<Wq>,
    cq: CompletionQueue,
    memory: Arc<Memory>,
    /// Invariant: 2^`log_entries` entries of `stride` bytes, which live as long as `wq`.
    buf: *mut u8,
    log_entries: u32,
    stride: usize,
    doorbell: Doorbell,
    /// Entries posted, and of these those that the card was told of; entries taken. Running counters.
    posted: u16,
    told: u16,
    taken: u16,
    /// Which chunk lies at which entry.
    chunks: Box<[u32]>,
}

// SAFETY: the memory is the queue's, which is there as long as the value; who has the value is the only one to write it.
unsafe impl Send for ReceiveQueue {}

/// What was taken from the queue.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Taken {
    /// A frame of so many bytes, in this chunk, of which the completion tells.
    Frame(u32, usize, Cqe),
    /// The chunk comes back empty: the queue has failed, and the completion says how.
    Failed(u32, Cqe),
    /// A completion that makes no sense.
    Nothing,
}

impl ReceiveQueue {
    pub(crate) fn new(pd: &Arc<Pd>, memory: &Arc<Memory>, entries: u32, strips_tags: bool, owner: u32) -> io::Result<Self> {
        let channel = Channel::new(pd)?;
        let cq = Arc::new(Cq::new(pd, entries, Some(channel), owner)?);
        let wq = Arc::new(Wq::new(pd, &cq, entries, strips_tags, owner)?);
        wq.set_state(sys::IBV_WQS_RDY)?;
        let layout = wq.layout()?;
        // SAFETY: the value holds the queue.
        let doorbell = unsafe { Doorbell::of_receives(&layout) };
        let sys::mlx5dv_rwq { buf, wqe_cnt, stride, .. } = layout;
        Ok(Self {
            cq: CompletionQueue::new(cq)?,
            wq,
            memory: Arc::clone(memory),
            buf: buf.cast(),
            log_entries: wqe_cnt.max(1).ilog2(),
            stride: stride as usize,
            doorbell,
            posted: 0,
            told: 0,
            taken: 0,
            chunks: vec![0; wqe_cnt as usize].into(),
        })
    }

    /// What flow rules lead to.
    pub(crate) fn wq(&self) -> &Arc<Wq> {
        &self.wq
    }

    pub(crate) fn cq_mut(&mut self) -> &mut CompletionQueue {
        &mut self.cq
    }

    pub(crate) fn channel_fd(&self) -> i32 {
        self.cq.cq().channel().map_or(-1, Channel::fd)
    }

    /// Entries, and how many of them are posted.
    pub(crate) fn usage(&self) -> (usize, usize) {
        (self.chunks.len(), usize::from(self.posted.wrapping_sub(self.taken)))
    }

    /// The entry of a running counter.
    #[inline(always)]
    fn entry(&self, counter: u16) -> usize {
        usize::from(counter) & ((1 << self.log_entries) - 1)
    }

    /// Posts a chunk. `false`: there is no room.
    #[inline]
    pub(crate) fn post(&mut self, chunk: u32) -> bool {
        let (entries, taken) = self.usage();
        if taken == entries {
            return false;
        }
        let entry = self.entry(self.posted);
        let segment = sys::mlx5_wqe_data_seg {
            byte_count: (self.memory.chunk() as u32).to_be(),
            lkey: self.memory.lkey().to_be(),
            addr: (self.memory.at(chunk).addr() as u64).to_be(),
        };
        // SAFETY: within the buffer: the entry is not the card's, as it was not posted or has come back; it has room for a segment, and for a second one if it
        // is longer than that.
        unsafe {
            let at: *mut sys::mlx5_wqe_data_seg = self.buf.add(entry * self.stride).cast();
            at.write(segment);
            if self.stride > SEGMENT {
                at.add(1).write(sys::mlx5_wqe_data_seg { lkey: sys::MLX5_INVALID_LKEY.to_be(), ..Default::default() });
            }
        }
        self.chunks[entry] = chunk;
        self.posted = self.posted.wrapping_add(1);
        true
    }

    /// Tells the card of what was posted.
    #[inline]
    pub(crate) fn publish(&mut self) {
        if self.told == self.posted {
            return;
        }
        self.doorbell.post_receives(self.posted);
        self.told = self.posted;
    }

    /// Whether something has come.
    #[inline(always)]
    pub(crate) fn is_ready(&self) -> bool {
        self.cq.peek().is_some()
    }

    /// Takes the next completion.
    #[inline]
    pub(crate) fn take(&mut self) -> Option<Taken> {
        let cqe = self.cq.peek()?;
        self.cq.advance();
        let counter = cqe.counter();
        if counter != self.taken || self.taken == self.told {
            // (Entries come back in their order. What says otherwise is not believed.)
            tracing::error!("the card has received into entry {counter:#x}, and {:#x} to {:#x} are posted", self.taken, self.told);
            return Some(Taken::Nothing);
        }
        let chunk = self.chunks[self.entry(counter)];
        self.taken = self.taken.wrapping_add(1);
        let len = cqe.byte_count() as usize;
        let is_frame = cqe.opcode() == sys::MLX5_CQE_RESP_SEND && cqe.is_plain() && len <= self.memory.chunk();
        Some(if is_frame { Taken::Frame(chunk, len, cqe) } else { Taken::Failed(chunk, cqe) })
    }

    /// Tells the card which completions were taken.
    #[inline]
    pub(crate) fn release(&mut self) {
        self.cq.release();
    }

    /// Makes it receive again after a failure: the chunks that were posted come back in `into`.
    #[cold]
    pub(crate) fn restart(&mut self, into: &mut Vec<u32>) -> io::Result<()> {
        self.stop(into)?;
        self.wq.set_state(sys::IBV_WQS_RDY)
    }

    /// Makes it receive no more: the chunks that were posted come back in `into`.
    #[cold]
    pub(crate) fn stop(&mut self, into: &mut Vec<u32>) -> io::Result<()> {
        // (In error, the card flushes what is posted. It may be in error already by what it knows itself.)
        if let Err(error) = self.wq.set_state(sys::IBV_WQS_ERR) {
            tracing::debug!("a receive queue that has failed: {error}");
        }
        self.wq.set_state(sys::IBV_WQS_RESET)?;
        // Nothing is the card's any more: neither what it has flushed, nor what it has not.
        while self.cq.peek().is_some() {
            self.cq.advance();
        }
        while self.taken != self.posted {
            into.push(self.chunks[self.entry(self.taken)]);
            self.taken = self.taken.wrapping_add(1);
        }
        // The library counts anew, in the record too, when the queue is made ready; but not our queue of completions, which it leaves alone once mlx5dv_init_obj(3) has handed it out.
        // (What was taken of that, the next release tells.)
        (self.posted, self.told, self.taken) = (0, 0, 0);
        Ok(())
    }
}
