use super::super::tests::{A, B, Cable, Pair, read, write};
use super::*;
use crate::ring::{FlowId, NextHop};
use crate::tcp;
use crate::wire::ipv4;

/// A's connection with B, and A's addresses of it.
fn connected(pair: &mut Pair) -> (FlowId, FlowId, SocketAddr, SocketAddr) {
    pair.a.output.caps.rings_max = 2;
    let (client, server, _) = pair.connected();
    (client, server, SocketAddr::new(A, 5000), SocketAddr::new(B, 80))
}

#[test]
fn what_comes_between_two_owners_is_heard_when_it_is_taken_back() {
    let mut pair = Pair::new();
    let (client, server, local, remote) = connected(&mut pair);
    let handover = pair.a.detach_stream(pair.now, client).unwrap();
    pair.a.tcp_keep_late(local, remote);
    write(&mut pair.b, pair.now, server, &[7; 3000]).unwrap();
    pair.settle();
    let client = pair.a.adopt(pair.now, handover).map_err(|(error, _)| error).unwrap();
    assert_eq!(read(&mut pair.a, pair.now, client, 9000), Ok(vec![7; 3000]));
    pair.settle();
    assert_eq!(pair.b.info(server).map(|info| (info.send_queue, info.counters.retransmissions)), Some((0, 0)));
    assert!(!pair.a.late.awaits(local, remote) && pair.a.late.frames == 0);
}

#[test]
fn what_comes_between_two_owners_can_be_passed_on() {
    let mut pair = Pair::new();
    let (client, server, local, remote) = connected(&mut pair);
    let handover = pair.a.detach_stream(pair.now, client).unwrap();
    pair.a.tcp_keep_late(local, remote);
    write(&mut pair.b, pair.now, server, &[7; 2000]).unwrap();
    pair.settle();
    let late = pair.a.tcp_take_late(local, remote);
    let sizes: Vec<_> = late.iter().map(|packet| ipv4::Header::parse(&packet.bytes).unwrap().0.total_len).collect();
    assert!(late.iter().zip(&sizes).all(|(packet, size)| packet.bytes.len() == usize::from(*size)), "without what a link pads");
    assert_eq!(sizes.iter().map(|size| usize::from(*size) - 52).sum::<usize>(), 2000);
    assert!(late[0].bytes.ends_with(&[7; 100]));
    assert_eq!(pair.a.tcp_take_late(local, remote), Vec::new());
    // (Whole segments: less would wait for an acknowledgment.)
    let before = pair.a.counters().rx_packets;
    write(&mut pair.b, pair.now, server, &[8; 1448]).unwrap();
    pair.settle();
    assert_eq!(pair.a.tcp_end_late(local, remote).len(), 1);
    drop(handover);
    // From now on they are dropped, and answered by nobody.
    write(&mut pair.b, pair.now, server, &[9; 1448]).unwrap();
    pair.settle();
    assert_eq!(pair.a.counters().rx_packets - before, 2);
    assert_eq!(pair.a.tcp_take_late(local, remote), Vec::new());
    assert_eq!(pair.b.info(server).and_then(|info| info.state), Some(tcp::State::Established));
}

#[test]
fn a_listener_of_the_same_port_does_not_answer_what_is_kept() {
    let mut pair = Pair::new();
    pair.b.output.caps.rings_max = 2;
    let (client, server, _) = pair.connected();
    let (local, remote) = (SocketAddr::new(B, 80), SocketAddr::new(A, 5000));
    let handover = pair.b.detach_stream(pair.now, server).unwrap();
    pair.b.tcp_keep_late(local, remote);
    write(&mut pair.a, pair.now, client, b"hello").unwrap();
    pair.settle();
    assert_eq!(pair.b.tcp_take_late(local, remote).len(), 1);
    drop(handover);
    assert_eq!(read(&mut pair.a, pair.now, client, 1), Err(Error::WouldBlock));
}

/// Its frames come first, then the connection does.
#[test]
fn what_is_expected_hears_what_came_before_it() {
    let mut pair = Pair::new();
    let (client, server, local, remote) = connected(&mut pair);
    // (Another owner has it for a while.)
    let elsewhere = pair.a.detach_stream(pair.now, client).unwrap().snapshot().unwrap();
    assert_eq!(rules(&pair), 0);
    assert_eq!(pair.a.tcp_is_expected(local, remote), Err(Error::BadSocket));
    pair.a.tcp_expect(local, remote).unwrap();
    assert_eq!((pair.a.tcp_is_expected(local, remote), rules(&pair)), (Ok(true), 1));
    assert_eq!(pair.a.tcp_expect(local, remote), Err(Error::AddressInUse));
    write(&mut pair.b, pair.now, server, b"early").unwrap();
    pair.settle();
    let hop = NextHop::Neighbour(B);
    let client = pair.a.adopt_snapshot(pair.now, (local, remote), hop, &tcp::Config::default(), &elsewhere).unwrap();
    pair.a.tcp_retarget(pair.now, client, hop).unwrap();
    assert_eq!(read(&mut pair.a, pair.now, client, 100), Ok(b"early".to_vec()));
    write(&mut pair.a, pair.now, client, b"and on").unwrap();
    pair.settle();
    assert_eq!(read(&mut pair.b, pair.now, server, 100), Ok(b"and on".to_vec()));
    assert_eq!(rules(&pair), 1, "it is the connection's now");
    pair.a.close(pair.now, client, true);
    pair.settle();
    assert_eq!(rules(&pair), 0);
}

#[test]
fn what_is_expected_and_does_not_come_leaves_no_rule_behind() {
    let mut pair = Pair::new();
    let (client, server, local, remote) = connected(&mut pair);
    assert_eq!(pair.a.tcp_expect(local, remote), Err(Error::AddressInUse), "it is here");
    drop(pair.a.detach_stream(pair.now, client).unwrap());
    pair.a.tcp_expect(local, remote).unwrap();
    write(&mut pair.b, pair.now, server, b"early").unwrap();
    pair.settle();
    // No connection is written there: the next one may be.
    let hop = NextHop::Neighbour(B);
    assert_eq!(pair.a.adopt_snapshot(pair.now, (local, remote), hop, &tcp::Config::default(), b"?").unwrap_err(), Error::Invalid);
    assert_eq!(pair.a.tcp_is_expected(local, remote), Ok(true));
    assert_eq!(pair.a.tcp_end_late(local, remote).len(), 1);
    assert_eq!((rules(&pair), pair.a.late.frames), (0, 0));
}

#[test]
fn a_flood_of_late_frames_is_bounded() {
    let mut late = Late::<<Cable as Queues>::Rx>::default();
    let ends = (SocketAddr::new(A, 1), SocketAddr::new(B, 2));
    let mut batch = crate::device::RxBatch::new(1);
    batch.push_slot().unwrap().fill(&[0; 60], None);
    let mut frame = || batch.frames_mut()[0].clone();
    late.keep(ends, frame());
    assert_eq!(late.frames, 0, "nobody awaits it");
    late.known.insert(ends, Kept { frames: Vec::new(), rule: Rule::Elsewhere });
    for _ in 0..2 * FRAMES_MAX {
        late.keep(ends, frame());
    }
    assert_eq!((late.frames, late.end(ends).len(), late.frames), (FRAMES_MAX, FRAMES_MAX, 0));
}

fn rules(pair: &Pair) -> usize {
    pair.a.queues().table().rules.len()
}
