//! Closing what other processes passed.
//!
//! close(2) can take as long as whoever made the file likes: a TCP socket with SO_LINGER waits for a peer that reads nothing, a file of FUSE for its
//! daemon. The same goes for a Unix socket's close, which closes the descriptors that nobody has received from it. So strangers must not be
//! able to pass any (SO_PASSRIGHTS, Linux 6.16: their sendmsg(2) fails), and where they are (older kernels; processes of the own user),
//! a descriptor that was not recognised yet is closed by a thread that nobody waits for. It is started when there is something to close, takes no lock, and
//! ends when there is nothing left.

use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use ringway_host::Blocked;

use crate::fd::Table;
use crate::sys;

/// Descriptors that wait to be closed, at most; then strangers are left where they are, unaccepted.
const WAITING_MAX: usize = 256;
const STACK_BYTES: usize = 64 << 10;

/// What closes slowly, for all that is known.
static SLOW: Table = Table::new();
/// What of it is a connection, whose other side is to learn at once that it has ended.
static CONNECTIONS: Table = Table::new();
/// What of it waits to be closed. (A lock might be held for ever in a fork's child.)
static WAITING: Table = Table::new();
static WAITING_COUNT: AtomicUsize = AtomicUsize::new(0);
static IS_RUNNING: AtomicBool = AtomicBool::new(false);

/// It is not to be closed by whoever drops it.
pub(crate) fn set_slow(raw: i32) {
    SLOW.insert(raw);
}

/// As [`set_slow`], for a connection of ours.
pub(crate) fn set_slow_connection(raw: i32) {
    CONNECTIONS.insert(raw);
    SLOW.insert(raw);
}

/// It may be, after all.
pub(crate) fn set_at_once(raw: i32) {
    CONNECTIONS.remove(raw);
    SLOW.remove(raw);
}

/// Closes a descriptor, or has it closed. `forget`: to be called right before.
pub(crate) fn close(raw: i32, forget: fn(i32) -> bool) {
    // (Only memory files have seals, and those are closed at once.)
    if !SLOW.remove(raw) || sys::has_seals(raw) {
        if forget(raw) {
            sys::close(raw);
        }
        return;
    }
    if CONNECTIONS.remove(raw) {
        sys::shut_down(raw);
    }
    WAITING_COUNT.fetch_add(1, Ordering::Relaxed);
    WAITING.insert(raw);
    start(forget);
}

/// Whether there is room for more that is slow.
pub(crate) fn has_room() -> bool {
    WAITING_COUNT.load(Ordering::Relaxed) < WAITING_MAX
}

/// Whether anything waits to be closed, or is being closed.
#[cfg(test)]
pub(crate) fn is_busy() -> bool {
    WAITING_COUNT.load(Ordering::Relaxed) > 0
}

/// In a fork's child: all is closed already, and the thread is the parent's. Async-signal-safe.
pub(crate) fn forget_all_in_child() {
    SLOW.clear();
    CONNECTIONS.clear();
    WAITING.clear();
    WAITING_COUNT.store(0, Ordering::Relaxed);
    IS_RUNNING.store(false, Ordering::Relaxed);
}

fn start(forget: fn(i32) -> bool) {
    if IS_RUNNING.swap(true, Ordering::AcqRel) {
        return;
    }
    let _undisturbed = Blocked::new();
    let thread = std::thread::Builder::new().name("ringway-closer".to_owned()).stack_size(STACK_BYTES);
    if thread.spawn(move || run(forget)).is_err() {
        // Whatever is dropped next brings the thread that closes this, too.
        IS_RUNNING.store(false, Ordering::Release);
    }
}

fn run(forget: fn(i32) -> bool) {
    loop {
        while let Some(raw) = WAITING.take_one() {
            if forget(raw) {
                sys::close(raw);
            }
            WAITING_COUNT.fetch_sub(1, Ordering::Relaxed);
        }
        // What came after the last look found the thread running. (This reads what was written there, and so sees the count, too.)
        IS_RUNNING.swap(false, Ordering::AcqRel);
        if WAITING_COUNT.load(Ordering::Acquire) == 0 || IS_RUNNING.swap(true, Ordering::AcqRel) {
            return;
        }
    }
}

#[cfg(test)]
std::thread_local! {
    /// Sockets of this thread, and what connects to its listeners, are as on a kernel that refuses no descriptors.
    pub(crate) static IS_OLD_KERNEL: core::cell::Cell<bool> = const { core::cell::Cell::new(false) };
}
