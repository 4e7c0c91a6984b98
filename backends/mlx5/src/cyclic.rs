//! A cyclic queue: a striding receive queue over one buffer, whose frames lie one behind the other, and are read where they lie.
//!
//! The buffer is cut into pieces, each of which an entry of the queue refers to: the card fills an entry's strides in their order, and then those of the next. A frame that finds
//! too few of them left goes to the next entry, and a filler's completion says so. An entry is posted again once all that was in it has been read and let go of: in the
//! buffer's order, so that the card goes around it. So a run is held by the piece that it begins in: none behind it is posted before that.

mod read;

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use rdma_core_sys as sys;
use ringway_stack::device::{CyclicConfig, CyclicError};

use crate::clock::CardClock;
use crate::cqe::CompletionQueue;
use crate::doorbell::Doorbell;
use crate::memory::{Memory, Sizes};
use crate::mutants::{self, Mutant};
use crate::retry::Retry;
use crate::verbs::{Channel, Completions, Cq, Pd, Strides, Wq};
use read::{Filled, Place};

/// The most bytes of a buffer.
const BUFFER_MAX: usize = 1 << 28;
/// The most strides: completions of a queue.
const STRIDES_MAX: usize = 1 << 21;
/// The most entries of a queue, whose counters have 16 bits.
const ENTRIES_MAX: usize = 1 << 15;

/// What a card's striding queues can be like: exponents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StridingCaps {
    pub(crate) stride_bytes: core::ops::RangeInclusive<u32>,
    pub(crate) entry_strides: core::ops::RangeInclusive<u32>,
}

impl StridingCaps {
    /// What the card says of raw packets; none: it has no such queues.
    pub(crate) fn new(caps: &sys::mlx5dv_striding_rq_caps) -> Option<Self> {
        let has_some = caps.supported_qpts & 1 << sys::IBV_QPT_RAW_PACKET != 0;
        has_some.then_some(Self {
            stride_bytes: caps.min_single_stride_log_num_of_bytes..=caps.max_single_stride_log_num_of_bytes,
            entry_strides: caps.min_single_wqe_log_num_of_strides..=caps.max_single_wqe_log_num_of_strides,
        })
    }

    /// How a buffer is cut into entries: as small ones as can be, but such that the longest frame fits, and that there are not too many.
    fn cut(&self, config: &CyclicConfig, frame_max: usize) -> Result<Strides, CyclicError> {
        let CyclicConfig { stride_bytes, strides } = *config;
        if !stride_bytes.is_power_of_two() || !strides.is_power_of_two() || !self.stride_bytes.contains(&stride_bytes.ilog2()) {
            return Err(CyclicError::Invalid);
        }
        if strides > STRIDES_MAX || strides.checked_mul(stride_bytes).is_none_or(|bytes| bytes > BUFFER_MAX) {
            return Err(CyclicError::Full);
        }
        let for_frame = frame_max.div_ceil(stride_bytes).next_power_of_two().ilog2();
        let for_counters = strides.div_ceil(ENTRIES_MAX).next_power_of_two().ilog2();
        let log_count = for_frame.max(for_counters).max(*self.entry_strides.start());
        if log_count > *self.entry_strides.end() || strides >> log_count == 0 {
            return Err(CyclicError::Invalid);
        }
        Ok(Strides { log_bytes: stride_bytes.ilog2(), log_count })
    }
}

/// What a queue is made with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parts<'a> {
    pub(crate) pd: &'a Arc<Pd>,
    pub(crate) caps: &'a StridingCaps,
    /// The longest frame in bytes.
    pub(crate) frame_max: usize,
    pub(crate) strips_tags: bool,
    pub(crate) compresses: bool,
    pub(crate) huge_pages: bool,
    pub(crate) clock: Option<CardClock>,
    /// The ring's number, by which its events are known.
    pub(crate) owner: u32,
}

/// See the module's documentation. Strides and entries are running counters.
#[derive(Debug)]
pub(crate) struct Cyclic {
    wq: Arc<Wq>,
    cq: CompletionQueue,
    /// The buffer: its places are pieces.
    memory: Arc<Memory>,
    /// Invariant: 2^`log_stride` bytes for each of a power of two of entries, one more than `mask`, which live as long as `wq`.
    buf: *mut u8,
    log_stride: u32,
    mask: u16,
    /// The same, in the card's order of bytes.
    entries: u16,
    doorbell: Doorbell,
    strides: Strides,
    /// Pieces of the buffer, of 2^`log_piece` bytes. (The queue may have more entries.)
    pieces: u64,
    log_piece: u32,
    /// Bytes of the buffer, a power of two, less one.
    buffer_mask: usize,
    /// Entries posted, and of them those that the card was told of; and how many there were when the card's counters were zero.
    posted: u64,
    told: u64,
    origin: u64,
    /// Bytes that are filled.
    written: u64,
    /// Pieces that are free again, and how many bytes are filled when the next one may be, or something else is to be done before completions are read. Invariant: `freed`
    /// pieces are no more than what is written, and no less than that without all of the buffer.
    freed: u64,
    free_at: u64,
    /// Where the next frame is expected.
    next: Place,
    /// Frames that had come when the queue failed, and were not read.
    left: VecDeque<Filled>,
    clock: Option<CardClock>,
    has_failed: bool,
    /// It has failed, and could not be started again yet.
    is_stopped: bool,
    retry: Retry,
}

// SAFETY: the memory is the queue's, which is there as long as the value; who has the value is the only one to write it.
unsafe impl Send for Cyclic {}

impl Cyclic {
    pub(crate) fn new(parts: &Parts<'_>, config: &CyclicConfig) -> Result<Self, CyclicError> {
        let strides = parts.caps.cut(config, parts.frame_max)?;
        Self::made(parts, config, strides).map_err(|error| {
            tracing::warn!("a cyclic queue: {error}");
            CyclicError::Full
        })
    }

    fn made(parts: &Parts<'_>, config: &CyclicConfig, strides: Strides) -> io::Result<Self> {
        let &Parts { pd, strips_tags, compresses, clock, owner, .. } = parts;
        let pieces = config.strides >> strides.log_count;
        let sizes = Sizes {
            chunk: config.stride_bytes << strides.log_count,
            receives: pieces as u32,
            sends: 0,
            copies: 0,
            returned: false,
            huge_pages: parts.huge_pages,
        };
        let memory = Arc::new(Memory::register(pd, sizes)?);
        let form = if compresses { Completions::Compressed { strides: true } } else { Completions::Whole };
        // (Each completion is of a stride at least, of those that were not read: so the queue never overflows.)
        let cq = Arc::new(Cq::new(pd, config.strides as u32, Some(Channel::new(pd)?), owner, form)?);
        let wq = Arc::new(Wq::new(pd, &cq, pieces as u32, strips_tags, owner, Some(strides))?);
        wq.set_state(sys::IBV_WQS_RDY)?;
        let layout = wq.layout()?;
        // SAFETY: the value holds the queue.
        let doorbell = unsafe { Doorbell::of_receives(&layout) };
        let sys::mlx5dv_rwq { buf, wqe_cnt, stride, .. } = layout;
        let has_room = stride.is_power_of_two() && stride as usize >= size_of::<sys::mlx5_mprq_wqe>();
        if !wqe_cnt.is_power_of_two() || (wqe_cnt as usize) < pieces || wqe_cnt as usize > ENTRIES_MAX || !has_room {
            return Err(io::Error::other("a striding queue of a size that was not asked for"));
        }
        let mut queue = Self {
            cq: CompletionQueue::new(cq)?,
            wq,
            memory,
            buf: buf.cast(),
            log_stride: stride.ilog2(),
            mask: (wqe_cnt - 1) as u16,
            entries: ((wqe_cnt - 1) as u16).to_be(),
            doorbell,
            strides,
            pieces: pieces as u64,
            log_piece: strides.log_bytes + strides.log_count,
            buffer_mask: config.strides * config.stride_bytes - 1,
            posted: 0,
            told: 0,
            origin: 0,
            written: 0,
            freed: 0,
            free_at: 0,
            next: Place::default(),
            left: VecDeque::new(),
            clock,
            has_failed: false,
            is_stopped: false,
            retry: Retry::default(),
        };
        queue.post();
        Ok(queue)
    }

    /// Its buffer: where it begins, how long it is, and its key.
    pub(crate) fn buffer(&self) -> (*mut u8, usize, u32) {
        let strides = (self.pieces as usize) << self.strides.log_count;
        (self.memory.at(0), strides << self.strides.log_bytes, self.memory.lkey())
    }

    /// What it lies in.
    pub(crate) fn memory(&self) -> &Arc<Memory> {
        &self.memory
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

    /// Whether a read may find something.
    pub(crate) fn is_ready(&self) -> bool {
        !self.left.is_empty() || self.cq.is_ready()
    }

    /// Whether a run is held.
    pub(crate) fn is_held(&self) -> bool {
        (self.freed..=self.written >> self.log_piece).any(|piece| self.memory.is_held(self.place_of(piece)))
    }

    /// Whether it has failed since this was asked last, and has begun anew.
    pub(crate) fn take_failure(&mut self) -> bool {
        core::mem::take(&mut self.has_failed)
    }

    /// Where in the buffer a piece is.
    fn place_of(&self, piece: u64) -> u32 {
        (piece & (self.pieces - 1)) as u32
    }

    /// Frees the pieces that are read and that nobody holds any more, in the buffer's order, and gives them to the card.
    #[inline(never)]
    fn recycle(&mut self) {
        let read = self.left.front().map_or(self.written, |left| left.start) >> self.log_piece;
        while self.freed < read && (!self.memory.is_held(self.place_of(self.freed)) || mutants::is(Mutant::StridesGivenEarly)) {
            self.freed += 1;
        }
        self.free_at = if self.left.is_empty() { (self.freed + 1) << self.log_piece } else { 0 };
        self.post();
    }

    /// Gives the card the pieces that are free.
    fn post(&mut self) {
        if self.is_stopped || self.posted >= self.freed + self.pieces {
            return;
        }
        while self.posted < self.freed + self.pieces {
            let segment = sys::mlx5_wqe_data_seg {
                byte_count: (1u32 << self.log_piece).to_be(),
                lkey: self.memory.lkey().to_be(),
                addr: (self.memory.at(self.place_of(self.posted)).addr() as u64).to_be(),
            };
            let entry = usize::from((self.posted - self.origin) as u16 & self.mask);
            // SAFETY: within the buffer: the entry is not the card's, as it was not posted or has come back; it has room for both segments.
            unsafe {
                let at: *mut sys::mlx5_mprq_wqe = self.buf.add(entry << self.log_stride).cast();
                at.write(sys::mlx5_mprq_wqe { dseg: segment, ..Default::default() });
            }
            self.posted += 1;
        }
        self.told = self.posted;
        self.doorbell.post_receives((self.posted - self.origin) as u16);
    }

    /// It has failed: it is emptied, and begins anew with the piece behind the one that it was at. What has come can be read.
    #[cold]
    pub(crate) fn restart(&mut self) {
        self.has_failed = true;
        self.keep_all();
        // (In error, the card flushes what is posted. It may be in error already by what it knows itself.)
        if let Err(error) = self.wq.set_state(sys::IBV_WQS_ERR) {
            tracing::debug!("a striding queue that has failed: {error}");
        }
        self.start();
    }

    /// Begins anew, if the system lets it; else it is tried again.
    #[cold]
    fn start(&mut self) {
        let started = self.wq.set_state(sys::IBV_WQS_RESET).and_then(|()| {
            // Nothing is the card's any more.
            self.cq.drain();
            self.written = self.written.next_multiple_of(1 << self.log_piece);
            self.posted = self.written >> self.log_piece;
            (self.told, self.origin) = (self.posted, self.posted);
            self.next = Place::default();
            self.wq.set_state(sys::IBV_WQS_RDY)
        });
        self.is_stopped = started.is_err();
        self.retry.ended(started.is_ok());
        match started {
            Ok(()) => self.post(),
            Err(error) => tracing::error!("a striding queue that has failed is not started again yet: {error}"),
        }
    }

    /// Whether it is to be started again.
    pub(crate) fn is_stopped(&self) -> bool {
        self.is_stopped
    }

    /// Tries again what was refused, now and then.
    #[cold]
    pub(crate) fn tend(&mut self) {
        if self.is_stopped && self.retry.is_due() {
            self.start();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_cut_so_that_the_longest_frame_fits_into_an_entry() {
        let caps = StridingCaps { stride_bytes: 6..=13, entry_strides: 3..=13 };
        let cut = |stride_bytes, strides, frame| {
            let strides = caps.cut(&CyclicConfig { stride_bytes, strides }, frame);
            strides.map(|Strides { log_bytes, log_count }| (log_bytes, log_count))
        };
        assert_eq!([cut(2048, 8, 1518), cut(64, 64, 1518), cut(64, 1 << 21, 1518)], [Ok((11, 3)), Ok((6, 5)), Ok((6, 6))]);
        assert_eq!([cut(64, 32, 1518), cut(64, 256, 9018)], [Ok((6, 5)), Ok((6, 8))]);
        for (stride_bytes, strides) in [(2048, 4), (100, 64), (64, 63), (32, 64), (1 << 14, 64), (64, 16), (0, 8), (64, 0)] {
            assert_eq!(cut(stride_bytes, strides, 1518), Err(CyclicError::Invalid), "{stride_bytes} {strides}");
        }
        assert_eq!([cut(8192, 1 << 20, 1518), cut(64, 1 << 23, 1518)], [Err(CyclicError::Full); 2]);
    }
}
