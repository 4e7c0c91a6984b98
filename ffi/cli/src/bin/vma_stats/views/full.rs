//! View 3: each socket in full, then the completion queue, the ring, the buffers, and what waits.

use ringway_report::full::{SEPARATOR, percentage, socket};
use ringway_report::{ProcessReport, WaitReport};

use super::Shown;

pub(super) fn text(shown: &Shown<'_>) -> String {
    let report = shown.report;
    let s = shown.unit.suffix();
    let mut lines: Vec<String> = report.sockets.iter().flat_map(|one| socket(one, shown.unit)).collect();
    if let Some(device) = &report.device {
        let names = (format!("CQ=[0] ({})", device.kind), format!("RING=[0] ({} {})", device.kind, device.mac));
        block(&mut lines, &names.0, completions(report, s));
        block(&mut lines, &names.1, ring(report, s));
        let buffers = format!("Buffers: used {} / all {}", report.ring.tx_buffers_used, report.ring.tx_buffers);
        block(&mut lines, "BPOOL=[Tx]", vec![buffers]);
    }
    for wait in &report.waits {
        let name = if wait.fd < 0 { wait.kind.clone() } else { format!("{} fd=[{}]", wait.kind, wait.fd) };
        block(&mut lines, &name, waits(wait, s));
    }
    lines.push(SEPARATOR.to_owned());
    lines.join("\n") + "\n"
}

fn block(lines: &mut Vec<String>, name: &str, content: Vec<String>) {
    lines.push(SEPARATOR.to_owned());
    lines.push(format!("\t{name}"));
    lines.extend(content);
}

fn completions(report: &ProcessReport, s: &str) -> Vec<String> {
    let ring = &report.ring;
    let mut lines = vec![format!("Packets dropped: {} [packets{s}]", ring.rx_drops)];
    lines.push(format!("Batches: {} [batches{s}], {} packets at most", ring.batches, ring.batch_max));
    lines.push(format!("Polls: {} [calls{s}]", ring.polls));
    lines.push(format!("Sleeps: {} [waits{s}]", ring.sleeps));
    lines
}

fn ring(report: &ProcessReport, s: &str) -> Vec<String> {
    let r = &report.ring;
    let carried =
        |bytes: u64, packets: u64, drops: u64| format!("{} / {packets} / {drops} [kilobytes{s}/packets{s}/drops{s}]", bytes / 1024);
    let mut lines = vec![
        format!("Tx Offload: {}", carried(r.tx_bytes, r.tx_packets, r.tx_drops)),
        format!("Rx Offload: {}", carried(r.rx_bytes, r.rx_packets, r.rx_drops)),
    ];
    if r.retransmissions != 0 {
        lines.push(format!("Retransmissions: {}", r.retransmissions));
    }
    lines.push(format!("Sockets: {}, flows: {}", r.sockets, r.flows));
    lines
}

fn waits(wait: &WaitReport, s: &str) -> Vec<String> {
    let calls = format!("Calls: {} / {} / {} [ready{s}/timeouts{s}/errors{s}]", wait.ready, wait.timeouts, wait.errors);
    let (hits, misses) = (wait.poll_hits, wait.poll_misses);
    let polls = (hits + misses > 0).then(|| format!("Poll: {misses} / {hits} ({:.2}%) [miss/hit]", percentage(hits, misses)));
    std::iter::once(calls).chain(polls).collect()
}
