//! Bytes of any number, passed in a memory file.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::fd::FromRawFd as _;

use ringway_devices::Fd;
use ringway_stack::tcp::Undelivered;
use ringway_stack::wire::tcp::SeqNumber;

use crate::real;

/// More than both queues of a connection ever hold.
const BYTES_MAX: u64 = 256 << 20;

/// The numbers of what is undelivered: two sequence numbers, two lengths, flags.
const HEAD: usize = 20;
const ENDED: u32 = 1;
const PEER_ENDED: u32 = 2;
const ORPHANED: u32 = 4;
const FAILED: u32 = 8;
const ACCEPTED: u32 = 16;
const OVER: u32 = 32;

/// A file that holds the bytes.
pub(super) fn holding(bytes: &[&[u8]]) -> io::Result<Fd> {
    let fd = Fd::make(|| {
        // SAFETY: the name is a C string.
        let raw = unsafe { real::memfd_create(c"ringway-move".as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING) };
        if raw < 0 { Err(io::Error::last_os_error()) } else { Ok(raw) }
    })?;
    let mut file = borrow(&fd);
    for part in bytes {
        file.write_all(part)?;
    }
    Ok(fd)
}

/// The file's bytes, from its beginning.
///
/// # Errors
/// The system's; [`io::ErrorKind::InvalidData`]: it is no memory file (reading another might never end), or larger than any that is passed.
pub(super) fn read(fd: &Fd) -> io::Result<Vec<u8>> {
    read_up_to(fd, BYTES_MAX)
}

/// As [`read`], of a file that is to have no more bytes than this.
pub(super) fn read_up_to(fd: &Fd, most: u64) -> io::Result<Vec<u8>> {
    if len(fd)? > most {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut file = borrow(fd);
    file.rewind()?;
    let mut bytes = Vec::new();
    io::Read::take(&mut *file, most).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// How many bytes the file holds.
///
/// # Errors
/// As [`read`].
pub(super) fn len(fd: &Fd) -> io::Result<u64> {
    // SAFETY: plain integers. Only memory files have seals (fcntl(2)).
    if unsafe { libc::fcntl(fd.raw(), libc::F_GET_SEALS) } < 0 {
        return Err(io::ErrorKind::InvalidData.into());
    }
    Ok(borrow(fd).metadata()?.len())
}

fn borrow(fd: &Fd) -> core::mem::ManuallyDrop<File> {
    // SAFETY: the descriptor is open as long as `fd` is, which outlives the file; and it is not closed by it.
    core::mem::ManuallyDrop::new(unsafe { File::from_raw_fd(fd.raw()) })
}

/// Writes what a connection left behind.
pub(super) fn of_undelivered(undelivered: &Undelivered) -> io::Result<Fd> {
    let flag = |set, flag| if set { flag } else { 0 };
    let flags = flag(undelivered.ended, ENDED)
        | flag(undelivered.peer_ended, PEER_ENDED)
        | flag(undelivered.orphaned, ORPHANED)
        | flag(undelivered.error.is_some(), FAILED)
        | flag(undelivered.accepted, ACCEPTED)
        | flag(undelivered.over, OVER);
    let mut head = Vec::with_capacity(HEAD);
    let len = |bytes: &[u8]| u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    for word in [undelivered.sent_from.0, len(&undelivered.unacknowledged), undelivered.received_to.0, len(&undelivered.unread), flags] {
        head.extend_from_slice(&word.to_le_bytes());
    }
    holding(&[&head, &undelivered.unacknowledged, &undelivered.unread])
}

/// Reads what a connection left behind. `None`: that is not what the file holds.
pub(super) fn to_undelivered(fd: &Fd) -> Option<Undelivered> {
    parse(&read(fd).ok()?)
}

fn parse(bytes: &[u8]) -> Option<Undelivered> {
    let (head, rest) = bytes.split_at_checked(HEAD)?;
    let word = |i: usize| head[i * 4..i * 4 + 4].try_into().map_or(0, u32::from_le_bytes);
    let (unacknowledged, unread) = rest.split_at_checked(word(1) as usize)?;
    let flags = word(4);
    (unread.len() == word(3) as usize).then(|| Undelivered {
        sent_from: SeqNumber(word(0)),
        unacknowledged: unacknowledged.to_vec(),
        ended: flags & ENDED != 0,
        received_to: SeqNumber(word(2)),
        unread: unread.to_vec(),
        peer_ended: flags & PEER_ENDED != 0,
        orphaned: flags & ORPHANED != 0,
        accepted: flags & ACCEPTED != 0,
        over: flags & OVER != 0,
        error: (flags & FAILED != 0).then_some(ringway_stack::Error::Reset),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn undelivered() -> Undelivered {
        Undelivered {
            sent_from: SeqNumber(0xffff_fff0),
            unacknowledged: b"on its way".to_vec(),
            ended: true,
            received_to: SeqNumber(7),
            unread: b"there".to_vec(),
            peer_ended: false,
            orphaned: true,
            accepted: false,
            over: true,
            error: Some(ringway_stack::Error::Reset),
        }
    }

    #[test]
    fn what_is_undelivered_survives_the_way_through_a_file() {
        assert_eq!(to_undelivered(&of_undelivered(&undelivered()).unwrap()), Some(undelivered()));
    }

    #[test]
    fn anything_else_is_refused() {
        let good = read(&of_undelivered(&undelivered()).unwrap()).unwrap();
        for len in 0..good.len() {
            assert_eq!(parse(&good[..len]), None, "cut at {len}");
        }
        let mut longer = good;
        longer.push(0);
        assert_eq!(parse(&longer), None);
    }
}
