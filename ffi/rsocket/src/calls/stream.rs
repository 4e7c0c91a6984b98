//! Bytes of streams.

use core::ffi::c_int;
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::RawFd;

use ringway_preload::Errno;
use ringway_stack::rsocket::SocketId;
use ringway_stack::{Error, Instant};

use crate::library::{Library, errno};
use crate::wait::{Attempt, until, until_quick, until_sent, until_sent_quick};

/// Sends bytes. A socket that blocks sends all of them, unless the connection ends, or a signal is delivered, in the middle.
///
/// # Errors
/// EBADF; ENOTCONN; EAGAIN: there is no room; EPIPE: this side was shut down (without a signal); ECONNRESET: the peer is gone, or has closed; EINTR.
pub(crate) fn send(fd: RawFd, pieces: &[IoSlice<'_>], flags: c_int) -> Result<usize, Errno> {
    if let [only] = pieces {
        return send_piece(fd, only, flags);
    }
    let (mut sent, mut at) = (0, (0, 0));
    let all = until_sent(fd, flags & libc::MSG_DONTWAIT != 0, |library, id, now| {
        let (sockets, device) = library.parts();
        if pieces.iter().all(|piece| piece.is_empty()) {
            return sockets.send(now, device, id, &[]).map(|_| ()).map_err(errno);
        }
        while let Some(piece) = pieces.get(at.0) {
            let rest = &piece[at.1..];
            if rest.is_empty() {
                at = (at.0 + 1, 0);
                continue;
            }
            let done = sockets.send(now, device, id, rest).map_err(errno)?;
            (sent, at.1) = (sent + done, at.1 + done);
        }
        Ok(())
    });
    if sent > 0 { Ok(sent) } else { all.map(|()| 0) }
}

/// The same of one piece, as most calls have, as a part of the caller's code.
///
/// # Errors
/// As [`send`].
#[inline(always)]
pub(crate) fn send_piece(fd: RawFd, bytes: &[u8], flags: c_int) -> Result<usize, Errno> {
    let mut sending = Sending { bytes, sent: 0 };
    let all = until_sent_quick(fd, flags & libc::MSG_DONTWAIT != 0, &mut sending);
    if sending.sent > 0 { Ok(sending.sent) } else { all.map(|()| 0) }
}

/// What a call is to send.
struct Sending<'a> {
    bytes: &'a [u8],
    sent: usize,
}

impl Attempt for Sending<'_> {
    type Done = ();

    #[inline(always)]
    fn attempt(&mut self, library: &mut Library, id: SocketId, now: Instant) -> Result<(), Errno> {
        let (sockets, device) = library.parts();
        loop {
            self.sent += sockets.send(now, device, id, &self.bytes[self.sent..]).map_err(errno)?;
            if self.sent == self.bytes.len() {
                return Ok(());
            }
        }
    }
}

/// Receives bytes; none: the peer sends no more. MSG_PEEK, MSG_WAITALL and MSG_DONTWAIT mean what they mean to recv(2); other flags mean nothing.
///
/// # Errors
/// EBADF; ENOTCONN; EAGAIN: there are none; ECONNRESET: the peer is gone; ETIMEDOUT: it does not answer; EINTR.
pub(crate) fn recv(fd: RawFd, pieces: &mut [IoSliceMut<'_>], flags: c_int) -> Result<usize, Errno> {
    let (peek, dont_wait) = (flags & libc::MSG_PEEK != 0, flags & libc::MSG_DONTWAIT != 0);
    if peek {
        let wanted = pieces.iter().map(|piece| piece.len()).sum();
        return peek_at(fd, pieces, wanted, dont_wait);
    }
    let waits_for_all = flags & libc::MSG_WAITALL != 0 && !dont_wait;
    if let [only] = pieces {
        return recv_piece(fd, only, flags);
    }
    let wanted: usize = pieces.iter().map(|piece| piece.len()).sum();
    let (mut got, mut at) = (0, (0, 0));
    let ended = until(fd, dont_wait, None, |library, id, now| {
        let (sockets, device) = library.parts();
        if wanted == 0 {
            return sockets.recv(now, device, id, &mut [], false).map(|_| ()).map_err(errno);
        }
        while let Some(piece) = pieces.get_mut(at.0) {
            let rest = &mut piece[at.1..];
            if rest.is_empty() {
                at = (at.0 + 1, 0);
                continue;
            }
            match sockets.recv(now, device, id, rest, false).map_err(errno) {
                Ok(0) => return Ok(()),
                Ok(done) => (got, at.1) = (got + done, at.1 + done),
                Err(Errno(libc::EAGAIN)) if got > 0 && !waits_for_all => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    });
    if got > 0 { Ok(got) } else { ended.map(|()| 0) }
}

/// The same of one piece, as most calls have, as a part of the caller's code. (MSG_PEEK is [`recv`]'s alone.)
///
/// # Errors
/// As [`recv`].
#[inline(always)]
pub(crate) fn recv_piece(fd: RawFd, bytes: &mut [u8], flags: c_int) -> Result<usize, Errno> {
    let dont_wait = flags & libc::MSG_DONTWAIT != 0;
    let waits_for_all = flags & libc::MSG_WAITALL != 0 && !dont_wait;
    let mut receiving = Receiving { bytes, got: 0, waits_for_all };
    let ended = until_quick(fd, dont_wait, &mut receiving);
    if receiving.got > 0 { Ok(receiving.got) } else { ended.map(|()| 0) }
}

/// What a call is to receive.
struct Receiving<'a> {
    bytes: &'a mut [u8],
    got: usize,
    waits_for_all: bool,
}

impl Attempt for Receiving<'_> {
    type Done = ();

    #[inline(always)]
    fn attempt(&mut self, library: &mut Library, id: SocketId, now: Instant) -> Result<(), Errno> {
        let (sockets, device) = library.parts();
        loop {
            match sockets.recv(now, device, id, &mut self.bytes[self.got..], false) {
                Ok(0) => return Ok(()),
                Ok(done) => self.got += done,
                Err(Error::WouldBlock) => return if self.got > 0 && !self.waits_for_all { Ok(()) } else { Err(Errno(libc::EAGAIN)) },
                Err(error) => return Err(errno(error)),
            }
            if self.got == self.bytes.len() {
                return Ok(());
            }
        }
    }
}

/// The same bytes are there for the next call, so they are read into one piece, and parted.
fn peek_at(fd: RawFd, pieces: &mut [IoSliceMut<'_>], wanted: usize, dont_wait: bool) -> Result<usize, Errno> {
    if let [only] = pieces {
        return until(fd, dont_wait, None, |library, id, now| {
            let (sockets, device) = library.parts();
            sockets.recv(now, device, id, only, true).map_err(errno)
        });
    }
    let mut bytes = vec![0; wanted];
    let got = until(fd, dont_wait, None, |library, id, now| {
        let (sockets, device) = library.parts();
        sockets.recv(now, device, id, &mut bytes, true).map_err(errno)
    })?;
    scatter(&bytes[..got], pieces);
    Ok(got)
}

/// Parts bytes, for which there is room.
pub(super) fn scatter(mut bytes: &[u8], pieces: &mut [IoSliceMut<'_>]) {
    for piece in pieces {
        let (now, later) = bytes.split_at(piece.len().min(bytes.len()));
        piece[..now.len()].copy_from_slice(now);
        bytes = later;
    }
}
