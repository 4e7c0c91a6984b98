//! pthread_cancel(3).

use core::ffi::c_int;

use libc::pthread_t;

use crate::{cancel, real};

/// pthread_cancel(3): a thread that waits in one of our calls is woken, as libc wakes one that waits in the kernel.
///
/// # Safety
/// As pthread_cancel(3).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn pthread_cancel(thread: pthread_t) -> c_int {
    // SAFETY: the program's promise to pthread_cancel(3).
    let result = unsafe { real::pthread_cancel(thread) };
    if result == 0 {
        crate::boundary!((), cancel::note_request(thread));
    }
    result
}
