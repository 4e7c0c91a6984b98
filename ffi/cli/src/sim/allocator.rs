//! The allocator of a campaign, which allocates and frees all the time: a seed's world goes as the next one comes, about as large.

#![expect(unsafe_code, reason = "the allocator's options are set by its C interface")]

use core::ffi::{c_int, c_long};

/// `mi_option_purge_delay` of mimalloc.h, which is the same in its second and third version. The crate does not name it.
const PURGE_DELAY: c_int = 15;
/// What it is where nobody has set it: milliseconds, in both versions.
const DEFAULTS: [c_long; 2] = [10, 1000];
const NEVER: c_long = -1;

/// From now on memory that was freed is kept for what comes next, as giving it back and taking it again is a twentieth of a campaign's time. Before there
/// are other threads.
pub(super) fn keep_what_is_freed() {
    // SAFETY: the options are numbers, which only this thread reads or writes as yet. An option that is another one in a later version does not have that value,
    // and is left as it is.
    unsafe {
        if DEFAULTS.contains(&libmimalloc_sys::mi_option_get(PURGE_DELAY)) {
            libmimalloc_sys::mi_option_set(PURGE_DELAY, NEVER);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_option_that_it_is_taken_for() {
        // SAFETY: as above; no other test reads it.
        let is = || unsafe { libmimalloc_sys::mi_option_get(PURGE_DELAY) };
        assert!(DEFAULTS.contains(&is()), "{}", is());
        keep_what_is_freed();
        assert_eq!(is(), NEVER);
    }
}
