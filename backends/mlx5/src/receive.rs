//! A ring's receive queue: chunks posted, frames taken.
//!
//! An entry has one buffer. Which chunk lies at which entry the queue remembers, since a completion names the entry alone. When an entry fails, the card receives
//! no more: the queue is emptied, reset, and filled again; flow rules lead to it all the while.

use std::io;
use std::sync::Arc;

use rdma_core_sys as sys;
use ringway_stack::device::RxMeta;

use crate::clock::CardClock;
use crate::cqe::{CompletionQueue, Cqe};
use crate::doorbell::Doorbell;
use crate::memory::Memory;
use crate::mutants::{self, Mutant};
use crate::verbs::{Channel, Completions, Cq, Pd, Wq};

/// Bytes of a data segment.
const SEGMENT: usize = size_of::<sys::mlx5_wqe_data_seg>();

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct ReceiveQueue {
    wq: Arc<Wq>,
    cq: CompletionQueue,
    memory: Arc<Memory>,
    /// Invariant: 2^`log_stride` bytes for each of the `chunks`, which live as long as `wq`; each entry has its segments, but for the address.
    buf: *mut u8,
    log_stride: u32,
    doorbell: Doorbell,
    /// Entries posted, and of these those that the card was told of; entries taken. Running counters.
    posted: u16,
    told: u16,
    taken: u16,
    /// Which chunk lies at which entry. Invariant: a power of two of them, as the library makes queues; at most 2^15, so that counters tell rounds apart.
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
    pub(crate) fn new(
        pd: &Arc<Pd>,
        memory: &Arc<Memory>,
        entries: u32,
        strips_tags: bool,
        compresses: bool,
        owner: u32,
    ) -> io::Result<Self> {
        let channel = Channel::new(pd)?;
        let form = if compresses { Completions::Compressed { strides: false } } else { Completions::Whole };
        let cq = Arc::new(Cq::new(pd, entries, Some(channel), owner, form)?);
        let wq = Arc::new(Wq::new(pd, &cq, entries, strips_tags, owner, None)?);
        wq.set_state(sys::IBV_WQS_RDY)?;
        let layout = wq.layout()?;
        // SAFETY: the value holds the queue.
        let doorbell = unsafe { Doorbell::of_receives(&layout) };
        let sys::mlx5dv_rwq { buf, wqe_cnt, stride, .. } = layout;
        if !wqe_cnt.is_power_of_two() || wqe_cnt > 1 << 15 {
            return Err(io::Error::other("a receive queue of a size that was not asked for"));
        }
        let log_stride = if mutants::is(Mutant::ReceiveStride) { SEGMENT.ilog2() } else { stride.max(SEGMENT as u32).ilog2() };
        for entry in 0..wqe_cnt as usize {
            // SAFETY: within the buffer, of which nothing is posted.
            unsafe { write_segments(buf.cast::<u8>().add(entry << log_stride), 1 << log_stride, memory) };
        }
        Ok(Self {
            cq: CompletionQueue::new(cq)?,
            wq,
            memory: Arc::clone(memory),
            buf: buf.cast(),
            log_stride,
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

    pub(crate) fn cq(&self) -> &CompletionQueue {
        &self.cq
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
        usize::from(counter) & (self.chunks.len() - 1)
    }

    /// Posts a chunk. `false`: there is no room.
    #[inline]
    pub(crate) fn post(&mut self, chunk: u32) -> bool {
        let (entries, taken) = self.usage();
        if taken == entries {
            return false;
        }
        let entry = self.entry(self.posted);
        // SAFETY: within the buffer: the entry is not the card's, as it was not posted or has come back; it begins with a segment.
        unsafe {
            let segment: *mut sys::mlx5_wqe_data_seg = self.buf.add(entry << self.log_stride).cast();
            (*segment).addr = (self.memory.at(chunk).addr() as u64).to_be();
        }
        let remembered = if mutants::is(Mutant::ChunkMisplaced) { self.entry(self.posted.wrapping_sub(1)) } else { entry };
        self.chunks[remembered] = chunk;
        self.posted = self.posted.wrapping_add(1);
        true
    }

    /// Takes frames of at most `len_max` bytes, as long as nothing else comes and `take` has room; it is told of each chunk, of the length and of what else the card says,
    /// and has no use for the chunk afterwards. Chunks are posted again as they lie, or come back in `into`. How many frames that were, and whether there is more.
    #[inline(always)]
    pub(crate) fn take_short(
        &mut self,
        len_max: usize,
        into: &mut Vec<u32>,
        clock: Option<CardClock>,
        mut take: impl FnMut(u32, usize, &RxMeta) -> bool,
    ) -> (usize, bool) {
        let (mut count, mut has_more) = (0, true);
        if !self.cq.is_in_run() {
            (count, has_more) = self.take_plain(len_max, into, clock, &mut take);
        }
        if has_more && self.cq.cq().compresses().is_some() {
            let of_runs;
            (of_runs, has_more) = self.take_runs(len_max, into, clock, &mut take);
            count += of_runs;
        }
        (count, has_more)
    }

    /// The same, where a run is open or may begin.
    #[inline(never)]
    fn take_runs(
        &mut self,
        len_max: usize,
        into: &mut Vec<u32>,
        clock: Option<CardClock>,
        take: &mut impl FnMut(u32, usize, &RxMeta) -> bool,
    ) -> (usize, bool) {
        let (mut all, mut has_more) = (0, true);
        while has_more && let Some((count, is_whole)) = self.take_run(len_max, into, clock, take) {
            all += count;
            if !is_whole {
                break;
            }
            let (behind, is_other) = self.take_plain(len_max, into, clock, take);
            (all, has_more) = (all + behind, is_other);
        }
        (all, has_more)
    }

    /// The same, of frames that have a completion each.
    #[inline(always)]
    fn take_plain(
        &mut self,
        len_max: usize,
        into: &mut Vec<u32>,
        clock: Option<CardClock>,
        take: &mut impl FnMut(u32, usize, &RxMeta) -> bool,
    ) -> (usize, bool) {
        let (mut taken, mut count) = (self.taken, 0);
        let has_more = loop {
            let cqe = match self.cq.peek_frame(count) {
                Ok(cqe) => cqe,
                Err(is_other) => break is_other,
            };
            let len = cqe.byte_count() as usize;
            // (What makes no sense is for [`Self::take`] to say.)
            let is_next = cqe.counter() == taken && taken != self.told && len <= len_max;
            if !is_next || !take(self.chunks[self.entry(taken)], len, &cqe.meta(clock.as_ref())) {
                break true;
            }
            (taken, count) = (taken.wrapping_add(1), count + 1);
        };
        self.cq.advance_by(count);
        self.took(count as u16, into);
        (count as usize, has_more)
    }

    /// The same, of the run that is open or begins, if one does: and whether all of it was taken.
    #[inline(always)]
    fn take_run(
        &mut self,
        len_max: usize,
        into: &mut Vec<u32>,
        clock: Option<CardClock>,
        take: &mut impl FnMut(u32, usize, &RxMeta) -> bool,
    ) -> Option<(usize, bool)> {
        let (chunks, taken, posted) = (&*self.chunks, self.taken, self.told.wrapping_sub(self.taken));
        let run = self.cq.open_run()?;
        // (What makes no sense is for [`Self::take`] to say.)
        if !run.title().is_frame() || run.entry() != taken {
            return Some((0, false));
        }
        let (meta, left) = (run.title().meta(clock.as_ref()), run.rest().len());
        let mut count: u16 = 0;
        for words in run.rest().take(posted.into()) {
            let (len, entry) = (words.byte_count() as usize, taken.wrapping_add(count));
            if len > len_max || !take(chunks[usize::from(entry) & (chunks.len() - 1)], len, &meta) {
                break;
            }
            count += 1;
        }
        self.cq.advance_run(count.into());
        self.took(count, into);
        Some((count.into(), usize::from(count) == left))
    }

    /// So many entries more are taken, of whose chunks nobody has a use.
    #[inline(always)]
    fn took(&mut self, count: u16, into: &mut Vec<u32>) {
        // (Where all entries were posted, the one that is taken is the next to be posted.)
        if usize::from(self.posted.wrapping_sub(self.taken)) == self.chunks.len() {
            self.posted = self.posted.wrapping_add(count);
        } else {
            into.extend((0..count).map(|at| self.chunks[self.entry(self.taken.wrapping_add(at))]));
        }
        self.taken = self.taken.wrapping_add(count);
    }

    /// Tells the card of what was posted.
    #[inline(always)]
    pub(crate) fn publish(&mut self) {
        if self.told == self.posted {
            return;
        }
        self.doorbell.post_receives(self.posted.wrapping_add(u16::from(mutants::is(Mutant::ProducerAhead))));
        self.told = self.posted;
    }

    /// Whether something has come.
    #[inline(always)]
    pub(crate) fn is_ready(&self) -> bool {
        self.cq.is_ready()
    }

    /// Takes the next completion.
    #[inline(always)]
    pub(crate) fn take(&mut self) -> Option<Taken> {
        let cqe = self.cq.take()?;
        let counter = cqe.counter();
        if counter != self.taken || self.taken == self.told {
            // (Entries come back in their order. What says otherwise is not believed.)
            self.say_senseless(counter);
            return Some(Taken::Nothing);
        }
        let chunk = self.chunks[self.entry(counter)];
        self.taken = self.taken.wrapping_add(1);
        let len = cqe.byte_count() as usize;
        let is_frame = cqe.is_frame() && len <= self.memory.chunk();
        Some(if is_frame { Taken::Frame(chunk, len, cqe) } else { Taken::Failed(chunk, cqe) })
    }

    #[cold]
    fn say_senseless(&self, counter: u16) {
        tracing::error!("the card has received into entry {counter:#x}, and {:#x} to {:#x} are posted", self.taken, self.told);
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
        self.cq.drain();
        while self.taken != self.posted {
            into.push(self.chunks[self.entry(self.taken)]);
            self.taken = self.taken.wrapping_add(1);
        }
        // The library counts anew, in the record too, when the queue is made ready; but not our queue of completions, which it leaves alone once mlx5dv_init_obj(3) has handed it out.
        // (What was taken of that, the next release tells.)
        if !mutants::is(Mutant::CountersKept) {
            (self.posted, self.told, self.taken) = (0, 0, 0);
        }
        Ok(())
    }
}

/// An entry's segments: one of a chunk, whose address follows when it is posted, and one that ends the list where there is room for more.
///
/// # Safety
/// The entry is `stride` bytes, and nobody else's meanwhile.
unsafe fn write_segments(entry: *mut u8, stride: usize, memory: &Memory) {
    let chunk = sys::mlx5_wqe_data_seg { byte_count: (memory.chunk() as u32).to_be(), lkey: memory.lkey().to_be(), addr: 0 };
    let end = sys::mlx5_wqe_data_seg { lkey: sys::MLX5_INVALID_LKEY.to_be(), ..Default::default() };
    let at: *mut sys::mlx5_wqe_data_seg = entry.cast();
    // SAFETY: the caller's promise.
    unsafe {
        at.write(chunk);
        if stride > SEGMENT {
            at.add(1).write(end);
        }
    }
}
