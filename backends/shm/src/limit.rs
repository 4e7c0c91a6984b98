//! Log lines that peers bring about: one of a kind in a while, however often they do.

use core::fmt;
use core::sync::atomic::{AtomicU64, Ordering};

use crate::sys;

/// Between two lines of a kind.
const INTERVAL_SECONDS: u64 = 10;

/// One kind of lines.
pub(crate) struct Limit {
    /// When the next may be written, in seconds of the monotonic clock.
    next: AtomicU64,
    left_out: AtomicU64,
}

impl Limit {
    pub(crate) const fn new() -> Self {
        Self { next: AtomicU64::new(0), left_out: AtomicU64::new(0) }
    }

    /// Whether to write one now: then it ends with what this gives.
    pub(crate) fn pass(&self) -> Option<LeftOut> {
        self.pass_at(sys::monotonic_seconds())
    }

    fn pass_at(&self, now: u64) -> Option<LeftOut> {
        let next = self.next.load(Ordering::Relaxed);
        let later = now + INTERVAL_SECONDS;
        if now < next || self.next.compare_exchange(next, later, Ordering::Relaxed, Ordering::Relaxed).is_err() {
            self.left_out.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        Some(LeftOut(self.left_out.swap(0, Ordering::Relaxed)))
    }
}

/// How many lines were left out since the last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LeftOut(u64);

impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => Ok(()),
            n => write!(f, " ({n} more like this were left out)"),
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn one_line_in_a_while_tells_how_many_were_left_out() {
        let limit = Limit::new();
        let lines = (0..5000).filter_map(|i| limit.pass_at(100 + i / 250)).collect::<Vec<_>>();
        assert_eq!(lines, [LeftOut(0), LeftOut(2499)]);
        assert_eq!(limit.pass_at(1000).unwrap().to_string(), " (2499 more like this were left out)");
        assert_eq!(limit.pass_at(2000).unwrap().to_string(), "");
    }
}
