//! Send work queue entries: what the bytes say, and which rule they break.
//!
//! An entry is `ds` units of 16 bytes: a control segment, then segments by opcode and type of queue pair, then the list of what is sent.
//! It occupies whole blocks of 64 bytes, and goes on at the queue's first block where the queue ends ([`QueueBuffer::read`](super::queues::QueueBuffer::read)).

mod control;
mod ethernet;
mod list;
mod transport;

#[cfg(test)]
mod tests;

pub use control::Control;
pub use ethernet::{Ethernet, HeaderField};
pub use list::{DataSegment, Piece};
pub use transport::{AddressVector, Atomic, Grh, Remote};

use super::constants as c;
use super::violation::Violation;

/// Type of a queue pair, by which opcodes and segments differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// Ethernet frames.
    Raw,
    /// Reliable connection.
    Rc,
    /// Unreliable connection.
    Uc,
    /// Unreliable datagrams.
    Ud,
}

/// What the card knows of a queue when it reads an entry.
#[derive(Clone, Copy, Debug)]
pub struct SendRules {
    /// Type of the queue pair.
    pub transport: Transport,
    /// Its number, 24 bits; the entry must name it.
    pub qpn: u32,
    /// Bytes of headers that a frame must have in line; 0 or [`ETH_INLINE_L2`](c::ETH_INLINE_L2).
    pub inline_min: usize,
    /// Most units of 16 bytes in an entry, up to [`DS_MAX`](c::DS_MAX).
    pub ds_max: u8,
    /// Longest frame, bytes.
    pub frame_max: u32,
    /// Most payload of a large send, bytes.
    pub tso_max: u32,
    /// Frames in a legacy multi-packet send at most; 0 where the card has none.
    pub mpw_max: usize,
    /// The card has enhanced multi-packet sends.
    pub enhanced_mpw: bool,
}

/// A well-formed entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SendWqe {
    /// Its first segment.
    pub control: Control,
    /// The rest.
    pub body: Body,
}

/// What an entry asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// Nothing, and perhaps a completion.
    Nop,
    /// One frame: the headers in line, then the list.
    Frame(Ethernet, Vec<Piece>),
    /// A frame cut into segments of `mss` bytes of the list, each behind a copy of the headers in line.
    Segmented(Ethernet, Vec<Piece>),
    /// Several frames, one a piece, with the same offloads.
    Frames(Ethernet, Vec<Piece>),
    /// A send, with immediate data or a key to invalidate in the control segment.
    Send(Option<AddressVector>, Vec<Piece>),
    /// A write, with immediate data in the control segment if the opcode says so.
    Write(Remote, Vec<Piece>),
    /// A read into the list.
    Read(Remote, Vec<DataSegment>),
    /// An atomic, whose result goes into the segment.
    Atomic(Remote, Atomic, DataSegment),
}

impl SendWqe {
    /// Reads an entry of `bytes`, which are `ds` units long by its control segment, at block `index` of a queue.
    ///
    /// # Errors
    /// The rule that it breaks. Rules are looked at in the order of the bytes.
    pub fn parse(bytes: &[u8], index: u16, rules: &SendRules) -> Result<Self, Violation> {
        let short = |ds| Violation::BadDs { ds, min: 1, max: rules.ds_max };
        let (first, rest) = bytes.split_first_chunk().ok_or(short(0))?;
        let control = Control::decode(first);
        control.check(index, rules)?;
        let rest = rest.get(..(usize::from(control.ds) - 1) * c::DS_UNIT).ok_or(short(control.ds))?;
        let body = match rules.transport {
            _ if control.opcode == c::OPCODE_NOP => Body::Nop,
            Transport::Raw => raw(&control, rest, rules)?,
            Transport::Rc | Transport::Uc | Transport::Ud => message(&control, rest, rules)?,
        };
        Ok(Self { control, body })
    }

    /// The bytes of it, as a driver writes them: as many as `ds` says, which is counted anew.
    pub fn encode(&self) -> Vec<u8> {
        let mut rest = Vec::new();
        let list = |pieces: &[Piece]| pieces.iter().flat_map(Piece::encode).collect::<Vec<u8>>();
        match &self.body {
            Body::Nop => {}
            Body::Frame(ethernet, pieces) | Body::Segmented(ethernet, pieces) | Body::Frames(ethernet, pieces) => {
                rest.extend(ethernet.encode());
                rest.extend(list(pieces));
            }
            Body::Send(vector, pieces) => {
                rest.extend(vector.iter().flat_map(AddressVector::encode));
                rest.extend(list(pieces));
            }
            Body::Write(remote, pieces) => {
                rest.extend(remote.encode());
                rest.extend(list(pieces));
            }
            Body::Read(remote, segments) => {
                rest.extend(remote.encode());
                rest.extend(segments.iter().flat_map(DataSegment::encode));
            }
            Body::Atomic(remote, operands, segment) => {
                rest.extend(remote.encode());
                rest.extend(operands.encode());
                rest.extend(segment.encode());
            }
        }
        let ds = u8::try_from(1 + rest.len() / c::DS_UNIT).unwrap_or(c::DS_MAX).min(c::DS_MAX);
        let mut bytes = Control { ds, ..self.control }.encode().to_vec();
        bytes.extend(rest);
        bytes
    }

    /// Blocks of the queue that it occupies.
    pub fn blocks(&self) -> u16 {
        self.control.blocks()
    }
}

/// An entry of a raw queue pair, behind its control segment.
fn raw(control: &Control, rest: &[u8], rules: &SendRules) -> Result<Body, Violation> {
    let (ethernet, list) = Ethernet::decode(rest, control, rules)?;
    let pieces = list::pieces(list, control, rules)?;
    match (control.opcode, control.opmod) {
        (c::OPCODE_SEND, _) => ethernet::frame(ethernet, pieces, rules),
        (c::OPCODE_TSO, c::OPMOD_MPW) => ethernet::legacy_frames(ethernet, pieces, rules),
        (c::OPCODE_TSO, _) => ethernet::segmented(ethernet, pieces, rules),
        _ => ethernet::enhanced_frames(ethernet, pieces, rules),
    }
}

/// An entry of another queue pair, behind its control segment.
fn message(control: &Control, rest: &[u8], rules: &SendRules) -> Result<Body, Violation> {
    let mut rest = rest;
    let vector = match rules.transport {
        Transport::Ud => Some(AddressVector::take(&mut rest, control, rules)?),
        _ => None,
    };
    match control.opcode {
        c::OPCODE_RDMA_WRITE | c::OPCODE_RDMA_WRITE_IMM => {
            let remote = Remote::take(&mut rest, control, rules)?;
            Ok(Body::Write(remote, list::message(rest, control, rules)?))
        }
        c::OPCODE_RDMA_READ => {
            let remote = Remote::take(&mut rest, control, rules)?;
            Ok(Body::Read(remote, list::only_memory(list::message(rest, control, rules)?, control.opcode)?))
        }
        c::OPCODE_ATOMIC_CS | c::OPCODE_ATOMIC_FA => {
            let remote = Remote::take(&mut rest, control, rules)?;
            let operands = Atomic::take(&mut rest, control, rules)?;
            let segments = list::only_memory(list::message(rest, control, rules)?, control.opcode)?;
            match segments[..] {
                [segment] if segment.len() == 8 && remote.addr.is_multiple_of(8) => Ok(Body::Atomic(remote, operands, segment)),
                _ => Err(Violation::BadAtomic { pieces: segments.len(), bytes: segments.iter().map(DataSegment::len).sum() }),
            }
        }
        _ => Ok(Body::Send(vector, list::message(rest, control, rules)?)),
    }
}

/// Takes a segment of `N` bytes off the front of `rest`.
fn take<'a, const N: usize>(rest: &mut &'a [u8], control: &Control, rules: &SendRules) -> Result<&'a [u8; N], Violation> {
    let used = usize::from(control.ds) - rest.len() / c::DS_UNIT;
    let needed = used + N.div_ceil(c::DS_UNIT);
    let short = Violation::BadDs { ds: control.ds, min: u8::try_from(needed).unwrap_or(u8::MAX), max: rules.ds_max };
    let (segment, behind) = rest.split_first_chunk().ok_or(short)?;
    *rest = behind;
    Ok(segment)
}
