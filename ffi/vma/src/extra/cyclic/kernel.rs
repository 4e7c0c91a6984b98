//! Datagrams that the kernel has for the sockets of a cyclic ring: of programs that are not on Ringway, of other machines, for groups.
//!
//! They become records like others, behind what came by the ring; their headers are made up, for the kernel keeps those.

use core::ffi::c_int;
use core::mem::size_of;
use core::ptr;
use std::net::{Ipv4Addr, SocketAddr};

use libc::{sockaddr_storage, socklen_t};
use ringway_devices::RxBuf;
use ringway_stack::Instant;
use ringway_stack::cyclic::{Packet, Refused, made_up_headers};

use super::CyclicRing;
use crate::errno::{self, Errno};
use crate::fdtable;
use crate::process::Offload;
use crate::real;
use crate::slab::Key;
use crate::socket::Family;
use crate::socket::address::{self, Address};

/// Datagrams of one socket that one look takes.
const DATAGRAMS_MAX: usize = 64;
/// The longest.
const BYTES_MAX: usize = u16::MAX as usize;

impl Offload {
    /// Writes what the kernel has for a ring's sockets behind what waits there, until that is so many packets.
    ///
    /// # Errors
    /// EMSGSIZE: one was longer than a record, and is lost.
    pub(super) fn take_from_kernel(&mut self, ring: Key, now: Instant, max: usize) -> Result<(), Errno> {
        let Self { cyclic, sockets, .. } = self;
        let Some(cyclic) = cyclic.find(ring) else { return Ok(()) };
        let saved = errno::current();
        let before = cyclic.buffer.waiting();
        let taken = crate::boundary!(Ok(()), {
            let members = core::mem::take(&mut cyclic.members);
            let all = members.iter().filter_map(|&member| sockets.get(member));
            let mut taken = Ok(());
            for socket in all {
                let bound = socket.bound.unwrap_or(address::any(socket.family));
                taken = cyclic.take_from((socket.fd, socket.family, bound), now, max);
                if taken.is_err() {
                    break;
                }
            }
            cyclic.members = members;
            taken
        });
        if cyclic.buffer.waiting() > before {
            self.kernel_delivered(ring);
        }
        errno::set(saved);
        taken
    }
}

impl CyclicRing {
    fn take_from(&mut self, (fd, family, to): (c_int, Family, SocketAddr), now: Instant, max: usize) -> Result<(), Errno> {
        let mut bytes = [0u8; 2048];
        let mut long = Vec::new();
        for _ in 0..DATAGRAMS_MAX {
            // SAFETY: no byte is written; MSG_TRUNC tells the whole length.
            let len = unsafe { real::recv(fd, ptr::null_mut(), 0, libc::MSG_DONTWAIT | libc::MSG_PEEK | libc::MSG_TRUNC) };
            // (Its error, if it has one, is its own.)
            let Ok(len) = usize::try_from(len) else { return Ok(()) };
            if self.buffer.waiting() >= max {
                return Ok(());
            }
            let headers = made_up_headers(to, to, len);
            if self.buffer.waiting() == 0 {
                // All before the end was given out: this call may go back to the beginning.
                self.buffer.rewind_at_end();
            }
            let mut offered = self.buffer.offer(headers.len(), len);
            if offered == Err(Refused::End) && self.buffer.waiting() == 0 {
                self.buffer.rewind_at_end();
                offered = self.buffer.offer(headers.len(), len);
            }
            if offered == Err(Refused::End) {
                return Ok(());
            }
            let room = if len > bytes.len() {
                long.resize(BYTES_MAX, 0);
                &mut long[..]
            } else {
                &mut bytes[..]
            };
            let Some((len, from)) = receive(fd, family, room) else { return Ok(()) };
            fdtable::count_kernel_rx(fd);
            if offered.is_err() {
                return Err(Errno(libc::EMSGSIZE));
            }
            let from = from.unwrap_or(to);
            // (What takes both families says so by an address of IPv6's.)
            let to = if from.is_ipv4() && to.ip().is_unspecified() { SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), to.port()) } else { to };
            let headers = made_up_headers(from, to, len);
            let packet = Packet::<RxBuf> { headers: &headers, copied: [&room[..len], &[]], buffers: &[], received: now };
            // (It was offered; if another thread has taken that one, and the next is longer, it is lost as a longer one is.)
            self.buffer.write(&packet).map_err(|_| Errno(libc::EMSGSIZE))?;
        }
        Ok(())
    }
}

/// The next datagram: its length, and who sent it.
fn receive(fd: c_int, family: Family, room: &mut [u8]) -> Option<(usize, Option<SocketAddr>)> {
    // SAFETY: all of it is integers, for which zero is a value.
    let mut name: sockaddr_storage = unsafe { core::mem::zeroed() };
    let mut name_len = size_of::<sockaddr_storage>() as socklen_t;
    let at = (&raw mut name).cast();
    // SAFETY: there is as much room as it says, for both.
    let got = unsafe { real::recvfrom(fd, room.as_mut_ptr().cast(), room.len(), libc::MSG_DONTWAIT, at, &raw mut name_len) };
    let got = usize::try_from(got).ok()?;
    // SAFETY: the structure is longer than any address that the kernel writes.
    let from = match unsafe { address::read((&raw const name).cast(), name_len, family) } {
        Address::Ip(from) => Some(from),
        _ => None,
    };
    Some((got, from))
}
