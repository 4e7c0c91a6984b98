//! Register pages: where a program rings doorbells, and what the card sees of it.

use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, Ordering};
use core::time::Duration;
use std::collections::BTreeMap;

use ringway_host::Fd;
use ringway_preload::Errno;
use ringway_sim::connectx::constants as c;
use rustix::fs::MemfdFlags;

use crate::paths::from_rustix;

/// Bytes of a page.
pub(crate) const PAGE: usize = 4096;
/// A register has halves of so many bytes, of which the first eight ring.
const HALF: usize = 256;
/// Halves of a page.
const HALVES: usize = (PAGE - c::BF_OFFSET) / HALF;
/// Words behind the one that rings.
const BEHIND: usize = HALF / 8 - 1;
/// How long nothing else rings at a half before it is looked at what was written behind the doorbell: a processor that was in the middle of it is through then.
const SETTLED: Duration = Duration::from_millis(20);

/// A program's register pages, by numbers.
#[derive(Debug, Default)]
pub(crate) struct Registers {
    pages: BTreeMap<u32, Page>,
    /// Doorbells that were seen as they were written.
    seen: Vec<Store>,
    /// Stores that were seen so, and instructions that were executed with their page writable.
    pub(crate) trapped: [u64; 2],
    /// Doorbells of send queues, and those of them that had bytes of their entry with them, as far as that could be seen.
    pub(crate) rung: [u64; 2],
}

/// A page: memory that the program writes, and the card takes from.
#[derive(Debug)]
struct Page {
    file: Fd,
    /// The card's own mapping of it. Invariant: [`PAGE`] bytes, mapped as long as the value is there.
    words: NonNull<AtomicU64>,
    halves: [Half; HALVES],
}

/// Half of a register.
#[derive(Clone, Debug)]
struct Half {
    /// What was behind the word that rings when it was looked at last.
    seen: [u64; BEHIND],
    /// The same, when it was rung last.
    noted: [u64; BEHIND],
    rung: Option<Rung>,
    /// It was rung, and nothing was seen to be written behind that yet.
    is_bare: bool,
}

/// The last doorbell at a half, until it is known what was written behind it.
#[derive(Clone, Debug)]
struct Rung {
    qpn: u32,
    /// Since the card began.
    at: Duration,
    /// The entry's blocks, as they lie in the queue; `None`: others rang here shortly before, and what is whose cannot be told.
    entry: Option<Vec<u8>>,
}

/// What was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Store {
    pub(crate) page: u32,
    /// In the page, bytes.
    pub(crate) offset: usize,
    pub(crate) bytes: [u8; 8],
}

// SAFETY: the mapping is the value's own, of memory that is shared with the program, and it is used by atomic accesses alone.
unsafe impl Send for Page {}

impl Page {
    fn new() -> Result<Self, Errno> {
        let file = Fd::of(|| rustix::fs::memfd_create("connectx-registers", MemfdFlags::CLOEXEC)).map_err(from_rustix)?;
        rustix::fs::ftruncate(&file, PAGE as u64).map_err(from_rustix)?;
        // SAFETY: a new mapping, where the kernel likes.
        let mapped = unsafe { map(core::ptr::null_mut(), PAGE, (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED), (&file, 0)) };
        let words = NonNull::new(mapped).filter(|_| mapped != libc::MAP_FAILED).ok_or(Errno(libc::ENOMEM))?.cast();
        let half = Half { seen: [0; BEHIND], noted: [0; BEHIND], rung: None, is_bare: false };
        Ok(Self { file, words, halves: core::array::from_fn(|_| half.clone()) })
    }

    fn word(&self, offset: usize) -> &AtomicU64 {
        debug_assert!(offset.is_multiple_of(8) && offset < PAGE);
        // SAFETY: within the mapping, and aligned.
        unsafe { self.words.add(offset / 8).as_ref() }
    }

    /// What was written there since this was asked last. (No doorbell is zero: it names a queue, or an opcode.)
    fn take(&self, offset: usize) -> Option<[u8; 8]> {
        let word = self.word(offset);
        let value = if word.load(Ordering::Acquire) == 0 { 0 } else { word.swap(0, Ordering::AcqRel) };
        (value != 0).then(|| value.to_ne_bytes())
    }

    /// Bytes are written, some at a time of a word.
    fn write(&self, offset: usize, bytes: &[u8]) {
        for (at, byte) in (offset..).zip(bytes) {
            let word = self.word(at & !7);
            let mut bytes = word.load(Ordering::Relaxed).to_ne_bytes();
            bytes[at % 8] = *byte;
            word.store(u64::from_ne_bytes(bytes), Ordering::Release);
        }
    }

    fn behind(&self, half: usize) -> [u64; BEHIND] {
        core::array::from_fn(|at| self.word(c::BF_OFFSET + HALF * half + 8 * (1 + at)).load(Ordering::Acquire))
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's, and nobody has a reference into it.
        unsafe { libc::munmap(self.words.as_ptr().cast(), PAGE) };
    }
}

/// mmap(2) of a file from an offset on. (By number: the name is this library's own.)
///
/// # Safety
/// As mmap(2), of the address and flags.
pub(super) unsafe fn map(
    address: *mut libc::c_void,
    len: usize,
    (protection, flags): (i32, i32),
    (file, offset): (&Fd, usize),
) -> *mut libc::c_void {
    // (The last argument is passed in memory, where half of a word would be left as it was.)
    let [protection, flags, fd] = [protection, flags, file.raw()].map(libc::c_long::from);
    let offset = offset as libc::c_long;
    // SAFETY: the caller's promise.
    let mapped = unsafe { libc::syscall(libc::SYS_mmap, address, len, protection, flags, fd, offset) };
    core::ptr::with_exposed_provenance_mut(mapped as usize)
}

impl Registers {
    /// Makes a page under a number that none has.
    ///
    /// # Errors
    /// What the kernel says of the memory.
    pub(crate) fn add(&mut self, number: u32) -> Result<(), Errno> {
        self.pages.insert(number, Page::new()?);
        Ok(())
    }

    /// A page ends. (What the program has mapped of it stays memory, which nobody looks at.)
    pub(crate) fn remove(&mut self, number: u32) {
        self.pages.remove(&number);
    }

    /// Maps a page for the program, as mmap(2) does; `None`: there is no such page.
    ///
    /// # Safety
    /// As mmap(2), of the address and flags.
    pub(crate) unsafe fn map(
        &self,
        number: u32,
        address: *mut libc::c_void,
        len: usize,
        (protection, flags): (i32, i32),
    ) -> Option<*mut libc::c_void> {
        // SAFETY: the caller's promise.
        self.pages.get(&number).map(|page| unsafe { map(address, len, (protection, flags), (&page.file, 0)) })
    }

    /// Whether there is a page of that number.
    pub(crate) fn has(&self, number: u32) -> bool {
        self.pages.contains_key(&number)
    }

    /// A store of up to 16 bytes is done for the program, within the page. Whether it rings; `None`: there is no such page.
    pub(crate) fn store(&mut self, number: u32, offset: usize, bytes: &[u8]) -> Option<bool> {
        let page = self.pages.get_mut(&number)?;
        self.trapped[0] += 1;
        let mut rings = false;
        // (A register takes eight bytes at a time.)
        for (offset, bytes) in (offset..).step_by(8).zip(bytes.chunks(8)) {
            let half = half_of(offset);
            if let Ok(bytes) = bytes.try_into()
                && (offset == c::CQ_DOORBELL || half.is_some() && offset.is_multiple_of(HALF))
            {
                half.into_iter().for_each(|half| page.halves[half].is_bare = true);
                self.seen.push(Store { page: number, offset, bytes });
                rings = true;
                continue;
            }
            if let Some(half) = half {
                self.rung[1] += u64::from(core::mem::take(&mut page.halves[half].is_bare));
            }
            page.write(offset, bytes);
        }
        Some(rings)
    }

    /// Takes what was written to the words that ring, since this was asked last.
    pub(crate) fn take(&mut self) -> Vec<Store> {
        let offsets = || core::iter::once(c::CQ_DOORBELL).chain((c::BF_OFFSET..PAGE).step_by(HALF));
        let mut all = core::mem::take(&mut self.seen);
        let of = |(&page, of): (&u32, &Page)| {
            let stores = offsets().filter_map(|offset| Some(Store { page, offset, bytes: of.take(offset)? }));
            stores.collect::<Vec<_>>()
        };
        all.extend(self.pages.iter().flat_map(of));
        all
    }

    /// A store rang for a send queue, for the entry in these blocks.
    pub(crate) fn note(&mut self, store: &Store, qpn: u32, entry: Vec<u8>, at: Duration) {
        let (Some(page), Some(number)) = (self.pages.get_mut(&store.page), half_of(store.offset)) else { return };
        let behind = page.behind(number);
        let half = &mut page.halves[number];
        // (Of a doorbell that was seen, what is behind it is counted as it comes.)
        let is_whole = core::mem::replace(&mut half.noted, behind) != behind && !crate::trap::is_on();
        self.rung = [self.rung[0] + 1, self.rung[1] + u64::from(is_whole)];
        let is_alone = half.rung.is_none();
        half.rung = Some(Rung { qpn, at, entry: Some(entry).filter(|_| is_alone) });
    }

    /// Queues of which a register had other bytes behind the doorbell, and not from before, than their entry: written by BlueFlame, and wrongly.
    pub(crate) fn settle(&mut self, now: Duration) -> Vec<u32> {
        let mut wrong = Vec::new();
        for page in self.pages.values_mut() {
            for number in 0..HALVES {
                let Some(rung) = page.halves[number].rung.take_if(|rung| now >= rung.at + SETTLED) else { continue };
                let behind = page.behind(number);
                let seen = core::mem::replace(&mut page.halves[number].seen, behind);
                let Some(entry) = rung.entry.filter(|_| behind != seen) else { continue };
                let written = behind.iter().flat_map(|word| word.to_ne_bytes());
                if !entry.iter().skip(8).copied().eq(written.take(entry.len().saturating_sub(8))) {
                    wrong.push(rung.qpn);
                }
            }
        }
        wrong
    }
}

/// Which half of a register of its page a doorbell was written to.
fn half_of(offset: usize) -> Option<usize> {
    Some(offset.checked_sub(c::BF_OFFSET)? / HALF).filter(|number| *number < HALVES)
}

/// Which register of its page a doorbell was written to: it has two halves.
pub(crate) fn register_of(offset: usize) -> usize {
    offset / (2 * HALF)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: [u32; 0] = [];
    const AT: usize = c::BF_OFFSET + HALF;

    fn registers() -> (Registers, *mut u64) {
        let mut registers = Registers::default();
        registers.add(3).unwrap();
        let access = (libc::PROT_WRITE, libc::MAP_SHARED);
        // SAFETY: a new mapping, where the kernel likes.
        let mapped = unsafe { registers.map(3, core::ptr::null_mut(), PAGE, access) }.unwrap();
        assert_ne!(mapped, libc::MAP_FAILED);
        // SAFETY: as above.
        assert!(unsafe { registers.map(4, core::ptr::null_mut(), PAGE, access) }.is_none());
        (registers, mapped.cast())
    }

    /// Writes words from an offset on, as a program does.
    fn write(page: *mut u64, offset: usize, words: &[u64]) {
        for (at, word) in words.iter().enumerate() {
            // SAFETY: within the page, which stays mapped.
            unsafe { page.add(offset / 8 + at).write_volatile(*word) };
        }
    }

    #[test]
    fn each_doorbell_is_taken_once() {
        let (mut registers, page) = registers();
        assert_eq!(registers.take(), []);
        write(page, c::CQ_DOORBELL, &[5]);
        write(page, AT, &[7]);
        write(page, 0x40, &[9]);
        let store = |offset, value: u64| Store { page: 3, offset, bytes: value.to_ne_bytes() };
        assert_eq!(registers.take(), [store(c::CQ_DOORBELL, 5), store(AT, 7)]);
        assert_eq!(registers.take(), []);
        write(page, AT, &[7]);
        assert_eq!(registers.take(), [store(AT, 7)], "the same once more");
        registers.remove(3);
        assert_eq!(registers.take(), []);
    }

    #[test]
    fn stores_that_are_seen_ring_one_by_one() {
        let (mut registers, page) = registers();
        let store = |offset, value: u64| Store { page: 3, offset, bytes: value.to_ne_bytes() };
        for value in [7_u64, 8] {
            assert_eq!(registers.store(3, AT, &value.to_ne_bytes()), Some(true));
        }
        assert_eq!(registers.store(3, c::CQ_DOORBELL, &5_u64.to_ne_bytes()), Some(true));
        assert_eq!(registers.store(3, AT + 8, &[1, 2, 3, 4, 5, 6, 7, 8]), Some(false), "what is behind a doorbell");
        assert_eq!(registers.store(3, AT + 13, &[9, 9, 9, 9]), Some(false));
        assert_eq!((registers.store(3, 0x40, &7_u64.to_ne_bytes()), registers.store(4, AT, &[0; 8])), (Some(false), None));
        // (Written while the page was writable.)
        write(page, AT, &[6]);
        assert_eq!(registers.take(), [store(AT, 7), store(AT, 8), store(c::CQ_DOORBELL, 5), store(AT, 6)]);
        assert_eq!((registers.take(), registers.trapped, registers.rung), (vec![], [6, 0], [0, 1]));
        // SAFETY: within the page, which stays mapped.
        let behind = unsafe { [page.add(AT / 8 + 1).read_volatile(), page.add(AT / 8 + 2).read_volatile()] };
        assert_eq!(behind.map(u64::to_ne_bytes), [[1, 2, 3, 4, 5, 9, 9, 9], [9, 0, 0, 0, 0, 0, 0, 0]]);
    }

    #[test]
    fn a_store_of_sixteen_bytes_rings_and_has_what_is_behind_the_doorbell() {
        let (mut registers, page) = registers();
        let bytes: [u8; 16] = core::array::from_fn(|byte| byte as u8 + 1);
        assert_eq!((registers.store(3, AT, &bytes), registers.store(3, AT + 16, &bytes)), (Some(true), Some(false)));
        let rung = Store { page: 3, offset: AT, bytes: [1, 2, 3, 4, 5, 6, 7, 8] };
        assert_eq!((registers.take(), registers.trapped, registers.rung), (vec![rung], [2, 0], [0, 1]));
        // SAFETY: within the page, which stays mapped.
        let behind = [1, 2, 3].map(|word| unsafe { page.add(AT / 8 + word).read_volatile() }.to_ne_bytes());
        assert_eq!(behind.concat(), [&bytes[8..], &bytes].concat());
    }

    #[test]
    fn what_is_written_behind_a_doorbell_is_its_entry() {
        let (mut registers, page) = registers();
        let entry: Vec<u8> = [1u64, 2, 3, 4, 5, 6, 7, 8].iter().flat_map(|word| word.to_ne_bytes()).collect();
        let mut ring = |words: &[u64], at: u64| {
            write(page, AT, words);
            let store = registers.take()[0];
            registers.note(&store, 0x42, entry.clone(), Duration::from_millis(at));
            assert_eq!(registers.settle(Duration::from_millis(at + 1)), NONE, "it may be in the middle of it");
            registers.settle(Duration::from_millis(at + 30))
        };
        assert_eq!(ring(&[1], 0), NONE, "a doorbell");
        assert_eq!(ring(&[1, 2, 3, 4, 5, 6, 7, 8], 100), NONE);
        assert_eq!(ring(&[1], 200), NONE, "what is there is from before");
        assert_eq!(ring(&[1, 2, 3, 4, 5, 6, 7, 9], 300), [0x42]);
        assert_eq!(ring(&[1, 2], 400), NONE, "and so is that, then");
        for at in [500, 501] {
            write(page, AT, &[1, at]);
            let store = registers.take()[0];
            registers.note(&store, 0x42, entry.clone(), Duration::from_millis(at));
        }
        assert_eq!(registers.settle(Duration::from_millis(600)), NONE, "whose that is cannot be told");
        assert_eq!(registers.rung, [7, 4], "doorbells, and those that came with something new behind them");
    }
}
