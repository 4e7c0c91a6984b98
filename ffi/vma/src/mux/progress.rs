//! The progress thread's work: what must be served while the program's threads are elsewhere.
//!
//! While the program uses the ring, the thread ticks (VMA_PROGRESS_ENGINE_INTERVAL), so that SYNs are answered and
//! timers run although the program computes. Between two ticks it may be woken by a peer that has filled half of its channel: what the sockets
//! have room for arrives, whatever the program does. After quiet ticks it arms the ring and sleeps until a peer or a timer
//! wants something; then it serves that, and ticks again. An idle process has no wake-ups.

use core::time::Duration;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::RawFd;
use std::path::Path;

use ringway_devices::Rendezvous;
use ringway_host::{Pidfd, Plan, Progress, Work};
use ringway_params::Id;
use ringway_stack::time::Instant;

use super::held::{self, Watch};
use crate::fdtable::{self, Entry};
use crate::lock::Guard;
use crate::process::{Offload, Process};
use crate::rings::{Looks, ProcessRing, RingSet, Rings};
use crate::{descendants, fork, params};

/// Ticks without a call of the program's that touched the ring, before the thread sleeps deeply.
const QUIET_TICKS: u32 = 2;

/// Turns that the thread lets pass while somebody has a ring's lock.
const DENIED_MAX: u32 = 3;

/// Turns in a row that leave out rings which threads look at by their locks alone: a second, by the default interval.
const SPARED_MAX: u32 = 100;

struct Service {
    process: &'static Process,
    interval: Duration,
    quiet: u32,
    /// [`Offload::calls`] at the end of the last turn.
    calls: u64,
    /// How often threads had slept then.
    sleeps: u64,
    /// The rings were left to the senders then ([`HostQueues::pause`]).
    pauses: bool,
    next_tick: Instant,
    /// The sum of [`Rendezvous::losses`] when routes were last gone through.
    losses: u64,
    /// The thread is where the parameters want it.
    settled: bool,
    /// How often in a row some ring's lock was not to be had.
    denied: u32,
    looks: Looks,
    /// How many turns in a row left out some ring.
    spared: u32,
    /// The last turn that left out none left nothing but rings to be looked after in the next one.
    left_nothing: bool,
    /// What it slept on.
    descriptors: Vec<RawFd>,
}

/// Starts the thread.
pub(crate) fn start(process: &'static Process) -> io::Result<Progress> {
    let service = Service {
        process,
        interval: Duration::from_millis(process.params.progress_engine_interval_ms.into()),
        quiet: 0,
        calls: 0,
        sleeps: 0,
        pauses: false,
        next_tick: Instant::ZERO,
        losses: 0,
        settled: false,
        denied: 0,
        looks: Looks::default(),
        spared: 0,
        left_nothing: false,
        descriptors: Vec::new(),
    };
    let progress = Progress::start("ringway", service)?;
    fdtable::set(progress.descriptor(), Entry::Internal);
    process.lock().mux.progress = Some(progress.descriptor());
    Ok(progress)
}

impl Work for Service {
    fn turn(&mut self, is_called: bool) -> Plan {
        let plan = self.serve_all(is_called);
        let owed = self.process.published.look(self.process, false);
        Plan { timeout: [plan.timeout, owed].into_iter().flatten().min(), ..plan }
    }
}

impl Service {
    /// Whether the thread has the locks of these rings, or waits for them: which it does not while somebody has one, but for one time in a few. (It has the
    /// process's lock, and so would all wait for that who want it.)
    fn takes(&mut self, rings: &Rings, these: RingSet) -> bool {
        let takes = rings.try_take(these) || self.denied == DENIED_MAX;
        self.denied = if takes { 0 } else { self.denied + 1 };
        takes
    }

    /// The rings that this turn leaves to the threads that have looked at them since the last one: who finds a lock taken by this thread would wait for no
    /// reason. There are none as long as there is more to do than to poll, nor for ever. (What else there is to do from now on calls the thread.)
    fn spares(&mut self, is_called: bool, losses: u64) -> RingSet {
        let in_use = self.looks.since_last();
        let is_plain = self.left_nothing && !is_called && losses == self.losses && held::called().is_none() && descendants::forks() == 0;
        let spared = if is_plain && self.spared < SPARED_MAX { in_use } else { RingSet::NONE };
        self.spared = if spared.is_empty() { 0 } else { self.spared + 1 };
        spared
    }

    /// A turn in which only these rings are served: others are in use.
    fn serve_these(&mut self, mut offload: Guard<'_, Offload>, rings: RingSet, now: Instant) {
        serve(&mut offload, rings, now, self.process.params.progress_engine_frames_max);
        offload.attend(now);
        self.calls = offload.calls();
        self.quiet = 0;
    }

    fn serve_all(&mut self, is_called: bool) -> Plan {
        if !core::mem::replace(&mut self.settled, true) {
            settle();
        }
        let process = self.process;
        let mut descriptors = Vec::new();
        for rendezvous in process.rendezvous_of_all() {
            rendezvous.service();
            descriptors.push(rendezvous.epoll_fd());
        }
        let now = process.now();
        let losses = process.rendezvous_of_all().map(Rendezvous::losses).sum();
        let spared = self.spares(is_called, losses);
        if self.looks.are_all(spared) {
            // No lock is taken, not even to see that nothing is left to do. (Rings that were left to the senders stay so.)
            self.quiet = 0;
            return Plan { descriptors: self.descriptors.clone(), timeout: Some(self.interval) };
        }
        let mut rings = RingSet::NONE;
        let offload = process.try_lock().filter(|offload| {
            rings = offload.rings.all().but_for(if self.pauses { RingSet::NONE } else { spared });
            self.takes(&offload.rings, rings)
        });
        let Some(mut offload) = offload else {
            // Whoever holds it polls the ring.
            self.quiet = 0;
            // (A sender may have ended the pause, and does so once.)
            let patience = if self.pauses { Duration::ZERO } else { self.interval };
            let tick = held::called().map_or(patience.max(Duration::from_millis(1)), Watch::again);
            return Plan { descriptors, timeout: Some(tick) };
        };
        if rings != offload.rings.all() {
            self.serve_these(offload, rings, now);
            return Plan { descriptors, timeout: Some(self.interval) };
        }
        fork::look_after_parent(process, &mut offload);
        crate::moving::owner::begin_leaving(process, &mut offload);
        descriptors.extend(offload.parent.as_ref().map(Pidfd::fd));
        self.pauses = false;
        let resumed = offload.rings.iter_mut().fold(false, |any, own| any | own.ring.resume());
        let woken = offload.rings.iter().any(|own| own.watch.is_deep()) | resumed | held::called().is_some();
        offload.wake_from_deep();
        offload.serve_all_interfaces(now);
        descriptors.extend(offload.interfaces.as_ref().map(|interfaces| interfaces.monitor_fd()));
        if core::mem::replace(&mut self.losses, losses) != losses {
            forget_dead_routes(process, &mut offload);
        }
        let active = offload.calls() != self.calls;
        let served = (woken || now >= self.next_tick) && serve(&mut offload, rings, now, process.params.progress_engine_frames_max);
        if served {
            crate::moving::together::ask_other_kernels(&mut offload);
        }
        // Woken by what is another sleeper's, which is there until that one takes it: then the thread ticks for a while.
        let in_vain = woken && !served && offload.is_told_of_beside();
        if now >= self.next_tick || active || served || in_vain {
            self.quiet = if active || served || in_vain { 0 } else { self.quiet + 1 };
            self.next_tick = now + self.interval;
        }
        // Zero switches the ticks off (VMA_PROGRESS_ENGINE_INTERVAL=0): only what wakes a sleeper is served.
        let looked = crate::moving::retreat::look_after(process, &mut offload, now);
        let keeps =
            crate::moving::keep_former_descriptors(&mut offload) | crate::moving::awaiting_child::look_after(process, &mut offload, now);
        let shared = fork::sharing::look_after(&mut offload, now);
        let late = offload.look_after_late_interfaces(process, now);
        let by_rules = offload.next_by_rules(now);
        let groups = [offload.look_after_groups(now), offload.look_after_shared_ports(now), late, by_rules].into_iter().flatten().min();
        // What is held goes on with the next frame, whatever else the program does.
        let held = offload.still_held(now);
        let quiet = self.quiet >= QUIET_TICKS || self.interval.is_zero() || held == Some(Watch::Ring);
        let may_sleep = looked.is_none() && !keeps && quiet && held != Some(Watch::Clock);
        let deeply = may_sleep && offload.sleep_deeply();
        let nothing_came_up = looked.is_none() && !keeps && shared.is_none() && groups.is_none() && held.is_none();
        self.left_nothing = !deeply && nothing_came_up && offload.interfaces.is_none() && offload.has_nothing_to_look_after();
        self.looks.follow(&offload.rings);
        offload.attend(now);
        self.calls = offload.calls();
        if deeply {
            let deadlines = offload.rings.iter_mut().filter_map(|own| own.ring.sleep_deadline());
            let timeout = deadlines.map(|deadline| deadline.since(now)).chain(shared).chain(groups).min();
            descriptors.extend(offload.rings.iter().map(ProcessRing::wait_fd));
            return Plan { descriptors, timeout };
        }
        let tick = match held {
            // A frame came just now.
            Some(Watch::Ring) if may_sleep => held::AGAIN,
            Some(_) => Duration::from_millis(1),
            None => self.next_tick.since(now).max(Duration::from_millis(1)),
        };
        // Threads that sleep on the ring are woken by the same descriptor, for each packet: then this thread is not to wake with them. (A
        // sender that finds no room meanwhile waits for the next tick.)
        let sleeps = offload.mux.sleeps + offload.rings.iter().map(|own| own.watch.lone_sleeps).sum::<u64>();
        let before = core::mem::replace(&mut self.sleeps, sleeps);
        self.pauses = sleeps == before && !self.interval.is_zero() && offload.is_unwatched();
        self.left_nothing &= !self.interval.is_zero();
        if self.pauses {
            offload.leave_beside_to_its_sleeper();
            offload.rings.iter_mut().for_each(|own| own.ring.pause());
            descriptors.extend(offload.rings.iter().map(ProcessRing::wait_fd));
        }
        self.descriptors.clone_from(&descriptors);
        Plan { descriptors, timeout: groups.into_iter().chain([tick]).min() }
    }
}

/// Some peer is gone: what sockets remember of its addresses is forgotten.
fn forget_dead_routes(process: &Process, offload: &mut Offload) {
    for (_, socket) in offload.sockets.iter_mut() {
        socket.routes.forget_dead(process.rendezvous_at(socket.ring));
    }
    for (number, own) in (0..).zip(offload.rings.iter_mut()) {
        own.forget_dead_ways(number, process.rendezvous_at(number));
    }
}

/// Polls the rings until they have nothing more, or a fair share was served: VMA_PROGRESS_ENGINE_WCE_MAX's frames.
fn serve(offload: &mut Offload, rings: RingSet, now: Instant, frames_max: usize) -> bool {
    share(frames_max, || {
        let frames = offload.rings.poll(rings, now);
        if frames != 0 {
            offload.dispatch();
        }
        frames
    }) != 0
}

/// Calls `poll`, which says how much it did, until it did nothing, or `most` is reached. Returns how much was done.
fn share(most: usize, mut poll: impl FnMut() -> usize) -> usize {
    let mut done = 0;
    while done < most {
        match poll() {
            0 => break,
            more => done += more,
        }
    }
    done
}

/// VMA_INTERNAL_THREAD_AFFINITY and VMA_INTERNAL_THREAD_CPUSET, for the calling thread. What the kernel refuses is said.
fn settle() {
    let settings = params::settings();
    if let Some(cpus) = settings.cpus(Id::InternalThreadAffinity)
        && let Err(error) = pin(&cpus)
    {
        tracing::warn!("VMA_INTERNAL_THREAD_AFFINITY={}: {error}", settings.text(Id::InternalThreadAffinity));
    }
    if let Some(group) = settings.path(Id::InternalThreadCpuset)
        && let Err(error) = join(Path::new(&group))
    {
        tracing::warn!("VMA_INTERNAL_THREAD_CPUSET={group}: {error}");
    }
}

/// sched_setaffinity(2), with as large a mask as it takes. CPUs that are not there do not count, as long as one is.
fn pin(cpus: &[usize]) -> io::Result<()> {
    const BITS: usize = u64::BITS as usize;
    let mut mask = vec![0_u64; cpus.iter().max().map_or(1, |cpu| cpu / BITS + 1)];
    cpus.iter().for_each(|cpu| mask[cpu / BITS] |= 1 << (cpu % BITS));
    // SAFETY: the mask is as long as it says; 0 is the calling thread.
    let result = unsafe { libc::syscall(libc::SYS_sched_setaffinity, 0, size_of_val(&mask[..]), mask.as_ptr()) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Joins a control group with the calling thread: of either version (cgroups(7)).
fn join(group: &Path) -> io::Result<()> {
    let threads = group.join("cgroup.threads");
    let file = if threads.exists() { threads } else { group.join("tasks") };
    // SAFETY: gettid has no preconditions.
    let thread = unsafe { libc::gettid() };
    File::options().write(true).open(file)?.write_all(thread.to_string().as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_ends_with_its_frames_or_with_the_work() {
        let mut left = 100_usize;
        let mut sixteen = || {
            let taken = left.min(16);
            left -= taken;
            taken
        };
        assert_eq!(share(32, &mut sixteen), 32);
        assert_eq!(share(33, &mut sixteen), 48);
        assert_eq!(share(1000, &mut sixteen), 20);
        assert_eq!(share(1000, &mut sixteen), 0);
    }
}
