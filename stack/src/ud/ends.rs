//! Between whom a frame goes: what the queue pair of the peer is found by, for a UD datagram names one.

use std::net::{IpAddr, SocketAddr};

use crate::device::Protocol;
use crate::wire::{ethernet, ipv4, ipv6};

/// Numbers of the transport protocols.
const TCP: u8 = 6;
const UDP: u8 = 17;
/// The header of an IPv6 fragment.
const FRAGMENT: u8 = 44;

/// Source and destination of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ends {
    /// Of a TCP segment or a UDP datagram: with ports.
    Flow {
        /// Which.
        protocol: Protocol,
        /// From whom.
        src: SocketAddr,
        /// To whom.
        dst: SocketAddr,
    },
    /// Of a fragment behind the first, which has no ports; or of a packet of another protocol.
    Hosts {
        /// From whom.
        src: IpAddr,
        /// To whom.
        dst: IpAddr,
        /// It is a fragment: it goes where the first one went.
        is_fragment: bool,
    },
}

impl Ends {
    /// From whom.
    pub const fn src(&self) -> IpAddr {
        match self {
            Self::Flow { src, .. } => src.ip(),
            Self::Hosts { src, .. } => *src,
        }
    }

    /// To whom.
    pub const fn dst(&self) -> IpAddr {
        match self {
            Self::Flow { dst, .. } => dst.ip(),
            Self::Hosts { dst, .. } => *dst,
        }
    }

    /// Of a frame, by its first bytes. `None`: it is not of IP, or of no such packet.
    pub fn of(frame: &[u8]) -> Option<Self> {
        let (ethernet, at) = ethernet::Header::parse(frame).ok()?;
        let packet = frame.get(at..)?;
        let (src, dst, protocol, is_later, transport) = match ethernet.ethertype {
            ethernet::ETHERTYPE_IPV4 => {
                let (ip, len) = ipv4::Header::parse(packet).ok()?;
                (IpAddr::V4(ip.src), IpAddr::V4(ip.dst), ip.protocol, ip.fragment_offset != 0, packet.get(len..)?)
            }
            ethernet::ETHERTYPE_IPV6 => {
                let (ip, len) = ipv6::Header::parse(packet).ok()?;
                let rest = packet.get(len..)?;
                let (src, dst) = (IpAddr::V6(ip.src), IpAddr::V6(ip.dst));
                match (ip.next_header, rest) {
                    // RFC 8200 s4.5: next header, reserved, and the offset in the 13 highest bits of a halfword.
                    (FRAGMENT, [protocol, _, o0, o1, _, _, _, _, inner @ ..]) => {
                        (src, dst, *protocol, u16::from_be_bytes([*o0, *o1]) >> 3 != 0, inner)
                    }
                    (protocol, _) => (src, dst, protocol, false, rest),
                }
            }
            _ => return None,
        };
        let protocol = match protocol {
            TCP => Some(Protocol::Tcp),
            UDP => Some(Protocol::Udp),
            _ => None,
        };
        match (protocol, is_later, transport) {
            (Some(protocol), false, [s0, s1, d0, d1, ..]) => {
                let port = |high: &u8, low: &u8| u16::from_be_bytes([*high, *low]);
                Some(Self::Flow { protocol, src: SocketAddr::new(src, port(s0, s1)), dst: SocketAddr::new(dst, port(d0, d1)) })
            }
            (Some(_), false, _) => None,
            _ => Some(Self::Hosts { src, dst, is_fragment: is_later }),
        }
    }
}
