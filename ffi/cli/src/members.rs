//! The processes on Ringway: this user's, in this network namespace, each asked over its control socket.

use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use ringway_host::members;
use ringway_report::ProcessReport;
use rustix::process::geteuid;

/// How long a process may take to answer: its progress thread does, whatever the program does.
const PATIENCE: Duration = Duration::from_secs(2);

/// What the processes `pids` (all, if there are none) answer to `request`, by process id.
///
/// # Errors
/// They cannot be listed; or one that was named is not among them, or does not answer.
pub fn reports(pids: &[u32], request: &str) -> Result<Vec<ProcessReport>> {
    let members = members::members(geteuid().as_raw()).context("/proc/net/unix")?;
    let wanted = |pid: i32| pids.is_empty() || pids.iter().any(|&p| i64::from(p) == i64::from(pid));
    let mut reports = Vec::new();
    for member in members.iter().filter(|m| wanted(m.pid)) {
        match ask(&member.name, request) {
            // (It may be of another PID namespace, and number itself otherwise than this one does.)
            Ok(report) => reports.push(ProcessReport { pid: u32::try_from(member.pid).unwrap_or(report.pid), ..report }),
            // It may have ended since it was listed. Only who asked for it by its number needs to know.
            Err(error) if !pids.is_empty() => return Err(error.context(format!("process {} does not answer", member.pid))),
            Err(_) => {}
        }
    }
    for &pid in pids {
        if !reports.iter().any(|r| r.pid == pid) {
            bail!("process {pid} is not on Ringway; ringway doctor {pid} says why");
        }
    }
    reports.sort_by_key(|r| r.pid);
    Ok(reports)
}

/// Has a process answer to `request` over its control socket, of that name.
///
/// # Errors
/// There is no such socket, or it does not answer in time.
pub fn query(name: &str, request: &str, patience: Duration) -> std::io::Result<String> {
    members::query(name, request, patience)
}

fn ask(name: &str, request: &str) -> Result<ProcessReport> {
    let answer = query(name, request, PATIENCE)?;
    serde_json::from_str(&answer).context("its answer is not a report")
}
