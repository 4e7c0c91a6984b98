//! The short way of most messages: that they go it, that what has to be looked at more closely does not, and that nobody can tell the two ways apart.

use proptest::prelude::*;
use rand_chacha::ChaCha8Rng;
use rand_core::{Rng, SeedableRng};

use super::pair::Side::{A, B};
use super::pair::{BASE, Options, Pair, REGION, Side, US, path, pattern, psn};
use crate::roce::hca::{Dropped, Predicted};
use crate::roce::memory::Access;
use crate::roce::packet::datagram::{Addresses, Crc, Datagram, OVERHEAD_MAX};
use crate::roce::packet::write::WriteOnly;
use crate::roce::packet::{Body, Header, Packet, Reth};
use crate::roce::psn::Psn;
use crate::roce::qp::{Events, Modify, State};
use crate::roce::work::{Completion, Data, SendOp, SendWr};

const LEN: usize = 40;

/// As shared memory has it: IPv6, and bytes that are vouched for.
fn options() -> Options {
    let mut options = Options { v6: true, ..Options::default() };
    options.tuning.bytes_are_vouched = true;
    options.sending.timeout = 20;
    options
}

/// Both ways: the short one where it can be, and the long one always.
fn both(options: &Options) -> [Pair; 2] {
    let mut at_length = *options;
    at_length.tuning.at_length = true;
    [options, &at_length].map(|options| {
        let mut pair = Pair::new(options);
        for side in [A, B] {
            let data = pattern(side as u32, REGION);
            pair.end(side).bytes(0, REGION).copy_from_slice(&data);
        }
        pair
    })
}

fn message(pair: &mut Pair, side: Side, id: u64, bytes: &[u8]) {
    let op = pair.write(side, 5000, Some(id as u32));
    pair.post(side, &SendWr::new(id, op, Data::Inline(bytes))).unwrap();
}

fn predicted(pair: &mut Pair, side: Side) -> (u64, u64) {
    let Predicted { received, sent } = pair.end(side).hca.predicted();
    (received, sent)
}

/// All that can be seen of an end, and what it has sent since the last time.
type Seen = (Vec<Completion>, State, Events, Option<usize>, Dropped, Vec<u8>, Vec<Vec<u8>>);

fn seen(pair: &mut Pair, side: Side) -> Seen {
    let sent = pair.sent(side).into_iter().map(|packet| packet.bytes).collect();
    let end = pair.end(side);
    let (qp, completions) = (end.qp, end.poll());
    let events = end.hca.take_qp_events(qp);
    (completions, end.state(), events, end.hca.posted_receives(qp), end.hca.dropped(), end.bytes(0, REGION).to_vec(), sent)
}

#[test]
fn messages_go_the_short_way_in_both_directions() {
    for is_vouched in [true, false] {
        let mut options = options();
        options.tuning.bytes_are_vouched = is_vouched;
        let mut pair = Pair::new(&options);
        for id in 0..20 {
            pair.post_recv(A, id, 0, 0);
            pair.post_recv(B, id, 0, 0);
        }
        for id in 0..20 {
            message(&mut pair, A, id, &[id as u8; 60]);
            message(&mut pair, B, id, &[]);
            pair.settle();
            assert_eq!(pair.end(B).bytes(4999, 62)[1..61], [id as u8; 60]);
            let of_b = pair.end(B).poll();
            assert!(of_b.iter().any(|completion| (completion.immediate, completion.len) == (Some(id as u32), 60)), "{of_b:?}");
            assert_eq!(pair.successes(A).len(), 2);
        }
        assert_eq!((predicted(&mut pair, A), predicted(&mut pair, B)), ((20, 20), (20, 20)));
    }
}

#[test]
fn what_is_sent_goes_the_long_way_unless_it_is_just_that() {
    let mut pair = Pair::new(&options());
    (0..30).for_each(|id| pair.post_recv(B, id, 0, 100));
    let op = pair.write(A, 5000, Some(1));
    let plain = pair.write(A, 5000, None);
    let gathered = [pair.end(A).sge(0, 10)];
    let wr = |op, data| SendWr::new(1, op, data);
    let read = pair.read(A, 0);
    let requests = [
        wr(op, Data::Gather(&gathered)),
        wr(plain, Data::Inline(&[1; 10])),
        wr(SendOp::Send { immediate: Some(1) }, Data::Inline(&[1; 10])),
        SendWr { solicited: true, ..wr(op, Data::Inline(&[1; 10])) },
        wr(read, Data::Gather(&gathered)),
    ];
    for request in &requests {
        pair.post(A, request).unwrap();
        pair.settle();
        assert_eq!((pair.successes(A), predicted(&mut pair, A).1), (vec![1], 0), "{request:?}");
    }
    // Behind a read that is not answered; and again, once it got lost.
    pair.lose_nth(&[1], |packet| packet.from == B);
    pair.post(A, &requests[4]).unwrap();
    message(&mut pair, A, 2, b"behind");
    pair.settle();
    assert_eq!((pair.successes(A), predicted(&mut pair, A).1), (vec![1, 2], 0));
    pair.lose_nth(&[1], |packet| packet.from == A);
    message(&mut pair, A, 3, b"again");
    pair.settle();
    assert_eq!((pair.successes(A), predicted(&mut pair, A).1), (vec![3], 1), "the first time alone");
    pair.modify(A, &Modify::Sqd).unwrap();
    message(&mut pair, A, 4, b"not now");
    pair.run(US * 100);
    assert_eq!((pair.successes(A), predicted(&mut pair, A).1), (vec![], 1));
    pair.modify(A, &Modify::Resume).unwrap();
    // (What is posted next has it tried.)
    message(&mut pair, A, 5, b"now");
    pair.settle();
    assert_eq!((pair.successes(A), predicted(&mut pair, A).1), (vec![4, 5], 3));
}

#[test]
fn no_more_is_on_its_way_than_the_window_holds() {
    let mut options = options();
    options.tuning.window = 5;
    for mut pair in both(&options) {
        (0..30).for_each(|id| pair.post_recv(B, id, 0, 0));
        (0..30).for_each(|id| message(&mut pair, A, id, b"one of many"));
        pair.transmit();
        assert_eq!(pair.sent(A).len(), 5);
        pair.settle();
        assert_eq!(pair.successes(A).len(), 30);
    }
}

/// A message of A's, and how its headers can be changed.
fn forged(change: impl FnOnce(&mut Header, &mut Reth)) -> Vec<u8> {
    let mut pair = Pair::new(&options());
    let mut reth = Reth { address: BASE + 5000, rkey: pair.end(B).key, len: LEN as u32 };
    let mut header = Header { ack_request: true, ..Header::new(Body::WriteOnly(reth, Some(7)), pair.end(B).qp, psn(A)) };
    change(&mut header, &mut reth);
    if let Body::WriteOnly(_, immediate) = header.body {
        header.body = Body::WriteOnly(reth, immediate);
    }
    emitted(&header, &[0xaa; LEN])
}

fn emitted(header: &Header, payload: &[u8]) -> Vec<u8> {
    let datagram = Datagram { path: path(A, true), id: 0, packet: Packet { header: *header, payload }, ip_header: &[] };
    let mut out = vec![0; OVERHEAD_MAX + payload.len()];
    let len = datagram.emit(&mut out);
    out.truncate(len);
    out
}

/// Delivers a packet to B, which has as many receives, both ways; how many of them went the short way, and B's state.
fn delivered(packet: &[u8], receives: u64, prepare: impl Fn(&mut Pair)) -> (u64, State) {
    let [short, long] = both(&options()).map(|mut pair| {
        (0..receives).for_each(|id| pair.post_recv(B, id, 0, 0));
        prepare(&mut pair);
        let _ = seen(&mut pair, B);
        let before = predicted(&mut pair, B).0;
        pair.deliver(B, packet);
        pair.run(US);
        (seen(&mut pair, B), predicted(&mut pair, B).0 - before)
    });
    assert_eq!(short.0, long.0, "both ways lead to the same");
    assert_eq!(long.1, 0);
    (short.1, short.0.1)
}

#[test]
fn what_must_be_looked_at_goes_the_long_way() {
    let good = || forged(|_, _| {});
    let first = psn(A);
    assert_eq!(delivered(&good(), 1, |_| {}), (1, State::Rts));
    let long = |packet: &[u8], what: &str| assert_eq!(delivered(packet, 1, |_| {}), (0, State::Rts), "{what}");
    long(&forged(|header, _| header.psn = first + 1), "one that overtook another");
    long(&forged(|header, _| header.psn = first - 1), "a duplicate");
    long(&forged(|header, _| header.solicited = true), "a solicited event");
    long(&forged(|header, _| header.pkey = 0x8001), "another partition");
    long(&forged(|header, _| header.dest_qp += 1), "no queue pair");
    long(&forged(|header, _| header.fecn = true), "a mark");
    long(&forged(|header, _| header.unreliable = true), "an unreliable connection's");
    long(&forged(|header, reth| header.body = Body::WriteOnly(*reth, None)), "no immediate data");
    for (at, what) in
        [(0, "another version"), (6, "another protocol"), (9, "another sender"), (39, "another receiver"), (43, "another port")]
    {
        let mut packet = good();
        packet[at] ^= 0x10;
        long(&packet, what);
    }
    let mut packet = good();
    packet[49] |= 1;
    long(&packet, "another version of the transport");
    long(&good()[..good().len() - 4], "a packet that is cut");
    long(&[good(), vec![0; 4]].concat(), "padding of the link's");
    // What is not allowed ends the connection, either way.
    let refused = |packet: &[u8], what: &str| assert_eq!(delivered(packet, 1, |_| {}), (0, State::Err), "{what}");
    refused(&forged(|_, reth| reth.rkey += 1), "a key that there is not");
    refused(&forged(|_, reth| reth.rkey = 0), "no key");
    refused(&forged(|_, reth| reth.address = BASE + (REGION - LEN) as u64 + 1), "one byte behind the region");
    refused(&forged(|_, reth| reth.address = BASE - 1), "one byte before it");
    refused(&forged(|_, reth| reth.address = u64::MAX - 3), "addresses that wrap");
    refused(&forged(|_, reth| reth.len += 1), "more bytes than there are");
    refused(&forged(|_, reth| reth.len = 0), "fewer bytes than there are");
    let last = forged(|_, reth| reth.address = BASE + (REGION - LEN) as u64);
    assert_eq!(delivered(&last, 1, |_| {}), (1, State::Rts), "the last bytes of the region");
    // The queue pair is not as it is expected.
    assert_eq!(delivered(&good(), 0, |_| {}), (0, State::Rts), "no receive");
    assert_eq!(delivered(&good(), 1, |pair| pair.deliver(B, &good())), (0, State::Rts), "twice");
    assert_eq!(delivered(&good(), 1, |pair| pair.modify(B, &Modify::Err).unwrap()), (0, State::Err));
    assert_eq!(delivered(&good(), 1, |pair| pair.modify(B, &Modify::Sqd).unwrap()), (0, State::Sqd));
    let update = |access| Modify::Update { access: Some(access), min_rnr_timer: None };
    let read_only = |pair: &mut Pair| pair.modify(B, &update(Access::REMOTE_READ)).unwrap();
    assert_eq!(delivered(&good(), 1, read_only), (0, State::Err), "nobody may write");
    let gap = forged(|header, _| header.psn = first + 1);
    assert_eq!(delivered(&good(), 1, |pair| pair.deliver(B, &gap)), (0, State::Rts), "what was asked for again");
    let begun = Header::new(Body::WriteFirst(Reth { address: BASE, rkey: 0x100, len: 2000 }), 0, first);
    let second = forged(|header, _| header.psn = first + 1);
    let begin = |pair: &mut Pair| {
        let header = Header { dest_qp: pair.end(B).qp, ..begun };
        pair.deliver(B, &emitted(&header, &[1; 1024]));
    };
    assert_eq!(delivered(&second, 1, begin), (0, State::Err), "in the middle of a message");
}

#[test]
fn a_full_completion_queue_is_overrun_as_ever() {
    let mut options = options();
    options.cq_depth = 2;
    let outcomes = both(&options).map(|mut pair| {
        (0..3).for_each(|id| pair.post_recv(B, id, 0, 0));
        for number in 0..3 {
            pair.deliver(B, &forged(|header, _| header.psn = psn(A) + number));
        }
        (pair.end(B).state(), predicted(&mut pair, B).0)
    });
    assert_eq!(outcomes, [(State::Err, 2), (State::Err, 0)]);
}

/// The same work over the same network, which loses the same packets, both ways.
fn worked(seed: u64) -> u64 {
    let mut dice = ChaCha8Rng::seed_from_u64(seed);
    let mut below = |limit: u64| dice.next_u64() % limit;
    let mut options = options();
    options.tuning.bytes_are_vouched = below(2) == 0;
    options.tuning.acknowledges_late = below(2) == 0;
    options.tuning.count_credits = below(8) == 0;
    options.tuning.window = [1, 3, 128][below(3) as usize];
    options.sending.timeout = 10;
    let loss = [0, 0, 10, 30][below(4) as usize];
    let lost: Vec<bool> = (0..256).map(|_| below(100) < loss).collect();
    let steps: Vec<[u64; 3]> = (0..60).map(|_| [below(10), below(61), below(3)]).collect();
    let [mut short, mut long] = both(&options);
    for pair in [&mut short, &mut long] {
        pair.late = options.tuning.acknowledges_late.then_some(US * 50);
        let (lost, mut at) = (lost.clone(), 0);
        pair.lose(move |_| {
            at += 1;
            lost[at % lost.len()]
        });
    }
    for (id, [what, len, pause]) in steps.into_iter().enumerate() {
        let id = id as u64;
        let side = if len % 2 == 0 { A } else { B };
        for pair in [&mut short, &mut long] {
            if what != 0 && what != 9 {
                pair.post_recv(side.peer(), id, 8000, 100);
            }
            let bytes = pattern(id as u32, len as usize);
            match what {
                0 => {
                    let op = pair.write(side, 3000, None);
                    pair.post(side, &SendWr::new(id, op, Data::Inline(&bytes))).unwrap();
                }
                1 => pair.post_op(side, id, SendOp::Send { immediate: None }, 9000, len as u32),
                9 => {
                    let op = pair.read(side, 3000);
                    pair.post_op(side, id, op, 7000, len as u32);
                }
                _ => message(pair, side, id, &bytes),
            }
            pair.run(US * 10 * pause as u32);
        }
        for side in [A, B] {
            assert_eq!(seen(&mut short, side), seen(&mut long, side), "seed {seed}, step {id}, {side:?}");
        }
    }
    for pair in [&mut short, &mut long] {
        pair.settle();
    }
    for side in [A, B] {
        assert_eq!(seen(&mut short, side), seen(&mut long, side), "seed {seed}, at the end, {side:?}");
        assert_eq!(predicted(&mut long, side), (0, 0));
    }
    predicted(&mut short, A).0 + predicted(&mut short, B).1
}

#[test]
fn nobody_can_tell_the_two_ways_apart() {
    let short: u64 = (0..400).map(worked).sum();
    assert!(short > 400 * 10, "{short} went the short way");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// A packet whose bytes are changed does the same either way.
    #[test]
    fn changed_packets_do_the_same_either_way(changes in proptest::collection::vec((0..130usize, any::<u8>()), 0..3), cut in 0..8usize) {
        let mut packet = forged(|_, _| {});
        for (at, byte) in changes {
            if let Some(changed) = packet.get_mut(at) {
                *changed = byte;
            }
        }
        packet.truncate(packet.len() - cut);
        let _ = delivered(&packet, 1, |_| {});
    }

    /// What is written the short way is what is written the long way, and what is read is what is read.
    #[test]
    fn packets_are_written_and_read_alike(fields: (u32, u32, u64, u32, u32), pkey: u16, asks: bool, payload in proptest::collection::vec(any::<u8>(), 0..70)) {
        let (dest_qp, number, address, rkey, immediate) = fields;
        let path = path(A, true);
        let Addresses::V6 { src, dst } = path.addresses else { unreachable!("asked for") };
        let (dest_qp, psn) = (dest_qp & 0x00ff_ffff, Psn::new(number));
        let write = WriteOnly { src, dst, pkey, dest_qp, psn, ack_request: asks, address, rkey, immediate, payload: &payload };
        let reth = Reth { address, rkey, len: payload.len() as u32 };
        let header = Header { pkey, ack_request: asks, ..Header::new(Body::WriteOnly(reth, Some(immediate)), dest_qp, psn) };
        for crc in [Crc::Computed, Crc::LeftOut] {
            let (mut short, mut long) = ([0xee; 300], [0xee; 300]);
            let len = path.emit_with(0, crc, &header, payload.len(), &mut long, |out| { out.copy_from_slice(&payload); Some(()) });
            prop_assert_eq!(write.emit(&path, crc, &mut short), len);
            prop_assert_eq!(short, long);
            let packet = &short[..len.unwrap()];
            prop_assert_eq!(WriteOnly::parse(packet, crc), Some(write));
            let read = Datagram::parse_with(packet, crc).unwrap();
            prop_assert_eq!((read.packet.header, read.packet.payload, read.path), (header, &payload[..], path));
        }
    }
}
