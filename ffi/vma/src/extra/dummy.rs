//! VMA_SND_FLAGS_DUMMY: sends that send nothing, and keep the way of a packet in the processor's caches (seed 001, "Dummy Send").

use core::ffi::c_int;
use std::io::IoSlice;

use ringway_stack::Error;

use crate::errno::{self, Errno};
use crate::fd_counters;
use crate::fdtable;
use crate::process::process_or_init;
use crate::slab::Key;
use crate::socket::address::Address;
use crate::socket::routes::Sending;
use crate::socket::{Family, Kind, datagram};

/// The flag.
pub(crate) const FLAG: c_int = 0x400;

/// What a getsockname warms the way with (vma.md s2.16).
const WARMING: [u8; 264] = [0; 264];

/// VMA_TRIGGER_DUMMY_SEND_GETSOCKNAME. What it cannot do now, it does not.
#[cold]
pub(crate) fn warm(fd: c_int, key: Key) {
    let saved = errno::current();
    let sent = send(fd, key, &[IoSlice::new(&WARMING)], 0, |_| None);
    // Sent as any other dummy, and counted as one. What could not be sent is no call of the program's that failed.
    if sent.is_ok() {
        fd_counters::warmed(fd, None);
    }
    tracing::trace!("getsockname of {fd}: a dummy of {} bytes: {sent:?}", WARMING.len());
    errno::set(saved);
}

/// Sends nothing, by all that a send would pass through.
///
/// # Errors
/// As send(2); EINVAL: it is not the ring that would carry it; EAGAIN: on a connection, where such a segment could not go out at once (vma.md s2.16).
pub(crate) fn send(
    fd: c_int,
    key: Key,
    data: &[IoSlice<'_>],
    flags: c_int,
    to: impl FnOnce(Family) -> Option<Address>,
) -> Result<usize, Errno> {
    let process = process_or_init().ok_or(Errno(libc::EINVAL))?;
    let now = process.now();
    if fdtable::is_stale(fd, now) {
        return Err(Errno(libc::EINVAL));
    }
    let mut guard = process.lock();
    let socket = guard.sockets.find(key).ok_or(Errno(libc::EBADF))?;
    let (kind, family) = (socket.kind, socket.family);
    match kind {
        Kind::Stream(id) | Kind::Connecting(id) => {
            let parts = data.iter().filter(|part| !part.is_empty()).count();
            if flags & libc::MSG_MORE != 0 || parts != 1 {
                return Err(Errno(libc::EAGAIN));
            }
            guard.rings.of_mut(id).tcp_dummy(now, id, data).map_err(refusal)
        }
        Kind::Datagram(_) => {
            drop(guard);
            let saved = errno::current();
            let way = datagram::way(process, fd, key, to(family));
            errno::set(saved);
            let (Sending { flow, source, hop, .. }, to) = way.ok_or(Errno(libc::EINVAL))?;
            process.lock().rings.of_mut(flow).udp_dummy(flow, data, source, Some((to, hop))).map_err(refusal)
        }
        Kind::Fresh | Kind::Listener(_) | Kind::Kernel | Kind::Moving => Err(Errno(libc::EINVAL)),
    }
}

fn refusal(error: Error) -> Errno {
    match error {
        Error::NotSupported => Errno(libc::EINVAL),
        error => error.into(),
    }
}
