//! What is sent to nobody reaches nobody, and changes nothing; and what a packet's headers are.

use core::time::Duration;
use std::io::{IoSlice, IoSliceMut};
use std::net::{IpAddr, SocketAddr};

use super::super::tests::{A, A4, B, B4, Pair, read, write};
use super::super::{Error, FlowId, NextHop, RecvFlags, Shutdown, UdpOptions};
use crate::wire::{ethernet, ipv4, tcp, udp};

fn udp_pair(pair: &mut Pair) -> (FlowId, FlowId) {
    let a = pair.a.udp_open(SocketAddr::new(IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED), 1000), &UdpOptions::default()).unwrap();
    let b = pair.b.udp_open(SocketAddr::new(B, 2000), &UdpOptions::default()).unwrap();
    (a, b)
}

const TO: Option<(SocketAddr, NextHop)> = Some((SocketAddr::new(B, 2000), NextHop::Neighbour(B)));

fn dummies(pair: &Pair) -> Vec<usize> {
    pair.a.queues().dummies.clone()
}

#[test]
fn a_dummy_datagram_goes_as_far_as_the_device() {
    let mut pair = Pair::new();
    let (a, b) = udp_pair(&mut pair);
    assert_eq!(pair.a.udp_dummy(a, &[IoSlice::new(b"unknown neighbour")], A, TO), Ok(17));
    assert_eq!(dummies(&pair), []);
    pair.a.udp_send(pair.now, a, &[IoSlice::new(b"real")], A, TO).unwrap();
    pair.settle();
    let before = pair.a.info(a).unwrap().counters;
    assert_eq!(pair.a.udp_dummy(a, &[IoSlice::new(b"dum"), IoSlice::new(b"my")], A, TO), Ok(5));
    assert_eq!(pair.a.udp_dummy(a, &[IoSlice::new(&[1; 1000])], A, TO), Ok(1000));
    assert_eq!(pair.a.queues().unrung, 0, "the device has what it was given");
    assert_eq!(pair.a.udp_dummy(a, &[IoSlice::new(&[1; 2000])], A, TO), Err(Error::MessageTooLong));
    assert_eq!(pair.a.udp_dummy(a, &[], A, None), Err(Error::DestinationRequired));
    pair.settle();
    assert_eq!(dummies(&pair), [42 + 5, 42 + 1000]);
    let after = pair.a.info(a).unwrap().counters;
    assert_eq!((after.tx_dummies, after.tx_packets), (2, before.tx_packets));
    let mut buffer = [0; 99];
    let mut receive = || pair.b.udp_recv(b, &mut [IoSliceMut::new(&mut buffer)], RecvFlags::empty()).map(|got| got.len);
    assert_eq!((receive(), receive()), (Ok(4), Err(Error::WouldBlock)));
}

#[test]
fn a_dummy_segment_is_no_part_of_its_stream() {
    let mut pair = Pair::new();
    let (client, server, _) = pair.connected();
    write(&mut pair.a, pair.now, client, b"one").unwrap();
    pair.pass(Duration::from_millis(100));
    let dummy = |pair: &mut Pair, bytes: &[u8]| pair.a.tcp_dummy(pair.now, client, &[IoSlice::new(bytes)]);
    assert_eq!(dummy(&mut pair, b"dummy"), Ok(5));
    assert_eq!(pair.a.queues().unrung, 0, "the device has what it was given");
    assert_eq!(dummy(&mut pair, b""), Err(Error::WouldBlock));
    assert_eq!(dummy(&mut pair, &[0; 1461]), Err(Error::WouldBlock), "more than a segment");
    write(&mut pair.a, pair.now, client, b"two").unwrap();
    assert_eq!(dummy(&mut pair, b"behind"), Ok(6), "what is in flight was sent");
    pair.pass(Duration::from_secs(1));
    assert_eq!(dummies(&pair).len(), 2);
    assert_eq!(pair.a.info(client).unwrap().counters.tx_dummies, 2);
    assert_eq!(read(&mut pair.b, pair.now, server, 99).unwrap(), b"onetwo");
    // Unsent bytes, behind a shut window.
    while write(&mut pair.a, pair.now, client, &[1; 60_000]).is_ok() {
        pair.pass(Duration::from_millis(10));
    }
    assert_eq!(dummy(&mut pair, b"no"), Err(Error::WouldBlock));
    pair.a.shutdown(pair.now, client, Shutdown::Write).unwrap();
    assert_eq!(dummy(&mut pair, b"no"), Err(Error::Pipe));
}

#[test]
fn headers_are_those_of_the_next_packet() {
    let mut pair = Pair::new();
    let (client, _, listener) = pair.connected();
    let head = pair.a.headers(client, A).unwrap();
    assert_eq!(head.len(), 54);
    let ethernet = ethernet::Header::parse(&head).unwrap().0;
    assert_eq!((ethernet.dst, ethernet.src), (pair.b.mac, pair.a.mac));
    let ip = ipv4::Header::parse(&head[14..]).unwrap().0;
    assert_eq!((ip.src, ip.dst, ip.total_len), (A4, B4, 40));
    let (tcp, _) = tcp::Header::parse(&head[34..]).unwrap();
    let info = pair.a.info(client).unwrap();
    assert_eq!((tcp.src_port, tcp.dst_port), (info.local.port(), info.remote.unwrap().port()));
    assert_eq!(pair.b.headers(listener, B).unwrap_err(), Error::NotConnected);

    let (a, _) = udp_pair(&mut pair);
    assert_eq!(pair.a.headers(a, A).unwrap_err(), Error::NotConnected);
    pair.a.udp_connect(a, IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED), TO).unwrap();
    let head = pair.a.headers(a, A).unwrap();
    assert_eq!(head.len(), 42);
    let udp = udp::Header::parse(&head[34..]).unwrap().0;
    assert_eq!((udp.src_port, udp.dst_port, udp.len), (1000, 2000, 8));
}

#[test]
fn a_socket_whose_rx_is_shut_receives_nothing_more_and_sends() {
    let mut pair = Pair::new();
    let (a, b) = udp_pair(&mut pair);
    let rules = pair.b.queues().table().rules.len();
    pair.a.udp_send(pair.now, a, &[IoSlice::new(b"one")], A, TO).unwrap();
    pair.settle();
    pair.b.shutdown_rx(b).unwrap();
    pair.b.shutdown_rx(b).unwrap();
    assert_eq!(pair.b.queues().table().rules.len(), rules - 1);
    pair.a.udp_send(pair.now, a, &[IoSlice::new(b"two")], A, TO).unwrap();
    pair.settle();
    let receive =
        |ring: &mut super::Ring<_>, id| ring.udp_recv(id, &mut [IoSliceMut::new(&mut [0; 9])], RecvFlags::empty()).map(|got| got.len);
    assert_eq!((receive(&mut pair.b, b), receive(&mut pair.b, b)), (Ok(3), Err(Error::WouldBlock)));
    let back = Some((SocketAddr::new(A, 1000), NextHop::Neighbour(A)));
    pair.b.udp_send(pair.now, b, &[IoSlice::new(b"back")], B, back).unwrap();
    pair.settle();
    // (The first thing that it hears of is that its own were for nobody.)
    let heard = [receive(&mut pair.a, a), receive(&mut pair.a, a)];
    assert!(heard.contains(&Ok(4)), "{heard:?}");
    // Its address is free for another, which closing it leaves alone.
    let other = pair.b.udp_open(SocketAddr::new(B, 2000), &UdpOptions::default()).unwrap();
    pair.b.close(pair.now, b, false);
    pair.a.udp_send(pair.now, a, &[IoSlice::new(b"three")], A, TO).unwrap();
    pair.settle();
    assert_eq!(receive(&mut pair.b, other), Ok(5));
    let (_, server, listener) = pair.connected();
    pair.b.shutdown_rx(server).unwrap();
    assert_eq!(pair.b.shutdown_rx(listener), Err(Error::NotSupported));
}
