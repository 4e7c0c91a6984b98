//! The ways to leave a process that pass by exit handlers.

use core::ffi::c_int;

use crate::{exit, real};

/// _exit(2). Async-signal-safe, as POSIX has it.
///
/// # Safety
/// As _exit(2).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn _exit(status: c_int) -> ! {
    crate::boundary!((), exit::finish_from_anywhere());
    // SAFETY: plain integers.
    unsafe { real::_exit(status) };
    unreachable!("_exit does not return")
}

/// `_Exit`, C's name for it.
///
/// # Safety
/// As _exit(2).
#[cfg_attr(not(test), unsafe(export_name = "_Exit"))]
pub unsafe extern "C" fn exit_now(status: c_int) -> ! {
    // SAFETY: the same function.
    unsafe { _exit(status) }
}

/// quick_exit(3): its own handlers run first, in libc.
///
/// # Safety
/// As quick_exit(3).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn quick_exit(status: c_int) -> ! {
    crate::boundary!((), exit::finish_from_anywhere());
    // SAFETY: plain integers.
    unsafe { real::quick_exit(status) };
    unreachable!("quick_exit does not return")
}
