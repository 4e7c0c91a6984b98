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
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

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

/// A page that the program has mapped. Invariant: the number is there before the address is.
struct Page {
    /// Zero: none.
    address: AtomicUsize,
    /// What the card knows it by.
    number: AtomicU32,
}

static PAGES: [Page; PAGES_MAX] = [const { Page { address: AtomicUsize::new(0), number: AtomicU32::new(0) } }; PAGES_MAX];

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
    let free = PAGES.iter().find(|page| page.address.load(Ordering::Relaxed) == 0);
    let Some(page) = free else {
        warn(format_args!("more than {PAGES_MAX} pages are mapped: what is written to this one is looked for"));
        return false;
    };
    page.number.store(number, Ordering::Relaxed);
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
    for page in PAGES.iter().filter(|page| range.contains(&page.address.load(Ordering::Relaxed))) {
        page.address.store(0, Ordering::Relaxed);
    }
}

/// The page that an address is in: where it begins, and its number. Async-signal-safe.
fn page_of(address: usize) -> Option<(usize, u32)> {
    let start = address & !(PAGE - 1);
    let page = PAGES.iter().find(|page| page.address.load(Ordering::Acquire) == start && start != 0)?;
    Some((start, page.number.load(Ordering::Relaxed)))
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
