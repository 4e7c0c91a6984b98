//! TCP's options, in Linux's order and padding.

use super::fast_open::{self, Cookie, FastOpen};
use super::{STAMPS_LEN, SeqNumber};
use crate::wire::be16;

const END: u8 = 0;
const NOP: u8 = 1;
const MSS: u8 = 2;
const WINDOW_SCALE: u8 = 3;
const SACK_PERMITTED: u8 = 4;
const SACK: u8 = 5;
const TIMESTAMPS: u8 = 8;

/// The most bytes of options: the data offset counts to 60.
const LEN_MAX: usize = 40;

/// A range of bytes that arrived: `start` included, `end` not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SackBlock {
    /// The first byte.
    pub start: SeqNumber,
    /// The byte behind the last.
    pub end: SeqNumber,
}

/// At most four blocks: as many as fit into a header.
#[derive(Clone, Copy, Debug, Default)]
pub struct SackBlocks {
    blocks: [SackBlock; 4],
    /// Invariant: at most 4, or [`COOKIE`] and more: then there are no blocks, and a cookie lies in their place ([`Options::fast_open`]).
    len: u8,
}

/// A SYN has no blocks, and nothing but a SYN has a cookie: so no header is longer for it. Beside the mark: the cookie's length, and the form.
const COOKIE: u8 = 0x80;
const EXPERIMENTAL: u8 = 0x40;
const COOKIE_LEN: u8 = 0x1f;

impl SackBlocks {
    /// Adds a block; `false` if four are there already.
    #[inline]
    pub fn push(&mut self, block: SackBlock) -> bool {
        debug_assert!(self.len < COOKIE, "a SYN has no blocks");
        let Some(slot) = self.blocks.get_mut(usize::from(self.len)) else { return false };
        *slot = block;
        self.len += 1;
        true
    }

    /// The blocks, in the order of the header.
    #[inline]
    pub fn as_slice(&self) -> &[SackBlock] {
        // (The last is a comparison that the limit needs anyway.)
        let len = usize::from(self.len);
        &self.blocks[..if len <= 4 { len } else { 0 }]
    }

    /// Whether there are none. (Of a SYN with a cookie nobody asks.)
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    fn hold(&mut self, option: &FastOpen) {
        let bytes = option.cookie.as_ref().map_or(&[][..], Cookie::as_slice);
        let mut padded = [0; Cookie::LEN_MAX];
        padded[..bytes.len()].copy_from_slice(bytes);
        for (block, eight) in self.blocks.iter_mut().zip(padded.chunks_exact(8)) {
            let number = |at: usize| SeqNumber(u32::from_be_bytes([eight[at], eight[at + 1], eight[at + 2], eight[at + 3]]));
            *block = SackBlock { start: number(0), end: number(4) };
        }
        self.len = COOKIE | bytes.len() as u8 | if option.is_experimental { EXPERIMENTAL } else { 0 };
    }

    fn held(&self) -> Option<FastOpen> {
        if self.len < COOKIE {
            return None;
        }
        let mut padded = [0; Cookie::LEN_MAX];
        for (block, eight) in self.blocks.iter().zip(padded.chunks_exact_mut(8)) {
            eight[..4].copy_from_slice(&block.start.0.to_be_bytes());
            eight[4..].copy_from_slice(&block.end.0.to_be_bytes());
        }
        let cookie = Cookie::new(&padded[..usize::from(self.len & COOKIE_LEN)]);
        Some(FastOpen { cookie, is_experimental: self.len & EXPERIMENTAL != 0 })
    }

    /// Drops all blocks behind the first `len`.
    #[inline]
    pub fn truncate(&mut self, len: usize) {
        if self.len < COOKIE {
            self.len = self.len.min(len.min(4) as u8);
        }
    }
}

impl PartialEq for SackBlocks {
    fn eq(&self, other: &Self) -> bool {
        self.as_slice() == other.as_slice() && self.held() == other.held()
    }
}

impl Eq for SackBlocks {}

/// A header's options.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// The sender's largest segment, on SYN only (RFC 9293 s3.7.1).
    pub mss: Option<u16>,
    /// The shift count of the sender's windows, on SYN only (RFC 7323 s2).
    pub window_scale: Option<u8>,
    /// The sender understands SACK, on SYN only (RFC 2018 s2).
    pub sack_permitted: bool,
    /// Timestamp value and echo reply (RFC 7323 s3).
    pub timestamps: Option<(u32, u32)>,
    /// What arrived out of order (RFC 2018 s3).
    pub sack: SackBlocks,
}

impl Options {
    /// What a SYN or a SYN-ACK says of Fast Open (RFC 7413).
    pub fn fast_open(&self) -> Option<FastOpen> {
        self.sack.held()
    }

    /// The same, with which it has no blocks.
    pub fn set_fast_open(&mut self, option: Option<FastOpen>) {
        self.sack = SackBlocks::default();
        if let Some(option) = option {
            self.sack.hold(&option);
        }
    }

    #[inline(always)]
    pub(super) fn parse(bytes: &[u8]) -> Self {
        let mut options = Self::default();
        match *bytes {
            [] => {}
            // Nearly every segment of an open connection.
            [NOP, NOP, TIMESTAMPS, 10, a, b, c, d, e, f, g, h] => {
                options.timestamps = Some((u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes([e, f, g, h])));
            }
            _ => options.parse_any(bytes, false),
        }
        options
    }

    /// As a stack that takes the first option it does not know for the last one.
    pub(crate) fn parse_known(bytes: &[u8]) -> Self {
        let mut options = Self::default();
        options.parse_any(bytes, true);
        options
    }

    #[cold]
    fn parse_any(&mut self, mut bytes: &[u8], known_only: bool) {
        loop {
            let (kind, len) = match *bytes {
                [] | [END, ..] => return,
                [NOP, ..] => {
                    bytes = &bytes[1..];
                    continue;
                }
                [kind, len, ..] if len >= 2 && usize::from(len) <= bytes.len() => (kind, usize::from(len)),
                // A length that leads nowhere: what follows cannot be found.
                _ => return,
            };
            // (An experiment is known by its number.)
            if known_only
                && !matches!(kind, fast_open::KIND | fast_open::EXPERIMENT_KIND | MSS | WINDOW_SCALE | SACK_PERMITTED | SACK | TIMESTAMPS)
            {
                return;
            }
            let (option, rest) = bytes.split_at(len);
            self.take(kind, &option[2..]);
            bytes = rest;
        }
    }

    fn take(&mut self, kind: u8, value: &[u8]) {
        match (kind, value) {
            (MSS, &[a, b]) => self.mss = Some(be16(a, b)),
            (WINDOW_SCALE, &[shift]) => self.window_scale = Some(shift),
            (SACK_PERMITTED, &[]) => self.sack_permitted = true,
            (TIMESTAMPS, &[a, b, c, d, e, f, g, h]) => {
                self.timestamps = Some((u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes([e, f, g, h])));
            }
            (SACK, value) if value.len() % 8 == 0 => {
                // (What has blocks is no SYN, and has no cookie to speak of.)
                if self.sack.held().is_some() {
                    self.sack = SackBlocks::default();
                }
                for block in value.chunks_exact(8) {
                    let start = SeqNumber(u32::from_be_bytes([block[0], block[1], block[2], block[3]]));
                    let end = SeqNumber(u32::from_be_bytes([block[4], block[5], block[6], block[7]]));
                    self.sack.push(SackBlock { start, end });
                }
            }
            (fast_open::KIND | fast_open::EXPERIMENT_KIND, value) if self.sack.is_empty() => {
                if let Some(option) = FastOpen::parse(kind, value) {
                    self.sack.hold(&option);
                }
            }
            _ => {}
        }
    }

    /// Bytes that the options take in a header; a multiple of 4, at most 40.
    #[inline]
    pub fn len(&self) -> usize {
        let timestamps = if self.timestamps.is_some() { STAMPS_LEN } else { 0 };
        if self.are_stamps_at_most() {
            return timestamps;
        }
        self.len_before_sack() + self.sack_len() + self.fast_open_len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn len_before_sack(&self) -> usize {
        let mss = if self.mss.is_some() { 4 } else { 0 };
        // SACK-permitted takes the place of the timestamps' padding.
        let both = match (self.sack_permitted, self.timestamps.is_some()) {
            (_, true) => 12,
            (true, false) => 4,
            (false, false) => 0,
        };
        let scale = if self.window_scale.is_some() { 4 } else { 0 };
        mss + both + scale
    }

    fn sack_fits(&self) -> usize {
        // Four bytes of padding, kind and length come before the blocks.
        let room = LEN_MAX.saturating_sub(self.len_before_sack() + 4) / 8;
        self.sack.as_slice().len().min(room)
    }

    fn sack_len(&self) -> usize {
        match self.sack_fits() {
            0 => 0,
            blocks => 4 + 8 * blocks,
        }
    }

    /// With its padding.
    fn fast_open_len(&self) -> usize {
        self.fast_open().map_or(0, |option| option.len().next_multiple_of(4))
    }

    #[inline]
    pub(super) fn emit(&self, out: &mut [u8]) -> usize {
        if self.are_stamps_at_most() {
            let Some(stamps) = self.timestamps else { return 0 };
            emit_stamps(stamps, out);
            return STAMPS_LEN;
        }
        self.emit_any(out)
    }

    /// Whether there are none, or timestamps alone.
    #[inline(always)]
    pub(crate) fn are_stamps_at_most(&self) -> bool {
        self.mss.is_none() && self.window_scale.is_none() && !self.sack_permitted && self.sack.is_empty()
    }

    #[cold]
    fn emit_any(&self, out: &mut [u8]) -> usize {
        let mut at = 0;
        let mut put = |bytes: &[u8]| {
            out[at..at + bytes.len()].copy_from_slice(bytes);
            at += bytes.len();
        };
        if let Some(mss) = self.mss {
            put(&[MSS, 4]);
            put(&mss.to_be_bytes());
        }
        match (self.sack_permitted, self.timestamps.is_some()) {
            (true, true) => put(&[SACK_PERMITTED, 2]),
            (true, false) => put(&[NOP, NOP, SACK_PERMITTED, 2]),
            (false, true) => put(&[NOP, NOP]),
            (false, false) => {}
        }
        if let Some((value, echo)) = self.timestamps {
            put(&[TIMESTAMPS, 10]);
            put(&value.to_be_bytes());
            put(&echo.to_be_bytes());
        }
        if let Some(shift) = self.window_scale {
            put(&[NOP, WINDOW_SCALE, 3, shift]);
        }
        let blocks = self.sack_fits();
        if blocks > 0 {
            put(&[NOP, NOP, SACK, 2 + 8 * blocks as u8]);
            for block in &self.sack.as_slice()[..blocks] {
                put(&block.start.0.to_be_bytes());
                put(&block.end.0.to_be_bytes());
            }
        }
        if let Some(option) = self.fast_open() {
            // (As Linux pads it: behind.)
            let (head, len) = option.head();
            put(&head[..len]);
            put(option.cookie.as_ref().map_or(&[], Cookie::as_slice));
            put(&[NOP; 4][..option.len().next_multiple_of(4) - option.len()]);
        }
        at
    }
}

/// What timestamps say that are padded so, if `bytes` are that.
#[inline(always)]
pub(in crate::wire) fn stamps(bytes: &[u8; STAMPS_LEN]) -> Option<(u32, u32)> {
    let &[p, q, kind, len, a, b, c, d, e, f, g, h] = bytes;
    let is_so = [p, q, kind, len] == [NOP, NOP, TIMESTAMPS, 10];
    is_so.then_some((u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes([e, f, g, h])))
}

/// Writes timestamps, padded to whole words as Linux does, to the front of `out`.
#[inline(always)]
pub(super) fn emit_stamps((value, echo): (u32, u32), out: &mut [u8]) {
    let out = &mut out[..STAMPS_LEN];
    out[..4].copy_from_slice(&[NOP, NOP, TIMESTAMPS, 10]);
    out[4..8].copy_from_slice(&value.to_be_bytes());
    out[8..12].copy_from_slice(&echo.to_be_bytes());
}
