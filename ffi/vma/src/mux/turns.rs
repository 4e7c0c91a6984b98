//! When the kernel is asked for what the ring cannot bring.
//!
//! A look at the kernel costs a system call, and a look at the ring a few loads. So the kernel's turn comes after many looks at
//! the ring while it has nothing, and at once while it delivers: after something came from there the next look is due, and each
//! look in vain doubles the wait for the next, up to what VMA_RX_UDP_POLL_OS_RATIO, VMA_SELECT_POLL_OS_RATIO and
//! VMA_SELECT_SKIP_OS say. Where the user set the parameter, it is the ratio to the letter ("a single poll of the not-offloaded
//! sockets every" so many of the offloaded ones: VMA's README).

/// Looks at the ring, or calls, for one look at the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ratio {
    /// 0: the kernel has no turn.
    pub(crate) looks: u32,
    /// The user set it, so nothing makes the kernel's turn come sooner.
    pub(crate) is_exact: bool,
}

/// Whose turn it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Turns {
    /// Looks at the ring from one look at the kernel to the next, as far as the ratio lets them be so few.
    gap: u32,
    /// Looks at the ring since the kernel was asked.
    since: u32,
}

impl Turns {
    /// Nothing has come from the kernel.
    pub(crate) const fn new() -> Self {
        Self { gap: u32::MAX, since: 0 }
    }

    /// The ring was looked at.
    #[inline]
    pub(crate) fn looked(&mut self) {
        self.since = self.since.saturating_add(1);
    }

    /// Whether it is the kernel's turn.
    #[inline]
    pub(crate) fn is_due(&self, ratio: Ratio) -> bool {
        ratio.looks != 0 && self.since >= if ratio.is_exact { ratio.looks } else { self.gap.min(ratio.looks) }
    }

    /// As [`Turns::is_due`], while the ring delivers: the ring's turn comes at least as often as the kernel's.
    #[inline]
    pub(crate) fn is_due_beside_ring(&self, ratio: Ratio) -> bool {
        self.is_due(ratio) && (ratio.is_exact || self.since >= 2.min(ratio.looks))
    }

    /// Whether it would be so after one more look at the ring.
    #[inline(always)]
    pub(crate) fn would_be_due_beside_ring(&self, ratio: Ratio) -> bool {
        let mut next = *self;
        next.looked();
        next.is_due_beside_ring(ratio)
    }

    /// Whether the ring has been looked at without the kernel since the last look at the kernel.
    #[inline]
    pub(crate) fn ring_had_one(&self) -> bool {
        self.since >= 2
    }

    /// The kernel is asked now: in vain, unless [`Turns::delivered`] follows.
    #[inline]
    pub(crate) fn asked(&mut self) {
        self.since = 0;
        self.gap = self.gap.saturating_mul(2);
    }

    /// Something came from the kernel.
    #[inline]
    pub(crate) fn delivered(&mut self) {
        self.gap = 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In which of `count` looks at the ring the kernel was asked, where it delivers those times that `has` says.
    fn asked(ratio: Ratio, count: u32, has: impl Fn(u32) -> bool) -> Vec<u32> {
        let mut turns = Turns::new();
        let due = |look: &u32| {
            turns.looked();
            let due = turns.is_due(ratio);
            if due {
                turns.asked();
                if has(*look) {
                    turns.delivered();
                }
            }
            due
        };
        (1..=count).filter(due).collect()
    }

    #[test]
    fn who_delivers_is_asked_again_and_who_does_not_at_the_ratio() {
        let ratio = Ratio { looks: 10, is_exact: false };
        assert_eq!(asked(ratio, 40, |_| false), [10, 20, 30, 40]);
        assert_eq!(asked(ratio, 30, |look| look < 13), [10, 11, 12, 13, 15, 19, 27]);
        assert_eq!(asked(Ratio { looks: 10, is_exact: true }, 40, |_| true), [10, 20, 30, 40]);
        assert_eq!(asked(Ratio { looks: 0, is_exact: false }, 40, |_| true), [] as [u32; 0]);
    }

    #[test]
    fn two_that_deliver_take_turns() {
        let ratio = Ratio { looks: 10, is_exact: false };
        let mut turns = Turns::new();
        turns.delivered();
        let kernels = (0..100).filter(|_| {
            turns.looked();
            let due = turns.is_due_beside_ring(ratio);
            if due {
                turns.asked();
                turns.delivered();
            }
            due
        });
        assert_eq!(kernels.count(), 50);
    }
}
