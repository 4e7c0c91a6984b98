//! Requirements of RFC 9293 that are the ring's, and that no other test shows (docs/rfc9293.md lists all of them).

use super::*;
use crate::wire::{checksum, ethernet, icmp, ipv4};

const IP: usize = ethernet::LEN;

/// What the last frame on its way from A says of IP.
fn last_header(pair: &Pair) -> ipv4::Header {
    ipv4::Header::parse(&pair.a.queues.out.lock().unwrap().back().unwrap()[IP..]).unwrap().0
}

/// The packet of a frame goes from and to these addresses, with all checksums right.
fn between(frame: &[u8], src: Ipv4Addr, dst: Ipv4Addr) -> Vec<u8> {
    let mut frame = frame.to_vec();
    let (header, len) = ipv4::Header::parse(&frame[IP..]).unwrap();
    let header = ipv4::Header { src, dst, ..header };
    header.emit(&mut frame[IP..], true);
    let at = IP + len;
    frame[at + 16..at + 18].fill(0);
    let end = IP + usize::from(header.total_len);
    let mut sum = header.pseudo_header(end - at);
    sum.add(&frame[at..end]);
    let sum = sum.finish();
    frame[at + 16..at + 18].copy_from_slice(&sum.to_be_bytes());
    frame
}

/// How many frames B answers with.
fn answers(pair: &mut Pair, frame: Vec<u8>) -> usize {
    pair.b.queues.inward.lock().unwrap().push_back(frame);
    pair.b.poll(pair.now);
    pair.b.queues.out.lock().unwrap().drain(..).count()
}

/// MUST-48, MUST-49, SHLD-21, SHLD-22.
#[test]
fn a_programs_priority_and_time_to_live_are_in_its_packets() {
    let mut pair = Pair::new();
    let config = tcp::Config { tos: 0x28, ttl: 7, nodelay: true, ..tcp::Config::default() };
    pair.b.tcp_listen(SocketAddr::new(B, 80), 4, &tcp::Config::default()).unwrap();
    pair.a.set_neighbour(B, Some(pair.b.queues.mac));
    let (local, remote) = (SocketAddr::new(A, 5000), SocketAddr::new(B, 80));
    let client = pair.a.tcp_connect(pair.now, local, remote, NextHop::Neighbour(B), &config).unwrap();
    let of = |header: ipv4::Header| (header.tos, header.ttl);
    assert_eq!(of(last_header(&pair)), (0x28, 7), "the SYN");
    pair.settle();
    write(&mut pair.a, pair.now, client, b"low delay").unwrap();
    assert_eq!(of(last_header(&pair)), (0x28, 7));
    pair.a.tcp_configure(pair.now, client, |config| (config.tos, config.ttl) = (0x48, 99)).unwrap();
    write(&mut pair.a, pair.now, client, b"bulk").unwrap();
    assert_eq!(of(last_header(&pair)), (0x48, 99));
}

/// MUST-43, MUST-45.
#[test]
fn a_connection_has_the_address_that_it_was_opened_from_and_keeps_it() {
    for number in [1, 11] {
        let mut pair = Pair::new();
        let own = Ipv4Addr::new(10, 0, 0, number);
        pair.a.config.addresses = vec![A, IpAddr::V4(Ipv4Addr::new(10, 0, 0, 11))];
        pair.b.tcp_listen(SocketAddr::new(B, 80), 4, &tcp::Config::default()).unwrap();
        let (local, remote) = (SocketAddr::new(IpAddr::V4(own), 5000), SocketAddr::new(B, 80));
        pair.a.set_neighbour(B, Some(pair.b.queues.mac));
        let client = pair.a.tcp_connect(pair.now, local, remote, NextHop::Neighbour(B), &tcp::Config::default()).unwrap();
        assert_eq!(last_header(&pair).src, own, "the SYN");
        pair.settle();
        assert_eq!(pair.a.info(client).unwrap().state, Some(tcp::State::Established));
        write(&mut pair.a, pair.now, client, b"bytes").unwrap();
        assert_eq!(last_header(&pair).src, own);
    }
}

/// MUST-41, MUST-42.
#[test]
fn who_listens_on_a_port_of_attempts_disturbs_nobody() {
    let mut pair = Pair::new();
    let connected = pair.connect(80);
    pair.a.set_neighbour(B, Some(pair.b.queues.mac));
    let attempt = pair.connect(80 + 1);
    let config = tcp::Config::default();
    for port in [80, 81] {
        let listener = pair.a.tcp_listen(SocketAddr::new(A, port), 4, &config).unwrap();
        assert_eq!(pair.a.tcp_listen(SocketAddr::new(A, port), 4, &config), Err(Error::AddressInUse));
        assert_eq!(pair.a.info(listener).unwrap().state, Some(tcp::State::Listen));
    }
    let states = [connected, attempt].map(|flow| pair.a.info(flow).unwrap().state.unwrap());
    assert_eq!(states, [tcp::State::SynSent; 2]);
    pair.b.tcp_listen(SocketAddr::new(B, 80), 4, &config).unwrap();
    let (local, remote) = (SocketAddr::new(B, 5000), SocketAddr::new(A, 80));
    let other = pair.b.tcp_connect(pair.now, local, remote, NextHop::Neighbour(A), &config).unwrap();
    pair.settle();
    let states = [connected, attempt].map(|flow| pair.a.info(flow).unwrap().state.unwrap());
    assert_eq!(states, [tcp::State::Established; 2]);
    assert_eq!(pair.b.info(other).unwrap().state, Some(tcp::State::Established));
}

/// MUST-57, MUST-63: to a group or to everybody, and from what is no one host's address.
#[test]
fn a_syn_to_many_or_from_no_one_host_meets_silence() {
    let mut pair = Pair::new();
    pair.b.tcp_listen(SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 80), 4, &tcp::Config::default()).unwrap();
    pair.b.set_neighbour(A, Some(pair.a.queues.mac));
    let (_, syn) = pair.connect_seen(5000);
    pair.b.queues.inward.lock().unwrap().clear();
    let group = Ipv4Addr::new(239, 0, 0, 9);
    let socket = pair.b.udp_open(SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 80), &UdpOptions::default()).unwrap();
    pair.b.udp_join(pair.now, socket, IpAddr::V4(group), B).unwrap();
    pair.b.queues.out.lock().unwrap().clear();
    for dst in [group, Ipv4Addr::BROADCAST] {
        assert_eq!(answers(&mut pair, between(&syn, A4, dst)), 0, "to {dst}");
    }
    for src in [group, Ipv4Addr::BROADCAST, Ipv4Addr::new(240, 0, 0, 1), Ipv4Addr::UNSPECIFIED, Ipv4Addr::LOCALHOST] {
        assert_eq!(answers(&mut pair, between(&syn, src, B4)), 0, "from {src}");
    }
    assert_eq!(answers(&mut pair, between(&syn, A4, B4)), 1, "and this one is what it was");
}

/// MUST-46.
#[test]
fn no_connection_is_opened_to_many() {
    let mut pair = Pair::new();
    for remote in [Ipv4Addr::new(239, 0, 0, 9), Ipv4Addr::BROADCAST] {
        let (local, remote) = (SocketAddr::new(A, 5000), SocketAddr::new(IpAddr::V4(remote), 80));
        let opened = pair.a.tcp_connect(pair.now, local, remote, NextHop::Neighbour(B), &tcp::Config::default());
        assert_eq!(opened, Err(Error::NetworkUnreachable), "{remote}");
    }
    assert_eq!(pair.a.queues.out.lock().unwrap().len(), 0);
}

/// MUST-55, MUST-56: no error that a router tells of ends a connection; and a source quench is nothing at all.
#[test]
fn no_error_of_a_router_ends_a_connection() {
    for (kind, code) in [(4, 0), (3, 0), (3, 1), (3, 5), (11, 0), (11, 1), (12, 0)] {
        let mut pair = Pair::new();
        let (client, server, _) = pair.connected();
        write(&mut pair.a, pair.now, client, &[7; 20_000]).unwrap();
        let cwnd = pair.a.info(client).unwrap().cwnd;
        let about = pair.a.queues.out.lock().unwrap().back().unwrap().clone();
        let quote = &about[IP..IP + ipv4::LEN + icmp::QUOTED_MIN];
        let mut frame = [&about[..IP + ipv4::LEN], &[kind, code, 0, 0, 0, 0, 0, 0], quote].concat();
        let sum = !checksum::sum(&frame[IP + ipv4::LEN..]);
        frame[IP + ipv4::LEN + 2..][..2].copy_from_slice(&sum.to_be_bytes());
        let (mac, total_len) = (pair.a.mac, (frame.len() - IP) as u16);
        frame[..6].copy_from_slice(&mac.0);
        ipv4::Header { src: B4, dst: A4, protocol: ipv4::PROTOCOL_ICMP, total_len, ..last_header(&pair) }.emit(&mut frame[IP..], true);
        pair.a.queues.inward.lock().unwrap().push_back(frame);
        let drops = pair.a.counters().rx_drops;
        pair.a.poll(pair.now);
        // (Which of them it heeds shows that it has understood them.)
        assert_eq!(pair.a.counters().rx_drops == drops, matches!(kind, 3 | 11), "{kind}/{code}");
        assert_eq!(pair.a.info(client).unwrap().state, Some(tcp::State::Established), "{kind}/{code}");
        assert_eq!((pair.a.take_error(client), pair.a.info(client).unwrap().cwnd), (None, cwnd), "{kind}/{code}");
        pair.settle();
        assert_eq!(read(&mut pair.b, pair.now, server, 65_536).map(|bytes| bytes.len()), Ok(20_000), "{kind}/{code}");
    }
}
