//! What is lent lies where the device put it, counts until it is given back, and hurts nobody but its own socket.

use std::io::IoSlice;

use super::super::tests::{A, B, Bytes, Cable, Pair, read, write};
use super::super::{Error, FlowId, Lent, LentPieces, NextHop, RecvFlags, Ring, UdpOptions};
use crate::device::RxBuffer;
use std::io::IoSliceMut;
use std::net::{IpAddr, SocketAddr};

fn bytes(piece: &Lent<Bytes>) -> Vec<u8> {
    match piece {
        Lent::Copied(bytes) => bytes.clone(),
        Lent::Buffer(buffer) => {
            let mut out = vec![0; buffer.len()];
            buffer.copy_to(0, &mut out);
            out
        }
    }
}

fn all(pieces: &LentPieces<Bytes>) -> Vec<u8> {
    pieces.iter().flat_map(bytes).collect()
}

fn is_uncopied(piece: &Lent<Bytes>) -> bool {
    matches!(piece, Lent::Buffer(_))
}

fn udp(pair: &mut Pair) -> (FlowId, FlowId) {
    let a = pair.a.udp_open(SocketAddr::new(A, 1000), &UdpOptions::default()).unwrap();
    let options = UdpOptions { rcvbuf: 4096, ..UdpOptions::default() };
    let b = pair.b.udp_open(SocketAddr::new(IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED), 2000), &options).unwrap();
    (a, b)
}

fn send(pair: &mut Pair, from: FlowId, bytes: &[u8]) {
    let to = Some((SocketAddr::new(B, 2000), NextHop::Neighbour(B)));
    pair.a.udp_send(pair.now, from, &[IoSlice::new(bytes)], A, to).unwrap();
    pair.settle();
}

#[test]
fn a_datagram_is_lent_from_where_the_device_put_it_whatever_its_size() {
    for len in [1, 40, 58, 59, 300, 1472] {
        let mut pair = Pair::new();
        assert!(pair.b.lend_from_now_on());
        let (a, b) = udp(&mut pair);
        let sent: Vec<u8> = (0..len).map(|n| n as u8).collect();
        send(&mut pair, a, &sent);
        let (datagram, pieces) = pair.b.udp_lend(b).unwrap();
        assert_eq!((datagram.len, datagram.from), (len as usize, SocketAddr::new(A, 1000)));
        assert!(pieces.len() == 1 && pieces.iter().all(is_uncopied), "{len}: {pieces:?}");
        assert_eq!(all(&pieces), sent);
        assert_eq!(pair.b.udp_lend(b).unwrap_err(), Error::WouldBlock);
    }
}

#[test]
fn what_came_before_the_first_was_lent_is_lent_as_a_copy_and_in_order() {
    let mut pair = Pair::new();
    let (a, b) = udp(&mut pair);
    send(&mut pair, a, b"early");
    pair.b.lend_from_now_on();
    send(&mut pair, a, b"late");
    let (_, early) = pair.b.udp_lend(b).unwrap();
    let (_, late) = pair.b.udp_lend(b).unwrap();
    assert_eq!((all(&early), is_uncopied(&early[0])), (b"early".to_vec(), false));
    assert_eq!((all(&late), is_uncopied(&late[0])), (b"late".to_vec(), true));
}

#[test]
fn a_lending_socket_can_also_be_read() {
    let mut pair = Pair::new();
    pair.b.lend_from_now_on();
    let (a, b) = udp(&mut pair);
    for len in [0, 50, 1000] {
        send(&mut pair, a, &vec![7; len]);
        for peek in [RecvFlags::PEEK, RecvFlags::empty()] {
            let (mut first, mut second) = ([0; 30], [0; 2000]);
            let into = &mut [IoSliceMut::new(&mut first), IoSliceMut::new(&mut second)];
            let got = pair.b.udp_recv(b, into, peek).unwrap();
            assert_eq!((got.len, got.copied), (len, len));
            assert!(first.iter().chain(&second).take(len).all(|&byte| byte == 7));
        }
    }
}

#[test]
fn a_socket_whose_datagrams_are_all_held_drops_and_others_do_not() {
    let mut pair = Pair::new();
    pair.b.lend_from_now_on();
    let (a, b) = udp(&mut pair);
    let other = pair.b.udp_open(SocketAddr::new(B, 2001), &UdpOptions::default()).unwrap();
    let mut held = Vec::new();
    for _ in 0..20 {
        send(&mut pair, a, &[1; 200]);
        held.extend(pair.b.udp_lend(b).ok());
    }
    // 200 bytes and 256 of overhead each, in 4096.
    assert_eq!(held.len(), 8);
    let to = Some((SocketAddr::new(B, 2001), NextHop::Neighbour(B)));
    pair.a.udp_send(pair.now, a, &[IoSlice::new(b"x")], A, to).unwrap();
    pair.settle();
    assert!(pair.b.udp_lend(other).is_ok());
    for (datagram, pieces) in held {
        drop(pieces);
        pair.b.give_back(pair.now, b, datagram.len);
    }
    send(&mut pair, a, b"again");
    assert_eq!(all(&pair.b.udp_lend(b).unwrap().1), b"again");
}

fn lend_all(ring: &mut Ring<Cable>, id: FlowId) -> Vec<Lent<Bytes>> {
    core::iter::from_fn(|| ring.tcp_lend(id, RxBuffer::len).ok().flatten()).collect()
}

#[test]
fn a_stream_is_lent_piece_by_piece_and_ends() {
    let mut pair = Pair::new();
    pair.b.lend_from_now_on();
    let (client, server, _) = pair.connected();
    let sent: Vec<u8> = (0..5000u32).map(|n| (n % 251) as u8).collect();
    for part in [&sent[..3], &sent[3..40], &sent[40..]] {
        write(&mut pair.a, pair.now, client, part).unwrap();
        pair.settle();
    }
    let first = pair.b.tcp_lend(server, |_| 2).unwrap().unwrap();
    assert_eq!(bytes(&first), sent[..2]);
    let mut got = bytes(&first);
    let rest = lend_all(&mut pair.b, server);
    // What is left of the first segment, the second one, and four: each lies in one place.
    assert!(rest.len() == 6 && rest.iter().all(is_uncopied), "{rest:?}");
    rest.iter().for_each(|piece| got.extend(bytes(piece)));
    assert_eq!(got, sent);
    assert_eq!(pair.b.tcp_lend(server, RxBuffer::len).unwrap_err(), Error::WouldBlock);
    pair.a.close(pair.now, client, false);
    pair.settle();
    assert!(matches!(pair.b.tcp_lend(server, RxBuffer::len), Ok(None)));
}

#[test]
fn the_window_stays_shut_until_what_was_lent_is_given_back() {
    let mut pair = Pair::new();
    let (client, server, _) = pair.connected();
    let chunk = vec![9; 65_536];
    let mut held = 0;
    loop {
        let sent = write(&mut pair.a, pair.now, client, &chunk).unwrap_or(0);
        pair.pass(core::time::Duration::from_millis(300));
        let now: usize = lend_all(&mut pair.b, server).iter().map(Lent::len).sum();
        held += now;
        if sent == 0 && now == 0 {
            break;
        }
    }
    assert!(held > 0 && held <= 8 << 20, "{held}");
    assert_eq!(read(&mut pair.b, pair.now, server, 1), Err(Error::WouldBlock));
    // More than was lent counts as all of it.
    pair.b.give_back(pair.now, server, usize::MAX);
    pair.settle();
    assert!(!lend_all(&mut pair.b, server).is_empty(), "the peer was told of the room");
}

#[test]
fn what_comes_out_of_order_is_lent_uncopied_too() {
    let mut pair = Pair::new();
    pair.b.lend_from_now_on();
    let (client, server, _) = pair.connected();
    for part in [b"one", b"two", b"six"] {
        write(&mut pair.a, pair.now, client, part).unwrap();
    }
    let wire = pair.b.queues().inward.clone();
    wire.lock().unwrap().make_contiguous().reverse();
    pair.settle();
    pair.pass(core::time::Duration::from_millis(500));
    let pieces = lend_all(&mut pair.b, server);
    assert!(pieces.iter().all(is_uncopied), "{pieces:?}");
    assert_eq!(pieces.iter().flat_map(bytes).collect::<Vec<_>>(), b"onetwosix");
}

#[test]
fn what_was_lent_outlives_its_socket() {
    let mut pair = Pair::new();
    pair.b.lend_from_now_on();
    let (client, server, _) = pair.connected();
    write(&mut pair.a, pair.now, client, b"mine").unwrap();
    pair.settle();
    let piece = pair.b.tcp_lend(server, RxBuffer::len).unwrap().unwrap();
    pair.b.close(pair.now, server, true);
    pair.settle();
    assert_eq!(bytes(&piece), b"mine");
    pair.b.give_back(pair.now, server, 4);
}
