//! What a socket shows at its end, and whom it leaves its addresses to: as Linux's do (conformance's `reference` compares them).

use super::*;
use crate::device::{FiveTuple, Protocol};

const PORT: u16 = 80;

fn send(ring: &mut Ring<Cable>, now: Instant, id: FlowId, to: Option<(SocketAddr, NextHop)>) -> Result<usize, Error> {
    ring.udp_send(now, id, &[IoSlice::new(b"?")], A, to)
}

fn udp(ring: &mut Ring<Cable>, ip: IpAddr, port: u16) -> FlowId {
    ring.udp_open(SocketAddr::new(ip, port), &UdpOptions::default()).unwrap()
}

fn hop(ip: IpAddr, port: u16) -> Option<(SocketAddr, NextHop)> {
    Some((SocketAddr::new(ip, port), NextHop::Neighbour(ip)))
}

#[test]
fn a_connection_that_was_reset_leaves_its_addresses_though_the_program_keeps_it_open() {
    let mut pair = Pair::new();
    let (client, server, listener) = pair.connected();
    pair.a.close(pair.now, client, true);
    pair.settle();
    assert_eq!(pair.b.info(server).unwrap().state, Some(tcp::State::Closed));
    let again = pair.connect(5000);
    pair.settle();
    assert_eq!(pair.a.info(again).unwrap().state, Some(tcp::State::Established));
    let accepted = pair.b.tcp_accept(listener).unwrap();
    // The old socket's end takes nothing from the new one.
    pair.b.close(pair.now, server, false);
    write(&mut pair.a, pair.now, again, b"new").unwrap();
    pair.settle();
    assert_eq!(read(&mut pair.b, pair.now, accepted, 8), Ok(b"new".to_vec()));
}

#[test]
fn a_segment_for_a_connection_that_ended_is_answered_with_a_reset() {
    let mut pair = Pair::new();
    let (client, server, listener) = pair.connected();
    pair.a.close(pair.now, client, true);
    pair.b.close(pair.now, listener, false);
    pair.settle();
    let again = pair.connect(5000);
    pair.settle();
    assert_eq!(pair.a.take_error(again), Some(Error::Refused));
    assert_eq!(read(&mut pair.b, pair.now, server, 1), Err(Error::Reset), "the old one's story is still its own");
}

#[test]
fn a_newcomer_may_have_the_addresses_of_a_time_wait_that_is_still_open() {
    let mut pair = Pair::new();
    let (client, server, listener) = pair.connected();
    pair.b.shutdown(pair.now, server, Shutdown::Write).unwrap();
    pair.settle();
    pair.a.close(pair.now, client, false);
    pair.settle();
    assert_eq!(pair.b.info(server).unwrap().state, Some(tcp::State::TimeWait));
    assert_eq!(pair.b.shutdown(pair.now, server, Shutdown::Both), Err(Error::NotConnected));
    pair.now += Duration::from_millis(5);
    let again = pair.connect(5000);
    pair.settle();
    assert_eq!(pair.a.info(again).unwrap().state, Some(tcp::State::Established));
    assert!(pair.b.tcp_accept(listener).is_ok());
    assert_eq!(read(&mut pair.b, pair.now, server, 1), Ok(Vec::new()));
}

#[test]
fn an_active_open_may_have_them_too() {
    let mut pair = Pair::new();
    let (client, server, listener) = pair.connected();
    pair.b.shutdown(pair.now, server, Shutdown::Write).unwrap();
    pair.settle();
    pair.a.close(pair.now, client, false);
    pair.b.close(pair.now, listener, false);
    pair.pass(Duration::from_secs(2));
    let (local, remote) = (SocketAddr::new(B, PORT), SocketAddr::new(A, 5000));
    let newcomer = pair.b.tcp_connect(pair.now, local, remote, NextHop::Neighbour(A), &tcp::Config::default()).unwrap();
    pair.settle();
    assert_eq!(pair.b.take_error(newcomer), Some(Error::Refused), "it went out");
}

/// Found by the simulator (50/duplication+one_way+registration/3/bulk+request+churn): the wait ended, and nothing came of it.
#[test]
fn a_time_wait_does_not_end_for_a_connection_that_finds_no_rule() {
    let mut pair = Pair::new();
    pair.b.output.caps.rings_max = 2;
    let (client, server, listener) = pair.connected();
    pair.b.shutdown(pair.now, server, Shutdown::Write).unwrap();
    pair.settle();
    pair.a.close(pair.now, client, false);
    pair.b.close(pair.now, listener, false);
    pair.pass(Duration::from_secs(2));
    pair.b.queues().table().is_full = true;
    let (local, remote) = (SocketAddr::new(B, PORT), SocketAddr::new(A, 5000));
    let connect = |pair: &mut Pair| pair.b.tcp_connect(pair.now, local, remote, NextHop::Neighbour(A), &tcp::Config::default());
    match pair.b.slots.stream(server).unwrap().rule {
        Some(_) => assert!(connect(&mut pair).is_ok(), "the old one's rule is the new one's"),
        None => {
            assert_eq!(connect(&mut pair), Err(Error::NoBuffers));
            assert_eq!(pair.b.info(server).unwrap().state, Some(tcp::State::TimeWait));
        }
    }
}

#[test]
fn bytes_for_a_program_that_ended_both_directions_reset_the_connection() {
    let mut pair = Pair::new();
    let (client, server, _) = pair.connected();
    write(&mut pair.b, pair.now, server, b"before").unwrap();
    pair.settle();
    pair.a.shutdown(pair.now, client, Shutdown::Both).unwrap();
    pair.settle();
    write(&mut pair.b, pair.now, server, b"after").unwrap();
    pair.settle();
    assert_eq!(pair.b.take_error(server), Some(Error::Pipe));
    assert_eq!(read(&mut pair.a, pair.now, client, 64), Ok(b"before".to_vec()));
    assert_eq!(read(&mut pair.a, pair.now, client, 64), Err(Error::Reset));
    assert_eq!(read(&mut pair.a, pair.now, client, 64), Ok(Vec::new()));
}

#[test]
fn a_reader_that_stopped_reading_learns_of_the_error_first() {
    let mut pair = Pair::new();
    let (client, server, _) = pair.connected();
    pair.a.shutdown(pair.now, client, Shutdown::Read).unwrap();
    assert_eq!(read(&mut pair.a, pair.now, client, 1), Ok(Vec::new()));
    pair.b.close(pair.now, server, true);
    pair.settle();
    assert_eq!(read(&mut pair.a, pair.now, client, 1), Err(Error::Reset));
    assert_eq!(read(&mut pair.a, pair.now, client, 1), Ok(Vec::new()));
}

#[test]
fn a_stranger_at_a_connected_udp_socket_is_told_that_nobody_is_there() {
    let mut pair = Pair::new();
    let (stranger, friend, b) = (udp(&mut pair.a, A, 1000), udp(&mut pair.a, A, 1001), udp(&mut pair.b, B, 2000));
    pair.b.udp_connect(b, IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED), hop(A, 1001)).unwrap();
    for from in [stranger, friend] {
        pair.a.udp_connect(from, IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED), hop(B, 2000)).unwrap();
        send(&mut pair.a, pair.now, from, None).unwrap();
    }
    pair.settle();
    assert_eq!(pair.a.readiness(stranger), Readiness::OUT | Readiness::ERR, "an error is not something to read");
    assert_eq!(pair.a.take_error(stranger), Some(Error::Refused));
    assert_eq!(pair.a.take_error(friend), None);
    assert_eq!(pair.b.udp_recv(b, &mut [], RecvFlags::empty()).unwrap().from.port(), 1001);
    assert_eq!(pair.b.udp_recv(b, &mut [], RecvFlags::empty()).unwrap_err(), Error::WouldBlock);
}

#[test]
fn a_udp_socket_is_shut_down_connected_or_not() {
    let mut pair = Pair::new();
    let (a, b) = (udp(&mut pair.a, A, 1000), udp(&mut pair.b, B, 2000));
    assert_eq!(pair.a.shutdown(pair.now, a, Shutdown::Both), Err(Error::NotConnected));
    assert_eq!(pair.a.readiness(a), Readiness::IN | Readiness::OUT | Readiness::RDHUP | Readiness::HUP);
    assert_eq!(send(&mut pair.a, pair.now, a, None), Err(Error::DestinationRequired), "comes before the broken pipe");
    assert_eq!(send(&mut pair.a, pair.now, a, hop(B, 2000)), Err(Error::Pipe));
    assert_eq!(pair.a.udp_recv(a, &mut [], RecvFlags::empty()).unwrap_err(), Error::WouldBlock);
    send(&mut pair.b, pair.now, b, hop(A, 1000)).unwrap();
    pair.settle();
    assert_eq!(pair.a.udp_recv(a, &mut [], RecvFlags::empty()).unwrap().len, 1, "what arrives is kept");
}

/// No timer tells of it, and what was received can still be read.
#[test]
fn a_device_that_is_gone_fails_each_call_of_what_goes_by_it() {
    let mut pair = Pair::new();
    let (client, server, listener) = pair.connected();
    let half_open = pair.connect(5001);
    let socket = udp(&mut pair.b, B, 9);
    write(&mut pair.a, pair.now, client, b"last").unwrap();
    pair.settle();
    pair.b.queues_mut().tell(DeviceEvent::Gone);
    assert!(!pair.b.is_gone() && pair.b.poll(pair.now) > 0 && pair.b.is_gone());
    assert_eq!(read(&mut pair.b, pair.now, server, 8), Ok(b"last".to_vec()));
    assert_eq!(read(&mut pair.b, pair.now, server, 8), Err(Error::NetworkDown));
    assert_eq!(read(&mut pair.b, pair.now, server, 8), Ok(Vec::new()));
    let waiting = pair.b.tcp_accept(listener).expect("it was there");
    assert_eq!(pair.b.take_error(waiting), Some(Error::NetworkDown));
    for _ in 0..2 {
        assert_eq!(pair.b.tcp_accept(listener), Err(Error::NetworkDown));
        assert_eq!(pair.b.take_error(socket), Some(Error::NetworkDown));
        assert_eq!(send(&mut pair.b, pair.now, socket, hop(A, 5)), Err(Error::NetworkDown));
        assert_eq!(pair.b.udp_recv(socket, &mut [], RecvFlags::empty()).map(|datagram| datagram.len), Err(Error::NetworkDown));
        assert!(pair.b.readiness(socket).contains(Readiness::ERR) && pair.b.readiness(listener).contains(Readiness::ERR));
    }
    for flow in [server, waiting, listener, socket] {
        pair.b.close(pair.now, flow, false);
    }
    assert!(!pair.b.lingering() && pair.a.info(half_open).is_some());
}

/// The connection that [`Pair::connected`] makes, as its client has it.
fn of_client() -> FiveTuple {
    FiveTuple { protocol: Protocol::Tcp, local: SocketAddr::new(A, 5000), remote: Some(SocketAddr::new(B, 80)) }
}

/// The device knows of one connection's peer, whose host goes on.
#[test]
fn a_connection_whose_peer_is_gone_is_reset_and_others_go_on() {
    let mut pair = Pair::new();
    let (client, server, listener) = pair.connected();
    let other = pair.connect(5001);
    pair.settle();
    let other_server = pair.b.tcp_accept(listener).unwrap();
    write(&mut pair.b, pair.now, server, b"last").unwrap();
    pair.settle();
    pair.a.queues_mut().gone = vec![of_client()];
    pair.a.queues_mut().tell(DeviceEvent::PeersGone);
    pair.a.poll(pair.now);
    assert_eq!(read(&mut pair.a, pair.now, client, 8), Ok(b"last".to_vec()));
    assert_eq!(read(&mut pair.a, pair.now, client, 8), Err(Error::Reset));
    write(&mut pair.a, pair.now, other, b"on").unwrap();
    pair.settle();
    assert_eq!(read(&mut pair.b, pair.now, other_server, 8), Ok(b"on".to_vec()));
}

/// A program that ends closes its connections first, and its peer has acknowledged that by the time the process is gone.
#[test]
fn a_connection_that_its_gone_peer_had_ended_ends_in_order_unless_it_has_bytes_for_nobody() {
    for is_owed in [false, true] {
        let mut pair = Pair::new();
        let (client, server, _) = pair.connected();
        pair.b.close(pair.now, server, false);
        pair.settle();
        if is_owed {
            write(&mut pair.a, pair.now, client, b"for nobody").unwrap();
        }
        pair.a.queues_mut().gone = vec![of_client()];
        pair.a.queues_mut().tell(DeviceEvent::PeersGone);
        pair.a.poll(pair.now);
        assert_eq!(pair.a.take_error(client), is_owed.then_some(Error::Pipe));
        assert_eq!(read(&mut pair.a, pair.now, client, 8), Ok(Vec::new()));
    }
}
