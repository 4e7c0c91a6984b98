//! Windows: where a peer's send buffers are mapped once more, for the program to whom they are lent, and who may write into them.
//!
//! A peer's memory is mapped read-only; but what VMA lends lies in a receive buffer of the process's own, and programs write into it: they swap
//! addresses in a request and send it back. So a window is copied on write. A window's pages are the peer's own until the program's first write
//! to one of them faults; whoever handles SIGSEGV asks [`copy_on_write`], which puts a private copy of that page in its place. That
//! costs a program which only reads nothing. One that has written will do so again, so that what it is lent
//! from then on is copied beforehand ([`LendBuffer::make_writable`](ringway_stack::device::LendBuffer::make_writable)), and no page of a window is lent again after it has become private: what
//! the peer sends through that page later would not be seen there.
//!
//! The device itself never reads a window, so that what a program writes is its own affair.

use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicUsize, Ordering};
use std::sync::OnceLock;

use ringway_host::Blocked;

use crate::copy;
use crate::memfd::Mapping;
use crate::sys;

/// Windows of a process at most. Payload of further peers is copied before it is lent.
const WINDOWS: usize = 256;

/// The program has written into a window.
static WRITTEN: AtomicBool = AtomicBool::new(false);

/// The log says so.
static TOLD: AtomicBool = AtomicBool::new(false);

/// Where the process's windows are: all that a signal handler can look at.
static ENTRIES: [Entry; WINDOWS] = [const { Entry::new() }; WINDOWS];

/// A window, for the handler.
struct Entry {
    /// The process whose window it is; zero: the entry is free. (A fork's child has no windows, and other things at their addresses.)
    pid: AtomicUsize,
    /// Zero while the others are not filled in.
    base: AtomicUsize,
    len: AtomicUsize,
    /// One of [`PEERS`] to [`PRIVATE`] for each page.
    pages: AtomicPtr<AtomicU8>,
}

/// A page that shows the peer's memory.
const PEERS: u8 = 0;
/// A page that a thread is making private.
const CHANGING: u8 = 1;
/// A page of the process's own.
const PRIVATE: u8 = 2;

impl Entry {
    const fn new() -> Self {
        Self { pid: AtomicUsize::new(0), base: AtomicUsize::new(0), len: AtomicUsize::new(0), pages: AtomicPtr::new(ptr::null_mut()) }
    }

    /// Takes the entry, if it is free, or was a parent's.
    fn take(&self, pid: usize) -> bool {
        let holder = self.pid.load(Ordering::Relaxed);
        let is_taken = holder != pid && self.pid.compare_exchange(holder, pid, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        if is_taken {
            self.base.store(0, Ordering::Relaxed);
        }
        is_taken
    }
}

impl core::fmt::Debug for Entry {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Entry").field("base", &self.base).field("len", &self.len).finish_non_exhaustive()
    }
}

/// A peer's memory as the program sees it.
#[derive(Debug)]
pub(crate) struct Window {
    listing: OnceLock<Option<Listing>>,
    mapping: Option<Mapping>,
}

/// A window's place among the entries.
#[derive(Debug)]
struct Listing {
    entry: &'static Entry,
    pid: usize,
    /// What the entry points to.
    #[cfg_attr(not(test), expect(dead_code, reason = "kept for the entry"))]
    pages: Box<[AtomicU8]>,
}

impl Window {
    /// `mapping`: the window's alone; without one, the program is lent copies.
    pub(crate) fn new(mapping: Option<Mapping>) -> Self {
        Self { listing: OnceLock::new(), mapping }
    }

    /// Where `len` bytes from `offset` on are, if there is a mapping. Out of range is a mistake of this crate's.
    pub(crate) fn address(&self, offset: usize, len: usize) -> Option<*const u8> {
        Some(self.mapping.as_ref()?.at(offset, len).as_ptr())
    }

    /// Whether writes to it are allowed: from the first call of this on, unless there are too many windows.
    #[inline]
    pub(crate) fn is_listed(&self) -> bool {
        self.listing.get_or_init(|| Listing::new(self.mapping.as_ref()?)).is_some()
    }

    /// Pages that have become private.
    #[cfg(test)]
    fn private_pages(&self) -> usize {
        let pages = self.listing.get().and_then(Option::as_ref).map_or(&[][..], |listing| &listing.pages);
        pages.iter().filter(|page| page.load(Ordering::Relaxed) == PRIVATE).count()
    }
}

impl Listing {
    #[cold]
    fn new(mapping: &Mapping) -> Option<Self> {
        let (pid, len) = (usize::try_from(sys::pid()).ok()?, mapping.len());
        let entry = ENTRIES.iter().find(|entry| entry.take(pid))?;
        let pages: Box<[AtomicU8]> = (0..len.div_ceil(sys::page_bytes())).map(|_| AtomicU8::new(PEERS)).collect();
        entry.len.store(len, Ordering::Relaxed);
        entry.pages.store(pages.as_ptr().cast_mut(), Ordering::Relaxed);
        entry.base.store(mapping.at(0, len).as_ptr().expose_provenance(), Ordering::Release);
        Some(Self { entry, pid, pages })
    }
}

impl Drop for Listing {
    fn drop(&mut self) {
        // In a fork's child, the entry may have been taken for another window.
        if self.entry.pid.load(Ordering::Relaxed) == self.pid {
            self.entry.base.store(0, Ordering::Relaxed);
            self.entry.pid.store(0, Ordering::Release);
        }
    }
}

/// Payload of other processes is copied before it is lent, from now on, as if the program had written into some.
pub(crate) fn lend_copies() {
    TOLD.store(true, Ordering::Relaxed);
    WRITTEN.store(true, Ordering::SeqCst);
}

/// Whether copies are lent: the program has written into what was lent to it by reference, or [`lend_copies`] was called.
#[inline]
#[must_use]
pub(crate) fn are_copies_lent() -> bool {
    WRITTEN.load(Ordering::SeqCst)
}

/// Copies are lent instead of what lies in a window.
#[cold]
pub(crate) fn tell() {
    if are_copies_lent() && !TOLD.swap(true, Ordering::Relaxed) {
        tracing::info!("the program writes into what it is lent: from now on, payload of other processes is copied before it is lent");
    }
}

/// To be asked by who handles SIGSEGV, with the address of a write that was not allowed (`SEGV_ACCERR` in sigaction(2)): if it lies in what
/// was lent to the program, the write is allowed from now on, to memory of the process's own, and the handler is to return to it. Async-signal-safe.
///
/// `false`: the address is none that this crate has lent, or there is no memory.
#[must_use]
pub(crate) fn copy_on_write(address: usize) -> bool {
    let Ok(pid) = usize::try_from(sys::pid()) else { return false };
    for entry in &ENTRIES {
        let base = entry.base.load(Ordering::Acquire);
        let is_within = base != 0 && address >= base && address - base < entry.len.load(Ordering::Relaxed);
        if is_within && entry.pid.load(Ordering::Relaxed) == pid {
            // Before the page is copied: who lends, has the frame, and sees no write yet, lends bytes that the copy has too.
            WRITTEN.store(true, Ordering::SeqCst);
            return make_private(base, entry.pages.load(Ordering::Relaxed), (address - base) / sys::page_bytes());
        }
    }
    false
}

/// Bytes; a page is a multiple of them.
const COPIED_AT_ONCE: usize = 512;

/// Puts a copy in the place of a window's page. `false`: there is no memory.
fn make_private(base: usize, pages: *const AtomicU8, number: usize) -> bool {
    // SAFETY: whoever writes to what is lent holds a handle on it, and so the window; the address was within, so that there is such a page.
    let state = unsafe { &*pages.add(number) };
    // (A handler may leave by longjmp, and who waits for the page would do so for ever.)
    let _blocked = Blocked::new();
    loop {
        match state.compare_exchange(PEERS, CHANGING, Ordering::Acquire, Ordering::Acquire) {
            Ok(_) => break,
            // Another thread has written to the same page.
            Err(PRIVATE) => return true,
            Err(_) => core::hint::spin_loop(),
        }
    }
    let page_bytes = sys::page_bytes();
    let page = ptr::with_exposed_provenance_mut::<u8>(base + number * page_bytes);
    let is_private = sys::anonymous_page().is_some_and(|copy: NonNull<u8>| {
        // (In parts, for large copies are counted, by whoever holds the device's lock.)
        for at in (0..page_bytes).step_by(COPIED_AT_ONCE) {
            // SAFETY: both are pages, of which one is ours alone, and the other mapped for as long as the window; a part divides a page.
            unsafe { copy::opaque(page.add(at), copy.as_ptr().add(at), COPIED_AT_ONCE) };
        }
        // SAFETY: the copy is ours; it shows what the page showed, so that readers see no change.
        unsafe { sys::move_page(copy, page) }
    });
    state.store(if is_private { PRIVATE } else { PEERS }, Ordering::Release);
    is_private
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::layout::SEGMENT_MIN;
    use crate::memfd;
    use crate::reads::View;
    use crate::stores::SharedMemory;

    /// Windows are counted by process: one test at a time.
    static ONE: Mutex<()> = Mutex::new(());

    /// A peer's memory, whose first pages are full of their numbers, and how it is seen here.
    fn peer() -> (SharedMemory, View, Window) {
        let len = SEGMENT_MIN.next_multiple_of(sys::page_bytes());
        let (segment, fd) = memfd::create(c"test", len).unwrap();
        for page in 0..2 {
            segment.write(page * sys::page_bytes(), &vec![page as u8; sys::page_bytes()]);
        }
        let view = memfd::open(&fd, Some(len), len).unwrap();
        let window = Window::new(memfd::open_again(&fd, &view).ok());
        (segment, view, window)
    }

    /// As the program does it.
    fn write(at: *const u8, byte: u8) {
        // SAFETY: a page that has become private.
        unsafe { at.cast_mut().write_volatile(byte) };
    }

    fn read(at: *const u8) -> u8 {
        // SAFETY: a page of a window that is there.
        unsafe { at.read_volatile() }
    }

    #[test]
    fn a_page_that_is_written_to_is_the_programs_and_the_others_stay_the_peers() {
        let _one = ONE.lock();
        let (segment, view, window) = peer();
        let page = sys::page_bytes();
        let (first, second) = (window.address(0, page).unwrap(), window.address(page, page).unwrap());
        assert!(!copy_on_write(first.addr()) && window.is_listed());
        assert!(!copy_on_write(first.addr() - 1) && !copy_on_write(first.addr() + view.len()));
        assert!(copy_on_write(second.addr() + 7) && are_copies_lent());
        assert_eq!(
            (read(first), read(second), read(second.wrapping_add(page - 1)), window.private_pages()),
            (0, 1, 1, 1),
            "it shows what it showed"
        );
        write(second.wrapping_add(7), 99);
        let mut peers = [0; 8];
        view.copy_out(page, &mut peers);
        assert_eq!((read(second.wrapping_add(7)), peers), (99, [1; 8]), "the peer's memory is as it was");
        segment.write(0, &[50]);
        segment.write(page, &[51]);
        assert_eq!((read(first), read(second)), (50, 1), "what the peer does is seen in pages that are its own");
        let address = first.addr();
        drop(window);
        assert!(!copy_on_write(address));
    }

    #[test]
    fn threads_that_write_to_one_page_lose_nothing() {
        let _one = ONE.lock();
        for _ in 0..200 {
            let (_segment, _view, window) = peer();
            assert!(window.is_listed());
            std::thread::scope(|scope| {
                for thread in 0..4 {
                    let window = &window;
                    scope.spawn(move || {
                        let at = window.address(thread * 64, 64).unwrap();
                        assert!(copy_on_write(at.addr()));
                        (0..64).for_each(|i| write(at.wrapping_add(i), 100 + thread as u8));
                    });
                }
            });
            for i in 0..256 {
                assert_eq!(read(window.address(i, 1).unwrap()), 100 + (i / 64) as u8);
            }
        }
    }

    #[test]
    fn there_are_as_many_windows_as_there_are_entries_and_those_come_back() {
        let _one = ONE.lock();
        let windows: Vec<_> = (0..WINDOWS).map(|_| peer()).collect();
        assert!(windows.iter().all(|(_, _, window)| window.is_listed()));
        assert!(!peer().2.is_listed());
        drop(windows);
        assert!(peer().2.is_listed());
    }
}
