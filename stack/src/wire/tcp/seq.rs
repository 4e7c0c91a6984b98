//! Sequence numbers: 32 bits that wrap (RFC 9293 s3.4).

use core::ops::{Add, AddAssign, Sub};

/// A sequence number. It has no total order (and so no `Ord`): of two, the one that is less than half the space ahead is
/// the greater.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SeqNumber(pub u32);

impl SeqNumber {
    /// Whether `self` comes before `other`.
    #[inline]
    pub const fn lt(self, other: Self) -> bool {
        (self.0.wrapping_sub(other.0) as i32) < 0
    }

    /// Whether `self` comes before `other` or is it.
    #[inline]
    pub const fn le(self, other: Self) -> bool {
        (self.0.wrapping_sub(other.0) as i32) <= 0
    }

    /// Whether `self` comes after `other`.
    #[inline]
    pub const fn gt(self, other: Self) -> bool {
        (self.0.wrapping_sub(other.0) as i32) > 0
    }

    /// Whether `self` comes after `other` or is it.
    #[inline]
    pub const fn ge(self, other: Self) -> bool {
        (self.0.wrapping_sub(other.0) as i32) >= 0
    }

    /// Whether `self` lies in `[start, end)`.
    #[inline]
    pub const fn within(self, start: Self, end: Self) -> bool {
        self.0.wrapping_sub(start.0) < end.0.wrapping_sub(start.0)
    }

    /// The later of the two.
    #[inline]
    pub const fn max(self, other: Self) -> Self {
        if self.lt(other) { other } else { self }
    }

    /// The earlier of the two.
    #[inline]
    pub const fn min(self, other: Self) -> Self {
        if self.gt(other) { other } else { self }
    }

    /// How far `self` is ahead of `earlier`; zero if it is behind.
    #[inline]
    pub const fn since(self, earlier: Self) -> usize {
        if self.gt(earlier) { self.0.wrapping_sub(earlier.0) as usize } else { 0 }
    }
}

/// Lengths count modulo the sequence space.
impl Add<usize> for SeqNumber {
    type Output = Self;
    #[inline]
    fn add(self, len: usize) -> Self {
        Self(self.0.wrapping_add(len as u32))
    }
}

impl AddAssign<usize> for SeqNumber {
    #[inline]
    fn add_assign(&mut self, len: usize) {
        *self = *self + len;
    }
}

impl Sub<usize> for SeqNumber {
    type Output = Self;
    #[inline]
    fn sub(self, len: usize) -> Self {
        Self(self.0.wrapping_sub(len as u32))
    }
}
