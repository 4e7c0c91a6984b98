use std::io::IoSlice;

use super::*;
use crate::tcp::test_util::{TestRx, TestTx};
use crate::tcp::{Connection, RxPayload};
use crate::wire::tcp::{Flags, Header, Options};

fn at(ms: u64) -> Instant {
    Instant::from_nanos(ms * 1_000_000)
}

/// As the kernel tells it, in each state: with bytes in flight, bytes that were not sent, and bytes that were not read.
fn block(state: State) -> ControlBlock {
    let is_acknowledged = state == State::FinWait2;
    let unacknowledged = if is_acknowledged { Vec::new() } else { b"0123456789".to_vec() };
    let in_flight = if is_acknowledged { 0 } else { 4 };
    ControlBlock {
        state,
        peer_mss: 1460,
        scales: Some((7, 9)),
        sack: true,
        timestamp: Some(1000),
        ts_recent: None,
        at: at(5000),
        snd_una: SeqNumber(u32::MAX - 1),
        snd_nxt: SeqNumber(u32::MAX - 1) + in_flight,
        snd_wnd: 70_000,
        snd_wnd_max: 80_000,
        snd_wl1: SeqNumber(90),
        rcv_nxt: SeqNumber(100),
        rcv_wup: SeqNumber(95),
        rcv_adv: SeqNumber(60_000),
        unacknowledged,
        unread: b"unread".to_vec(),
        out_of_order: Vec::new(),
        early_fin: None,
        rtt: (Duration::from_micros(300), Duration::from_micros(50)),
        buffers: (None, None),
        mss_user: None,
    }
}

#[test]
fn what_is_read_elsewhere_is_a_connection_and_comes_out_as_it_was() {
    for state in STATES {
        let block = block(state);
        let snapshot = Snapshot::from_control_block(&block, at(5000), &Config::default()).expect("it can be");
        let read = Snapshot::from_bytes(&snapshot.to_bytes()).expect("what was written can be read");
        assert_eq!(read.control_block(at(5000)), block, "{state:?}");
        // Time goes on while nobody has it.
        assert_eq!(read.control_block(at(5070)).timestamp, Some(1070));
        assert_eq!(block.timestamp_at(at(5070)), Some(1070));
    }
}

#[test]
fn what_cannot_be_is_refused() {
    let wrong: [fn(&mut ControlBlock); 5] = [
        |block| block.state = State::TimeWait,
        |block| block.state = State::SynReceived,
        |block| block.snd_nxt += 100,
        |block| block.snd_nxt = block.snd_una - 1,
        |block| block.scales = Some((15, 0)),
    ];
    for (at_change, change) in wrong.into_iter().enumerate() {
        let mut block = block(State::Established);
        change(&mut block);
        let refused = Snapshot::from_control_block(&block, at(5000), &Config::default());
        assert_eq!(refused, Err(SnapshotError::Inconsistent), "change {at_change}");
    }
}

#[test]
fn what_was_sent_and_what_was_not_are_told_apart() {
    let open = block(State::Established);
    assert_eq!(open.sent_and_unsent(), (&b"0123"[..], &b"456789"[..]));
    assert!(!open.fin_sent() && !open.peer_ended());
    let mut ended = block(State::LastAck);
    assert!(!ended.fin_sent() && ended.peer_ended(), "it waits behind the bytes");
    ended.snd_nxt = ended.snd_una + 11;
    assert!(ended.fin_sent());
    assert_eq!(ended.sent_and_unsent(), (&b"0123456789"[..], &b""[..]));
    assert!(block(State::FinWait2).fin_sent());
}

fn resumed(block: &ControlBlock) -> Connection<TestRx, TestTx> {
    let snapshot = Snapshot::from_control_block(block, at(5000), &Config::default()).expect("it can be");
    Connection::resume(at(5000), &Config::default(), (80, 4000), &snapshot, &mut |len| Some(TestTx::new(len))).expect("there are buffers")
}

/// By PAWS's arithmetic a timestamp of zero would refuse half of all peers: those whose clock is in its upper half.
#[test]
fn a_peers_clock_that_is_not_known_refuses_nobody_and_is_known_from_the_first_segment_on() {
    for clock in [1, 0x7fff_ffff, 0x8000_0001, u32::MAX] {
        let mut connection = resumed(&block(State::Established));
        let stamped = |seq: u32, value: u32| Header {
            seq: SeqNumber(seq),
            ack: SeqNumber(u32::MAX - 1),
            flags: Flags::ACK,
            window: 500,
            options: Options { timestamps: Some((value, 1000)), ..Options::default() },
            ..Header::default()
        };
        connection.on_segment(at(5001), &stamped(100, clock), RxPayload { head: b"abc", ..RxPayload::EMPTY });
        assert_eq!(connection.available(), 9, "a clock at {clock:#x}");
        // (It is known what is acknowledged, once that was sent.)
        connection.poll_transmit(at(5001), &mut |_| Ok(()));
        connection.on_segment(at(5002), &stamped(103, clock), RxPayload { head: b"def", ..RxPayload::EMPTY });
        connection.on_segment(at(5003), &stamped(106, clock.wrapping_sub(10)), RxPayload { head: b"ghi", ..RxPayload::EMPTY });
        assert_eq!(connection.available(), 12, "an old duplicate");
    }
}

#[test]
fn it_goes_on_with_what_was_not_sent() {
    let mut connection = resumed(&block(State::Established));
    connection.go_on_elsewhere(at(5000));
    assert_eq!(connection.write(at(5000), &[IoSlice::new(b"more")], false, &mut |len| Some(TestTx::new(len))), Ok(4));
    let mut sent = 0;
    connection.poll_transmit(at(5000), &mut |segment| {
        sent = sent.max((segment.header.seq + segment.payload_len).since(SeqNumber(u32::MAX - 1)));
        assert_eq!(segment.header.ack, SeqNumber(100));
        assert!(segment.header.options.timestamps.is_some_and(|(value, echo)| (value, echo) == (1000, 0)));
        Ok(())
    });
    assert!(sent >= 10, "{sent} bytes");
}
