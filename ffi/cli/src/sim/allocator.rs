//! The allocator of a campaign, which allocates and frees all the time: a seed's world goes as the next one comes, about as large.

#![expect(unsafe_code, reason = "the allocator's options are set by its C interface, and pages are the kernel's")]

use core::ffi::{c_int, c_long};
use core::ops::Range;
use std::fs;

use libmimalloc_sys::{mi_option_get, mi_option_large_os_pages, mi_option_set};

/// `mi_option_purge_delay` of mimalloc.h, which is the same in its second and third version. The crate does not name it.
const PURGE_DELAY: c_int = 15;
/// What it is where nobody has set it: milliseconds, in both versions.
const DEFAULTS: [c_long; 2] = [10, 1000];
const NEVER: c_long = -1;

/// For a process that runs seeds, and before it has other threads: what was freed is kept for what comes next, and lies on large pages. Giving it back and taking
/// it again is a twentieth of a campaign's time, and so is finding small pages.
pub(super) fn set_up() {
    // SAFETY: the options are numbers, which only this thread reads or writes as yet. An option that is another one in a later version does not have that value,
    // and is left as it is.
    unsafe {
        if DEFAULTS.contains(&mi_option_get(PURGE_DELAY)) {
            mi_option_set(PURGE_DELAY, NEVER);
        }
        // (For what it asks the kernel for from now on.)
        mi_option_set(mi_option_large_os_pages, 1);
    }
    if let Some(heap) = mapping_of((&raw const *Box::new(0u8)).addr()) {
        // SAFETY: advice changes no byte, and no address. A kernel that has no large pages refuses, and all is as it was.
        unsafe { libc::madvise(core::ptr::without_provenance_mut(heap.start), heap.len(), libc::MADV_HUGEPAGE) };
    }
}

/// The memory mapping that an address lies in (proc_pid_maps(5)).
fn mapping_of(address: usize) -> Option<Range<usize>> {
    let maps = fs::read_to_string("/proc/self/maps").ok()?;
    let range = |line: &str| {
        let (start, end) = line.split_once(' ')?.0.split_once('-')?;
        Some(usize::from_str_radix(start, 16).ok()?..usize::from_str_radix(end, 16).ok()?)
    };
    maps.lines().filter_map(range).find(|range| range.contains(&address))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_options_are_those_that_they_are_taken_for() {
        // SAFETY: as above; no other test reads them.
        let option = |which| unsafe { mi_option_get(which) };
        assert!(DEFAULTS.contains(&option(PURGE_DELAY)), "{}", option(PURGE_DELAY));
        assert_eq!(option(mi_option_large_os_pages), 0);
        set_up();
        assert_eq!((option(PURGE_DELAY), option(mi_option_large_os_pages)), (NEVER, 1));
    }

    #[test]
    fn what_lies_on_the_heap_is_in_a_mapping() {
        let byte = Box::new(0u8);
        let address = (&raw const *byte).addr();
        assert!(mapping_of(address).is_some_and(|range| range.contains(&address)));
        assert_eq!(mapping_of(8), None);
    }
}
