//! A sample as text: processes and their rings, then sockets.

use std::collections::BTreeMap;
use std::time::Instant;

use ringway_cli::columns::{self, Column};
use ringway_report::{ProcessReport, RingReport, SocketReport};

use crate::table::short;

/// What all processes said at one time.
pub(super) struct Sample {
    pub(super) taken: Instant,
    pub(super) processes: Vec<ProcessReport>,
}

/// The tables, no wider than `width` if that can be, and what they come to; with rates, if there is an earlier sample.
pub(super) fn show(sample: &Sample, before: Option<&Sample>, width: usize) -> String {
    if sample.processes.is_empty() {
        return "no process of this user runs on Ringway in this network namespace\n".to_owned();
    }
    let table = |columns: &[Column], rows: Vec<Vec<String>>| {
        let fits = |gap: usize| columns::fit(columns, rows.clone(), width, gap);
        let (wide, narrow) = (fits(2), fits(1));
        let is_wide = wide.widths.iter().sum::<usize>() + 2 * (columns.len() - 1) <= width && wide.header == columns::names(columns);
        if is_wide { columns::lines(columns, &wide, 2) } else { columns::lines(columns, &narrow, 1) }
    };
    let (rings, sockets) = (table(&RINGS, rings(sample, before)), table(&SOCKETS, sockets(&sample.processes)));
    format!("{rings}\n\n{sockets}\n\n{}\n", summary(&sample.processes).join("\n"))
}

/// What all of them come to: a line on processes and bytes, one on sockets.
pub(super) fn summary(processes: &[ProcessReport]) -> [String; 2] {
    let sum = |of: fn(&ProcessReport) -> u64| processes.iter().map(of).sum::<u64>();
    let bytes = format!("rx {}B, tx {}B", short(sum(|p| p.ring.rx_bytes)), short(sum(|p| p.ring.tx_bytes)));
    let lost =
        format!("{} drops, {} retransmissions", short(sum(|p| p.ring.rx_drops + p.ring.tx_drops)), short(sum(|p| p.ring.retransmissions)));
    let mut reasons = BTreeMap::<&str, usize>::new();
    let (mut shown, mut offloaded) = (0, 0);
    for socket in processes.iter().flat_map(|process| &process.sockets) {
        shown += 1;
        offloaded += usize::from(socket.offloaded);
        if !socket.offloaded {
            *reasons.entry(socket.reason.as_deref().unwrap_or("kernel")).or_default() += 1;
        }
    }
    let reasons: Vec<_> = reasons.iter().map(|(reason, count)| format!("{count} {reason}")).collect();
    let kernel = if reasons.is_empty() { String::new() } else { format!(" ({})", reasons.join(", ")) };
    [
        format!("{}: {bytes}, {lost}", counted(processes.len(), "process", "es")),
        format!("{}: {offloaded} offloaded, {} on the kernel{kernel}", counted(shown, "socket", "s"), shown - offloaded),
    ]
}

fn counted(count: usize, what: &str, plural: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { plural })
}

const RINGS: [Column; 13] = [
    Column::number("pid", "pid"),
    Column::text("program", "program", 7),
    Column::text("device", "dev", 3),
    Column::number("peers", "peer"),
    Column::number("rx frames", "rxfr"),
    Column::number("rx bytes", "rxB"),
    Column::number("rx/s", "rx/s"),
    Column::number("tx frames", "txfr"),
    Column::number("tx bytes", "txB"),
    Column::number("tx/s", "tx/s"),
    Column::number("drops", "drop"),
    Column::number("retrans", "retr"),
    Column::number("sleeps", "slp"),
];

fn rings(sample: &Sample, before: Option<&Sample>) -> Vec<Vec<String>> {
    let row = |process: &ProcessReport| {
        let ring = &process.ring;
        let earlier = before.and_then(|b| Some((sample.taken - b.taken, b.processes.iter().find(|p| p.pid == process.pid)?)));
        let rate = |bytes: fn(&RingReport) -> u64| match earlier {
            Some((elapsed, earlier)) => {
                let moved = bytes(ring).saturating_sub(bytes(&earlier.ring));
                short(u64::try_from(u128::from(moved) * 1000 / elapsed.as_millis().max(1)).unwrap_or(u64::MAX))
            }
            None => String::new(),
        };
        vec![
            process.pid.to_string(),
            process.program.clone(),
            process.device.as_ref().map_or_else(|| "kernel".to_owned(), |d| d.kind.clone()),
            process.device.as_ref().map_or(0, |d| d.peers).to_string(),
            short(ring.rx_packets),
            short(ring.rx_bytes),
            rate(|r| r.rx_bytes),
            short(ring.tx_packets),
            short(ring.tx_bytes),
            rate(|r| r.tx_bytes),
            short(ring.rx_drops + ring.tx_drops),
            short(ring.retransmissions),
            short(ring.sleeps),
        ]
    };
    sample.processes.iter().map(row).collect()
}

const SOCKETS: [Column; 16] = [
    Column::number("pid", "pid"),
    Column::number("fd", "fd"),
    Column::text("proto", "pro", 3),
    Column::text("state", "state", 5),
    Column::address("local"),
    Column::address("remote"),
    Column::text("carried by", "by", 4),
    Column::number("rx", "rx"),
    Column::number("tx", "tx"),
    Column::number("kernel rx", "krx"),
    Column::number("kernel tx", "ktx"),
    Column::number("recv-q", "rcvq"),
    Column::number("send-q", "sndq"),
    Column::number("rtt us", "rtt"),
    Column::number("cwnd", "cwnd"),
    Column::number("retrans", "retr"),
];

fn sockets(processes: &[ProcessReport]) -> Vec<Vec<String>> {
    let row = |process: &ProcessReport, socket: &SocketReport| {
        vec![
            process.pid.to_string(),
            socket.fd.to_string(),
            socket.protocol.clone(),
            socket.state.clone(),
            socket.local.clone(),
            socket.remote.clone(),
            carrier(process, socket),
            short(socket.rx_bytes),
            short(socket.tx_bytes),
            short(socket.kernel_rx_packets),
            short(socket.kernel_tx_packets),
            short(socket.recv_queue),
            short(socket.send_queue),
            socket.tcp.map_or_else(String::new, |tcp| tcp.rtt_us.to_string()),
            socket.tcp.map_or_else(String::new, |tcp| short(tcp.cwnd)),
            short(socket.retransmissions),
        ]
    };
    processes.iter().flat_map(|process| process.sockets.iter().map(move |socket| row(process, socket))).collect()
}

/// The device, or the kernel and why.
fn carrier(process: &ProcessReport, socket: &SocketReport) -> String {
    match (&process.device, &socket.reason) {
        (Some(device), _) if socket.offloaded => device.kind.clone(),
        (_, Some(reason)) => format!("kernel: {reason}"),
        _ => "kernel".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ringway_report::DeviceReport;

    use super::*;

    const WIDE: usize = 300;

    #[test]
    fn eighty_columns_are_enough_for_all_of_it() {
        let mut process = process(123_456_789);
        process.pid = 1_234_567;
        process.program = "a-program-of-15".into();
        for socket in &mut process.sockets {
            (socket.local, socket.remote) = ("192.168.100.200:65535".into(), "192.168.100.201:65535".into());
            (socket.state, socket.rx_bytes, socket.recv_queue) = ("ESTABLISHED".into(), 1 << 30, 0);
        }
        let text = show(&Sample { taken: Instant::now(), processes: vec![process] }, None, 80);
        for line in text.lines() {
            assert!(line.chars().count() <= 80, "{line}");
        }
        let header = text.lines().find(|line| line.contains("local")).unwrap();
        assert_eq!(header.split_whitespace().count(), SOCKETS.len(), "{header}");
        assert!(text.contains("…65535"), "a port is whole: {text}");
    }

    #[test]
    fn what_it_comes_to_is_said_below() {
        let text = show(&Sample { taken: Instant::now(), processes: vec![process(5_000)] }, None, WIDE);
        assert!(
            text.ends_with(
                "1 process: rx 5.0kB, tx 0B, 0 drops, 0 retransmissions\n2 sockets: 1 offloaded, 1 on the kernel (1 not-local)\n"
            ),
            "{text}"
        );
    }

    fn process(rx_bytes: u64) -> ProcessReport {
        let socket =
            SocketReport { fd: 6, protocol: "tcp".into(), state: "LISTEN".into(), local: "127.0.0.1:80".into(), ..Default::default() };
        ProcessReport {
            pid: 42,
            program: "web".into(),
            device: Some(DeviceReport { kind: "shm".into(), peers: 3, ..Default::default() }),
            ring: RingReport { rx_bytes, ..Default::default() },
            sockets: vec![
                SocketReport { offloaded: true, ..socket.clone() },
                SocketReport { fd: 7, reason: Some("not-local".into()), remote: "192.0.2.1:9".into(), ..socket },
            ],
            ..Default::default()
        }
    }

    #[test]
    fn rates_are_bytes_a_second() {
        let taken = Instant::now();
        let before = Sample { taken, processes: vec![process(1_000)] };
        let after = Sample { taken: taken + Duration::from_secs(2), processes: vec![process(9_000)] };
        let text = show(&after, Some(&before), WIDE);
        let row: Vec<_> = text.lines().nth(1).unwrap().split_whitespace().collect();
        assert_eq!(row[..7], ["42", "web", "shm", "3", "0", "9.0k", "4.0k"]);
    }

    #[test]
    fn a_socket_says_what_carries_it() {
        let text = show(&Sample { taken: Instant::now(), processes: vec![process(0)] }, None, WIDE);
        let carried = |fd: &str| text.lines().find(|l| l.split_whitespace().nth(1) == Some(fd)).unwrap().to_owned();
        assert!(carried("6").contains(" shm "));
        assert!(carried("7").contains("kernel: not-local"));
    }

    #[test]
    fn an_empty_machine_says_so() {
        assert!(show(&Sample { taken: Instant::now(), processes: Vec::new() }, None, WIDE).starts_with("no process"));
    }
}
