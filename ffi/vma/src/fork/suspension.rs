//! A parent that waits until its child execs or ends, as vfork's does, but with nothing of ours held meanwhile.

use core::ffi::c_int;
use core::sync::atomic::{AtomicI32, AtomicUsize, Ordering};

use crate::descendants::pipe_out_of_the_way;
use crate::fdtable;
use crate::real;

/// The end of a pipe that the child is to have; both exec and its end close it.
static CHILDS: AtomicI32 = AtomicI32::new(-1);

/// The thread that forks; zero in the child, whose own children are not waited for.
static FORKER: AtomicUsize = AtomicUsize::new(0);

/// The parent's end.
pub(crate) struct Suspension(c_int);

fn me() -> usize {
    // SAFETY: no preconditions.
    unsafe { libc::pthread_self() as usize }
}

/// Before the fork. `None`: no descriptor is to be had, and nobody waits.
pub(crate) fn begin() -> Option<Suspension> {
    let [reading, writing] = pipe_out_of_the_way()?;
    CHILDS.store(writing, Ordering::Relaxed);
    FORKER.store(me(), Ordering::Relaxed);
    Some(Suspension(reading))
}

/// In a child, whichever way it was forked: only the one that is waited for keeps its end.
pub(super) fn pass_to_child() {
    let forker = FORKER.swap(0, Ordering::Relaxed);
    if forker != me() {
        close(CHILDS.swap(-1, Ordering::Relaxed));
    }
}

impl Suspension {
    /// In the child.
    pub(crate) fn leave_to_parent(self) {
        close(self.0);
    }

    /// In the parent: waits.
    pub(crate) fn end(self) {
        FORKER.store(0, Ordering::Relaxed);
        close(CHILDS.swap(-1, Ordering::Relaxed));
        let mut entry = libc::pollfd { fd: self.0, events: 0, revents: 0 };
        // SAFETY: one valid pollfd.
        while unsafe { real::poll(&raw mut entry, 1, -1) } != 1 {}
        close(self.0);
    }
}

fn close(fd: c_int) {
    if fd >= 0 {
        fdtable::clear(fd);
        // SAFETY: made in `begin`, and nobody else closes it.
        unsafe { real::close(fd) };
    }
}
