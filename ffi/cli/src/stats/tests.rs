use ringway_report::{DeviceReport, ProcessReport, RingReport, SocketReport, TcpReport, WaitReport};

/// Two processes, as they might be after so many seconds.
pub(super) fn processes(seconds: u64) -> Vec<ProcessReport> {
    let socket = |fd: i32, protocol: &str, state: &str| SocketReport {
        fd,
        protocol: protocol.into(),
        state: state.into(),
        local: "127.0.0.1:7000".into(),
        offloaded: true,
        blocking: true,
        ..Default::default()
    };
    let connection = SocketReport {
        remote: "127.0.0.1:40000".into(),
        rx_packets: 900 * seconds,
        rx_bytes: (3 << 20) * seconds,
        tx_packets: 901 * seconds,
        tx_bytes: (5 << 20) * seconds,
        recv_queue: 4096,
        send_queue: 8192,
        retransmissions: 3,
        tcp: Some(TcpReport {
            rtt_us: 12,
            rtt_var_us: 3,
            rto_us: 200_000,
            mss: 65_495,
            cwnd: 654_950,
            ssthresh: Some(130_990),
            in_flight: 4096,
            not_sent: 4096,
            snd_wnd: 65_536,
            rcv_wnd: 131_072,
            retries: 0,
            recovering: true,
        }),
        ..socket(6, "tcp", "ESTABLISHED")
    };
    let datagrams = SocketReport { rx_packets: 10 * seconds, rx_bytes: 1000 * seconds, ..socket(7, "udp", "") };
    let kernels = SocketReport { offloaded: false, reason: Some("not-local".into()), remote: "192.0.2.1:9".into(), ..socket(8, "udp", "") };
    let web = ProcessReport {
        pid: 4711,
        program: "web".into(),
        device: Some(DeviceReport { kind: "shm".into(), mac: "02:00:00:00:00:01".into(), peers: 1, mtu: 65_535 }),
        ring: RingReport {
            rx_packets: 1000 * seconds,
            rx_bytes: (4 << 20) * seconds,
            tx_packets: 1001 * seconds,
            tx_bytes: (6 << 20) * seconds,
            rx_drops: 4,
            retransmissions: 3,
            polls: 5000 * seconds,
            sleeps: 77 * seconds,
            batches: 400 * seconds,
            batch_max: 16,
            sockets: 3,
            flows: 3,
            tx_buffers: 38_912,
            tx_buffers_used: 5,
            seats: 9,
            ..Default::default()
        },
        sockets: vec![socket(5, "tcp", "LISTEN"), connection, datagrams, kernels],
        sockets_total: 4,
        waits: vec![WaitReport { kind: "epoll".into(), fd: 9, ready: 70, timeouts: 2, errors: 0, poll_hits: 60, poll_misses: 12 }],
        ..Default::default()
    };
    let idle = ProcessReport { pid: 4712, program: "idle".into(), ..Default::default() };
    vec![web, idle]
}

#[test]
fn a_process_is_left_alone_for_as_long_as_its_answer_is_worth() {
    use std::time::{Duration, Instant};

    let sample =
        |gathering_ns| super::Sample { taken: Instant::now(), processes: vec![ProcessReport { gathering_ns, ..Default::default() }] };
    let second = Duration::from_secs(1);
    assert_eq!(super::pause(&sample(1_000_000), second), second);
    assert_eq!(super::pause(&sample(100_000_000), second), Duration::from_secs(5));
}
