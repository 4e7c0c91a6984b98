//! Calls by which a process gives up the means to reach others. What it inherited and may use later is fetched before.

use ringway_preload::Means;

use crate::moving::{self, inherited};
use crate::process;

/// Before such a call.
pub(super) fn before(means: Means) {
    match means {
        Means::Identity => before_identity(),
        Means::SystemCalls => before_sandbox(),
    }
}

fn before_identity() {
    let saved = crate::errno::current();
    inherited::settle_all(|_| true);
    if let Some(process) = process::process()
        && process.is_owner()
    {
        moving::owner::adopted(process);
    }
    crate::errno::set(saved);
}

/// Before a filter decides over system calls: what the ring needs may not be among those that are left.
pub(super) fn before_sandbox() {
    before_identity();
    if let Some(process) = process::process()
        && process.is_owner()
    {
        moving::owner::all(process);
    }
}
