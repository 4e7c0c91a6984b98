use ringway_report::{ProcessReport, RingReport, SocketReport, TcpReport};

use super::sample::{connection, socket, web};

/// Two processes, as they might be after so many seconds.
pub(super) fn processes(seconds: u64) -> Vec<ProcessReport> {
    let connection = SocketReport {
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
            ..TcpReport::default()
        }),
        ..connection(seconds)
    };
    let datagrams = SocketReport { rx_packets: 10 * seconds, rx_bytes: 1000 * seconds, ..socket(7, "udp", "") };
    let kernels = SocketReport { offloaded: false, reason: Some("not-local".into()), remote: "192.0.2.1:9".into(), ..socket(8, "udp", "") };
    let web = web(seconds);
    let ring = RingReport { core_claims: 9, ..web.ring };
    let web = ProcessReport { ring, sockets: vec![socket(5, "tcp", "LISTEN"), connection, datagrams, kernels], ..web };
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
    assert_eq!(super::pause(&sample(u64::MAX), second), super::PAUSE_MAX);
    assert_eq!(super::pause(&sample(u64::MAX), Duration::from_secs(60)), Duration::from_secs(60));
}
