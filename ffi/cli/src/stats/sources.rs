//! Where reports are from: from processes of this user, over their control sockets, of all their sockets; from others what they publish, if this
//! user may read it.

use anyhow::{Result, bail};
use ringway_cli::{members, published};
use ringway_report::ProcessReport;
use ringway_report::published::{FILE_PREFIX, Request};
use ringway_report::reader::{self, Published, ReadError};

/// The reports of the processes `pids` (all, if there are none), by process id.
///
/// # Errors
/// The processes cannot be listed; or one that was named does not tell.
pub(super) fn reports(pids: &[u32]) -> Result<Vec<ProcessReport>> {
    asked(pids, "stats")
}

/// As [`reports`], those that answer on their control sockets being asked for `request`.
///
/// # Errors
/// As there.
pub(crate) fn asked(pids: &[u32], request: &str) -> Result<Vec<ProcessReport>> {
    let mut reports = Vec::new();
    if pids.is_empty() {
        reports = members::reports(&[], request)?;
        for pid in published_pids() {
            if !reports.iter().any(|report| report.pid == pid)
                && let Ok(report) = by_file(pid)
            {
                reports.push(report);
            }
        }
    }
    for &pid in pids {
        match members::reports(&[pid], request) {
            Ok(found) => reports.extend(found),
            Err(error) => match by_file(pid) {
                Ok(report) => reports.push(report),
                Err(ReadError::System { .. }) => return Err(error),
                Err(other) => bail!(other),
            },
        }
    }
    reports.iter_mut().for_each(ProcessReport::clean);
    reports.sort_by_key(|report| report.pid);
    Ok(reports)
}

/// What killed processes left is nobody's.
pub(crate) fn remove_leftovers() {
    if let Some(directory) = published::directory() {
        let _ = reader::remove_leftovers(&directory);
    }
}

fn published_pids() -> Vec<u32> {
    let files = published::directory().and_then(|directory| reader::list(&directory).ok()).unwrap_or_default();
    files.into_iter().map(|(pid, _)| pid).collect()
}

fn by_file(pid: u32) -> Result<ProcessReport, ReadError> {
    let directory = published::directory().unwrap_or_default();
    let mut process = Published::open(&directory.join(format!("{FILE_PREFIX}{pid}")))?;
    Ok(published::sample(&mut process, Request::default())?.report)
}
