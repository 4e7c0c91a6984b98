//! A write of one packet with immediate data in IPv6, which is what most of rsockets' messages are: read, and written, in one piece, as it lies there.
//!
//! What is read here is what [`super::datagram`] would read, and what is written is what it would write, byte for byte. It takes no part in deciding what a packet is:
//! whatever is not just that has to be read the other way.

use std::net::Ipv6Addr;

use super::datagram::{Crc, Path};
use super::{BTH_LEN, Reth, UDP_PORT, icrc, padding};
use crate::roce::psn::Psn;
use crate::wire::{ipv4, ipv6, udp};

const BTH: usize = ipv6::LEN + udp::LEN;
const RETH: usize = BTH + BTH_LEN;
const IMMEDIATE: usize = RETH + Reth::LEN;
/// Bytes before the payload.
const HEAD: usize = IMMEDIATE + 4;

/// RDMA WRITE Only with Immediate, of reliable connections (IBTA spec, volume 1, table 38).
const OPCODE: u8 = 0x0b;
/// In the second byte: a solicited event is asked for, or the header's version is another one.
const SOLICITED_OR_VERSION: u8 = 0x8f;
/// In the ninth byte: an acknowledgment is asked for.
const ACK_REQUEST: u8 = 0x80;

/// The packet, but for the bits that it has not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::roce) struct WriteOnly<'a> {
    pub(in crate::roce) src: Ipv6Addr,
    pub(in crate::roce) dst: Ipv6Addr,
    pub(in crate::roce) pkey: u16,
    pub(in crate::roce) dest_qp: u32,
    pub(in crate::roce) psn: Psn,
    pub(in crate::roce) ack_request: bool,
    pub(in crate::roce) address: u64,
    pub(in crate::roce) rkey: u32,
    pub(in crate::roce) immediate: u32,
    pub(in crate::roce) payload: &'a [u8],
}

#[inline(always)]
fn at<const N: usize>(head: &[u8; HEAD], offset: usize) -> [u8; N] {
    let mut bytes = [0; N];
    bytes.copy_from_slice(&head[offset..offset + N]);
    bytes
}

impl<'a> WriteOnly<'a> {
    /// Whether an IPv6 packet may be one, by its opcode.
    #[inline]
    pub(in crate::roce) fn may_be(packet: &[u8]) -> bool {
        packet.get(BTH) == Some(&OPCODE)
    }

    /// Reads an IP packet. `None`: it is another one, or has something that is to be looked at more closely.
    #[inline(always)]
    pub(in crate::roce) fn parse(packet: &'a [u8], crc_of_sender: Crc) -> Option<Self> {
        let (head, rest) = packet.split_first_chunk::<HEAD>()?;
        let (body, crc) = rest.split_last_chunk::<{ icrc::LEN }>()?;
        let udp_len = packet.len() - ipv6::LEN;
        let be16 = |offset| u16::from_be_bytes(at(head, offset));
        let be32 = |offset| u32::from_be_bytes(at(head, offset));
        let is_it = head[BTH] == OPCODE
            && head[0] >> 4 == 6
            && head[6] == ipv4::PROTOCOL_UDP
            && usize::from(be16(4)) == udp_len
            && be16(ipv6::LEN + 2) == UDP_PORT
            && usize::from(be16(ipv6::LEN + 4)) == udp_len
            && head[BTH + 1] & SOLICITED_OR_VERSION == 0
            // (Marks, and bits that mean nothing.)
            && head[BTH + 4] == 0;
        if !is_it || !body.len().is_multiple_of(4) {
            return None;
        }
        let len = body.len().checked_sub(usize::from(head[BTH + 1] >> 4 & 3))?;
        if usize::try_from(be32(RETH + 12)) != Ok(len) {
            return None;
        }
        if crc_of_sender == Crc::Computed && icrc::compute(&packet[..packet.len() - icrc::LEN], ipv6::LEN)? != *crc {
            return None;
        }
        Some(Self {
            src: at::<16>(head, 8).into(),
            dst: at::<16>(head, 24).into(),
            pkey: be16(BTH + 2),
            dest_qp: be32(BTH + 4),
            psn: Psn::new(be32(BTH + 8)),
            ack_request: head[BTH + 8] & ACK_REQUEST != 0,
            address: u64::from_be_bytes(at(head, RETH)),
            rkey: be32(RETH + 8),
            immediate: be32(IMMEDIATE),
            payload: &body[..len],
        })
    }

    /// Writes the IP packet to the front of `out`, which must have room for it, and gives its length. Source and destination are its own, all else on the way is as
    /// `path` has it.
    #[inline(always)]
    pub(in crate::roce) fn emit(&self, path: &Path, crc: Crc, out: &mut [u8]) -> Option<usize> {
        let len = self.payload.len();
        let crc_at = HEAD + len + padding(len);
        let end = crc_at + icrc::LEN;
        let out = out.get_mut(..end)?;
        let udp_len = (end - ipv6::LEN) as u16;
        let (head, body) = out.split_first_chunk_mut::<HEAD>()?;
        let header = ipv6::Header {
            src: self.src,
            dst: self.dst,
            next_header: ipv4::PROTOCOL_UDP,
            hop_limit: path.hop_limit,
            traffic_class: path.traffic_class,
            flow_label: path.flow_label,
            payload_len: udp_len,
        };
        header.emit(head);
        udp::Header { src_port: path.src_port, dst_port: UDP_PORT, len: udp_len, checksum: 0 }.emit(&mut head[ipv6::LEN..]);
        let asks = if self.ack_request { u32::from(ACK_REQUEST) << 24 } else { 0 };
        head[BTH] = OPCODE;
        head[BTH + 1] = (padding(len) as u8) << 4;
        head[BTH + 2..BTH + 4].copy_from_slice(&self.pkey.to_be_bytes());
        head[BTH + 4..BTH + 8].copy_from_slice(&(self.dest_qp & 0x00ff_ffff).to_be_bytes());
        head[BTH + 8..RETH].copy_from_slice(&(asks | self.psn.value()).to_be_bytes());
        head[RETH..RETH + 8].copy_from_slice(&self.address.to_be_bytes());
        head[RETH + 8..RETH + 12].copy_from_slice(&self.rkey.to_be_bytes());
        head[RETH + 12..IMMEDIATE].copy_from_slice(&(len as u32).to_be_bytes());
        head[IMMEDIATE..].copy_from_slice(&self.immediate.to_be_bytes());
        body[..len].copy_from_slice(self.payload);
        body[len..].fill(0);
        if crc == Crc::Computed {
            let computed = icrc::compute(&out[..crc_at], ipv6::LEN)?;
            out[crc_at..].copy_from_slice(&computed);
        }
        Some(end)
    }
}
