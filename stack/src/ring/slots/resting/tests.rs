use core::time::Duration;
use std::net::SocketAddr;

use super::*;
use crate::error::Error;
use crate::ring::Ring;
use crate::ring::tests::{A, B, Cable, Pair, read, write};
use crate::tcp::State;

/// The states of connections at rest.
fn at_rest(ring: &Ring<Cable>) -> Vec<State> {
    let state = |(_, flow): (FlowId, &Flow<Cable>)| match flow {
        Flow::Resting(resting) => Some(resting.state()),
        _ => None,
    };
    ring.slots.iter().filter_map(state).collect()
}

/// B has received a SYN, and its answer is lost.
fn half_open(pair: &mut Pair) -> (FlowId, FlowId) {
    let listener = pair.b.tcp_listen(SocketAddr::new(B, 80), 4, &tcp::Config::default()).unwrap();
    let (client, _) = pair.connect_seen(5000);
    pair.b.poll(pair.now);
    pair.a.queues().inward.lock().unwrap().clear();
    (listener, client)
}

#[test]
fn a_half_open_connection_rests_until_the_third_segment() {
    let mut pair = Pair::new();
    let (listener, client) = half_open(&mut pair);
    assert_eq!(at_rest(&pair.b), [State::SynReceived]);
    assert_eq!((pair.b.tcp_half_open(listener), pair.b.usage().flows), (1, 2));
    assert_eq!(pair.b.tcp_state(SocketAddr::new(B, 80), SocketAddr::new(A, 5000)), Some(State::SynReceived));
    // Its SYN-ACK is sent again and again, from where it rests.
    pair.now += Duration::from_millis(1100);
    pair.b.poll(pair.now);
    let again = pair.a.queues().inward.lock().unwrap().len();
    assert_eq!((again, at_rest(&pair.b)), (1, vec![State::SynReceived]));
    pair.settle();
    assert!(at_rest(&pair.b).is_empty());
    let server = pair.b.tcp_accept(listener).unwrap();
    write(&mut pair.a, pair.now, client, b"ping").unwrap();
    pair.settle();
    assert_eq!(read(&mut pair.b, pair.now, server, 8), Ok(b"ping".to_vec()));
}

#[test]
fn half_open_connections_end_with_their_listener_or_when_nobody_answers() {
    for closes in [false, true] {
        let mut pair = Pair::new();
        let (listener, client) = half_open(&mut pair);
        pair.a.close(pair.now, client, true);
        if closes {
            pair.b.close(pair.now, listener, false);
            assert_eq!(pair.a.queues().inward.lock().unwrap().len(), 1, "a reset");
        } else {
            pair.a.queues_mut().room = 0;
            pair.pass(Duration::from_secs(120));
            assert_eq!(pair.b.tcp_half_open(listener), 0);
            pair.b.close(pair.now, listener, false);
        }
        assert_eq!(pair.b.usage().flows, 0);
    }
}

/// A has closed first, and waits out its TIME-WAIT.
fn time_wait(pair: &mut Pair) -> FlowId {
    let (client, server, _) = pair.connected();
    pair.a.close(pair.now, client, false);
    pair.settle();
    pair.b.close(pair.now, server, false);
    pair.settle();
    client
}

#[test]
fn a_connection_in_time_wait_rests_answers_and_ends() {
    for (a, b) in [("10.0.0.1", "10.0.0.2"), ("fd00::1", "fd00::2")] {
        let (a, b) = (a.parse().unwrap(), b.parse().unwrap());
        let mut pair = Pair::between(a, b);
        pair.a.set_neighbour(b, Some(pair.b.queues().mac));
        pair.b.set_neighbour(a, Some(pair.a.queues().mac));
        let listener = pair.b.tcp_listen(SocketAddr::new(b, 80), 4, &tcp::Config::default()).unwrap();
        let (local, remote) = (SocketAddr::new(a, 5000), SocketAddr::new(b, 80));
        let client = pair.a.tcp_connect(pair.now, local, remote, NextHop::Neighbour(b), &tcp::Config::default()).unwrap();
        pair.settle();
        let server = pair.b.tcp_accept(listener).unwrap();
        pair.a.close(pair.now, client, false);
        pair.settle();
        pair.b.close(pair.now, server, false);
        let fin = pair.a.queues().inward.lock().unwrap().back().unwrap().clone();
        pair.settle();
        assert_eq!(at_rest(&pair.a), [State::TimeWait]);
        assert_eq!((pair.a.info(client).unwrap().local, pair.a.tcp_state(local, remote)), (local, Some(State::TimeWait)));
        assert_eq!(pair.a.tcp_send(pair.now, client, &[], crate::ring::SendFlags::empty()), Err(Error::BadSocket));
        // The peer's FIN again: it is acknowledged again, and the wait begins anew (RFC 9293 s3.10.7.4).
        pair.pass(Duration::from_secs(50));
        pair.a.queues().inward.lock().unwrap().push_back(fin);
        pair.a.poll(pair.now);
        assert_eq!(pair.b.queues().inward.lock().unwrap().len(), 1);
        assert_eq!(at_rest(&pair.a), [State::TimeWait]);
        pair.b.queues().inward.lock().unwrap().clear();
        pair.pass(Duration::from_secs(50));
        assert_eq!(pair.a.usage().flows, 1);
        pair.pass(Duration::from_secs(11));
        assert_eq!(pair.a.usage(), crate::ring::Usage::default());
    }
}

#[test]
fn the_addresses_of_a_connection_at_rest_are_used_again_by_a_younger_one() {
    let mut pair = Pair::new();
    let client = time_wait(&mut pair);
    let info = pair.a.info(client).unwrap();
    let (local, remote) = (info.local, info.remote.unwrap());
    let again = |pair: &mut Pair| pair.a.tcp_connect(pair.now, local, remote, NextHop::Neighbour(B), &tcp::Config::default());
    assert_eq!((again(&mut pair), pair.a.tcp_is_free(pair.now, local, remote)), (Err(Error::AddressInUse), false));
    assert_eq!(at_rest(&pair.a), [State::TimeWait]);
    pair.pass(Duration::from_secs(2));
    assert!(pair.a.tcp_is_free(pair.now, local, remote));
    let client = again(&mut pair).unwrap();
    pair.settle();
    assert_eq!((pair.a.info(client).unwrap().state, pair.a.usage().flows), (Some(State::Established), 1));
}

#[test]
fn what_rests_is_small() {
    let sizes = (size_of::<Resting>(), size_of::<Stream<Cable>>());
    // (Faults on purpose take room, too.)
    let most = if cfg!(feature = "mutants") { 896 } else { 864 };
    assert!(sizes.0 <= 256 && sizes.1 <= most, "{sizes:?}");
}
