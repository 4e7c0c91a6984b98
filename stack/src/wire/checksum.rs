//! The Internet checksum (RFC 1071), as a running sum that may be taken in parts.

use std::net::{Ipv4Addr, Ipv6Addr};

/// The running sum of `bytes` as big-endian words, folded to 16 bits and not complemented. An odd last byte counts as the
/// high half of a word.
#[inline]
pub fn sum(bytes: &[u8]) -> u16 {
    // The sum is the same in either byte order, but for a swap at the end (RFC 1071 s2 (B)), and may be taken in wider words.
    let mut wide = 0u64;
    let mut blocks = bytes.chunks_exact(32);
    for block in &mut blocks {
        for word in block.chunks_exact(4) {
            wide += u64::from(u32::from_ne_bytes([word[0], word[1], word[2], word[3]]));
        }
    }
    let mut words = blocks.remainder().chunks_exact(4);
    for word in &mut words {
        wide += u64::from(u32::from_ne_bytes([word[0], word[1], word[2], word[3]]));
    }
    let mut tail = [0; 4];
    let rest = words.remainder();
    tail[..rest.len()].copy_from_slice(rest);
    wide += u64::from(u32::from_ne_bytes(tail));
    fold(wide).to_be()
}

/// Folds carries until 16 bits are left.
#[inline]
const fn fold(mut wide: u64) -> u16 {
    wide = (wide >> 32) + (wide & 0xffff_ffff);
    wide = (wide >> 32) + (wide & 0xffff_ffff);
    wide = (wide >> 16) + (wide & 0xffff);
    wide = (wide >> 16) + (wide & 0xffff);
    wide = (wide >> 16) + (wide & 0xffff);
    wide as u16
}

/// A running sum over parts of any length, which need not be even.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checksum {
    sum: u64,
    odd: bool,
}

impl Checksum {
    /// The sum over nothing.
    #[inline]
    pub const fn new() -> Self {
        Self { sum: 0, odd: false }
    }

    /// The sum over the pseudo header that TCP and UDP put before theirs (RFC 9293 s3.1, RFC 768). `len`: transport header and
    /// payload in bytes.
    #[inline]
    pub fn pseudo_header(src: Ipv4Addr, dst: Ipv4Addr, protocol: u8, len: usize) -> Self {
        let (src, dst) = (u64::from(src.to_bits()), u64::from(dst.to_bits()));
        Self { sum: src + dst + u64::from(protocol) + len as u64, odd: false }
    }

    /// The same over IPv6 (RFC 8200 s8.1), where ICMPv6 has it, too. `protocol`: of the upper layer, whatever extension headers come before
    /// it; `dst`: the final destination, whatever a routing header says.
    #[inline]
    pub fn pseudo_header_v6(src: Ipv6Addr, dst: Ipv6Addr, protocol: u8, len: usize) -> Self {
        let words = |address: Ipv6Addr| address.segments().into_iter().map(u64::from).sum::<u64>();
        // (A length of more than 16 bits is two words: their sum is what folding makes of it.)
        Self { sum: words(src) + words(dst) + u64::from(protocol) + len as u64, odd: false }
    }

    /// Adds the next bytes.
    #[inline]
    pub fn add(&mut self, bytes: &[u8]) {
        self.add_sum(sum(bytes), bytes.len());
    }

    /// Adds the next `len` bytes by their own running sum (what [`sum`] or a device's buffer gives).
    #[inline]
    pub fn add_sum(&mut self, sum: u16, len: usize) {
        // A part that begins at an odd offset has its bytes in the other halves of the words (RFC 1071 s2 (B)).
        self.sum += u64::from(if self.odd { sum.swap_bytes() } else { sum });
        self.odd ^= len % 2 == 1;
    }

    /// The sum so far, folded and not complemented. Over bytes that contain a right checksum it is 0xffff.
    #[inline]
    pub const fn folded(&self) -> u16 {
        fold(self.sum)
    }

    /// The checksum: the sum's complement.
    #[inline]
    pub const fn finish(&self) -> u16 {
        !self.folded()
    }

    /// Whether the bytes, their checksum field included, are as they were sent.
    #[inline]
    pub const fn is_good(&self) -> bool {
        self.folded() == 0xffff
    }
}
