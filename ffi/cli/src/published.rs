//! The files in which processes publish their statistics: where they are, and how one is asked.

use std::path::PathBuf;
use std::time::Duration;

use ringway_params::{Id, Settings};
use ringway_report::published::{LOOK, Request};
use ringway_report::reader::{Published, ReadError, Snapshot};

/// How long a process may take to answer once it was woken. What it published before is shown after that.
const PATIENCE: Duration = Duration::from_millis(500);

/// The directory in which processes of this environment publish (VMA_STATS_SHMEM_DIR). `None`: they don't.
pub fn directory() -> Option<PathBuf> {
    Settings::from_environment().path(Id::StatsShmemDir).map(PathBuf::from)
}

/// Asks a process for its report, if this user may; else takes what it published last, unless something was to be changed as well.
///
/// # Errors
/// There is none to be had; or who may not ask wants something changed.
pub fn sample(published: &mut Published, request: Request) -> Result<Snapshot, ReadError> {
    if published.may_ask() || request != Request::default() {
        published.ask(request)?;
        // In another network namespace it does not hear; it looks by itself now and then, if it does anything.
        let _ = crate::members::query(published.control(), LOOK, PATIENCE);
    }
    published.read(PATIENCE)
}
