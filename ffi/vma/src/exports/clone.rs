//! The ways to fork that pass by the handlers of pthread_atfork(3).

use core::ffi::c_long;

use ringway_preload::clone::{APART, SUSPENDS};

use super::means;
use crate::fork::{self, suspension};

/// Forks by `call`, which gets the flags. What it returns; zero in the child.
pub(super) fn forked(flags: u64, call: impl FnOnce(u64) -> c_long) -> c_long {
    // Its parent cannot be asked: what it inherits is moved before.
    if flags & APART != 0 {
        crate::boundary!((), means::before_sandbox());
    }
    // The kernel would suspend this thread with all our locks held, and the child may need this process.
    let suspended = if flags & SUSPENDS != 0 { suspension::begin() } else { None };
    fork::prepare();
    let result = call(flags & !SUSPENDS);
    if result == 0 {
        fork::child();
        if let Some(suspended) = suspended {
            suspended.leave_to_parent();
        }
        return 0;
    }
    let saved = crate::errno::current();
    fork::parent();
    if let Some(suspended) = suspended {
        suspended.end();
    }
    crate::errno::set(saved);
    result
}
