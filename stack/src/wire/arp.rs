//! ARP for IPv4 over Ethernet (RFC 826).

use std::net::Ipv4Addr;

use super::{ParseError, be16, first};
use crate::addr::MacAddr;

/// Bytes of a packet.
pub const LEN: usize = 28;

/// Hardware type Ethernet, protocol IPv4, address lengths 6 and 4.
const PREFIX: [u8; 6] = [0, 1, 0x08, 0x00, 6, 4];

/// What a packet wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Who has the target's IP address?
    Request,
    /// The sender has the sender's IP address.
    Reply,
}

/// An ARP packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Request or reply.
    pub operation: Operation,
    /// The sender's Ethernet address.
    pub sender_mac: MacAddr,
    /// The sender's IP address.
    pub sender_ip: Ipv4Addr,
    /// The target's Ethernet address; zero in a request.
    pub target_mac: MacAddr,
    /// The target's IP address.
    pub target_ip: Ipv4Addr,
}

impl Packet {
    /// Reads the packet at the front of `bytes`; also gives its length.
    ///
    /// # Errors
    /// [`ParseError::Truncated`]; [`ParseError::Malformed`]: other hardware, protocol or operation.
    pub fn parse(bytes: &[u8]) -> Result<(Self, usize), ParseError> {
        let b = first::<LEN>(bytes)?;
        if b[..6] != PREFIX {
            return Err(ParseError::Malformed);
        }
        let operation = match be16(b[6], b[7]) {
            1 => Operation::Request,
            2 => Operation::Reply,
            _ => return Err(ParseError::Malformed),
        };
        let packet = Self {
            operation,
            sender_mac: MacAddr([b[8], b[9], b[10], b[11], b[12], b[13]]),
            sender_ip: Ipv4Addr::new(b[14], b[15], b[16], b[17]),
            target_mac: MacAddr([b[18], b[19], b[20], b[21], b[22], b[23]]),
            target_ip: Ipv4Addr::new(b[24], b[25], b[26], b[27]),
        };
        Ok((packet, LEN))
    }

    /// Writes the packet to the front of `out`, which must have room for [`LEN`] bytes.
    pub fn emit(&self, out: &mut [u8]) -> usize {
        let operation: u16 = match self.operation {
            Operation::Request => 1,
            Operation::Reply => 2,
        };
        out[..6].copy_from_slice(&PREFIX);
        out[6..8].copy_from_slice(&operation.to_be_bytes());
        out[8..14].copy_from_slice(&self.sender_mac.0);
        out[14..18].copy_from_slice(&self.sender_ip.octets());
        out[18..24].copy_from_slice(&self.target_mac.0);
        out[24..28].copy_from_slice(&self.target_ip.octets());
        LEN
    }
}
