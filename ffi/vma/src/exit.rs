//! The end of the process: what was written is delivered, what was counted is kept.

mod pulse;

use core::sync::atomic::{AtomicU32, Ordering};
use core::time::Duration;
use std::collections::HashSet;

use ringway_host::Blocked;

use crate::exports::stdio;
use crate::mux::wait::in_handler;
use crate::process::{self, Offload, Process};
use crate::socket::Socket;
use crate::{moving, real, report};

pub(crate) use pulse::{Patience, pulse};

/// Without progress for this long, what is left is given up: the peer is stopped, or gone.
const PATIENCE: Duration = Duration::from_secs(2);

/// After this long without progress, a peer is not reading: what is left moves to the kernel, which keeps it for longer than we can.
const UNREAD: Duration = Duration::from_millis(200);

/// As well after this long, if some peers read and others don't.
const SLOW: Duration = Duration::from_secs(1);

/// However slowly the peers take what is left, a program that was told to end does end.
const PATIENCE_IN_ALL: Duration = Duration::from_secs(10);

/// Looks, a moment apart, for a lock that is only held by a call under way.
const LOCK_TRIES: u32 = 4000;

/// Runs after the program's own exit handlers and destructors.
extern "C" fn at_unload() {
    crate::boundary!((), {
        if !in_handler() {
            stdio::flush();
        }
        finish_from_anywhere();
    });
}

#[used]
#[unsafe(link_section = ".fini_array")]
static AT_UNLOAD: extern "C" fn() = at_unload;

/// [`finish`], also for signal handlers: what they interrupted may hold malloc's lock, or one of the rendezvous's, so
/// there another thread does it, and is waited for only so long.
pub(crate) fn finish_from_anywhere() {
    if in_handler() { finish_elsewhere() } else { finish() }
}

fn finish_elsewhere() {
    let Some(process) = process::process() else { return };
    if !process.is_owner() {
        return;
    }
    let Ok(progress) = process.progress.try_lock() else { return };
    let Some(progress) = progress.as_ref() else { return };
    pulse::begin();
    progress.request(finish_for_another);
    // (It has its own patience, and something to do after that.)
    pulse::await_finished(PATIENCE_IN_ALL + PATIENCE, PATIENCE);
}

/// The progress thread's part: to start the thread that does it. It is itself needed meanwhile, for other processes' moves.
fn finish_for_another() {
    let end = || {
        crate::boundary!((), finish());
        pulse::finished();
    };
    let _undisturbed = Blocked::new();
    if std::thread::Builder::new().name("ringway-end".to_owned()).spawn(end).is_err() {
        end();
    }
}

/// Ends every connection in order, waits until the peers have everything, and writes the report. Only once, and only in
/// the process that owns the state (not in a vfork child).
pub(crate) fn finish() {
    static DONE: AtomicU32 = AtomicU32::new(u32::MAX);
    let Some(process) = process::process() else { return };
    if !process.is_owner() {
        return;
    }
    let generation = process::fork_generation();
    if DONE.swap(generation, Ordering::AcqRel) == generation {
        return;
    }
    // A signal handler that left one of our calls by longjmp left the state locked, and whatever the ring was doing undone.
    if !(0..LOCK_TRIES).any(|_| {
        process.try_lock().is_some() || {
            pause();
            false
        }
    }) {
        tracing::warn!("the program ended in the middle of a call: what it had not sent yet is lost");
        return;
    }
    make_room();
    let mut patience = Patience::of(PATIENCE_IN_ALL);
    let is_left = moving::owner::leave_shared(process, &mut patience.less(PATIENCE));
    pulse();
    let report = report::last(process);
    flush(process, is_left, &mut patience);
    if let Some(report) = report {
        report::append(process, report);
    }
    process.published.remove();
}

/// What moves needs descriptors, and the program may have left none. It opens no more, so its limit is nobody's any more.
fn make_room() {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the structure is valid for both.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) == 0 && limit.rlim_cur < limit.rlim_max {
            limit.rlim_cur = limit.rlim_max;
            libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit);
        }
    }
}

/// Before the process becomes another program, which goes on with what `keeps` names: everything is the kernel's, and what closed
/// connections still have to send is sent, or the kernel's.
pub(crate) fn before_exec(process: &'static Process, keeps: impl Fn(i32) -> bool) {
    let mut patience = Patience::of(PATIENCE_IN_ALL);
    let mut part = patience.less(PATIENCE);
    moving::retreat::at_exec(process, &keeps, &mut part);
    moving::owner::at_exec(process, keeps, &mut part);
    see_off(process, &mut patience);
    process.published.remove();
}

/// `is_left`: nothing that others share is on its way since before.
fn flush(process: &'static Process, is_left: bool, patience: &mut Patience) {
    {
        let mut guard = process.lock();
        // What began to move meanwhile would be lost with the process in the middle of it.
        while is_left && !guard.moves.is_empty() && patience.lasts(PATIENCE) {
            drop(guard);
            pause();
            guard = process.lock();
        }
        let offload = &mut *guard;
        offload.ending = true;
        let now = process.now();
        // As when the program closes them: by a reset where it has not read everything, or has an SO_LINGER of zero.
        let aborts = |socket: &Socket| socket.kind.stream().is_some() && socket.linger == Some(Duration::ZERO);
        let open: Vec<_> = offload.sockets.iter().flat_map(|(_, s)| s.flows().map(move |id| (id, aborts(s)))).collect();
        for (id, abort) in open {
            offload.rings.of_mut(id).close(now, id, abort);
        }
    }
    see_off(process, patience);
}

/// Waits until the peers have what closed connections still send, or the kernel has it for them.
fn see_off(process: &'static Process, patience: &mut Patience) {
    let started = process.now();
    let (mut left, mut left_to_peers) = (usize::MAX, HashSet::new());
    loop {
        let mut guard = process.lock();
        let offload = &mut *guard;
        let now = process.now();
        offload.rings.poll(offload.rings.all(), now);
        offload.dispatch();
        // (Whoever takes a connection to the kernel just now is to leave its ring before it sees this one go.)
        if !offload.rings.iter().any(|own| own.ring.lingering()) && !moving::owner::waits(offload) {
            return;
        }
        // Only what the peers acknowledge is progress: what they send is not wanted any more.
        let still = offload.rings.iter().map(|own| own.ring.lingering_bytes()).sum();
        if still != left {
            left = still;
            pulse();
        }
        if !patience.lasts(PATIENCE) {
            return give_up(offload);
        }
        if patience.stood_still() > UNREAD || now.since(started) > SLOW || !left_to_peers.is_empty() {
            moving::owner::leave_to_peer(process, offload, &mut left_to_peers);
        }
        let ready = offload.rings.iter().any(|own| own.ring.rx_ready());
        drop(guard);
        if !ready {
            pause();
        }
    }
}

fn give_up(offload: &mut Offload) {
    // (A process may have thousands of them: one line says so.)
    let mut lost: Vec<_> = offload.rings.lingering_streams().filter_map(|id| offload.rings.of(id).info(id)).collect();
    lost.sort_by_key(|info| core::cmp::Reverse(info.send_queue));
    if let Some(most) = lost.first() {
        let (local, remote, bytes) = (most.local, most.remote, most.send_queue);
        let remote = remote.map_or_else(String::new, |remote| remote.to_string());
        let what = if bytes == 0 { "the end".to_owned() } else { format!("the last {bytes} bytes") };
        let (are, others) = (if bytes == 0 { "is" } else { "are" }, lost.len() - 1);
        let others = if others == 0 { String::new() } else { format!(" (and so with {others} more)") };
        tracing::warn!("{what} of the connection {local} - {remote} {are} lost, and it is reset: nobody takes that{others}");
    }
    if moving::owner::has_begun(offload) {
        tracing::warn!("connections that were on their way to the kernel are reset: their peers did not take them in time");
        moving::owner::give_up(offload);
    }
}

/// A moment for the peer, which may need this core.
fn pause() {
    let mut nothing = libc::pollfd { fd: -1, events: 0, revents: 0 };
    let moment = libc::timespec { tv_sec: 0, tv_nsec: 50_000 };
    // SAFETY: one pollfd that names no descriptor, and a valid time.
    unsafe { real::ppoll(&raw mut nothing, 1, &raw const moment, core::ptr::null()) };
}
