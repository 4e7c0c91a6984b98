#[path = "../../stats/sample.rs"]
mod sample;

use clap::CommandFactory as _;
use ringway_report::{RingReport, SocketReport, TcpReport, WaitReport};

use self::sample::{connection, socket, web};
use super::*;

/// A process as it might be: a listener, a connection, a group's receiver, and a socket of the kernel's.
fn process() -> ProcessReport {
    let connection = SocketReport {
        blocking: false,
        rx_eagains: 12,
        tx_eagains: 1,
        tx_errors: 2,
        rx_thread: 42,
        tx_thread: 43,
        rx_poll_hits: 750,
        rx_poll_misses: 250,
        tcp: Some(TcpReport { rtt_us: 12, cwnd: 65_536, ..Default::default() }),
        ..connection(1)
    };
    let receiver = SocketReport {
        fd: 7,
        protocol: "udp".into(),
        local: "0.0.0.0:5000".into(),
        offloaded: true,
        multicast_loop: true,
        groups: vec!["239.1.1.1".into(), "239.1.1.2".into()],
        rx_packets: 50,
        rx_bytes: 10 << 10,
        recv_queue: 100,
        recv_queue_max: 2000,
        recv_packets: 1,
        recv_packets_max: 20,
        recv_limit: 212_992,
        rx_drops: 4,
        rx_drop_bytes: 400,
        held_packets: 2,
        tx_dummies: 87_798,
        ..Default::default()
    };
    let kernels = SocketReport {
        fd: 8,
        protocol: "udp".into(),
        local: "0.0.0.0:5001".into(),
        remote: "192.0.2.1:53".into(),
        groups: vec!["239.1.1.1".into()],
        reason: Some("not-local".into()),
        kernel_rx_packets: 5,
        kernel_rx_bytes: 5 << 10,
        kernel_rx_eagains: 1,
        kernel_tx_packets: 6,
        kernel_tx_bytes: 6 << 10,
        kernel_tx_errors: 1,
        ..Default::default()
    };
    let web = web(1);
    ProcessReport {
        ring: RingReport { batches: 800, ..web.ring },
        sockets: vec![socket(5, "tcp", "LISTEN"), connection, receiver, kernels],
        waits: vec![WaitReport { errors: 1, ..web.waits[0].clone() }],
        ..web
    }
}

fn text_of(view: u8, report: &ProcessReport, unit: Unit) -> String {
    views::text(view, &Shown { report, unit, is_first: true, inode: &|_, fd| 1000 + u64::from(fd.unsigned_abs()) })
}

#[test]
fn views() {
    for view in 1..=5 {
        insta::assert_snapshot!(format!("view_{view}"), text_of(view, &process(), Unit::Total));
    }
}

#[test]
fn rates() {
    let before = process();
    let mut now = before.clone();
    now.sockets[1].rx_packets += 300;
    now.sockets[1].rx_bytes += 4096;
    now.sockets[1].recv_queue = 7;
    // The number means another socket now.
    now.sockets[3] = SocketReport { fd: 8, protocol: "tcp".into(), rx_packets: 10, ..Default::default() };
    now.ring.rx_packets += 300;
    let delta = delta::between(&before, &now, 2.0);
    assert_eq!((delta.sockets[1].rx_packets, delta.sockets[1].recv_queue, delta.sockets[3].rx_packets), (150, 7, 5));
    insta::assert_snapshot!("rates", text_of(2, &delta, Unit::PerSecond) + &text_of(3, &delta, Unit::PerSecond));
}

#[test]
fn sockets_that_are_not_told_of_are_counted() {
    let report = ProcessReport { sockets_total: 1000, ..process() };
    assert!(text_of(5, &report, Unit::Total).ends_with("and 996 sockets more (VMA_STATS_FD_NUM, -s)\n"));
}

#[test]
fn the_command_line_is_libvmas() {
    Options::command().debug_assert();
    let parse = |line: &str| Options::try_parse_from(format!("vma_stats {line}").split_whitespace());
    let options = parse("-p 7 -k /x -F -i 2 -c 3 -v 3 -d 2 -z -l debug -S 5 fine -D 3 -s 1-3,7").unwrap();
    assert_eq!((options.pid, options.interval, options.cycles, options.view, options.details), (Some(7), 2, 3, 3, Details::Deltas));
    assert_eq!((1..9).filter(|&fd| options.sockets.as_ref().unwrap().has(fd)).collect::<Vec<_>>(), [1, 2, 3, 7]);
    let request = options.request().unwrap();
    assert_eq!((request.log_level, request.dump, request.log_details), (Some(6), Some((5, 7)), Some(3)));
    assert_eq!(parse("-S 0").unwrap().request().unwrap().dump, Some((0, 4)));
    assert!(parse("--find_pid --forbid_clean --fd_dump 3 --log_level info --log_details 1").is_ok());
    for bad in ["-v 6", "-d 3", "-s x", "-s 5-3", "-s 1,5-3", "-D 9", "-p 1 -n x"] {
        assert!(parse(bad).is_err(), "{bad}");
    }
    assert!(parse("-l loud").unwrap().request().is_err());
}

#[test]
fn the_manual_page_has_every_option() {
    let page = include_str!("../../../man/vma_stats.8");
    for argument in Options::command().get_arguments() {
        let (short, long) = (argument.get_short().unwrap(), argument.get_long().unwrap().replace('-', "\\-"));
        assert!(
            page.contains(&format!(".BR \\-{short} \", \" \\-\\-{long}"))
                || page.contains(&format!(".BR \\-{short} \", \" \\-\\-{long}\n")),
            "-{short}"
        );
    }
}
