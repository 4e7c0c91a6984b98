//! Packet sequence numbers: 24 bits that wrap (IBTA spec, volume 1, s9.7.1).

use core::ops::{Add, AddAssign, Sub};

const MASK: u32 = 0x00ff_ffff;
const HALF: u32 = 0x0080_0000;

/// A packet sequence number. It has no total order (and so no `Ord`): of two, the one that is less than half the space ahead is the later.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Psn(u32);

impl Psn {
    /// The number of the low 24 bits of `value`.
    #[inline]
    pub const fn new(value: u32) -> Self {
        Self(value & MASK)
    }

    /// Its value: 24 bits.
    #[inline]
    pub const fn value(self) -> u32 {
        self.0
    }

    /// How far `self` is ahead of `base`, from 0 to 2^24 - 1.
    #[inline]
    pub const fn distance(self, base: Self) -> u32 {
        self.0.wrapping_sub(base.0) & MASK
    }

    /// Whether `self` comes before `other`.
    #[inline]
    pub const fn lt(self, other: Self) -> bool {
        self.distance(other) >= HALF
    }

    /// Whether `self` comes before `other` or is it.
    #[inline]
    pub const fn le(self, other: Self) -> bool {
        !other.lt(self)
    }

    /// Whether `self` lies in `[start, end)`.
    #[inline]
    pub const fn within(self, start: Self, end: Self) -> bool {
        self.distance(start) < end.distance(start)
    }
}

impl Add<u32> for Psn {
    type Output = Self;
    #[inline]
    fn add(self, packets: u32) -> Self {
        Self::new(self.0.wrapping_add(packets))
    }
}

impl AddAssign<u32> for Psn {
    #[inline]
    fn add_assign(&mut self, packets: u32) {
        *self = *self + packets;
    }
}

impl Sub<u32> for Psn {
    type Output = Self;
    #[inline]
    fn sub(self, packets: u32) -> Self {
        Self::new(self.0.wrapping_sub(packets))
    }
}
