//! The list of what is sent: segments that name memory, and segments that hold the bytes themselves.

use super::{Control, SendRules, take};
use crate::connectx::constants as c;
use crate::connectx::violation::Violation;

/// Longest message, bytes (InfiniBand Architecture Specification, s9.7.7).
const MESSAGE_MAX: u64 = 1 << 31;

/// A run of memory (infiniband/mlx5dv.h, `mlx5_wqe_data_seg`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataSegment {
    /// As written, 31 bits.
    pub byte_count: u32,
    /// Key of its memory region.
    pub lkey: u32,
    /// Where it begins, in the region's addresses.
    pub addr: u64,
}

impl DataSegment {
    /// What the bytes say; bit 31 of the byte count is not part of it.
    pub fn decode(bytes: &[u8; 16]) -> Self {
        let [b3, b2, b1, b0, k3, k2, k1, k0, addr @ ..] = *bytes;
        Self {
            byte_count: u32::from_be_bytes([b3, b2, b1, b0]) & !c::INLINE_SEG,
            lkey: u32::from_be_bytes([k3, k2, k1, k0]),
            addr: u64::from_be_bytes(addr),
        }
    }

    /// The bytes of it.
    pub fn encode(&self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..4].copy_from_slice(&(self.byte_count & !c::INLINE_SEG).to_be_bytes());
        bytes[4..8].copy_from_slice(&self.lkey.to_be_bytes());
        bytes[8..].copy_from_slice(&self.addr.to_be_bytes());
        bytes
    }

    /// Bytes of it. A byte count of zero means 2 GiB (`guessed`: libmlx5 leaves such elements out, and the manual is not public here).
    pub fn len(&self) -> u64 {
        match self.byte_count {
            0 => MESSAGE_MAX,
            count => count.into(),
        }
    }

    /// Never: see [`len`](Self::len).
    pub fn is_empty(&self) -> bool {
        false
    }
}

/// An element of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// Memory.
    Memory(DataSegment),
    /// Bytes in the entry.
    Inline(Vec<u8>),
}

impl Piece {
    /// Bytes of it.
    pub fn len(&self) -> u64 {
        match self {
            Self::Memory(segment) => segment.len(),
            Self::Inline(bytes) => bytes.len() as u64,
        }
    }

    /// The memory that it names; bytes in line name none.
    pub(crate) fn memory_mut(&mut self) -> Option<&mut DataSegment> {
        match self {
            Self::Memory(segment) => Some(segment),
            Self::Inline(_) => None,
        }
    }

    /// Whether it is no byte, in line.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Its bytes as part of an entry, padded to units of 16.
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Self::Memory(segment) => segment.encode().to_vec(),
            Self::Inline(bytes) => {
                let count = bytes.len() as u32 | c::INLINE_SEG;
                let mut out = [&count.to_be_bytes(), &bytes[..]].concat();
                out.resize(out.len().next_multiple_of(c::DS_UNIT), 0);
                out
            }
        }
    }
}

/// All pieces of `rest`, whose length is a multiple of 16.
pub(super) fn pieces(mut rest: &[u8], control: &Control, rules: &SendRules) -> Result<Vec<Piece>, Violation> {
    let mut pieces = Vec::new();
    while let Some(head) = rest.first_chunk() {
        let count = u32::from_be_bytes(*head);
        if count & c::INLINE_SEG == 0 {
            pieces.push(Piece::Memory(DataSegment::decode(take(&mut rest, control, rules)?)));
            continue;
        }
        let (have, room) = (count & !c::INLINE_SEG, rest.len() - head.len());
        let end = usize::try_from(have).ok().filter(|have| *have <= room).ok_or(Violation::InlineDataLong { have, room })? + head.len();
        pieces.push(Piece::Inline(rest[head.len()..end].to_vec()));
        rest = rest.get(end.next_multiple_of(c::DS_UNIT)..).unwrap_or_default();
    }
    Ok(pieces)
}

/// All pieces of a message, which has at most 2 GiB.
pub(super) fn message(rest: &[u8], control: &Control, rules: &SendRules) -> Result<Vec<Piece>, Violation> {
    let pieces = pieces(rest, control, rules)?;
    let bytes = total(&pieces);
    if bytes > MESSAGE_MAX {
        return Err(Violation::MessageLong { bytes });
    }
    Ok(pieces)
}

/// Pieces into which the card writes.
pub(super) fn only_memory(pieces: Vec<Piece>, opcode: u8) -> Result<Vec<DataSegment>, Violation> {
    let memory = |piece| match piece {
        Piece::Memory(segment) => Ok(segment),
        Piece::Inline(_) => Err(Violation::InlineNotAllowed { opcode }),
    };
    pieces.into_iter().map(memory).collect()
}

/// Bytes of all pieces.
pub(super) fn total(pieces: &[Piece]) -> u64 {
    pieces.iter().map(Piece::len).sum()
}
