//! Direct placement: riomap, riounmap, riowrite.
//!
//! A peer writes to a buffer by itself where it can ([`Fabric::write`]): what it writes is there when its call returns, whatever this process does meanwhile. Where it
//! cannot, queue pairs carry the bytes, and somebody here has to poll. Either way a write is there before what is sent after it, and before any later write.

use core::ffi::c_int;
use core::time::Duration;
use std::os::fd::RawFd;

use ringway_devices::messages::{Fabric, NotWritten};
use ringway_host::Clock;
use ringway_host::sleep::yield_core;
use ringway_preload::Errno;
use ringway_preload::errno::is_nowhere;
use ringway_stack::Instant;
use ringway_stack::rsocket::SocketId;

use crate::library::{self, Library, enter, errno};
use crate::memory::{Buffer, Bytes};
use crate::table::Mapped;
use crate::wait::until_sent;

/// So many bytes are written at a time: other threads want the lock, too.
const PIECE_MAX: usize = 256 << 10;

/// How long a peer's write may still be under way that was begun before a mapping ended. It takes longer only if the peer is stopped just then.
const WRITE_TIME_MAX: Duration = Duration::from_secs(2);

/// Maps a buffer for the peer's direct writes (PROT_WRITE), or for nobody's (PROT_NONE), and gives its offset: `offset`, or its address if that is -1.
///
/// # Errors
/// EBADF; EOPNOTSUPP: a datagram socket; EINVAL: another `prot`, no bytes, or more than 4 GiB; EFAULT; ENOTCONN; ENOMEM: the peer's table is full (RDMA_IOMAPSIZE), or the device's.
///
/// # Safety
/// [`Buffer`]'s invariant holds for `buffer` and `len`, or the pointer [leads nowhere](is_nowhere).
pub(crate) unsafe fn map(fd: RawFd, buffer: *mut u8, len: usize, prot: c_int, offset: i64) -> Result<i64, Errno> {
    let is_remote = match prot {
        libc::PROT_WRITE => true,
        libc::PROT_NONE => false,
        _ => return Err(Errno(libc::EINVAL)),
    };
    if is_nowhere(buffer) {
        return Err(Errno(libc::EFAULT));
    }
    if len == 0 || offset < -1 {
        return Err(Errno(libc::EINVAL));
    }
    let mut library = enter()?;
    library.poll();
    let id = library.stream(fd)?;
    // SAFETY: the caller's promise.
    let memory = Bytes::Program(unsafe { Buffer::new(buffer, len) });
    let chosen = if offset == -1 { buffer.addr() as u64 } else { offset.cast_unsigned() };
    let (sockets, device) = library.parts();
    let mapping = sockets.map(device, id, memory, is_remote, Some(chosen)).map_err(errno)?;
    library.entry(fd)?.mapped.push(Mapped { start: buffer.addr(), len, region: mapping.region });
    if is_remote {
        let qp = library.sockets.qp(id).map_err(errno)?;
        // SAFETY: the caller's promise, which lasts until riounmap or rclose: both end this first.
        unsafe { library.fabric.open_to_peer(&library.plane, qp, &mapping.region, buffer.addr()) };
    }
    Ok(mapping.offset.cast_signed())
}

/// Ends a mapping. Afterwards nobody writes there; a peer that tries ends the connection.
///
/// # Errors
/// EBADF; EINVAL: no such buffer is mapped; EBUSY: a peer that is stopped has been in the middle of a write for two seconds, and the buffer is still mapped.
pub(crate) fn unmap(fd: RawFd, buffer: usize, len: usize) -> Result<(), Errno> {
    let is_it = |mapped: &Mapped| (mapped.start, mapped.len) == (buffer, len);
    let (fabric, key) = {
        let mut library = enter()?;
        library.poll();
        let entry = library.entry(fd)?;
        entry.stream()?;
        let key = entry.mapped.iter().find(|mapped| is_it(mapped)).ok_or(Errno(libc::EINVAL))?.region.key;
        library.fabric.close_to_peer(key);
        (library.fabric.clone(), key)
    };
    if !await_writers(&fabric, key) {
        return Err(Errno(libc::EBUSY));
    }
    let mut library = enter()?;
    let entry = library.entry(fd)?;
    let id = entry.stream()?;
    let at = entry.mapped.iter().position(|mapped| mapped.region.key == key).ok_or(Errno(libc::EINVAL))?;
    let region = entry.mapped.remove(at).region;
    let (sockets, device) = library.parts();
    sockets.unmap(device, id, region.address, region.len).map(|_| ()).map_err(errno)
}

/// Waits until no peer writes to a region any more that has been closed to it; `false`: the time is up. The library is not entered.
pub(super) fn await_writers(fabric: &Fabric, key: u32) -> bool {
    let (clock, mut began) = (Clock::new(), None);
    while fabric.is_written_by_peer(key) {
        let now = clock.now();
        if now.since(*began.get_or_insert(now)) > WRITE_TIME_MAX {
            return false;
        }
        yield_core();
    }
    true
}

/// Writes bytes to where the peer has mapped `offset`, and gives how many: less than there are where the mapping ends.
///
/// # Errors
/// EINVAL: a negative offset; those of [`super::stream::send`].
pub(crate) fn write(fd: RawFd, bytes: &[u8], offset: i64, flags: c_int) -> Result<usize, Errno> {
    let offset = u64::try_from(offset).map_err(|_| Errno(libc::EINVAL))?;
    let mut written = 0;
    loop {
        let rest = &bytes[written..];
        let done = until_sent(fd, flags & libc::MSG_DONTWAIT != 0, |library, id, now| match offset.checked_add(written as u64) {
            Some(at) if !rest.is_empty() => write_some(library, id, now, rest, at),
            _ => Ok(0),
        });
        match done {
            // All is, or nothing is mapped there.
            Ok(0) => return Ok(written),
            Ok(done) => written += done,
            Err(_) if written > 0 => return Ok(written),
            Err(error) => return Err(error),
        }
        if written == bytes.len() {
            return Ok(written);
        }
        library::let_others_enter();
    }
}

/// Writes bytes from the front, one at least unless nothing is mapped there: at once where that can be, and else by the queue pair.
fn write_some(library: &mut Library, id: SocketId, now: Instant, bytes: &[u8], at: u64) -> Result<usize, Errno> {
    let (sockets, device) = library.parts();
    let Some(target) = sockets.direct_target(now, device, id, at).map_err(errno)? else {
        return sockets.write_direct(now, device, id, bytes, at).map_err(errno);
    };
    // (What that has posted goes before.)
    library.plane.transmit(now);
    let piece = &bytes[..bytes.len().min(PIECE_MAX).min(target.len as usize)];
    let written = library.fabric.write(&library.plane, &target, piece);
    let (sockets, device) = library.parts();
    match written {
        Ok(()) => Ok(piece.len()),
        Err(NotWritten::Refused) => sockets.write_direct(now, device, id, bytes, at).map_err(errno),
        Err(NotWritten::Fault) => {
            sockets.fail_direct(now, device, id).map_err(errno)?;
            Err(Errno(libc::ECONNRESET))
        }
    }
}
