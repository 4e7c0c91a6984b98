//! Frames that no ring sends: found by the simulator's prober.

use std::net::Ipv4Addr;

use super::*;
use crate::wire::{arp, checksum, ethernet, icmp, ipv4, udp};

/// The frame of a datagram from A to this port of B's, which has yet to be received.
fn datagram(pair: &mut Pair, port: u16, bytes: &[u8]) -> Vec<u8> {
    pair.a.set_neighbour(B, Some(pair.b.queues.mac));
    pair.b.set_neighbour(A, Some(pair.a.queues.mac));
    let socket = pair.a.udp_open(SocketAddr::new(A, 1000), &UdpOptions::default()).unwrap();
    let to = Some((SocketAddr::new(B, port), NextHop::Neighbour(B)));
    pair.a.udp_send(pair.now, socket, &[IoSlice::new(bytes)], A, to).unwrap();
    pair.b.queues.inward.lock().unwrap().pop_back().unwrap()
}

/// How many frames B answers with.
fn answers(pair: &mut Pair, frame: Vec<u8>) -> usize {
    pair.b.queues.inward.lock().unwrap().push_back(frame);
    pair.b.poll(pair.now);
    pair.b.queues.out.lock().unwrap().drain(..).count()
}

#[test]
fn what_was_for_every_host_or_from_no_one_host_is_refused_to_nobody() {
    let mut pair = Pair::new();
    let frame = datagram(&mut pair, 9, b"?");
    assert_eq!(answers(&mut pair, frame.clone()), 1);
    let mut for_all = frame.clone();
    for_all[..6].fill(0xff);
    assert_eq!(answers(&mut pair, for_all), 0);
    for src in [Ipv4Addr::BROADCAST, Ipv4Addr::new(224, 0, 0, 1), Ipv4Addr::new(240, 0, 0, 1), Ipv4Addr::UNSPECIFIED] {
        let mut from = frame.clone();
        let (mut header, len) = ipv4::Header::parse(&from[ethernet::LEN..]).unwrap();
        header.src = src;
        header.emit(&mut from[ethernet::LEN..], true);
        // (No checksum.)
        from[ethernet::LEN + len + 6..][..2].fill(0);
        assert_eq!(answers(&mut pair, from), 0, "{src}");
    }
}

/// As Linux does (tried with IP_OPTIONS, ip(7), on its loopback interface).
#[test]
fn a_refusal_quotes_the_header_as_it_came_with_its_options() {
    let mut pair = Pair::new();
    let plain = datagram(&mut pair, 9, b"a datagram of more than eight bytes");
    let ip_at = ethernet::LEN;
    for words in 0..=10 {
        let options = vec![1; 4 * words];
        let end = ip_at + ipv4::LEN;
        let mut frame = [&plain[..end], &options, &plain[end..]].concat();
        frame[ip_at] += words as u8;
        // (The reserved flag, which nothing that the header is read into holds.)
        frame[ip_at + 6] |= 0x80;
        let total = (frame.len() - ip_at) as u16;
        frame[ip_at + 2..][..2].copy_from_slice(&total.to_be_bytes());
        frame[ip_at + 10..][..2].fill(0);
        let sum = !checksum::sum(&frame[ip_at..end + options.len()]);
        frame[ip_at + 10..][..2].copy_from_slice(&sum.to_be_bytes());
        pair.b.queues.inward.lock().unwrap().push_back(frame.clone());
        pair.b.poll(pair.now);
        let answer = pair.b.queues.out.lock().unwrap().pop_front().unwrap();
        let (header, len) = ipv4::Header::parse(&answer[ip_at..]).unwrap();
        let message = &answer[ip_at + len..ip_at + usize::from(header.total_len)];
        assert_eq!(message[icmp::LEN..], frame[ip_at..end + options.len() + 8], "{words} words");
        assert_eq!(checksum::sum(message), 0xffff);
    }
}

#[test]
fn a_connection_asked_of_every_host_is_reset_by_nobody() {
    let mut pair = Pair::new();
    let (_, syn) = pair.connect_seen(5000);
    pair.b.queues.inward.lock().unwrap().clear();
    let mut for_all = syn.clone();
    for_all[..6].fill(0xff);
    assert_eq!((answers(&mut pair, syn), answers(&mut pair, for_all)), (1, 0));
}

#[test]
fn a_datagram_that_is_shorter_than_its_packet_is_taken() {
    let mut pair = Pair::new();
    let socket = pair.b.udp_open(SocketAddr::new(B, 9), &UdpOptions::default()).unwrap();
    let mut frame = datagram(&mut pair, 9, b"four");
    let (ip, len) = ipv4::Header::parse(&frame[ethernet::LEN..]).unwrap();
    let at = ethernet::LEN + len;
    let shorter = udp::Header { src_port: 1000, dst_port: 9, len: (udp::LEN + 2) as u16, checksum: 0 };
    shorter.emit(&mut frame[at..]);
    let mut sum = ip.pseudo_header(udp::LEN + 2);
    sum.add(&frame[at..at + udp::LEN + 2]);
    udp::Header { checksum: sum.finish(), ..shorter }.emit(&mut frame[at..]);
    assert_eq!(answers(&mut pair, frame), 0);
    let mut bytes = [0; 8];
    let read = pair.b.udp_recv(socket, &mut [IoSliceMut::new(&mut bytes)], RecvFlags::empty()).unwrap();
    assert_eq!((read.len, &bytes[..2]), (2, &b"fo"[..]));
}

/// The frame of A's question, in the name of `sender`, where B is.
fn question(pair: &Pair, sender: Ipv4Addr) -> Vec<u8> {
    let mac = pair.a.queues.mac;
    let mut frame = vec![0; 60];
    let link = ethernet::Header { dst: MacAddr::BROADCAST, src: mac, vlan: None, ethertype: ethernet::ETHERTYPE_ARP };
    let at = link.emit(&mut frame);
    let operation = arp::Operation::Request;
    let packet = arp::Packet { operation, sender_mac: mac, sender_ip: sender, target_mac: MacAddr::default(), target_ip: B4 };
    packet.emit(&mut frame[at..]);
    frame
}

/// RFC 5227 s2.1.1.
#[test]
fn who_asks_whether_an_address_is_taken_is_answered_and_teaches_nothing() {
    let mut pair = Pair::new();
    let probe = question(&pair, Ipv4Addr::UNSPECIFIED);
    assert_eq!(answers(&mut pair, probe), 1);
    assert_eq!(pair.b.neighbours.known(IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED)), None);
}

#[test]
fn an_answer_that_waited_says_where_the_ring_is_when_it_is_sent() {
    let mut pair = Pair::new();
    let question = question(&pair, A4);
    pair.b.queues.room = 0;
    assert_eq!(answers(&mut pair, question), 0);
    let moved_to = MacAddr([2, 0, 0, 0, 9, 9]);
    (pair.b.queues.mac, pair.b.queues.room) = (moved_to, usize::MAX);
    pair.b.readdress(false);
    pair.now += Duration::from_secs(1);
    pair.b.poll(pair.now);
    let answer = pair.b.queues.out.lock().unwrap().pop_front().unwrap();
    let (link, at) = ethernet::Header::parse(&answer).unwrap();
    let (packet, _) = arp::Packet::parse(&answer[at..]).unwrap();
    assert_eq!((link.src, packet.sender_mac), (moved_to, moved_to));
}

#[test]
fn what_the_device_refuses_to_send_to_a_group_is_not_heard_at_home() {
    let group = IpAddr::V4(std::net::Ipv4Addr::new(239, 0, 0, 9));
    let mut pair = Pair::new();
    let socket = pair.a.udp_open(SocketAddr::new(IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED), 7000), &UdpOptions::default()).unwrap();
    pair.a.udp_join(pair.now, socket, group, A).unwrap();
    let mut say = |room, refusal| {
        (pair.a.queues.room, pair.a.queues.refusal) = (room, refusal);
        let to = Some((SocketAddr::new(group, 7000), NextHop::Neighbour(group)));
        let sent = pair.a.udp_send(pair.now, socket, &[IoSlice::new(b"all")], A, to);
        let read = pair.a.udp_recv(socket, &mut [IoSliceMut::new(&mut [0; 8])], RecvFlags::empty());
        (sent, read.map(|read| read.len))
    };
    assert_eq!(say(1, SendError::Full), (Ok(3), Ok(3)));
    // What a full queue takes is lost on the wire alone.
    assert_eq!(say(0, SendError::Full), (Ok(3), Ok(3)));
    assert_eq!(say(0, SendError::TooLong), (Err(Error::MessageTooLong), Err(Error::WouldBlock)));
}

#[test]
fn an_answer_or_an_announcement_that_the_device_refuses_counts_as_dropped() {
    let mut pair = Pair::new();
    let envelope = Envelope { src: A, dst: B, mac: pair.b.queues.mac, ttl: 64, tos: 0 };
    pair.a.output.icmp(&mut pair.a.queues, &envelope, &icmp::Message::EchoRequest { id: 1, seq: 1 }, &[]).unwrap();
    let ping = pair.b.queues.inward.lock().unwrap().pop_back().unwrap();
    assert_eq!((answers(&mut pair, ping.clone()), pair.b.counters().tx_drops), (1, 0));
    pair.b.queues.room = 0;
    assert_eq!((answers(&mut pair, ping), pair.b.counters().tx_drops), (0, 1));
    pair.b.readdress(true);
    assert_eq!(pair.b.counters().tx_drops, 2);
}
