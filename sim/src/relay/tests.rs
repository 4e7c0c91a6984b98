use core::time::Duration;

use super::*;
use crate::fabric::Marks;
use crate::faults::{Episodes, Faults};
use crate::frames;

fn datagram(len: usize) -> Vec<u8> {
    frames::udp("10.0.0.1:1".parse().unwrap(), "10.0.0.2:2".parse().unwrap(), &vec![7; len])
}

fn at(us: u64) -> Instant {
    Instant::from_nanos(us * 1000)
}

/// As fast as can be, but for faults.
fn link(faults: Faults) -> LinkConfig {
    LinkConfig { latency: Duration::ZERO, bandwidth_bps: None, faults, ..LinkConfig::default() }
}

fn all() -> Faults {
    Faults {
        loss_ppm: 50_000,
        duplication_ppm: 60_000,
        duplication_delay_max: Duration::from_millis(2),
        reordering_ppm: 70_000,
        reordering_delay_max: Duration::from_millis(3),
        corruption_ppm: 80_000,
        ..Faults::default()
    }
}

/// So many frames, one every 100 µs, by turns from either side, whose payload is their number; and all that leaves, in its order.
fn story(relay: &mut Relay, count: u16) -> Vec<Leaving> {
    let mut left = Vec::new();
    for number in 0..count {
        let now = at(100 * u64::from(number));
        left.extend(core::iter::from_fn(|| relay.leave(now)));
        let payload = [&number.to_be_bytes()[..], &[9; 200]].concat();
        let port = Port::BOTH[usize::from(number % 2)];
        relay.arrive(now, port, &frames::udp("10.0.0.1:1".parse().unwrap(), "10.0.0.2:2".parse().unwrap(), &payload));
    }
    left.extend(core::iter::from_fn(|| relay.leave(Instant::MAX)));
    left
}

#[test]
fn what_comes_in_at_one_port_leaves_by_the_other_when_it_is_due() {
    let config = LinkConfig { latency: Duration::from_micros(10), bandwidth_bps: Some(1_000_000_000), ..LinkConfig::default() };
    let mut relay = Relay::new(1, config);
    assert_eq!(relay.next_at(), None);
    // 42 bytes of headers and 24 of Ethernet's overhead: 8 µs each at 1 Gbit/s, one after the other; the other way has its own wire.
    let bytes = datagram(934);
    for port in [Port::Near, Port::Near, Port::Far] {
        relay.arrive(at(100), port, &bytes);
    }
    assert_eq!(relay.next_at(), Some(at(118)));
    assert_eq!(relay.leave(Instant::from_nanos(117_999)), None);
    let left: Vec<_> = core::iter::from_fn(|| relay.leave(at(126))).collect();
    assert_eq!(
        left.iter().map(|leaving| (leaving.port, leaving.at)).collect::<Vec<_>>(),
        [(Port::Far, at(118)), (Port::Near, at(118)), (Port::Far, at(126))]
    );
    assert!(left.iter().all(|leaving| leaving.bytes[..] == bytes && leaving.marks.is_empty()));
    assert_eq!((relay.passed(), relay.counts()), ([3, 3], FaultCounts::default()));
}

#[test]
fn a_seed_has_one_story() {
    let of = |seed| story(&mut Relay::new(seed, link(all())), 2000);
    assert_eq!(of(1), of(1));
    assert_ne!(of(1), of(2));
}

/// Frame by frame, what befalls them is what a lane of the simulator's draws.
#[test]
fn faults_are_the_simulators() {
    let mut relay = Relay::new(5, link(all()));
    let mut lane = Lane::new(5, Port::Far as usize, Direction::Down, link(all()));
    for id in 0..2000 {
        let bytes = datagram(300);
        relay.arrive(at(id), Port::Near, &bytes);
        let frame = Frame { id, bytes: bytes.into(), marks: Marks::default(), sound: false, unsolicited: false };
        let mut expected: Vec<_> = lane.offer(at(id), frame, true).arrivals.into_iter().collect();
        expected.sort_by_key(|arrival| arrival.at);
        for arrival in expected {
            let leaving = relay.leave(Instant::MAX).unwrap();
            assert_eq!((leaving.at, leaving.bytes, leaving.marks), (arrival.at, arrival.frame.bytes, arrival.frame.marks));
        }
        assert_eq!(relay.next_at(), None);
    }
}

#[test]
fn each_fault_is_counted_and_shows() {
    let mut relay = Relay::new(3, link(all()));
    let left = story(&mut relay, 4000);
    let counts = relay.counts();
    let marked = |mark| left.iter().filter(|leaving| leaving.marks.contains(mark)).count() as u64;
    assert_eq!(marked(Marks::DUPLICATE), counts.duplicated);
    assert_eq!(marked(Marks::HELD_BACK), counts.held_back);
    assert_eq!(marked(Marks::CORRUPTED), counts.corrupted);
    assert_eq!(relay.passed(), [4000, 4000 - counts.lost + counts.duplicated]);
    for (count, expected) in [(counts.lost, 200), (counts.duplicated, 228), (counts.held_back, 266), (counts.corrupted, 304u64)] {
        assert!(count.abs_diff(expected) < 70, "{counts:?}");
    }
    let number = |leaving: &Leaving| u16::from_be_bytes([leaving.bytes[42], leaving.bytes[43]]);
    let plain: Vec<_> = left.iter().filter(|leaving| !leaving.marks.contains(Marks::CORRUPTED)).map(number).collect();
    assert!(!plain.is_sorted(), "nothing was overtaken");
}

#[test]
fn a_queue_is_bounded_each_way() {
    let config = LinkConfig { bandwidth_bps: Some(8_000), queue_bytes_max: 2_500, ..link(Faults::default()) };
    let mut relay = Relay::new(1, config);
    for port in [Port::Near, Port::Near, Port::Near, Port::Near, Port::Far] {
        relay.arrive(at(0), port, &datagram(934));
    }
    assert_eq!(relay.counts().queue_full, 2);
    assert_eq!(core::iter::from_fn(|| relay.leave(Instant::MAX)).filter(|leaving| leaving.port == Port::Far).count(), 2);
    assert_eq!(relay.passed(), [5, 3]);
}

#[test]
fn a_link_is_slow_or_dark_for_a_while() {
    let often = Episodes { every: Duration::from_millis(20), length_max: Duration::from_millis(20) };
    let slow = Faults { delay: often, delay_max: Duration::from_millis(5), jitter_max: Duration::from_millis(1), ..Faults::default() };
    let mut relay = Relay::new(7, link(slow));
    let left = story(&mut relay, 5000);
    let delayed = relay.counts().delayed;
    assert!((500..4500).contains(&delayed), "{delayed} of 5000");
    assert_eq!(left.iter().filter(|leaving| leaving.marks.contains(Marks::DELAYED)).count() as u64, delayed);
    assert!(left.is_sorted_by_key(|leaving| leaving.at));
    assert_eq!(left.len(), 5000);

    let mut relay = Relay::new(7, link(Faults { flap: often, ..Faults::default() }));
    let left = story(&mut relay, 5000).len() as u64;
    let counts = relay.counts();
    assert!(counts.flaps > 5 && (500..4500).contains(&counts.link_down), "{counts:?}");
    assert_eq!(left, 5000 - counts.link_down);
}

#[test]
fn who_sends_what_is_too_long_is_told_of_it() {
    let faults = Faults { mtu_silence_ppm: 500_000, ..Faults::default() };
    let mut relay = Relay::new(1, LinkConfig { mtu: Some(1000), ..link(faults) });
    for _ in 0..100 {
        relay.arrive(at(0), Port::Near, &datagram(1200));
        relay.arrive(at(0), Port::Near, &datagram(900));
    }
    let left: Vec<_> = core::iter::from_fn(|| relay.leave(Instant::MAX)).collect();
    let told = left.iter().filter(|leaving| leaving.port == Port::Near).count() as u64;
    let counts = relay.counts();
    assert!(left.iter().all(|leaving| leaving.marks.contains(Marks::ROUTER) == (leaving.port == Port::Near)));
    assert_eq!((counts.too_long, counts.fragmentation_needed), (100, told));
    assert!((25..75).contains(&told), "{told} of 100");
}
