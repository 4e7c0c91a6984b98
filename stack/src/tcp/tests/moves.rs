//! A connection that is written down and read in again, at any time and as often as one likes, goes on as if it had not been.

use core::time::Duration;

use proptest::prelude::*;

use super::pair::Side::{A, B};
use super::pair::{Conn, Moves, Packet, Pair, Side, ms, pattern};
use super::properties::Dice;
use crate::device::GATHER_LIMIT;
use crate::error::Error;
use crate::flow::{Counters, Readiness};
use crate::tcp::test_util::TestTx;
use crate::tcp::{Config, Details, Keepalive, Snapshot, State};
use crate::time::Instant;

/// Bytes of a send buffer: segments are never cut short for lying in too many.
const BUFFER: usize = 64 << 10;

/// Everything that there was to see: frames and when they were sent, what was read, and how both ends stood after each step.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Transcript {
    pub(super) packets: Vec<Packet>,
    results: Vec<(Side, Result<usize, Error>)>,
    read: [Vec<u8>; 2],
    standing: Vec<(State, Readiness, Counters, Details, usize, Option<Instant>)>,
}

/// The same end, by way of bytes. `config`: as both began, before any program set anything. `None`: it cannot move now.
pub(super) fn moved(now: Instant, config: &Config, end: &Conn) -> Option<Conn> {
    let bytes = end.snapshot()?.to_bytes();
    let snapshot = Snapshot::from_bytes(&bytes).expect("what was written can be read");
    let ports = (end.local_port(), end.remote_port());
    Some(Conn::resume(now, config, ports, &snapshot, &mut |_| Some(TestTx::new(BUFFER))).expect("there are buffers"))
}

/// What a program, or the network, does at one step.
fn act(pair: &mut Pair, dice: &mut Dice, side: Side, data: &[u8], transcript: &mut Transcript) {
    let now = pair.now;
    let una = pair.log.last().map(|packet| packet.header.seq);
    match dice.roll(24) {
        0..=5 => {
            let most = if dice.chance(30) { 60_000 } else { 900 };
            let len = 1 + dice.roll(most) as usize;
            transcript.results.push((side, pair.write_more(side, &data[..len], dice.chance(15))));
        }
        6..=9 => {
            let len = 1 + dice.roll(40_000) as usize;
            let got = pair.read_some(side, len);
            transcript.results.push((side, got.as_ref().map(Vec::len).map_err(|error| *error)));
            transcript.read[side as usize].extend(got.unwrap_or_default());
        }
        10 => pair.side(side).configure(now, |config| config.cork ^= true),
        11 => pair.side(side).configure(now, |config| config.nodelay ^= true),
        12 => pair.side(side).configure(now, |config| config.quickack ^= true),
        13 => {
            let time = Duration::from_millis(200 + dice.roll(3000));
            let keepalive = Keepalive { idle: time, interval: time / 2, count: 2 + dice.roll(5) as u32 };
            pair.side(side).configure(now, |config| config.keepalive = config.keepalive.is_none().then_some(keepalive));
        }
        14 => {
            let (least, time) = (dice.chance(30), Duration::from_millis(2000 + dice.roll(60_000)));
            pair.side(side).configure(now, |config| config.user_timeout = least.then_some(time));
        }
        15 => {
            let rcvbuf = 3000 + dice.roll(200_000) as usize;
            pair.side(side).configure(now, |config| config.rcvbuf = Some(rcvbuf));
        }
        16 => {
            let sndbuf = 5000 + dice.roll(100_000) as usize;
            pair.side(side).configure(now, |config| config.sndbuf = Some(sndbuf));
        }
        17 => pair.side(side).set_path_mtu(now, 600 + dice.roll(900) as u16),
        18 => {
            if let Some(seq) = una {
                pair.side(side).on_packet_too_big(now, seq, 600 + dice.roll(900) as u16);
            }
        }
        19 => pair.side(side).on_link_up(),
        20 => pair.side(side).on_host_unreachable(),
        21 if dice.chance(15) => pair.shutdown(side),
        22 if dice.chance(15) => pair.side(side).shutdown_read(),
        // Until timers of every kind run out, now and then.
        23 => pair.run(Duration::from_secs(1 + dice.roll(200))),
        _ => {}
    }
    // (A look at what either might send, as a ring takes it.)
    pair.transmit();
    pair.run(Duration::from_micros(dice.roll(30_000)));
}

/// What two programs and a network come to that this seed draws. `every`: one of so many services finds the connection moved; none if there is no number.
fn play(seed: u64, configs: &[Config; 2], every: Option<u64>) -> Transcript {
    let moves = every.map(|every| -> Moves {
        let (mut times, bases) = (Dice(seed ^ 0x5555), configs.clone());
        Box::new(move |side, now, end| (times.roll(every) == 0).then(|| moved(now, &bases[side as usize], end)).flatten())
    });
    play_with(seed, configs, moves)
}

/// As [`play`], with what is to look at both ends before each service, or takes their place.
pub(super) fn play_with(seed: u64, configs: &[Config; 2], moves: Option<Moves>) -> Transcript {
    play_on(Pair::new(&configs[0], &configs[1]), seed, moves)
}

/// As [`play_with`], on a pair before its first SYN.
pub(super) fn play_on(mut pair: Pair, seed: u64, moves: Option<Moves>) -> Transcript {
    let mut dice = Dice(seed);
    (pair.buffer, pair.latency) = (BUFFER, Duration::from_micros(20 + dice.roll(20_000)));
    pair.settle();
    let (loss, doubles, late) = (dice.roll(25), dice.roll(10), dice.roll(20));
    let mut fates = Dice(seed | 1);
    // The network is dead for a while now and then.
    let (dead_from, dead_for) = (ms(dice.roll(20_000)), ms(dice.roll(30_000)));
    let (begin, fails) = (pair.now, dice.chance(30));
    pair.fate = Box::new(move |packet, latency| {
        let since = packet.sent.since(begin);
        let dead = fails && since >= dead_from && since < dead_from + dead_for;
        let mut arrivals = Vec::new();
        if !fates.chance(loss) && !dead {
            let delay = if fates.chance(late) { fates.roll(30_000) } else { 0 };
            arrivals.push(latency + Duration::from_micros(delay));
        }
        if fates.chance(doubles) && !dead {
            arrivals.push(latency + Duration::from_micros(fates.roll(5000)));
        }
        arrivals
    });
    pair.moves = moves;
    let data = pattern(60_000);
    let mut transcript = Transcript::default();
    for _ in 0..150 {
        // The device is full now and then.
        let side = if dice.chance(50) { A } else { B };
        if dice.chance(5) {
            pair.device_room = dice.roll(3) as usize;
            let len = 1 + dice.roll(20_000) as usize;
            transcript.results.push((side, pair.write(side, &data[..len])));
            pair.transmit();
            pair.device_room = usize::MAX;
        }
        act(&mut pair, &mut dice, side, &data, &mut transcript);
        let now = pair.now;
        for side in [A, B] {
            let end = pair.side(side);
            transcript.standing.push((end.state(), end.readiness(), end.counters(), end.details(now), end.cwnd(), end.deadline()));
        }
    }
    transcript.packets = core::mem::take(&mut pair.log);
    transcript
}

/// The first difference, if there is one: whole transcripts are too long to be read.
pub(super) fn difference(still: &Transcript, moving: &Transcript) -> Option<String> {
    let at = still.packets.iter().zip(&moving.packets).position(|(one, other)| one != other);
    if let Some(at) = at {
        let show = |packet: &Packet| format!("{:?} at {:?}, {} bytes: {:?}", packet.from, packet.sent, packet.payload.len(), packet.header);
        return Some(format!("packet {at}:\n{}\n{}", show(&still.packets[at]), show(&moving.packets[at])));
    }
    let at = still.standing.iter().zip(&moving.standing).position(|(one, other)| one != other);
    if let Some(at) = at {
        return Some(format!("step {}:\n{:?}\n{:?}", at / 2, still.standing[at], moving.standing[at]));
    }
    (still != moving).then(|| format!("{} and {} packets", still.packets.len(), moving.packets.len()))
}

pub(super) fn config() -> impl Strategy<Value = Config> {
    let sizes = (
        prop_oneof![Just(200u16), Just(1460), Just(9000)],
        proptest::option::of(2000..200_000usize),
        prop_oneof![Just(0), 500..60_000usize],
    );
    (sizes, any::<[bool; 5]>()).prop_map(
        |((mss_max, rcvbuf, tso_max), [timestamps, sack, window_scaling, nodelay, black_hole_detection])| Config {
            mss_max,
            rcvbuf,
            gather_max: GATHER_LIMIT,
            tso_max,
            timestamps,
            sack,
            window_scaling,
            nodelay,
            black_hole_detection,
            ..Config::default()
        },
    )
}

/// Whatever is forgotten, somebody can tell: so much is in the transcripts.
#[cfg(feature = "mutants")]
#[test]
fn what_is_forgotten_shows() {
    use crate::mutants::Mutant;
    let mutants = [
        Mutant::SnapshotLosesUnread,
        Mutant::SnapshotForgetsReadShut,
        Mutant::SnapshotForgetsWindow,
        Mutant::SnapshotForgetsHeld,
        Mutant::SnapshotForgetsReported,
        Mutant::SnapshotForgetsBackoff,
        Mutant::SnapshotForgetsTimers,
        Mutant::SnapshotForgetsMore,
        Mutant::SnapshotForgetsPath,
        Mutant::SnapshotForgetsCounters,
        Mutant::ResumeRestartsTimestamps,
        Mutant::ResumeRestoresInitialWindow,
    ];
    for mutant in mutants {
        let healthy = [Config::default(), Config { mss_max: 700, ..Config::default() }];
        let ill = healthy.clone().map(|config| Config { mutant, ..config });
        let shows = |seed| difference(&play(seed, &healthy, Some(7)), &play(seed, &ill, Some(7))).is_some();
        assert!((1..20).any(|seed| shows(0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(seed))), "{mutant:?}");
    }
}

/// Clocks of two processes that began on different days: what the one sends goes on from what the other sent (RFC 7323 s5.3).
#[test]
fn who_takes_a_connection_with_an_earlier_clock_sends_no_old_timestamps() {
    let config = Config::default();
    let mut pair = Pair::open(&config, &config);
    pair.run(ms(2500));
    pair.write(A, b"by the one").unwrap();
    pair.settle();
    let (later, earlier) = (pair.now, Instant::from_nanos(pair.now.as_nanos() - 2_000_000_000));
    pair.a = moved(earlier, &config, &pair.a).expect("it can move");
    pair.now = earlier;
    pair.write(A, b", and by the other").unwrap();
    pair.transmit();
    pair.now = later;
    pair.settle();
    assert_eq!(pair.read(B), b"by the one, and by the other");
    assert_eq!(pair.a.counters().retransmissions, 0);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn nobody_can_tell_that_it_moved(seed in 1..u64::MAX, a in config(), b in config(), every in prop_oneof![Just(1), 1..40u64]) {
        // (What the program set is the connection's, and the ring that takes it begins without.)
        let configs = [a, b];
        let (still, moving) = (play(seed, &configs, None), play(seed, &configs, Some(every)));
        prop_assert_eq!(difference(&still, &moving), None);
    }
}
