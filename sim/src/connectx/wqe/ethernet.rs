//! The Ethernet segment: offloads, and headers in line.

use super::list::{self, Piece};
use super::{Body, Control, SendRules};
use crate::connectx::constants as c;
use crate::connectx::violation::Violation;

/// Offset of the headers in the segment.
const HEADER_AT: usize = 14;
/// Bytes of an Ethernet header.
const FRAME_MIN: u64 = 14;

/// Offloads of a frame (infiniband/mlx5dv.h, `mlx5_wqe_eth_seg`; fields that are reserved there by linux/mlx5/qp.h).
///
/// It takes as many units of 16 bytes as 14 bytes and the headers need (providers/mlx5/qp.c: one without headers, two with 18 bytes).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ethernet {
    /// Offsets for the software parser: outer L4, outer L3, inner L4, inner L3, in units of two bytes.
    pub parser_offsets: [u8; 4],
    /// `ETH_*_CSUM`.
    pub cs_flags: u8,
    /// What the software parser's offsets are of.
    pub parser_flags: u8,
    /// Payload of a segment, bytes; in a legacy multi-packet send, bytes of a frame. 0 where neither is.
    pub mss: u16,
    /// For flow tables on the way out.
    pub metadata: u32,
    /// Headers, or a tag to insert.
    pub header: HeaderField,
}

/// What stands in the place of the headers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HeaderField {
    /// The frame's first bytes; may be none.
    Inline(Vec<u8>),
    /// The VLAN tag that the card puts in. The frame is in the list alone.
    InsertVlan(u16),
}

impl Ethernet {
    /// A segment with these headers, and nothing else asked for.
    pub fn with_headers(header: &[u8]) -> Self {
        let header = HeaderField::Inline(header.to_vec());
        Self { parser_offsets: [0; 4], cs_flags: 0, parser_flags: 0, mss: 0, metadata: 0, header }
    }

    /// The headers in line.
    pub fn headers(&self) -> &[u8] {
        match &self.header {
            HeaderField::Inline(bytes) => bytes,
            HeaderField::InsertVlan(_) => &[],
        }
    }

    /// Its bytes, padded to units of 16.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = self.parser_offsets.to_vec();
        out.extend([self.cs_flags, self.parser_flags]);
        out.extend(self.mss.to_be_bytes());
        out.extend(self.metadata.to_be_bytes());
        match &self.header {
            HeaderField::Inline(bytes) => {
                out.extend((bytes.len() as u16 & !c::ETH_INSERT_VLAN).to_be_bytes());
                out.extend(bytes);
            }
            HeaderField::InsertVlan(tci) => {
                out.extend(c::ETH_INSERT_VLAN.to_be_bytes());
                out.extend(tci.to_be_bytes());
            }
        }
        out.resize(out.len().next_multiple_of(c::DS_UNIT), 0);
        out
    }

    /// The segment at the front of `rest`, and what follows it.
    pub(super) fn decode<'a>(rest: &'a [u8], control: &Control, rules: &SendRules) -> Result<(Self, &'a [u8]), Violation> {
        let short = Violation::BadDs { ds: control.ds, min: 2, max: rules.ds_max };
        let head: &[u8; 16] = rest.first_chunk().ok_or(short)?;
        let [p0, p1, p2, p3, cs_flags, parser_flags, m1, m0, f3, f2, f1, f0, s1, s0, t1, t0] = *head;
        let size = u16::from_be_bytes([s1, s0]);
        let (header, end) = if size & c::ETH_INSERT_VLAN != 0 {
            (HeaderField::InsertVlan(u16::from_be_bytes([t1, t0])), c::DS_UNIT)
        } else {
            let have = usize::from(size);
            let bytes = rest.get(HEADER_AT..HEADER_AT + have).ok_or(Violation::InlineHeaderLong { have })?;
            (HeaderField::Inline(bytes.to_vec()), (HEADER_AT + have).next_multiple_of(c::DS_UNIT))
        };
        let ethernet = Self {
            parser_offsets: [p0, p1, p2, p3],
            cs_flags,
            parser_flags,
            mss: u16::from_be_bytes([m1, m0]),
            metadata: u32::from_be_bytes([f3, f2, f1, f0]),
            header,
        };
        Ok((ethernet, rest.get(end..).unwrap_or_default()))
    }
}

/// One frame.
pub(super) fn frame(ethernet: Ethernet, pieces: Vec<Piece>, rules: &SendRules) -> Result<Body, Violation> {
    let have = ethernet.headers().len();
    if have < rules.inline_min {
        return Err(Violation::InlineHeaderShort { have, need: rules.inline_min });
    }
    if ethernet.mss != 0 {
        return Err(Violation::MssWithoutTso { mss: ethernet.mss });
    }
    let bytes = have as u64 + list::total(&pieces);
    if bytes < FRAME_MIN {
        return Err(Violation::FrameShort { bytes });
    }
    within(bytes, rules.frame_max)?;
    Ok(Body::Frame(ethernet, pieces))
}

/// A large send: the headers must be in line as a whole, and at least those of Ethernet (providers/mlx5/qp.c).
pub(super) fn segmented(ethernet: Ethernet, pieces: Vec<Piece>, rules: &SendRules) -> Result<Body, Violation> {
    let (mss, header, payload) = (ethernet.mss, ethernet.headers().len(), list::total(&pieces));
    if mss == 0 || (header as u64) < FRAME_MIN || payload == 0 {
        return Err(Violation::BadTso { mss, header, payload });
    }
    within(payload, rules.tso_max)?;
    within(u64::from(mss) + header as u64, rules.frame_max)?;
    Ok(Body::Segmented(ethernet, pieces))
}

/// A legacy multi-packet send: every frame has `mss` bytes, and there are few of them. `guessed`, from open drivers' use.
pub(super) fn legacy_frames(ethernet: Ethernet, pieces: Vec<Piece>, rules: &SendRules) -> Result<Body, Violation> {
    let mss = ethernet.mss;
    let wrong = |(frame, piece): (usize, &Piece)| {
        let bytes = piece.len();
        let is_wrong = bytes != u64::from(mss) || frame >= rules.mpw_max;
        is_wrong.then_some(Violation::BadMultiPacket { frame, bytes, mss })
    };
    match pieces.iter().enumerate().find_map(wrong) {
        Some(violation) => Err(violation),
        None => enhanced_frames(ethernet, pieces, rules),
    }
}

/// A multi-packet send: no headers in line, one frame or more, each a whole one.
pub(super) fn enhanced_frames(ethernet: Ethernet, pieces: Vec<Piece>, rules: &SendRules) -> Result<Body, Violation> {
    let have = ethernet.headers().len();
    if have > 0 {
        return Err(Violation::InlineHeaderLong { have });
    }
    pieces.iter().try_for_each(|piece| within(piece.len(), rules.frame_max))?;
    match pieces.iter().map(Piece::len).min() {
        Some(bytes) if bytes >= FRAME_MIN => Ok(Body::Frames(ethernet, pieces)),
        shortest => Err(Violation::FrameShort { bytes: shortest.unwrap_or(0) }),
    }
}

/// Checks that so many bytes are no more than the card takes.
fn within(bytes: u64, max: u32) -> Result<(), Violation> {
    match bytes <= max.into() {
        true => Ok(()),
        false => Err(Violation::FrameLong { bytes, max }),
    }
}
