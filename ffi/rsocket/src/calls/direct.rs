//! Direct placement: riomap, riounmap, riowrite.

use core::ffi::c_int;
use std::os::fd::RawFd;

use ringway_preload::Errno;
use ringway_preload::errno::is_nowhere;

use crate::library::{enter, errno};
use crate::memory::{Buffer, Bytes};
use crate::table::Mapped;
use crate::wait::until;

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
    Ok(mapping.offset.cast_signed())
}

/// Ends a mapping. Afterwards nobody writes there; a peer that tries ends the connection.
///
/// # Errors
/// EBADF; EINVAL: no such buffer is mapped.
pub(crate) fn unmap(fd: RawFd, buffer: usize, len: usize) -> Result<(), Errno> {
    let mut library = enter()?;
    library.poll();
    let entry = library.entry(fd)?;
    let (id, is_it) = (entry.stream()?, |mapped: &Mapped| (mapped.start, mapped.len) == (buffer, len));
    let at = entry.mapped.iter().position(is_it).ok_or(Errno(libc::EINVAL))?;
    let region = entry.mapped.remove(at).region;
    let (sockets, device) = library.parts();
    sockets.unmap(device, id, region.address, region.len).map(|_| ()).map_err(errno)
}

/// Writes bytes to where the peer has mapped `offset`, and gives how many: less than there are where the mapping ends.
///
/// # Errors
/// EINVAL: a negative offset; those of [`super::stream::send`].
pub(crate) fn write(fd: RawFd, bytes: &[u8], offset: i64, flags: c_int) -> Result<usize, Errno> {
    let offset = u64::try_from(offset).map_err(|_| Errno(libc::EINVAL))?;
    let mut written = 0;
    let all = until(fd, flags & libc::MSG_DONTWAIT != 0, None, |library, id, now| {
        let (sockets, device) = library.parts();
        while written < bytes.len() {
            let Some(at) = offset.checked_add(written as u64) else { return Ok(()) };
            match sockets.write_direct(now, device, id, &bytes[written..], at).map_err(errno)? {
                // Nothing is mapped there.
                0 => return Ok(()),
                done => written += done,
            }
        }
        Ok(())
    });
    if written > 0 { Ok(written) } else { all.map(|()| 0) }
}
