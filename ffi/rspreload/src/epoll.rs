//! epoll instances, which are the kernel's, and what they wait for of rsockets, which is kept here: level- and edge-triggered, one-shot, nested.

use core::ffi::c_int;
use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use libc::{epoll_event, pollfd, sigset_t};
use ringway_preload::errno::is_nowhere;
use ringway_preload::{Errno, next};
use rsocket::api::{self, Look, Waiting};

use crate::handover;
use crate::socket::{Socket, State, listen_too, look_at_connecting};
use crate::table::{self, Table};

const IN: u32 = (libc::EPOLLIN | libc::EPOLLRDNORM | libc::EPOLLRDHUP).cast_unsigned();
const OUT: u32 = (libc::EPOLLOUT | libc::EPOLLWRNORM).cast_unsigned();
/// What comes unasked.
const ALWAYS: u32 = (libc::EPOLLERR | libc::EPOLLHUP).cast_unsigned();
const EDGES: u32 = libc::EPOLLET.cast_unsigned();
const ONE_SHOT: u32 = libc::EPOLLONESHOT.cast_unsigned();
/// How deep instances may be in others: the kernel allows less.
const NESTS_MAX: usize = 5;
/// What says that the instance has come to have rsockets, to threads that wait in the kernel.
const CALL: u64 = 0x7273_6f63_6b65_7473;

/// What an instance waits for of ours.
#[derive(Default)]
pub(crate) struct Interest {
    sockets: BTreeMap<c_int, Registration>,
    /// Threads that wait in the kernel alone.
    in_kernel: usize,
    /// Is readable while they are to be called.
    call: Option<c_int>,
    /// Who is first to tell of what is ready: each in turn.
    kernel_first: bool,
    /// Where the next look begins.
    turn: c_int,
}

/// What an instance waits for.
#[derive(Clone)]
enum Target {
    Socket(Arc<Socket>),
    /// Another instance, which may have rsockets; the kernel has it, too.
    Epoll,
}

struct Registration {
    target: Target,
    /// As the program has asked.
    events: u32,
    data: u64,
    /// The kernel's instance has it, too.
    is_in_kernel: bool,
    /// EPOLLONESHOT, and it was told.
    is_spent: bool,
    /// What was told last, as far as it still holds, and [`Socket::received`] and [`Socket::found_full`] then.
    told: u32,
    received: u32,
    found_full: u32,
}

impl Registration {
    fn socket(&self) -> Option<&Arc<Socket>> {
        match &self.target {
            Target::Socket(socket) => Some(socket),
            Target::Epoll => None,
        }
    }

    /// How often something was received, and how often there was no room.
    fn counts(&self) -> (u32, u32) {
        self.socket().map_or((0, 0), |socket| (socket.received.load(Ordering::Relaxed), socket.found_full.load(Ordering::Relaxed)))
    }

    /// What there is to tell of what it is ready for.
    fn fresh(&mut self, ready: u32) -> u32 {
        let ready = ready & (self.events | ALWAYS);
        self.told &= ready;
        if self.is_spent {
            return 0;
        }
        if self.events & EDGES == 0 {
            return ready;
        }
        let (received, found_full) = self.counts();
        let mut fresh = ready & !self.told;
        if received != self.received {
            fresh |= ready & IN;
        }
        if found_full != self.found_full {
            fresh |= ready & OUT;
        }
        if fresh == 0 { 0 } else { ready }
    }

    /// It is told.
    fn tell(&mut self, ready: u32) {
        self.told = ready;
        (self.received, self.found_full) = self.counts();
        self.is_spent = self.events & ONE_SHOT != 0;
    }
}

impl Interest {
    /// A descriptor was closed.
    pub(crate) fn forget(&mut self, fd: c_int) {
        self.sockets.remove(&fd);
    }
}

impl Table {
    /// Whether an instance waits for rsockets, or for instances that do.
    fn has_rsockets(&self, instance: c_int, depth: usize) -> bool {
        self.epolls.get(&instance).is_some_and(|interest| {
            interest.sockets.iter().any(|(fd, one)| match one.target {
                Target::Socket(_) => true,
                Target::Epoll => depth < NESTS_MAX && self.has_rsockets(*fd, depth + 1),
            })
        })
    }

    /// What one of an instance's is ready for, as far as there is anything to tell.
    fn fresh_of(&mut self, instance: c_int, fd: c_int, look: &mut Look<'_>, depth: usize) -> u32 {
        let target = self.epolls.get(&instance).and_then(|interest| interest.sockets.get(&fd)).map(|one| one.target.clone());
        let ready = match target {
            Some(Target::Socket(socket)) => socket.key().map_or(0, |key| u32::from(look.events(key).cast_unsigned())),
            Some(Target::Epoll) if depth < NESTS_MAX && self.is_ready(fd, look, depth + 1) => libc::EPOLLIN.cast_unsigned(),
            _ => 0,
        };
        let one = self.epolls.get_mut(&instance).and_then(|interest| interest.sockets.get_mut(&fd));
        one.map_or(0, |one| one.fresh(ready))
    }

    /// Whether an instance has anything of ours to tell, or a listener that is to listen again.
    fn is_ready(&mut self, instance: c_int, look: &mut Look<'_>, depth: usize) -> bool {
        let fds = self.fds_of(instance);
        fds.into_iter().any(|fd| {
            let is_asked = |one: &Registration| one.socket().is_some_and(|socket| is_to_listen(socket));
            self.fresh_of(instance, fd, look, depth) != 0
                || self.epolls.get(&instance).and_then(|interest| interest.sockets.get(&fd)).is_some_and(is_asked)
        })
    }

    /// What an instance waits for, from where its next look begins.
    fn fds_of(&self, instance: c_int) -> Vec<c_int> {
        let Some(interest) = self.epolls.get(&instance) else { return Vec::new() };
        interest.sockets.range(interest.turn..).chain(interest.sockets.range(..interest.turn)).map(|(fd, _)| *fd).collect()
    }

    /// Writes what there is to tell to the front of `events`; how many.
    fn collect(&mut self, instance: c_int, look: &mut Look<'_>, events: &mut [epoll_event]) -> usize {
        let mut count = 0;
        for fd in self.fds_of(instance) {
            let Some(place) = events.get_mut(count) else { break };
            let ready = self.fresh_of(instance, fd, look, 0);
            let Some(interest) = self.epolls.get_mut(&instance) else { break };
            if let Some(one) = interest.sockets.get_mut(&fd).filter(|_| ready != 0) {
                one.tell(ready);
                *place = epoll_event { events: ready, u64: one.data };
                interest.turn = fd.saturating_add(1);
                count += 1;
            }
        }
        count
    }

    /// Calls the threads that wait in the kernel alone for an instance, or for one that waits for it.
    fn call(&mut self, instance: c_int, depth: usize) {
        if let Some(interest) = self.epolls.get_mut(&instance) {
            call(instance, interest);
        }
        let above: Vec<c_int> =
            self.epolls.iter().filter(|(_, interest)| interest.sockets.contains_key(&instance)).map(|(fd, _)| *fd).collect();
        if depth < NESTS_MAX {
            above.into_iter().for_each(|above| self.call(above, depth + 1));
        }
    }
}

fn is_to_listen(socket: &Socket) -> bool {
    socket.state() == State::Listening(None) && socket.retries.load(Ordering::Relaxed)
}

fn kernel_control(instance: c_int, operation: c_int, fd: c_int, events: u32, data: u64) -> Result<(), Errno> {
    let mut event = epoll_event { events, u64: data };
    // SAFETY: an event that lives.
    if unsafe { next::epoll_ctl(instance, operation, fd, &raw mut event) } == 0 { Ok(()) } else { Err(Errno::last()) }
}

/// Whether an instance waits for rsockets.
pub(crate) fn has_rsockets(instance: c_int) -> bool {
    table::lock().has_rsockets(instance, 0)
}

/// Whether an instance, which another one or a poll waits for, has something of ours to tell.
pub(crate) fn is_ready(instance: c_int, look: &mut Look<'_>) -> bool {
    table::lock().is_ready(instance, look, 0)
}

/// epoll_ctl(2) for a socket of ours, or an instance; `None`: all of it is the kernel's.
///
/// # Errors
/// As epoll_ctl(2)'s.
pub(crate) fn control(instance: c_int, operation: c_int, fd: c_int, event: Option<epoll_event>) -> Option<Result<(), Errno>> {
    if !table::is_epoll(instance) {
        return None;
    }
    let target = if table::is_epoll(fd) {
        Target::Epoll
    } else {
        let socket = table::socket(fd)?;
        if operation == libc::EPOLL_CTL_ADD && matches!(socket.state(), State::ForkActive | State::ForkPassive) {
            let _ = handover::settle(fd, &socket, true);
        }
        if matches!(socket.state(), State::Kernel | State::Lost) {
            return None;
        }
        Target::Socket(socket)
    };
    let changed = change(instance, operation, fd, target, event);
    api::wake();
    Some(changed)
}

fn change(instance: c_int, operation: c_int, fd: c_int, target: Target, event: Option<epoll_event>) -> Result<(), Errno> {
    let mut table = table::lock();
    let interest = table.epolls.get_mut(&instance).ok_or(Errno(libc::EBADF))?;
    let there = interest.sockets.get(&fd).map(|one| one.is_in_kernel);
    let event = match operation {
        libc::EPOLL_CTL_DEL => epoll_event { events: 0, u64: 0 },
        _ => event.ok_or(Errno(libc::EFAULT))?,
    };
    let (events, data) = (event.events, event.u64);
    match (operation, there) {
        (libc::EPOLL_CTL_ADD, Some(_)) => return Err(Errno(libc::EEXIST)),
        (libc::EPOLL_CTL_MOD | libc::EPOLL_CTL_DEL, None) => return Err(Errno(libc::ENOENT)),
        (libc::EPOLL_CTL_ADD, None) => {
            let is_in_kernel = if let Target::Socket(socket) = &target { socket.is_kernels_too() } else { true };
            if is_in_kernel {
                kernel_control(instance, operation, fd, events, data)?;
            }
            let one = Registration { target, events, data, is_in_kernel, is_spent: false, told: 0, received: 0, found_full: 0 };
            interest.sockets.insert(fd, one);
            if table.has_rsockets(instance, 0) {
                table.call(instance, 0);
            }
        }
        (libc::EPOLL_CTL_MOD, Some(is_in_kernel)) => {
            if is_in_kernel {
                kernel_control(instance, operation, fd, events, data)?;
            }
            if let Some(one) = interest.sockets.get_mut(&fd) {
                // (What is ready now is told anew.)
                (one.events, one.data, one.is_spent, one.told) = (events, data, false, 0);
            }
        }
        (libc::EPOLL_CTL_DEL, Some(is_in_kernel)) => {
            if is_in_kernel {
                let _ = kernel_control(instance, operation, fd, 0, 0);
            }
            interest.sockets.remove(&fd);
        }
        _ => return Err(Errno(libc::EINVAL)),
    }
    Ok(())
}

/// Calls the threads that wait in the kernel alone.
fn call(instance: c_int, interest: &mut Interest) {
    if interest.in_kernel == 0 || interest.call.is_some() {
        return;
    }
    // SAFETY: plain integers.
    let fd = unsafe { next::eventfd(1, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
    if fd >= 0 && kernel_control(instance, libc::EPOLL_CTL_ADD, fd, libc::EPOLLIN.cast_unsigned(), CALL).is_ok() {
        interest.call = Some(fd);
    }
}

/// All have come.
fn end_call(interest: &mut Interest) {
    if interest.in_kernel == 0
        && let Some(fd) = interest.call.take()
    {
        // (With its last descriptor it leaves the instance.)
        // SAFETY: ours, from `call`.
        unsafe { next::close(fd) };
    }
}

/// A socket is another's to carry now: its rsocket's, and not the kernel's any more.
pub(crate) fn moved(socket: &Arc<Socket>) {
    let mut table = table::lock();
    for (instance, interest) in &mut table.epolls {
        for (fd, one) in
            interest.sockets.iter_mut().filter(|(_, one)| one.is_in_kernel && one.socket().is_some_and(|other| Arc::ptr_eq(other, socket)))
        {
            one.is_in_kernel = false;
            let _ = kernel_control(*instance, libc::EPOLL_CTL_DEL, *fd, 0, 0);
        }
    }
    drop(table);
    api::wake();
}

/// A descriptor is the kernel's for good: its instances have it there.
pub(crate) fn hand_to_kernel(table: &mut Table, fd: c_int) {
    for (instance, interest) in &mut table.epolls {
        if let Some(one) = interest.sockets.remove(&fd)
            && !one.is_in_kernel
        {
            let events = if one.is_spent { ONE_SHOT } else { one.events };
            let _ = kernel_control(*instance, libc::EPOLL_CTL_ADD, fd, events, one.data);
        }
    }
}

/// epoll_wait(2) and its kin; `kernel` is the program's very call.
///
/// # Errors
/// As epoll_wait(2)'s.
///
/// # Safety
/// As epoll_wait(2): `events` has room for `count`.
pub(crate) unsafe fn wait(
    instance: c_int,
    events: *mut epoll_event,
    count: c_int,
    timeout: Option<Duration>,
    mask: Option<&sigset_t>,
    kernel: impl Fn() -> c_int,
) -> Result<usize, Errno> {
    let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
    loop {
        if !begin_in_kernel(instance) {
            let count = usize::try_from(count).ok().filter(|&count| count > 0).ok_or(Errno(libc::EINVAL))?;
            if is_nowhere(events) {
                return Err(Errno(libc::EFAULT));
            }
            // SAFETY: the caller's promise.
            return wait_for_both(instance, unsafe { core::slice::from_raw_parts_mut(events, count) }, deadline, mask);
        }
        let result = usize::try_from(kernel()).map_err(|_| Errno::last());
        end_in_kernel(instance);
        let told = result?;
        // SAFETY: the kernel has written so many just now.
        let (left, was_called) = without_call(unsafe { core::slice::from_raw_parts_mut(events, told) });
        if left > 0 || !was_called {
            return Ok(left);
        }
    }
}

/// Whether the kernel alone is to be waited for.
fn begin_in_kernel(instance: c_int) -> bool {
    let mut table = table::lock();
    let is_alone = !table.has_rsockets(instance, 0);
    if let Some(interest) = table.epolls.get_mut(&instance) {
        interest.in_kernel += usize::from(is_alone);
    }
    is_alone
}

fn end_in_kernel(instance: c_int) {
    let mut table = table::lock();
    if let Some(interest) = table.epolls.get_mut(&instance) {
        interest.in_kernel = interest.in_kernel.saturating_sub(1);
        end_call(interest);
    }
}

/// Takes out what is not for the program: how many are left, and whether there was such.
fn without_call(events: &mut [epoll_event]) -> (usize, bool) {
    let mut left = 0;
    for at in 0..events.len() {
        if events[at].u64 != CALL {
            events[left] = events[at];
            left += 1;
        }
    }
    (left, left < events.len())
}

fn wait_for_both(instance: c_int, events: &mut [epoll_event], deadline: Option<Instant>, mask: Option<&sigset_t>) -> Result<usize, Errno> {
    loop {
        look_after(instance);
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let mut kernels = [pollfd { fd: instance, events: libc::POLLIN, revents: 0 }];
        api::wait(&mut kernels, Waiting { timeout: left, mask, restarts: false }, |look| is_ready(instance, look))?;
        if kernels[0].revents & libc::POLLNVAL != 0 {
            return Err(Errno(libc::EBADF));
        }
        let has_moved = look_after(instance);
        let count = collect(instance, kernels[0].revents != 0, events)?;
        let is_over = deadline.is_some_and(|deadline| deadline <= Instant::now());
        if count > 0 || is_over && !has_moved {
            return Ok(count);
        }
    }
}

/// Sockets that connect, and listeners that are to listen again. Whether any is the kernel's now.
pub(crate) fn look_after(instance: c_int) -> bool {
    let concerned: Vec<(c_int, Arc<Socket>)> = {
        let table = table::lock();
        let concerns = |socket: &Socket| matches!(socket.state(), State::Connecting(_)) || is_to_listen(socket);
        // (Those of the instances below, too.)
        let below = |one: &Registration| matches!(one.target, Target::Epoll);
        let Some(interest) = table.epolls.get(&instance) else { return false };
        let nests = interest.sockets.values().any(below);
        let all = table.epolls.iter().filter(|(fd, _)| nests || **fd == instance).flat_map(|(_, interest)| &interest.sockets);
        all.filter_map(|(fd, one)| one.socket().filter(|socket| concerns(socket)).map(|socket| (*fd, socket.clone()))).collect()
    };
    let mut has_moved = false;
    for (fd, socket) in concerned {
        listen_too(fd, &socket);
        has_moved |= look_at_connecting(fd, &socket);
    }
    has_moved
}

/// Writes what is ready to the front of `events`; how many.
fn collect(instance: c_int, is_kernel_ready: bool, events: &mut [epoll_event]) -> Result<usize, Errno> {
    let kernel_first = {
        let mut table = table::lock();
        let Some(interest) = table.epolls.get_mut(&instance) else { return Err(Errno(libc::EBADF)) };
        interest.kernel_first = !interest.kernel_first;
        interest.kernel_first
    };
    let ours = |events: &mut [epoll_event]| api::look(|look| table::lock().collect(instance, look, events)).unwrap_or(0);
    let kernels = |events: &mut [epoll_event]| -> Result<usize, Errno> {
        if !is_kernel_ready || events.is_empty() {
            return Ok(0);
        }
        // SAFETY: room for as many events.
        let told = unsafe { next::epoll_wait(instance, events.as_mut_ptr(), c_int::try_from(events.len()).unwrap_or(c_int::MAX), 0) };
        let told = usize::try_from(told).map_err(|_| Errno::last())?;
        Ok(without_call(&mut events[..told]).0)
    };
    if kernel_first {
        let first = kernels(events)?;
        return Ok(first + ours(&mut events[first..]));
    }
    let first = ours(events);
    Ok(first + kernels(&mut events[first..]).unwrap_or(0))
}
