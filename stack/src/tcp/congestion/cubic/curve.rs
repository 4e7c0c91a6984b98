//! CUBIC's curve in whole numbers (RFC 9438 s4.2).

use core::time::Duration;

use crate::tcp::congestion::control::WINDOW_MAX;
use crate::tcp::fields::{Fields, SnapshotError};

/// C = 0.4 segments per cubic second (RFC 9438 s5.1: "C SHOULD be set to 0.4"), as a fraction.
const C: (u128, u128) = (2, 5);
/// Microseconds in a second, cubed.
const CUBIC_SECOND: u128 = 1_000_000_000_000_000_000;
/// Further from K than this (4.7 hours), the curve is beyond any window, and its cube still fits.
const DISTANCE_MAX_US: u64 = 1 << 34;

/// The largest number whose cube is not more than `n`.
pub(super) fn cube_root(n: u128) -> u64 {
    let mut root: u64 = 0;
    // The root of 128 bits has 43. Bit by bit from above, each one is kept if the cube stays below.
    for bit in (0..43).rev() {
        let tried = root | 1 << bit;
        let t = u128::from(tried);
        if t * t <= n / t && t * t * t <= n {
            root = tried;
        }
    }
    root
}

/// W_cubic(t) = C (t - K)³ + W_max.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Curve {
    /// Bytes.
    w_max: u64,
    k_us: u64,
}

impl Curve {
    /// From `cwnd` on: first up to `w_max`, and beyond it. K = cbrt((W_max - cwnd_epoch) / C); where W_max is not above the window, K is 0 and the
    /// curve begins at the window (s4.8, s4.10).
    pub(super) fn new(w_max: u64, cwnd: u64, mss: u64) -> Self {
        let Some(missing) = w_max.checked_sub(cwnd).filter(|missing| *missing > 0) else { return Self { w_max: cwnd, k_us: 0 } };
        let cubed = u128::from(missing.min(WINDOW_MAX)) * C.1 * CUBIC_SECOND / (C.0 * u128::from(mss));
        Self { w_max, k_us: cube_root(cubed) }
    }

    /// What it consists of, for a snapshot.
    pub(super) fn walk(&mut self, fields: &mut impl Fields) -> Result<(), SnapshotError> {
        let Self { w_max, k_us } = self;
        fields.at_most(w_max, WINDOW_MAX)?;
        fields.long(k_us)
    }

    /// The window after `t`, in bytes.
    pub(super) fn at(&self, t: Duration, mss: u64) -> u64 {
        let t_us = u64::try_from(t.as_micros()).unwrap_or(u64::MAX);
        let distance = u128::from(t_us.abs_diff(self.k_us).min(DISTANCE_MAX_US));
        let bytes = distance * distance * distance * C.0 * u128::from(mss) / (C.1 * CUBIC_SECOND);
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        if t_us < self.k_us { self.w_max.saturating_sub(bytes) } else { self.w_max.saturating_add(bytes) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MSS: u64 = 1448;

    proptest! {
        /// No floating point, and no error but that of rounding down.
        #[test]
        fn the_cube_root_is_exact_but_for_rounding_down(n in any::<u128>(), shift in 0..128u32) {
            let n = n >> shift;
            let root = u128::from(cube_root(n));
            prop_assert!(root * root * root <= n);
            let next = root + 1;
            prop_assert!(next.checked_pow(3).is_none_or(|cube| cube > n));
        }

        /// K is where the curve is at W_max again, and at its beginning it is at the window, but for the rounding of K to a microsecond.
        #[test]
        fn the_curve_begins_at_the_window_and_meets_its_maximum(cwnd in MSS..WINDOW_MAX, above in 0..WINDOW_MAX, mss in 1..65_536u64) {
            let w_max = cwnd + above;
            let curve = Curve::new(w_max, cwnd, mss);
            let start = curve.at(Duration::ZERO, mss);
            // The slope at the beginning is 3 C K², in bytes per microsecond.
            let k = u128::from(curve.k_us);
            let slack = 2 + 6 * k * k * u128::from(mss) / (5 * CUBIC_SECOND);
            prop_assert!(u128::from(start.abs_diff(cwnd)) <= slack.max(2), "{start} for {cwnd}, slack {slack}");
            prop_assert_eq!(curve.at(Duration::from_micros(curve.k_us), mss), w_max);
        }

        #[test]
        fn the_curve_never_falls(cwnd in MSS..WINDOW_MAX, above in 0..WINDOW_MAX, t in any::<u64>(), later in any::<u64>()) {
            let curve = Curve::new(cwnd + above, cwnd, MSS);
            let (a, b) = (Duration::from_micros(t), Duration::from_micros(t) + Duration::from_micros(later));
            prop_assert!(curve.at(a, MSS) <= curve.at(b, MSS));
        }
    }

    #[test]
    fn roots_at_the_edges() {
        for (n, root) in [(0, 0), (1, 1), (7, 1), (8, 2), (26, 2), (27, 3), (u128::MAX, 6_981_463_658_331)] {
            assert_eq!(cube_root(n), root);
        }
    }

    /// RFC 9438 s4.2: with C of 0.4 and a window of 70 segments below a maximum of 100, K is cbrt(75) = 4.217 seconds; a second after that, 0.4
    /// segments more.
    #[test]
    fn the_curve_of_the_equations() {
        let curve = Curve::new(100 * MSS, 70 * MSS, MSS);
        assert_eq!(curve.k_us, 4_217_163);
        assert_eq!(curve.at(Duration::from_micros(curve.k_us + 1_000_000), MSS), 100 * MSS + 2 * MSS / 5);
        assert_eq!(curve.at(Duration::from_micros(curve.k_us - 1_000_000), MSS), 100 * MSS - 2 * MSS / 5);
    }
}
