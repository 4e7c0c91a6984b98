//! Frames that no ring sends: found by the simulator's prober.

use super::*;
use crate::wire::{arp, ethernet, ipv4, udp};

/// The frame of a datagram from A to this port of B's, which has yet to be received.
fn datagram(pair: &mut Pair, port: u16, bytes: &[u8]) -> Vec<u8> {
    pair.a.set_neighbour(B, Some(pair.b.device.mac));
    pair.b.set_neighbour(A, Some(pair.a.device.mac));
    let socket = pair.a.udp_open(SocketAddrV4::new(A, 1000), &UdpOptions::default()).unwrap();
    let to = Some((SocketAddrV4::new(B, port), NextHop::Neighbour(B)));
    pair.a.udp_send(pair.now, socket, &[IoSlice::new(bytes)], A, to).unwrap();
    pair.b.device.inward.lock().unwrap().pop_back().unwrap()
}

/// How many frames B answers with.
fn answers(pair: &mut Pair, frame: Vec<u8>) -> usize {
    pair.b.device.inward.lock().unwrap().push_back(frame);
    pair.b.poll(pair.now);
    pair.b.device.out.lock().unwrap().drain(..).count()
}

#[test]
fn what_was_for_every_station_or_from_no_one_host_is_refused_to_nobody() {
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

#[test]
fn a_datagram_that_is_shorter_than_its_packet_is_taken() {
    let mut pair = Pair::new();
    let socket = pair.b.udp_open(SocketAddrV4::new(B, 9), &UdpOptions::default()).unwrap();
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

/// RFC 5227 s2.1.1.
#[test]
fn who_asks_whether_an_address_is_taken_is_answered_and_teaches_nothing() {
    let mut pair = Pair::new();
    let mac = pair.a.device.mac;
    let mut frame = vec![0; 60];
    let link = ethernet::Header { dst: MacAddr::BROADCAST, src: mac, vlan: None, ethertype: ethernet::ETHERTYPE_ARP };
    let at = link.emit(&mut frame);
    let probe = arp::Packet {
        operation: arp::Operation::Request,
        sender_mac: mac,
        sender_ip: Ipv4Addr::UNSPECIFIED,
        target_mac: MacAddr::default(),
        target_ip: B,
    };
    probe.emit(&mut frame[at..]);
    assert_eq!(answers(&mut pair, frame), 1);
    assert_eq!(pair.b.neighbours.known(Ipv4Addr::UNSPECIFIED), None);
}
