//! Whether a child of a fork may still have what its parent has.
//!
//! Each fork that copies a connection also copies the writing end of a pipe, which nobody writes to and nobody is told of. It is
//! closed by exec and by the end of the process, and so says, to the parent that has the reading end, whether the child, or
//! a child of the child, is still there: precisely, and whatever they died of.

use core::ffi::c_int;
use core::sync::atomic::{AtomicU32, Ordering};

use ringway_host::numbers;

use crate::fdtable::{self, Entry};
use crate::lock::{Lock, Protected};
use crate::real;

/// More children at once than this are taken to be there for ever.
const KNOWN_MAX: usize = 256;

/// Where the descriptors are numbered from, if there is room.
pub(crate) const HIGH: usize = 600;

#[derive(Debug, Default)]
struct Descendants {
    /// Forks so far.
    forks: u32,
    /// A fork's number, and its pipe's reading end.
    children: Vec<(u32, c_int)>,
    /// The last fork of which there is no pipe.
    unknown: u32,
    /// Both ends, for the fork under way.
    pending: Option<[c_int; 2]>,
}

/// [`Descendants::forks`], for those who don't hold the state's lock.
static FORKS: AtomicU32 = AtomicU32::new(0);

impl Protected for Descendants {
    type Left = ();
}

/// Only used under the state's lock, so that a child never finds it taken.
static DESCENDANTS: Lock<Descendants> = Lock::new(Descendants { forks: 0, children: Vec::new(), unknown: 0, pending: None });

/// Forks so far: what a new connection remembers.
pub(crate) fn forks() -> u32 {
    FORKS.load(Ordering::Relaxed)
}

/// Whether a child that was forked since then may be alive.
pub(crate) fn shared_since(birth: u32) -> bool {
    children_since(birth) > 0
}

/// How many children that were forked since then are alive, as far as is known.
pub(crate) fn children_since(birth: u32) -> usize {
    if forks() == birth {
        return 0;
    }
    let mut descendants = DESCENDANTS.lock();
    descendants.bury();
    if descendants.unknown > birth {
        return usize::MAX;
    }
    descendants.children.iter().filter(|&&(fork, _)| fork > birth).count()
}

/// The last fork of which a child may be alive: what was there before is shared. Zero: none.
pub(crate) fn youngest_child() -> u32 {
    let mut descendants = DESCENDANTS.lock();
    descendants.bury();
    let known = descendants.children.iter().map(|&(fork, _)| fork).max();
    descendants.unknown.max(known.unwrap_or(0))
}

/// The one child that was forked since then and is alive, by its fork's number. `None`: there is none, or more, or that is not known.
pub(crate) fn sole_child_since(birth: u32) -> Option<u32> {
    if forks() == birth {
        return None;
    }
    let mut descendants = DESCENDANTS.lock();
    descendants.bury();
    let mut children = descendants.children.iter().map(|&(fork, _)| fork).filter(|&fork| fork > birth);
    let child = children.next().filter(|_| descendants.unknown <= birth)?;
    children.next().is_none().then_some(child)
}

/// Whether the child of a fork is alive, or a child of its.
pub(crate) fn is_alive(child: u32) -> bool {
    let mut descendants = DESCENDANTS.lock();
    descendants.bury();
    descendants.children.iter().any(|&(fork, _)| fork == child)
}

/// Before a fork. `copied`: there are connections that the child will have too.
pub(crate) fn before(copied: bool) {
    let mut descendants = DESCENDANTS.lock();
    descendants.forks += 1;
    FORKS.store(descendants.forks, Ordering::Relaxed);
    if !copied {
        return;
    }
    descendants.bury();
    descendants.pending = if descendants.children.len() < KNOWN_MAX { pipe_out_of_the_way() } else { None };
    if descendants.pending.is_none() {
        descendants.unknown = descendants.forks;
    }
}

/// A child of a fork that nobody saw tells of itself, by the reading end of its own pipe. Called with the state's lock held.
pub(crate) fn announced(reading: c_int) {
    let mut descendants = DESCENDANTS.lock();
    descendants.forks = descendants.forks.saturating_add(1);
    FORKS.store(descendants.forks, Ordering::Relaxed);
    descendants.bury();
    // SAFETY: plain integers.
    let copy = if descendants.children.len() < KNOWN_MAX { unsafe { real::fcntl(reading, libc::F_DUPFD_CLOEXEC, HIGH) } } else { -1 };
    let fork = descendants.forks;
    if copy < 0 {
        descendants.unknown = fork;
    } else {
        fdtable::set(copy, Entry::Internal);
        descendants.children.push((fork, copy));
    }
}

/// After it, in the parent.
pub(crate) fn after_in_parent() {
    let mut descendants = DESCENDANTS.lock();
    if let Some([reading, writing]) = descendants.pending.take() {
        let fork = descendants.forks;
        descendants.children.push((fork, reading));
        close(writing);
    }
}

/// After it, in the child, which keeps the writing end for as long as it lives. Async-signal-safe.
pub(crate) fn after_in_child() {
    let mut descendants = DESCENDANTS.lock();
    if let Some([reading, _]) = descendants.pending.take() {
        close(reading);
    }
    while let Some((_, reading)) = descendants.children.pop() {
        close(reading);
    }
    (descendants.forks, descendants.unknown) = (0, 0);
    FORKS.store(0, Ordering::Relaxed);
}

impl Descendants {
    /// Forgets the children that have ended.
    fn bury(&mut self) {
        self.children.retain(|&(_, reading)| {
            let mut entry = libc::pollfd { fd: reading, events: 0, revents: 0 };
            // SAFETY: one valid pollfd.
            let ended = unsafe { real::poll(&raw mut entry, 1, 0) } == 1;
            if entry.revents & libc::POLLNVAL != 0 {
                // Closed by a call that nobody saw.
                return false;
            }
            if ended {
                close(reading);
            }
            !ended
        });
    }
}

/// A second name for a file, as that of [`out_of_the_way`].
pub(crate) fn copy_out_of_the_way(fd: c_int) -> Option<c_int> {
    // SAFETY: plain integers.
    let copy = unsafe { real::fcntl(fd, libc::F_DUPFD_CLOEXEC, HIGH) };
    (copy >= 0).then(|| {
        fdtable::set(copy, Entry::Internal);
        copy
    })
}

/// What `make` makes, [`out_of_the_way`].
///
/// # Errors
/// Those of `make`.
pub(crate) fn make_out_of_the_way<E>(make: impl FnOnce() -> Result<c_int, E>) -> Result<c_int, E> {
    numbers::make_internal(|| make().map(out_of_the_way))
}

/// A pipe out of the way: the ends to read from and to write to. `None`: there is none to be had.
pub(crate) fn pipe_out_of_the_way() -> Option<[c_int; 2]> {
    numbers::make_internal(|| {
        let mut ends = [0; 2];
        // SAFETY: the array has room for both numbers.
        (unsafe { real::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) } == 0).then(|| ends.map(out_of_the_way))
    })
}

/// Under a high number, and safe from closefrom.
fn out_of_the_way(fd: c_int) -> c_int {
    // SAFETY: plain integers.
    let high = unsafe { real::fcntl(fd, libc::F_DUPFD_CLOEXEC, HIGH) };
    let fd = if high < 0 {
        fd
    } else {
        // SAFETY: made in `before`, and nobody knows of it.
        unsafe { real::close(fd) };
        high
    };
    fdtable::set(fd, Entry::Internal);
    fd
}

fn close(fd: c_int) {
    fdtable::clear(fd);
    // SAFETY: made in `before`, and nobody else closes it.
    unsafe { real::close(fd) };
}
