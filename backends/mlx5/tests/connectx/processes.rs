//! The same between two processes, each with its own card.

use std::io::{IoSlice, IoSliceMut};

use ringway_stack::ring::{NextHop, RecvFlags, UdpOptions};
use ringway_stack::tcp::Config;

use crate::streams::{Side, is_established};
use crate::world::{End, address, bytes, ip, on_cards, path_of, until};

const DATAGRAMS: u64 = 200;

fn server() {
    let mut end = End::new(1);
    let listener = end.ring.tcp_listen(address(1, 80), 4, &Config::default()).expect("room");
    let socket = end.ring.udp_open(address(1, 7), &UdpOptions::default()).expect("room");
    let mut into = [0; 2000];
    let mut at = 0;
    while at < DATAGRAMS {
        let datagram = until(&mut [&mut end], "a datagram", |ends| {
            ends[0].ring.udp_recv(socket, &mut [IoSliceMut::new(&mut into)], RecvFlags::empty()).ok()
        });
        let number = u64::from_be_bytes(into[..8].try_into().unwrap());
        assert!(into[8..datagram.copied] == bytes(datagram.copied - 8, number), "datagram {number}");
        // (The first may come several times.)
        assert!(number == at || number == 0, "{number} comes in the place of {at}");
        if number == at {
            let to = Some((datagram.from, NextHop::Neighbour(ip(0))));
            end.ring.udp_send(end.now(), socket, &[IoSlice::new(&into[..datagram.copied])], ip(1), to).expect("it leaves");
            at += 1;
        }
    }
    let flow = until(&mut [&mut end], "a connection", |ends| ends[0].ring.tcp_accept(listener).ok());
    let mut side = Side::new(flow, 1);
    until(&mut [&mut end], "both streams", |ends| side.go_on(ends[0]).then_some(()));
    finish(end);
}

fn client() {
    let mut end = End::new(0);
    let socket = end.ring.udp_open(address(0, 5), &UdpOptions::default()).expect("room");
    let mut into = [0; 2000];
    for number in 0..DATAGRAMS {
        let len = 8 + (number as usize * 37) % 1400;
        let text = [&number.to_be_bytes()[..], &bytes(len - 8, number)].concat();
        let (mut next, mut tries) = (end.now(), 0);
        let echoed = until(&mut [&mut end], "an echo", |ends| {
            let now = ends[0].now();
            // (Only the first is said again: until the server is there.)
            if now >= next && (number == 0 || tries == 0) {
                let to = Some((address(1, 7), NextHop::Neighbour(ip(1))));
                let _ = ends[0].ring.udp_send(now, socket, &[IoSlice::new(&text)], ip(0), to);
                (next, tries) = (now + core::time::Duration::from_millis(700), tries + 1);
            }
            ends[0].ring.udp_recv(socket, &mut [IoSliceMut::new(&mut into)], RecvFlags::empty()).ok()
        });
        assert!(into[..echoed.copied] == text, "datagram {number}");
    }
    let config = Config::default();
    let flow = end.ring.tcp_connect(end.now(), address(0, 5000), address(1, 80), NextHop::Neighbour(ip(1)), &config).expect("room");
    until(&mut [&mut end], "the handshake", |ends| is_established(ends[0], flow).then_some(()));
    let mut side = Side::new(flow, 0);
    until(&mut [&mut end], "both streams", |ends| side.go_on(ends[0]).then_some(()));
    finish(end);
}

/// What the peer has yet to hear (the last acknowledgment) is sent.
fn finish(mut end: End) {
    let stop = end.now() + core::time::Duration::from_millis(300);
    until(&mut [&mut end], "a while", |ends| (ends[0].now() > stop).then_some(()));
    let counters = end.ring.queues().counters();
    assert_eq!((counters.send_failures, counters.receive_failures), (0, 0));
}

#[test]
fn two_processes_exchange_datagrams_and_streams() {
    on_cards(path_of!(two_processes_exchange_datagrams_and_streams), &[("server", server), ("client", client)]);
}
