//! The end of the process: what was written is delivered, what was counted is kept.

use core::time::Duration;

use ringway_stack::device::Device;
use ringway_stack::ring::Shutdown;

use crate::process::{self, Process};
use crate::socket::Kind;
use crate::{real, report};

/// Without progress for this long, what is left is given up: the peer is stopped, or gone.
const PATIENCE: Duration = Duration::from_secs(2);

/// Looks, a moment apart, for a lock that is only held by a call under way.
const LOCK_TRIES: u32 = 4000;

/// Runs after the program's own exit handlers and destructors.
extern "C" fn at_unload() {
    crate::boundary!((), finish());
}

#[used]
#[unsafe(link_section = ".fini_array")]
static AT_UNLOAD: extern "C" fn() = at_unload;

/// Ends every connection in order, waits until the peers have everything, and writes the report. Only once, and only in
/// the process that owns the state (not in a vfork child).
pub(crate) fn finish() {
    static DONE: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(u32::MAX);
    let Some(process) = process::process() else { return };
    if !process.is_owner() {
        return;
    }
    let generation = process::fork_generation();
    if DONE.swap(generation, std::sync::atomic::Ordering::AcqRel) == generation {
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
    let report = report::last(process);
    flush(process);
    if let Some(report) = report {
        report::append(process, report);
    }
}

fn flush(process: &Process) {
    {
        let mut guard = process.lock();
        let offload = &mut *guard;
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
    let mut last = process.now();
    loop {
        let mut guard = process.lock();
        let offload = &mut *guard;
        let now = process.now();
        if offload.ring.poll(now) > 0 {
            last = now;
        }
        while offload.ring.take_event().is_some() {}
        if !offload.ring.lingering() || now.since(last) > PATIENCE {
            return;
        }
        let ready = offload.ring.device().rx_ready();
        drop(guard);
        if !ready {
            pause();
        }
    }
}

/// A moment for the peer, which may need this core.
fn pause() {
    let mut nothing = libc::pollfd { fd: -1, events: 0, revents: 0 };
    let moment = libc::timespec { tv_sec: 0, tv_nsec: 50_000 };
    // SAFETY: one pollfd that names no descriptor, and a valid time.
    unsafe { real::ppoll(&raw mut nothing, 1, &raw const moment, core::ptr::null()) };
}
