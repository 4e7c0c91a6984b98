//! RoCEv2 packets: the InfiniBand transport headers behind UDP port 4791 (IBTA spec, volume 1, chapter 9 and annex A17).
//!
//! A [`Packet`] is parsed once, into a [`Body`] that only has what its opcode has, so that no state machine has to ask whether a header is
//! there. [`datagram`] puts it into IPv4 or IPv6 with its invariant CRC; [`frame`] puts that into Ethernet.

pub mod datagram;
pub mod frame;
mod headers;
pub(in crate::roce) mod icrc;
pub(in crate::roce) mod write;

#[cfg(test)]
mod tests;

pub use headers::{Aeth, AtomicEth, Deth, NakCode, Reth, Syndrome};

use super::bytes::{Reader, Writer};
use super::psn::Psn;
use crate::wire::ParseError;

/// The UDP port of RoCEv2.
pub const UDP_PORT: u16 = 4791;
/// Bytes of a base transport header.
pub const BTH_LEN: usize = 12;
/// Bytes of the longest chain of transport headers (BTH and AtomicETH).
pub const HEADERS_MAX: usize = BTH_LEN + AtomicEth::LEN;
/// An opcode's bits that say of which transport it is (IBTA spec, table 38), and UC's; RC's are zero.
const SERVICE: u8 = 0b1110_0000;
const UC: u8 = 0b0010_0000;
/// The default partition, with full membership.
pub const PKEY_DEFAULT: u16 = 0xffff;

/// What ends a SEND.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tail {
    /// Nothing.
    #[default]
    None,
    /// 32 bits of immediate data, as a number (big endian on the wire).
    Immediate(u32),
    /// A key that the receiver is to invalidate.
    Invalidate(u32),
}

/// What a packet is: the opcode and the extended headers that it implies (IBTA spec, tables 38 and 39).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body {
    /// RC, UC: the first of several packets of a SEND.
    SendFirst,
    /// RC, UC: neither first nor last.
    SendMiddle,
    /// RC, UC: the last of several.
    SendLast(Tail),
    /// RC, UC: a SEND of one packet.
    SendOnly(Tail),
    /// RC, UC: the first of several packets of an RDMA WRITE.
    WriteFirst(Reth),
    /// RC, UC: neither first nor last.
    WriteMiddle,
    /// RC, UC: the last of several, with immediate data or without.
    WriteLast(Option<u32>),
    /// RC, UC: an RDMA WRITE of one packet, with immediate data or without.
    WriteOnly(Reth, Option<u32>),
    /// RC: asks for bytes.
    ReadRequest(Reth),
    /// RC: the first of several packets of an answer.
    ReadResponseFirst(Aeth),
    /// RC: neither first nor last.
    ReadResponseMiddle,
    /// RC: the last of several.
    ReadResponseLast(Aeth),
    /// RC: an answer of one packet.
    ReadResponseOnly(Aeth),
    /// RC: an acknowledgment, negative or not.
    Acknowledge(Aeth),
    /// RC: an atomic operation's answer, with the value that was there before.
    AtomicAcknowledge(Aeth, u64),
    /// RC: compare and swap.
    CompareSwap(AtomicEth),
    /// RC: fetch and add (`swap_add` is added).
    FetchAdd(AtomicEth),
    /// UD: a datagram, with immediate data or without.
    Datagram(Deth, Option<u32>),
    /// A congestion notification (annex A17.9.3). Its 16 bytes of payload mean nothing.
    CongestionNotification,
}

/// A base transport header and what it implies; all of a packet but its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The opcode, with its extended headers.
    pub body: Body,
    /// Its opcode is UC's, and not RC's. Invariant: only where UC has it ([`Body::is_of_uc`]).
    pub unreliable: bool,
    /// SE: the receiver is to get an event.
    pub solicited: bool,
    /// M: the state of path migration. rxe sends 0, hardware 1; nobody here looks at it.
    pub migrated: bool,
    /// The partition.
    pub pkey: u16,
    /// A forward congestion mark.
    pub fecn: bool,
    /// A backward congestion mark.
    pub becn: bool,
    /// The receiver's queue pair; 24 bits.
    pub dest_qp: u32,
    /// A: the receiver is to acknowledge.
    pub ack_request: bool,
    /// Its sequence number.
    pub psn: Psn,
}

/// A packet: headers, and payload without its padding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    /// The headers.
    pub header: Header,
    /// The payload. Invariant after parsing: empty where the opcode excludes it.
    pub payload: &'a [u8],
}

impl Body {
    /// Whether payload may follow.
    pub const fn has_payload(&self) -> bool {
        !matches!(
            self,
            Self::ReadRequest(_) | Self::Acknowledge(_) | Self::AtomicAcknowledge(..) | Self::CompareSwap(_) | Self::FetchAdd(_)
        )
    }

    /// Whether it is a responder's answer.
    pub const fn is_response(&self) -> bool {
        matches!(
            self,
            Self::ReadResponseFirst(_)
                | Self::ReadResponseMiddle
                | Self::ReadResponseLast(_)
                | Self::ReadResponseOnly(_)
                | Self::Acknowledge(_)
                | Self::AtomicAcknowledge(..)
        )
    }

    /// Whether UC has such packets, too: SENDs and RDMA writes, and keys that stay valid.
    pub const fn is_of_uc(&self) -> bool {
        match self {
            Self::SendFirst | Self::SendMiddle | Self::WriteFirst(_) | Self::WriteMiddle | Self::WriteLast(_) | Self::WriteOnly(..) => true,
            Self::SendLast(tail) | Self::SendOnly(tail) => !matches!(tail, Tail::Invalidate(_)),
            _ => false,
        }
    }

    /// Whether it is a part of an RDMA write.
    pub(super) const fn is_write(&self) -> bool {
        matches!(self, Self::WriteFirst(_) | Self::WriteMiddle | Self::WriteLast(_) | Self::WriteOnly(..))
    }

    /// The opcode; RC's of what UC has as well.
    pub const fn opcode(&self) -> u8 {
        match self {
            Self::SendFirst => 0x00,
            Self::SendMiddle => 0x01,
            Self::SendLast(Tail::None) => 0x02,
            Self::SendLast(Tail::Immediate(_)) => 0x03,
            Self::SendOnly(Tail::None) => 0x04,
            Self::SendOnly(Tail::Immediate(_)) => 0x05,
            Self::WriteFirst(_) => 0x06,
            Self::WriteMiddle => 0x07,
            Self::WriteLast(None) => 0x08,
            Self::WriteLast(Some(_)) => 0x09,
            Self::WriteOnly(_, None) => 0x0a,
            Self::WriteOnly(_, Some(_)) => 0x0b,
            Self::ReadRequest(_) => 0x0c,
            Self::ReadResponseFirst(_) => 0x0d,
            Self::ReadResponseMiddle => 0x0e,
            Self::ReadResponseLast(_) => 0x0f,
            Self::ReadResponseOnly(_) => 0x10,
            Self::Acknowledge(_) => 0x11,
            Self::AtomicAcknowledge(..) => 0x12,
            Self::CompareSwap(_) => 0x13,
            Self::FetchAdd(_) => 0x14,
            Self::SendLast(Tail::Invalidate(_)) => 0x16,
            Self::SendOnly(Tail::Invalidate(_)) => 0x17,
            Self::Datagram(_, None) => 0x64,
            Self::Datagram(_, Some(_)) => 0x65,
            Self::CongestionNotification => 0x81,
        }
    }

    /// Reads the extended headers of `opcode`.
    fn parse(opcode: u8, bytes: &mut Reader<'_>) -> Result<Self, ParseError> {
        Ok(match opcode {
            0x00 => Self::SendFirst,
            0x01 => Self::SendMiddle,
            0x02 => Self::SendLast(Tail::None),
            0x03 => Self::SendLast(Tail::Immediate(bytes.be32()?)),
            0x04 => Self::SendOnly(Tail::None),
            0x05 => Self::SendOnly(Tail::Immediate(bytes.be32()?)),
            0x06 => Self::WriteFirst(Reth::parse(bytes)?),
            0x07 => Self::WriteMiddle,
            0x08 => Self::WriteLast(None),
            0x09 => Self::WriteLast(Some(bytes.be32()?)),
            0x0a => Self::WriteOnly(Reth::parse(bytes)?, None),
            0x0b => Self::WriteOnly(Reth::parse(bytes)?, Some(bytes.be32()?)),
            0x0c => Self::ReadRequest(Reth::parse(bytes)?),
            0x0d => Self::ReadResponseFirst(Aeth::parse(bytes)?),
            0x0e => Self::ReadResponseMiddle,
            0x0f => Self::ReadResponseLast(Aeth::parse(bytes)?),
            0x10 => Self::ReadResponseOnly(Aeth::parse(bytes)?),
            0x11 => Self::Acknowledge(Aeth::parse(bytes)?),
            0x12 => Self::AtomicAcknowledge(Aeth::parse(bytes)?, bytes.be64()?),
            0x13 => Self::CompareSwap(AtomicEth::parse(bytes)?),
            0x14 => Self::FetchAdd(AtomicEth::parse(bytes)?),
            0x16 => Self::SendLast(Tail::Invalidate(bytes.be32()?)),
            0x17 => Self::SendOnly(Tail::Invalidate(bytes.be32()?)),
            0x64 => Self::Datagram(Deth::parse(bytes)?, None),
            0x65 => Self::Datagram(Deth::parse(bytes)?, Some(bytes.be32()?)),
            0x81 => Self::CongestionNotification,
            _ => return Err(ParseError::Malformed),
        })
    }

    fn emit(&self, out: &mut Writer<'_>) {
        match *self {
            Self::SendLast(tail) | Self::SendOnly(tail) => match tail {
                Tail::None => {}
                Tail::Immediate(word) | Tail::Invalidate(word) => out.put(&word.to_be_bytes()),
            },
            Self::WriteFirst(reth) | Self::WriteOnly(reth, None) | Self::ReadRequest(reth) => reth.emit(out),
            Self::WriteOnly(reth, Some(immediate)) => {
                reth.emit(out);
                out.put(&immediate.to_be_bytes());
            }
            Self::WriteLast(Some(immediate)) => out.put(&immediate.to_be_bytes()),
            Self::ReadResponseFirst(aeth) | Self::ReadResponseLast(aeth) | Self::ReadResponseOnly(aeth) | Self::Acknowledge(aeth) => {
                aeth.emit(out);
            }
            Self::AtomicAcknowledge(aeth, original) => {
                aeth.emit(out);
                out.put(&original.to_be_bytes());
            }
            Self::CompareSwap(atomic) | Self::FetchAdd(atomic) => atomic.emit(out),
            Self::Datagram(deth, immediate) => {
                deth.emit(out);
                if let Some(immediate) = immediate {
                    out.put(&immediate.to_be_bytes());
                }
            }
            Self::SendFirst
            | Self::SendMiddle
            | Self::WriteMiddle
            | Self::WriteLast(None)
            | Self::ReadResponseMiddle
            | Self::CongestionNotification => {}
        }
    }
}

impl Header {
    /// A packet to `dest_qp` in the default partition, without marks, not UC's, and not asking for an acknowledgment.
    pub const fn new(body: Body, dest_qp: u32, psn: Psn) -> Self {
        Self {
            body,
            unreliable: false,
            solicited: false,
            migrated: false,
            pkey: PKEY_DEFAULT,
            fecn: false,
            becn: false,
            dest_qp,
            ack_request: false,
            psn,
        }
    }

    /// The opcode.
    pub const fn opcode(&self) -> u8 {
        if self.unreliable { UC | self.body.opcode() } else { self.body.opcode() }
    }

    /// Writes the headers of a packet with `payload_len` bytes of payload to the front of `out`, which must have room for
    /// [`HEADERS_MAX`] bytes, and gives their length.
    pub fn emit(&self, payload_len: usize, out: &mut [u8]) -> usize {
        let mut out = Writer::new(out);
        let flags = u8::from(self.solicited) << 7 | u8::from(self.migrated) << 6 | (padding(payload_len) as u8) << 4;
        out.put(&[self.opcode(), flags]);
        out.put(&self.pkey.to_be_bytes());
        out.put(&(u32::from(self.fecn) << 31 | u32::from(self.becn) << 30 | self.dest_qp & 0x00ff_ffff).to_be_bytes());
        out.put(&(u32::from(self.ack_request) << 31 | self.psn.value()).to_be_bytes());
        self.body.emit(&mut out);
        out.at()
    }
}

impl<'a> Packet<'a> {
    /// Reads a whole packet: what lies between the UDP header and the invariant CRC. Bits that are reserved are not looked at.
    ///
    /// # Errors
    /// [`ParseError::Truncated`]; [`ParseError::Malformed`]: an opcode that is none of RC's, UC's or UD's, nor a congestion notification, another
    /// header version, a syndrome that is reserved, padding without payload, or payload where the opcode excludes it.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, ParseError> {
        let mut reader = Reader::new(bytes);
        let (header, padding) = Header::parse(&mut reader)?;
        let rest = reader.rest();
        let len = header.payload_len(rest.len(), padding)?;
        Ok(Self { header, payload: &rest[..len] })
    }

    /// Writes the packet, padded, to the front of `out`, which must have room for it, and gives its length.
    pub fn emit(&self, out: &mut [u8]) -> usize {
        let at = self.header.emit(self.payload.len(), out);
        let end = at + self.payload.len();
        out[at..end].copy_from_slice(self.payload);
        let padded = end + padding(self.payload.len());
        out[end..padded].fill(0);
        padded
    }
}

impl Header {
    /// Reads the headers, and how many bytes of padding follow the payload.
    pub(super) fn parse(reader: &mut Reader<'_>) -> Result<(Self, usize), ParseError> {
        let [opcode, flags, pkey_high, pkey_low] = reader.take()?;
        let queue = reader.be32()?;
        let sequence = reader.be32()?;
        if flags & 0x0f != 0 {
            return Err(ParseError::Malformed);
        }
        // Of UC, RC's opcodes without this bit are known.
        let unreliable = opcode & SERVICE == UC;
        let body = Body::parse(if unreliable { opcode & !UC } else { opcode }, reader)?;
        if unreliable && !body.is_of_uc() {
            return Err(ParseError::Malformed);
        }
        let header = Self {
            body,
            unreliable,
            solicited: flags & 0x80 != 0,
            migrated: flags & 0x40 != 0,
            pkey: u16::from_be_bytes([pkey_high, pkey_low]),
            fecn: queue >> 31 != 0,
            becn: queue >> 30 & 1 != 0,
            dest_qp: queue & 0x00ff_ffff,
            ack_request: sequence >> 31 != 0,
            psn: Psn::new(sequence),
        };
        Ok((header, usize::from(flags >> 4 & 3)))
    }

    /// The length of a payload that has `len` bytes with its padding.
    pub(super) fn payload_len(&self, len: usize, padding: usize) -> Result<usize, ParseError> {
        let payload = len.checked_sub(padding).ok_or(ParseError::Malformed)?;
        if !len.is_multiple_of(4) || !self.body.has_payload() && payload > 0 {
            return Err(ParseError::Malformed);
        }
        Ok(payload)
    }
}

/// The bytes that bring a payload of `len` bytes to a multiple of four.
#[inline]
pub const fn padding(len: usize) -> usize {
    len.wrapping_neg() & 3
}
