//! The five views, with the fields of libvma's in their order (vma.md s5).

mod basic;
mod full;
mod groups;
mod netstat;

use ringway_report::ProcessReport;
use ringway_report::full::Unit;

/// What is shown.
pub(crate) struct Shown<'a> {
    pub(crate) report: &'a ProcessReport,
    pub(crate) unit: Unit,
    /// It is the first report, and wants a heading.
    pub(crate) is_first: bool,
    /// The inode of a process's descriptor; 0: not known.
    pub(crate) inode: &'a dyn Fn(u32, i32) -> u64,
}

/// A report in one of the views, 1 to 5.
pub(crate) fn text(view: u8, shown: &Shown<'_>) -> String {
    let mut text = match view {
        1 => basic::text(shown, false),
        2 => basic::text(shown, true),
        3 => full::text(shown),
        4 => groups::text(shown.report),
        _ => netstat::text(shown),
    };
    let untold = shown.report.sockets_total.saturating_sub(shown.report.sockets.len() as u64);
    if untold > 0 {
        text.push_str(&format!("and {untold} sockets more (VMA_STATS_FD_NUM, -s)\n"));
    }
    text
}

/// The inode of a process's descriptor, as far as /proc tells.
pub(crate) fn inode(pid: u32, fd: i32) -> u64 {
    let link = std::fs::read_link(format!("/proc/{pid}/fd/{fd}")).unwrap_or_default();
    let name = link.to_string_lossy();
    name.strip_prefix("socket:[").and_then(|rest| rest.strip_suffix(']')?.parse().ok()).unwrap_or(0)
}
