//! View 5: a line a socket, as netstat has it.

use std::fmt::Write as _;

use super::Shown;

pub(super) fn text(shown: &Shown<'_>) -> String {
    let mut text = format!(
        "{:<5} {:>8} {:>8} {:<21} {:<21} {:<12} {:>10} PID/Program name\n",
        "Proto", "Recv-Q", "Send-Q", "Local Address", "Foreign Address", "State", "Inode"
    );
    let report = shown.report;
    let or = |address: &str, other: &str| if address.is_empty() { other.to_owned() } else { address.to_owned() };
    for s in &report.sockets {
        let _ = writeln!(
            text,
            "{:<5} {:>8} {:>8} {:<21} {:<21} {:<12} {:>10} {}/{}",
            s.protocol,
            s.recv_queue,
            s.send_queue,
            or(&s.local, "0.0.0.0:*"),
            or(&s.remote, "0.0.0.0:*"),
            s.state,
            (shown.inode)(report.pid, s.fd),
            report.pid,
            report.program
        );
    }
    text
}
