use std::io::IoSlice;

use super::*;
use crate::device::DeviceEvent;
use crate::ring::tests::{A, B, Cable, Pair, Told, read, write};
use crate::ring::{Readiness, RingConfig, SendFlags, Shutdown};
use crate::tcp;
use crate::wire::checksum::Checksum;

/// B's connection, passed on to another ring on the same cable; B itself stays, and has no more frames.
fn moved(pair: &mut Pair, server: FlowId) -> (Ring<Cable>, FlowId) {
    let handover = pair.b.detach_stream(pair.now, server).unwrap();
    assert_eq!((handover.local(), handover.remote().port()), (SocketAddr::new(B, 80), 5000));
    let mut other = Pair::new();
    core::mem::swap(&mut other.b.queues_mut().inward, &mut pair.b.queues_mut().inward);
    core::mem::swap(&mut other.b.queues_mut().out, &mut pair.b.queues_mut().out);
    let id = other.b.adopt(pair.now, handover).unwrap();
    (other.b, id)
}

/// Polls A and the connection's new ring until neither has anything to do.
fn settle(pair: &mut Pair, new: &mut Ring<Cable>) {
    while pair.a.poll(pair.now) + new.poll(pair.now) > 0 {}
}

#[test]
fn a_stream_goes_on_where_it_was() {
    let mut pair = Pair::new();
    let (client, server, _) = pair.connected();
    write(&mut pair.a, pair.now, client, b"before").unwrap();
    pair.settle();
    write(&mut pair.b, pair.now, server, &[3; 5000]).unwrap();
    let (mut new, id) = moved(&mut pair, server);
    assert_eq!(write(&mut pair.b, pair.now, server, b"x"), Err(Error::BadSocket));
    let event = new.take_event().expect("what it is ready for is news");
    assert_eq!((event.flow, event.edges.contains(Readiness::IN | Readiness::OUT)), (id, true));
    assert_eq!(read(&mut new, pair.now, id, 64), Ok(b"before".to_vec()));
    // What was in flight is still the connection's to repeat, and its timer came along.
    pair.a.poll(pair.now);
    for _ in 0..40 {
        pair.now += Duration::from_millis(50);
        settle(&mut pair, &mut new);
    }
    let mut got = Vec::new();
    while let Ok(bytes) = read(&mut pair.a, pair.now, client, 4096) {
        got.extend(bytes);
        settle(&mut pair, &mut new);
    }
    assert_eq!(got, vec![3; 5000]);
    new.tcp_send(pair.now, id, &[IoSlice::new(b"after")], SendFlags::empty()).unwrap();
    settle(&mut pair, &mut new);
    assert_eq!(read(&mut pair.a, pair.now, client, 64), Ok(b"after".to_vec()));
}

/// As [`moved`], by way of bytes.
fn moved_as_bytes(pair: &mut Pair, server: FlowId) -> (Ring<Cable>, FlowId) {
    let hop = pair.b.tcp_hop(server).unwrap();
    let handover = pair.b.detach_stream(pair.now, server).unwrap();
    let (ends, bytes) = ((handover.local(), handover.remote()), handover.snapshot().unwrap());
    drop(handover);
    let mut other = Pair::new();
    core::mem::swap(&mut other.b.queues_mut().inward, &mut pair.b.queues_mut().inward);
    core::mem::swap(&mut other.b.queues_mut().out, &mut pair.b.queues_mut().out);
    let said = other.b.queues_mut().out.lock().unwrap().len();
    let id = other.b.adopt_snapshot(pair.now, ends, hop, &tcp::Config::default(), &bytes).unwrap();
    assert_eq!(other.b.queues_mut().out.lock().unwrap().len(), said, "it says nothing before it is told to");
    other.b.tcp_retarget(pair.now, id, hop).unwrap();
    assert_eq!(other.b.adopt_snapshot(pair.now, ends, hop, &tcp::Config::default(), &bytes), Err(Error::AddressInUse));
    assert_eq!(other.b.adopt_snapshot(pair.now, ends, hop, &tcp::Config::default(), &bytes[1..]), Err(Error::Invalid));
    (other.b, id)
}

#[test]
fn a_stream_goes_on_from_bytes() {
    let mut pair = Pair::new();
    let (client, server, _) = pair.connected();
    write(&mut pair.a, pair.now, client, b"before").unwrap();
    pair.settle();
    write(&mut pair.b, pair.now, server, &[3; 5000]).unwrap();
    let (mut new, id) = moved_as_bytes(&mut pair, server);
    assert_eq!(read(&mut new, pair.now, id, 64), Ok(b"before".to_vec()));
    // What was on its way is still to be repeated, and what the peer sends meets no stranger.
    let mut got = Vec::new();
    for _ in 0..40 {
        pair.now += Duration::from_millis(50);
        settle(&mut pair, &mut new);
        while let Ok(bytes) = read(&mut pair.a, pair.now, client, 4096) {
            got.extend(bytes);
        }
    }
    assert_eq!(got, vec![3; 5000]);
    write(&mut pair.a, pair.now, client, b"to the new one").unwrap();
    settle(&mut pair, &mut new);
    assert_eq!(read(&mut new, pair.now, id, 64), Ok(b"to the new one".to_vec()));
    new.close(pair.now, id, false);
    pair.a.close(pair.now, client, false);
    for _ in 0..200 {
        pair.now += Duration::from_secs(1);
        settle(&mut pair, &mut new);
    }
    assert_eq!((new.occupied(), pair.a.occupied()), (0, 0), "it ends as any other");
}

#[test]
fn a_peer_that_is_told_of_the_new_mac_address_repeats_what_it_sent_to_the_old_one() {
    let mut pair = Pair::new();
    let (client, server, _) = pair.connected();
    write(&mut pair.a, pair.now, client, b"lost on the way").unwrap();
    let (mut new, id) = moved_as_bytes(&mut pair, server);
    new.queues_mut().inward.lock().unwrap().clear();
    let hop = pair.a.tcp_hop(client).unwrap();
    pair.a.tcp_retarget(pair.now, client, hop).unwrap();
    settle(&mut pair, &mut new);
    assert_eq!(read(&mut new, pair.now, id, 64), Ok(b"lost on the way".to_vec()), "without waiting for a timer");
}

/// The peer is at the end of a wire, and refuses what comes from another MAC address than the one that it knows.
#[test]
fn a_stream_whose_peer_has_yet_to_follow_says_nothing_and_hears() {
    let mut pair = Pair::new();
    let (client, server, _) = pair.connected();
    let (ends, hop) = ((SocketAddr::new(B, 80), SocketAddr::new(A, 5000)), pair.b.tcp_hop(server).unwrap());
    assert_eq!((pair.b.tcp_between(ends.0, ends.1), pair.b.tcp_between(ends.1, ends.0)), (Some(server), None));
    write(&mut pair.b, pair.now, server, b"sent before, ").unwrap();
    pair.b.queues().out.lock().unwrap().clear();
    write(&mut pair.a, pair.now, client, b"lost on the way, ").unwrap();
    pair.b.queues().inward.lock().unwrap().clear();
    let bytes = pair.b.tcp_written(server).expect("it stands");
    drop(pair.b.detach_stream(pair.now, server).unwrap());
    let mut other = Pair::new();
    core::mem::swap(&mut other.b.queues_mut().inward, &mut pair.b.queues_mut().inward);
    core::mem::swap(&mut other.b.queues_mut().out, &mut pair.b.queues_mut().out);
    let mut new = other.b;
    let id = new.adopt_snapshot(pair.now, ends, hop, &tcp::Config::default(), &bytes).unwrap();
    new.tcp_keep_silent(id).unwrap();
    assert!(new.slots.stream(id).unwrap().noted, "what it sent last may be with nobody");
    assert!(new.tcp_written(id).is_none(), "one move at a time");
    write(&mut new, pair.now, id, b"written meanwhile").unwrap();
    for _ in 0..20 {
        pair.now += Duration::from_millis(50);
        new.poll(pair.now);
        assert_eq!(new.queues().out.lock().unwrap().len(), 0);
    }
    // The peer follows, and is heard before anybody here knows that it does.
    let to_old = pair.a.tcp_hop(client).unwrap();
    pair.a.tcp_retarget(pair.now, client, to_old).unwrap();
    new.poll(pair.now);
    assert_eq!(read(&mut new, pair.now, id, 64), Ok(b"lost on the way, ".to_vec()));
    assert_eq!(new.queues().out.lock().unwrap().len(), 0);
    new.tcp_speak(pair.now, id);
    let mut got = Vec::new();
    for _ in 0..4 {
        settle(&mut pair, &mut new);
        got.extend(read(&mut pair.a, pair.now, client, 64).unwrap_or_default());
        pair.now += Duration::from_millis(50);
    }
    assert_eq!(got, b"sent before, written meanwhile");
    assert!(!new.slots.stream(id).unwrap().noted);
    write(&mut pair.a, pair.now, client, b"and on").unwrap();
    settle(&mut pair, &mut new);
    assert_eq!(read(&mut new, pair.now, id, 64), Ok(b"and on".to_vec()));
    new.tcp_speak(pair.now, id);
    assert_eq!(new.queues().out.lock().unwrap().len(), 0, "it was told once");
}

/// What the old ring sent is perhaps read after the peer follows: a reset would end the connection, should it be back there by then.
#[test]
fn what_comes_late_from_where_the_peer_was_is_refused_by_nobody() {
    for (elsewhere, refused) in [(true, 0), (false, 1)] {
        let mut pair = Pair::new();
        let (client, server, _) = pair.connected();
        pair.a.output.caps.point_to_point = true;
        let here = MacAddr([2, 0, 0, 0, 0, 77]);
        let hop = NextHop::Mac(if elsewhere { here } else { pair.b.queues().mac });
        pair.a.tcp_retarget(pair.now, client, NextHop::Mac(pair.b.queues().mac)).unwrap();
        pair.settle();
        write(&mut pair.b, pair.now, server, b"late").unwrap();
        let mut frame = pair.a.queues().inward.lock().unwrap().pop_back().unwrap();
        pair.a.tcp_retarget(pair.now, client, hop).unwrap();
        if !elsewhere {
            // A stranger's.
            frame[6..12].copy_from_slice(&here.0);
        }
        pair.a.queues().inward.lock().unwrap().push_back(frame);
        pair.a.queues().out.lock().unwrap().clear();
        pair.a.poll(pair.now);
        let resets = pair.a.queues().out.lock().unwrap().iter().filter(|frame| frame[47] & 4 != 0).count();
        assert_eq!(resets, refused, "{elsewhere}");
        assert_eq!(read(&mut pair.a, pair.now, client, 8), Err(Error::WouldBlock));
    }
}

/// What `pair.a` sends in answer to a frame of `pair.b`'s that comes from another MAC address: so many resets.
fn resets_for(pair: &mut Pair, mut frame: Vec<u8>, from: MacAddr) -> usize {
    frame[6..12].copy_from_slice(&from.0);
    pair.a.queues_mut().inward.lock().unwrap().push_back(frame);
    pair.a.queues_mut().out.lock().unwrap().clear();
    pair.a.poll(pair.now);
    let is_reset = |frame: &&Vec<u8>| frame[47] & 4 != 0;
    pair.a.queues().out.lock().unwrap().iter().filter(is_reset).count()
}

/// A peer that has moved twice, as quickly as it can be told, has late frames from two MAC addresses.
#[test]
fn all_mac_addresses_where_the_peer_was_are_remembered() {
    let mut pair = Pair::new();
    let (client, server, _) = pair.connected();
    pair.a.output.caps.point_to_point = true;
    let was = pair.b.queues().mac;
    let [second, third, strangers] = [77, 78, 79].map(|last| MacAddr([2, 0, 0, 0, 0, last]));
    for mac in [was, second, third] {
        pair.a.tcp_retarget(pair.now, client, NextHop::Mac(mac)).unwrap();
    }
    write(&mut pair.b, pair.now, server, b"late").unwrap();
    let frame = pair.a.queues().inward.lock().unwrap().pop_back().unwrap();
    for (from, resets) in [(was, 0), (second, 0), (strangers, 1)] {
        assert_eq!(resets_for(&mut pair, frame.clone(), from), resets, "{from}");
    }
    assert_eq!(read(&mut pair.a, pair.now, client, 8), Err(Error::WouldBlock));
}

/// It has been away, too, and its peer has moved in the meantime.
#[test]
fn a_stream_that_comes_back_remembers_where_its_peer_was_when_it_left() {
    let mut pair = Pair::new();
    let (client, server, _) = pair.connected();
    pair.a.output.caps.point_to_point = true;
    let ends = (SocketAddr::new(A, 5000), SocketAddr::new(B, 80));
    let (was, now_at) = (pair.b.queues().mac, MacAddr([2, 0, 0, 0, 0, 77]));
    pair.a.tcp_retarget(pair.now, client, NextHop::Mac(was)).unwrap();
    pair.settle();
    let bytes = pair.a.tcp_written(client).unwrap();
    drop(pair.a.detach_stream(pair.now, client).unwrap());
    let back = pair.a.adopt_snapshot(pair.now, ends, NextHop::Mac(now_at), &tcp::Config::default(), &bytes).unwrap();
    write(&mut pair.b, pair.now, server, b"late").unwrap();
    let frame = pair.a.queues().inward.lock().unwrap().pop_back().unwrap();
    assert_eq!(resets_for(&mut pair, frame, was), 0);
    assert_eq!(read(&mut pair.a, pair.now, back, 8), Err(Error::WouldBlock));
}

/// A second copy of the SYN, held back by the network until the peer has gone over.
#[test]
fn a_late_syn_from_where_the_peer_was_begins_nothing() {
    let mut pair = Pair::new();
    let listener = pair.b.tcp_listen(SocketAddr::new(B, 80), 4, &tcp::Config::default()).unwrap();
    let (client, syn) = pair.connect_seen(5000);
    pair.settle();
    let server = pair.b.tcp_accept(listener).unwrap();
    pair.b.output.caps.point_to_point = true;
    for mac in [pair.a.queues().mac, MacAddr([2, 0, 0, 0, 0, 77])] {
        pair.b.tcp_retarget(pair.now, server, NextHop::Mac(mac)).unwrap();
    }
    pair.b.queues_mut().inward.lock().unwrap().push_back(syn.clone());
    pair.b.poll(pair.now);
    assert_eq!(read(&mut pair.b, pair.now, server, 8), Err(Error::WouldBlock));
    assert!(pair.a.info(client).is_some());
    // Nor does it where the connection is no more (as in 97211113/none/0/request, in the world beside it).
    drop(pair.b.detach_stream(pair.now, server).unwrap());
    pair.b.queues_mut().inward.lock().unwrap().push_back(syn);
    pair.b.queues_mut().out.lock().unwrap().clear();
    pair.b.poll(pair.now);
    assert_eq!((pair.b.queues().out.lock().unwrap().len(), pair.b.occupied()), (0, 1), "the listener alone is there");
}

/// The host that the peer is at now has yet to hear where the connection is, and is not to take this one's death for its end.
#[test]
fn who_gives_a_stream_away_counts_on_a_peer_that_goes_over() {
    let mut pair = Pair::new();
    let (client, server, _) = pair.connected();
    pair.a.output.caps.point_to_point = true;
    let (was, now_at) = (pair.b.queues().mac, MacAddr([2, 0, 0, 0, 0, 77]));
    pair.a.tcp_retarget(pair.now, client, NextHop::Mac(was)).unwrap();
    drop(pair.a.detach_stream(pair.now, client).unwrap());
    write(&mut pair.b, pair.now, server, b"here").unwrap();
    let frame = pair.a.queues().inward.lock().unwrap().pop_back().unwrap();
    for (from, is_noted) in [(was, false), (now_at, true), (now_at, false)] {
        pair.a.queues_mut().told.clear();
        assert_eq!(resets_for(&mut pair, frame.clone(), from), 0);
        assert_eq!(pair.a.queues().told.contains(&Told::Unfinished(true)), is_noted, "{from}");
    }
}

#[test]
fn a_stream_that_the_program_aborted_while_it_was_silent_is_over_when_its_peer_is_dead() {
    let mut pair = Pair::new();
    let (_, server, _) = pair.connected();
    let (mut new, id) = moved_as_bytes(&mut pair, server);
    let mac = pair.a.queues().mac;
    new.tcp_retarget(pair.now, id, NextHop::Mac(mac)).unwrap();
    new.tcp_keep_silent(id).unwrap();
    new.close(pair.now, id, true);
    assert_eq!(new.occupied(), 1, "its reset is still to be said");
    new.queues_mut().events.push_back(DeviceEvent::PeerGone(mac));
    new.poll(pair.now);
    assert_eq!(new.occupied(), 0);
}

#[test]
fn a_stream_that_the_program_closed_while_it_was_silent_ends_when_it_may_speak() {
    let mut pair = Pair::new();
    let (client, server, _) = pair.connected();
    let (mut new, id) = moved_as_bytes(&mut pair, server);
    settle(&mut pair, &mut new);
    new.tcp_keep_silent(id).unwrap();
    write(&mut new, pair.now, id, b"last words").unwrap();
    new.close(pair.now, id, false);
    settle(&mut pair, &mut new);
    assert_eq!((read(&mut pair.a, pair.now, client, 64), new.lingering()), (Err(Error::WouldBlock), true));
    new.tcp_speak(pair.now, id);
    settle(&mut pair, &mut new);
    assert_eq!(read(&mut pair.a, pair.now, client, 64), Ok(b"last words".to_vec()));
    assert_eq!((read(&mut pair.a, pair.now, client, 64), new.lingering()), (Ok(Vec::new()), false));
}

#[test]
fn its_rule_comes_and_goes_with_it() {
    let mut pair = Pair::new();
    let (client, server, _) = pair.connected();
    let (mut new, id) = moved(&mut pair, server);
    let rules: Vec<_> = new
        .queues()
        .table()
        .rules
        .iter()
        .filter_map(|(rule, _)| rule.as_five_tuple())
        .map(|flow| (flow.local, flow.remote.map(|r| r.port())))
        .collect();
    assert_eq!(rules, [(SocketAddr::new(B, 80), Some(5000))]);
    pair.a.close(pair.now, client, true);
    settle(&mut pair, &mut new);
    new.close(pair.now, id, false);
    settle(&mut pair, &mut new);
    assert_eq!((new.queues().table().rules.len(), new.occupied()), (0, 0));
}

#[test]
fn stragglers_are_lost_in_silence_and_newcomers_are_not() {
    let mut pair = Pair::new();
    let (client, server, listener) = pair.connected();
    let handover = pair.b.detach_stream(pair.now, server).unwrap();
    write(&mut pair.a, pair.now, client, b"too late").unwrap();
    pair.settle();
    assert_eq!(read(&mut pair.a, pair.now, client, 1), Err(Error::WouldBlock), "no reset came back");
    let again = pair.b.adopt(pair.now, handover).unwrap();
    pair.pass(Duration::from_secs(1));
    assert_eq!(read(&mut pair.b, pair.now, again, 64), Ok(b"too late".to_vec()), "a ring may take back what it gave");
    drop(pair.b.detach_stream(pair.now, again).unwrap());
    pair.a.close(pair.now, client, true);
    pair.pass(STEERED_WITHIN);
    let next = pair.connect(5000);
    pair.settle();
    assert_eq!(pair.a.info(next).unwrap().state, Some(State::Established), "a new connection from those addresses is one");
    assert!(pair.b.tcp_accept(listener).is_ok());
}

/// Found by the simulator (275311/loss+duplication+corruption+hidden_corruption+flap+nic_reset+cq_overrun+registration+pause+crash/8/bulk+handover): a
/// duplicate of its SYN became a second connection of the same addresses, whose resets ended the first.
#[test]
fn an_old_syn_of_what_was_given_away_opens_nothing() {
    let mut pair = Pair::new();
    let listener = pair.b.tcp_listen(SocketAddr::new(B, 80), 4, &tcp::Config::default()).unwrap();
    let (_, syn) = pair.connect_seen(5000);
    pair.settle();
    let server = pair.b.tcp_accept(listener).unwrap();
    let handover = pair.b.detach_stream(pair.now, server).unwrap();
    let again = syn.clone();
    pair.b.queues().inward.lock().unwrap().push_back(syn);
    pair.settle();
    assert_eq!(pair.b.occupied(), 1, "only the listener is left");
    drop(handover);
    // A peer that crashed may have no better number; it asks twice.
    pair.pass(Duration::from_secs(1));
    pair.b.queues().inward.lock().unwrap().push_back(again);
    pair.b.poll(pair.now);
    assert_eq!(pair.b.occupied(), 2, "somebody insists");
}

/// Gives a segment another number, and the checksum that goes with it.
fn renumber(frame: &mut [u8], seq: SeqNumber) {
    frame[38..42].copy_from_slice(&seq.0.to_be_bytes());
    frame[50..52].fill(0);
    let mut sum = Checksum::new();
    sum.add(&frame[26..34]);
    sum.add(&[0, 6, 0, u8::try_from(frame.len() - 34).unwrap()]);
    sum.add(&frame[34..]);
    let sum = sum.finish();
    frame[50..52].copy_from_slice(&sum.to_be_bytes());
}

/// As in 223544495/forge/6/handover+probes: an attacker's SYN came to the ring that had given the connection away, whose new rule did not steer yet.
#[test]
fn no_syn_ends_what_may_be_on_its_way_to_another_ring() {
    let mut pair = Pair::new();
    let (client, server, listener) = pair.connected();
    let handover = pair.b.detach_stream(pair.now, server).unwrap();
    // (What another ring hears meanwhile has this one know less and less of what the peer sends.)
    write(&mut pair.a, pair.now, client, &[7; 3000]).unwrap();
    pair.settle();
    let (_, mut forged) = Pair::new().connect_seen(5000);
    let expected = pair.b.handed_over.known.values().next().unwrap().expected;
    for beyond in [1, 3001, 1 << 30] {
        renumber(&mut forged, expected + beyond);
        pair.b.queues().inward.lock().unwrap().push_back(forged.clone());
        pair.settle();
        assert_eq!(pair.b.occupied(), 1, "the listener alone is there: {beyond}");
    }
    assert_eq!(pair.a.info(client).unwrap().state, Some(State::Established), "and its peer was not reset");
    let again = pair.b.adopt(pair.now, handover).unwrap();
    pair.pass(Duration::from_secs(1));
    assert_eq!(read(&mut pair.b, pair.now, again, 4096), Ok(vec![7; 3000]));
    // A newcomer asks again, after a second.
    drop(pair.b.detach_stream(pair.now, again).unwrap());
    pair.a.close(pair.now, client, true);
    let next = pair.connect(5000);
    pair.settle();
    assert_eq!((pair.a.info(next).unwrap().state, pair.b.occupied()), (Some(State::SynSent), 1));
    pair.pass(Duration::from_secs(2));
    assert_eq!(pair.a.info(next).unwrap().state, Some(State::Established));
    assert!(pair.b.tcp_accept(listener).is_ok());
}

#[test]
fn what_was_given_away_is_forgotten_in_the_end() {
    let mut pair = Pair::new();
    let (client, server, _) = pair.connected();
    drop(pair.b.detach_stream(pair.now, server).unwrap());
    pair.pass(REMEMBERED);
    write(&mut pair.a, pair.now, client, b"anyone?").unwrap();
    pair.settle();
    assert_eq!(read(&mut pair.a, pair.now, client, 1), Err(Error::Reset));
}

#[test]
fn what_cannot_be_passed_on_stays() {
    let mut pair = Pair::new();
    let (client, _, listener) = pair.connected();
    let early = pair.connect(6000);
    assert_eq!(pair.a.detach_stream(pair.now, early).unwrap_err(), Error::NotConnected);
    assert_eq!(pair.b.detach_stream(pair.now, listener).unwrap_err(), Error::NotSupported);
    let handover = pair.a.detach_stream(pair.now, client).unwrap();
    assert_eq!(pair.a.detach_stream(pair.now, client).unwrap_err(), Error::BadSocket);
    let mut full = Pair::new().a;
    full.config = RingConfig { flows_max: 0, ..RingConfig::default() };
    full.slots = crate::ring::slots::Slots::new(0, 0);
    let (error, handover) = full.adopt(pair.now, handover).unwrap_err();
    assert_eq!(error, Error::NoBuffers);
    assert!(pair.a.adopt(pair.now, handover).is_ok(), "it came back whole");
}

/// What B still has to read, and A, once neither ring carries their connection.
fn ended_silently(pair: &mut Pair) -> (Vec<u8>, Vec<u8>) {
    let (a, b) = (SocketAddr::new(crate::ring::tests::A, 5000), SocketAddr::new(B, 80));
    let of_a = pair.a.end_silently(pair.now, a, b).unwrap();
    let of_b = pair.b.end_silently(pair.now, b, a).unwrap();
    (of_a.owed_to(&of_b).unwrap(), of_b.owed_to(&of_a).unwrap())
}

#[test]
fn what_two_ends_leave_behind_is_all_that_was_written_and_not_read() {
    let mut pair = Pair::new();
    let (client, server, _) = pair.connected();
    write(&mut pair.a, pair.now, client, b"read and ").unwrap();
    write(&mut pair.b, pair.now, server, b"hello").unwrap();
    pair.settle();
    assert_eq!(read(&mut pair.b, pair.now, server, 5), Ok(b"read ".to_vec()));
    // Sent and not yet received, and larger than a segment.
    write(&mut pair.a, pair.now, client, &[7; 4000]).unwrap();
    write(&mut pair.b, pair.now, server, b", world").unwrap();
    pair.b.shutdown(pair.now, server, Shutdown::Write).unwrap();
    let (to_b, to_a) = ended_silently(&mut pair);
    assert_eq!((&to_b[..4], &to_b[4..]), (&b"and "[..], &[7; 4000][..]));
    assert_eq!(to_a, b"hello, world");
    assert_eq!((pair.a.occupied(), pair.b.occupied()), (0, 1), "the listener is left");
    // What was on its way finds nobody, who says nothing.
    pair.pass(Duration::from_secs(2));
    assert_eq!(write(&mut pair.a, pair.now, client, b"x"), Err(Error::BadSocket));
    assert!(pair.a.take_event().is_none());
}

#[test]
fn fins_that_were_received_count_no_bytes() {
    let mut pair = Pair::new();
    let (client, server, _) = pair.connected();
    write(&mut pair.a, pair.now, client, b"last words").unwrap();
    pair.a.close(pair.now, client, false);
    pair.settle();
    write(&mut pair.b, pair.now, server, b"too late?").unwrap();
    let (a, b) = (SocketAddr::new(crate::ring::tests::A, 5000), SocketAddr::new(B, 80));
    let of_a = pair.a.end_silently(pair.now, a, b).unwrap();
    let of_b = pair.b.end_silently(pair.now, b, a).unwrap();
    assert!(of_a.orphaned && of_a.ended && of_b.peer_ended && !of_b.ended);
    assert_eq!(of_a.owed_to(&of_b).unwrap(), b"last words");
    assert_eq!(of_b.owed_to(&of_a).unwrap(), b"too late?");
}

#[test]
fn ends_of_different_connections_do_not_fit() {
    let mut pair = Pair::new();
    let (client, _, _) = pair.connected();
    write(&mut pair.a, pair.now, client, b"abc").unwrap();
    let (a, b) = (SocketAddr::new(crate::ring::tests::A, 5000), SocketAddr::new(B, 80));
    let of_a = pair.a.end_silently(pair.now, a, b).unwrap();
    let mut of_b = pair.b.end_silently(pair.now, b, a).unwrap();
    of_b.received_to += 1_000_000;
    assert_eq!(of_a.owed_to(&of_b), None);
    assert_eq!(pair.a.end_silently(pair.now, a, b), Err(Error::BadSocket));
}

#[test]
fn a_handshake_under_way_stays() {
    let mut pair = Pair::new();
    let config = tcp::Config::default();
    let (a, b) = (SocketAddr::new(crate::ring::tests::A, 5000), SocketAddr::new(B, 80));
    let hop = NextHop::Mac(pair.b.queues().mac());
    pair.a.tcp_connect(pair.now, a, b, hop, &config).unwrap();
    assert_eq!(pair.a.end_silently(pair.now, a, b), Err(Error::NotConnected));
}

#[test]
fn what_has_ended_still_has_what_was_not_read() {
    let mut pair = Pair::new();
    let (client, server, _) = pair.connected();
    write(&mut pair.b, pair.now, server, b"the answer").unwrap();
    pair.b.close(pair.now, server, false);
    pair.settle();
    pair.a.shutdown(pair.now, client, Shutdown::Write).unwrap();
    pair.settle();
    assert_eq!(pair.a.info(client).and_then(|info| info.state), Some(tcp::State::Closed));
    let (a, b) = (SocketAddr::new(crate::ring::tests::A, 5000), SocketAddr::new(B, 80));
    let left = pair.a.end_silently(pair.now, a, b).unwrap();
    assert_eq!((left.unread.as_slice(), left.peer_ended, left.ended), (&b"the answer"[..], true, true));
}

/// Found by the simulator (78234144/duplication/10/churn+epoll+handover+shared): one that had ended could not be adopted where an old duplicate of its SYN had
/// begun another between the same addresses.
#[test]
fn what_has_ended_takes_no_addresses_with_it() {
    let mut pair = Pair::new();
    let (client, server, _) = pair.connected();
    write(&mut pair.a, pair.now, client, b"the question").unwrap();
    pair.a.close(pair.now, client, false);
    pair.settle();
    pair.b.shutdown(pair.now, server, Shutdown::Write).unwrap();
    pair.settle();
    assert_eq!(pair.b.info(server).and_then(|info| info.state), Some(tcp::State::Closed));
    let handover = pair.b.detach_stream(pair.now, server).unwrap();
    assert!(!handover.carries_rule());
    // A new connection between the same addresses, once the old one's TIME-WAIT is over.
    for _ in 0..130 {
        pair.now += Duration::from_secs(1);
        pair.settle();
    }
    let (a, b) = (SocketAddr::new(A, 5000), SocketAddr::new(B, 80));
    let hop = NextHop::Mac(pair.b.queues().mac());
    let newer = pair.a.tcp_connect(pair.now, a, b, hop, &tcp::Config::default()).unwrap();
    pair.settle();
    let rules = pair.b.queues().table().rules.len();
    while pair.b.take_event().is_some() {}
    let adopted = pair.b.adopt(pair.now, handover).expect("it needs no addresses");
    assert_eq!(pair.b.take_event().map(|event| (event.flow, event.edges.contains(Readiness::IN))), Some((adopted, true)));
    assert_eq!(pair.b.queues().table().rules.len(), rules);
    write(&mut pair.a, pair.now, newer, b"to the newer one").unwrap();
    pair.settle();
    assert_eq!(read(&mut pair.b, pair.now, adopted, 64), Ok(b"the question".to_vec()));
    assert_eq!(read(&mut pair.b, pair.now, adopted, 64), Ok(Vec::new()));
    assert_eq!(pair.a.info(newer).and_then(|info| info.state), Some(tcp::State::Established));
}

#[test]
fn what_nobody_accepted_leaves_the_listeners_queue() {
    let mut pair = Pair::new();
    let listener = pair.b.tcp_listen(SocketAddr::new(B, 80), 8, &tcp::Config::default()).unwrap();
    let (client, _) = pair.connect_seen(5000);
    pair.b.poll(pair.now);
    assert_eq!((pair.b.tcp_half_open(listener), pair.b.tcp_waiting(listener).len()), (1, 0));
    pair.settle();
    let waiting = pair.b.tcp_waiting(listener);
    assert_eq!((pair.b.tcp_half_open(listener), waiting.len()), (0, 1));
    assert!(pair.b.tcp_hop(waiting[0]).is_some() && pair.b.tcp_hop(listener).is_none());
    write(&mut pair.a, pair.now, client, b"hello").unwrap();
    pair.settle();
    let (a, b) = (SocketAddr::new(crate::ring::tests::A, 5000), SocketAddr::new(B, 80));
    let left = pair.b.end_silently(pair.now, b, a).unwrap();
    assert_eq!((left.accepted, left.unread.as_slice()), (false, &b"hello"[..]));
    assert!(pair.b.tcp_waiting(listener).is_empty());
    assert_eq!(pair.b.tcp_accept(listener), Err(Error::WouldBlock));
    // Withdrawn, nobody new finds it.
    let before = pair.b.queues().table().rules.len();
    pair.b.tcp_withdraw(listener);
    assert_eq!(pair.b.queues().table().rules.len(), before - 1);
    // And then everybody does again.
    assert_eq!([pair.b.tcp_publish(listener), pair.b.tcp_publish(listener)], [Ok(()); 2]);
    assert_eq!(pair.b.queues().table().rules.len(), before);
    pair.connect_seen(5001);
    pair.settle();
    let accepted = pair.b.tcp_accept(listener).unwrap();
    assert_eq!(pair.b.tcp_publish(accepted), Err(Error::NotSupported));
}

/// Found by the simulator (208/reordering+corruption+one_way+nic_reset+rx_exhausted+registration/7/shared): what was left of it said that its
/// stream had ended, so that the peer would have read an end instead of the reset.
#[test]
fn what_was_aborted_leaves_nothing_but_its_reset() {
    let mut pair = Pair::new();
    let (client, server, _) = pair.connected();
    let (a, b) = (SocketAddr::new(crate::ring::tests::A, 5000), SocketAddr::new(B, 80));
    pair.a.queues_mut().room = 0;
    pair.a.close(pair.now, client, true);
    assert_eq!(pair.a.end_silently(pair.now, a, b), Err(Error::BadSocket));
    pair.a.queues_mut().room = usize::MAX;
    pair.pass(Duration::from_millis(20));
    assert_eq!(read(&mut pair.b, pair.now, server, 1), Err(Error::Reset));
}

/// Found by the simulator (25/loss+duplication+reordering+burst_loss+mtu+partition+nic_reset+rx_exhausted+send_full+registration+neighbour+icmp/6/shared):
/// bytes that were still under way when it left lay in the window of a new connection between the same addresses, and were read as its own.
#[test]
fn a_connection_begins_above_the_one_that_left() {
    let mut pair = Pair::new();
    let (client, server, listener) = pair.connected();
    // Far more than the clock of initial sequence numbers has advanced by.
    for _ in 0..100 {
        write(&mut pair.a, pair.now, client, &[1; 8000]).unwrap();
        write(&mut pair.b, pair.now, server, &[2; 8000]).unwrap();
        pair.settle();
        read(&mut pair.a, pair.now, client, 8000).unwrap();
        read(&mut pair.b, pair.now, server, 8000).unwrap();
    }
    let used = |ring: &mut Ring<Cable>, id: FlowId| ring.slots.stream_at(id.index).unwrap().connection.sent_up_to();
    let before = [used(&mut pair.a, client), used(&mut pair.b, server)];
    ended_silently(&mut pair);
    pair.pass(Duration::from_millis(1));
    let again = pair.connect(5000);
    pair.settle();
    let successor = pair.b.tcp_accept(listener).expect("its SYN is none of the old connection's");
    let after = [used(&mut pair.a, again), used(&mut pair.b, successor)];
    assert!(before.iter().zip(&after).all(|(before, after)| after.gt(*before)), "{before:?}, {after:?}");
}

#[test]
fn what_failed_has_no_end_and_is_no_secret() {
    let mut pair = Pair::new();
    let (client, server, listener) = pair.connected();
    write(&mut pair.b, pair.now, server, b"so far").unwrap();
    pair.settle();
    let index = client.index;
    pair.a.slots.stream_at(index).unwrap().connection.peer_gone();
    pair.a.after_input(pair.now, index);
    let (a, b) = (SocketAddr::new(crate::ring::tests::A, 5000), SocketAddr::new(B, 80));
    let left = pair.a.end_silently(pair.now, a, b).unwrap();
    assert_eq!((left.over, left.ended, left.is_broken()), (true, false, true));
    assert_eq!((left.error, left.unread.as_slice()), (Some(Error::Reset), &b"so far"[..]));
    // Its peer knows nothing of that yet, and hears of it as ever.
    write(&mut pair.b, pair.now, server, b"and more").unwrap();
    pair.settle();
    assert_eq!(read(&mut pair.b, pair.now, server, 1), Err(Error::Reset));
    // One that both ended is over, and not broken.
    let client = pair.connect(6000);
    pair.settle();
    let server = pair.b.tcp_accept(listener).unwrap();
    pair.a.shutdown(pair.now, client, Shutdown::Write).unwrap();
    pair.settle();
    pair.b.shutdown(pair.now, server, Shutdown::Write).unwrap();
    pair.settle();
    let left = pair.b.end_silently(pair.now, b, SocketAddr::new(crate::ring::tests::A, 6000)).unwrap();
    assert_eq!((left.over, left.ended, left.peer_ended, left.is_broken()), (true, true, true, false));
}

/// As in 226111978/send_error+forge/0/idle+handover+shared/ipv6: both programs had ended their streams, and a reset came before all of one had arrived.
#[test]
fn what_was_reset_on_its_way_to_the_end_is_broken() {
    let mut pair = Pair::new();
    let (client, server, _) = pair.connected();
    pair.a.shutdown(pair.now, client, Shutdown::Write).unwrap();
    pair.settle();
    write(&mut pair.b, pair.now, server, b"the last").unwrap();
    pair.b.shutdown(pair.now, server, Shutdown::Write).unwrap();
    pair.b.slots.stream_at(server.index).unwrap().connection.peer_gone();
    pair.b.after_input(pair.now, server.index);
    let (a, b) = (SocketAddr::new(crate::ring::tests::A, 5000), SocketAddr::new(B, 80));
    let left = pair.b.end_silently(pair.now, b, a).unwrap();
    assert_eq!((left.over, left.ended, left.peer_ended, left.error), (true, true, true, Some(Error::Reset)));
    assert!(left.is_broken(), "the peer has not got it all, and nobody has it any more");
}

#[test]
fn what_was_closed_before_its_peer_had_room_for_it_is_still_owed() {
    let mut pair = Pair::new();
    let (client, server, _) = pair.connected();
    let bytes: Vec<u8> = (0..200_000u32).map(|i| (i % 251) as u8).collect();
    let mut written = 0;
    while written < bytes.len()
        && let Ok(count) = write(&mut pair.a, pair.now, client, &bytes[written..])
    {
        written += count;
        pair.settle();
    }
    assert_eq!(read(&mut pair.b, pair.now, server, 1000), Ok(bytes[..1000].to_vec()));
    pair.settle();
    assert!(pair.a.lingering_streams().is_empty());
    pair.a.shutdown(pair.now, client, Shutdown::Write).unwrap();
    pair.a.close(pair.now, client, false);
    pair.pass(Duration::from_secs(1));
    let lingering = pair.a.lingering_streams();
    let info = pair.a.info(lingering[0]).unwrap();
    assert_eq!((lingering.len(), info.state, info.send_queue > 0), (1, Some(State::FinWait1), true), "its window is closed");
    assert!(pair.a.tcp_hop(lingering[0]).is_some());
    let (a, b) = (info.local, info.remote.unwrap());
    let (of_a, of_b) = (pair.a.end_silently(pair.now, a, b).unwrap(), pair.b.end_silently(pair.now, b, a).unwrap());
    assert!(of_a.orphaned && of_a.ended && !of_b.peer_ended && !of_b.orphaned && written > 150_000);
    assert_eq!(of_a.owed_to(&of_b).unwrap(), &bytes[1000..written]);
    assert_eq!(of_b.owed_to(&of_a).unwrap(), b"");
    assert!(!pair.a.lingering() && pair.a.lingering_streams().is_empty());
}

/// A process that ends gives away what its peer has no room for. Where nobody takes it, it goes on here.
#[test]
fn what_was_closed_and_is_still_owed_can_be_given_away_and_comes_back() {
    let mut pair = Pair::new();
    let (client, server, _) = pair.connected();
    let mut written = 0;
    while let Ok(count) = write(&mut pair.a, pair.now, client, &[7; 10_000]) {
        written += count;
        pair.settle();
    }
    assert!(matches!(pair.a.detach_closed(pair.now, client), Err(Error::BadSocket)), "it is not closed");
    pair.a.close(pair.now, client, false);
    assert!(matches!(pair.a.detach_stream(pair.now, client), Err(Error::BadSocket)), "the program has it no more");
    let [lingering] = pair.a.lingering_streams()[..] else { panic!("it lingers") };
    let handover = pair.a.detach_closed(pair.now, lingering).unwrap();
    assert!(pair.a.lingering_streams().is_empty() && handover.snapshot().is_none(), "to another ring it does not go");
    let block = handover.control_block(pair.now).unwrap();
    let in_peers_hands = written - block.unacknowledged.len();
    assert_eq!((block.state, in_peers_hands > 50_000, block.unread.len()), (State::FinWait1, true, 0), "its FIN is owed as well");
    let again = pair.a.adopt(pair.now, handover).map_err(|(error, _)| error).unwrap();
    assert_eq!(pair.a.lingering_streams(), [again]);
    let mut got = 0;
    for _ in 0..1000 {
        match read(&mut pair.b, pair.now, server, 1 << 16) {
            Ok(bytes) if bytes.is_empty() => break,
            Ok(bytes) => got += bytes.len(),
            Err(_) => pair.pass(Duration::from_millis(50)),
        }
        pair.settle();
    }
    assert_eq!((got, read(&mut pair.b, pair.now, server, 1)), (written, Ok(Vec::new())));
}

#[test]
fn what_its_peer_has_all_of_and_what_was_aborted_lingers_no_more() {
    let mut pair = Pair::new();
    let (client, server, listener) = pair.connected();
    write(&mut pair.a, pair.now, client, b"last words").unwrap();
    pair.a.close(pair.now, client, false);
    assert_eq!(pair.a.lingering_streams().len(), 1);
    pair.settle();
    assert!(pair.a.lingering_streams().is_empty(), "in FIN-WAIT-2, it is the peer's turn");
    pair.b.close(pair.now, server, true);
    let client = pair.connect(6000);
    pair.settle();
    assert!(pair.b.tcp_accept(listener).is_ok());
    write(&mut pair.a, pair.now, client, b"never mind").unwrap();
    pair.a.close(pair.now, client, true);
    assert!(pair.a.lingering_streams().is_empty());
}

/// On a device with several rings there is no moment at which the connection's frames are steered nowhere.
#[test]
fn on_a_device_with_several_rings_its_rule_goes_with_it() {
    let mut pair = Pair::new();
    pair.a.output.caps.rings_max = 2;
    let (client, _, _) = pair.connected();
    let rule = pair.a.queues().rule_of(SocketAddr::new(A, 5000), Some(SocketAddr::new(B, 80))).expect("a connection has its own");
    let handover = pair.a.detach_stream(pair.now, client).unwrap();
    let is_there = |pair: &Pair| pair.a.queues().table().rules.iter().any(|(_, id)| *id == rule);
    assert!(is_there(&pair));
    let id = pair.a.adopt(pair.now, handover).map_err(|(error, _)| error).unwrap();
    assert!(is_there(&pair) && pair.a.queues().table().rules.len() == 1);
    drop(pair.a.detach_stream(pair.now, id).unwrap());
    assert!(!is_there(&pair), "nobody took it");
}

#[test]
fn where_its_rule_cannot_be_moved_it_gets_another_or_comes_back_without() {
    for is_full in [false, true] {
        let mut pair = Pair::new();
        pair.a.output.caps.rings_max = 2;
        let (client, _, _) = pair.connected();
        let handover = pair.a.detach_stream(pair.now, client).unwrap();
        pair.a.queues().table().is_fixed = true;
        pair.a.queues().table().is_full = is_full;
        let adopted = pair.a.adopt(pair.now, handover);
        assert_eq!(adopted.as_ref().err().map(|(error, _)| *error), is_full.then_some(Error::NoBuffers));
        assert_eq!(pair.a.queues().table().rules.len(), usize::from(!is_full));
        drop(adopted);
    }
}
