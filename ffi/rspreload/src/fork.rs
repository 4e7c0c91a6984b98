//! Forks, execs and ends of the process.

use core::cell::UnsafeCell;
use core::ffi::c_int;
use core::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard};

use ringway_preload::{bare_boundary, errno, next};
use rsocket::api;

use crate::handover;
use crate::options::set_kernel_nonblocking;
use crate::socket::{Socket, State, stop_listening};
use crate::table::{self, Table};

/// The table's lock, from before a fork until after it.
struct Held(UnsafeCell<Option<MutexGuard<'static, Table>>>);

// SAFETY: it is only touched by the thread that forks, between `prepare`, which has locked what the guard is of, and the handler that takes it out again: no
// other thread can be there meanwhile.
unsafe impl Sync for Held {}

static HELD: Held = Held(UnsafeCell::new(None));

/// Registers the handlers. Those that hold the lock are registered before rsockets' own, so that it is locked behind theirs, as everywhere; those that use rsockets
/// behind them, so that these can be used again.
pub(crate) fn install() {
    // SAFETY: functions of this library, which is never unloaded.
    unsafe { libc::pthread_atfork(Some(prepare), Some(release), Some(release)) };
    api::prepare_for_forks();
    api::has_tcp_as_well();
    // SAFETY: as above.
    unsafe { libc::pthread_atfork(None, Some(parent), Some(child)) };
}

extern "C" fn prepare() {
    let guard = table::lock();
    // SAFETY: the lock is held.
    unsafe { *HELD.0.get() = Some(guard) };
}

extern "C" fn release() {
    // SAFETY: the lock is held, by `prepare`.
    drop(unsafe { (*HELD.0.get()).take() });
}

fn sockets() -> Vec<(c_int, Arc<Socket>)> {
    table::lock().sockets.iter().map(|(fd, socket)| (*fd, socket.clone())).collect()
}

/// In the parent: whichever of the two waits for connections next listens as an rsocket.
extern "C" fn parent() {
    bare_boundary!((), {
        let saved = errno::current();
        sockets().iter().for_each(|(_, socket)| stop_listening(socket));
        api::wake();
        errno::set(saved);
    });
}

/// In the child, which has none of its parent's rsockets.
extern "C" fn child() {
    bare_boundary!((), {
        table::own();
        sockets().iter().for_each(|(_, socket)| inherited(socket));
    });
}

fn inherited(socket: &Socket) {
    let to = match socket.state() {
        State::Connecting(_) | State::Connected(_) | State::Moving => State::Lost,
        State::Datagram(key) => {
            table::set_internal(key, false);
            // SAFETY: a copy of a descriptor of rsockets', who have forgotten it.
            unsafe { next::close(key) };
            State::Kernel
        }
        State::Listening(_) => {
            socket.retries.store(true, Ordering::Relaxed);
            State::Listening(None)
        }
        state => state,
    };
    socket.set_state(to);
    // (A port that was taken is its parent's to give up. A thread that is no more may have this locked.)
    if let Ok(mut more) = socket.more.try_lock()
        && let Some(claim) = &mut more.claim
    {
        claim.forget();
    }
}

/// Before an exec: the new program knows nothing of rsockets.
pub(crate) fn before_exec() {
    bare_boundary!((), {
        let saved = errno::current();
        for (fd, socket) in sockets() {
            // SAFETY: plain integers.
            let flags = unsafe { next::fcntl(fd, libc::F_GETFD, 0) };
            if flags < 0 || flags & libc::FD_CLOEXEC != 0 {
                continue;
            }
            match socket.state() {
                State::ForkPassive => handover::stay(fd, &socket),
                State::Connected(_) => tracing::warn!("descriptor {fd} is an rsocket, which the new program will not have"),
                State::Listening(_) if socket.blocks() => set_kernel_nonblocking(fd, false),
                _ => {}
            }
        }
        errno::set(saved);
    });
}

/// After an exec that failed.
pub(crate) fn after_exec() {
    bare_boundary!((), {
        for (fd, _) in sockets().iter().filter(|(_, socket)| matches!(socket.state(), State::Listening(_))) {
            set_kernel_nonblocking(*fd, true);
        }
    });
}

/// The process ends by _exit(2): what it has sent still arrives, if that can be seen to. (A handler of a signal may be here, and whatever it interrupted has
/// the lock.)
pub(crate) fn before_exit() {
    bare_boundary!((), api::close_all_if_free());
}
