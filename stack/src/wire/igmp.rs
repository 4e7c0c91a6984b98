//! IGMP messages, version 2 (RFC 2236), and the IPv4 packets around them.

use std::net::Ipv4Addr;

use super::checksum::{self, Checksum};
use super::{ParseError, first, ipv4};

/// Bytes of a message.
pub const LEN: usize = 8;
/// Bytes of an IPv4 packet that carries one: its header has the Router Alert option (RFC 2236 s2, RFC 2113).
pub const PACKET_LEN: usize = HEADER_LEN + LEN;

const HEADER_LEN: usize = ipv4::LEN + ROUTER_ALERT.len();
const ROUTER_ALERT: [u8; 4] = [0x94, 0x04, 0, 0];

const QUERY: u8 = 0x11;
const REPORT_V1: u8 = 0x12;
const REPORT_V2: u8 = 0x16;
const LEAVE: u8 = 0x17;

/// An IGMP message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message {
    /// A router asks who is a member.
    Query {
        /// Of which group; `None`: of any.
        group: Option<Ipv4Addr>,
        /// Within how many tenths of a second an answer is expected; zero, from a router of version 1, means 10 s (RFC 2236 s4).
        max_response_ds: u8,
    },
    /// Someone is a member.
    Report {
        /// Of which group.
        group: Ipv4Addr,
    },
    /// Someone is a member no longer.
    Leave {
        /// Of which group.
        group: Ipv4Addr,
    },
    /// Anything else.
    Other {
        /// The message's type.
        kind: u8,
    },
}

impl Message {
    /// Reads the message at the front of `bytes`, whose checksum is over all of them (RFC 2236 s2.3).
    ///
    /// # Errors
    /// [`ParseError::Truncated`]; [`ParseError::Malformed`]: its checksum is wrong.
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        let &[kind, max_response_ds, _, _, a, b, c, d] = first::<LEN>(bytes)?;
        if checksum::sum(bytes) != 0xffff {
            return Err(ParseError::Malformed);
        }
        let group = Ipv4Addr::new(a, b, c, d);
        Ok(match kind {
            QUERY => Self::Query { group: Some(group).filter(|group| !group.is_unspecified()), max_response_ds },
            REPORT_V1 | REPORT_V2 => Self::Report { group },
            LEAVE => Self::Leave { group },
            _ => Self::Other { kind },
        })
    }

    /// The packet, IPv4 header and all, with every checksum filled in: its time to live is 1 (RFC 2236 s2).
    pub fn emit_packet(&self, src: Ipv4Addr, dst: Ipv4Addr, id: u16) -> [u8; PACKET_LEN] {
        let header = ipv4::Header {
            src,
            dst,
            protocol: ipv4::PROTOCOL_IGMP,
            ttl: 1,
            // Internetwork control, as Linux sends it (RFC 791 s3.1).
            tos: 0xc0,
            id,
            total_len: PACKET_LEN as u16,
            dont_fragment: true,
            more_fragments: false,
            fragment_offset: 0,
            header_len: HEADER_LEN as u8,
        };
        let mut out = [0; PACKET_LEN];
        header.emit(&mut out, false);
        out[0] = 0x40 | (HEADER_LEN / 4) as u8;
        out[ipv4::LEN..HEADER_LEN].copy_from_slice(&ROUTER_ALERT);
        let sum = !checksum::sum(&out[..HEADER_LEN]);
        out[10..12].copy_from_slice(&sum.to_be_bytes());
        self.emit(&mut out[HEADER_LEN..]);
        out
    }

    fn emit(&self, out: &mut [u8]) {
        let (kind, max_response, group) = match *self {
            Self::Query { group, max_response_ds } => (QUERY, max_response_ds, group.unwrap_or(Ipv4Addr::UNSPECIFIED)),
            Self::Report { group } => (REPORT_V2, 0, group),
            Self::Leave { group } => (LEAVE, 0, group),
            Self::Other { kind } => (kind, 0, Ipv4Addr::UNSPECIFIED),
        };
        out[0] = kind;
        out[1] = max_response;
        out[4..LEN].copy_from_slice(&group.octets());
        let mut sum = Checksum::new();
        sum.add(&out[..LEN]);
        out[2..4].copy_from_slice(&sum.finish().to_be_bytes());
    }
}
