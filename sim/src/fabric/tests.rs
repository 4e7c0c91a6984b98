use super::*;
use crate::checksum;
use crate::frames;
use ringway_stack::device::ChecksumVerdict;

fn frame(bytes: Vec<u8>) -> Frame {
    Frame { id: 0, bytes: bytes.into(), marks: Marks::default() }
}

fn datagram() -> Frame {
    frame(frames::udp("10.0.0.1:1".parse().unwrap(), "10.0.0.2:2".parse().unwrap(), &[7; 300]))
}

fn lane(faults: Faults) -> Lane {
    let config = LinkConfig { faults, bandwidth_bps: None, ..LinkConfig::default() };
    Lane::new(1, 0, Direction::Down, config)
}

const ALL: Faults = Faults {
    loss_ppm: 100_000,
    duplication_ppm: 150_000,
    duplication_delay_max: Duration::from_micros(300),
    reordering_ppm: 200_000,
    reordering_delay_max: Duration::from_micros(700),
    corruption_ppm: 120_000,
};

#[test]
fn latency_and_bandwidth_add_up() {
    let config = LinkConfig { latency: Duration::from_micros(10), bandwidth_bps: Some(1_000_000_000), ..LinkConfig::default() };
    let mut lane = Lane::new(1, 0, Direction::Up, config);
    // 976 bytes and the 24 of Ethernet's overhead: 8 µs at 1 Gbit/s, each.
    let first = lane.offer(Instant::ZERO, frame(vec![0; 976]), true);
    let second = lane.offer(Instant::ZERO, frame(vec![0; 976]), true);
    assert_eq!(first.arrivals[0].at, Instant::from_nanos(18_000));
    assert_eq!(second.departs, Instant::from_nanos(16_000));
    assert_eq!(second.arrivals[0].at, Instant::from_nanos(26_000));
}

#[test]
fn the_switch_drops_what_its_queue_cannot_hold_and_the_host_waits() {
    let config = LinkConfig { bandwidth_bps: Some(8_000), queue_bytes_max: 2_500, ..LinkConfig::default() };
    let dropped = |direction| {
        let mut lane = Lane::new(1, 0, direction, config);
        (0..4).filter(|_| lane.offer(Instant::ZERO, frame(vec![0; 976]), true).arrivals.is_empty()).count()
    };
    assert_eq!(dropped(Direction::Down), 2);
    assert_eq!(dropped(Direction::Up), 0);
}

/// The point of a stream a class: which frames one fault strikes doesn't depend on the others.
#[test]
fn a_fault_class_reshuffles_no_other() {
    let struck_by = |faults: Faults, which: fn(&Strike) -> bool| {
        let mut lane = lane(faults);
        (0..2000).map(|_| lane.offer(Instant::ZERO, datagram(), true).strikes.iter().any(which)).collect::<Vec<_>>()
    };
    let lost = |s: &Strike| matches!(s, Strike::Lost);
    let losses = struck_by(Faults { loss_ppm: ALL.loss_ppm, ..Faults::default() }, lost);
    assert!(losses.contains(&true));
    assert_eq!(losses, struck_by(ALL, lost));

    let without_loss = Faults { loss_ppm: 0, ..ALL };
    let duplicated = |s: &Strike| matches!(s, Strike::Duplicated { .. });
    let alone = struck_by(Faults { duplication_ppm: ALL.duplication_ppm, ..Faults::default() }, duplicated);
    assert_eq!(alone, struck_by(without_loss, duplicated));
}

#[test]
fn corruption_is_always_caught_and_never_touches_addresses() {
    let mut lane = lane(Faults { corruption_ppm: 1_000_000, ..Faults::default() });
    let clean = datagram();
    for _ in 0..2000 {
        let passage = lane.offer(Instant::ZERO, clean.clone(), true);
        let bytes = &passage.arrivals[0].frame.bytes;
        assert_eq!(checksum::verify(bytes), ChecksumVerdict::Bad);
        assert_eq!(bytes[..14], clean.bytes[..14]);
        let Strike::Corrupted { len, .. } = passage.strikes[0] else { panic!("{:?}", passage.strikes) };
        assert!((1..=15).contains(&len));
    }
}

#[test]
fn what_has_no_checksum_is_dropped_instead_of_corrupted() {
    let mut lane = lane(Faults { corruption_ppm: 1_000_000, ..Faults::default() });
    let passage = lane.offer(Instant::ZERO, frame(frames::experimental(frames::mac(1), frames::mac(0), &[1; 80])), true);
    assert_eq!(passage.strikes[..], [Strike::FrameCheck]);
    assert!(passage.arrivals.is_empty());
}

#[test]
fn faults_off_means_none() {
    let mut lane = lane(ALL);
    for _ in 0..500 {
        let passage = lane.offer(Instant::ZERO, datagram(), false);
        assert_eq!((passage.arrivals.len(), passage.strikes.len()), (1, 0));
    }
}

#[test]
fn strengths_are_met() {
    let mut lane = lane(Faults { loss_ppm: 0, ..ALL });
    let mut counts = [0; 3];
    for _ in 0..10_000 {
        for strike in lane.offer(Instant::ZERO, datagram(), true).strikes {
            match strike {
                Strike::Duplicated { .. } => counts[0] += 1,
                Strike::HeldBack { .. } => counts[1] += 1,
                Strike::Corrupted { .. } => counts[2] += 1,
                other => panic!("{other}"),
            }
        }
    }
    for (count, expected) in counts.into_iter().zip([1500, 2000, 1200i32]) {
        assert!((count - expected).abs() < 200, "{counts:?}");
    }
}

#[test]
fn the_switch_goes_by_address() {
    let mut fabric = Fabric::default();
    for i in 0..3 {
        fabric.attach(1, frames::mac(i), LinkConfig::default());
    }
    let to = |mac| fabric.route(0, &frames::experimental(mac, frames::mac(0), &[]));
    assert_eq!(to(frames::mac(2))[..], [2]);
    assert_eq!(to(MacAddr::BROADCAST)[..], [1, 2]);
    assert!(to(frames::mac(9)).is_empty());
    assert!(to(frames::mac(0)).is_empty());
}
