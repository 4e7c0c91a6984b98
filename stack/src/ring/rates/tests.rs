use core::time::Duration;
use std::net::SocketAddr;

use super::*;
use crate::device::RuleError;
use crate::ring::tests::{A, B, Pair, write};
use crate::ring::{NextHop, UdpOptions};
use crate::tcp;

const SLOW: Pacing = Pacing { rate_bps: 1_000_000, burst_bytes: 3_000, typical_packet_bytes: 1_500 };
const SLOWER: Pacing = Pacing { rate_bps: 500_000, ..SLOW };

/// Whose what A sent since the last call was.
fn flows(pair: &mut Pair) -> Vec<u32> {
    core::mem::take(&mut pair.a.queues_mut().flows)
}

fn udp(pair: &mut Pair, port: u16) -> FlowId {
    pair.a.udp_open(SocketAddr::new(A, port), &UdpOptions::default()).unwrap()
}

fn datagram(pair: &mut Pair, flow: FlowId) {
    let to = Some((SocketAddr::new(B, 2000), NextHop::Neighbour(B)));
    pair.a.udp_send(pair.now, flow, &[std::io::IoSlice::new(&[1; 700])], A, to).unwrap();
}

#[test]
fn what_a_connection_sends_is_its_own_while_it_has_a_rate() {
    let mut pair = Pair::new();
    let (client, server, _) = pair.connected();
    flows(&mut pair);
    write(&mut pair.a, pair.now, client, &[1; 3_000]).unwrap();
    assert_eq!(flows(&mut pair), [0; 3], "nobody asked for a rate");
    pair.settle();
    assert_eq!((pair.a.set_rate(pair.now, client, SLOW), pair.a.rate(client)), (Ok(()), Some(SLOW)));
    let tag = tag(client.index);
    assert_eq!(pair.a.queues().rates.get(&tag), Some(&SLOW));
    flows(&mut pair);
    write(&mut pair.a, pair.now, client, &[1; 3_000]).unwrap();
    assert_eq!(flows(&mut pair), [tag; 3]);
    // What it sends again, too, and that it has heard something.
    pair.b.queues_mut().inward.lock().unwrap().clear();
    pair.pass(Duration::from_secs(1));
    assert!(flows(&mut pair).iter().all(|flow| *flow == tag));
    write(&mut pair.b, pair.now, server, b"answer").unwrap();
    pair.pass(Duration::from_secs(1));
    assert_eq!(flows(&mut pair), [tag]);
    // Another one's is not.
    let socket = udp(&mut pair, 1000);
    datagram(&mut pair, socket);
    assert_eq!(flows(&mut pair), [0]);
    assert_eq!((pair.a.set_rate(pair.now, client, Pacing::UNLIMITED), pair.a.rate(client)), (Ok(()), None));
    assert!(pair.a.queues().rates.is_empty());
    write(&mut pair.a, pair.now, client, b"x").unwrap();
    assert_eq!(flows(&mut pair), [0]);
}

#[test]
fn a_datagram_that_waits_for_its_neighbour_is_its_sockets_still() {
    let mut pair = Pair::new();
    let (paced, free) = (udp(&mut pair, 1000), udp(&mut pair, 1001));
    pair.a.set_rate(pair.now, paced, SLOW).unwrap();
    datagram(&mut pair, paced);
    datagram(&mut pair, free);
    assert_eq!(flows(&mut pair), [0], "a question to the neighbour is nobody's");
    pair.settle();
    assert_eq!(flows(&mut pair), [tag(paced.index), 0]);
    datagram(&mut pair, paced);
    datagram(&mut pair, free);
    assert_eq!(flows(&mut pair), [tag(paced.index), 0]);
}

#[test]
fn what_the_device_refuses_changes_nothing() {
    let mut pair = Pair::new();
    let (client, _, _) = pair.connected();
    let sockets = [1000, 1001].map(|port| udp(&mut pair, port));
    let listener = pair.a.tcp_listen(SocketAddr::new(A, 80), 1, &tcp::Config::default()).unwrap();
    assert_eq!(pair.a.set_rate(pair.now, listener, SLOW), Err(Error::NotSupported));
    pair.a.set_rate(pair.now, client, SLOW).unwrap();
    pair.a.set_rate(pair.now, sockets[0], SLOWER).unwrap();
    assert_eq!((pair.a.set_rate(pair.now, sockets[1], SLOW), pair.a.rate(sockets[1])), (Err(Error::NoBuffers), None), "two have one");
    flows(&mut pair);
    pair.a.set_neighbour(B, Some(pair.b.queues().mac));
    datagram(&mut pair, sockets[1]);
    assert_eq!(flows(&mut pair), [0]);
    pair.a.queues_mut().paced_max = 0;
    assert_eq!((pair.a.set_rate(pair.now, sockets[0], SLOW), pair.a.rate(sockets[0])), (Err(Error::NotSupported), Some(SLOWER)));
    pair.a.close(pair.now, sockets[1], false);
    assert_eq!(pair.a.set_rate(pair.now, sockets[1], SLOW), Err(Error::BadSocket));
}

#[test]
fn a_rate_ends_with_its_flow_and_not_before_its_last_frame() {
    let mut pair = Pair::new();
    let (client, server, _) = pair.connected();
    pair.a.set_rate(pair.now, client, SLOW).unwrap();
    flows(&mut pair);
    pair.a.close(pair.now, client, false);
    pair.b.close(pair.now, server, false);
    pair.settle();
    assert_eq!(pair.a.set_rate(pair.now, client, SLOWER), Err(Error::BadSocket), "its id is dead");
    let sent = flows(&mut pair);
    assert!(sent.len() >= 2 && sent.iter().all(|flow| *flow == tag(client.index)), "{sent:?}");
    pair.pass(Duration::from_secs(61));
    assert!(pair.a.queues().rates.is_empty());
    // The next one in its place has none.
    let socket = udp(&mut pair, 1000);
    assert_eq!((socket.index, pair.a.rate(socket)), (client.index, None));
    pair.a.set_rate(pair.now, socket, SLOW).unwrap();
    pair.a.close(pair.now, socket, false);
    assert!(pair.a.queues().rates.is_empty());
}

#[test]
fn a_connection_takes_its_rate_along_or_does_not_go() {
    let mut pair = Pair::new();
    let (client, _, _) = pair.connected();
    pair.a.set_rate(pair.now, client, SLOW).unwrap();
    let mut other = Pair::new();
    let filler = [1000, 1001].map(|port| udp(&mut other, port));
    filler.iter().for_each(|socket| other.a.set_rate(Instant::ZERO, *socket, SLOWER).unwrap());
    let handover = pair.a.detach_stream(pair.now, client).unwrap();
    assert!(pair.a.queues().rates.is_empty());
    let (error, handover) = other.a.adopt(pair.now, handover).unwrap_err();
    assert_eq!((error, other.a.queues().rates.len()), (Error::NoBuffers, 2));
    other.a.close(pair.now, filler[0], false);
    // No rule for it, no rate.
    other.a.queues().table().is_full = true;
    let (error, handover) = other.a.adopt(pair.now, handover).unwrap_err();
    assert_eq!((error, other.a.queues().rates.len()), (super::super::udp::rule_error(RuleError::Full), 1));
    other.a.queues().table().is_full = false;
    let moved = other.a.adopt(pair.now, handover).unwrap();
    assert_eq!((other.a.rate(moved), other.a.queues().rates.get(&tag(moved.index))), (Some(SLOW), Some(&SLOW)));
    other.a.set_neighbour(B, Some(pair.b.queues().mac));
    flows(&mut other);
    write(&mut other.a, pair.now, moved, b"x").unwrap();
    assert_eq!(flows(&mut other), [tag(moved.index)]);
}

/// A pair whose devices pace nothing.
fn unpaced() -> (Pair, FlowId, FlowId) {
    let mut pair = Pair::new();
    let (client, server, _) = pair.connected();
    pair.a.queues_mut().paced_max = 0;
    (pair, client, server)
}

#[test]
fn a_ring_keeps_a_rate_that_its_device_does_not() {
    let (mut pair, client, _) = unpaced();
    pair.a.set_rate(pair.now, client, SLOW).unwrap();
    assert_eq!((pair.a.rate(client), pair.a.queues().rates.len()), (Some(SLOW), 0));
    let (began, before) = (pair.now, pair.a.counters().tx_bytes);
    write(&mut pair.a, pair.now, client, &[1; 20_000]).unwrap();
    let mut ended = None;
    for _ in 0..200 {
        pair.pass(Duration::from_millis(1));
        let sent = u128::from(pair.a.counters().tx_bytes - before);
        // A million bits a second are 125 bytes a millisecond.
        let most = 3_000 + 125 * pair.now.since(began).as_millis();
        assert!(sent <= most, "{sent} bytes after {:?}", pair.now.since(began));
        if sent == 20_000 && ended.is_none() {
            ended = Some(pair.now.since(began));
        }
    }
    // 20,000 bytes, and the headers of 14 frames, of which 3,000 left at once.
    let ended = ended.expect("all was sent").as_millis();
    assert!((130..=145).contains(&ended), "after {ended} ms");
    assert_eq!((pair.a.counters().retransmissions, pair.a.queues().flows.iter().max()), (0, Some(&0)));
}

#[test]
fn a_limit_that_is_lifted_holds_nothing_back_any_more() {
    let (mut pair, client, _) = unpaced();
    let slowest = Pacing { rate_bps: 1_000, ..SLOW };
    pair.a.set_rate(pair.now, client, slowest).unwrap();
    let before = pair.a.counters().tx_bytes;
    write(&mut pair.a, pair.now, client, &[1; 12_000]).unwrap();
    pair.settle();
    assert!(pair.a.counters().tx_bytes - before <= 3_000);
    assert!(pair.a.next_deadline().is_some() && !pair.a.refused(), "it waits, and for no device");
    pair.a.set_rate(pair.now, client, Pacing::UNLIMITED).unwrap();
    pair.settle();
    assert_eq!((pair.a.counters().tx_bytes - before, pair.a.rate(client)), (12_000, None));
    assert!(pair.a.rates.next_turn().is_none());
}

#[test]
fn a_connection_that_ends_or_leaves_has_no_turn_any_more() {
    let (mut pair, client, _) = unpaced();
    pair.a.set_rate(pair.now, client, Pacing { rate_bps: 1_000, ..SLOW }).unwrap();
    write(&mut pair.a, pair.now, client, &[1; 12_000]).unwrap();
    pair.settle();
    assert!(pair.a.rates.next_turn().is_some());
    let handover = pair.a.detach_stream(pair.now, client).unwrap();
    assert!(pair.a.rates.next_turn().is_none() && pair.a.rates.is_empty());
    let client = pair.a.adopt(pair.now, handover).unwrap();
    assert_eq!(pair.a.rate(client).map(|rate| rate.rate_bps), Some(1_000), "it takes its rate along");
    pair.settle();
    assert!(pair.a.rates.next_turn().is_some());
    pair.a.close(pair.now, client, true);
    pair.settle();
    assert!(pair.a.rates.next_turn().is_none() && pair.a.rates.is_empty());
}
