//! Which handlers of pthread_atfork(3) come first: the card's are registered before any others.
//!
//! Handlers before a fork run in the reverse order, and so this library's lock is taken last: behind those of the libraries that use the card, as in all their calls. In the child its handler is the first:
//! what theirs close is closed by the process whose memory this is by now. Constructors do not come in that order: those of a library that is preloaded behind this one run before. A malloc's
//! handlers are registered with its first call, and so are behind the card's as well, which therefore has a [heap](crate::heap) of its own.

use core::ffi::{c_int, c_void};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use crate::log::say;
use crate::paths::{next, next_of};
use crate::process;

type Handler = Option<extern "C" fn()>;

/// glibc's function, which its pthread_atfork(3) calls: that one is linked into each library.
///
/// # Safety
/// As pthread_atfork(3).
unsafe fn register(prepare: Handler, parent: Handler, child: Handler, object: *mut c_void) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { next!(c"__register_atfork" => fn(Handler, Handler, Handler, *mut c_void) -> c_int)(prepare, parent, child, object) }
}

/// Registers the card's handlers, once.
pub(crate) fn install() {
    static IS_DONE: AtomicBool = AtomicBool::new(false);
    if !IS_DONE.swap(true, Ordering::Relaxed) {
        // SAFETY: functions of this library, which is never unloaded.
        let error = unsafe { register(Some(process::before_fork), Some(process::after_fork), Some(process::in_child), null_mut()) };
        if error != 0 {
            say(format_args!("no room for handlers of forks: a child will take its parent's card for its own"));
        }
    }
}

/// `__register_atfork`, glibc's: registers handlers of an object of the program's.
///
/// # Safety
/// As pthread_atfork(3).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn __register_atfork(prepare: Handler, parent: Handler, child: Handler, object: *mut c_void) -> c_int {
    install();
    // SAFETY: the caller's promise.
    unsafe { register(prepare, parent, child, object) }
}
