//! Trap mode: a program's stores to register pages fault, one by one, so that the card takes each as a real one does, in the thread that rings. What is chosen by
//! `RINGWAY_CONNECTX_DOORBELLS`; poll mode, which is the other, touches no signals.
//!
//! - this file: the setting, and where the program has register pages mapped
//! - `faults`: the handlers of SIGSEGV and SIGTRAP, in front of the program's own
//! - `actions`: the program's own, and that it does not block what is needed here
//! - `x86_64`: stores, as instructions
//!
//! Pages are mapped read-only. A store of the usual forms is read from the instruction and done in the program's stead, which goes on behind it. Another instruction
//! is executed, alone, with the page writable meanwhile: what other threads write there in that time is found as in poll mode, by looking. Reads of the card's
//! clock fault as well, so that each finds the time at which it reads.

mod actions;
#[cfg(target_arch = "x86_64")]
mod faults;
#[cfg(target_arch = "x86_64")]
mod x86_64;

use core::ffi::c_void;
use core::ops::Range;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use core::time::Duration;

pub(crate) use actions::{changed_action, changed_mask};

use crate::engine::PAGE;
use crate::log::warn;

/// How doorbells are seen, in the environment.
const DOORBELLS: &str = "RINGWAY_CONNECTX_DOORBELLS";
/// Pages of a process that are trapped at most: others are looked at.
const PAGES_MAX: usize = 256;

static IS_ON: AtomicBool = AtomicBool::new(false);

/// In place of a register page's number: the page of the card's clock, whose reads fault.
pub(crate) const CLOCK: u32 = u32::MAX;
/// The same: the page has become memory like any other.
const GONE: u32 = u32::MAX - 1;
/// In an address: its page is being closed, and is not to be unmapped until it is.
const CLOSING: usize = 1;
/// How long a page is open for one instruction: a processor that was about to execute it has done so by then. Longer, it was left behind (by siglongjmp(3)).
const OPEN_MAX: Duration = Duration::from_millis(20);

/// A page that the program has mapped. Invariant: the number is there before the address is.
struct Page {
    /// Zero: none.
    address: AtomicUsize,
    /// What the card knows it by.
    number: AtomicU32,
    /// When it was opened for an instruction, by a clock in nanoseconds; zero: it is not.
    opened_at: AtomicU64,
}

static PAGES: [Page; PAGES_MAX] =
    [const { Page { address: AtomicUsize::new(0), number: AtomicU32::new(0), opened_at: AtomicU64::new(0) } }; PAGES_MAX];
/// Pages may be open.
static MAY_BE_OPEN: AtomicBool = AtomicBool::new(false);

impl Page {
    /// Where it begins, if it is one.
    fn start(&self) -> usize {
        self.address.load(Ordering::Acquire) & !CLOSING
    }

    /// What the program may do there while no instruction is executed with it open.
    fn protection(&self) -> i32 {
        if self.number.load(Ordering::Relaxed) == CLOCK { libc::PROT_NONE } else { libc::PROT_READ }
    }

    /// It is none any more. (Who closes it is not waited for long: it is the card's thread, which no handler interrupts.)
    fn forget(&self, range: &Range<usize>) {
        loop {
            let address = self.address.load(Ordering::Acquire);
            if address == 0 || !range.contains(&(address & !CLOSING)) {
                return;
            }
            let closed = address & !CLOSING;
            if address == closed && self.address.compare_exchange(closed, 0, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                return;
            }
            ringway_host::sleep::yield_core();
        }
    }
}

/// Whether doorbells are trapped.
#[inline]
pub(crate) fn is_on() -> bool {
    IS_ON.load(Ordering::Relaxed)
}

/// Takes the setting. Runs when the library is loaded, before the program has handlers of its own.
pub(crate) fn begin() {
    match std::env::var_os(DOORBELLS) {
        None => {}
        Some(mode) if mode == "poll" => {}
        Some(mode) if mode == "trap" => trap(),
        Some(mode) => warn(format_args!("{DOORBELLS} is poll or trap, not {}: poll", mode.display())),
    }
}

cfg_if::cfg_if! {
    if #[cfg(target_arch = "x86_64")] {
        fn trap() {
            match faults::install() {
                Ok(()) => IS_ON.store(true, Ordering::Relaxed),
                Err(error) => warn(format_args!("{DOORBELLS}: doorbells are not trapped: {error}")),
            }
        }
    } else {
        fn trap() {
            warn(format_args!("{DOORBELLS}: doorbells are trapped on x86-64 alone: poll"));
        }
    }
}

/// The program has mapped a page there, without being allowed to write to it, or to read it. Whether that is remembered: else it is to be allowed. (The engine's lock is
/// held, so that nobody else adds one.)
pub(crate) fn watch(address: *mut c_void, number: u32) -> bool {
    let free = PAGES.iter().find(|page| page.start() == 0);
    let gone = || PAGES.iter().find(|page| page.number.load(Ordering::Relaxed) == GONE);
    let Some(page) = free.or_else(gone) else {
        warn(format_args!("more than {PAGES_MAX} pages are mapped: what is written to this one is looked for"));
        return false;
    };
    page.address.store(0, Ordering::Relaxed);
    page.opened_at.store(0, Ordering::Relaxed);
    page.number.store(number, Ordering::Release);
    page.address.store(address.addr(), Ordering::Release);
    true
}

/// What is mapped there ends.
pub(crate) fn forget(address: *mut c_void, len: usize) {
    if is_on() {
        forget_all(address, len);
    }
}

fn forget_all(address: *mut c_void, len: usize) {
    let range = address.addr()..address.addr().saturating_add(len);
    PAGES.iter().for_each(|page| page.forget(&range));
}

/// Whether pages lie there.
pub(crate) fn has_pages(address: *mut c_void, len: usize) -> bool {
    let range = address.addr()..address.addr().saturating_add(len);
    is_on() && PAGES.iter().any(|page| range.contains(&page.start()))
}

/// The program has moved what was mapped, so that it begins elsewhere now and is so long; `stays`: it is where it was, too. (The engine's lock is held.)
pub(crate) fn moved((old, old_len): (*mut c_void, usize), (new, new_len): (*mut c_void, usize), stays: bool) {
    let (old, new) = (old.addr(), new.addr());
    let range = old..old.saturating_add(old_len);
    let those = PAGES.iter().filter(|page| range.contains(&page.start()));
    let those: [Option<(usize, u32)>; PAGES_MAX] = {
        let mut all = those.map(|page| (page.start() - old, page.number.load(Ordering::Relaxed)));
        core::array::from_fn(|_| all.next())
    };
    for (offset, number) in those.into_iter().flatten().filter(|(_, number)| *number != GONE) {
        if !stays {
            forget_all(core::ptr::without_provenance_mut(old + offset), PAGE);
        }
        if offset < new_len && !watch(core::ptr::without_provenance_mut(new + offset), number) {
            let open = if number == CLOCK { libc::PROT_READ } else { libc::PROT_READ | libc::PROT_WRITE };
            protect(new + offset, open);
        }
    }
}

fn protect(page: usize, protection: i32) {
    // SAFETY: a page that the program has mapped of the card's.
    unsafe { libc::syscall(libc::SYS_mprotect, page, PAGE, libc::c_long::from(protection)) };
}

fn now() -> Duration {
    // SAFETY: all of it is integers, for which zero is a value; the call fills it in.
    let time = unsafe {
        let mut time: libc::timespec = core::mem::zeroed();
        libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time);
        time
    };
    Duration::new(time.tv_sec.cast_unsigned(), time.tv_nsec as u32)
}

/// The page that begins there.
fn entry(start: usize) -> Option<&'static Page> {
    PAGES.iter().find(|page| page.start() == start && start != 0)
}

/// Opens a page for an instruction. Async-signal-safe.
fn open(start: usize) {
    let Some(page) = entry(start) else { return };
    page.opened_at.store(now().as_nanos() as u64, Ordering::Relaxed);
    MAY_BE_OPEN.store(true, Ordering::Release);
    protect(start, if page.protection() == libc::PROT_NONE { libc::PROT_READ } else { libc::PROT_READ | libc::PROT_WRITE });
}

/// Closes it again, unless it has ended. Async-signal-safe.
fn close(start: usize) {
    if let Some(page) = entry(start).filter(|page| page.number.load(Ordering::Relaxed) != GONE) {
        page.opened_at.store(0, Ordering::Relaxed);
        protect(start, page.protection());
    }
}

/// It is memory like any other from now on.
fn lose(start: usize) {
    entry(start).into_iter().for_each(|page| page.number.store(GONE, Ordering::Release));
}

/// Closes pages that were opened for an instruction which was never executed: a handler came in between, and left by siglongjmp(3). By the card's thread, which holds the engine's lock. (Who was about to execute it nevertheless faults once more.)
pub(crate) fn close_left_open() {
    if !MAY_BE_OPEN.swap(false, Ordering::Acquire) {
        return;
    }
    let now = now();
    for page in &PAGES {
        let opened_at = Duration::from_nanos(page.opened_at.load(Ordering::Relaxed));
        let start = page.start();
        if opened_at.is_zero() || start == 0 || page.number.load(Ordering::Relaxed) == GONE {
            continue;
        }
        if now.saturating_sub(opened_at) < OPEN_MAX {
            MAY_BE_OPEN.store(true, Ordering::Relaxed);
            continue;
        }
        // (Meanwhile it is not unmapped: what is mapped there next is not the card's. Nor does anybody fork, who would have it so for ever: the engine's lock is held.)
        if page.address.compare_exchange(start, start | CLOSING, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            page.opened_at.store(0, Ordering::Relaxed);
            protect(start, page.protection());
            page.address.store(start, Ordering::Release);
        }
    }
}

/// The page that an address is in: where it begins, and its number. Async-signal-safe.
fn page_of(address: usize) -> Option<(usize, u32)> {
    let start = address & !(PAGE - 1);
    Some((start, entry(start)?.number.load(Ordering::Relaxed)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_known_until_its_memory_is_unmapped() {
        let at = |address: usize| core::ptr::without_provenance_mut::<c_void>(address);
        assert!(watch(at(0x7000_0000_1000), 5) && watch(at(0x7000_0000_3000), 6));
        assert_eq!(page_of(0x7000_0000_1008), Some((0x7000_0000_1000, 5)));
        assert_eq!((page_of(0x7000_0000_2000), page_of(0)), (None, None));
        forget_all(at(0x7000_0000_0000), 0x2000);
        assert_eq!((page_of(0x7000_0000_1008), page_of(0x7000_0000_3fff)), (None, Some((0x7000_0000_3000, 6))));
        forget_all(at(0x7000_0000_3000), PAGE);
    }
}
