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

/// daemon(3), whose own parent would end in libc's `_exit`, and take along what the child goes on with.
///
/// # Safety
/// As daemon(3).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn daemon(keep_directory: c_int, keep_streams: c_int) -> c_int {
    // SAFETY: plain integers and C strings.
    unsafe {
        match libc::fork() {
            -1 => return -1,
            0 => {}
            _ => _exit(0),
        }
        if libc::setsid() < 0 {
            return -1;
        }
        if keep_directory == 0 {
            libc::chdir(c"/".as_ptr());
        }
        if keep_streams == 0 {
            let null = libc::open(c"/dev/null".as_ptr(), libc::O_RDWR);
            if null < 0 {
                return -1;
            }
            for stream in libc::STDIN_FILENO..=libc::STDERR_FILENO {
                super::fd::dup2(null, stream);
            }
            if null > libc::STDERR_FILENO {
                super::fd::close(null);
            }
        }
    }
    0
}
