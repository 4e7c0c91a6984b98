//! The extended transport headers (IBTA spec, volume 1, s9.3 to s9.7).

use crate::roce::bytes::{Reader, Writer};
use crate::wire::ParseError;

/// RETH: which bytes of the responder's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reth {
    /// The first byte's address, as its region counts.
    pub address: u64,
    /// The region's remote key. It means nothing where `len` is zero.
    pub rkey: u32,
    /// How many bytes the whole message has.
    pub len: u32,
}

/// AtomicETH: which eight bytes, and the operands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AtomicEth {
    /// Their address.
    pub address: u64,
    /// The region's remote key.
    pub rkey: u32,
    /// The value to store, or to add.
    pub swap_add: u64,
    /// The value to compare with.
    pub compare: u64,
}

/// DETH: a datagram's sender.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Deth {
    /// The key that the receiver's queue pair must have.
    pub qkey: u32,
    /// The sender's queue pair; 24 bits.
    pub src_qp: u32,
}

/// AETH: an acknowledgment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Aeth {
    /// Positive or not.
    pub syndrome: Syndrome,
    /// How many messages the responder has completed, modulo 2^24.
    pub msn: u32,
}

/// What an acknowledgment says (IBTA spec, s9.7.5.2.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Syndrome {
    /// All up to this packet is done. The 5 bits are the encoded credits; 31: there are no credits to count.
    Ack(u8),
    /// No receive was posted. The 5 bits say how long to wait.
    RnrNak(u8),
    /// It was refused.
    Nak(NakCode),
}

/// Why a packet was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NakCode {
    /// One before it is missing.
    SequenceError,
    /// The opcode, the lengths or their order are not what they may be.
    InvalidRequest,
    /// The key, the bounds or the access rights do not allow it.
    RemoteAccess,
    /// The responder failed.
    RemoteOperational,
    /// Of reliable datagrams alone.
    InvalidRdRequest,
}

impl Reth {
    /// Bytes of the header.
    pub const LEN: usize = 16;

    pub(super) fn parse(bytes: &mut Reader<'_>) -> Result<Self, ParseError> {
        Ok(Self { address: bytes.be64()?, rkey: bytes.be32()?, len: bytes.be32()? })
    }

    pub(super) fn emit(&self, out: &mut Writer<'_>) {
        out.put(&self.address.to_be_bytes());
        out.put(&self.rkey.to_be_bytes());
        out.put(&self.len.to_be_bytes());
    }
}

impl AtomicEth {
    /// Bytes of the header.
    pub const LEN: usize = 28;

    pub(super) fn parse(bytes: &mut Reader<'_>) -> Result<Self, ParseError> {
        Ok(Self { address: bytes.be64()?, rkey: bytes.be32()?, swap_add: bytes.be64()?, compare: bytes.be64()? })
    }

    pub(super) fn emit(&self, out: &mut Writer<'_>) {
        out.put(&self.address.to_be_bytes());
        out.put(&self.rkey.to_be_bytes());
        out.put(&self.swap_add.to_be_bytes());
        out.put(&self.compare.to_be_bytes());
    }
}

impl Deth {
    /// Bytes of the header.
    pub const LEN: usize = 8;

    pub(super) fn parse(bytes: &mut Reader<'_>) -> Result<Self, ParseError> {
        Ok(Self { qkey: bytes.be32()?, src_qp: bytes.be32()? & 0x00ff_ffff })
    }

    pub(super) fn emit(&self, out: &mut Writer<'_>) {
        out.put(&self.qkey.to_be_bytes());
        out.put(&(self.src_qp & 0x00ff_ffff).to_be_bytes());
    }
}

impl Aeth {
    /// Bytes of the header.
    pub const LEN: usize = 4;

    pub(super) fn parse(bytes: &mut Reader<'_>) -> Result<Self, ParseError> {
        let word = bytes.be32()?;
        let low = (word >> 24) as u8 & 0x1f;
        let syndrome = match word >> 29 {
            0b000 => Syndrome::Ack(low),
            0b001 => Syndrome::RnrNak(low),
            0b011 => Syndrome::Nak(NakCode::from_bits(low).ok_or(ParseError::Malformed)?),
            _ => return Err(ParseError::Malformed),
        };
        Ok(Self { syndrome, msn: word & 0x00ff_ffff })
    }

    pub(super) fn emit(&self, out: &mut Writer<'_>) {
        let syndrome = match self.syndrome {
            Syndrome::Ack(credits) => credits & 0x1f,
            Syndrome::RnrNak(timer) => 0b001 << 5 | timer & 0x1f,
            Syndrome::Nak(code) => 0b011 << 5 | code as u8,
        };
        out.put(&(u32::from(syndrome) << 24 | self.msn & 0x00ff_ffff).to_be_bytes());
    }
}

impl NakCode {
    const fn from_bits(bits: u8) -> Option<Self> {
        Some(match bits {
            0 => Self::SequenceError,
            1 => Self::InvalidRequest,
            2 => Self::RemoteAccess,
            3 => Self::RemoteOperational,
            4 => Self::InvalidRdRequest,
            _ => return None,
        })
    }
}
