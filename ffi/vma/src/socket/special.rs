//! Receiving and sending on a connection in ways that most programs don't: MSG_WAITALL and SO_RCVLOWAT, MSG_TRUNC, MSG_ERRQUEUE, MSG_OOB,
//! MSG_ZEROCOPY.

use core::ffi::c_int;
use core::time::Duration;
use std::io::{IoSlice, IoSliceMut};

use ringway_stack::offload::Reason;
use ringway_stack::ring::{FlowId, Readiness, RecvFlags};
use ringway_stack::{Error, Instant, tcp};

use super::stream::{self, receive_some, receiving};
use super::vectors;
use crate::errno::Errno;
use crate::extra::resume::{self, DUE, Resume};
use crate::fdtable::{self, Entry};
use crate::lock::Guard;
use crate::moving;
use crate::process::{Offload, Process};
use crate::slab::Key;

/// Receives as recv(2) does, by whatever flags.
///
/// # Errors
/// As [`stream::receive`].
#[cold]
pub(super) fn receive(
    process: &Process,
    mut offload: Guard<'_, Offload>,
    key: Key,
    id: FlowId,
    into: &mut [IoSliceMut<'_>],
    flags: c_int,
) -> Result<usize, Errno> {
    if flags & libc::MSG_OOB != 0 {
        // What the kernel says where there is no urgent data (tcp_recv_urg).
        return Err(Errno(libc::EINVAL));
    }
    if flags & libc::MSG_ERRQUEUE != 0 {
        // Who asks without room for control messages takes the completion all the same.
        return take_completion(&mut offload, key).map(|_| 0).ok_or(Errno(libc::EAGAIN));
    }
    let Some(socket) = offload.sockets.find(key) else { return Err(Errno(libc::EBADF)) };
    let (nonblocking, timeout, low_water) = (socket.nonblocking, socket.receive_timeout, socket.receive_low_water);
    let plain = flags & (libc::MSG_DONTWAIT | libc::MSG_PEEK);
    let wanted = vectors::total_mut(into);
    if wanted == 0 {
        return receive_nothing(process, offload, key, id, flags);
    }
    // sock_rcvlowat: a call that blocks goes on until it has so much. One that doesn't takes what there is.
    let target = if flags & libc::MSG_WAITALL != 0 { wanted } else { low_water.min(wanted) };
    if flags & (libc::MSG_PEEK | libc::MSG_TRUNC) != 0 {
        let waits = !nonblocking && flags & libc::MSG_DONTWAIT == 0;
        if flags & libc::MSG_PEEK == 0 {
            return discard(process, offload, key, id, wanted, flags);
        }
        let counted = (flags & libc::MSG_TRUNC != 0).then_some(wanted);
        return peek(process, offload, key, id, into, counted, waits.then_some((target, timeout)));
    }
    let now = process.now();
    let resumed = resume::taken();
    let resume = resumed.unwrap_or_else(|| Resume::new(now));
    let mut into = into;
    // (Empty vectors in front would lead back here.)
    IoSliceMut::advance_slices(&mut into, resume.done);
    let mut done = resume.done;
    let rest_of = |time: Option<Duration>| time.map(|time| (resume.began + time).since(process.now()));
    let mut result = if done == 0 {
        // (Only a call that is made again forgets that at its end.)
        if let Some(resume) = resumed {
            resume::put_back(resume);
        }
        receive_some(process, offload, now, key, id, into, plain)
    } else {
        drop(offload);
        go_on(process, key, id, into, rest_of(timeout))
    };
    if target <= 1 || nonblocking || flags & libc::MSG_DONTWAIT != 0 {
        return result;
    }
    let mut left = into;
    loop {
        match result {
            Ok(0) => return Ok(done),
            Err(DUE) => return Err(resume.with(done).due()),
            Ok(count) => {
                done += count;
                if done >= target {
                    return Ok(done);
                }
                IoSliceMut::advance_slices(&mut left, count);
            }
            // The error stays pending for the next call, as in the kernel, unless it was the only result.
            Err(_) if done > 0 => return Ok(done),
            Err(error) => return Err(error),
        }
        result = go_on(process, key, id, left, rest_of(timeout));
    }
}

/// Waits for more where some was received. A signal ends that, whether or not its handler restarts calls; and so does an error, which
/// stays to be told by the next call.
fn go_on(process: &Process, key: Key, id: FlowId, into: &mut [IoSliceMut<'_>], time: Option<Duration>) -> Result<usize, Errno> {
    receiving(process, key, (time, false), Resume::new(process.now()), |offload, now| {
        let id = offload.flow_now(key, id);
        let nothing = offload.rings.of(id).info(id).is_none_or(|info| info.recv_queue == 0);
        if nothing && offload.rings.of(id).readiness(id).intersects(Readiness::ERR) {
            return Ok(0);
        }
        let result = offload.rings.of_mut(id).tcp_recv(now, id, into, RecvFlags::empty());
        offload.dispatch();
        result
    })
}

/// Looks at bytes that stay where they are, once there are as many as `until` says, or no more will come. Or only counts them, up to
/// `counted`: tcp(7), with MSG_TRUNC the buffer is not touched (it may well be null).
fn peek(
    process: &Process,
    mut offload: Guard<'_, Offload>,
    key: Key,
    id: FlowId,
    into: &mut [IoSliceMut<'_>],
    counted: Option<usize>,
    until: Option<(usize, Option<Duration>)>,
) -> Result<usize, Errno> {
    let mut look = |offload: &mut Offload, now: Instant, least: usize| {
        let id = offload.flow_now(key, id);
        let there = offload.rings.of(id).info(id).map_or(0, |info| info.recv_queue);
        if there < least && !offload.rings.of(id).readiness(id).intersects(Readiness::RDHUP | Readiness::ERR | Readiness::HUP) {
            return Err(Error::WouldBlock);
        }
        match counted {
            Some(limit) if there > 0 => Ok(there.min(limit)),
            Some(_) => offload.rings.of_mut(id).tcp_recv(now, id, &mut [IoSliceMut::new(&mut [0])], RecvFlags::PEEK),
            None => offload.rings.of_mut(id).tcp_recv(now, id, into, RecvFlags::PEEK),
        }
    };
    let now = process.now();
    let resume = offload.call_under_way(now);
    offload.poll_if_due(now);
    let (target, deadline) = match until {
        Some((target, timeout)) => (target, timeout.map(|timeout| resume.began + timeout)),
        None => (1, Some(resume.began)),
    };
    match look(&mut offload, now, target) {
        Err(Error::WouldBlock) => {}
        result => return result.map_err(Errno::from),
    }
    if let Some(stop) = offload.stop(resume, key, now, deadline) {
        return Err(stop);
    }
    drop(offload);
    let Some((_, timeout)) = until else { return Err(Errno(libc::EAGAIN)) };
    match receiving(process, key, (timeout, timeout.is_none()), resume, |offload, now| look(offload, now, target)) {
        // Time over, or a signal: what is there will do.
        Err(error @ Errno(libc::EAGAIN | libc::EINTR)) => {
            let now = process.now();
            look(&mut process.lock(), now, 1).map_err(|_| error)
        }
        result => result,
    }
}

/// No room: Linux waits for a byte (sock_rcvlowat is never zero), and takes none.
fn receive_nothing(process: &Process, mut offload: Guard<'_, Offload>, key: Key, id: FlowId, flags: c_int) -> Result<usize, Errno> {
    let look = |offload: &mut Offload, now: Instant| {
        let id = offload.flow_now(key, id);
        offload.rings.of_mut(id).tcp_recv(now, id, &mut [IoSliceMut::new(&mut [0])], RecvFlags::PEEK).map(|_| 0)
    };
    let now = process.now();
    offload.poll_if_due(now);
    let Some(socket) = offload.sockets.find(key) else { return Err(Errno(libc::EBADF)) };
    let (nonblocking, timeout) = (socket.nonblocking, socket.receive_timeout);
    let resume = offload.call_under_way(now);
    let waits = !nonblocking && flags & libc::MSG_DONTWAIT == 0;
    let result = look(&mut offload, now).map_err(Errno::from);
    if result != Err(Errno(libc::EAGAIN)) {
        return result;
    }
    let deadline = if waits { timeout.map(|timeout| resume.began + timeout) } else { Some(resume.began) };
    if let Some(stop) = offload.stop(resume, key, now, deadline) {
        return Err(stop);
    }
    drop(offload);
    if waits { receiving(process, key, (timeout, timeout.is_none()), resume, look) } else { result }
}

/// tcp(7): with MSG_TRUNC the bytes are discarded, the buffer is not touched (it may well be null).
///
/// # Errors
/// As [`receive`].
pub(crate) fn discard<'a>(
    process: &'a Process,
    mut offload: Guard<'a, Offload>,
    key: Key,
    id: FlowId,
    len: usize,
    flags: c_int,
) -> Result<usize, Errno> {
    if flags & libc::MSG_PEEK != 0 {
        let Some(socket) = offload.sockets.find(key) else { return Err(Errno(libc::EBADF)) };
        let waits = !socket.nonblocking && flags & libc::MSG_DONTWAIT == 0;
        let until = waits.then_some((if flags & libc::MSG_WAITALL != 0 { len } else { 1 }, socket.receive_timeout));
        return peek(process, offload, key, id, &mut [], Some(len), until);
    }
    let Some(socket) = offload.sockets.find(key) else { return Err(Errno(libc::EBADF)) };
    let all = flags & libc::MSG_WAITALL != 0 && flags & libc::MSG_DONTWAIT == 0 && !socket.nonblocking;
    let timeout = socket.receive_timeout;
    let mut scratch = [0u8; 4096];
    let mut done = 0;
    while done < len {
        let room = (len - done).min(scratch.len());
        let into = &mut [IoSliceMut::new(&mut scratch[..room])];
        let result = if done == 0 {
            let id = offload.flow_now(key, id);
            stream::receive(process, offload, process.now(), key, id, into, flags & libc::MSG_DONTWAIT)
        } else {
            drop(offload);
            go_on(process, key, id, into, if all { timeout } else { Some(Duration::ZERO) })
        };
        match result {
            Ok(0) => break,
            Ok(count) => done += count,
            Err(error) if done > 0 => {
                if error == DUE {
                    resume::forget();
                }
                break;
            }
            Err(error) => return Err(error),
        }
        offload = process.lock();
    }
    Ok(done)
}

/// Sends with MSG_OOB, or with MSG_ZEROCOPY: the bytes are copied then, as the kernel's loopback does, and the completion says so.
///
/// # Errors
/// As [`stream::send`]; for MSG_OOB, as [`leave_for_urgent`].
#[cold]
pub(super) fn send(
    process: &Process,
    offload: Guard<'_, Offload>,
    now: Instant,
    key: Key,
    id: FlowId,
    data: &[IoSlice<'_>],
    flags: c_int,
) -> Result<usize, Errno> {
    if flags & libc::MSG_OOB != 0 {
        return Err(leave_for_urgent(process, offload, now, key, id, flags));
    }
    let sent = stream::send(process, offload, now, key, id, data, flags & !libc::MSG_ZEROCOPY)?;
    let mut offload = process.lock();
    // Without SO_ZEROCOPY the flag means nothing.
    if let Some(rare) = offload.sockets.find_mut(key).and_then(|socket| socket.rare.as_mut()).filter(|rare| rare.zerocopy && sent > 0) {
        rare.complete_zerocopy();
        offload.announce(key.index, libc::EPOLLERR as u32);
    }
    Ok(sent)
}

/// How long a send of urgent data that is not to wait does so for the connection's move: there is room for the byte, so that its program
/// expects no EAGAIN. Almost every move is over in a millisecond; one whose peer does not answer has to be tried again.
const URGENT: Duration = Duration::from_secs(1);

/// Urgent data are the kernel's: the mark where reads stop, SIOCATMARK, SO_OOBINLINE, SIGURG and POLLPRI of both ends. So the connection
/// moves there before the first of them, with all bytes that were written before.
///
/// Errors: EBADF, and the descriptor is the kernel's now, which is to be asked; EAGAIN: a call that is not to wait would have to; ETIMEDOUT;
/// ENOBUFS: the connection cannot be moved, for want of descriptors or threads.
fn leave_for_urgent(process: &Process, mut offload: Guard<'_, Offload>, now: Instant, key: Key, id: FlowId, flags: c_int) -> Errno {
    offload.poll_if_due(now);
    let Some(socket) = offload.sockets.find(key) else { return Errno(libc::EBADF) };
    let (fd, waits) = (socket.fd, !socket.is_nonblocking() && flags & libc::MSG_DONTWAIT == 0);
    let is_opening =
        offload.rings.of(id).info(id).is_some_and(|info| matches!(info.state, Some(tcp::State::SynSent | tcp::State::SynReceived)));
    drop(offload);
    if is_opening && !waits {
        return Errno(libc::EAGAIN);
    }
    let patience = if waits { moving::PATIENCE } else { URGENT };
    let Some(process) = crate::process::process().filter(|_| process.is_owner()) else { return Errno(libc::ENOBUFS) };
    if !moving::leave_to_kernel(process, key, Reason::UrgentData, patience) {
        return Errno(libc::ENOBUFS);
    }
    match fdtable::peek(fd) {
        Entry::Socket(_) | Entry::Moving(_) if waits => Errno(libc::ETIMEDOUT),
        Entry::Socket(_) | Entry::Moving(_) => Errno(libc::EAGAIN),
        _ => Errno(libc::EBADF),
    }
}

/// Takes the completions of sends with MSG_ZEROCOPY that nobody has taken yet: the first and the last.
pub(crate) fn take_completion(offload: &mut Offload, key: Key) -> Option<(u32, u32)> {
    offload.sockets.find_mut(key)?.rare.as_mut()?.completed.take()
}
