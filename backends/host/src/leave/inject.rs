//! Packets for a connection that the kernel has, into its input path: a raw socket whose destination is an address of our own sends them by way of `lo`, and the
//! connected socket takes them as if they had come from the network. Flow rules of the device do not see them.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::RawFd;

use ringway_stack::ring::LatePacket;
use ringway_stack::wire::checksum::Checksum;
use ringway_stack::wire::{ipv4, ipv6, tcp};

use super::repair::encode;
use crate::sleep::internal_fd;
use crate::syscall::{check, close};

/// A raw socket of IPPROTO_RAW: what is sent has its IP header (raw(7)). It needs CAP_NET_RAW.
#[derive(Debug)]
pub struct Injector {
    fd: RawFd,
    is_v6: bool,
}

impl Drop for Injector {
    fn drop(&mut self) {
        close(self.fd);
    }
}

impl Injector {
    /// In the network namespace of the calling thread.
    ///
    /// # Errors
    /// EPERM: CAP_NET_RAW is lacking; EMFILE, ENFILE, ENOMEM.
    pub fn open(is_v6: bool) -> io::Result<Self> {
        let (family, kind) =
            (if is_v6 { libc::AF_INET6 } else { libc::AF_INET }, libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK);
        // SAFETY: no memory is involved.
        let fd = internal_fd(|| check(unsafe { libc::syscall(libc::SYS_socket, family, kind, libc::IPPROTO_RAW) }))?;
        Ok(Self { fd, is_v6 })
    }

    /// Puts a packet, from its IP header on, into the input path of whoever has `local`, which it is for.
    ///
    /// # Errors
    /// Those of sendto(2).
    pub fn inject(&self, packet: &[u8], local: SocketAddr) -> io::Result<()> {
        let mut to = local;
        to.set_port(0);
        let address = encode(to, self.is_v6);
        let (flags, len) = (libc::MSG_DONTWAIT, packet.len());
        // SAFETY: packet and address are readable for their lengths.
        let sent = check(unsafe { libc::syscall(libc::SYS_sendto, self.fd, packet.as_ptr(), len, flags, address.as_ptr(), address.len()) });
        sent.map(drop)
    }
}

/// What a ring kept, as it is to be injected.
pub(super) fn late(packet: LatePacket) -> Vec<u8> {
    if packet.verified { with_checksum(packet.bytes) } else { packet.bytes }
}

/// A segment from `remote` to `local`, with its IP header.
pub(super) fn packet(remote: SocketAddr, local: SocketAddr, header: &tcp::Header, payload: &[u8]) -> Vec<u8> {
    let len = header.header_len() + payload.len();
    let mut packet = match (remote.ip(), local.ip()) {
        (IpAddr::V6(src), IpAddr::V6(dst)) => {
            let payload_len = u16::try_from(len).unwrap_or(u16::MAX);
            let (next_header, hop_limit) = (ipv4::PROTOCOL_TCP, 64);
            let ip = ipv6::Header { src, dst, next_header, hop_limit, traffic_class: 0, flow_label: 0, payload_len };
            let mut bytes = vec![0; ipv6::LEN + len];
            ip.emit(&mut bytes);
            bytes
        }
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            let ip = ipv4::Header {
                src,
                dst,
                protocol: ipv4::PROTOCOL_TCP,
                ttl: 64,
                tos: 0,
                id: 0,
                total_len: u16::try_from(ipv4::LEN + len).unwrap_or(u16::MAX),
                dont_fragment: true,
                more_fragments: false,
                fragment_offset: 0,
                header_len: ipv4::LEN as u8,
            };
            let mut bytes = vec![0; ipv4::LEN + len];
            ip.emit(&mut bytes, true);
            bytes
        }
        _ => return Vec::new(),
    };
    let at = packet.len() - len;
    let header_len = header.emit(&mut packet[at..]);
    packet[at + header_len..].copy_from_slice(payload);
    with_checksum(packet)
}

/// The packet with its TCP checksum filled in. (Of one with extension headers it stays as it is.)
fn with_checksum(mut packet: Vec<u8>) -> Vec<u8> {
    let (at, pseudo_header) = match (ipv4::Header::parse(&packet), ipv6::Header::parse(&packet)) {
        (Ok((ip, at)), _) => (at, ip.pseudo_header(packet.len().saturating_sub(at))),
        (_, Ok((ip, at))) if ip.next_header == ipv4::PROTOCOL_TCP => {
            (at, Checksum::pseudo_header_v6(ip.src, ip.dst, ipv4::PROTOCOL_TCP, packet.len() - at))
        }
        _ => return packet,
    };
    if let Some(segment) = packet.get_mut(at..)
        && segment.len() >= tcp::LEN
    {
        segment[tcp::CHECKSUM_OFFSET..][..2].fill(0);
        let mut sum = pseudo_header;
        sum.add(segment);
        segment[tcp::CHECKSUM_OFFSET..][..2].copy_from_slice(&sum.finish().to_be_bytes());
    }
    packet
}
