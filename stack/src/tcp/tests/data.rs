use std::io::{IoSlice, IoSliceMut};

use super::pair::Side::{A, B};
use super::pair::{Pair, ms, pattern};
use crate::error::Error;
use crate::flow::Readiness;
use crate::tcp::test_util::TestTx;
use crate::tcp::{Config, State};
use crate::wire::tcp::Flags;

#[test]
fn both_ways_at_once() {
    let mut pair = Pair::plain();
    let (there, back) = (pattern(10_000), pattern(7_000));
    pair.write(A, &there).unwrap();
    pair.write(B, &back).unwrap();
    pair.settle();
    assert!(pair.side(B).take_edges().contains(Readiness::IN));
    assert_eq!(pair.read(B), there);
    assert_eq!(pair.read(A), back);
    assert_eq!(pair.read_some(A, 10), Err(Error::WouldBlock));
}

#[test]
fn ten_megabytes_arrive_and_the_receive_window_grows() {
    let mut pair = Pair::plain();
    let data = pattern(10 << 20);
    assert_eq!(pair.transfer(A, &data), data);
    assert_eq!(pair.a.counters().retransmissions, 0);
    let widest = pair.sent(B).iter().map(|p| usize::from(p.header.window) << 7).max().unwrap();
    assert!(widest > 1 << 20, "{widest}");
    assert!(widest <= 3 << 20, "half of the largest buffer: {widest}");
}

#[test]
fn segments_of_a_64k_mtu() {
    let shm = Config { mss_max: 65_495, ..Config::default() };
    let mut pair = Pair::open(&shm, &shm);
    pair.buffer = 32 << 10;
    let data = pattern(20 << 20);
    assert_eq!(pair.transfer(A, &data), data);
    let largest = pair.sent(A).iter().map(|p| p.payload.len()).max().unwrap();
    assert_eq!(largest, 65_483, "once the window is large enough");
}

#[test]
fn a_segment_gathers_no_more_slices_than_the_device() {
    let config = Config { gather_max: 3, ..Config::default() };
    let mut pair = Pair::open(&config, &config);
    pair.buffer = 100;
    let data = pattern(5000);
    assert_eq!(pair.transfer(A, &data), data);
    assert!(pair.sent(A).iter().all(|p| p.payload.len() <= 300));
}

/// Found by the simulator: a segment a round trip for ever, where a window of one full segment had room for three such.
#[test]
fn a_small_window_has_room_for_several_segments_of_few_slices() {
    let config = Config { gather_max: 2, timestamps: false, ..Config::default() };
    let mut pair = Pair::new(&config, &Config::default());
    pair.buffer = 208;
    let mut syns = 0;
    pair.lose(move |packet| {
        syns += usize::from(packet.from == A && packet.is(Flags::SYN));
        packet.is(Flags::SYN) && syns < 3
    });
    pair.run(ms(4000));
    assert_eq!((pair.state(A), pair.a.cwnd()), (State::Established, 1460), "RFC 5681 s3.1: two SYNs were lost");
    pair.write(A, &pattern(50_000)).unwrap();
    pair.transmit();
    let sent: Vec<_> = pair.sent(A).iter().map(|packet| packet.payload.len()).filter(|&len| len > 0).collect();
    assert_eq!(sent, [416; 3]);
    pair.run(ms(2000));
    assert_eq!(pair.a.send_queue(), 0);
    assert!(pair.a.cwnd() > 10_000, "{}", pair.a.cwnd());
}

#[test]
fn peeking_takes_nothing() {
    let mut pair = Pair::plain();
    pair.write(A, b"look").unwrap();
    pair.settle();
    let now = pair.now;
    let mut out = [0; 10];
    for _ in 0..2 {
        assert_eq!(pair.side(B).read(now, &mut [IoSliceMut::new(&mut out)], true), Ok(4));
        assert_eq!(&out[..4], b"look");
    }
    assert_eq!(pair.read(B), b"look");
}

#[test]
fn vectors_on_both_sides() {
    let mut pair = Pair::plain();
    let data = pattern(3000);
    let parts = [IoSlice::new(&data[..1]), IoSlice::new(&[]), IoSlice::new(&data[1..2000]), IoSlice::new(&data[2000..])];
    let now = pair.now;
    assert_eq!(pair.a.write(now, &parts, false, &mut |_| Some(TestTx::new(700))), Ok(3000));
    pair.settle();
    let (mut x, mut y, mut z) = ([0; 5], [0; 1500], [0; 4000]);
    let now = pair.now;
    let mut into = [IoSliceMut::new(&mut x), IoSliceMut::new(&mut []), IoSliceMut::new(&mut y), IoSliceMut::new(&mut z)];
    assert_eq!(pair.side(B).read(now, &mut into, false), Ok(3000));
    assert_eq!([&x[..], &y[..], &z[..1495]].concat(), data);
}

#[test]
fn a_full_send_buffer_blocks_until_a_third_is_free() {
    let config = Config { sndbuf: Some(30_000), ..Config::default() };
    let mut pair = Pair::open(&config, &Config::default());
    let data = pattern(50_000);
    assert_eq!(pair.write(A, &data), Ok(30_000));
    assert_eq!(pair.write(A, &data), Err(Error::WouldBlock));
    assert!(!pair.a.readiness().contains(Readiness::OUT));
    assert_eq!(pair.a.send_queue(), 30_000);
    pair.a.take_edges();
    pair.settle();
    assert!(pair.a.take_edges().contains(Readiness::OUT));
    assert!(pair.a.readiness().contains(Readiness::OUT));
}

#[test]
fn no_buffers_is_an_error_and_the_writer_is_told_to_try_again() {
    let mut pair = Pair::plain();
    let now = pair.now;
    // The longer there were none, the longer it waits.
    for after in [1, 2, 4, 8, 16, 16] {
        let now = pair.now;
        // (Who tries twice waits no longer.)
        for _ in 0..2 {
            assert_eq!(pair.a.write(now, &[IoSlice::new(b"x")], false, &mut |_| None), Err(Error::NoBuffers));
        }
        pair.run(ms(after) - ms(1) / 2);
        assert!(!pair.a.readiness().contains(Readiness::OUT) && pair.a.take_edges().is_empty());
        pair.run(ms(1));
        assert!(pair.a.readiness().contains(Readiness::OUT) && pair.a.take_edges().contains(Readiness::OUT));
    }
    let mut left = 1;
    let written = pair.a.write(now, &[IoSlice::new(&[7; 5000])], false, &mut |_| {
        left -= 1;
        (left == 0).then(|| TestTx::new(2000))
    });
    assert_eq!(written, Ok(2000));
}

#[test]
fn a_full_device_loses_nothing() {
    let mut pair = Pair::plain();
    pair.device_room = 1;
    let data = pattern(100_000);
    assert_eq!(pair.transfer(A, &data), data);
    assert_eq!(pair.a.counters().retransmissions, 0);
    pair.device_room = usize::MAX;
    pair.run(ms(100));
    pair.device_room = 0;
    pair.write(A, b"more").unwrap();
    pair.transmit();
    assert!(pair.a.wants_transmit());
    assert_eq!(pair.a.send_queue(), 4);
}

#[test]
fn messages_of_a_ping_pong_share_one_buffer_and_an_idle_connection_has_none() {
    let mut pair = Pair::plain();
    let mut allocated = 0;
    for round in 0..20 {
        for side in [A, B] {
            let now = pair.now;
            let data = [round; 64];
            let written = pair.side(side).write(now, &[IoSlice::new(&data)], false, &mut |_| {
                allocated += 1;
                Some(TestTx::new(2048))
            });
            assert_eq!(written, Ok(64));
            pair.settle();
            assert_eq!(pair.read(side.peer()), data);
        }
    }
    assert_eq!(allocated, 2, "one a side");
    let packets = pair.sent(A).len();
    assert!(packets <= 22, "acknowledgments ride on the answers: {packets}");
    assert!(pair.a.holds_memory());
    pair.run(ms(1100));
    assert!(!pair.a.holds_memory() && !pair.side(B).holds_memory());
    assert_eq!(pair.a.deadline(), None, "nothing is left to wait for");
}

#[test]
fn the_last_segment_of_a_write_is_pushed() {
    let mut pair = Pair::plain();
    pair.write(A, &pattern(2000)).unwrap();
    pair.transmit();
    let pushed: Vec<_> = pair.sent(A).iter().map(|p| p.is(Flags::PSH)).collect();
    assert_eq!(pushed, [false, true]);
}
