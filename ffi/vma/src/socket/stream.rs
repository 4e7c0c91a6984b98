//! Sending and receiving on a TCP connection of the ring.
//!
//! The order of attempts: what is queued already, then one poll of the ring, then (for a blocking call) the wait, which
//! spins or sleeps. So a call that finds its bytes costs a lookup, a lock, the clock and the ring's own work.

use core::ffi::c_int;
use std::io::{IoSlice, IoSliceMut};
use std::time::Duration;

use ringway_stack::ring::{FlowId, RecvFlags, SendFlags};
use ringway_stack::socket::Direction;
use ringway_stack::{Error, Instant};

use super::address::Address;
use super::plain::{self, Rest, Sent};
use super::{Family, special, vectors};
use crate::errno::{self, Errno};
use crate::extra::resume::Resume;
use crate::lock::Guard;
use crate::mux::wait::{SpinClass, Waited, Waiting, wait, wait_on};
use crate::process::{Offload, Process};
use crate::rings::ProcessRing;
use crate::slab::Key;

/// What has lain on a ring for less, in nanoseconds, a send need not know of.
const STALE: u64 = 20_000;

/// Receives as recv(2) does.
///
/// # Errors
/// As recv(2): EAGAIN, EINTR, ENOTCONN, ECONNRESET, ETIMEDOUT, EINVAL, EBADF (closed by another thread meanwhile).
#[inline(always)]
pub(crate) fn receive(
    process: &Process,
    offload: Guard<'_, Offload>,
    now: Instant,
    key: Key,
    id: FlowId,
    into: &mut [IoSliceMut<'_>],
    flags: c_int,
) -> Result<usize, Errno> {
    const PLAIN: c_int = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL | libc::MSG_CMSG_CLOEXEC | libc::MSG_PEEK;
    if flags & !PLAIN != 0 || into.first().is_none_or(|first| first.is_empty()) {
        return special::receive(process, offload, key, id, into, flags);
    }
    if offload.sockets.find(key).is_some_and(|socket| socket.receive_low_water > 1) {
        return special::receive(process, offload, key, id, into, flags);
    }
    receive_some(process, offload, now, key, id, into, flags)
}

/// Receives what there is, and waits for the first byte.
#[inline(always)]
pub(crate) fn receive_some(
    process: &Process,
    mut offload: Guard<'_, Offload>,
    now: Instant,
    key: Key,
    id: FlowId,
    into: &mut [IoSliceMut<'_>],
    flags: c_int,
) -> Result<usize, Errno> {
    let ring_flags = if flags & libc::MSG_PEEK != 0 { RecvFlags::PEEK } else { RecvFlags::empty() };
    let state = &mut *offload;
    state.note_caller(key, id, Direction::Rx);
    let hears = state.is_heard();
    match state.rings.at_mut(id.ring).receive(now, id, into, ring_flags, hears) {
        Err(Error::WouldBlock) => state.dispatch(),
        result => {
            state.dispatch();
            state.say_if_plain(key, id);
            offload.release();
            return result.map_err(Errno::from);
        }
    }
    let Some(socket) = state.sockets.find(key) else { return Err(Errno(libc::EBADF)) };
    let waits = !socket.nonblocking && flags & libc::MSG_DONTWAIT == 0;
    if !waits && !state.callbacks.are_used() {
        return Err(Errno(libc::EAGAIN));
    }
    let (resume, timeout) = (state.call_under_way(now), socket.receive_timeout);
    let deadline = if waits { timeout.map(|timeout| resume.began + timeout) } else { Some(resume.began) };
    if let Some(stop) = state.stop(resume, key, now, deadline) {
        return Err(stop);
    }
    if !waits {
        return Err(Errno(libc::EAGAIN));
    }
    wait_to_receive(process, Some((offload, now)), (key, id), into, ring_flags, (timeout, resume))
}

/// Goes on with a receive that began so, and waits with this timeout.
///
/// # Errors
/// As [`receive`].
pub(crate) fn wait_for_more(
    process: &Process,
    key: Key,
    id: FlowId,
    into: &mut [IoSliceMut<'_>],
    (timeout, begun): (Option<Duration>, Resume),
) -> Result<usize, Errno> {
    wait_to_receive(process, None, (key, id), into, RecvFlags::empty(), (timeout, begun))
}

/// `held`: the lock, by which nothing was found just now.
fn wait_to_receive<'a>(
    process: &'a Process,
    held: Option<(Guard<'a, Offload>, Instant)>,
    (key, id): (Key, FlowId),
    into: &mut [IoSliceMut<'_>],
    flags: RecvFlags,
    (timeout, resume): (Option<Duration>, Resume),
) -> Result<usize, Errno> {
    let deadline = timeout.map(|timeout| resume.began + timeout);
    // (Who only peeks leaves it to be told of.)
    let polls = flags.is_empty();
    waiting(process, (held, polls), key, (deadline, timeout.is_none()), Some(resume), |offload, now| {
        let id = offload.flow_now(key, id);
        let hears = offload.is_heard();
        let result = offload.rings.at_mut(id.ring).receive(now, id, into, flags, hears);
        offload.dispatch();
        result
    })
}

/// Waits until `attempt` no longer says that it would block.
///
/// # Errors
/// The attempt's; EAGAIN when the time is over, EINTR, EBADF when the socket was closed meanwhile.
pub(crate) fn blocking<T>(
    process: &Process,
    key: Key,
    timeout: Option<Duration>,
    attempt: impl FnMut(&mut Offload, Instant) -> Result<T, Error>,
) -> Result<T, Errno> {
    let deadline = timeout.map(|timeout| process.now() + timeout);
    waiting(process, (None, false), key, (deadline, timeout.is_none()), None, attempt)
}

/// [`blocking`], for a call in which callbacks run, and whose time runs from its beginning; `restart`: a handler with SA_RESTART does not end it.
pub(super) fn receiving<T>(
    process: &Process,
    key: Key,
    (timeout, restart): (Option<Duration>, bool),
    resume: Resume,
    attempt: impl FnMut(&mut Offload, Instant) -> Result<T, Error>,
) -> Result<T, Errno> {
    let deadline = timeout.map(|timeout| resume.began + timeout);
    waiting(process, (None, false), key, (deadline, restart), Some(resume), attempt)
}

/// `polls`: see [`Waiting::polls`].
fn waiting<'a, T>(
    process: &'a Process,
    (held, polls): (Option<(Guard<'a, Offload>, Instant)>, bool),
    key: Key,
    (deadline, restart): (Option<Instant>, bool),
    resume: Option<Resume>,
    mut attempt: impl FnMut(&mut Offload, Instant) -> Result<T, Error>,
) -> Result<T, Errno> {
    let saved = errno::current();
    let mut waiting = Waiting {
        sockets: &[key.index],
        epolls: &[],
        kernel: &mut [],
        deadline,
        sigmask: None,
        spin: SpinClass::Rx,
        restart,
        callbacks: resume.is_some_and(|resume| resume.may_stop(|| process.now(), deadline)),
        since: resume.and_then(|resume| resume.marks),
        polls,
    };
    let check = |offload: &mut Offload, now| {
        if offload.sockets.find(key).is_none() {
            return Some(Err(Errno(libc::EBADF)));
        }
        match attempt(offload, now) {
            Err(Error::WouldBlock) => None,
            result => Some(result.map_err(Errno::from)),
        }
    };
    let waited = match held {
        Some(held) => wait_on(process, held, &mut waiting, check),
        None => wait(process, &mut waiting, check),
    };
    match waited {
        Waited::Ready(result) => {
            errno::set(saved);
            result
        }
        Waited::Interrupted => Err(Errno(libc::EINTR)),
        Waited::Due => {
            errno::set(saved);
            Err(resume.map_or(Errno(libc::EAGAIN), Resume::due))
        }
        Waited::TimedOut | Waited::Kernel => Err(Errno(libc::EAGAIN)),
    }
}

/// Sends as send(2) does: a blocking call returns when everything was taken.
///
/// # Errors
/// As send(2): EAGAIN, EINTR, EPIPE (with SIGPIPE), ENOTCONN, ECONNRESET, ETIMEDOUT, EBADF.
#[inline(always)]
pub(crate) fn send(
    process: &Process,
    mut offload: Guard<'_, Offload>,
    now: Instant,
    key: Key,
    id: FlowId,
    data: &[IoSlice<'_>],
    flags: c_int,
) -> Result<usize, Errno> {
    if flags & (libc::MSG_OOB | libc::MSG_ZEROCOPY) != 0 {
        return special::send(process, offload, now, key, id, data, flags);
    }
    let total = vectors::total(data);
    let state = &mut *offload;
    state.note_caller(key, id, Direction::Tx);
    let looks = !state.is_heard();
    let own = state.rings.at_mut(id.ring);
    let (result, is_held) = own.send(now, id, data, flags, looks, process.params.rx_poll_on_tx_tcp);
    state.dispatch();
    if is_held {
        state.watch_held(now, id);
    }
    state.say_if_plain(key, id);
    let done = match result {
        Ok(done) if done >= total => {
            offload.release();
            return Ok(done);
        }
        Ok(done) => done,
        Err(Error::WouldBlock) => 0,
        Err(error) => {
            drop(offload);
            return Err(failed(error.into(), flags));
        }
    };
    go_on(process, offload, key, id, data, done, flags)
}

/// As much was sent, of more: the call goes on with the rest, if it may wait.
fn go_on(
    process: &Process,
    offload: Guard<'_, Offload>,
    key: Key,
    id: FlowId,
    data: &[IoSlice<'_>],
    done: usize,
    flags: c_int,
) -> Result<usize, Errno> {
    let Some(socket) = offload.sockets.find(key) else { return if done > 0 { Ok(done) } else { Err(Errno(libc::EBADF)) } };
    if socket.nonblocking || flags & libc::MSG_DONTWAIT != 0 {
        return if done > 0 || vectors::total(data) == 0 { Ok(done) } else { Err(Errno(libc::EAGAIN)) };
    }
    let timeout = socket.send_timeout;
    drop(offload);
    send_rest(process, key, id, &mut vectors::rest(data, done), done, timeout, flags)
}

/// Sends on a plain socket, by its ring's lock alone; `to` is where a datagram is to go. `None`: it is to go the long way.
#[inline(never)]
pub(crate) fn send_plain(
    process: &Process,
    now: Instant,
    key: Key,
    data: &[IoSlice<'_>],
    (to, flags): (impl FnOnce(Family) -> Option<Address>, c_int),
) -> Option<Result<usize, Errno>> {
    match plain::send(process, now, key, data, (to, flags))? {
        Sent::Done(Ok(done)) => Some(Ok(done)),
        sent => send_plain_rest(process, key, data, flags, sent),
    }
}

/// The same of what goes where the socket is connected, as part of the caller's code.
#[inline(always)]
pub(crate) fn send_plain_at_once(
    process: &Process,
    now: Instant,
    key: Key,
    data: IoSlice<'_>,
    flags: c_int,
) -> Option<Result<usize, Errno>> {
    match plain::send_at_once(process, now, key, &[data], flags)? {
        Sent::Done(Ok(done)) => Some(Ok(done)),
        sent => send_plain_rest(process, key, &[data], flags, sent),
    }
}

/// Goes on with a send on a plain socket that has not taken all.
#[cold]
#[inline(never)]
fn send_plain_rest(process: &Process, key: Key, data: &[IoSlice<'_>], flags: c_int, sent: Sent) -> Option<Result<usize, Errno>> {
    Some(match sent {
        Sent::Done(result) => result.map_err(|error| failed(error.into(), flags)),
        Sent::Part(flow, done) => match plain::send_rest(process, key, data, done, flags) {
            Rest::Ended(result) => result.map_err(|error| failed(error, flags)),
            // (What the socket is by now, the call that begins anew finds out.)
            Rest::LongWay(0) => return None,
            Rest::LongWay(done) => go_on(process, process.lock(), key, flow, data, done, flags),
            Rest::Waits(done) => match send_rest(process, key, flow, &mut vectors::rest(data, done), done, None, flags) {
                Err(Errno(libc::EBADF)) => return None,
                result => result,
            },
        },
    })
}

/// What the stack makes of send(2)'s flags.
#[inline(always)]
pub(super) fn send_flags(flags: c_int) -> SendFlags {
    let mut sent = SendFlags::empty();
    if flags & (libc::MSG_MORE | libc::MSG_EOR) != 0 {
        sent.set(SendFlags::MORE, flags & libc::MSG_MORE != 0);
        sent.set(SendFlags::END_OF_RECORD, flags & libc::MSG_EOR != 0);
    }
    sent
}

impl ProcessRing {
    /// Sends what there is room for. `looks`: what has lain here for a while is looked at first; `always`: whenever it came. And whether something of the
    /// connection is held afterwards.
    #[inline(always)]
    pub(super) fn send(
        &mut self,
        now: Instant,
        flow: FlowId,
        data: &[IoSlice<'_>],
        flags: c_int,
        looks: bool,
        always: bool,
    ) -> (Result<usize, Error>, bool) {
        let flags = send_flags(flags);
        // A peer's reset, or its end, that has lain here for a while is known to the kernel's send. (A program that sends as fast as it can does not
        // look each time, unless VMA_RX_POLL_ON_TX_TCP says so; where something is held, `watch_held` sees to that.)
        if always {
            self.poll_if_due(now);
        }
        let stale = if looks { now.as_nanos().saturating_sub(STALE) } else { 0 };
        match self.ring.tcp_send_polling(now, flow, data, flags, Instant::from_nanos(stale)) {
            (Err(Error::WouldBlock), _) => self.send_after_look(now, flow, data, flags),
            result => result,
        }
    }

    #[cold]
    #[inline(never)]
    fn send_after_look(&mut self, now: Instant, flow: FlowId, data: &[IoSlice<'_>], flags: SendFlags) -> (Result<usize, Error>, bool) {
        self.poll_if_due(now);
        let result = self.ring.tcp_send(now, flow, data, flags);
        (result, self.ring.is_held(flow))
    }

    /// Receives what there is: what has come before, or else what comes by a look. `hears`: the program wants to know of all that arrives.
    #[inline(always)]
    pub(super) fn receive(
        &mut self,
        now: Instant,
        flow: FlowId,
        into: &mut [IoSliceMut<'_>],
        flags: RecvFlags,
        hears: bool,
    ) -> Result<usize, Error> {
        if flags.is_empty() && !hears {
            return self.ring.tcp_recv_polling(now, flow, into);
        }
        if !flags.contains(RecvFlags::PEEK) {
            match self.ring.tcp_recv(now, flow, into, flags) {
                // An end that the program itself made may have bytes behind it.
                Err(Error::WouldBlock) | Ok(0) => {}
                result => return result,
            }
        }
        self.poll_if_due(now);
        self.ring.tcp_recv(now, flow, into, flags)
    }

    #[inline]
    pub(crate) fn poll_if_due(&mut self, now: Instant) {
        if self.ring.is_due(now) {
            self.poll(now);
        }
    }
}

fn send_rest(
    process: &Process,
    key: Key,
    id: FlowId,
    mut left: &mut [IoSlice<'_>],
    mut done: usize,
    timeout: Option<Duration>,
    flags: c_int,
) -> Result<usize, Errno> {
    let ring_flags = send_flags(flags);
    while !left.is_empty() {
        let sent = blocking(process, key, timeout, |offload, now| {
            let id = offload.flow_now(key, id);
            let result = offload.rings.of_mut(id).tcp_send(now, id, left, ring_flags);
            offload.dispatch();
            result
        });
        match sent {
            Ok(count) => {
                done += count;
                IoSlice::advance_slices(&mut left, count);
            }
            Err(_) if done > 0 => break,
            Err(error) => return Err(failed(error, flags)),
        }
    }
    let mut offload = process.lock();
    let id = offload.flow_now(key, id);
    offload.watch_held(process.now(), id);
    drop(offload);
    Ok(done)
}

/// A send failed: EPIPE comes with SIGPIPE unless MSG_NOSIGNAL says otherwise.
#[cold]
fn failed(error: Errno, flags: c_int) -> Errno {
    if error.0 == libc::EPIPE && flags & libc::MSG_NOSIGNAL == 0 {
        // SAFETY: raise has no preconditions.
        unsafe { libc::raise(libc::SIGPIPE) };
    }
    error
}
