//! What nobody has decided about is not there for the reader, and counts all the same.

use core::time::Duration;
use std::collections::VecDeque;
use std::io::{IoSlice, IoSliceMut};
use std::net::{IpAddr, SocketAddr};

use rand_chacha::ChaCha8Rng;
use rand_core::{Rng, SeedableRng};

use super::super::tests::{A, B, Bytes, Pair, read, write};
use super::super::{Decision, Error, FlowId, Lent, LentPieces, NextHop, Readiness, RecvFlags, UdpOptions};
use crate::device::RxBuffer;

fn bytes(pieces: &LentPieces<Bytes>) -> Vec<u8> {
    let copy = |piece: &Lent<Bytes>| match piece {
        Lent::Copied(bytes) => bytes.clone(),
        Lent::Buffer(buffer) => {
            let mut out = vec![0; buffer.len()];
            buffer.copy_to(0, &mut out);
            out
        }
    };
    pieces.iter().flat_map(copy).collect()
}

fn udp(pair: &mut Pair) -> (FlowId, FlowId) {
    let a = pair.a.udp_open(SocketAddr::new(A, 1000), &UdpOptions::default()).unwrap();
    let options = UdpOptions { rcvbuf: 4096, ..UdpOptions::default() };
    let b = pair.b.udp_open(SocketAddr::new(IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED), 2000), &options).unwrap();
    pair.b.set_recv_filter(b, true).unwrap();
    (a, b)
}

fn send(pair: &mut Pair, from: FlowId, bytes: &[u8]) {
    let to = Some((SocketAddr::new(B, 2000), NextHop::Neighbour(B)));
    pair.a.udp_send(pair.now, from, &[IoSlice::new(bytes)], A, to).unwrap();
    pair.settle();
}

fn receive(pair: &mut Pair, from: FlowId) -> Result<Vec<u8>, Error> {
    let mut buffer = [0; 2000];
    let got = pair.b.udp_recv(from, &mut [IoSliceMut::new(&mut buffer)], RecvFlags::empty())?;
    Ok(buffer[..got.copied].to_vec())
}

/// The edges that the ring has to tell of a socket.
fn edges(pair: &mut Pair, of: FlowId) -> Readiness {
    let mut edges = Readiness::empty();
    while let Some(event) = pair.b.take_event() {
        if event.flow == of {
            edges |= event.edges;
        }
    }
    edges
}

#[test]
fn a_datagram_is_read_once_it_is_admitted_and_never_if_it_is_dropped_or_held() {
    for lends in [false, true] {
        let mut pair = Pair::new();
        if lends {
            pair.b.lend_from_now_on();
        }
        let (a, b) = udp(&mut pair);
        let long = vec![7; 1400];
        for sent in [&b"drop"[..], b"admit", b"", &long, b"hold", b"last"] {
            send(&mut pair, a, sent);
        }
        assert!(edges(&mut pair, b).contains(Readiness::IN), "somebody is to decide");
        let mut held = Vec::new();
        for decision in [Decision::Drop, Decision::Admit, Decision::Admit, Decision::Admit, Decision::Hold] {
            assert_eq!(
                pair.b.readiness(b).contains(Readiness::IN),
                !matches!(decision, Decision::Drop) && pair.b.info(b).unwrap().recv_queue > 0
            );
            let candidate = pair.b.candidate(b).unwrap();
            assert_eq!((candidate.from, candidate.to), (SocketAddr::new(A, 1000), SocketAddr::new(B, 2000)));
            held.push(candidate.pieces);
            pair.b.decide(pair.now, b, decision).unwrap();
        }
        assert_eq!(bytes(held.last().unwrap()), b"hold");
        for expected in [&b"admit"[..], b"", &long] {
            assert_eq!(receive(&mut pair, b).unwrap(), expected);
        }
        assert_eq!(receive(&mut pair, b), Err(Error::WouldBlock), "the last one is not decided about");
        assert_eq!(pair.b.udp_lend(b).unwrap_err(), Error::WouldBlock);
        pair.b.set_recv_filter(b, false).unwrap();
        assert_eq!(receive(&mut pair, b).unwrap(), b"last");
        pair.b.give_back(pair.now, b, 4);
    }
}

#[test]
fn what_is_undecided_or_held_fills_a_datagram_sockets_buffer_and_what_is_dropped_makes_room() {
    let mut pair = Pair::new();
    let (a, b) = udp(&mut pair);
    for _ in 0..20 {
        send(&mut pair, a, &[1; 200]);
    }
    let mut decided = 0;
    while pair.b.decide(pair.now, b, if decided % 2 == 0 { Decision::Drop } else { Decision::Hold }).is_ok() {
        decided += 1;
    }
    // 200 bytes and 256 of overhead each, in 4096.
    assert_eq!((decided, pair.b.info(b).unwrap().counters.rx_drops), (8, 12));
    for _ in 0..20 {
        send(&mut pair, a, &[1; 200]);
    }
    let room = core::iter::from_fn(|| pair.b.decide(pair.now, b, Decision::Drop).ok()).count();
    assert_eq!(room, 4, "four are held");
    (0..4).for_each(|_| pair.b.give_back(pair.now, b, 200));
    for _ in 0..20 {
        send(&mut pair, a, &[1; 200]);
    }
    assert_eq!(core::iter::from_fn(|| pair.b.decide(pair.now, b, Decision::Admit).ok()).count(), 8);
}

#[test]
fn a_dropped_datagram_makes_no_edge_and_an_admitted_one_does() {
    let mut pair = Pair::new();
    let (a, b) = udp(&mut pair);
    for sent in [b"one", b"two"] {
        send(&mut pair, a, sent);
    }
    edges(&mut pair, b);
    pair.b.decide(pair.now, b, Decision::Admit).unwrap();
    assert_eq!(edges(&mut pair, b), Readiness::IN);
    pair.b.decide(pair.now, b, Decision::Drop).unwrap();
    assert_eq!(edges(&mut pair, b), Readiness::empty());
}

#[test]
fn a_stream_is_read_as_it_was_admitted_and_ends_behind_the_last_decision() {
    let mut pair = Pair::new();
    let (client, server, _) = pair.connected();
    write(&mut pair.a, pair.now, client, b"before ").unwrap();
    pair.settle();
    pair.b.set_recv_filter(server, true).unwrap();
    let long = vec![9; 3000];
    for part in [&b"drop"[..], b"keep ", b"hold", &long] {
        write(&mut pair.a, pair.now, client, part).unwrap();
        pair.settle();
        pair.pass(Duration::from_millis(300));
    }
    pair.a.close(pair.now, client, false);
    pair.settle();
    assert_eq!(read(&mut pair.b, pair.now, server, 99).unwrap(), b"before ");
    assert_eq!(read(&mut pair.b, pair.now, server, 99), Err(Error::WouldBlock), "an end that nobody may see yet");
    assert!(pair.b.readiness(server).contains(Readiness::RDHUP) && !pair.b.readiness(server).contains(Readiness::IN));
    for (shown, decision) in [(&b"drop"[..], Decision::Drop), (b"keep ", Decision::Admit), (b"hold", Decision::Hold)] {
        let candidate = pair.b.candidate(server).unwrap();
        assert_eq!((bytes(&candidate.pieces), candidate.to.ip()), (shown.to_vec(), B));
        assert_eq!(pair.b.decide(pair.now, server, decision), Ok(shown.len()));
    }
    assert_eq!(read(&mut pair.b, pair.now, server, 99).unwrap(), b"keep ");
    assert_eq!(read(&mut pair.b, pair.now, server, 99), Err(Error::WouldBlock));
    edges(&mut pair, server);
    let mut rest = 0;
    while let Ok(len) = pair.b.decide(pair.now, server, Decision::Drop) {
        rest += len;
    }
    assert_eq!(rest, 3000);
    assert_eq!(edges(&mut pair, server), Readiness::IN, "now the end is there to be read");
    assert_eq!(read(&mut pair.b, pair.now, server, 99).unwrap(), b"");
}

#[test]
fn a_window_stays_shut_while_nobody_decides_and_opens_when_bytes_are_dropped() {
    let mut pair = Pair::new();
    let (client, server, _) = pair.connected();
    pair.b.set_recv_filter(server, true).unwrap();
    let chunk = vec![3; 65_536];
    let mut sent = 0;
    for _ in 0..200 {
        sent += write(&mut pair.a, pair.now, client, &chunk).unwrap_or(0);
        pair.pass(Duration::from_millis(50));
    }
    assert!(sent < 200 * chunk.len(), "the sender is held up");
    let drain = |pair: &mut Pair| -> usize {
        let mut dropped = 0;
        pair.settle();
        loop {
            let before = dropped;
            while let Ok(len) = pair.b.decide(pair.now, server, Decision::Drop) {
                dropped += len;
            }
            pair.pass(Duration::from_millis(500));
            if dropped == before {
                return dropped;
            }
        }
    };
    assert_eq!(drain(&mut pair), sent, "each byte once");
    let more = write(&mut pair.a, pair.now, client, &chunk).unwrap();
    assert_eq!(drain(&mut pair), more);
}

#[test]
fn an_idle_time_forgets_nothing_that_waits_and_the_end_of_the_filter_admits_it() {
    let mut pair = Pair::new();
    let (client, server, _) = pair.connected();
    pair.b.set_recv_filter(server, true).unwrap();
    write(&mut pair.a, pair.now, client, b"wait").unwrap();
    pair.settle();
    pair.pass(Duration::from_secs(30));
    assert_eq!(read(&mut pair.b, pair.now, server, 99), Err(Error::WouldBlock));
    // More than was lent, which is nothing.
    pair.b.give_back(pair.now, server, usize::MAX);
    edges(&mut pair, server);
    pair.b.set_recv_filter(server, false).unwrap();
    assert_eq!(edges(&mut pair, server), Readiness::IN);
    assert_eq!(read(&mut pair.b, pair.now, server, 99).unwrap(), b"wait");
    write(&mut pair.a, pair.now, client, b"more").unwrap();
    pair.settle();
    assert_eq!(read(&mut pair.b, pair.now, server, 99).unwrap(), b"more");
}

#[test]
fn what_comes_out_of_order_is_shown_in_order() {
    let mut pair = Pair::new();
    let (client, server, _) = pair.connected();
    pair.b.set_recv_filter(server, true).unwrap();
    for part in [b"one", b"two", b"six"] {
        write(&mut pair.a, pair.now, client, part).unwrap();
    }
    let wire = pair.b.queues().inward.clone();
    wire.lock().unwrap().make_contiguous().reverse();
    pair.settle();
    pair.pass(Duration::from_millis(500));
    let mut shown = Vec::new();
    while let Ok(candidate) = pair.b.candidate(server) {
        shown.extend(bytes(&candidate.pieces));
        pair.b.decide(pair.now, server, Decision::Drop).unwrap();
    }
    assert_eq!(shown, b"onetwosix");
}

#[test]
fn closing_with_something_undecided_resets_and_a_move_takes_it_along() {
    let mut pair = Pair::new();
    let (client, server, _) = pair.connected();
    pair.b.set_recv_filter(server, true).unwrap();
    write(&mut pair.a, pair.now, client, b"unseen").unwrap();
    pair.settle();
    pair.b.close(pair.now, server, false);
    pair.settle();
    assert_eq!(read(&mut pair.a, pair.now, client, 1), Err(Error::Reset));

    let mut pair = Pair::new();
    let (client, server, _) = pair.connected();
    write(&mut pair.a, pair.now, client, b"read ").unwrap();
    pair.settle();
    pair.b.set_recv_filter(server, true).unwrap();
    write(&mut pair.a, pair.now, client, b"unseen").unwrap();
    pair.settle();
    let info = pair.b.info(server).unwrap();
    let undelivered = pair.b.end_silently(pair.now, info.local, info.remote.unwrap()).unwrap();
    assert_eq!(undelivered.unread, b"read unseen");
}

#[test]
fn a_socket_that_has_no_filter_or_is_gone_has_nothing_to_decide() {
    let mut pair = Pair::new();
    let (_, server, listener) = pair.connected();
    assert_eq!(pair.b.candidate(server).unwrap_err(), Error::WouldBlock);
    assert_eq!(pair.b.decide(pair.now, server, Decision::Admit), Err(Error::WouldBlock));
    assert_eq!(pair.b.set_recv_filter(listener, true), Err(Error::NotSupported));
    pair.b.set_recv_filter(server, true).unwrap();
    pair.b.close(pair.now, server, true);
    assert!(pair.b.candidate(server).is_err() && !pair.b.has_candidate(server));
    assert!(pair.b.set_recv_filter(server, true).is_err());
}

#[test]
fn a_reader_gets_what_was_admitted_and_nothing_else_whatever_the_network_loses() {
    let sent: Vec<u8> = (0..150_000_u32).map(|n| (n % 251) as u8).collect();
    for seed in 0..30 {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let mut below = |limit: usize| random.next_u32() as usize % limit;
        let mut pair = Pair::new();
        let (client, server, _) = pair.connected();
        pair.b.set_recv_filter(server, true).unwrap();
        let (mut written, mut shown, mut admitted, mut held) = (0, 0, VecDeque::new(), VecDeque::new());
        while shown < sent.len() || !admitted.is_empty() {
            let end = sent.len().min(written + below(8000));
            written += write(&mut pair.a, pair.now, client, &sent[written..end]).unwrap_or(0);
            let wire = pair.b.queues().inward.clone();
            wire.lock().unwrap().retain(|_| below(20) != 0);
            pair.pass(Duration::from_millis(below(40) as u64));
            for _ in 0..below(8) {
                let Ok(candidate) = pair.b.candidate(server) else { break };
                let bytes = bytes(&candidate.pieces);
                assert_eq!(bytes, sent[shown..shown + bytes.len()], "seed {seed}: in order, and each once");
                let decision = [Decision::Drop, Decision::Admit, Decision::Admit, Decision::Hold][below(4)];
                assert_eq!(pair.b.decide(pair.now, server, decision), Ok(bytes.len()));
                shown += bytes.len();
                match decision {
                    Decision::Drop => {}
                    Decision::Admit => admitted.extend(bytes),
                    Decision::Hold => held.push_back(bytes.len()),
                }
            }
            if let Ok(read) = read(&mut pair.b, pair.now, server, 1 + below(4000)) {
                assert_eq!(read, admitted.drain(..read.len()).collect::<Vec<_>>(), "seed {seed}");
            } else {
                assert!(admitted.is_empty(), "seed {seed}: what was admitted is there");
            }
            if below(3) == 0 {
                held.pop_front().into_iter().for_each(|len| pair.b.give_back(pair.now, server, len));
            }
        }
        pair.a.close(pair.now, client, false);
        pair.pass(Duration::from_secs(5));
        assert_eq!(read(&mut pair.b, pair.now, server, 1).unwrap(), b"", "seed {seed}");
    }
}

#[test]
fn the_reader_gets_what_was_put_in_the_place_of_what_was_shown() {
    let inverted = |buffer: &mut Bytes| {
        let mut bytes = vec![0; buffer.len()];
        buffer.copy_to(0, &mut bytes);
        *buffer = Bytes::of(bytes.iter().map(|byte| !byte).collect());
    };
    let mut pair = Pair::new();
    pair.b.lend_from_now_on();
    let (a, b) = udp(&mut pair);
    pair.b.change_candidate(b, |_| panic!("there is none"));
    for sent in [vec![1; 30], vec![2; 1400], vec![3; 5]] {
        send(&mut pair, a, &sent);
        pair.b.change_candidate(b, inverted);
        assert!(bytes(&pair.b.candidate(b).unwrap().pieces).iter().all(|byte| *byte == !sent[0]));
        pair.b.decide(pair.now, b, Decision::Admit).unwrap();
        assert_eq!(receive(&mut pair, b).unwrap(), vec![!sent[0]; sent.len()]);
    }
    let (client, server, _) = pair.connected();
    pair.b.set_recv_filter(server, true).unwrap();
    write(&mut pair.a, pair.now, client, &[4; 900]).unwrap();
    pair.settle();
    while pair.b.has_candidate(server) {
        pair.b.change_candidate(server, inverted);
        pair.b.decide(pair.now, server, Decision::Admit).unwrap();
    }
    assert_eq!(read(&mut pair.b, pair.now, server, 9999).unwrap(), vec![!4; 900]);
}
