//! Reading and writing fields one after another. Everything is big endian.

use crate::wire::ParseError;

/// What is still to be read.
#[derive(Debug)]
pub(super) struct Reader<'a> {
    bytes: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    /// All that was not read yet.
    pub(super) const fn rest(&self) -> &'a [u8] {
        self.bytes
    }

    #[inline]
    pub(super) fn take<const N: usize>(&mut self) -> Result<[u8; N], ParseError> {
        let (first, rest) = self.bytes.split_first_chunk().ok_or(ParseError::Truncated)?;
        self.bytes = rest;
        Ok(*first)
    }

    pub(super) fn u8(&mut self) -> Result<u8, ParseError> {
        self.take().map(u8::from_be_bytes)
    }

    pub(super) fn be16(&mut self) -> Result<u16, ParseError> {
        self.take().map(u16::from_be_bytes)
    }

    #[inline]
    pub(super) fn be32(&mut self) -> Result<u32, ParseError> {
        self.take().map(u32::from_be_bytes)
    }

    /// A number of 24 bits, and the 8 bits after it.
    pub(super) fn be24_8(&mut self) -> Result<(u32, u8), ParseError> {
        self.be32().map(|word| (word >> 8, word as u8))
    }

    #[inline]
    pub(super) fn be64(&mut self) -> Result<u64, ParseError> {
        self.take().map(u64::from_be_bytes)
    }
}

/// Where the next bytes go. Its owner made sure that there is room.
#[derive(Debug)]
pub(super) struct Writer<'a> {
    out: &'a mut [u8],
    at: usize,
}

impl<'a> Writer<'a> {
    pub(super) const fn new(out: &'a mut [u8]) -> Self {
        Self { out, at: 0 }
    }

    /// How much was written.
    pub(super) const fn at(&self) -> usize {
        self.at
    }

    #[inline]
    pub(super) fn put(&mut self, bytes: &[u8]) {
        self.out[self.at..self.at + bytes.len()].copy_from_slice(bytes);
        self.at += bytes.len();
    }

    pub(super) fn be16(&mut self, value: u16) {
        self.put(&value.to_be_bytes());
    }

    pub(super) fn be32(&mut self, value: u32) {
        self.put(&value.to_be_bytes());
    }

    /// The low 24 bits of `value`, and 8 bits.
    pub(super) fn be24_8(&mut self, value: u32, low: u8) {
        self.be32(value << 8 | u32::from(low));
    }

    pub(super) fn be64(&mut self, value: u64) {
        self.put(&value.to_be_bytes());
    }
}
