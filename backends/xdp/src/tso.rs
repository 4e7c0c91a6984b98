//! Segmentation: a frame that is to be cut into segments leaves by a packet socket (packet(7)), as AF_XDP's queues take none that is longer than the MTU. The kernel cuts it,
//! or its interface does: one system call for all of the segments, and what the kernel's own TCP costs below its sockets, where each segment by itself is copied,
//! allocated for and handed on by itself.
//!
//! Between this and the send queue no order is kept but where the kernel sends at once what it is told of: so it is done on veth alone, which has neither a
//! queue of its own nor a zero-copy mode.

use std::io;

use ringway_host::{Fd, SendBuffer};
use ringway_stack::device::{HEAD_MAX, TxFrame, TxSlice};
use ringway_stack::wire::{ethernet, ipv4, tcp};

use crate::metadata;

/// The longest frame: an IP packet of the most bytes that there may be.
pub(crate) const FRAME_MAX: usize = ethernet::LEN + u16::MAX as usize;

/// Bytes that may be on their way out of the kernel. (A device on the same machine is quick to take them.)
const UNSENT_MAX: i32 = 4 << 20;

/// Slices, and what comes before them: the offloads, and the headers.
const PARTS_MAX: usize = ringway_stack::device::GATHER_LIMIT + 2;

/// `struct virtio_net_hdr` (include/uapi/linux/virtio_net.h), in the machine's own byte order.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Offload {
    flags: u8,
    kind: u8,
    headers_len: u16,
    segment_len: u16,
    checksum_from: u16,
    checksum_at: u16,
}

const NEEDS_CHECKSUM: u8 = 1;
const TCP_V4: u8 = 1;
const TCP_V6: u8 = 4;
/// Only the first segment has CWR (RFC 3168 s6.1.2).
const ECN: u8 = 0x80;

/// A packet socket that sends, and receives nothing.
#[derive(Debug)]
pub(crate) struct Segmenter(Fd);

impl Segmenter {
    /// On an interface, in the network namespace of the calling thread.
    pub(crate) fn open(interface: u32) -> io::Result<Self> {
        let kind = libc::SOCK_RAW | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        // SAFETY: no memory is involved. (Of no protocol: it receives nothing.)
        let fd = Fd::make(|| unsafe { libc::syscall(libc::SYS_socket, libc::AF_PACKET, kind, 0) })?;
        set(&fd, libc::SOL_PACKET, libc::PACKET_VNET_HDR, 1)?;
        set(&fd, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, UNSENT_MAX)
            .or_else(|_| set(&fd, libc::SOL_SOCKET, libc::SO_SNDBUF, UNSENT_MAX))?;
        // SAFETY: all zeroes is a valid address.
        let mut address: libc::sockaddr_ll = unsafe { core::mem::zeroed() };
        (address.sll_family, address.sll_ifindex) = (libc::AF_PACKET as u16, interface as i32);
        // SAFETY: the address is readable for its length.
        let result = unsafe { libc::syscall(libc::SYS_bind, fd.raw(), &raw const address, size_of_val(&address)) };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(Self(fd)) }
    }

    /// Sends a frame in segments of `mss` bytes of payload each.
    pub(crate) fn send(&self, frame: &TxFrame<'_, SendBuffer>, mss: u16) -> io::Result<()> {
        let mut head = [0; HEAD_MAX];
        let head = head.get_mut(..frame.head.len()).ok_or(io::ErrorKind::InvalidInput)?;
        head.copy_from_slice(frame.head);
        let offload = prepare(head, frame.len(), mss).ok_or(io::ErrorKind::InvalidInput)?;
        let empty = libc::iovec { iov_base: core::ptr::null_mut(), iov_len: 0 };
        let mut parts = [empty; PARTS_MAX];
        let slices = parts.get_mut(2..2 + frame.body.len()).ok_or(io::ErrorKind::InvalidInput)?;
        for (part, TxSlice { buffer, offset, len }) in slices.iter_mut().zip(frame.body) {
            *part = of(buffer.bytes(*offset, *len));
        }
        // SAFETY: it is ten bytes without padding, all of which were written.
        parts[0] = of(unsafe { core::slice::from_raw_parts((&raw const offload).cast(), size_of::<Offload>()) });
        parts[1] = of(head);
        // SAFETY: all zeroes is a valid message.
        let mut message: libc::msghdr = unsafe { core::mem::zeroed() };
        (message.msg_iov, message.msg_iovlen) = (parts.as_mut_ptr(), 2 + frame.body.len());
        // SAFETY: the parts are readable for their lengths, and outlive the call, which writes to none of them.
        let result = unsafe { libc::syscall(libc::SYS_sendmsg, self.0.raw(), &raw const message, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

pub(crate) fn of(bytes: &[u8]) -> libc::iovec {
    libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() }
}

/// What is to be done to a frame of `len` bytes with these headers, whose checksum is left ([`metadata::leave`]). `None`: these are no headers of TCP, or there is a VLAN tag.
fn prepare(head: &mut [u8], len: usize, mss: u16) -> Option<Offload> {
    let headers_len = head.len() as u16;
    let kind = match u16::from_be_bytes([*head.get(12)?, *head.get(13)?]) {
        ethernet::ETHERTYPE_IPV4 => TCP_V4,
        ethernet::ETHERTYPE_IPV6 => TCP_V6,
        _ => return None,
    };
    let left = metadata::leave(head, len)?;
    let transport = head.get(usize::from(left.from)..)?;
    if left.protocol != ipv4::PROTOCOL_TCP || transport.len() < tcp::LEN {
        return None;
    }
    let has_cwr = transport[13] & tcp::Flags::CWR.bits() != 0;
    Some(Offload {
        flags: NEEDS_CHECKSUM,
        kind: kind | if has_cwr { ECN } else { 0 },
        headers_len,
        segment_len: mss,
        checksum_from: left.from,
        checksum_at: left.at,
    })
}

pub(crate) fn set<T>(fd: &Fd, level: i32, name: i32, value: T) -> io::Result<()> {
    // SAFETY: the value is readable for its length.
    let result = unsafe { libc::syscall(libc::SYS_setsockopt, fd.raw(), level, name, &raw const value, size_of_val(&value)) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_is_told_where_tcp_begins_and_finds_the_sum_of_the_pseudo_header_there() {
        let mut v4 = vec![0; 14 + 20 + 32];
        v4[12..15].copy_from_slice(&[0x08, 0x00, 0x45]);
        v4[14 + 9] = 6;
        v4[14 + 12..14 + 20].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
        let told = Offload { flags: 1, kind: 1, headers_len: 66, segment_len: 1448, checksum_from: 34, checksum_at: 16 };
        assert_eq!(prepare(&mut v4, 66 + 2896, 1448), Some(told));
        // 0x0a00 + 1 + 0x0a00 + 2 + 6 + 32 + 2896
        assert_eq!(v4[34 + 16..34 + 18], 0x1f79_u16.to_be_bytes());
        v4[34 + 13] = 0x80;
        assert_eq!(prepare(&mut v4, 66 + 2896, 1448).map(|told| told.kind), Some(0x81));

        let mut v6 = vec![0; 14 + 40 + 20];
        v6[12..15].copy_from_slice(&[0x86, 0xdd, 0x60]);
        v6[14 + 6] = 6;
        (v6[14 + 23], v6[14 + 39]) = (1, 2);
        let told = Offload { flags: 1, kind: 4, headers_len: 74, segment_len: 1440, checksum_from: 54, checksum_at: 16 };
        assert_eq!((prepare(&mut v6, 74 + 3000, 1440), &v6[54 + 16..54 + 18]), (Some(told), &(1 + 2 + 6 + 3020_u16).to_be_bytes()[..]));
    }

    #[test]
    fn what_is_no_plain_tcp_is_refused() {
        let mut frame = vec![0; 66];
        assert_eq!(prepare(&mut frame, 3000, 1448), None);
        frame[12..15].copy_from_slice(&[0x08, 0x00, 0x45]);
        frame[14 + 9] = 17;
        assert_eq!(prepare(&mut frame, 3000, 1448), None);
        frame[14 + 9] = 6;
        assert!(prepare(&mut frame, 3000, 1448).is_some());
        assert_eq!(prepare(&mut frame[..50], 3000, 1448), None);
        frame[12] = 0x81;
        assert_eq!(prepare(&mut frame, 3000, 1448), None);
    }
}
