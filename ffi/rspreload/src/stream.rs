//! Bytes of streams.

use core::ffi::c_int;
use std::io::{IoSlice, IoSliceMut};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ringway_preload::{Errno, vectors};
use rsocket::api;

use crate::socket::{Socket, carrier};

/// Bytes of MSG_TRUNC that are thrown away at a time.
const SCRATCH: usize = 64 * 1024;

/// Sends bytes: all of them, if it may wait.
///
/// # Errors
/// As send(2)'s; [`ringway_preload::errno::THEIRS`].
pub(crate) fn send(fd: c_int, socket: &Arc<Socket>, pieces: &[IoSlice<'_>], flags: c_int) -> Result<usize, Errno> {
    let key = carrier(fd, socket, flags)?;
    if flags & libc::MSG_OOB != 0 {
        // There are no urgent data.
        return Err(Errno(libc::EOPNOTSUPP));
    }
    let (total, waits) = (vectors::total(pieces), socket.blocks() && flags & libc::MSG_DONTWAIT == 0);
    let deadline = socket.deadline(1);
    let mut sent = 0;
    let ended = loop {
        let attempt = if sent == 0 { api::send(key, pieces) } else { api::send(key, &vectors::rest(pieces, sent)) };
        match attempt {
            Ok(more) => {
                sent += more;
                if sent >= total {
                    return Ok(sent);
                }
                socket.found_full.fetch_add(1, Ordering::Relaxed);
            }
            Err(Errno(libc::EAGAIN)) => {
                socket.found_full.fetch_add(1, Ordering::Relaxed);
            }
            Err(error) => break error,
        }
        if !waits {
            break Errno(libc::EAGAIN);
        }
        if let Err(error) = socket.wait(key, libc::POLLOUT, &mut [], deadline) {
            break error;
        }
    };
    if sent > 0 {
        return Ok(sent);
    }
    if ended == Errno(libc::EPIPE) && flags & libc::MSG_NOSIGNAL == 0 {
        broken_pipe();
    }
    Err(ended)
}

/// Receives bytes.
///
/// # Errors
/// As recv(2)'s; [`ringway_preload::errno::THEIRS`].
pub(crate) fn receive(fd: c_int, socket: &Arc<Socket>, pieces: &mut [IoSliceMut<'_>], flags: c_int) -> Result<usize, Errno> {
    let key = carrier(fd, socket, flags)?;
    if flags & libc::MSG_OOB != 0 {
        return Err(Errno(libc::EINVAL));
    }
    if flags & libc::MSG_ERRQUEUE != 0 {
        return Err(Errno(libc::EAGAIN));
    }
    if flags & libc::MSG_TRUNC != 0 {
        return throw_away(socket, key, vectors::total_mut(pieces), flags);
    }
    let waits = socket.blocks() && flags & libc::MSG_DONTWAIT == 0;
    let is_peek = flags & libc::MSG_PEEK != 0;
    let wanted = if flags & libc::MSG_WAITALL != 0 && !is_peek { vectors::total_mut(pieces) } else { 1 };
    let deadline = socket.deadline(0);
    let mut got = 0;
    let ended = loop {
        let attempt = if got == 0 {
            api::recv(key, pieces, flags & libc::MSG_PEEK)
        } else {
            let mut rest: Vec<IoSliceMut<'_>> = pieces.iter_mut().map(|piece| IoSliceMut::new(piece)).collect();
            let mut rest = &mut rest[..];
            IoSliceMut::advance_slices(&mut rest, got);
            api::recv(key, rest, 0)
        };
        socket.received.fetch_add(1, Ordering::Relaxed);
        match attempt {
            Ok(0) => return Ok(got),
            Ok(more) => {
                got += more;
                if got >= wanted {
                    return Ok(got);
                }
                continue;
            }
            Err(Errno(libc::EAGAIN)) if waits => {}
            Err(error) => break error,
        }
        if let Err(error) = socket.wait(key, libc::POLLIN | libc::POLLRDHUP, &mut [], deadline) {
            break error;
        }
    };
    if got > 0 { Ok(got) } else { Err(ended) }
}

/// MSG_TRUNC of tcp(7): the bytes are thrown away.
fn throw_away(socket: &Socket, key: c_int, len: usize, flags: c_int) -> Result<usize, Errno> {
    let mut scratch = vec![0; len.min(SCRATCH)];
    loop {
        socket.received.fetch_add(1, Ordering::Relaxed);
        match api::recv(key, &mut [IoSliceMut::new(&mut scratch)], flags & libc::MSG_PEEK) {
            Err(Errno(libc::EAGAIN)) if socket.blocks() && flags & libc::MSG_DONTWAIT == 0 => {
                socket.wait(key, libc::POLLIN | libc::POLLRDHUP, &mut [], socket.deadline(0))?;
            }
            received => return received,
        }
    }
}

/// A write to a connection that is closed ends the program, unless it has said otherwise.
fn broken_pipe() {
    // SAFETY: the calling thread, and a signal.
    unsafe { libc::pthread_kill(libc::pthread_self(), libc::SIGPIPE) };
}
