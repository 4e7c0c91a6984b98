use std::net::Ipv6Addr;

use super::*;
use crate::wire::icmpv6::{self, Fault, Unreachable, ndisc};
use crate::wire::{ethernet, ipv6};

const A6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1);
const B6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0x1234, 2);
const ANY: IpAddr = IpAddr::V6(Ipv6Addr::UNSPECIFIED);
const HEADERS: usize = ethernet::LEN + ipv6::LEN;

fn pair() -> Pair {
    Pair::between(A6.into(), B6.into())
}

fn hop(port: u16) -> Option<(SocketAddr, NextHop)> {
    Some((SocketAddr::new(B6.into(), port), NextHop::Neighbour(B6.into())))
}

fn connected(pair: &mut Pair) -> (FlowId, FlowId) {
    let listener = pair.b.tcp_listen(SocketAddr::new(ANY, 80), 4, &tcp::Config::default()).unwrap();
    let (local, (remote, hop)) = (SocketAddr::new(A6.into(), 5000), hop(80).unwrap());
    let client = pair.a.tcp_connect(pair.now, local, remote, hop, &tcp::Config::default()).unwrap();
    pair.settle();
    (client, pair.b.tcp_accept(listener).unwrap())
}

/// A packet with an ICMPv6 message from B to A, or from whoever.
fn packet(pair: &Pair, src: Ipv6Addr, hop_limit: u8, emit: impl FnOnce(&mut [u8]) -> usize) -> Vec<u8> {
    let mut frame = vec![0; 400];
    ethernet::Header { dst: pair.a.mac, src: MacAddr([2; 6]), vlan: None, ethertype: ethernet::ETHERTYPE_IPV6 }.emit(&mut frame);
    let len = emit(&mut frame[HEADERS..]);
    let (next_header, payload_len) = (ipv6::PROTOCOL_ICMPV6, len as u16);
    let header = ipv6::Header { src, dst: A6, next_header, hop_limit, traffic_class: 0, flow_label: 0, payload_len };
    header.emit(&mut frame[ethernet::LEN..]);
    frame.truncate(HEADERS + len);
    frame
}

fn to_a(pair: &mut Pair, frame: Vec<u8>) {
    pair.a.queues().inward.lock().unwrap().push_back(frame);
    pair.a.poll(pair.now);
}

fn error(pair: &Pair, about: &[u8], fault: Fault) -> Vec<u8> {
    let router = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 0xfe);
    packet(pair, router, 64, |out| {
        icmpv6::emit_error((router, A6), fault, &about[ethernet::LEN..about.len().min(ethernet::LEN + 100)], out)
    })
}

fn last_sent(pair: &Pair) -> Vec<u8> {
    pair.a.queues().out.lock().unwrap().back().cloned().unwrap()
}

#[test]
fn a_stream_opens_carries_bytes_both_ways_and_closes() {
    let mut pair = pair();
    let (client, server) = connected(&mut pair);
    let big: Vec<u8> = (0..20_000u32).map(|n| n as u8).collect();
    assert_eq!(write(&mut pair.a, pair.now, client, b"ping"), Ok(4));
    assert_eq!(write(&mut pair.b, pair.now, server, &big), Ok(big.len()));
    pair.settle();
    assert_eq!(read(&mut pair.b, pair.now, server, 64), Ok(b"ping".to_vec()));
    assert_eq!(read(&mut pair.a, pair.now, client, 65536), Ok(big));
    assert_eq!(pair.b.info(server).unwrap().remote, Some(SocketAddr::new(A6.into(), 5000)));
    assert_eq!(pair.a.info(client).unwrap().mss, 1500 - 60 - 12, "40 bytes of IPv6, 20 of TCP, 12 of timestamps");
    pair.a.close(pair.now, client, false);
    pair.b.close(pair.now, server, false);
    pair.settle();
    pair.pass(Duration::from_secs(61));
    assert!(!pair.a.lingering() && !pair.b.lingering());
}

#[test]
fn a_neighbour_that_does_not_answer_is_unreachable() {
    let mut pair = pair();
    let nobody = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 9);
    let (local, remote) = (SocketAddr::new(A6.into(), 5000), SocketAddr::new(nobody.into(), 80));
    let client = pair.a.tcp_connect(pair.now, local, remote, NextHop::Neighbour(nobody.into()), &tcp::Config::default()).unwrap();
    let asked = last_sent(&pair);
    assert_eq!(asked[..6], MacAddr::of_group(ipv6::solicited_node(nobody).into()).0, "its own group is asked (RFC 4861 s7.2.2)");
    pair.pass(Duration::from_secs(4));
    assert_eq!(pair.a.take_error(client), Some(Error::HostUnreachable));
}

/// RFC 4861 s7.1.1, s7.1.2: what a router passed on, or a stranger says unasked, teaches nothing.
#[test]
fn only_neighbours_are_believed_about_neighbours() {
    let mut pair = pair();
    let mac = MacAddr([2, 9, 9, 9, 9, 9]);
    let claim = |pair: &Pair, hop_limit| {
        let options = ndisc::OptionsBuf::default().target(mac);
        let options = options.options();
        let message = ndisc::Message::NeighborAdvertisement { target: B6, router: false, solicited: true, overriding: true, options };
        let mut whole = [0; 200];
        let len = message.emit_packet(B6, A6, &mut whole);
        packet(pair, B6, hop_limit, |out| {
            out[..len - ipv6::LEN].copy_from_slice(&whole[ipv6::LEN..len]);
            len - ipv6::LEN
        })
    };
    let unasked = claim(&pair, 255);
    to_a(&mut pair, unasked);
    assert_eq!(pair.a.neighbours.known(B6.into()), None);
    let socket = pair.a.udp_open(SocketAddr::new(A6.into(), 7), &UdpOptions::default()).unwrap();
    pair.a.udp_send(pair.now, socket, &[IoSlice::new(b"x")], A6.into(), hop(7)).unwrap();
    let passed_on = claim(&pair, 254);
    to_a(&mut pair, passed_on);
    assert_eq!(pair.a.neighbours.known(B6.into()), None);
    let answer = claim(&pair, 255);
    to_a(&mut pair, answer);
    assert_eq!(pair.a.neighbours.known(B6.into()), Some(mac));
}

/// RFC 4861 s7.2.5, appendix C: what an advertisement makes of who is known, and of who is asked for. Who is stale is asked, alone, when it is used next.
#[test]
fn advertisements_prove_what_they_prove() {
    let (first, second) = (MacAddr([2, 9, 9, 9, 9, 1]), MacAddr([2, 9, 9, 9, 9, 2]));
    // Whether it is known before, that it is reachable, the advertisement's flags and MAC address; the one known after it, and whether it is asked next.
    for (before, solicited, overriding, mac, after) in [
        (None, true, true, Some(first), Some((first, false))),
        (None, false, true, Some(first), Some((first, true))),
        (None, true, false, Some(first), Some((first, false))),
        (None, true, true, None, None),
        (Some(true), true, false, Some(second), Some((first, true))),
        (Some(true), false, false, Some(second), Some((first, true))),
        (Some(true), false, true, Some(second), Some((second, true))),
        (Some(true), true, true, Some(second), Some((second, false))),
        (Some(true), false, true, Some(first), Some((first, false))),
        (Some(true), false, false, None, Some((first, false))),
        (Some(false), true, false, Some(first), Some((first, false))),
        (Some(false), true, false, None, Some((first, false))),
        (Some(false), false, true, Some(first), Some((first, true))),
        (Some(false), true, false, Some(second), Some((first, true))),
        (Some(false), false, true, Some(second), Some((second, true))),
    ] {
        let mut pair = pair();
        let socket = pair.a.udp_open(SocketAddr::new(A6.into(), 7), &UdpOptions::default()).unwrap();
        let say = |pair: &mut Pair| {
            let sent = pair.a.udp_send(pair.now, socket, &[IoSlice::new(b"x")], A6.into(), hop(7));
            assert_eq!(sent, Ok(1));
            core::mem::take(&mut *pair.a.queues().out.lock().unwrap())
        };
        let advertise = |pair: &mut Pair, solicited, overriding, mac: Option<MacAddr>| {
            let options = mac.map_or_else(ndisc::OptionsBuf::default, |mac| ndisc::OptionsBuf::default().target(mac));
            let options = options.options();
            let message = ndisc::Message::NeighborAdvertisement { target: B6, router: false, solicited, overriding, options };
            let mut whole = [0; 200];
            let len = message.emit_packet(B6, A6, &mut whole);
            let frame = packet(pair, B6, 255, |out| {
                out[..len - ipv6::LEN].copy_from_slice(&whole[ipv6::LEN..len]);
                len - ipv6::LEN
            });
            to_a(pair, frame);
        };
        say(&mut pair);
        if let Some(is_reachable) = before {
            advertise(&mut pair, true, true, Some(first));
            pair.now += Duration::from_secs(if is_reachable { 5 } else { 31 });
        }
        advertise(&mut pair, solicited, overriding, mac);
        pair.a.queues().out.lock().unwrap().clear();
        let known = pair.a.neighbours.known(B6.into()).map(|mac| {
            let sent = say(&mut pair);
            assert!(sent.iter().all(|frame| frame[..6] == mac.0), "each goes to the MAC address that is known");
            (mac, sent.len() == 2)
        });
        assert_eq!(known, after, "{before:?} {solicited} {overriding} {mac:?}");
    }
}

#[test]
fn datagrams_are_heard_and_refused() {
    let mut pair = pair();
    let a = pair.a.udp_open(SocketAddr::new(A6.into(), 1000), &UdpOptions::default()).unwrap();
    let b = pair.b.udp_open(SocketAddr::new(ANY, 2000), &UdpOptions::default()).unwrap();
    let long = vec![7; 1500 - 48];
    for payload in [&b"hello"[..], &[], &long] {
        pair.a.udp_send(pair.now, a, &[IoSlice::new(payload)], A6.into(), hop(2000)).unwrap();
        pair.settle();
        let mut bytes = [0; 2000];
        let got = pair.b.udp_recv(b, &mut [IoSliceMut::new(&mut bytes)], RecvFlags::empty()).unwrap();
        assert_eq!((got.from, got.to, &bytes[..got.len]), (SocketAddr::new(A6.into(), 1000), B6.into(), payload));
    }
    let longer = vec![7; 1500 - 47];
    assert_eq!(pair.a.udp_send(pair.now, a, &[IoSlice::new(&longer)], A6.into(), hop(2000)), Err(Error::MessageTooLong));
    pair.a.udp_connect(a, A6.into(), hop(9)).unwrap();
    pair.a.udp_send(pair.now, a, &[IoSlice::new(b"?")], A6.into(), None).unwrap();
    pair.settle();
    let error = pair.a.udp_recv(a, &mut [IoSliceMut::new(&mut [0; 9])], RecvFlags::empty()).unwrap_err();
    assert_eq!(error, Error::Refused, "RFC 4443 s3.1");
}

/// RFC 8200 s8.1: "IPv6 receivers must discard UDP packets containing a zero checksum".
#[test]
fn a_datagram_without_a_checksum_is_not_heard() {
    let mut pair = pair();
    pair.a.set_neighbour(B6.into(), Some(pair.b.queues.mac));
    let a = pair.a.udp_open(SocketAddr::new(A6.into(), 1000), &UdpOptions::default()).unwrap();
    let b = pair.b.udp_open(SocketAddr::new(B6.into(), 2000), &UdpOptions::default()).unwrap();
    pair.a.udp_send(pair.now, a, &[IoSlice::new(b"hello")], A6.into(), hop(2000)).unwrap();
    pair.b.queues().inward.lock().unwrap().back_mut().unwrap()[HEADERS + 6..HEADERS + 8].fill(0);
    pair.settle();
    assert_eq!(pair.b.udp_recv(b, &mut [IoSliceMut::new(&mut [0; 9])], RecvFlags::empty()).map(|got| got.len), Err(Error::WouldBlock));
}

#[test]
fn a_ping_is_answered() {
    let mut pair = pair();
    let ping = packet(&pair, B6, 64, |out| icmpv6::emit_echo((B6, A6), false, (7, 8), b"data", out));
    to_a(&mut pair, ping);
    let answer = last_sent(&pair);
    let (header, _) = ipv6::Header::parse(&answer[ethernet::LEN..]).unwrap();
    assert!(header.check_upper(ipv6::PROTOCOL_ICMPV6, &answer[HEADERS..]).is_ok());
    assert_eq!(icmpv6::Message::parse(&answer[HEADERS..]).unwrap().0, icmpv6::Message::EchoReply { id: 7, seq: 8 });
    assert_eq!((header.src, header.dst, &answer[HEADERS + 8..]), (A6, B6, &b"data"[..]));
}

/// RFC 8201 s4: a report is believed of what is on its way, and never below 1280.
#[test]
fn a_packet_too_big_is_cut_smaller() {
    let mut pair = pair();
    let (client, server) = connected(&mut pair);
    write(&mut pair.a, pair.now, client, &[7; 20_000]).unwrap();
    let about = last_sent(&pair);
    let mss = |pair: &Pair| pair.a.info(client).unwrap().mss;
    for mtu in [0, 68, 1279, 1500, 70_000] {
        let report = error(&pair, &about, Fault::PacketTooBig { mtu });
        to_a(&mut pair, report);
        assert_eq!(mss(&pair), 1428, "a report of {mtu}");
    }
    let report = error(&pair, &about, Fault::PacketTooBig { mtu: 1300 });
    to_a(&mut pair, report);
    assert_eq!(mss(&pair), 1300 - 72);
    pair.settle();
    assert_eq!(read(&mut pair.b, pair.now, server, 65536).map(|bytes| bytes.len()), Ok(20_000));
}

/// RFC 5927 s4.1 holds here as well: an error about what is not on its way is a stranger's.
#[test]
fn an_error_ends_a_handshake_and_no_connection() {
    let mut pair = pair();
    pair.a.set_neighbour(B6.into(), Some(pair.b.queues.mac));
    let (local, (remote, hop)) = (SocketAddr::new(A6.into(), 5000), hop(80).unwrap());
    let client = pair.a.tcp_connect(pair.now, local, remote, hop, &tcp::Config::default()).unwrap();
    let refusal = error(&pair, &last_sent(&pair), Fault::DestinationUnreachable(Unreachable::Port));
    let (other, _) = connected_after(&mut pair, 5001);
    write(&mut pair.a, pair.now, other, b"in flight").unwrap();
    let mut strange = last_sent(&pair);
    strange[HEADERS + 4] ^= 0x40;
    let stranger = error(&pair, &strange, Fault::DestinationUnreachable(Unreachable::Port));
    to_a(&mut pair, stranger);
    assert_eq!(pair.a.take_error(other), None);
    to_a(&mut pair, refusal);
    assert_eq!(pair.a.take_error(client), Some(Error::Refused));
}

fn connected_after(pair: &mut Pair, port: u16) -> (FlowId, FlowId) {
    // (The SYN of the one before is lost.)
    pair.b.queues().inward.lock().unwrap().clear();
    let listener = pair.b.tcp_listen(SocketAddr::new(ANY, 80), 4, &tcp::Config::default()).unwrap();
    let (local, (remote, hop)) = (SocketAddr::new(A6.into(), port), hop(80).unwrap());
    let client = pair.a.tcp_connect(pair.now, local, remote, hop, &tcp::Config::default()).unwrap();
    pair.settle();
    (client, pair.b.tcp_accept(listener).unwrap())
}

/// RFC 8200 s4, s4.2: what nobody knows is told to the sender; a fragment is no whole packet.
#[test]
fn extension_headers_lead_to_the_datagram() {
    let mut pair = pair();
    pair.a.set_neighbour(B6.into(), Some(pair.b.queues.mac));
    let a = pair.a.udp_open(SocketAddr::new(A6.into(), 1000), &UdpOptions::default()).unwrap();
    let b = pair.b.udp_open(SocketAddr::new(B6.into(), 2000), &UdpOptions::default()).unwrap();
    // Padding; an option that may be passed over; one that may not; a fragment.
    let cases: [(&[u8], bool); 4] = [
        (&[0, 17, 0, 1, 4, 0, 0, 0, 0], true),
        (&[60, 17, 0, 0x1e, 4, 0, 0, 0, 0], true),
        (&[60, 17, 0, 0x9e, 4, 0, 0, 0, 0], false),
        (&[44, 17, 0, 0, 1, 0, 0, 0, 7], false),
    ];
    for (extension, is_heard) in cases {
        pair.a.udp_send(pair.now, a, &[IoSlice::new(b"hello")], A6.into(), hop(2000)).unwrap();
        {
            let mut wire = pair.b.queues().inward.lock().unwrap();
            let frame = wire.back_mut().unwrap();
            frame[ethernet::LEN + 6] = extension[0];
            frame[ethernet::LEN + 5] += 8;
            frame.splice(HEADERS..HEADERS, extension[1..].iter().copied());
        }
        pair.settle();
        let got = pair.b.udp_recv(b, &mut [IoSliceMut::new(&mut [0; 9])], RecvFlags::empty()).map(|got| got.len);
        assert_eq!(got, if is_heard { Ok(5) } else { Err(Error::WouldBlock) }, "{extension:?}");
    }
}

/// RFC 4443 s2.4 (f): "An IPv6 node MUST limit the rate of ICMPv6 error messages it originates".
#[test]
fn errors_are_limited() {
    let mut pair = pair();
    pair.a.set_neighbour(B6.into(), Some(pair.b.queues.mac));
    let a = pair.a.udp_open(SocketAddr::new(A6.into(), 1000), &UdpOptions::default()).unwrap();
    let answers = |pair: &mut Pair| {
        let before = pair.b.counters().tx_packets;
        for _ in 0..50 {
            pair.a.udp_send(pair.now, a, &[IoSlice::new(b"?")], A6.into(), hop(9)).unwrap();
        }
        pair.settle();
        pair.b.counters().tx_packets - before
    };
    assert_eq!(answers(&mut pair), 10);
    pair.pass(Duration::from_millis(350));
    assert_eq!(answers(&mut pair), 3);
    pair.pass(Duration::from_secs(3600));
    assert_eq!(answers(&mut pair), 10);
}

#[test]
fn ends_of_different_families_are_refused() {
    let mut pair = pair();
    let remote = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 80);
    let other = Some((remote, NextHop::Neighbour(remote.ip())));
    let socket = pair.a.udp_open(SocketAddr::new(ANY, 7), &UdpOptions::default()).unwrap();
    assert_eq!(pair.a.udp_send(pair.now, socket, &[IoSlice::new(b"x")], A6.into(), other), Err(Error::Invalid));
    assert_eq!(pair.a.udp_send(pair.now, socket, &[IoSlice::new(b"x")], remote.ip(), hop(80)), Err(Error::Invalid));
    assert_eq!(pair.a.udp_connect(socket, A6.into(), other), Err(Error::Invalid));
    assert_eq!(pair.a.udp_connect(socket, remote.ip(), hop(80)), Err(Error::Invalid));
    let (local, hop, config) = (SocketAddr::new(A6.into(), 7), NextHop::Neighbour(remote.ip()), tcp::Config::default());
    assert_eq!(pair.a.tcp_connect(pair.now, local, remote, hop, &config), Err(Error::Invalid));
    assert_eq!(pair.a.counters().tx_packets, 0);
}

#[test]
fn a_datagram_whose_checksum_is_left_to_the_device_is_not_one_without() {
    let mut pair = pair();
    pair.a.output.caps.tx_checksum = true;
    let id = pair.a.udp_open(SocketAddr::new(ANY, 5000), &UdpOptions::default()).unwrap();
    let mac = pair.b.queues().mac;
    pair.a.set_neighbour(B6.into(), Some(mac));
    // Small enough for a head, and not.
    for len in [10, 1000] {
        pair.a.udp_send(pair.now, id, &[IoSlice::new(&vec![7; len])], A6.into(), hop(6000)).unwrap();
        let frame = last_sent(&pair);
        assert_ne!(frame[HEADERS + 6..HEADERS + 8], [0, 0], "a device that fills nothing in would send it so: RFC 8200 s8.1");
    }
}

/// Found by the simulator (53058887/send_full/0/epoll/ipv6): a host whose send queue was full swallowed each question, and whoever had asked gave it up.
#[test]
fn an_advertisement_that_the_device_refuses_is_given_as_soon_as_it_takes_frames() {
    let mut pair = pair();
    let listener = pair.b.tcp_listen(SocketAddr::new(ANY, 80), 4, &tcp::Config::default()).unwrap();
    pair.a.set_neighbour(B6.into(), None);
    pair.b.queues_mut().room = 0;
    let (local, (remote, hop)) = (SocketAddr::new(A6.into(), 5000), hop(80).unwrap());
    let client = pair.a.tcp_connect(pair.now, local, remote, hop, &tcp::Config::default()).unwrap();
    pair.settle();
    assert!(pair.b.refused());
    pair.b.queues_mut().room = usize::MAX;
    pair.pass(Duration::from_millis(20));
    assert_eq!(pair.a.info(client).unwrap().state, Some(tcp::State::Established));
    assert!(pair.b.tcp_accept(listener).is_ok() && !pair.b.refused());
}
