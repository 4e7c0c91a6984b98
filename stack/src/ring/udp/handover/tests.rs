//! What waits in one flow goes on in another, as where each ring is a device of its own. (Rings of one device are in `socket/tests/homes.rs`.)

use std::io::{IoSlice, IoSliceMut};
use std::net::{IpAddr, SocketAddr};

use super::super::super::tests::Pair;
use super::super::super::types::{NextHop, RecvFlags, UdpOptions};
use super::*;

const A: [u8; 4] = [10, 0, 0, 1];
const B: [u8; 4] = [10, 0, 0, 2];

fn at(ip: [u8; 4], port: u16) -> SocketAddr {
    SocketAddr::new(IpAddr::from(ip), port)
}

/// One of A's that sends, and two of B's.
fn sockets(pair: &mut Pair) -> [FlowId; 3] {
    let sender = pair.a.udp_open(at(A, 1000), &UdpOptions::default()).unwrap();
    let [before, after] = [2000, 2001].map(|port| pair.b.udp_open(at(B, port), &UdpOptions::default()).unwrap());
    [sender, before, after]
}

fn send(pair: &mut Pair, sender: FlowId, port: u16, bytes: &[u8]) {
    let to = Some((at(B, port), NextHop::Neighbour(B.into())));
    assert_eq!(pair.a.udp_send(pair.now, sender, &[IoSlice::new(bytes)], A.into(), to), Ok(bytes.len()));
    pair.settle();
}

fn read(pair: &mut Pair, socket: FlowId) -> Result<(Datagram, Vec<u8>), Error> {
    let mut bytes = [0; 3000];
    let datagram = pair.b.udp_recv(socket, &mut [IoSliceMut::new(&mut bytes)], RecvFlags::empty())?;
    Ok((datagram, bytes[..datagram.copied].to_vec()))
}

#[test]
fn what_waits_is_read_elsewhere_as_it_came_and_counts_once() {
    let mut pair = Pair::new();
    let [sender, before, after] = sockets(&mut pair);
    let sent: [&[u8]; 4] = [&[1; 40], &[], &[3; 1400], &[4]];
    sent.iter().for_each(|bytes| send(&mut pair, sender, 2000, bytes));
    let first = read(&mut pair, before).unwrap();
    assert_eq!(first.1, sent[0]);
    let mut moved = Vec::new();
    while let Ok((datagram, bytes)) = read(&mut pair, before) {
        assert_eq!(pair.b.udp_requeue(after, &datagram, &bytes), Ok(()));
        moved.push((datagram, bytes));
    }
    let past = pair.b.udp_take_past(before);
    pair.b.udp_add_past(after, past);
    send(&mut pair, sender, 2001, &[5]);
    assert!(pair.b.readiness(after).contains(Readiness::IN));
    for expected in moved {
        assert_eq!(read(&mut pair, after), Ok(expected), "with who sent it, to where, and when it came");
    }
    assert_eq!(read(&mut pair, after).map(|(_, bytes)| bytes), Ok(vec![5]));
    assert_eq!(read(&mut pair, after).unwrap_err(), Error::WouldBlock);
    let counted = |socket| pair.b.info(socket).map(|info| (info.counters.rx_packets, info.counters.rx_bytes));
    assert_eq!((counted(before), counted(after)), (Some((0, 0)), Some((5, 1442))));
    assert_eq!(pair.b.udp_backlog(after).map(|backlog| backlog.packets_max), Some(4));
}

#[test]
fn who_has_let_go_hears_what_was_on_its_way() {
    let mut pair = Pair::new();
    let [sender, before, _] = sockets(&mut pair);
    assert!(pair.b.udp_may_leave(before));
    assert_eq!(pair.b.udp_let_go(before), Ok(()));
    assert_eq!(pair.b.udp_let_go(before), Err(Error::WouldBlock), "it has nothing to let go of");
    send(&mut pair, sender, 2000, &[7]);
    assert_eq!(read(&mut pair, before).map(|(_, bytes)| bytes), Ok(vec![7]));
    pair.b.close(pair.now, before, false);
    assert!(pair.b.udp_open(at(B, 2000), &UdpOptions::default()).is_ok(), "its address is free");
}

#[test]
fn whose_reader_decides_or_wants_headers_takes_nothing_over() {
    let mut pair = Pair::new();
    let [sender, before, after] = sockets(&mut pair);
    send(&mut pair, sender, 2000, &[7]);
    let (datagram, bytes) = read(&mut pair, before).unwrap();
    pair.b.set_recv_filter(after, true).unwrap();
    assert!(!pair.b.udp_may_leave(after));
    assert_eq!(pair.b.udp_requeue(after, &datagram, &bytes), Err(Error::NotSupported));
}
