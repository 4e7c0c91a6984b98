//! A RoCEv2 packet in its IP packet (IBTA spec, annex A17).

use core::ops::Range;

use super::super::bytes::Reader;
use super::{HEADERS_MAX, Header, Packet, UDP_PORT, icrc, padding};
pub use crate::device::messages::{Addresses, Path};
use crate::wire::{ParseError, ipv4, ipv6, udp};

/// Bytes that come before and after the payload at most: IPv6, UDP, transport headers, padding, CRC.
pub const OVERHEAD_MAX: usize = ipv6::LEN + udp::LEN + HEADERS_MAX + 3 + icrc::LEN;

/// A RoCEv2 packet with its IP packet's fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram<'a> {
    /// Between whom, and how.
    pub path: Path,
    /// IPv4's identification; zero in IPv6, which has none.
    pub id: u16,
    /// The packet.
    pub packet: Packet<'a>,
    /// Its IP header's bytes, as a receiver of UD sees them.
    pub ip_header: &'a [u8],
}

/// Why an IP packet is not a RoCEv2 packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DatagramError {
    /// It is something else: another protocol or port, or a fragment.
    #[error("not a RoCEv2 packet")]
    Other,
    /// A header is not what it should be.
    #[error(transparent)]
    Header(#[from] ParseError),
    /// The IPv4 header's checksum or the invariant CRC does not match: the medium is at fault.
    #[error("corrupted on the way")]
    Corrupted,
}

/// The invariant CRC of packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Crc {
    /// It is there, and is looked at.
    #[default]
    Computed,
    /// Its field is zero, and nobody looks at it: whoever carries the packets vouches for their bytes.
    LeftOut,
}

impl Path {
    /// Bytes of the IP header.
    const fn ip_len(&self) -> usize {
        match self.addresses {
            Addresses::V4 { .. } => ipv4::LEN,
            Addresses::V6 { .. } => ipv6::LEN,
        }
    }

    /// Writes an IP packet to the front of `out` and gives its length, with a payload of `payload_len` bytes that `fill` writes. `out` must
    /// have room for [`OVERHEAD_MAX`] bytes and the payload. Gives `None` if `fill` does.
    pub fn emit_with(
        &self,
        id: u16,
        crc: Crc,
        header: &Header,
        payload_len: usize,
        out: &mut [u8],
        fill: impl FnOnce(&mut [u8]) -> Option<()>,
    ) -> Option<usize> {
        let ip_len = self.ip_len();
        let at = ip_len + udp::LEN;
        let payload_at = at + header.emit(payload_len, &mut out[at..]);
        let payload_end = payload_at + payload_len;
        fill(&mut out[payload_at..payload_end])?;
        let crc_at = payload_end + padding(payload_len);
        out[payload_end..crc_at].fill(0);
        let end = crc_at + icrc::LEN;
        let udp_len = (end - ip_len) as u16;
        match self.addresses {
            Addresses::V4 { src, dst } => {
                let header = ipv4::Header {
                    src,
                    dst,
                    protocol: ipv4::PROTOCOL_UDP,
                    ttl: self.hop_limit,
                    tos: self.traffic_class,
                    id,
                    total_len: end as u16,
                    dont_fragment: true,
                    more_fragments: false,
                    fragment_offset: 0,
                    header_len: ipv4::LEN as u8,
                };
                header.emit(out, true);
            }
            Addresses::V6 { src, dst } => {
                let header = ipv6::Header {
                    src,
                    dst,
                    next_header: ipv4::PROTOCOL_UDP,
                    hop_limit: self.hop_limit,
                    traffic_class: self.traffic_class,
                    flow_label: self.flow_label,
                    payload_len: udp_len,
                };
                header.emit(out);
            }
        }
        // No checksum of UDP's own: the invariant CRC covers all of it (annex A17.3.1.4).
        udp::Header { src_port: self.src_port, dst_port: UDP_PORT, len: udp_len, checksum: 0 }.emit(&mut out[ip_len..]);
        let crc = match crc {
            Crc::Computed => icrc::compute(&out[..crc_at], ip_len)?,
            Crc::LeftOut => [0; icrc::LEN],
        };
        out[crc_at..end].copy_from_slice(&crc);
        Some(end)
    }
}

impl<'a> Datagram<'a> {
    /// Reads a whole IP packet. What lies behind the packet's own length (Ethernet's padding) is ignored; UDP's checksum is not looked at,
    /// since the invariant CRC covers more.
    ///
    /// # Errors
    /// [`DatagramError`].
    pub fn parse(bytes: &'a [u8]) -> Result<Self, DatagramError> {
        Self::parse_with(bytes, Crc::Computed)
    }

    /// The same with an invariant CRC that may be left out.
    ///
    /// # Errors
    /// [`DatagramError`].
    pub fn parse_with(bytes: &'a [u8], crc_of_sender: Crc) -> Result<Self, DatagramError> {
        let version = bytes.first().ok_or(ParseError::Truncated)? >> 4;
        let (mut path, id, ip_len, total_len) = if version == 4 { parse_v4(bytes)? } else { parse_v6(bytes)? };
        let bytes = bytes.get(..total_len).ok_or(ParseError::Truncated)?;
        let (udp, udp_len) = udp::Header::parse(&bytes[ip_len..])?;
        if udp.dst_port != UDP_PORT {
            return Err(DatagramError::Other);
        }
        path.src_port = udp.src_port;
        if usize::from(udp.len) != total_len - ip_len {
            return Err(ParseError::Malformed.into());
        }
        let (covered, crc) = bytes.split_last_chunk::<{ icrc::LEN }>().ok_or(ParseError::Truncated)?;
        if crc_of_sender == Crc::Computed && icrc::compute(covered, ip_len).ok_or(ParseError::Truncated)? != *crc {
            return Err(DatagramError::Corrupted);
        }
        let packet = Packet::parse(covered.get(ip_len + udp_len..).ok_or(ParseError::Truncated)?)?;
        Ok(Self { path, id, packet, ip_header: &bytes[..ip_len] })
    }

    /// Reads the headers of an IPv6 packet of `len` bytes whose front is `front`, which has all of them, and says where its payload lies: the packet that it gives has
    /// none. Its invariant CRC is not looked at.
    ///
    /// # Errors
    /// [`DatagramError`].
    pub(in crate::roce) fn parse_front(front: &'a [u8], len: usize) -> Result<(Self, Range<usize>), DatagramError> {
        let (mut path, id, ip_len, total_len) = parse_v6(front)?;
        let (udp, udp_len) = udp::Header::parse(&front[ip_len..])?;
        if udp.dst_port != UDP_PORT {
            return Err(DatagramError::Other);
        }
        path.src_port = udp.src_port;
        let end = total_len.checked_sub(icrc::LEN).filter(|_| total_len <= len).ok_or(ParseError::Truncated)?;
        if usize::from(udp.len) != total_len - ip_len {
            return Err(ParseError::Malformed.into());
        }
        let mut reader = Reader::new(&front[ip_len + udp_len..]);
        let (header, padding) = Header::parse(&mut reader)?;
        let at = front.len() - reader.rest().len();
        let len = header.payload_len(end.checked_sub(at).ok_or(ParseError::Truncated)?, padding)?;
        Ok((Self { path, id, packet: Packet { header, payload: &[] }, ip_header: &front[..ip_len] }, at..at + len))
    }

    /// Writes the IP packet to the front of `out`, which must have room for [`OVERHEAD_MAX`] bytes and the payload, and gives its length.
    pub fn emit(&self, out: &mut [u8]) -> usize {
        let payload = self.packet.payload;
        let fill = |out: &mut [u8]| {
            out.copy_from_slice(payload);
            Some(())
        };
        self.path.emit_with(self.id, Crc::Computed, &self.packet.header, payload.len(), out, fill).unwrap_or(0)
    }
}

type IpFields = (Path, u16, usize, usize);

fn parse_v4(bytes: &[u8]) -> Result<IpFields, DatagramError> {
    let (ip, ip_len) = ipv4::Header::parse(bytes)?;
    // The invariant CRC is defined for headers without options alone.
    if ip.protocol != ipv4::PROTOCOL_UDP || ip.is_fragment() || ip_len != ipv4::LEN {
        return Err(DatagramError::Other);
    }
    if !ipv4::verify_checksum(bytes) {
        return Err(DatagramError::Corrupted);
    }
    let addresses = Addresses::V4 { src: ip.src, dst: ip.dst };
    let path = Path { addresses, traffic_class: ip.tos, hop_limit: ip.ttl, flow_label: 0, src_port: 0 };
    Ok((path, ip.id, ip_len, usize::from(ip.total_len)))
}

fn parse_v6(bytes: &[u8]) -> Result<IpFields, DatagramError> {
    let (ip, ip_len) = ipv6::Header::parse(bytes)?;
    if ip.next_header != ipv4::PROTOCOL_UDP {
        return Err(DatagramError::Other);
    }
    let addresses = Addresses::V6 { src: ip.src, dst: ip.dst };
    let path = Path { addresses, traffic_class: ip.traffic_class, hop_limit: ip.hop_limit, flow_label: ip.flow_label, src_port: 0 };
    Ok((path, 0, ip_len, ip_len + usize::from(ip.payload_len)))
}
