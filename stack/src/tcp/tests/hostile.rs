//! Segments that no honest peer sends.

use proptest::prelude::*;

use super::pair::Side::{A, B};
use super::pair::{Packet, Pair, ms, pattern};
use crate::flow::Readiness;
use crate::tcp::{Config, State};
use crate::wire::tcp::{Flags, Header, Options, SackBlock, SackBlocks, SeqNumber};

/// A header such as A would send next.
fn next_of_a(pair: &mut Pair) -> Header {
    pair.write(A, b"x").unwrap();
    pair.transmit();
    pair.settle();
    let mut header = pair.sent(A).into_iter().find(|p| !p.payload.is_empty()).unwrap().header;
    pair.read(B);
    pair.run(ms(100));
    pair.sent(B);
    header.seq += 1;
    header
}

#[test]
fn a_reset_must_have_exactly_the_next_number() {
    let mut pair = Pair::plain();
    let next = next_of_a(&mut pair);
    let reset = Header { flags: Flags::RST, seq: next.seq + 10, ..next };
    for _ in 0..100 {
        pair.deliver(B, &reset, &[]);
        pair.transmit();
    }
    assert_eq!(pair.state(B), State::Established);
    assert_eq!(pair.sent(B).len(), 1, "one challenge, and no more within half a second");
    pair.deliver(B, &Header { seq: next.seq - 1, ..reset }, &[]);
    assert_eq!(pair.state(B), State::Established);
    pair.deliver(B, &Header { seq: next.seq, ..reset }, &[]);
    assert_eq!(pair.state(B), State::Closed);
}

/// RFC 6093 s4 where a stack is alone; beside a kernel, the urgent byte and what is behind it are the kernel's, to which they come again.
#[test]
fn urgent_data_are_data_or_wait_for_the_kernel() {
    for urgent_waits in [false, true] {
        let config = Config { urgent_waits, ..Config::default() };
        let mut pair = Pair::open(&Config::default(), &config);
        let next = next_of_a(&mut pair);
        pair.b.as_mut().unwrap().take_edges();
        pair.deliver(B, &Header { flags: Flags::ACK | Flags::PSH | Flags::URG, urgent: 1, ..next }, b"!");
        let edges = pair.b.as_mut().unwrap().take_edges();
        assert_eq!(edges, if urgent_waits { Readiness::PRI } else { Readiness::IN });
        pair.transmit();
        pair.run(ms(100));
        assert_eq!(pair.sent(B).is_empty(), urgent_waits, "acknowledged is what was taken");
        assert_eq!(pair.read(B).len(), usize::from(!urgent_waits));
    }
}

/// Found by the simulator's forged frames: one such segment, and whatever the peer sends is too old for ever after.
#[test]
fn a_timestamp_is_remembered_of_a_segment_alone_whose_acknowledgment_counts() {
    let config = Config::default();
    let mut pair = Pair::open(&config, &config);
    pair.settle();
    pair.write(A, b"first").unwrap();
    pair.settle();
    assert_eq!(pair.read(B), b"first");
    let last = pair.sent(A).pop().unwrap().header;
    let (value, echo) = last.options.timestamps.unwrap();
    let options = Options { timestamps: Some((value.wrapping_add(1 << 29), echo)), ..Options::default() };
    for ack in [last.ack + (1 << 25), last.ack - (1 << 30)] {
        pair.deliver(B, &Header { seq: last.seq + 5, ack, flags: Flags::ACK, options, ..last }, b"blind");
    }
    pair.transmit();
    pair.write(A, b"second").unwrap();
    pair.run(ms(5000));
    assert_eq!(pair.read(B), b"second");
}

/// What only guesses a connection's numbers must not keep it from asking whether its peer is still there.
#[test]
fn an_acknowledgment_of_what_was_never_sent_is_no_sign_of_life() {
    use crate::tcp::Keepalive;
    let keepalive = Keepalive { idle: ms(10_000), interval: ms(1_000), count: 3 };
    let config = Config { keepalive: Some(keepalive), ..Config::default() };
    let mut pair = Pair::open(&config, &config);
    pair.settle();
    pair.write(A, b"x").unwrap();
    pair.settle();
    let last = pair.sent(A).into_iter().find(|packet| !packet.payload.is_empty()).unwrap().header;
    pair.lose(|_| true);
    for _ in 0..20 {
        pair.deliver(B, &Header { seq: last.seq + 1, ack: last.ack + (1 << 25), ..last }, &[]);
        pair.run(ms(1_000));
    }
    assert_eq!(pair.state(B), State::Closed, "nobody is there");
}

/// Found by the simulator's after_close checker: what was to tell a stranger off reset the connection that was established meanwhile.
#[test]
fn an_answer_to_a_stranger_that_the_device_refused_resets_nobody() {
    let config = Config::default();
    let mut pair = Pair::new(&config, &config);
    pair.lose(|packet: &Packet| packet.from == A && !packet.is(Flags::SYN));
    pair.settle();
    assert_eq!((pair.state(A), pair.state(B)), (State::Established, State::SynReceived));
    let ack = pair.sent(A).pop().unwrap().header;
    pair.sent(B);
    pair.device_room = 0;
    pair.deliver(B, &Header { ack: ack.ack + 1000, ..ack }, &[]);
    pair.transmit();
    pair.deliver(B, &ack, &[]);
    assert_eq!(pair.state(B), State::Established);
    pair.device_room = usize::MAX;
    pair.lose_nothing();
    pair.write(A, b"hello").unwrap();
    pair.settle();
    assert!(pair.sent(B).iter().all(|packet| !packet.is(Flags::RST)));
    assert_eq!(pair.read(B), b"hello");
}

#[test]
fn a_syn_in_an_open_connection_is_challenged() {
    let mut pair = Pair::plain();
    let next = next_of_a(&mut pair);
    for seq in [next.seq, next.seq + 5, next.seq - 1000] {
        pair.deliver(B, &Header { flags: Flags::SYN, seq, ..next }, &[]);
    }
    pair.transmit();
    assert_eq!(pair.sent(B).len(), 1);
    assert_eq!(pair.state(B), State::Established);
}

#[test]
fn acknowledging_what_was_never_sent_is_challenged_and_dropped() {
    let mut pair = Pair::plain();
    let next = next_of_a(&mut pair);
    pair.deliver(B, &Header { ack: next.ack + 1000, ..next }, b"evil");
    assert_eq!(pair.side(B).available(), 0);
    pair.transmit();
    assert_eq!(pair.sent(B).len(), 1);
}

#[test]
fn an_old_timestamp_is_not_believed() {
    let mut pair = Pair::plain();
    let mut next = next_of_a(&mut pair);
    let (value, echo) = next.options.timestamps.unwrap();
    next.options.timestamps = Some((value.wrapping_sub(1000), echo));
    pair.deliver(B, &next, b"old");
    assert_eq!(pair.side(B).available(), 0);
    next.options.timestamps = Some((value, echo));
    pair.deliver(B, &next, b"new");
    assert_eq!(pair.side(B).available(), 3);
}

/// A thread reads the time, waits for a lock, and sends when another has sent since, whose time was a later one (RFC 7323 s5.3): found in a capture of curl, whose
/// server's last segment was dropped, and came after a timeout.
#[test]
fn a_caller_who_had_to_wait_for_its_turn_sends_no_old_timestamp() {
    for nodelay in [false, true] {
        let config = Config { nodelay, ..Config::default() };
        let mut pair = Pair::open(&config, &config);
        pair.run(ms(50));
        pair.write(A, &pattern(4000)).unwrap();
        pair.transmit();
        let early = pair.now;
        pair.settle();
        pair.write(A, b"as of later").unwrap();
        pair.run(ms(3));
        pair.write(A, b"later").unwrap();
        pair.transmit();
        let later = core::mem::replace(&mut pair.now, early);
        for word in [&b"earlier"[..], b"and more"] {
            pair.write(A, word).unwrap();
            pair.transmit();
        }
        pair.now = later;
        pair.settle();
        let stamps: Vec<u32> = pair.sent(A).iter().map(|packet| packet.header.options.timestamps.unwrap().0).collect();
        assert!(stamps.is_sorted_by(|one, next| next.wrapping_sub(*one) < 1000), "{stamps:?}");
        let read = pair.read(B);
        assert!(read.ends_with(b"as of laterlaterearlierand more"), "{} bytes", read.len());
        assert_eq!(pair.a.counters().retransmissions, 0);
    }
}

#[test]
fn a_flood_of_single_bytes_with_gaps_is_bounded() {
    let mut pair = Pair::plain();
    let next = next_of_a(&mut pair);
    for i in 0..30_000usize {
        pair.deliver(B, &Header { seq: next.seq + 2 * i + 1, ..next }, b"x");
    }
    let kept = pair.side(B).out_of_order_blocks();
    assert!((1..=256).contains(&kept), "{kept}");
    // And the stream still works.
    pair.transmit();
    pair.deliver(B, &next, &pattern(1400));
    assert!(pair.side(B).available() >= 1400);
}

/// Sequence and acknowledgment numbers and timestamp relative to what is expected, flags, window, SACK blocks, payload length.
type Strange = (i32, i32, u8, u16, Option<(i32, u32)>, Vec<(i32, i32)>, usize);

fn strange() -> impl Strategy<Value = Strange> {
    let near = prop_oneof![-10..10i32, -70_000..70_000i32, any::<i32>()];
    let stamps = proptest::option::of((-3..3i32, any::<u32>()));
    let blocks = proptest::collection::vec((-3000..30_000i32, -3000..30_000i32), 0..4);
    (near, -5000..5000i32, any::<u8>(), any::<u16>(), stamps, blocks, 0..3000usize)
}

proptest! {
    /// Whatever arrives: no panic, the limits hold, and timers that ran are over.
    #[test]
    fn nothing_that_arrives_panics(headers in proptest::collection::vec(strange(), 1..40), close in any::<bool>()) {
        let mut pair = Pair::plain();
        pair.write(A, &pattern(20_000)).unwrap();
        pair.write(B, &pattern(20_000)).unwrap();
        pair.transmit();
        if close {
            pair.shutdown(B);
        }
        let next = pair.log.iter().rfind(|p| p.from == A).unwrap().header;
        for (seq, ack, flags, window, stamps, blocks, len) in headers {
            let mut sack = SackBlocks::default();
            for (start, end) in blocks {
                let at = |offset: i32| SeqNumber(next.ack.0.wrapping_add(offset as u32));
                sack.push(SackBlock { start: at(start), end: at(end) });
            }
            let timestamps = stamps.map(|(value, echo)| (next.options.timestamps.unwrap().0.wrapping_add(value as u32), echo));
            // Resets would end most runs at once.
            let flags = Flags::from_bits_retain(flags) - if flags % 8 == 0 { Flags::empty() } else { Flags::RST };
            let header = Header {
                seq: SeqNumber(next.seq.0.wrapping_add(seq as u32)),
                ack: SeqNumber(next.ack.0.wrapping_add(ack as u32)),
                flags: flags | Flags::ACK,
                window,
                options: Options { timestamps, sack, ..Options::default() },
                ..next
            };
            pair.deliver(B, &header, &pattern(len));
            pair.transmit();
            prop_assert!(pair.side(B).available() <= 65_536 + 128);
            let due = pair.side(B).deadline();
            if let Some(due) = due {
                pair.now = pair.now.max(due);
                let now = pair.now;
                pair.side(B).on_timer(now);
                pair.transmit();
            }
        }
    }
}
