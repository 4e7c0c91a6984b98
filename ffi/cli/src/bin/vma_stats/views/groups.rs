//! View 4: multicast groups, and the sockets that are members.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use ringway_report::ProcessReport;

pub(super) fn text(report: &ProcessReport) -> String {
    let mut groups: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for socket in &report.sockets {
        socket.groups.iter().for_each(|group| groups.entry(group).or_default().push(socket.fd.to_string()));
    }
    let mut text = String::from("VMA Group Memberships Information\n");
    let _ = writeln!(text, "{:<22} fd", "Group");
    let _ = writeln!(text, "{}", "-".repeat(40));
    for (group, fds) in groups {
        let _ = writeln!(text, "{:<22} {}", format!("[{group}]"), fds.join(" "));
    }
    text
}
