use super::pair::Side::{A, B};
use super::pair::{Pair, ms, pattern};
use crate::tcp::{Config, State};
use crate::wire::tcp::{Header, SeqNumber};

fn small_receiver() -> Config {
    Config { rcvbuf: Some(8000), ..Config::default() }
}

/// The right edge that a header announces.
fn edge(packet: &super::pair::Packet, scale: u8) -> SeqNumber {
    packet.header.ack + (usize::from(packet.header.window) << scale)
}

#[test]
fn a_shut_window_is_probed_and_reopens() {
    let mut pair = Pair::open(&Config::default(), &small_receiver());
    let data = pattern(20_000);
    pair.write(A, &data).unwrap();
    pair.run(ms(1000));
    assert_eq!(pair.sent(B).last().unwrap().header.window, 0);
    let filled = pair.side(B).available();
    assert!((7500..=8128).contains(&filled), "{filled}");
    // The update is lost: the probe finds out.
    let mut got = pair.read(B);
    pair.lose(|packet| packet.from == B);
    pair.transmit();
    pair.sent(A);
    pair.lose_nothing();
    pair.run(ms(2000));
    let probes = pair.sent(A);
    assert!(probes[0].payload.is_empty(), "a probe below the window");
    got.extend(pair.read(B));
    got.extend(pair.transfer(A, &[]));
    let end = pair.now + ms(10_000);
    pair.run_until(end, |pair| {
        got.extend(pair.read(B));
        got.len() == data.len()
    });
    assert_eq!(got, data);
}

#[test]
fn probes_back_off_and_never_give_up_while_they_are_answered() {
    let config = Config { retries: 3, ..Config::default() };
    let mut pair = Pair::open(&config, &small_receiver());
    pair.write(A, &pattern(20_000)).unwrap();
    pair.run(ms(100));
    pair.sent(A);
    pair.run(ms(300_000));
    assert_eq!(pair.state(A), State::Established);
    let times: Vec<_> = pair.sent(A).iter().map(|p| p.sent).collect();
    assert!((8..=14).contains(&times.len()), "{}", times.len());
    let gaps: Vec<_> = times.windows(2).map(|w| w[1].since(w[0])).collect();
    assert!(gaps[1] > gaps[0] && gaps[2] > gaps[1]);
    // And when nobody answers, they do.
    pair.lose(|_| true);
    pair.run(ms(1_000_000));
    assert_eq!(pair.state(A), State::Closed);
}

#[test]
fn the_right_edge_never_retreats_and_is_never_passed() {
    for scaling in [true, false] {
        let receiver = Config { rcvbuf: Some(20_000), window_scaling: scaling, ..Config::default() };
        let mut pair = Pair::open(&Config::default(), &receiver);
        let scale = if scaling { 7 } else { 0 };
        let data = pattern(200_000);
        let (mut written, mut got) = (0, Vec::new());
        let mut turn = 0usize;
        while got.len() < data.len() {
            written += pair.write(A, &data[written..]).unwrap_or(0);
            // A slow and irregular reader.
            turn += 1;
            got.extend(pair.read_some(B, turn * 37 % 1500 + 1).unwrap_or_default());
            pair.run(ms(1));
            assert!(turn < 100_000, "{} bytes arrived", got.len());
        }
        assert_eq!(got, data);
        let mut right: Option<SeqNumber> = None;
        for packet in &pair.log {
            match (packet.from, right) {
                (B, Some(old)) => {
                    // Rounded to a unit of the scaled window, as RFC 7323 s2.4 allows.
                    let unit = 1usize << scale;
                    assert!((edge(packet, scale) + (unit - 1)).ge(old), "the edge moved left");
                    right = Some(edge(packet, scale).max(old));
                }
                (B, None) => right = Some(edge(packet, scale)),
                (A, Some(old)) => assert!((packet.header.seq + packet.payload.len()).le(old), "sent beyond the window"),
                (A, None) => {}
            }
        }
    }
}

#[test]
fn no_silly_windows() {
    let mut pair = Pair::open(&Config::default(), &small_receiver());
    pair.write(A, &pattern(20_000)).unwrap();
    pair.run(ms(1000));
    pair.sent(B);
    // Byte by byte: nothing is announced until it is worth a segment.
    for _ in 0..1000 {
        pair.read_some(B, 1).unwrap();
        pair.transmit();
    }
    assert_eq!(pair.sent(B).len(), 0);
    pair.read_some(B, 3500).unwrap();
    pair.transmit();
    let update = pair.sent(B);
    assert_eq!(update.len(), 1);
    assert!(usize::from(update[0].header.window) << 7 >= 4000);
}

#[test]
fn a_small_window_is_used_in_halves() {
    let shm = Config { mss_max: 65_495, ..Config::default() };
    let mut pair = Pair::open(&shm, &shm);
    pair.buffer = 32 << 10;
    pair.write(A, &pattern(200_000)).unwrap();
    pair.transmit();
    let sizes: Vec<_> = pair.sent(A).iter().map(|p| p.payload.len()).collect();
    assert_eq!(sizes, [32_767, 32_767], "one travels while the other is acknowledged");
}

#[test]
fn bytes_beyond_the_window_are_not_taken() {
    let mut pair = Pair::open(&Config::default(), &small_receiver());
    pair.write(A, b"x").unwrap();
    pair.transmit();
    let mut header = pair.sent(A).remove(0).header;
    let window = 8000 + 127;
    pair.deliver(B, &header, &pattern(20_000));
    let taken = pair.side(B).available();
    assert!(taken <= window, "{taken}");
    assert_eq!(pair.read(B), pattern(20_000)[..taken]);
    header.seq += 1_000_000;
    pair.deliver(B, &header, &pattern(100));
    assert_eq!(pair.side(B).available(), 0);
}

/// Found by the simulator's window checker: a retransmission has an old sequence number, and what it acknowledges is new.
#[test]
fn a_window_comes_with_the_acknowledgment_that_moves_it() {
    let config = Config { window_scaling: false, timestamps: false, ..Config::default() };
    let mut pair = Pair::open(&config, &config);
    pair.write(B, b"template").unwrap();
    pair.transmit();
    let template = pair.sent(B).pop().unwrap().header;
    pair.lose(|packet| packet.from == B);
    pair.settle();
    // The first ten bytes are late: what A knows of the window comes from a segment behind them.
    let right = template.ack + 10_000;
    pair.deliver(A, &Header { seq: template.seq + 10, window: 10_000, ..template }, b"later");
    pair.write(A, &pattern(20_000)).unwrap();
    pair.settle();
    pair.deliver(A, &Header { ack: template.ack + 1448, window: 10_000 - 1448, ..template }, b"0123456789");
    pair.settle();
    let ends: Vec<_> = pair.sent(A).iter().map(|packet| packet.header.seq + packet.payload.len()).collect();
    assert!(ends.iter().any(|end| (template.ack + 7_000).lt(*end)), "the window is used: {ends:?}");
    assert!(ends.iter().all(|end| end.le(right)), "{ends:?} beyond {right:?}");
}

/// A connection whose windows are bytes, and from whose B nothing arrives but what is delivered by hand.
fn heard_by_hand() -> Pair {
    let config = Config { window_scaling: false, timestamps: false, nodelay: true, ..Config::default() };
    let mut pair = Pair::open(&config, &config);
    pair.lose(|packet| packet.from == B);
    pair
}

/// What B's program writes, as B sends it.
fn says(pair: &mut Pair, bytes: &[u8]) -> super::pair::Packet {
    pair.write(B, bytes).unwrap();
    pair.transmit();
    pair.sent(B).pop().unwrap()
}

/// How much of a thousand bytes A sends at once.
fn sends_of_a_thousand(pair: &mut Pair) -> usize {
    pair.write(A, &pattern(1000)).unwrap();
    pair.transmit();
    pair.sent(A).iter().map(|packet| packet.payload.len()).sum()
}

/// Found by the simulator's recovery checker: the next segment of the stream was sent before a pure acknowledgment that overtook it.
#[test]
fn an_overtaken_segment_brings_back_no_older_window() {
    let mut pair = heard_by_hand();
    let late = says(&mut pair, b"x").header;
    pair.deliver(A, &Header { seq: late.seq + 1, window: 10_000, ..late }, b"");
    pair.deliver(A, &Header { window: 100, ..late }, b"x");
    assert_eq!(pair.read(A), b"x");
    assert_eq!(sends_of_a_thousand(&mut pair), 1000, "the newer window holds");
}

/// Found by the simulator's duties: a NIC merged a retransmission with the next segment, whose window nobody saw (RFC 9293 s3.10.7.4, "the idealized
/// segment that begins at RCV.NXT").
#[test]
fn what_repeats_old_bytes_before_new_ones_brings_the_window_of_the_new_ones() {
    let mut pair = heard_by_hand();
    let old = says(&mut pair, b"old").header;
    pair.deliver(A, &old, b"old");
    pair.deliver(A, &Header { seq: old.seq + 3, window: 100, ..old }, b"");
    pair.deliver(A, &Header { window: 10_000, ..old }, b"old, new");
    assert_eq!(pair.read(A), b"old, new");
    assert_eq!(sends_of_a_thousand(&mut pair), 1000, "the window that came with new bytes is used");
}

/// Found by the simulator's duties, as the one before: the window that comes with merged segments is the last one's.
#[test]
fn merged_segments_bring_the_window_of_the_last_one() {
    let mut pair = heard_by_hand();
    let mut packets = [says(&mut pair, b"sent again"), says(&mut pair, b"sent first")];
    let later = packets[1].header;
    pair.deliver(A, &Header { window: 100, ..later }, b"");
    packets.iter_mut().for_each(|packet| packet.header.window = 10_000);
    pair.deliver_merged(A, &packets);
    assert_eq!(pair.read(A), b"sent againsent first");
    assert_eq!(sends_of_a_thousand(&mut pair), 1000, "the window that came with the last is used");
}

/// Found by the simulator's window checker: a writer that waited for its persist timer, though the reader had read everything.
#[test]
fn rounding_a_small_window_to_units_stalls_nobody() {
    for rcvbuf in 2304..2304 + 600 {
        let mut pair = Pair::open(&Config::default(), &Config { rcvbuf: Some(rcvbuf), ..Config::default() });
        let data = pattern(20_000);
        let start = pair.now;
        assert_eq!(pair.transfer(A, &data), data);
        let took = pair.now.since(start);
        assert!(took < ms(150), "{took:?} with a buffer of {rcvbuf}");
    }
}
