//! Compressed completions: a title, and eight bytes for each frame of a run (mlx5dv_create_cq(3), `MLX5DV_CQ_INIT_ATTR_MASK_COMPRESSED_CQE`).
//!
//! A run of `n` takes `n` entries. The first is the title: the first frame's completion, with `n` in place of the byte count. The second has the first eight frames'
//! words, the one at 8 the next eight's, and so on; the others keep what they had. So a run is copied out when its title is met, and all of its entries are marked as
//! never written: the owner's bit of what lies there from rounds before would be right again in one of the next.

use core::mem::offset_of;

use rdma_core_sys as sys;
use rdma_core_sys::mlx5_cqe64;

use super::Cqe;
use crate::mutants::{self, Mutant};

/// Frames of a run at most.
pub(crate) const RUN_MAX: usize = 64;
/// Frames whose words are in an entry.
const ARRAY: usize = 8;
/// Where in a completion the owner's bit is.
const OP_OWN: usize = offset_of!(mlx5_cqe64, op_own);
/// Bits of the format, beside that of the owner.
const FORMAT: u8 = 3 << 2;

/// See the module's documentation.
pub(crate) struct Run {
    /// What the frame that was taken last says: the title, with its own words.
    cqe: mlx5_cqe64,
    /// Its words: of four bytes each, a hash or a checksum (and behind it the first stride), and a byte count; in the card's order.
    words: [u64; RUN_MAX],
    /// The first frame's entry.
    first: u16,
    count: usize,
    next: usize,
    /// Frames are in strides, and words say in which.
    is_striding: bool,
}

/// What a run says of one frame.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Words(u64);

impl Words {
    /// As a completion's.
    #[inline(always)]
    pub(crate) fn byte_count(self) -> u32 {
        self.0 as u32
    }

    /// Of a striding queue: the frame's first stride.
    #[inline(always)]
    pub(crate) fn stride(self) -> u16 {
        (self.0 >> 32) as u16
    }
}

impl core::fmt::Debug for Run {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Run").field("count", &self.count).field("next", &self.next).finish_non_exhaustive()
    }
}

impl Run {
    pub(super) fn new(is_striding: bool) -> Self {
        Self { cqe: mlx5_cqe64::default(), words: [0; RUN_MAX], first: 0, count: 0, next: 0, is_striding }
    }

    /// Whether frames of it were not taken.
    #[inline(always)]
    pub(super) fn is_open(&self) -> bool {
        self.next < self.count
    }

    /// Begins with the title that is there. `false`: it has none or too many frames, and nothing was done.
    ///
    /// # Safety
    /// `entry` gives where completions lie, by their distance from the title, and all of as many as the title says and the queue has are the driver's.
    pub(super) unsafe fn begin(&mut self, entries: u32, entry: impl Fn(u32) -> *mut mlx5_cqe64) -> bool {
        // SAFETY: the caller's promise: so the card writes nothing there meanwhile.
        let title = unsafe { entry(0).read() };
        let count = u32::from_be(title.byte_cnt) as usize;
        if count == 0 || count > RUN_MAX.min(entries as usize) {
            return false;
        }
        let (arrays, _) = self.words.as_chunks_mut::<ARRAY>();
        for (index, array) in arrays.iter_mut().take(count.div_ceil(ARRAY)).enumerate() {
            let at = (index * ARRAY).max(1) as u32;
            let words: *const u64 = entry(at).cast();
            for (offset, word) in array.iter_mut().enumerate() {
                // SAFETY: the caller's promise; of a run of one the array would be behind it, in the queue all the same, and the card may write there: so each word is read as what
                // others write to. (Words behind the last frame's mean nothing.)
                *word = unsafe { words.add(offset).read_volatile() };
            }
        }
        for at in 0..if mutants::is(Mutant::RunLeftBehind) { 0 } else { count as u32 } {
            // SAFETY: the caller's promise.
            unsafe { entry(at).cast::<u8>().add(OP_OWN).write_volatile(sys::MLX5_CQE_INVALID << 4) };
        }
        self.cqe = mlx5_cqe64 { op_own: title.op_own & !FORMAT, ..title };
        (self.first, self.count, self.next) = (u16::from_be(title.wqe_counter), count, 0);
        true
    }

    /// What all of its frames have in common: of entry, first stride and length nothing is to be believed.
    #[inline(always)]
    pub(crate) fn title(&self) -> Cqe {
        Cqe(&raw const self.cqe)
    }

    /// The next frame's entry. (Of strides it is the title's.)
    #[inline(always)]
    pub(crate) fn entry(&self) -> u16 {
        self.first.wrapping_add(if mutants::is(Mutant::RunIndexStands) { 0 } else { self.next as u16 })
    }

    /// The next frame's words, and those of the frames behind it.
    #[inline(always)]
    pub(crate) fn rest(&self) -> impl ExactSizeIterator<Item = Words> {
        self.words[self.next..self.count].iter().map(|word| Words(u64::from_be(*word)))
    }

    /// The words of the frame behind the `ahead` next ones.
    #[inline(always)]
    pub(super) fn words(&self, ahead: usize) -> Option<Words> {
        let at = self.next + ahead;
        if at < self.count { self.words.get(at).map(|word| Words(u64::from_be(*word))) } else { None }
    }

    /// So many frames are taken; there are as many.
    #[inline(always)]
    pub(super) fn advance_by(&mut self, count: usize) {
        self.next += count;
    }

    /// The next frame's completion. There is one.
    pub(super) fn step(&mut self) -> *const mlx5_cqe64 {
        let next = self.rest().next();
        if let Some(words) = next {
            let counter = if self.is_striding { words.stride() } else { self.entry() };
            (self.cqe.wqe_counter, self.cqe.byte_cnt) = (counter.to_be(), words.byte_count().to_be());
        }
        self.next += 1;
        &raw const self.cqe
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENTRIES: u32 = 16;

    /// A queue whose entry at `first` begins a run of so many, of frames of 100, 101, … bytes.
    fn queue(first: u32, count: u32) -> Vec<mlx5_cqe64> {
        let owned = mlx5_cqe64 { op_own: sys::MLX5_CQE_RESP_SEND << 4 | 1, ..Default::default() };
        let mut queue = vec![owned; ENTRIES as usize];
        let place = |ahead: u32| ((first + ahead) % ENTRIES) as usize;
        for array in 0..count.div_ceil(8) {
            let mut bytes = [[0; 8]; 8];
            for (at, words) in (8 * array..count).zip(&mut bytes) {
                *words = [0xcc, 0xcc, 0, 3 * at as u8, 0, 0, 0, 100 + at as u8];
            }
            // SAFETY: both are 64 plain bytes.
            queue[place((8 * array).max(1))] = unsafe { core::mem::transmute::<[[u8; 8]; 8], mlx5_cqe64>(bytes) };
        }
        let op_own = sys::MLX5_CQE_RESP_SEND << 4 | 3 << 2 | 1;
        queue[place(0)] = mlx5_cqe64 { byte_cnt: count.to_be(), wqe_counter: 0xfffe_u16.to_be(), op_own, ..Default::default() };
        queue
    }

    fn begin(run: &mut Run, queue: &mut [mlx5_cqe64], first: u32) -> bool {
        let at = queue.as_mut_ptr();
        // SAFETY: within the queue, which is this function's.
        unsafe { run.begin(ENTRIES, |ahead| at.add(((first + ahead) % ENTRIES) as usize)) }
    }

    #[test]
    fn a_run_is_each_frame_s_words_with_the_title_and_its_entries_are_nobody_s() {
        for (first, count, is_striding) in [(0, 2, false), (13, 11, false), (15, 16, true), (3, 1, true)] {
            let (mut run, mut queue) = (Run::new(is_striding), queue(first, count));
            assert!(!run.is_open() && begin(&mut run, &mut queue, first));
            for at in 0..count as u16 {
                assert!(run.is_open());
                // SAFETY: the run's own.
                let cqe = unsafe { *run.step() };
                let counter = if is_striding { 3 * at } else { 0xfffe_u16.wrapping_add(at) };
                assert_eq!((u32::from_be(cqe.byte_cnt), u16::from_be(cqe.wqe_counter)), (100 + u32::from(at), counter), "{at} of {count}");
                assert_eq!(cqe.op_own, sys::MLX5_CQE_RESP_SEND << 4 | 1);
            }
            assert!(!run.is_open());
            let of_run = |place: u32| (place + ENTRIES - first) % ENTRIES < count;
            for (place, cqe) in (0..).zip(&queue) {
                let is_array = count == 1 && place == first + 1;
                assert!(is_array || (cqe.op_own == sys::MLX5_CQE_INVALID << 4) == of_run(place), "{place} of a run of {count} at {first}");
            }
        }
    }

    #[test]
    fn runs_of_none_or_of_more_than_there_are_begin_nothing() {
        for count in [0, ENTRIES + 1, 1 << 31] {
            let (mut run, mut queue) = (Run::new(false), queue(0, 2));
            queue[0].byte_cnt = count.to_be();
            let was = queue[1].op_own;
            assert!(!begin(&mut run, &mut queue, 0) && !run.is_open() && queue[1].op_own == was);
        }
    }
}
