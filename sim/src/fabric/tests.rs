mod roce;

use super::*;
use crate::checksum;
use crate::frames;
use ringway_stack::device::ChecksumVerdict;

fn frame(bytes: Vec<u8>) -> Frame {
    Frame { id: 0, bytes: bytes.into(), marks: Marks::default(), sound: false, unsolicited: false }
}

fn datagram() -> Frame {
    frame(frames::udp("10.0.0.1:1".parse().unwrap(), "10.0.0.2:2".parse().unwrap(), &[7; 300]))
}

fn lane(faults: Faults) -> Lane {
    let config = LinkConfig { faults, bandwidth_bps: None, ..LinkConfig::default() };
    Lane::new(1, 0, Direction::Down, config)
}

fn all() -> Faults {
    Faults {
        loss_ppm: 100_000,
        duplication_ppm: 150_000,
        duplication_delay_max: Duration::from_micros(300),
        reordering_ppm: 200_000,
        reordering_delay_max: Duration::from_micros(700),
        corruption_ppm: 120_000,
        ..Faults::default()
    }
}

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

#[test]
fn a_long_queue_marks_what_is_capable_of_ecn() {
    let config = LinkConfig { bandwidth_bps: Some(8_000), mark_bytes: Some(500), ..LinkConfig::default() };
    for (ecn, is_marked) in [(2, true), (1, true), (0, false)] {
        let mut bytes = datagram().bytes.to_vec();
        bytes[15] |= ecn;
        // (Its header's checksum was right without.)
        let sum = u16::from_be_bytes([bytes[24], bytes[25]]) - u16::from(ecn);
        bytes[24..26].copy_from_slice(&sum.to_be_bytes());
        let mut lane = Lane::new(1, 0, Direction::Down, config);
        let marks: Vec<bool> = (0..4)
            .map(|_| {
                let arrived = lane.offer(Instant::ZERO, frame(bytes.clone()), true).arrivals.remove(0).frame.bytes;
                assert_eq!(checksum::verify(&arrived), checksum::verify(&datagram().bytes), "a router's change leaves checksums right");
                arrived[15] & 3 == 3
            })
            .collect();
        assert_eq!(marks, [false, false, is_marked, is_marked], "{ecn}: behind 700 bytes, and not behind 350");
        assert!(lane.pass(Instant::ZERO, 300, true).is_none(), "there is no shorter way past the queue");
    }
    // IPv6 has no checksum of its own.
    let v6 = |second: u8| [&[0; 12][..], &[0x86, 0xdd, 0x60, second, 0, 0], &[0; 36]].concat();
    assert_eq!(ecn::marked(&v6(0x25)).as_deref(), Some(&v6(0x35)[..]));
    assert_eq!([ecn::marked(&v6(0x05)), ecn::marked(&v6(0x35)), ecn::marked(&v6(0x25)[..15])], [None, None, None]);
}

/// The point of a stream a class: which frames one fault strikes doesn't depend on the others.
#[test]
fn a_fault_class_reshuffles_no_other() {
    let struck_by = |faults: Faults, which: fn(&Strike) -> bool| {
        let mut lane = lane(faults);
        (0..2000).map(|_| lane.offer(Instant::ZERO, datagram(), true).strikes.iter().any(which)).collect::<Vec<_>>()
    };
    let lost = |s: &Strike| matches!(s, Strike::Lost);
    let losses = struck_by(Faults { loss_ppm: all().loss_ppm, ..Faults::default() }, lost);
    assert!(losses.contains(&true));
    assert_eq!(losses, struck_by(all(), lost));
    let bursts = Faults { burst_ppm: 100_000, burst_frames: 9, burst_loss_ppm: 500_000, ..all() };
    let more = Faults { hidden_corruption_ppm: 100_000, icmp_delay_ppm: 100_000, ..bursts };
    assert_eq!(losses, struck_by(more, lost));
    let hidden = |s: &Strike| matches!(s, Strike::HiddenCorruption { .. });
    let only = Faults { hidden_corruption_ppm: 100_000, ..Faults::default() };
    assert_eq!(struck_by(only, hidden), struck_by(Faults { duplication_ppm: 500_000, reordering_ppm: 500_000, ..only }, hidden));

    let without_loss = Faults { loss_ppm: 0, ..all() };
    let duplicated = |s: &Strike| matches!(s, Strike::Duplicated { .. });
    let alone = struck_by(Faults { duplication_ppm: all().duplication_ppm, ..Faults::default() }, duplicated);
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
    let mut lane = lane(all());
    for _ in 0..500 {
        let passage = lane.offer(Instant::ZERO, datagram(), false);
        assert_eq!((passage.arrivals.len(), passage.strikes.len()), (1, 0));
    }
}

#[test]
fn strengths_are_met() {
    let mut lane = lane(Faults { loss_ppm: 0, ..all() });
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
fn bursts_are_long_and_their_losses_frequent() {
    let faults = Faults { burst_ppm: 20_000, burst_frames: 20, burst_loss_ppm: 1_000_000, ..Faults::default() };
    let mut lane = lane(faults);
    let lost: Vec<bool> = (0..50_000).map(|_| lane.offer(Instant::ZERO, datagram(), true).strikes[..] == [Strike::BurstLost]).collect();
    let total = lost.iter().filter(|&&l| l).count();
    let bursts = lost.windows(2).filter(|w| w == &[false, true]).count();
    // Good for 50 frames, bad for 20: two frames in seven vanish.
    assert!((12_000..17_000).contains(&total), "{total}");
    assert!((17..24).contains(&(total / bursts)), "{total} in {bursts} bursts");
}

#[test]
fn hidden_corruption_changes_payload_only_and_every_checksum_comes_out_right() {
    let mut lane = lane(Faults { hidden_corruption_ppm: 1_000_000, ..Faults::default() });
    let varied: Vec<u8> = (0..300u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    for payload in [&varied[..], &[7; 300], &[1], &[0xff; 2]] {
        let clean = frame(frames::udp("10.0.0.1:1".parse().unwrap(), "10.0.0.2:2".parse().unwrap(), payload));
        for _ in 0..500 {
            let passage = lane.offer(Instant::ZERO, clean.clone(), true);
            let struck = &passage.arrivals[0].frame;
            assert_eq!(checksum::verify(&struck.bytes), ChecksumVerdict::Good);
            assert_ne!(struck.bytes[42..], clean.bytes[42..]);
            // The checksum itself changes only where nothing could compensate.
            let end = if payload.len() > 200 && payload[0] == 0 { 42 } else { 40 };
            assert_eq!(struck.bytes[..end], clean.bytes[..end]);
            assert_eq!(struck.marks, Marks::HIDDEN);
        }
    }
    let empty = frame(frames::udp("10.0.0.1:1".parse().unwrap(), "10.0.0.2:2".parse().unwrap(), &[]));
    assert!(lane.offer(Instant::ZERO, empty, true).strikes.is_empty(), "a header was hit");
}

#[test]
fn a_slower_link_keeps_the_order() {
    let mut lane = lane(Faults::default());
    let arrival = |lane: &mut Lane, at: u64| lane.offer(Instant::from_nanos(at), datagram(), true).arrivals[0].at;
    assert_eq!(arrival(&mut lane, 0), Instant::from_nanos(5_000));
    lane.conditions_mut().delay = Some((Duration::from_micros(100), Duration::from_micros(50)));
    let mut slow: Vec<_> = (1..100).map(|i| arrival(&mut lane, i)).collect();
    assert!(slow.iter().all(|at| (105_000..=155_100).contains(&at.as_nanos())));
    assert!(slow.first() != slow.last(), "no jitter");
    lane.conditions_mut().delay = None;
    slow.extend((100..105).map(|i| arrival(&mut lane, i)));
    assert!(slow.is_sorted(), "overtaken");
    assert_eq!(arrival(&mut lane, 1_000_000), Instant::from_nanos(1_005_000));
}

#[test]
fn a_narrow_link_takes_longer_and_holds_less() {
    let config = LinkConfig { bandwidth_bps: Some(1_000_000_000), ..LinkConfig::default() };
    let mut lane = Lane::new(1, 0, Direction::Down, config);
    *lane.conditions_mut() = Conditions { bandwidth_bps: Some(8_000), queue_bytes_max: Some(2_500), ..Conditions::default() };
    let passages: Vec<_> = (0..4).map(|_| lane.offer(Instant::ZERO, frame(vec![0; 976]), true)).collect();
    assert_eq!(passages[0].departs, Instant::from_nanos(1_000_000_000));
    assert_eq!(passages.iter().filter(|p| p.strikes[..] == [Strike::QueueFull]).count(), 2);
}

#[test]
fn nothing_passes_a_link_without_carrier_nor_one_that_is_too_narrow_for_it() {
    for direction in [Direction::Up, Direction::Down] {
        let mut lane = Lane::new(1, 0, direction, LinkConfig::default());
        let strikes = |lane: &mut Lane| lane.offer(Instant::ZERO, datagram(), true).strikes;
        lane.conditions_mut().down = true;
        assert_eq!(strikes(&mut lane)[..], [Strike::LinkDown]);
        *lane.conditions_mut() = Conditions { mtu: Some(327), ..Conditions::default() };
        assert_eq!(strikes(&mut lane)[..], [Strike::TooLong { mtu: 327 }]);
        // 300 bytes and 28 of headers.
        lane.conditions_mut().mtu = Some(328);
        assert!(strikes(&mut lane).is_empty());
    }
}

#[test]
fn a_router_says_what_fits_and_about_what() {
    let mut frame = datagram().bytes.to_vec();
    let (mac, error) = icmp::fragmentation_needed(&frame, 1000).unwrap();
    assert_eq!(mac, frames::mac(0));
    assert_eq!(checksum::verify(&error), ChecksumVerdict::Good);
    assert_eq!(error[34..42], [3, 4, error[36], error[37], 0, 0, 0x03, 0xe8]);
    assert_eq!(error[42..70], frame[14..42]);
    assert!(icmp::is_error(&error) && !icmp::is_error(&frame));
    assert!(icmp::fragmentation_needed(&error, 40).is_none(), "an error about an error");
    frame[20] = 0;
    assert!(icmp::fragmentation_needed(&frame, 1000).is_none(), "about what may be fragmented");
}

#[test]
fn icmp_errors_are_late_and_nothing_else_is() {
    let faults = Faults { icmp_delay_ppm: 1_000_000, icmp_delay_max: Duration::from_secs(1), ..Faults::default() };
    let mut lane = lane(faults);
    let (_, error) = icmp::fragmentation_needed(&datagram().bytes, 1000).unwrap();
    assert!(lane.offer(Instant::ZERO, datagram(), true).strikes.is_empty());
    let passage = lane.offer(Instant::ZERO, frame(error), true);
    assert!(matches!(passage.strikes[..], [Strike::IcmpDelayed { .. }]));
    assert_eq!(passage.arrivals[0].frame.marks, Marks::DELAYED);
}

#[test]
fn a_line_has_two_sides() {
    for detail in 0..200 {
        let (both, one) = (Cut::drawn(detail, 3, 5, false), Cut::drawn(detail, 3, 5, true));
        let stops = |cut: &Cut, a, b| {
            let mut cuts = Cuts::default();
            cuts.add(Drawer::User, *cut);
            cuts.stop(a, b).is_some()
        };
        let pairs: Vec<_> = (0..5).flat_map(|a| (0..5).map(move |b| (a, b))).collect();
        assert!(pairs.iter().any(|&(a, b)| stops(&both, a, b)), "nobody is cut off");
        for (a, b) in pairs {
            assert_eq!(stops(&both, a, b), stops(&both, b, a));
            assert!(!(stops(&one, a, b) && stops(&one, b, a)));
            assert_eq!(stops(&one, a, b) || stops(&one, b, a), stops(&both, a, b));
        }
    }
}

#[test]
fn the_switch_goes_by_address() {
    let mut fabric = Fabric::default();
    for i in 0..3 {
        fabric.attach(1, frames::mac(i), LinkConfig::default());
    }
    let to = |fabric: &Fabric, mac| fabric.route(0, &frames::experimental(mac, frames::mac(0), &[])).collect::<Vec<_>>();
    assert_eq!(to(&fabric, frames::mac(2)), [2]);
    assert_eq!(to(&fabric, MacAddr::BROADCAST), [1, 2]);
    assert_eq!(to(&fabric, frames::mac(9)), [0; 0]);
    assert_eq!(to(&fabric, frames::mac(0)), [0; 0]);
    fabric.readdress(2, frames::mac(9));
    assert_eq!(to(&fabric, frames::mac(2)), [0; 0]);
    assert_eq!(to(&fabric, frames::mac(9)), [2]);
}
