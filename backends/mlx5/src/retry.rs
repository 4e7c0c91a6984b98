//! How often something is tried again that has failed: of calls that come every millisecond at most, the first, the second, the fourth, and so on.

/// The longest pause, in calls: 2^this, a second.
const PAUSE_MAX: u32 = 10;

/// See the module's documentation.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Retry {
    failures: u32,
    calls: u32,
}

impl Retry {
    /// Whether this call is one that tries.
    pub(crate) fn is_due(&mut self) -> bool {
        self.calls += 1;
        self.calls >= 1 << self.failures.min(PAUSE_MAX)
    }

    /// What came of it.
    pub(crate) fn ended(&mut self, well: bool) {
        self.calls = 0;
        self.failures = if well { 0 } else { self.failures + 1 };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fails_is_tried_less_and_less() {
        let mut retry = Retry::default();
        let mut tries = Vec::new();
        for call in 1..40 {
            if retry.is_due() {
                tries.push(call);
                retry.ended(false);
            }
        }
        assert_eq!(tries, [1, 3, 7, 15, 31]);
        retry.ended(true);
        assert!(retry.is_due());
    }
}
