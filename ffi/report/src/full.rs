//! A socket in full: the third view of `vma_stats`, which `dump_fd_stats` logs as well. Words and order are those that people know (vma.md
//! s5, seed 001 "Dummy Packets Statistics"); what is zero has no line.

use crate::SocketReport;

/// What stands between two sockets.
pub const SEPARATOR: &str = "======================================================";

/// Whether counts are since the beginning, or a second's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Since the socket was made.
    Total,
    /// A second's.
    PerSecond,
}

impl Unit {
    /// What follows the name of what is counted.
    pub const fn suffix(self) -> &'static str {
        match self {
            Self::Total => "",
            Self::PerSecond => "/s",
        }
    }
}

/// The lines of a socket.
pub fn socket(report: &SocketReport, unit: Unit) -> Vec<String> {
    let mut lines = vec![SEPARATOR.to_owned(), format!("\tFd=[{}]", report.fd), kind(report)];
    addresses(report, &mut lines);
    let r = report;
    lines.extend(carried("Tx Offload", r.tx_bytes, [r.tx_packets, r.tx_eagains, r.tx_errors], unit));
    lines.extend(carried("Tx OS info", r.kernel_tx_bytes, [r.kernel_tx_packets, r.kernel_tx_eagains, r.kernel_tx_errors], unit));
    if r.tx_dummies != 0 {
        lines.push(format!("Tx Dummy messages : {}", r.tx_dummies));
    }
    lines.extend(carried("Rx Offload", r.rx_bytes, [r.rx_packets, r.rx_eagains, r.rx_errors], unit));
    lines.extend(carried("Rx OS info", r.kernel_rx_bytes, [r.kernel_rx_packets, r.kernel_rx_eagains, r.kernel_rx_errors], unit));
    queues(report, &mut lines);
    lines
}

/// Bytes, packets and failures of one direction by one carrier.
fn carried(what: &str, bytes: u64, counts: [u64; 3], unit: Unit) -> Option<String> {
    let ([packets, eagains, errors], s) = (counts, unit.suffix());
    let line = || format!("{what}: {} / {packets} / {eagains} / {errors} [kilobytes{s}/packets{s}/eagains{s}/errors{s}]", bytes / 1024);
    (bytes != 0 || counts != [0; 3]).then(line)
}

fn kind(report: &SocketReport) -> String {
    let blocked = if report.blocking { "Blocked" } else { "Non-blocked" };
    let mut line = format!("- {}, {blocked}", report.protocol.to_uppercase());
    if report.protocol == "udp" {
        line.push_str(if report.multicast_loop { ", MC Loop Enabled" } else { ", MC Loop Disabled" });
        if let Some(interface) = &report.multicast_interface {
            line.push_str(&format!(", MC IF = [{interface}]"));
        }
    }
    line
}

fn addresses(report: &SocketReport, lines: &mut Vec<String>) {
    if !report.local.is_empty() {
        lines.push(format!("- Local Address   = [{}]", report.local));
    }
    if !report.remote.is_empty() {
        lines.push(format!("- Foreign Address = [{}]", report.remote));
    }
    lines.extend(report.groups.iter().map(|group| format!("- Member of = [{group}]")));
    if report.rx_thread != 0 || report.tx_thread != 0 {
        lines.push(format!("- Thread Id Rx: {}, Tx: {}", report.rx_thread, report.tx_thread));
    }
    let rings = [("RX", report.rx_ring_user_id), ("TX", report.tx_ring_user_id)];
    // (Zero is a number as any other: the line is there where rings are chosen by one.)
    lines.extend(rings.iter().filter_map(|(way, id)| Some(format!("- {way}: Ring User ID = {}", (*id)?))));
}

fn queues(r: &SocketReport, lines: &mut Vec<String>) {
    if [r.recv_queue, r.recv_queue_max, r.rx_drop_bytes, r.recv_limit].iter().any(|&n| n != 0) {
        let (cur, max, dropped, limit) = (r.recv_queue, r.recv_queue_max, r.rx_drop_bytes, r.recv_limit);
        lines.push(format!("Rx byte: cur {cur} / max {max} / dropped {dropped} / limit {limit}"));
    }
    if [r.recv_packets, r.recv_packets_max, r.rx_drops].iter().any(|&n| n != 0) {
        lines.push(format!("Rx pkt : cur {} / max {} / dropped {}", r.recv_packets, r.recv_packets_max, r.rx_drops));
    }
    if r.held_packets != 0 {
        lines.push(format!("Rx zero copy buffers: cur {}", r.held_packets));
    }
    let (hits, misses) = (r.rx_poll_hits, r.rx_poll_misses);
    if hits + misses != 0 {
        lines.push(format!("Rx poll: {misses} / {hits} ({:.2}%) [miss/hit]", percentage(hits, misses)));
    }
    if r.rx_ring_migrations != 0 || r.tx_ring_migrations != 0 {
        lines.push(format!("Ring migrations Rx: {}, Tx: {}", r.rx_ring_migrations, r.tx_ring_migrations));
    }
    if r.retransmissions != 0 {
        lines.push(format!("Retransmissions: {}", r.retransmissions));
    }
}

/// Of all, those that were hits; 0: there were none.
pub fn percentage(hits: u64, misses: u64) -> f64 {
    let all = hits.saturating_add(misses);
    if all == 0 { 0.0 } else { hits as f64 * 100.0 / all as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_zero_has_no_line() {
        let report = SocketReport { fd: 20, protocol: "udp".to_owned(), local: "0.0.0.0:5".to_owned(), ..SocketReport::default() };
        assert_eq!(
            socket(&report, Unit::Total)[1..],
            ["\tFd=[20]", "- UDP, Non-blocked, MC Loop Disabled", "- Local Address   = [0.0.0.0:5]"]
        );
    }

    /// Their places are those of vma.md s5.
    #[test]
    fn rings_have_their_lines() {
        let report = SocketReport {
            protocol: "tcp".into(),
            rx_thread: 1,
            rx_ring_user_id: Some(0),
            tx_ring_user_id: Some(77),
            tx_dummies: 1,
            rx_poll_hits: 1,
            tx_ring_migrations: 2,
            retransmissions: 1,
            ..Default::default()
        };
        assert_eq!(
            socket(&report, Unit::Total)[3..],
            [
                "- Thread Id Rx: 1, Tx: 0",
                "- RX: Ring User ID = 0",
                "- TX: Ring User ID = 77",
                "Tx Dummy messages : 1",
                "Rx poll: 0 / 1 (100.00%) [miss/hit]",
                "Ring migrations Rx: 0, Tx: 2",
                "Retransmissions: 1",
            ]
        );
    }

    /// Seed 001's example, but for its first line of counts, which says "drops" where later versions say "eagains".
    #[test]
    fn the_documents_example_is_reproduced() {
        let report = SocketReport {
            fd: 20,
            protocol: "udp".into(),
            blocking: true,
            multicast_loop: true,
            local: "0.0.0.0:56732".into(),
            tx_bytes: 128 << 10,
            tx_packets: 9413,
            tx_dummies: 87_798,
            rx_bytes: 128 << 10,
            rx_packets: 9413,
            recv_queue_max: 14,
            recv_limit: 212_992,
            recv_packets_max: 1,
            rx_poll_hits: 9411,
            ..Default::default()
        };
        let expected = "\
======================================================
\tFd=[20]
- UDP, Blocked, MC Loop Enabled
- Local Address   = [0.0.0.0:56732]
Tx Offload: 128 / 9413 / 0 / 0 [kilobytes/packets/eagains/errors]
Tx Dummy messages : 87798
Rx Offload: 128 / 9413 / 0 / 0 [kilobytes/packets/eagains/errors]
Rx byte: cur 0 / max 14 / dropped 0 / limit 212992
Rx pkt : cur 0 / max 1 / dropped 0
Rx poll: 0 / 9411 (100.00%) [miss/hit]";
        assert_eq!(socket(&report, Unit::Total).join("\n"), expected);
    }
}
