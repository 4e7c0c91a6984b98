//! How often what took how long, to about 3 %.

use core::time::Duration;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Buckets between a number and its double: 2 to this many.
const FINENESS_BITS: u32 = 5;

/// Durations by magnitude: mergeable, and small whatever their number.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Histogram {
    buckets: BTreeMap<u32, u64>,
}

impl Histogram {
    /// Counts one.
    pub fn add(&mut self, took: Duration) {
        *self.buckets.entry(bucket(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX))).or_default() += 1;
    }

    /// Counts all of another one's.
    pub fn merge(&mut self, other: &Self) {
        for (&bucket, &count) in &other.buckets {
            *self.buckets.entry(bucket).or_default() += count;
        }
    }

    /// How many were counted.
    pub fn count(&self) -> u64 {
        self.buckets.values().sum()
    }

    /// The duration that `per_mille` thousandths of them did not exceed, to the precision of a bucket. Zero if there are none.
    pub fn quantile(&self, per_mille: u64) -> Duration {
        let wanted = (self.count() * per_mille.min(1000)).div_ceil(1000).max(1);
        let mut seen = 0;
        for (&bucket, &count) in &self.buckets {
            seen += count;
            if seen >= wanted {
                return Duration::from_nanos(middle(bucket));
            }
        }
        Duration::ZERO
    }
}

/// The bucket of a number: its magnitude and the bits after its first.
fn bucket(ns: u64) -> u32 {
    let magnitude = (u64::BITS - 1).saturating_sub(ns.leading_zeros());
    if magnitude < FINENESS_BITS {
        return u32::try_from(ns).unwrap_or(0);
    }
    let fraction = u32::try_from((ns >> (magnitude - FINENESS_BITS)) & ((1 << FINENESS_BITS) - 1)).unwrap_or(0);
    ((magnitude - FINENESS_BITS + 1) << FINENESS_BITS) | fraction
}

/// A number amid a bucket.
fn middle(bucket: u32) -> u64 {
    let (upper, fraction) = (bucket >> FINENESS_BITS, u64::from(bucket & ((1 << FINENESS_BITS) - 1)));
    if upper == 0 {
        return fraction;
    }
    let width = 1_u64 << (upper - 1);
    ((1 << FINENESS_BITS) | fraction) * width + width / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_near_its_buckets_middle() {
        for ns in [0, 1, 31, 32, 33, 1000, 123_456, 40_000_000, u64::from(u32::MAX), 9_000_000_000_000_000_000] {
            let found = middle(bucket(ns));
            assert!(found.abs_diff(ns) <= ns / 32, "{ns} became {found}");
        }
        assert!((0..100_000).map(bucket).is_sorted());
    }

    #[test]
    fn quantiles_of_what_was_merged() {
        let (mut low, mut high) = (Histogram::default(), Histogram::default());
        (1..=98).for_each(|_| low.add(Duration::from_millis(10)));
        (1..=2).for_each(|_| high.add(Duration::from_secs(1)));
        low.merge(&high);
        assert_eq!(low.count(), 100);
        let near = |a: Duration, b: Duration| a.abs_diff(b) < b / 30;
        assert!(near(low.quantile(500), Duration::from_millis(10)));
        assert!(near(low.quantile(980), Duration::from_millis(10)));
        assert!(near(low.quantile(990), Duration::from_secs(1)));
        assert_eq!(Histogram::default().quantile(500), Duration::ZERO);
    }
}
