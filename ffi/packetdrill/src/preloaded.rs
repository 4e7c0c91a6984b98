//! getsockopt(2) of the whole process, where the library is preloaded: packetdrill asks it for what a script's code looks at (TCP_INFO). Descriptors that
//! are not ours are the kernel's.

use core::ffi::{c_int, c_void};
use core::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use libc::socklen_t;

use crate::calls;
use crate::host::Host;

/// The host that was made last, if it lives.
static HOST: AtomicPtr<Host> = AtomicPtr::new(ptr::null_mut());

/// A host was made.
pub(crate) fn remember(host: *mut Host) {
    HOST.store(host, Ordering::Release);
}

/// A host is about to go.
pub(crate) fn forget(host: *mut Host) {
    let _ = HOST.compare_exchange(host, ptr::null_mut(), Ordering::AcqRel, Ordering::Relaxed);
}

/// getsockopt(2).
///
/// # Safety
/// As the system's. No other thread frees the host meanwhile (packetdrill frees it last).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getsockopt(fd: c_int, level: c_int, name: c_int, value: *mut c_void, len: *mut socklen_t) -> c_int {
    let host = HOST.load(Ordering::Acquire);
    if !host.is_null() {
        // SAFETY: what is remembered lives until it is forgotten.
        let is_ours = unsafe { &*host }.lock().world.has(fd);
        if is_ours {
            // SAFETY: as above; the rest is the caller's promise.
            return unsafe { calls::getsockopt(host.cast(), fd, level, name, value, len) };
        }
    }
    // SAFETY: the system's own call, whose arguments it checks itself.
    unsafe { libc::syscall(libc::SYS_getsockopt, fd, level, name, value, len) as c_int }
}
