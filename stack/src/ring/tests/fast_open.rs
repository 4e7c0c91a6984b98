//! Fast Open of listeners, and of those who connect to them (RFC 7413): cookies, and how many connections may be under way.

use super::*;
use crate::tcp::{Config, FastOpen, FastOpenKeys, State};

const KEYS: FastOpenKeys = FastOpenKeys { primary: [1; 16], backup: None };

fn listens(pair: &mut Pair, under_way_max: usize) -> FlowId {
    listens_as(pair, FastOpen { under_way_max, keys: Some(KEYS), ..FastOpen::default() })
}

fn listens_as(pair: &mut Pair, fast_open: FastOpen) -> FlowId {
    pair.a.set_neighbour(B, Some(pair.b.queues.mac));
    pair.b.set_neighbour(A, Some(pair.a.queues.mac));
    pair.b.tcp_listen(SocketAddr::new(B, 80), 16, &Config { fast_open, ..Config::default() }).unwrap()
}

/// Connects with these bytes: how many go with the SYN.
fn connects(pair: &mut Pair, port: u16, bytes: &[u8], without_cookie: bool) -> (FlowId, usize) {
    let ends = (SocketAddr::new(A, port), SocketAddr::new(B, 80));
    let early = EarlyData { data: &[IoSlice::new(bytes)], all: false, without_cookie };
    pair.a.tcp_connect_fast(pair.now, ends, NextHop::Neighbour(B), &Config::default(), &early).unwrap()
}

/// With a cookie that A was given.
fn acquainted(under_way_max: usize) -> (Pair, FlowId) {
    let mut pair = Pair::new();
    let listener = listens(&mut pair, under_way_max);
    assert_eq!(connects(&mut pair, 4000, b"not yet", false).1, 0);
    pair.settle();
    assert!(pair.a.tcp_has_cookie(pair.now, B, false));
    pair.b.tcp_accept(listener).unwrap();
    (pair, listener)
}

/// How many connections B's program has of those that wait, and how many of them while their handshakes are under way.
fn accepts(pair: &mut Pair, listener: FlowId) -> (usize, usize) {
    let accepted: Vec<_> = core::iter::from_fn(|| pair.b.tcp_accept(listener).ok()).collect();
    let early = accepted.iter().filter(|id| pair.b.info(**id).unwrap().state == Some(State::SynReceived)).count();
    (accepted.len(), early)
}

#[test]
fn a_host_that_has_a_cookie_sends_bytes_with_its_syn() {
    let (mut pair, listener) = acquainted(4);
    let (client, taken) = connects(&mut pair, 5000, b"request", false);
    assert_eq!(taken, 7);
    pair.b.poll(pair.now);
    let server = pair.b.tcp_accept(listener).unwrap();
    assert_eq!(pair.b.info(server).unwrap().state, Some(State::SynReceived));
    assert_eq!(read(&mut pair.b, pair.now, server, 64), Ok(b"request".to_vec()));
    assert_eq!(write(&mut pair.b, pair.now, server, b"response"), Ok(8));
    pair.settle();
    assert_eq!(read(&mut pair.a, pair.now, client, 64), Ok(b"response".to_vec()));
    assert_eq!(pair.b.info(server).unwrap().state, Some(State::Established));
}

#[test]
fn a_cookie_is_good_for_its_listeners_keys_alone_and_for_those_before() {
    let key = |primary: u8, backup: Option<u8>| FastOpenKeys { primary: [primary; 16], backup: backup.map(|key| [key; 16]) };
    for (keys, is_good) in [(key(1, None), true), (key(2, Some(1)), true), (key(2, None), false), (key(2, Some(3)), false)] {
        let (mut pair, listener) = acquainted(4);
        pair.b.close(pair.now, listener, false);
        let listener = listens_as(&mut pair, FastOpen { under_way_max: 4, keys: Some(keys), ..FastOpen::default() });
        connects(&mut pair, 5000, b"request", false);
        pair.b.poll(pair.now);
        assert_eq!(accepts(&mut pair, listener), if is_good { (1, 1) } else { (0, 0) }, "{is_good}");
        pair.settle();
        assert_eq!(accepts(&mut pair, listener).0, usize::from(!is_good));
        // Whatever it had shown, A has the newest one now.
        connects(&mut pair, 5001, b"request", false);
        pair.b.poll(pair.now);
        assert_eq!(accepts(&mut pair, listener), (1, 1));
    }
}

#[test]
fn who_needs_no_cookie_sends_bytes_to_whom_needs_none() {
    for without_cookie in [false, true] {
        let mut pair = Pair::new();
        let listener = listens_as(&mut pair, FastOpen { under_way_max: 4, without_cookie, keys: None });
        assert_eq!(connects(&mut pair, 5000, b"request", true).1, 7);
        pair.b.poll(pair.now);
        assert_eq!(accepts(&mut pair, listener).1, usize::from(without_cookie));
        pair.settle();
        let server = pair.b.tcp_accept(listener);
        assert_eq!(server.is_ok(), !without_cookie, "without, it is an ordinary handshake, after which the bytes go again");
        if let Ok(server) = server {
            assert_eq!(read(&mut pair.b, pair.now, server, 64), Ok(b"request".to_vec()));
        }
    }
}

/// RFC 7413 s5.1.
#[test]
fn no_more_are_under_way_than_the_listener_allows() {
    let (mut pair, listener) = acquainted(2);
    for port in 5000..5003 {
        connects(&mut pair, port, b"request", false);
    }
    pair.b.poll(pair.now);
    assert_eq!(accepts(&mut pair, listener), (2, 2), "the third is as if it had shown none");
    pair.settle();
    assert_eq!(accepts(&mut pair, listener), (1, 0));
    // Whose handshake is over counts no more.
    for port in 6000..6003 {
        connects(&mut pair, port, b"request", false);
    }
    pair.b.poll(pair.now);
    assert_eq!(accepts(&mut pair, listener), (2, 2));
}

#[test]
fn a_connection_that_is_reset_counts_for_a_minute() {
    let (mut pair, listener) = acquainted(1);
    let (client, _) = connects(&mut pair, 5000, b"request", false);
    // It has forgotten of it when the SYN-ACK comes, as whoever never sent that SYN.
    pair.a.close(pair.now, client, true);
    pair.settle();
    assert_eq!(accepts(&mut pair, listener), (1, 0));
    let early = |pair: &mut Pair, port| {
        connects(pair, port, b"request", false);
        pair.b.poll(pair.now);
        let (_, early) = accepts(pair, listener);
        pair.settle();
        accepts(pair, listener);
        early
    };
    assert_eq!(early(&mut pair, 5001), 0);
    pair.pass(Duration::from_secs(59));
    assert_eq!(early(&mut pair, 5002), 0);
    pair.pass(Duration::from_secs(2));
    assert_eq!(early(&mut pair, 5003), 1);
}

#[test]
fn a_connection_that_times_out_or_that_its_program_drops_counts_no_more() {
    for is_dropped in [false, true] {
        let (mut pair, listener) = acquainted(1);
        let (client, _) = connects(&mut pair, 5000, b"request", false);
        pair.b.poll(pair.now);
        let server = pair.b.tcp_accept(listener).unwrap();
        if is_dropped {
            pair.b.close(pair.now, server, true);
        } else {
            pair.a.close(pair.now, client, true);
            for _ in 0..400 {
                pair.now += Duration::from_millis(500);
                pair.b.poll(pair.now);
                pair.b.queues.out.lock().unwrap().clear();
            }
            assert_eq!(pair.b.take_error(server), Some(Error::TimedOut));
        }
        connects(&mut pair, 5001, b"request", false);
        pair.b.poll(pair.now);
        assert_eq!(accepts(&mut pair, listener), (1, 1), "{is_dropped}");
    }
}

#[test]
fn a_listener_without_it_gives_no_cookie_and_takes_none() {
    let mut pair = Pair::new();
    let listener = listens(&mut pair, 0);
    connects(&mut pair, 5000, b"", false);
    pair.settle();
    assert!(!pair.a.tcp_has_cookie(pair.now, B, false));
    assert_eq!(accepts(&mut pair, listener), (1, 0));
}

/// What was dropped with bytes in it three times in a row is sent without from then on.
#[test]
fn a_path_that_drops_such_syns_is_spared_them() {
    let (mut pair, listener) = acquainted(4);
    let mut taken = Vec::new();
    for port in 5000..5004 {
        taken.push(connects(&mut pair, port, b"request", false).1);
        if taken.last() == Some(&7) {
            pair.b.queues.inward.lock().unwrap().clear();
        }
        pair.pass(Duration::from_secs(2));
        assert_eq!(accepts(&mut pair, listener), (1, 0));
    }
    assert_eq!(taken, [7, 7, 7, 0]);
}
