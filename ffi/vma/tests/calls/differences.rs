//! Where Ringway and Linux differ, and may.

use crate::lockstep::{Done, Where};
use crate::program::Op;

/// A difference that is known. Nothing after it is compared.
pub(crate) struct Known {
    /// Its name.
    pub(crate) id: &'static str,
    /// Why it is no bug.
    pub(crate) reason: &'static str,
    /// Whether a difference at the last of the steps is this one.
    pub(crate) applies: fn(&[Done], Where) -> bool,
}

/// All of them.
pub(crate) const KNOWN: &[Known] = &[Known {
    id: "killed",
    reason: "the kernel ends the connections of a killed process as close(2) would; of a killed owner of a ring nobody is left to, and its \
             peers see a reset",
    applies: |steps, at| matches!(at, Where::Revents(..) | Where::Peer(..) | Where::Unread(..) | Where::Returned | Where::Outcome(_)) && steps.iter().any(|done| done.step.2 == Op::Kill),
}];

/// The place in [`KNOWN`] of a difference.
pub(crate) fn judge(steps: &[Done], at: Where) -> Option<usize> {
    KNOWN.iter().position(|known| (known.applies)(steps, at))
}
