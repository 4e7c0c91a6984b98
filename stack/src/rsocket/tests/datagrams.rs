//! Datagram sockets.

use core::time::Duration;
use std::net::SocketAddr;

use rand_chacha::ChaCha8Rng;
use rand_core::{Rng, SeedableRng};

use super::pair::{A, B, Machine, pattern};
use crate::device::messages::{Arm, Messages};
use crate::error::Error;
use crate::flow::Readiness;
use crate::roce::packet::datagram::Datagram;
use crate::roce::qp::Mtu;
use crate::roce::{NodeConfig, Tuning};
use crate::rsocket::wire::{ServiceHeader, ServiceOp};
use crate::rsocket::{Datagrams, Options, Sizes};
use crate::time::Instant;

const NOW: Instant = Instant::from_nanos(1000);

/// Two machines with a datagram socket each, and both ways between them.
struct Pair {
    nodes: [Machine; 2],
    sockets: [Datagrams; 2],
    names: [SocketAddr; 2],
    /// What went by UDP: by whom, and which bytes.
    udp: Vec<(usize, Vec<u8>)>,
    /// How many packets went by queue pairs.
    packets: usize,
}

fn pair(names: [&str; 2], sizes: Sizes) -> Pair {
    let names = names.map(|name| name.parse::<SocketAddr>().unwrap());
    let mut nodes = names.map(|name| {
        let tuning = Tuning { datagram_mtu: Mtu::B2048, ..Tuning::default() };
        Machine::new(NodeConfig { mtu: Mtu::B2048, tuning, ..NodeConfig::new(name.ip()) }, 1)
    });
    let mut index = 0;
    let sockets = nodes.each_mut().map(|node| {
        let pd = Messages::alloc_pd(node);
        index += 1;
        Datagrams::open(node, pd, &Options::new(sizes), names[index - 1]).unwrap()
    });
    Pair { nodes, sockets, names, udp: Vec::new(), packets: 0 }
}

fn v4() -> Pair {
    pair(["10.9.0.1:1000", "10.9.0.2:2000"], Sizes::default())
}

impl Pair {
    fn send(&mut self, from: usize, bytes: &[u8]) -> Result<usize, Error> {
        let to = self.names[1 - from];
        self.sockets[from].send_to(NOW, &mut self.nodes[from], bytes, to)
    }

    fn recv(&mut self, end: usize) -> Option<(Vec<u8>, SocketAddr)> {
        let mut some = vec![0; 5000];
        let (len, from) = self.sockets[end].recv_from(NOW, &mut self.nodes[end], &mut some, false).ok()?;
        some.truncate(len);
        Some((some, from))
    }

    /// Carries all that there is to carry.
    fn run(&mut self) {
        let mut out = [0; Machine::PACKET_MAX];
        loop {
            let mut quiet = true;
            for from in [A, B] {
                while let Some((to, bytes)) = self.sockets[from].poll_udp() {
                    assert_eq!(to, self.names[1 - from]);
                    self.udp.push((from, bytes.clone()));
                    self.sockets[1 - from].on_udp(NOW, &mut self.nodes[1 - from], self.names[from], &bytes);
                    quiet = false;
                }
                while let Some(len) = self.nodes[from].poll_transmit(NOW, &mut out) {
                    self.packets += 1;
                    self.nodes[1 - from].on_packet(NOW, &out[..len]);
                    quiet = false;
                }
                self.sockets[from].poll(NOW, &mut self.nodes[from]);
            }
            if quiet {
                return;
            }
        }
    }
}

#[test]
fn the_first_goes_by_udp_and_the_others_by_queue_pairs() {
    for names in [["10.9.0.1:1000", "10.9.0.2:2000"], ["[fd00::1]:1000", "[fd00::2]:2000"]] {
        let mut pair = pair(names, Sizes::default());
        assert_eq!(pair.send(A, b"first"), Ok(5));
        assert_eq!(pair.send(A, b"second"), Ok(6), "B's queue pair is not known yet");
        pair.run();
        let ops: Vec<_> = pair.udp.iter().map(|(from, bytes)| (*from, ServiceHeader::parse(bytes).unwrap().0.op)).collect();
        assert_eq!(ops, [(A, ServiceOp::Data), (A, ServiceOp::Data), (B, ServiceOp::Control), (B, ServiceOp::Control)]);
        assert_eq!(pair.packets, 0);
        for expected in ["first", "second"] {
            assert_eq!(pair.recv(B), Some((expected.into(), pair.names[A])));
        }
        for (from, len) in [(A, 5), (B, 0), (A, 64), (B, 500), (A, 1500)] {
            let bytes = pattern(len as u64, 0, len);
            assert_eq!(pair.send(from, &bytes), Ok(len));
            pair.run();
            assert_eq!(pair.recv(1 - from), Some((bytes, pair.names[from])));
        }
        assert_eq!((pair.udp.len(), pair.packets), (4, 5));
    }
}

#[test]
fn a_message_is_its_header_and_its_bytes() {
    let mut pair = v4();
    for _ in 0..2 {
        pair.send(A, b"x").unwrap();
        // The second one's packet is looked at.
        if pair.udp.is_empty() {
            pair.run();
        }
    }
    let mut out = [0; Machine::PACKET_MAX];
    let len = pair.nodes[A].poll_transmit(NOW, &mut out).unwrap();
    let packet = Datagram::parse(&out[..len]).unwrap().packet;
    assert_eq!(packet.payload, [4, 8, 3, 232, 10, 9, 0, 1, b'x']);
}

#[test]
fn a_datagram_is_read_whole_or_cut() {
    let mut pair = v4();
    for _ in 0..2 {
        pair.send(A, b"long one").unwrap();
        pair.run();
    }
    let mut some = [0; 4];
    for peek in [true, false, false] {
        let got = pair.sockets[B].recv_from(NOW, &mut pair.nodes[B], &mut some, peek);
        assert_eq!((got, &some), (Ok((4, pair.names[A])), b"long"), "by UDP, and by a queue pair");
    }
    assert_eq!(pair.recv(B), None);
}

#[test]
fn a_peer_that_was_silent_for_long_is_asked_again() {
    let mut pair = v4();
    pair.sockets[A].set_doubts(true);
    pair.send(A, b"first").unwrap();
    pair.run();
    // Whether one goes by UDP that long after. (It gets lost.)
    let asks = |pair: &mut Pair, after_ms: u64| {
        let (now, to) = (NOW + Duration::from_millis(after_ms), pair.names[B]);
        pair.sockets[A].send_to(now, &mut pair.nodes[A], b"x", to).unwrap();
        pair.sockets[A].poll_udp().is_some()
    };
    assert_eq!([900, 1000, 1050, 1099].map(|at| asks(&mut pair, at)), [false, true, false, false], "one asks");
    assert_eq!([1100, 1101, 1102].map(|at| asks(&mut pair, at)), [true; 3], "without an answer, all do");
    let (late, to) = (NOW + Duration::from_millis(1103), pair.names[B]);
    pair.sockets[A].send_to(late, &mut pair.nodes[A], b"asks", to).unwrap();
    pair.run();
    assert_eq!([900, 1000].map(|at| asks(&mut pair, at)), [false, true], "an answer dispels doubts");
    // And so does a datagram of the peer's, by its queue pair.
    pair.send(B, b"here").unwrap();
    let by_udp = pair.udp.len();
    pair.run();
    assert_eq!((pair.udp.len(), asks(&mut pair, 900), asks(&mut pair, 1050)), (by_udp, false, true));
    // Where somebody tells of peers that are gone, there are none.
    pair.sockets[A].set_doubts(false);
    assert!(!asks(&mut pair, 1_000_000));
}

#[test]
fn what_cannot_go_is_refused() {
    let mut pair = v4();
    assert_eq!(pair.send(A, &[0; 2041]), Err(Error::MessageTooLong));
    assert_eq!(pair.send(A, &[0; 2033]), Err(Error::MessageTooLong), "by UDP there is less room");
    assert_eq!(pair.sockets[A].send(NOW, &mut pair.nodes[A], b"x"), Err(Error::DestinationRequired));
    let nowhere = "[::1]:5".parse().unwrap();
    assert_eq!(pair.sockets[A].send_to(NOW, &mut pair.nodes[A], b"x", nowhere), Err(Error::HostUnreachable));
    pair.send(A, b"x").unwrap();
    pair.run();
    assert_eq!(pair.send(A, &[0; 2040]), Ok(2040));
    pair.run();
    assert_eq!(pair.recv(B).unwrap().0.len(), 1);
    assert_eq!(pair.recv(B).unwrap().0.len(), 2040);
}

#[test]
fn queues_are_bounded() {
    let sizes = Sizes { send_buffer: 8 * 2048, recv_buffer: 4 * 2048, ..Sizes::default() };
    let mut pair = pair(["10.9.0.1:1000", "10.9.0.2:2000"], sizes);
    pair.send(A, b"x").unwrap();
    pair.run();
    assert!(pair.recv(B).is_some());
    for round in 0..12u8 {
        assert_eq!(pair.send(A, &[round; 100]).is_ok(), round < 8, "{round}");
    }
    assert_eq!(pair.sockets[A].readiness(), Readiness::empty());
    pair.run();
    assert_eq!(pair.sockets[A].readiness(), Readiness::OUT);
    let got: Vec<u8> = core::iter::from_fn(|| pair.recv(B)).map(|(bytes, _)| bytes[0]).collect();
    assert_eq!(got, [0, 1, 2, 3], "the rest found no place, and is lost");
    // Places come back.
    for round in 0..20 {
        assert_eq!(pair.send(A, &[round; 100]), Ok(100));
        pair.run();
        assert_eq!(pair.recv(B).unwrap().0, [round; 100]);
    }
}

#[test]
fn a_connected_socket_only_hears_its_peer() {
    let mut pair = v4();
    let stranger = "10.9.0.1:7".parse().unwrap();
    pair.sockets[B].connect(Some(stranger));
    for _ in 0..3 {
        pair.send(A, b"x").unwrap();
        pair.run();
    }
    assert_eq!(pair.recv(B), None);
    pair.sockets[B].connect(None);
    pair.send(A, b"y").unwrap();
    pair.run();
    assert_eq!(pair.recv(B).unwrap().0, b"y");
}

#[test]
fn a_completion_wakes_who_asked() {
    let mut pair = v4();
    pair.send(A, b"x").unwrap();
    pair.run();
    let cq = pair.sockets[B].cqs().next().unwrap();
    pair.nodes[B].arm_cq(cq, Arm::Next);
    assert!(!pair.nodes[B].take_cq_event(cq));
    pair.send(A, b"x").unwrap();
    pair.run();
    assert!(pair.nodes[B].take_cq_event(cq));
}

#[test]
fn strangers_may_send_anything() {
    let mut dice = ChaCha8Rng::seed_from_u64(1);
    let mut pair = v4();
    pair.send(A, b"x").unwrap();
    pair.run();
    assert!(pair.recv(B).is_some());
    let from = "10.9.0.1:1000".parse().unwrap();
    for _ in 0..3000 {
        let mut bytes = ServiceHeader { op: ServiceOp::Data, qpn: dice.next_u32(), address: [1, 2, 3, 4].into() }.emit().to_vec();
        bytes.truncate(dice.next_u32() as usize % 20);
        bytes.extend((0..dice.next_u32() % 30).map(|i| i as u8));
        if dice.next_u32().is_multiple_of(2) {
            let at = dice.next_u32() as usize % bytes.len().max(1);
            bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= 1 << (dice.next_u32() % 8));
        }
        pair.sockets[B].on_udp(NOW, &mut pair.nodes[B], from, &bytes);
        while pair.sockets[B].poll_udp().is_some() {}
        // What it sends goes nowhere, or to somebody.
        let _ = pair.send(B, b"y");
        pair.run();
        let _ = pair.recv(B);
    }
    // Who says its queue pair again is heard of again.
    let right = pair.udp.iter().find(|(from, _)| *from == A).unwrap().1.clone();
    while pair.recv(A).is_some() {}
    pair.sockets[B].on_udp(NOW, &mut pair.nodes[B], from, &right);
    assert_eq!(pair.send(B, b"z"), Ok(1));
    pair.run();
    assert_eq!(pair.recv(A).unwrap().0, b"z");
}

#[test]
fn a_peer_that_was_forgotten_is_asked_anew() {
    let mut pair = v4();
    assert_eq!(pair.sockets[B].next_len(), None);
    for (sent, by_udp) in [("one", 2), ("three", 2)] {
        assert_eq!(pair.send(A, sent.as_bytes()), Ok(sent.len()));
        pair.run();
        assert_eq!((pair.udp.len(), pair.sockets[B].next_len()), (by_udp, Some(sent.len())));
        assert!(pair.recv(B).is_some());
    }
    let name = pair.names[B];
    pair.sockets[A].forget(name);
    assert_eq!(pair.send(A, b"again"), Ok(5));
    pair.run();
    assert_eq!(pair.udp.len(), 4, "by UDP, and its answer");
}
