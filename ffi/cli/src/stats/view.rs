//! A sample as text: processes and their rings, then sockets.

use std::time::Instant;

use ringway_report::{ProcessReport, RingReport, SocketReport};

use crate::table::{short, table};

/// What all processes said at one time.
pub(super) struct Sample {
    pub(super) taken: Instant,
    pub(super) processes: Vec<ProcessReport>,
}

/// The tables; with rates, if there is an earlier sample.
pub(super) fn show(sample: &Sample, before: Option<&Sample>) -> String {
    if sample.processes.is_empty() {
        return "no process of this user runs on Ringway in this network namespace\n".to_owned();
    }
    format!("{}\n\n{}\n", rings(sample, before), sockets(&sample.processes))
}

fn rings(sample: &Sample, before: Option<&Sample>) -> String {
    let columns = [
        "pid",
        "program",
        "device",
        ">peers",
        ">rx frames",
        ">rx bytes",
        ">rx/s",
        ">tx frames",
        ">tx bytes",
        ">tx/s",
        ">drops",
        ">retrans",
        ">sleeps",
    ];
    let mut rows = table(&columns);
    for process in &sample.processes {
        let ring = &process.ring;
        let earlier = before.and_then(|b| Some((sample.taken - b.taken, b.processes.iter().find(|p| p.pid == process.pid)?)));
        let rate = |bytes: fn(&RingReport) -> u64| match earlier {
            Some((elapsed, earlier)) => {
                let moved = bytes(ring).saturating_sub(bytes(&earlier.ring));
                short(u64::try_from(u128::from(moved) * 1000 / elapsed.as_millis().max(1)).unwrap_or(u64::MAX))
            }
            None => String::new(),
        };
        rows.add_row([
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
        ]);
    }
    rows.to_string()
}

fn sockets(processes: &[ProcessReport]) -> String {
    let columns = [
        "pid",
        "fd",
        "proto",
        "state",
        "local",
        "remote",
        "carried by",
        ">rx",
        ">tx",
        ">kernel rx",
        ">kernel tx",
        ">recv-q",
        ">send-q",
        ">rtt us",
        ">cwnd",
        ">retrans",
    ];
    let mut rows = table(&columns);
    for process in processes {
        for socket in &process.sockets {
            rows.add_row([
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
            ]);
        }
    }
    rows.to_string()
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
        let text = show(&after, Some(&before));
        let row: Vec<_> = text.lines().nth(1).unwrap().split_whitespace().collect();
        assert_eq!(row[..7], ["42", "web", "shm", "3", "0", "9.0k", "4.0k"]);
    }

    #[test]
    fn a_socket_says_what_carries_it() {
        let text = show(&Sample { taken: Instant::now(), processes: vec![process(0)] }, None);
        let carried = |fd: &str| text.lines().find(|l| l.split_whitespace().nth(1) == Some(fd)).unwrap().to_owned();
        assert!(carried("6").contains(" shm "));
        assert!(carried("7").contains("kernel: not-local"));
    }

    #[test]
    fn an_empty_machine_says_so() {
        assert!(show(&Sample { taken: Instant::now(), processes: Vec::new() }, None).starts_with("no process"));
    }
}
