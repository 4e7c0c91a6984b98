use clap::Parser as _;
use ringway_report::{TimerKind, TimerReport};

use super::*;
use crate::{Arguments, Command};

fn parsed(words: &str) -> Options {
    let words = ["ringway", "sockets"].into_iter().chain(words.split_whitespace());
    let Command::Sockets(options) = Arguments::parse_from(words).command else { panic!("not sockets") };
    options
}

fn socket(fd: i32, protocol: &str, state: &str, local: &str, remote: &str) -> SocketReport {
    let texts = [protocol, state, local, remote].map(str::to_owned);
    let [protocol, state, local, remote] = texts;
    SocketReport { fd, protocol, state, local, remote, offloaded: true, device: "shm".into(), ..Default::default() }
}

/// One of each kind.
fn processes() -> Vec<ProcessReport> {
    let tcp = ringway_report::TcpReport {
        rtt_us: 12,
        rtt_var_us: 3,
        rto_us: 200_000,
        mss: 1000,
        cwnd: 10_000,
        ssthresh: Some(7_500),
        in_flight: 1001,
        not_sent: 4096,
        snd_wnd: 65_536,
        rcv_wnd: 131_072,
        retries: 2,
        timestamps: true,
        sack: true,
        window_scales: Some((7, 9)),
        acked_bytes: 900,
        retransmitted_bytes: 100,
        retransmissions: 3,
        since_sent_ms: 4,
        since_received_ms: 5,
        timer: Some(TimerReport { kind: TimerKind::On, left_us: 204_000 }),
        ..Default::default()
    };
    let connection = SocketReport {
        tcp: Some(tcp),
        recv_queue: 40,
        send_queue: 5097,
        tx_bytes: 2001,
        rx_bytes: 70,
        tx_packets: 6,
        rx_packets: 7,
        ..socket(6, "tcp", "ESTABLISHED", "10.0.0.1:7000", "10.0.0.2:40000")
    };
    let idle =
        ringway_report::TcpReport { retries: 0, timer: Some(TimerReport { kind: TimerKind::Keepalive, left_us: 7_140_000_000 }), ..tcp };
    let kernels = SocketReport {
        offloaded: false,
        device: "kernel".into(),
        reason: Some("not-local".into()),
        kernel_tcp: Some(idle),
        kernel_recv_queue: 9,
        kernel_tx_bytes: 77,
        ..socket(8, "tcp", "CLOSE-WAIT", "[2001:db8::1]:7000", "[2001:db8::2]:9")
    };
    let time_wait =
        ringway_report::TcpReport { timer: Some(TimerReport { kind: TimerKind::TimeWait, left_us: 59_000_001 }), retries: 0, ..tcp };
    let web = ProcessReport {
        pid: 4711,
        program: "web".into(),
        sockets: vec![
            SocketReport {
                recv_queue: 2,
                kernel_recv_queue: 1,
                backlog: 128,
                device: "shm,xdp:eth0".into(),
                ..socket(5, "tcp", "LISTEN", "0.0.0.0:7000", "")
            },
            connection,
            kernels,
        ],
        without_owner: vec![SocketReport { tcp: Some(time_wait), ..socket(-1, "tcp", "TIME-WAIT", "10.0.0.1:7000", "10.0.0.2:40001") }],
        ..Default::default()
    };
    let dns = ProcessReport {
        pid: 12,
        program: "dns".into(),
        device: Some(ringway_report::DeviceReport { kind: "shm".into(), ..Default::default() }),
        sockets: vec![
            SocketReport { rx_drops: 3, rx_packets: 8, rx_bytes: 80, ..socket(3, "udp", "", "[::]:53", "") },
            SocketReport { device: String::new(), ..socket(4, "udp", "", "127.0.0.1:1024", "127.0.0.1:53") },
            SocketReport { offloaded: false, device: String::new(), ..socket(7, "tcp", "", "", "") },
        ],
        ..Default::default()
    };
    vec![dns, web]
}

fn shown(words: &str) -> String {
    let options = parsed(words);
    show::lines(&options.choose(processes()), &options)
}

#[test]
fn the_form_is_that_of_ss() {
    insta::assert_snapshot!("all", shown("-anpio"));
    insta::assert_snapshot!("connected", shown("-tn"));
}

#[test]
fn options_choose_as_those_of_ss_do() {
    let descriptors = |words: &str| -> Vec<i32> { parsed(words).choose(processes()).iter().map(|owned| owned.socket.fd).collect() };
    for (words, expected) in [
        ("", &[4, 6, 8][..]),
        ("-t", &[6, 8]),
        ("-u", &[4]),
        ("-tu", &[4, 6, 8]),
        ("-l", &[3, 5]),
        ("-a", &[3, 4, 7, 5, 6, 8, -1]),
        ("-ua", &[3, 4]),
        ("-a4", &[4, 5, 6, -1]),
        ("-a6", &[3, 8]),
        ("-46", &[4, 6, 8]),
        ("--state time-wait", &[-1]),
        ("--state listening", &[5]),
        ("--state established", &[6]),
        ("--state estab", &[4, 6]),
        ("--port 53", &[4]),
        ("-a --port 7000 -t -4", &[5, 6, -1]),
    ] {
        assert_eq!(descriptors(words), expected, "{words}");
    }
}

#[test]
fn without_a_header_the_first_line_is_a_socket() {
    assert!(shown("-tnH").starts_with("ESTAB "), "{}", shown("-tnH"));
    assert_eq!(shown("-H --port 1"), "");
}

#[test]
fn json_has_the_process_beside_the_sockets_fields() {
    let json = serde_json::to_value(parsed("-t").choose(processes())).unwrap();
    let first = &json[0];
    assert_eq!((&first["pid"], &first["program"], &first["fd"]), (&4711.into(), &"web".into(), &6.into()));
    assert_eq!((&first["device"], &first["tcp"]["timer"]["kind"]), (&"shm".into(), &"on".into()));
}
