//! A rate: what a frame takes at it, and when the next one may leave.

use ringway_stack::Instant;

/// Bits that are still to pass at a rate since the last frame left, before the next one may.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rate {
    /// Bits a second; zero: no limit.
    bps: u64,
    /// Billionths of a bit that are owed, as of `at`.
    owed: u128,
    at: Instant,
}

impl Rate {
    /// So many bits a second from now on; what is owed is paid at the new rate.
    pub(crate) fn set(&mut self, now: Instant, bps: u64) {
        self.settle(now);
        self.bps = bps;
        if bps == 0 {
            self.owed = 0;
        }
    }

    /// Nothing is owed any more.
    pub(crate) fn forgive(&mut self, now: Instant) {
        (self.owed, self.at) = (0, now);
    }

    pub(crate) fn is_limited(&self) -> bool {
        self.bps > 0
    }

    /// A frame of so many bytes leaves.
    pub(crate) fn charge(&mut self, now: Instant, bytes: usize) {
        self.settle(now);
        if self.bps > 0 {
            self.owed += bytes as u128 * 8 * 1_000_000_000;
        }
    }

    /// When the next one may leave.
    pub(crate) fn due_at(&self) -> Instant {
        let nanos = if self.bps == 0 { 0 } else { self.owed.div_ceil(u128::from(self.bps)) };
        Instant::from_nanos(self.at.as_nanos() + u64::try_from(nanos).unwrap_or(u64::MAX / 2))
    }

    fn settle(&mut self, now: Instant) {
        let passed = now.as_nanos().saturating_sub(self.at.as_nanos());
        self.owed = self.owed.saturating_sub(u128::from(passed) * u128::from(self.bps));
        self.at = self.at.max(now);
    }
}
