//! VMA_HANDLE_SIGSEGV: a program that is about to die of a fault says where it is.

use core::ffi::{c_int, c_void};
use core::ptr;

use libc::{SA_RESETHAND, SA_SIGINFO, SIG_DFL, SIGSEGV, STDERR_FILENO, siginfo_t};

use crate::real;

/// Calls that are shown.
const DEPTH: usize = 64;

/// Installs the handler, unless the program has one. It stands until the program installs its own.
pub(crate) fn install() {
    // glibc loads what unwinds the stack on the first use, which must not be in the handler (backtrace(3)).
    let mut frame = [ptr::null_mut::<c_void>(); 1];
    // SAFETY: all of an action is integers, for which zero is a value; the calls get valid actions, and an array of one.
    unsafe {
        libc::backtrace(frame.as_mut_ptr(), 1);
        let mut action: libc::sigaction = core::mem::zeroed();
        if real::sigaction(SIGSEGV, ptr::null(), &raw mut action) != 0 || action.sa_sigaction != SIG_DFL {
            return;
        }
        action.sa_sigaction = tell as *const () as libc::sighandler_t;
        action.sa_flags = SA_RESETHAND | SA_SIGINFO;
        real::sigaction(SIGSEGV, &raw const action, ptr::null_mut());
    }
}

/// Writes the calls to standard error and returns: to the very fault, which now ends the program as it would have. A signal that somebody sent
/// is sent again, for there is no fault to return to.
extern "C" fn tell(signal: c_int, info: *mut siginfo_t, _context: *mut c_void) {
    const LINE: &[u8] = b"VMA PANIC: segmentation fault in\n";
    let mut frames = [ptr::null_mut::<c_void>(); DEPTH];
    // SAFETY: the pointers and lengths are those of a slice and an array. None of these calls allocates (backtrace(3)).
    unsafe {
        real::write(STDERR_FILENO, LINE.as_ptr().cast(), LINE.len());
        let depth = libc::backtrace(frames.as_mut_ptr(), DEPTH as c_int);
        libc::backtrace_symbols_fd(frames.as_ptr(), depth, STDERR_FILENO);
        // sigaction(2): a code above zero is the kernel's own.
        if (*info).si_code <= 0 {
            libc::raise(signal);
        }
    }
}
