//! Takes out of the kernel what it has received for a socket.

use core::ffi::c_int;
use core::mem::size_of;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use libc::{iovec, msghdr, sockaddr_in, sockaddr_in6, sockaddr_storage};
use ringway_stack::ring::Datagram;
use ringway_stack::time::Instant;

use crate::errno;
use crate::real;
use crate::socket::Family;

/// The longest datagram.
const LEN_MAX: usize = 1 << 16;
/// More than a socket asks for beside a datagram.
const CONTROL_MAX: usize = 1 << 10;
/// As many datagrams as nobody's buffer holds: who sends more than can be taken is not waited for.
const DATAGRAMS_MAX: usize = 1 << 16;

/// See the module's documentation.
pub(super) struct Taker {
    fd: c_int,
    family: Family,
    /// For whom it takes what does not say for whom it came.
    group: IpAddr,
    bytes: Vec<u8>,
    left: usize,
}

impl Taker {
    pub(super) fn new(fd: c_int, family: Family, group: IpAddr) -> Self {
        Self { fd, family, group, bytes: vec![0; LEN_MAX], left: DATAGRAMS_MAX }
    }

    /// The oldest datagram that the kernel has, and its bytes.
    pub(super) fn next(&mut self, now: Instant) -> Option<(Datagram, &[u8])> {
        self.left = self.left.checked_sub(1)?;
        // SAFETY: all of both is integers and pointers, for which zero is a value.
        let (mut name, mut message): (sockaddr_storage, msghdr) = unsafe { (core::mem::zeroed(), core::mem::zeroed()) };
        // (As words, for control messages are aligned so.)
        let mut control = [0_u64; CONTROL_MAX / 8];
        let mut piece = iovec { iov_base: self.bytes.as_mut_ptr().cast(), iov_len: self.bytes.len() };
        message.msg_name = (&raw mut name).cast();
        message.msg_namelen = size_of::<sockaddr_storage>() as libc::socklen_t;
        (message.msg_iov, message.msg_iovlen) = (&raw mut piece, 1);
        (message.msg_control, message.msg_controllen) = (control.as_mut_ptr().cast(), CONTROL_MAX as _);
        let saved = errno::current();
        // SAFETY: name, buffer and control are as long as they say.
        let received = unsafe { real::recvmsg(self.fd, &raw mut message, libc::MSG_DONTWAIT) };
        errno::set(saved);
        let len = usize::try_from(received).ok()?;
        let from = self.sender(&name)?;
        // SAFETY: the kernel has filled the message in.
        let to = unsafe { destination(&message) }.unwrap_or(self.group);
        Some((Datagram { copied: len, len, from, to, received: now, hardware_time: None, drops: 0 }, &self.bytes[..len]))
    }

    /// (A link-local address is as good as any here: what comes by the ring has such, too.)
    fn sender(&self, name: &sockaddr_storage) -> Option<SocketAddr> {
        let (ip, port) = match self.family {
            Family::V4 => {
                // SAFETY: a name of that family's, which has room in it.
                let name = unsafe { (&raw const *name).cast::<sockaddr_in>().read() };
                (IpAddr::V4(Ipv4Addr::from(u32::from_be(name.sin_addr.s_addr))), name.sin_port)
            }
            Family::V6 => {
                // SAFETY: as above.
                let name = unsafe { (&raw const *name).cast::<sockaddr_in6>().read() };
                (IpAddr::V6(Ipv6Addr::from(name.sin6_addr.s6_addr)).to_canonical(), name.sin6_port)
            }
        };
        Some(SocketAddr::new(ip, u16::from_be(port)))
    }
}

/// For whom it came, where the socket was asked to say.
///
/// # Safety
/// The kernel has filled it in.
unsafe fn destination(message: &msghdr) -> Option<IpAddr> {
    // SAFETY: the caller's promise, here and below.
    let mut at = unsafe { libc::CMSG_FIRSTHDR(message) };
    while !at.is_null() {
        // SAFETY: a control message, with its data.
        let (header, data) = unsafe { (at.read_unaligned(), libc::CMSG_DATA(at)) };
        match (header.cmsg_level, header.cmsg_type) {
            (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
                // SAFETY: what such a message has.
                let info = unsafe { data.cast::<libc::in_pktinfo>().read_unaligned() };
                return Some(IpAddr::V4(Ipv4Addr::from(u32::from_be(info.ipi_addr.s_addr))));
            }
            (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                // SAFETY: what such a message has.
                let info = unsafe { data.cast::<libc::in6_pktinfo>().read_unaligned() };
                return Some(IpAddr::V6(Ipv6Addr::from(info.ipi6_addr.s6_addr)).to_canonical());
            }
            _ => {}
        }
        // SAFETY: the caller's promise.
        at = unsafe { libc::CMSG_NXTHDR(message, at) };
    }
    None
}
