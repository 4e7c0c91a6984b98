//! A cyclic buffer between two rings.

use core::time::Duration;
use std::io::{IoSlice, IoSliceMut};

use super::*;
use crate::cyclic::{Geometry, Records};
use crate::device::MacAddr;
use crate::error::Error;
use crate::ring::tests::{A, A4, B, B4, Pair};
use crate::ring::{NextHop, RecvFlags, UdpOptions};
use crate::wire::{ethernet, ipv4, udp};

type Memory = CyclicBuffer<Vec<u8>>;

fn buffer(records: Records, packets: usize, payload_bytes: usize) -> Memory {
    let geometry = Geometry { records, packets, payload_bytes, header_bytes: 0, vlan: false };
    CyclicBuffer::new(&geometry, vec![0; geometry.layout().unwrap().bytes()]).unwrap()
}

fn open(pair: &mut Pair, port: u16) -> (FlowId, FlowId) {
    let a = pair.a.udp_open(SocketAddr::new(A, port), &UdpOptions::default()).unwrap();
    (a, pair.b.udp_open(SocketAddr::new(B, port), &UdpOptions::default()).unwrap())
}

fn send(pair: &mut Pair, from: FlowId, port: u16, bytes: &[u8]) {
    let to = Some((SocketAddr::new(B, port), NextHop::Neighbour(B)));
    pair.a.udp_send(pair.now, from, &[IoSlice::new(bytes)], A, to).unwrap();
    pair.settle();
    pair.now += Duration::from_micros(1);
}

fn bytes(buffer: &Memory, run: &Run) -> Vec<u8> {
    buffer.memory()[run.payload.clone()].to_vec()
}

#[test]
fn records_are_the_packets_as_they_came() {
    for len in [20, 40, 57, 58, 59, 300, 1472] {
        let mut pair = Pair::new();
        let (a, b) = open(&mut pair, 7);
        let mut raw = buffer(Records::Raw, 8, len);
        assert_eq!(pair.b.cyclic_read(&[b], &mut raw, 1, 8), Ok(None));
        let sent: Vec<u8> = (0..len).map(|n| n as u8).collect();
        send(&mut pair, a, 7, &sent);
        let run = pair.b.cyclic_read(&[b], &mut raw, 1, 8).unwrap().unwrap();
        let packet = bytes(&raw, &run);
        let (link, at) = ethernet::Header::parse(&packet).unwrap();
        assert_eq!((link.src, link.dst), (MacAddr([2, 0, 0, 0, 0, 1]), MacAddr([2, 0, 0, 0, 0, 2])));
        let (ip, more) = ipv4::Header::parse(&packet[at..]).unwrap();
        assert_eq!((ip.src, ip.dst, usize::from(ip.total_len)), (A4, B4, 28 + len));
        assert!(ipv4::verify_checksum(&packet[at..]));
        let (ports, _) = udp::Header::parse(&packet[at + more..]).unwrap();
        assert_eq!((ports.src_port, ports.dst_port, usize::from(ports.len)), (7, 7, 8 + len));
        assert_eq!(packet[42..], sent);
    }
}

#[test]
fn what_came_before_has_headers_that_are_made_up() {
    let mut pair = Pair::new();
    let (a, b) = open(&mut pair, 7);
    send(&mut pair, a, 7, b"early");
    let mut raw = buffer(Records::Raw, 8, 5);
    let run = pair.b.cyclic_read(&[b], &mut raw, 1, 8).unwrap().unwrap();
    let packet = bytes(&raw, &run);
    assert_eq!((&packet[..12], &packet[42..]), (&[0; 12][..], &b"early"[..]));
    assert!(ipv4::verify_checksum(&packet[14..]));
    let (ip, _) = ipv4::Header::parse(&packet[14..]).unwrap();
    assert_eq!((ip.src, ip.dst, ip.protocol, ip.total_len), (A4, B4, 17, 33));
    let (ports, _) = udp::Header::parse(&packet[34..]).unwrap();
    assert_eq!((ports.src_port, ports.dst_port, ports.len), (7, 7, 13));
}

#[test]
fn packets_wait_in_their_socket_for_a_rewind_and_for_their_number() {
    let mut pair = Pair::new();
    let (a, b) = open(&mut pair, 7);
    let mut cyclic = buffer(Records::StripHeaders, 4, 1);
    let mut read = |pair: &mut Pair, min, max| {
        let run = pair.b.cyclic_read(&[b], &mut cyclic, min, max).unwrap();
        run.map(|run| (bytes(&cyclic, &run), run.payload.start))
    };
    for byte in 1..=10 {
        send(&mut pair, a, 7, &[byte]);
    }
    assert_eq!(read(&mut pair, 3, 3), Some((vec![1, 2, 3], 0)));
    assert_eq!(read(&mut pair, 2, 3), Some((vec![4], 3)), "only one to the end");
    assert_eq!(read(&mut pair, 2, 9), Some((vec![5, 6, 7, 8], 0)));
    assert_eq!(read(&mut pair, 3, 9), None, "two are not enough yet");
    send(&mut pair, a, 7, &[11]);
    assert_eq!(read(&mut pair, 3, 9), Some((vec![9, 10, 11], 0)));
    assert_eq!(read(&mut pair, 0, 9), None);
}

#[test]
fn sockets_of_one_buffer_take_turns_as_their_packets_came() {
    let mut pair = Pair::new();
    let ((a, b), (c, d)) = (open(&mut pair, 7), open(&mut pair, 8));
    let mut cyclic = buffer(Records::StripHeaders, 8, 1);
    for (from, port, byte) in [(a, 7, 1), (c, 8, 2), (c, 8, 3), (a, 7, 4), (c, 8, 5)] {
        send(&mut pair, from, port, &[byte]);
    }
    let run = pair.b.cyclic_read(&[d, b], &mut cyclic, 1, 8).unwrap().unwrap();
    assert_eq!(bytes(&cyclic, &run), [1, 2, 3, 4, 5]);
    // All of one poll.
    for (from, port, byte) in [(a, 7, 6), (c, 8, 7), (a, 7, 8)] {
        let to = Some((SocketAddr::new(B, port), NextHop::Neighbour(B)));
        pair.a.udp_send(pair.now, from, &[IoSlice::new(&[byte])], A, to).unwrap();
    }
    pair.settle();
    let mut cyclic = buffer(Records::StripHeaders, 8, 1);
    let run = pair.b.cyclic_read(&[d, b], &mut cyclic, 1, 8).unwrap().unwrap();
    assert_eq!(bytes(&cyclic, &run), [6, 7, 8]);
}

#[test]
fn an_oversized_packet_is_told_once_and_lost_alone() {
    let mut pair = Pair::new();
    let (a, b) = open(&mut pair, 7);
    let mut cyclic = buffer(Records::StripHeaders, 8, 1);
    for sent in [&b"1"[..], b"22", b"3"] {
        send(&mut pair, a, 7, sent);
    }
    assert_eq!(pair.b.cyclic_read(&[b], &mut cyclic, 1, 8), Err(CyclicError::Oversized(Refused::Oversized)));
    let run = pair.b.cyclic_read(&[b], &mut cyclic, 1, 8).unwrap().unwrap();
    assert_eq!((bytes(&cyclic, &run), cyclic.oversized()), (b"13".to_vec(), 1));
}

#[test]
fn such_a_socket_can_be_read_and_lent_from_and_its_headers_stay_with_their_packets() {
    let mut pair = Pair::new();
    let (a, b) = open(&mut pair, 7);
    let mut raw = buffer(Records::Raw, 8, 1000);
    assert_eq!(pair.b.cyclic_read(&[b], &mut raw, 1, 1), Ok(None));
    for len in [1, 200, 3, 400, 5] {
        send(&mut pair, a, 7, &vec![len as u8; len]);
    }
    let mut first = [0; 8];
    assert_eq!(pair.b.udp_recv(b, &mut [IoSliceMut::new(&mut first)], RecvFlags::empty()).unwrap().len, 1);
    assert_eq!(pair.b.udp_lend(b).unwrap().0.len, 200);
    let run = pair.b.cyclic_read(&[b], &mut raw, 3, 3).unwrap().unwrap();
    let records = bytes(&raw, &run);
    for (record, len) in records.chunks(1042).zip([3, 400, 5]) {
        assert_eq!(udp::Header::parse(&record[34..]).unwrap().0.len, 8 + len);
        assert!(record[42..].iter().take(usize::from(len)).all(|&byte| byte == len as u8));
    }
}

#[test]
fn what_is_no_udp_socket_is_refused() {
    let mut pair = Pair::new();
    let (_, _, listener) = pair.connected();
    let mut raw = buffer(Records::Raw, 8, 1);
    assert_eq!(pair.b.cyclic_read(&[listener], &mut raw, 1, 1), Err(Error::NotSupported.into()));
    let (_, b) = open(&mut pair, 7);
    assert_eq!(pair.b.cyclic_read(&[b], &mut raw, 2, 1), Err(CyclicError::Invalid { min: 2, max: 1 }));
    pair.b.close(pair.now, b, false);
    assert_eq!(pair.b.cyclic_read(&[b], &mut raw, 1, 1), Err(Error::BadSocket.into()));
}

#[test]
fn what_a_program_admitted_first_has_headers_that_are_made_up() {
    let mut pair = Pair::new();
    let (a, b) = open(&mut pair, 7);
    let mut raw = buffer(Records::Raw, 8, 5);
    assert_eq!(pair.b.cyclic_read(&[b], &mut raw, 1, 1), Ok(None));
    send(&mut pair, a, 7, b"first");
    pair.b.set_recv_filter(b, true).unwrap();
    send(&mut pair, a, 7, b"later");
    pair.b.set_recv_filter(b, false).unwrap();
    send(&mut pair, a, 7, b"third");
    let run = pair.b.cyclic_read(&[b], &mut raw, 3, 3).unwrap().unwrap();
    let records = bytes(&raw, &run);
    let seen: Vec<_> = records.chunks(47).map(|record| (record[..12] == [0; 12], &record[42..])).collect();
    assert_eq!(seen, [(false, &b"first"[..]), (true, b"later"), (false, b"third")]);
}
