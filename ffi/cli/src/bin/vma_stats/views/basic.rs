//! Views 1 and 2: two lines a socket, Rx and Tx; what the ring carried, and what the kernel did.

use std::fmt::Write as _;

use ringway_report::SocketReport;
use ringway_report::full::{Unit, percentage};

use super::Shown;

/// One direction of a socket.
struct Line {
    direction: &'static str,
    offload: [u64; 4],
    /// Per cent of the waits that found something while they spun; none where nothing waited.
    hits: Option<f64>,
    os: [u64; 4],
    /// Packets and kilobytes that wait, and packets that were dropped.
    queue: [u64; 3],
}

impl Line {
    fn rx(s: &SocketReport) -> Self {
        Self {
            direction: "Rx:",
            offload: [s.rx_packets, s.rx_bytes / 1024, s.rx_eagains, s.rx_errors],
            hits: (s.rx_poll_hits + s.rx_poll_misses > 0).then(|| percentage(s.rx_poll_hits, s.rx_poll_misses)),
            os: [s.kernel_rx_packets, s.kernel_rx_bytes / 1024, s.kernel_rx_eagains, s.kernel_rx_errors],
            queue: [s.recv_packets, s.recv_queue / 1024, s.rx_drops],
        }
    }

    fn tx(s: &SocketReport) -> Self {
        Self {
            direction: "Tx:",
            offload: [s.tx_packets, s.tx_bytes / 1024, s.tx_eagains, s.tx_errors],
            hits: None,
            os: [s.kernel_tx_packets, s.kernel_tx_bytes / 1024, s.kernel_tx_eagains, s.kernel_tx_errors],
            queue: [0, s.send_queue / 1024, 0],
        }
    }

    fn write(&self, fd: &str, queues: bool) -> String {
        let [packets, kilobytes, eagains, errors] = self.offload;
        let hits = self.hits.map_or_else(|| "-".to_owned(), |hits| format!("{hits:.1}"));
        let mut line = format!("{fd:>6} {} {packets:>12} {kilobytes:>12} {eagains:>9} {errors:>7} {hits:>6}", self.direction);
        if queues {
            let [packets, kilobytes, drops] = self.queue;
            let _ = write!(line, " | {packets:>8} {kilobytes:>8} {drops:>8}");
        }
        let [packets, kilobytes, eagains, errors] = self.os;
        let _ = write!(line, " | {packets:>10} {kilobytes:>10} {eagains:>9} {errors:>7}");
        line
    }
}

pub(super) fn text(shown: &Shown<'_>, queues: bool) -> String {
    let mut text = String::new();
    if shown.is_first {
        heading(&mut text, shown.unit, queues);
    }
    for socket in &shown.report.sockets {
        let _ = writeln!(text, "{}", Line::rx(socket).write(&socket.fd.to_string(), queues));
        let _ = writeln!(text, "{}", Line::tx(socket).write("", queues));
    }
    text
}

fn heading(text: &mut String, unit: Unit, queues: bool) {
    let s = unit.suffix();
    let kind = if unit == Unit::Total { "total" } else { "deltas" };
    let (packets, kilobytes, eagains, errors) = (format!("pkt{s}"), format!("Kbyte{s}"), format!("eagain{s}"), format!("error{s}"));
    let _ = write!(text, "{:11}{:-^50}", "", format!(" {kind} offload "));
    if queues {
        let _ = write!(text, " | {:-^26}", " queue ");
    }
    let _ = writeln!(text, " | {:-^39}", format!(" {kind} OS "));
    let _ = write!(text, "{:>6} {:3} {packets:>12} {kilobytes:>12} {eagains:>9} {errors:>7} {:>6}", "fd", "", "poll%");
    if queues {
        let _ = write!(text, " | {:>8} {:>8} {:>8}", "pkt", "Kbyte", "drop");
    }
    let _ = writeln!(text, " | {packets:>10} {kilobytes:>10} {eagains:>9} {errors:>7}");
}
