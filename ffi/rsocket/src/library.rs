//! What the process has of rsockets, behind one lock: the message plane, the sockets above it, the descriptors.
//!
//! Somebody always looks after the plane. A call polls it. Threads that sleep in calls have armed it, and so has the progress thread once nobody has called for
//! a while; whoever disarms it, to poll, sees to it on leaving that it is armed again, or that the progress thread comes.

use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicUsize, Ordering};
use core::time::Duration;
use std::collections::BTreeMap;
use std::os::fd::{AsRawFd as _, OwnedFd, RawFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use ringway_devices::messages::{self, Fabric};
use ringway_host::sleep::yield_core;
use ringway_host::{Clock, Progress};
use ringway_preload::Errno;
use ringway_stack::device::Wake;
use ringway_stack::rsocket::{Host, SocketId, Sockets};
use ringway_stack::time::earlier;
use ringway_stack::{Error, Instant};
use rustix::event::epoll;

use crate::calls::repoll::Interest;
use crate::memory::Plane;
use crate::progress::Watch;
use crate::table::Entry;
use crate::wait::Sleepers;
use crate::{capture, config, exit, fork, report};

/// Of calls that find nothing and do not wait, so many look at what else there is once: programs make them one after the other, for as long as they find nothing.
const IN_VAIN: u32 = 64;

/// Who sends has no need to poll within so long of the last time.
const RECENT: Duration = Duration::from_micros(20);

/// How often arming is tried where frames come all the while.
const ARMS_MAX: usize = 16;

/// See the module's documentation.
pub(crate) struct Library {
    pub(crate) plane: Plane,
    pub(crate) fabric: Fabric,
    pub(crate) sockets: Sockets,
    /// Changed by [`Library::insert`] and [`Library::remove`].
    pub(crate) table: BTreeMap<RawFd, Entry>,
    /// The stream in the table that was called last.
    last_stream: Option<(RawFd, SocketId)>,
    /// repoll's instances.
    pub(crate) repolls: BTreeMap<RawFd, Interest>,
    /// Datagram sockets' UDP sockets, all in one: whoever sleeps on one of them itself keeps it alive, and its port, when it is closed.
    udp: OwnedFd,
    pub(crate) sleepers: Sleepers,
    pub(crate) watch: Watch,
    /// Until when the progress thread sleeps, unless it is called.
    pub(crate) watch_until: Option<Instant>,
    /// `None` before it was started.
    progress: Option<Progress>,
    clock: Clock,
    /// Calls take the time that the kernel noted at its last tick: the device has no timers of ours, and to ask for more may be a system call.
    has_ticks: bool,
    /// Calls that found nothing and did not wait.
    in_vain: u32,
    /// The dialogue by which the plane is captured.
    pub(crate) captured_by: Option<u64>,
    /// For what the plane is armed.
    armed: Option<Wake>,
    /// When a call polled last.
    pub(crate) called_at: Instant,
    /// When anybody polled last.
    polled_at: Instant,
    next_port: u16,
}

static LIBRARY: Mutex<Option<Box<Library>>> = Mutex::new(None);

/// The log has told that there is no device.
static NO_DEVICE: AtomicBool = AtomicBool::new(false);

/// How many threads wait for the lock.
static WANTED: AtomicU32 = AtomicU32::new(0);

/// So often a thread that looks again and again asks whether those that want the lock have it.
const PATIENCE: u32 = 256;

/// The lock; nothing behind it: no rsocket was made yet.
#[inline(always)]
pub(crate) fn lock() -> MutexGuard<'static, Option<Box<Library>>> {
    // What a panic left in the middle ends connections at worst.
    try_lock().unwrap_or_else(wait_for_lock)
}

#[cold]
#[inline(never)]
fn wait_for_lock() -> MutexGuard<'static, Option<Box<Library>>> {
    WANTED.fetch_add(1, Ordering::Relaxed);
    let guard = LIBRARY.lock().unwrap_or_else(PoisonError::into_inner);
    WANTED.fetch_sub(1, Ordering::Relaxed);
    guard
}

/// The lock, if nobody has it.
#[inline(always)]
pub(crate) fn try_lock() -> Option<MutexGuard<'static, Option<Box<Library>>>> {
    match LIBRARY.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// A thread that enters again and again lets those enter that wait for it: the lock itself knows no turns.
pub(crate) fn let_others_enter() {
    let wanted = WANTED.load(Ordering::Relaxed);
    if wanted == 0 {
        return;
    }
    // (Whoever waits may need this core.)
    yield_core();
    for _ in 0..PATIENCE {
        if WANTED.load(Ordering::Relaxed) < wanted {
            return;
        }
        core::hint::spin_loop();
    }
}

/// A fork's child has none of the threads that waited, and not its parent's library.
pub(crate) fn forget_parents() {
    WANTED.store(0, Ordering::Relaxed);
    UDP_FD.store(-1, Ordering::Relaxed);
    OWNER.store(0, Ordering::Relaxed);
}

/// Whether the lock is to be had within a while: at once where the calling thread has it itself. (Who yields on a machine with much to do gives away whole turns, so it is time that counts.)
pub(crate) fn is_free() -> bool {
    let began = std::time::Instant::now();
    while OWNER.load(Ordering::Relaxed) != this_thread() {
        if LIBRARY.try_lock().is_ok() {
            return true;
        }
        if began.elapsed() > FREE_WITHIN {
            break;
        }
        std::thread::yield_now();
    }
    false
}

/// How long [`is_free`] looks.
const FREE_WITHIN: Duration = Duration::from_secs(1);

/// The thread that has the lock for a call; 0: none.
static OWNER: AtomicUsize = AtomicUsize::new(0);

/// What [`OWNER`] is while this thread has the lock.
#[inline(always)]
fn this_thread() -> usize {
    // SAFETY: the call has no preconditions. No thread's handle is zero: it leads to what glibc and musl keep of the thread.
    unsafe { libc::pthread_self() as usize }
}

/// The library, locked for a call.
///
/// Invariant: it is there.
pub(crate) struct Entered(MutexGuard<'static, Option<Box<Library>>>);

/// Enters for a call on a descriptor.
///
/// # Errors
/// EBADF: there is no rsocket at all.
#[inline(always)]
pub(crate) fn enter() -> Result<Entered, Errno> {
    let guard = lock();
    if guard.is_some() { Ok(Entered::new(guard)) } else { Err(Errno(libc::EBADF)) }
}

/// Enters, if there is any rsocket.
pub(crate) fn enter_or_none() -> Option<Entered> {
    enter().ok()
}

/// Enters to make an rsocket: the first one makes all the rest.
///
/// # Errors
/// ENODEV: there is no device; it was logged.
pub(crate) fn enter_first() -> Result<Entered, Errno> {
    let mut guard = lock();
    if guard.is_none() {
        *guard = Some(Library::new()?);
    }
    Ok(Entered::new(guard))
}

impl Entered {
    #[inline(always)]
    fn new(guard: MutexGuard<'static, Option<Box<Library>>>) -> Self {
        OWNER.store(this_thread(), Ordering::Relaxed);
        Self(guard)
    }
}

impl Deref for Entered {
    type Target = Library;
    #[inline(always)]
    fn deref(&self) -> &Library {
        self.0.as_deref().expect("the invariant")
    }
}

impl DerefMut for Entered {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut Library {
        self.0.as_deref_mut().expect("the invariant")
    }
}

impl Drop for Entered {
    #[inline(always)]
    fn drop(&mut self) {
        if !self.may_just_leave() {
            self.leave();
        }
        OWNER.store(0, Ordering::Relaxed);
    }
}

impl Library {
    fn new() -> Result<Box<Self>, Errno> {
        fork::install();
        exit::install();
        let seed = random();
        let device = config::device();
        let (mut plane, fabric) = messages::attach(seed, &device, &config::broker()).map_err(|error| {
            // (Who asks again has been told.)
            match NO_DEVICE.swap(true, Ordering::Relaxed) {
                false => tracing::warn!("no device for rsockets: {error}"),
                true => tracing::debug!("no device for rsockets: {error}"),
            }
            Errno(libc::ENODEV)
        })?;
        if config::HAS_TCP.load(Ordering::Relaxed) {
            plane.give_up_soon();
        }
        let settings = config::settings(plane.recv_buffer());
        let host = Host { transfer_first: plane.transfer_first(), keepalive: plane.keepalive(), ..Host::default() };
        let sockets = Sockets::new(&mut plane, settings, host);
        let clock = Clock::new();
        let has_ticks = plane.is_patient() && !clock.is_counter();
        let udp = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(|error| Errno(error.raw_os_error()))?;
        UDP_FD.store(udp.as_raw_fd(), Ordering::Relaxed);
        let mut library = Box::new(Self {
            plane,
            sockets,
            table: BTreeMap::new(),
            last_stream: None,
            repolls: BTreeMap::new(),
            udp,
            sleepers: Sleepers::default(),
            watch: Watch::Looks,
            watch_until: None,
            progress: None,
            clock,
            has_ticks,
            in_vain: 0,
            captured_by: None,
            armed: None,
            called_at: clock.now(),
            polled_at: clock.now(),
            next_port: EPHEMERAL.start + (seed % u64::from(EPHEMERAL.end - EPHEMERAL.start)) as u16,
            fabric: fabric.clone(),
        });
        library.fabric.answer_questions(|_| report::answer());
        library.fabric.have_dialogues(Arc::new(capture::Answers));
        library.progress = Some(crate::progress::start(fabric).map_err(|error| {
            tracing::warn!("no thread for rsockets: {error}");
            Errno(libc::ENODEV)
        })?);
        Ok(library)
    }

    /// An rsocket's descriptor.
    ///
    /// # Errors
    /// EBADF.
    pub(crate) fn entry(&mut self, fd: RawFd) -> Result<&mut Entry, Errno> {
        self.table.get_mut(&fd).ok_or(Errno(libc::EBADF))
    }

    /// A stream.
    ///
    /// # Errors
    /// EBADF; EOPNOTSUPP: it is a datagram socket.
    #[inline(always)]
    pub(crate) fn stream(&mut self, fd: RawFd) -> Result<SocketId, Errno> {
        match self.last_stream {
            Some((last, id)) if last == fd => Ok(id),
            _ => self.find_stream(fd),
        }
    }

    #[inline(never)]
    fn find_stream(&mut self, fd: RawFd) -> Result<SocketId, Errno> {
        let id = self.entry(fd)?.stream()?;
        self.last_stream = Some((fd, id));
        Ok(id)
    }

    /// Puts a descriptor into the table. (What had its number was closed without us, if there was anything.)
    pub(crate) fn insert(&mut self, fd: RawFd, entry: Entry) {
        self.last_stream = None;
        self.table.insert(fd, entry);
    }

    /// Takes a descriptor out of the table.
    pub(crate) fn remove(&mut self, fd: RawFd) -> Option<Entry> {
        self.last_stream = None;
        self.table.remove(&fd)
    }

    /// Takes what came by UDP for datagram sockets. Whether anything did.
    pub(crate) fn take_udp(&mut self) -> bool {
        let now = self.now();
        let Self { table, plane, fabric, .. } = self;
        let takes = |entry: &mut Entry| entry.open_datagram().is_ok_and(|(open, udp)| open.take_udp(now, udp, plane, fabric));
        // (Each of them.)
        table.values_mut().map(takes).fold(false, |any, one| any | one)
    }

    /// From now on, [`Library::udp`] is readable when that UDP socket is, until it is closed.
    ///
    /// # Errors
    /// ENOMEM, ENOSPC: the system's limits.
    pub(crate) fn watch_udp(&self, fd: RawFd) -> Result<(), Errno> {
        let udp = self.table.get(&fd).and_then(|entry| entry.descriptor.as_ref()).ok_or(Errno(libc::EBADF))?;
        let added = epoll::add(&self.udp, udp, epoll::EventData::new_u64(0), epoll::EventFlags::IN);
        added.map_err(|error| Errno(error.raw_os_error()))
    }

    /// The descriptor that is readable when a datagram socket's UDP socket is.
    pub(crate) fn udp(&self) -> RawFd {
        self.udp.as_raw_fd()
    }

    /// The sockets, and the device that their calls are given.
    pub(crate) const fn parts(&mut self) -> (&mut Sockets, &mut Plane) {
        (&mut self.sockets, &mut self.plane)
    }

    /// Polls for a call, and says when that was.
    pub(crate) fn poll(&mut self) -> Instant {
        let now = self.call_time();
        self.poll_at(now);
        self.called_at = now;
        now
    }

    /// The same for a call that may do without, if somebody has polled just now. Whether it did.
    pub(crate) fn poll_unless_recent(&mut self) -> (Instant, bool) {
        let now = self.call_time();
        let is_due = now.since(self.polled_at) >= RECENT;
        if is_due {
            self.poll_at(now);
            self.called_at = now;
        }
        (now, is_due)
    }

    /// Polls for a call that has found nothing, in one of many. (Where they are few and far between, the progress thread looks.)
    #[inline(always)]
    pub(crate) fn poll_now_and_then(&mut self) {
        self.in_vain = self.in_vain.wrapping_add(1);
        if self.in_vain.is_multiple_of(IN_VAIN) {
            self.poll();
        }
    }

    /// The same for a wait that looks, and has to know the time.
    pub(crate) fn poll_again(&mut self) -> Instant {
        let now = self.poll_unasked();
        self.called_at = now;
        now
    }

    /// Polls, by nobody's call.
    pub(crate) fn poll_unasked(&mut self) -> Instant {
        let now = self.clock.now();
        self.poll_at(now);
        now
    }

    /// Polls. Threads that sleep may have what they wait for by that, and are woken if anything happened.
    fn poll_at(&mut self, now: Instant) {
        if self.armed.take().is_some() {
            self.plane.disarm();
        }
        // (Each call looks at its own socket's completions.)
        let is_timer_due = self.sockets.deadline().is_some_and(|at| at <= now);
        if self.sockets.closing() == 0 && !is_timer_due && !self.plane.is_due(now) {
            return;
        }
        self.polled_at = now;
        let mut done = self.plane.take(now);
        self.sockets.poll(now, &mut self.plane);
        if is_timer_due {
            done += 1;
            self.sockets.on_timer(now, &mut self.plane);
        }
        // (Acknowledgments of what came just now may wait for more.)
        self.plane.transmit_due(now);
        if done > 0 {
            self.sleepers.wake();
        }
    }

    /// What time a call has.
    fn call_time(&self) -> Instant {
        if self.has_ticks { ticks() } else { self.clock.now() }
    }

    /// The clock, to look at without the lock.
    pub(crate) const fn clock(&self) -> Clock {
        self.clock
    }

    /// The time.
    pub(crate) fn now(&self) -> Instant {
        self.clock.now()
    }

    /// When somebody is to poll at the latest.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        earlier(self.plane.deadline(), self.sockets.deadline())
    }

    /// Makes what comes next wake whoever sleeps. Whether it does: if not, there is something to poll for.
    pub(crate) fn arm(&mut self) -> bool {
        // Acknowledgments are for threads that wait for room, or for the end of what they sent. The progress thread has no use for them.
        let wake = if self.sleepers.is_empty() { Wake::Solicited } else { Wake::Any };
        for _ in 0..ARMS_MAX {
            if self.armed.is_some_and(|armed| armed == wake || armed == Wake::Any) {
                return true;
            }
            if self.armed.take().is_some() {
                self.plane.disarm();
            }
            if self.plane.may_transmit() {
                let now = self.clock.now();
                self.plane.transmit(now);
            }
            if self.plane.arm(wake) {
                self.armed = Some(wake);
            } else {
                self.poll_unasked();
            }
        }
        self.armed.is_some()
    }

    /// Of a wait that has found nothing: looks on for a moment, so many times, without letting go of the lock, unless others want it. Whether something came.
    pub(crate) fn look_on(&self, looks: u32) -> bool {
        for _ in 0..looks {
            // (Without pauses in between: on recent processors a pause costs as much as a line's way from core to core.)
            match self.plane.is_ready() {
                Some(false) if WANTED.load(Ordering::Relaxed) == 0 => {}
                is_ready => return is_ready == Some(true),
            }
        }
        false
    }

    /// Whether [`Library::leave`] has nothing to do: a device sends by itself, nobody sleeps, and the progress thread looks as often as it is time to.
    #[inline(always)]
    fn may_just_leave(&self) -> bool {
        self.plane.is_patient() && self.sleepers.is_empty() && self.watch == Watch::Looks
    }

    /// At the end of a call: sends what it asked for, and hands over. Acknowledgments alone are the next calls' to send; if there are none soon, the progress thread's, or whoever's
    /// who arms.
    #[inline(never)]
    fn leave(&mut self) {
        if self.plane.is_urgent() {
            // (What is sent may fill a window, which an arming of before would not wake for.)
            if self.armed.is_some_and(|armed| armed != Wake::Any) {
                self.armed = None;
                self.plane.disarm();
            }
            let now = self.clock.now();
            self.plane.transmit_due(now);
        }
        // (A program that looks at mapped memory alone makes no call for the progress thread to wait for.)
        let is_waited_for = !self.sleepers.is_empty() || self.watch == Watch::Sleeps && self.has_mappings();
        if is_waited_for && !self.arm() {
            self.sleepers.wake();
        }
        if !self.is_watched() {
            self.watch = Watch::Looks;
            if let Some(progress) = &self.progress {
                progress.wake();
            }
        }
    }

    /// Whether somebody comes when something does, or when it is time.
    fn is_watched(&self) -> bool {
        let is_armed = self.armed.is_some() && (self.watch == Watch::Sleeps || !self.sleepers.is_empty());
        let is_timed = |watch_until: Option<Instant>| self.deadline().is_none_or(|at| watch_until.is_some_and(|until| until <= at));
        self.watch == Watch::Looks || is_armed && is_timed(self.watch_until)
    }

    /// Whether peers may write to buffers of the program's.
    pub(crate) fn has_mappings(&self) -> bool {
        self.table.values().any(|entry| !entry.mapped.is_empty())
    }

    /// A port for who asks for any.
    pub(crate) const fn ephemeral_port(&mut self) -> u16 {
        let port = self.next_port;
        self.next_port = if port + 1 < EPHEMERAL.end { port + 1 } else { EPHEMERAL.start };
        port
    }
}

/// [`Library::udp`], for who has not locked the library.
static UDP_FD: AtomicI32 = AtomicI32::new(-1);

/// See there.
pub(crate) fn udp_fd() -> RawFd {
    UDP_FD.load(Ordering::Relaxed)
}

/// Ports for who asks for any: Linux's ip_local_port_range.
pub(crate) const EPHEMERAL: core::ops::Range<u16> = 32_768..61_000;

/// The time at the kernel's last tick, some milliseconds ago at most.
fn ticks() -> Instant {
    let mut ts = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: it is valid for writing. The clock is there since Linux 2.6.32, so that the call cannot fail.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_COARSE, &raw mut ts) };
    Instant::from_nanos(ts.tv_sec.cast_unsigned() * 1_000_000_000 + ts.tv_nsec.cast_unsigned())
}

fn random() -> u64 {
    let mut bytes = [0; 8];
    // SAFETY: as many bytes as are said.
    let got = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    if got == 8 {
        return u64::from_ne_bytes(bytes);
    }
    // Before Linux 3.17.
    Clock::system().now().as_nanos() ^ u64::from(std::process::id()) << 32
}

/// What a call of librdmacm's fails with, where that is not what the stack's sockets say.
pub(crate) const fn errno(error: Error) -> Errno {
    match error {
        // As ibverbs has it.
        Error::NoBuffers => Errno(libc::ENOMEM),
        error => Errno(error.errno()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_behind_the_clock_and_not_by_much() {
        let clock = Clock::system();
        let (before, tick) = (clock.now(), ticks());
        let after = clock.now();
        assert!(tick <= after && before.since(tick) < core::time::Duration::from_millis(100), "{before:?} {tick:?} {after:?}");
    }

    #[test]
    fn whoever_looks_again_and_again_knows_who_wants_the_lock() {
        let guard = lock();
        let other = std::thread::spawn(|| drop(lock()));
        while WANTED.load(Ordering::Relaxed) == 0 {
            yield_core();
        }
        drop(guard);
        while WANTED.load(Ordering::Relaxed) > 0 {
            let_others_enter();
        }
        other.join().expect("it had the lock");
    }
}
