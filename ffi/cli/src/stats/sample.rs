//! A process as it might be, for the tests of both commands that show one.

use ringway_report::{DeviceReport, ProcessReport, RingReport, SocketReport, WaitReport};

/// A socket of the ring's.
pub(crate) fn socket(fd: i32, protocol: &str, state: &str) -> SocketReport {
    SocketReport {
        fd,
        protocol: protocol.into(),
        state: state.into(),
        local: "127.0.0.1:7000".into(),
        offloaded: true,
        blocking: true,
        ..Default::default()
    }
}

/// A connection, after so many seconds.
pub(crate) fn connection(seconds: u64) -> SocketReport {
    SocketReport {
        remote: "127.0.0.1:40000".into(),
        rx_packets: 900 * seconds,
        rx_bytes: (3 << 20) * seconds,
        tx_packets: 901 * seconds,
        tx_bytes: (5 << 20) * seconds,
        recv_queue: 4096,
        send_queue: 8192,
        retransmissions: 3,
        ..socket(6, "tcp", "ESTABLISHED")
    }
}

/// A process, after so many seconds; of its sockets, nothing.
pub(crate) fn web(seconds: u64) -> ProcessReport {
    ProcessReport {
        pid: 4711,
        program: "web".into(),
        device: Some(DeviceReport { kind: "shm".into(), mac: "02:00:00:00:00:01".into(), peers: 1, mtu: 65_535 }),
        ring: RingReport {
            rx_packets: 1000 * seconds,
            rx_bytes: (4 << 20) * seconds,
            rx_drops: 4,
            tx_packets: 1001 * seconds,
            tx_bytes: (6 << 20) * seconds,
            retransmissions: 3,
            polls: 5000 * seconds,
            sleeps: 77 * seconds,
            batches: 400 * seconds,
            batch_max: 16,
            sockets: 3,
            flows: 3,
            tx_buffers: 38_912,
            tx_buffers_used: 5,
            ..Default::default()
        },
        sockets_total: 4,
        waits: vec![WaitReport { kind: "epoll".into(), fd: 9, ready: 70, timeouts: 2, errors: 0, poll_hits: 60, poll_misses: 12 }],
        ..Default::default()
    }
}
