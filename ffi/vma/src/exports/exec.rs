//! exec: what a new program is to go on with must be the kernel's, since the new program knows of no ring.
//!
//! The calls of libc's that exec by themselves (posix_spawn, system, popen) cannot be seen; so a connection that is put under one of
//! the three standard numbers, or named to posix_spawn, moves right then.

use core::ffi::{c_int, c_void};

use ringway_stack::offload::Reason;

use crate::exit;
use crate::fdtable::{self, Entry};
use crate::moving::{self, inherited};
use crate::process;
use crate::real;

/// Before this process's program is replaced.
pub(super) fn before() {
    let saved = crate::errno::current();
    match process::process() {
        // Also what exec closes: the peer is to see an end, and not a reset, and all of what was written before it.
        Some(process) if process.is_owner() => exit::before_exec(process, keeps),
        Some(_) => lend_all(),
        None => inherited::share_listeners(keeps),
    }
    inherited::settle_all(keeps);
    crate::errno::set(saved);
}

/// After an exec that failed: the program goes on, and so do its connections.
pub(super) fn after() {
    if let Some(process) = process::process().filter(|process| process.is_owner()) {
        let saved = crate::errno::current();
        moving::owner::after_exec(process);
        process.published.restore();
        crate::errno::set(saved);
    }
}

/// In a vfork child, which has its parent's memory and descriptors of its own.
fn lend_all() {
    for (fd, entry) in fdtable::entries() {
        if matches!(entry, Entry::Socket(_)) && keeps(fd) {
            moving::hand_out(fd, Reason::SharedConnection);
        }
    }
}

/// Whether exec keeps a descriptor.
fn keeps(fd: c_int) -> bool {
    // SAFETY: plain integers.
    let flags = unsafe { real::fcntl(fd, libc::F_GETFD, 0) };
    flags >= 0 && flags & libc::FD_CLOEXEC == 0
}

/// After `old` got the number `new` as well.
pub(super) fn duplicated(old: c_int, new: c_int) {
    if new > libc::STDERR_FILENO {
        return;
    }
    moving::hand_out(old, Reason::SharedConnection);
    if process::process().is_some_and(|process| !process.is_owner()) {
        // A vfork child, of whose `new` no table says anything.
        // SAFETY: plain integers.
        unsafe { real::dup2(old, new) };
    }
    let _ = fdtable::lookup(new);
}

/// posix_spawn_file_actions_adddup2(3).
pub(super) unsafe fn add_duplicate(actions: *mut c_void, old: c_int, new: c_int) -> c_int {
    crate::boundary!((), moving::hand_out(old, Reason::SharedConnection));
    // SAFETY: the program's promise to posix_spawn_file_actions_adddup2(3).
    unsafe { real::posix_spawn_file_actions_adddup2(actions, old, new) }
}
