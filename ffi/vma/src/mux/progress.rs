//! The progress thread's work: what must be served while the program's threads are elsewhere.
//!
//! While the program uses the ring, the thread ticks (VMA_PROGRESS_ENGINE_INTERVAL), so that SYNs are answered and
//! timers run although the program computes. After quiet ticks it arms the ring and sleeps until a peer or a timer
//! wants something; then it serves that, and ticks again. An idle process has no wake-ups.

use core::time::Duration;
use std::io;
use std::sync::Arc;

use ringway_host::{Pidfd, Plan, Progress, Work};
use ringway_shm::Rendezvous;
use ringway_stack::device::Device;
use ringway_stack::time::Instant;

use crate::fdtable::{self, Entry};
use crate::fork;
use crate::process::{Offload, Process};

/// Ticks without a call of the program's that touched the ring, before the thread sleeps deeply.
const QUIET_TICKS: u32 = 2;

struct Service {
    process: &'static Process,
    rendezvous: Arc<Rendezvous>,
    interval: Duration,
    quiet: u32,
    /// [`crate::mux::State::calls`] at the end of the last turn.
    calls: u64,
    next_tick: Instant,
    /// [`Rendezvous::losses`] when routes were last gone through.
    losses: u64,
}

/// Starts the thread.
pub(crate) fn start(process: &'static Process) -> io::Result<Progress> {
    let service = Service {
        process,
        rendezvous: Arc::clone(&process.rendezvous),
        interval: Duration::from_millis(process.params.progress_engine_interval_ms.into()),
        quiet: 0,
        calls: 0,
        next_tick: Instant::ZERO,
        losses: 0,
    };
    let progress = Progress::start("ringway", service)?;
    fdtable::set(progress.descriptor(), Entry::Internal);
    process.lock().mux.watch.progress = Some(progress.descriptor());
    Ok(progress)
}

impl Work for Service {
    fn turn(&mut self) -> Plan {
        self.rendezvous.service();
        let greetings = Some(self.rendezvous.epoll_fd());
        let process = self.process;
        let now = process.now();
        let Some(mut offload) = process.try_lock() else {
            // Whoever holds it polls the ring.
            self.quiet = 0;
            return Plan { descriptors: [greetings, None, None], timeout: Some(self.interval.max(Duration::from_millis(1))) };
        };
        fork::look_after_parent(process, &mut offload);
        crate::moving::owner::begin_lent(process, &mut offload);
        let parent = offload.parent.as_ref().map(Pidfd::fd);
        let woken = offload.mux.watch.is_deep();
        offload.wake_from_deep();
        let losses = self.rendezvous.losses();
        if core::mem::replace(&mut self.losses, losses) != losses {
            offload.sockets.iter_mut().for_each(|(_, socket)| socket.route.forget_dead(&self.rendezvous));
        }
        let active = offload.mux.calls != self.calls;
        let served = (woken || now >= self.next_tick) && serve(&mut offload, now);
        if now >= self.next_tick || active || served {
            self.quiet = if active || served { 0 } else { self.quiet + 1 };
            self.next_tick = now + self.interval;
        }
        // Zero switches the ticks off (VMA_PROGRESS_ENGINE_INTERVAL=0): only what wakes a sleeper is served.
        let looked = crate::moving::retreat::look_after(process, &mut offload, now);
        let keeps = crate::moving::keep_legacies(&mut offload);
        let deeply = looked.is_none() && !keeps && (self.quiet >= QUIET_TICKS || self.interval.is_zero()) && offload.sleep_deeply();
        offload.attend(now);
        self.calls = offload.mux.calls;
        if deeply {
            let timeout = offload.ring.next_deadline().map(|deadline| deadline.since(now));
            return Plan { descriptors: [greetings, offload.ring.device().wait_fd(), parent], timeout };
        }
        let tick = self.next_tick.since(now).max(Duration::from_millis(1));
        Plan { descriptors: [greetings, None, parent], timeout: Some(tick) }
    }
}

/// Polls the ring until it has nothing more, or a fair share was served.
fn serve(offload: &mut Offload, now: Instant) -> bool {
    const POLLS_MAX: u32 = 64;
    let mut served = false;
    for _ in 0..POLLS_MAX {
        if offload.ring.poll(now) == 0 {
            break;
        }
        served = true;
        offload.dispatch();
    }
    served
}
