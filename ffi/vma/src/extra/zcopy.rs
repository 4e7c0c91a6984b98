//! `recvfrom_zcopy` and `free_packets`: receiving by reference.
//!
//! What waits is recvfrom(2) itself, asked to look and take nothing: so a blocking call ends by what ends recvfrom, and finds the kernel's half of
//! a socket as recvfrom does.

use core::ffi::{c_int, c_void};
use core::mem::size_of;
use core::ptr;

use libc::{iovec, size_t, sockaddr, socklen_t};
use ringway_stack::ring::{FlowId, Readiness};
use ringway_stack::{Error, Instant};

use super::abi::{MSG_ZCOPY, MSG_ZCOPY_FORCE, Packet, Packets};
use super::loans::{Loan, write_iovecs};
use crate::errno::{self, Errno, to_int};
use crate::exports::receive::{Sort, wait_for_data};
use crate::exports::recvfrom;
use crate::fdtable::{self, Entry};
use crate::process::{Offload, Process, process_or_init};
use crate::slab::Key;
use crate::socket::address::Raw;
use crate::socket::vectors::VECTORS_MAX;
use crate::socket::{Family, Kind, Socket, lifecycle};

/// The least room for a datagram: the headers. (An iovec that has no place is left out, as upstream does.)
const ROOM_UDP: usize = size_of::<Packets>() + size_of::<Packet>();
/// The least room for a stream: the headers, and one iovec.
const ROOM_TCP: usize = ROOM_UDP + size_of::<iovec>();

/// See the header.
pub(super) unsafe extern "C-unwind" fn recvfrom_zcopy(
    fd: c_int,
    buffer: *mut c_void,
    len: size_t,
    flags: *mut c_int,
    from: *mut sockaddr,
    from_len: *mut socklen_t,
) -> c_int {
    if flags.is_null() || (buffer.is_null() && len > 0) {
        return errno::fail(libc::EFAULT);
    }
    // SAFETY: the program's promise.
    let asked = unsafe { flags.read() };
    let plain = asked & !(MSG_ZCOPY | MSG_ZCOPY_FORCE);
    let copy = || {
        // SAFETY: the program's promise, for recvfrom(2) as for this call.
        let received = unsafe { recvfrom(fd, buffer, len, plain, from, from_len) };
        if received >= 0 {
            // SAFETY: the program's promise. (A bit that is left from the last call would have data read as packets.)
            unsafe { flags.write(asked & !MSG_ZCOPY) };
        }
        received as c_int
    };
    let or_copy = |is_socket: bool| if is_socket && asked & MSG_ZCOPY_FORCE != 0 { errno::fail(libc::EIO) } else { copy() };
    let key = match fdtable::lookup(fd) {
        Entry::Socket(key) => key,
        entry => return or_copy(matches!(entry, Entry::Kernel(_))),
    };
    // What asks for more than the next bytes is recvfrom's to do.
    let is_special = plain & (libc::MSG_PEEK | libc::MSG_OOB | libc::MSG_ERRQUEUE | libc::MSG_TRUNC) != 0;
    let Some(mut process) = process_or_init().filter(|_| !is_special) else { return or_copy(true) };
    let mut now = process.now();
    if fdtable::is_stale(fd, now) {
        crate::boundary!((), {
            lifecycle::displaced(fd, Entry::Socket(key));
        });
        return copy();
    }
    let mut out = Out { fd, key, buffer, len };
    loop {
        let saved = errno::current();
        // SAFETY: the program's promise.
        let tried = crate::bare_boundary!(Err(Errno(libc::EIO)), unsafe { out.try_to_lend((process, now), from, from_len) });
        match tried {
            Err(Errno(libc::EAGAIN)) => {}
            Err(error) => return to_int(Err(error)),
            Ok(bytes) => {
                errno::set(saved);
                // SAFETY: the program's promise.
                unsafe { flags.write(if bytes.is_some() { asked | MSG_ZCOPY } else { asked & !MSG_ZCOPY }) };
                return bytes.unwrap_or(0);
            }
        }
        match wait_for_data(fd, plain) {
            Ok(Sort::Ring | Sort::End) => {
                // (In the child of a fork that a callback made, there is another.)
                let Some(here) = process_or_init() else { return or_copy(true) };
                (process, now) = (here, here.now());
            }
            Ok(Sort::Kernel) => {
                // (That look was the one that was due: recvfrom would not make another.)
                // (As above, it may be another process.)
                crate::boundary!((), {
                    if let Some(here) = process_or_init()
                        && let Some(socket) = here.lock().sockets.find_mut(key)
                    {
                        socket.kernel_poll.hint = true;
                    }
                });
                return or_copy(true);
            }
            Err(error) => return to_int(Err(error)),
        }
    }
}

/// Where packets are written to.
struct Out {
    fd: c_int,
    key: Key,
    buffer: *mut c_void,
    len: usize,
}

impl Out {
    /// Lends what the ring has; how many bytes. `None`: the stream has ended.
    ///
    /// # Errors
    /// EAGAIN: it has nothing; ENOBUFS: no room; the socket's own.
    ///
    /// # Safety
    /// As recvfrom(2).
    unsafe fn try_to_lend(
        &mut self,
        (process, now): (&Process, Instant),
        from: *mut sockaddr,
        from_len: *mut socklen_t,
    ) -> Result<Option<c_int>, Errno> {
        let mut guard = process.lock();
        let offload = &mut *guard;
        offload.begin_lending();
        // What waits comes first: if each call polled for its one packet, the socket would fill until it drops.
        let key = self.key;
        let find = |offload: &mut Offload| {
            let next = offload.turn(key).or_else(|| offload.sockets.find(key).and_then(Socket::ring_id));
            next.filter(|&id| offload.rings.of(id).readiness(id).intersects(Readiness::IN | Readiness::ERR))
        };
        let mut found = find(offload);
        if found.is_none() {
            offload.poll_if_due(now);
            found = find(offload);
        }
        let Some(socket) = offload.sockets.find(self.key) else { return Err(Errno(libc::EBADF)) };
        let family = socket.family;
        let lent = match socket.kind {
            Kind::Datagram(Some(_)) => match found {
                // SAFETY: the caller's promise.
                Some(id) => unsafe { self.lend_datagram(offload, now, id, family, from, from_len) }.map(Some),
                None => Err(Errno(libc::EAGAIN)),
            },
            Kind::Stream(id) | Kind::Connecting(id) => {
                if !from.is_null() && !from_len.is_null() {
                    // A stream names nobody.
                    // SAFETY: the caller's promise.
                    unsafe { from_len.write(0) };
                }
                // SAFETY: the caller's promise.
                unsafe { self.lend_stream(offload, id) }
            }
            // Waiting finds out.
            Kind::Datagram(None) | Kind::Fresh | Kind::Listener(_) | Kind::Kernel | Kind::Moving => Err(Errno(libc::EAGAIN)),
        };
        offload.dispatch();
        lent
    }

    unsafe fn lend_datagram(
        &mut self,
        offload: &mut Offload,
        now: Instant,
        id: FlowId,
        family: Family,
        from: *mut sockaddr,
        from_len: *mut socklen_t,
    ) -> Result<c_int, Errno> {
        if self.len < ROOM_UDP {
            return Err(Errno(libc::ENOBUFS));
        }
        let Offload { rings, loans, .. } = offload;
        let ring = rings.of_mut(id);
        let take = |loan: &mut Loan| {
            let datagram = ring.udp_lend_each(id, |piece| loan.pieces.push(piece))?;
            (loan.ring, loan.len) = (id, datagram.len);
            // SAFETY: the room was checked.
            Ok((datagram, unsafe { self.write_pieces(0, loan) }))
        };
        let (packet_id, lent) = loans.lend((self.key, self.fd), take);
        let (datagram, (iovecs, bytes)) = match lent.unwrap_or(Err(Error::WouldBlock)) {
            Ok(lent) => lent,
            Err(error) => {
                loans.forget(packet_id);
                return Err(would_block(error));
            }
        };
        // SAFETY: the caller's promise.
        if let Err(error) = unsafe { Raw::new(datagram.from, family).write(from, from_len) } {
            // As recvfrom's, it is lost; and nobody holds it.
            loans.forget(packet_id);
            ring.give_back(now, id, datagram.len);
            return Err(error);
        }
        // SAFETY: the room was checked.
        unsafe {
            self.name(0, packet_id, iovecs);
            self.count(1);
        }
        Ok(c_int::try_from(bytes).unwrap_or(c_int::MAX))
    }

    unsafe fn lend_stream(&mut self, offload: &mut Offload, id: FlowId) -> Result<Option<c_int>, Errno> {
        if self.len < ROOM_TCP {
            return Err(Errno(libc::ENOBUFS));
        }
        let (mut at, mut packets, mut total) = (0, 0, 0);
        while let Some(room) = self.iovecs_at(at).filter(|&room| room > 0) {
            // (Asked for more than there is, it would give its error away, which is the next call's to tell.)
            if packets > 0 && offload.rings.of(id).info(id).is_none_or(|info| info.recv_queue == 0) {
                break;
            }
            let piece = match offload.rings.of_mut(id).tcp_lend(id, room, usize::MAX) {
                Ok(Some(piece)) => piece,
                Ok(None) | Err(_) if packets > 0 => break,
                Ok(None) => return Ok(None),
                Err(error) => return Err(would_block(error)),
            };
            let len = piece.len();
            let fill = |loan: &mut Loan| {
                (loan.ring, loan.len) = (id, len);
                loan.pieces.push(piece);
                // SAFETY: there is room for the header and `room` iovecs behind `at`.
                unsafe { self.write_pieces(at, loan) }
            };
            let (packet_id, written) = offload.loans.lend((self.key, self.fd), fill);
            let (iovecs, bytes) = written.unwrap_or_default();
            // SAFETY: as above.
            unsafe { self.name(at, packet_id, iovecs) };
            at += size_of::<Packet>() + iovecs * size_of::<iovec>();
            packets += 1;
            total += bytes;
        }
        // SAFETY: the room was checked.
        unsafe { self.count(packets) };
        Ok(Some(c_int::try_from(total).unwrap_or(c_int::MAX)))
    }

    /// Iovecs that there is room for in a packet `at` bytes behind the count. `None`: not even for its header.
    fn iovecs_at(&self, at: usize) -> Option<usize> {
        Some(self.len.checked_sub(ROOM_UDP + at)? / size_of::<iovec>())
    }

    /// Where a packet's header goes that is `at` bytes behind the count.
    fn header(&self, at: usize) -> *mut Packet {
        self.buffer.wrapping_byte_add(size_of::<Packets>() + at).cast()
    }

    /// Writes where a packet's bytes are: its iovecs, its bytes.
    ///
    /// # Safety
    /// The buffer is the program's, and has room for the packet's header there.
    #[inline]
    unsafe fn write_pieces(&self, at: usize, loan: &mut Loan) -> (usize, usize) {
        // SAFETY: there is room for so many.
        unsafe { write_iovecs(&mut loan.pieces, self.header(at).wrapping_add(1).cast(), self.iovecs_at(at).unwrap_or(0)) }
    }

    /// Writes a packet's header.
    ///
    /// # Safety
    /// As [`Out::write_pieces`].
    unsafe fn name(&self, at: usize, packet_id: *mut c_void, sz_iov: usize) {
        // SAFETY: the caller's promise; packed, so that it may lie anywhere.
        unsafe { self.header(at).write(Packet { packet_id, sz_iov }) };
    }

    /// # Safety
    /// The buffer is the program's, and has room for the count.
    unsafe fn count(&self, packets: usize) {
        // SAFETY: the caller's promise; packed, so that it may lie anywhere.
        unsafe { self.buffer.cast::<Packets>().write(Packets { n_packet_num: packets }) };
    }
}

fn would_block(error: Error) -> Errno {
    Errno::from(error)
}

/// See the header.
pub(super) unsafe extern "C" fn free_packets(fd: c_int, packets: *mut Packet, count: size_t) -> c_int {
    let socket = match fdtable::lookup(fd) {
        Entry::Socket(key) => Some(key),
        _ => None,
    };
    let Some(process) = process_or_init() else { return errno::fail(libc::EINVAL) };
    crate::bare_boundary!(-1, {
        let mut guard = process.lock();
        if (socket.is_none() && !guard.has_left_loans(fd)) || (packets.is_null() && count > 0) {
            return errno::fail(libc::EINVAL);
        }
        let (mut at, mut all) = (packets, true);
        for _ in 0..count {
            // SAFETY: the program's promise: so many entries lie one behind the other. Packed, so that they may lie anywhere.
            let packet = unsafe { ptr::read(at) };
            all &= guard.take_back(process, packet.packet_id, fd, socket);
            if packet.sz_iov > VECTORS_MAX {
                // No packet of ours: where the next one lies is not known.
                all = false;
                break;
            }
            at = at.wrapping_add(1).wrapping_byte_add(packet.sz_iov.wrapping_mul(size_of::<iovec>()));
        }
        guard.dispatch();
        if all { 0 } else { errno::fail(libc::ENOENT) }
    })
}

const _: () = assert!(ROOM_UDP == 24 && ROOM_TCP == 40);
