//! The end of the process: what was written is delivered, what was counted is kept.

use core::sync::atomic::{AtomicU32, Ordering};
use core::time::Duration;
use std::collections::HashSet;

use ringway_stack::device::Device;
use ringway_stack::ring::Shutdown;

use crate::exports::stdio;
use crate::mux::wait::in_handler;
use crate::process::{self, Offload, Process};
use crate::socket::Kind;
use crate::socket::accept::SignalsBlocked;
use crate::{moving, real, report};

/// Without progress for this long, what is left is given up: the peer is stopped, or gone.
const PATIENCE: Duration = Duration::from_secs(2);

/// After this long without progress, a peer is not reading: what is left moves to the kernel, which keeps it for longer than we can.
const UNREAD: Duration = Duration::from_millis(200);

/// As well after this long, if some peers read and others don't.
const SLOW: Duration = Duration::from_secs(1);

/// However slowly the peers take what is left, a program that was told to end does end.
const PATIENCE_IN_ALL: Duration = Duration::from_secs(10);

/// Moves while [`finish`] makes progress; [`FINISHED`] once another thread has run it for one that could not.
static PULSE: AtomicU32 = AtomicU32::new(0);
const FINISHED: u32 = u32::MAX;

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
/// there the progress thread does it, and is waited for only so long.
pub(crate) fn finish_from_anywhere() {
    if in_handler() { finish_elsewhere() } else { finish() }
}

/// Something went on that the end of the process may be waiting for.
pub(crate) fn pulse() {
    let next = |beat: u32| (beat != FINISHED).then(|| (beat + 1) % FINISHED);
    if PULSE.fetch_update(Ordering::AcqRel, Ordering::Relaxed, next).is_ok() {
        wake_the_waiting();
    }
}

fn finish_elsewhere() {
    let Some(process) = process::process() else { return };
    if !process.is_owner() {
        return;
    }
    let Ok(progress) = process.progress.try_lock() else { return };
    let Some(progress) = progress.as_ref() else { return };
    PULSE.store(0, Ordering::Relaxed);
    progress.request(finish_for_another);
    let started = process.now();
    loop {
        let seen = PULSE.load(Ordering::Acquire);
        if seen == FINISHED || process.now().since(started) > PATIENCE_IN_ALL || !pulse_moves(seen) {
            return;
        }
    }
}

fn finish_for_another() {
    let end = || {
        crate::boundary!((), finish());
        PULSE.store(FINISHED, Ordering::Release);
        wake_the_waiting();
    };
    let moves = || process::process().and_then(Process::try_lock).is_none_or(|offload| moving::is_under_way(&offload));
    if crate::lineage::forks() == 0 && !moves() {
        return end();
    }
    // What others share has to move first, and the progress thread is needed for other processes' part in that.
    let _undisturbed = SignalsBlocked::new();
    if std::thread::Builder::new().name("ringway-end".to_owned()).spawn(end).is_err() {
        end();
    }
}

/// Sleeps until the pulse is no longer `seen`. `false`: it stood still for as long as anybody is patient.
fn pulse_moves(seen: u32) -> bool {
    let timeout = libc::timespec { tv_sec: PATIENCE.as_secs().cast_signed(), tv_nsec: 0 };
    let op = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: the word is a static, and the time is valid.
    let result = unsafe { libc::syscall(libc::SYS_futex, PULSE.as_ptr(), op, seen, &raw const timeout) };
    result == 0 || crate::errno::current() != libc::ETIMEDOUT
}

fn wake_the_waiting() {
    // SAFETY: the word is a static; FUTEX_WAKE reads nothing else.
    unsafe { libc::syscall(libc::SYS_futex, PULSE.as_ptr(), libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG, i32::MAX) };
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
    moving::owner::leave_shared(process);
    pulse();
    let report = report::last(process);
    flush(process);
    if let Some(report) = report {
        report::append(process, report);
    }
}

/// Before the process becomes another program: what closed connections still have to send is sent, or the kernel's.
pub(crate) fn let_linger(process: &'static Process) {
    see_off(process);
}

fn flush(process: &'static Process) {
    {
        let mut guard = process.lock();
        // What began to move meanwhile would be lost with the process in the middle of it.
        let started = process.now();
        while !guard.moves.is_empty() && process.now().since(started) < PATIENCE {
            drop(guard);
            pause();
            guard = process.lock();
        }
        let offload = &mut *guard;
        offload.ending = true;
        let now = process.now();
        let open: Vec<_> = offload.sockets.iter().map(|(_, s)| (s.kind, s.linger)).collect();
        for (kind, linger) in open {
            match kind {
                Kind::Stream(id) | Kind::Connecting(id) => {
                    // Unread bytes must not turn the end into a reset of what was written: only the program's own
                    // SO_LINGER of zero does that.
                    if linger == Some(Duration::ZERO) {
                        offload.ring.close(now, id, true);
                    } else {
                        let _ = offload.ring.shutdown(now, id, Shutdown::Write);
                        offload.ring.close(now, id, false);
                    }
                }
                Kind::Listener(Some(id)) | Kind::Datagram(Some(id)) => offload.ring.close(now, id, false),
                _ => {}
            }
        }
    }
    see_off(process);
}

/// Waits until the peers have what closed connections still send, or the kernel has it for them.
fn see_off(process: &'static Process) {
    let started = process.now();
    let (mut last, mut left, mut beat, mut bequeathed) = (started, usize::MAX, 0, HashSet::new());
    loop {
        let mut guard = process.lock();
        let offload = &mut *guard;
        let now = process.now();
        offload.ring.poll(now);
        offload.dispatch();
        // (Whoever takes a connection to the kernel just now is to leave its ring before it sees this one go.)
        if !offload.ring.lingering() && !moving::owner::waits(offload) {
            return;
        }
        if now.since(last) > PATIENCE || now.since(started) > PATIENCE_IN_ALL {
            return give_up(offload);
        }
        // Only what the peers acknowledge is progress: what they send is not wanted any more.
        let still = offload.ring.lingering_bytes();
        if still != left {
            left = still;
            pulse();
        }
        let seen = PULSE.load(Ordering::Acquire);
        if seen != beat {
            (beat, last) = (seen, now);
        }
        if now.since(last) > UNREAD || now.since(started) > SLOW || !bequeathed.is_empty() {
            moving::owner::bequeath(process, offload, &mut bequeathed);
        }
        let ready = offload.ring.device().rx_ready();
        drop(guard);
        if !ready {
            pause();
        }
    }
}

fn give_up(offload: &Offload) {
    for info in offload.ring.lingering_streams().into_iter().filter_map(|id| offload.ring.info(id)) {
        let (local, remote, bytes) = (info.local, info.remote, info.send_queue);
        let remote = remote.map_or_else(String::new, |remote| remote.to_string());
        tracing::warn!("the last {bytes} bytes of the connection {local} - {remote} are lost, and it is reset: nobody takes them");
    }
    if moving::owner::has_begun(offload) {
        tracing::warn!("connections that were on their way to the kernel are reset: their peers did not answer in time");
    }
}

/// A moment for the peer, which may need this core.
fn pause() {
    let mut nothing = libc::pollfd { fd: -1, events: 0, revents: 0 };
    let moment = libc::timespec { tv_sec: 0, tv_nsec: 50_000 };
    // SAFETY: one pollfd that names no descriptor, and a valid time.
    unsafe { real::ppoll(&raw mut nothing, 1, &raw const moment, core::ptr::null()) };
}
