//! What the kernel knows: its counters, a process's CPU time, and what a dead program left in it.

use std::fs;
use std::path::Path;
use std::time::Duration;

/// What this network namespace's kernel has sent since it began.
#[derive(Clone, Copy)]
pub(crate) struct Snmp {
    tcp_out_segs: u64,
    udp_out_datagrams: u64,
}

impl Snmp {
    /// Reads /proc/net/snmp, where TCP's are of both families, and /proc/net/snmp6.
    pub(crate) fn now() -> Self {
        let text = fs::read_to_string("/proc/net/snmp").expect("/proc/net/snmp");
        let v6 = fs::read_to_string("/proc/net/snmp6").expect("/proc/net/snmp6");
        let v6 = v6.lines().find_map(|line| line.strip_prefix("Udp6OutDatagrams")).and_then(|count| count.trim().parse::<u64>().ok());
        let udp_out_datagrams = field(&text, "Udp:", "OutDatagrams") + v6.expect("UDP's datagrams of IPv6");
        Self { tcp_out_segs: field(&text, "Tcp:", "OutSegs"), udp_out_datagrams }
    }

    /// TCP segments and UDP datagrams sent since then.
    pub(crate) fn sent_since(self) -> u64 {
        let now = Self::now();
        (now.tcp_out_segs - self.tcp_out_segs) + (now.udp_out_datagrams - self.udp_out_datagrams)
    }
}

/// TCP segments that the kernel has sent again, where /proc/net is `proc_net`.
pub(crate) fn retransmitted(proc_net: &Path) -> u64 {
    let text = fs::read_to_string(proc_net.join("snmp")).expect("a living namespace");
    field(&text, "Tcp:", "RetransSegs")
}

/// The value under `name` in the pair of lines that begin with `protocol`: one of names, one of values.
fn field(snmp: &str, protocol: &str, name: &str) -> u64 {
    let mut lines = snmp.lines().filter(|l| l.starts_with(protocol));
    let (names, values) = (lines.next().expect("names"), lines.next().expect("values"));
    let column = names.split_whitespace().position(|n| n == name).expect("the column");
    values.split_whitespace().nth(column).and_then(|v| v.parse().ok()).expect("its value")
}

/// What Ringway's processes left in this network namespace: abstract names, segments held by living processes, and files.
pub(crate) fn leftovers() -> Vec<String> {
    let unix = fs::read_to_string("/proc/net/unix").expect("/proc/net/unix");
    let mut left: Vec<String> = unix.lines().filter(|l| l.contains("@ringway/")).map(str::to_owned).collect();
    let here = fs::read_link("/proc/self/ns/net").expect("our network namespace");
    for process in fs::read_dir("/proc").expect("/proc").flatten() {
        let path = process.path();
        if fs::read_link(path.join("ns/net")).ok().as_ref() != Some(&here) {
            continue;
        }
        let descriptors = fs::read_dir(path.join("fd")).into_iter().flatten().flatten();
        for target in descriptors.filter_map(|fd| fs::read_link(fd.path()).ok()) {
            if target.to_string_lossy().starts_with("/memfd:ringway") {
                left.push(format!("{}: {}", path.display(), target.display()));
            }
        }
    }
    let files = fs::read_dir("/dev/shm").into_iter().flatten().flatten();
    left.extend(files.map(|f| f.path().display().to_string()).filter(|f| f.contains("ringway")));
    left
}

/// The CPU time that a living process has used, user and system, all threads.
pub(crate) fn cpu_time(pid: u32) -> Duration {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("a living process");
    // proc(5): fields 14 and 15, in ticks of 1/100 s; the second field, in parentheses, may hold blanks.
    let after_name = stat.rsplit_once(") ").expect("a name").1;
    // A zombie's figure stands still, and holds what its end cost.
    assert!(!after_name.starts_with('Z'), "process {pid} has ended");
    let ticks: u64 = after_name.split_whitespace().skip(11).take(2).map(|t| t.parse::<u64>().expect("ticks")).sum();
    Duration::from_millis(ticks * 10)
}
