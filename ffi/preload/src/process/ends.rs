//! The ways to leave a process that pass by exit handlers.

use core::ffi::c_int;

use crate::{Exports, Intercept, boundary};

/// Ends the process by `next`, which does not return.
pub(crate) fn exit<L: Intercept>(next: impl FnOnce() -> c_int) -> ! {
    boundary!((), L::before_exit());
    next();
    unreachable!("it does not return")
}

/// daemon(3), by fork(2).
///
/// # Safety
/// As daemon(3).
pub(crate) unsafe fn daemon<L: Intercept>(keeps_directory: bool, keeps_streams: bool) -> c_int {
    // SAFETY: plain integers and C strings.
    unsafe {
        match libc::fork() {
            -1 => return -1,
            0 => {}
            _ => <L as Exports>::_exit(0),
        }
        if libc::setsid() < 0 {
            return -1;
        }
        if !keeps_directory {
            libc::chdir(c"/".as_ptr());
        }
        if !keeps_streams {
            let null = libc::open(c"/dev/null".as_ptr(), libc::O_RDWR);
            if null < 0 {
                return -1;
            }
            for stream in libc::STDIN_FILENO..=libc::STDERR_FILENO {
                <L as Exports>::dup2(null, stream);
            }
            if null > libc::STDERR_FILENO {
                <L as Exports>::close(null);
            }
        }
    }
    0
}
