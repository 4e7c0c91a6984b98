use super::*;
use core::time::Duration;

#[test]
fn a_pattern_is_the_same_from_any_offset() {
    let pattern = Pattern(99);
    let mut whole = [0; 100];
    pattern.fill(0, &mut whole);
    for (start, len) in [(0, 1), (3, 20), (8, 8), (15, 85), (99, 1), (50, 0)] {
        let mut part = vec![0; len];
        pattern.fill(start as u64, &mut part);
        assert_eq!(part, whole[start..start + len]);
        assert_eq!(pattern.mismatch(start as u64, &part), None);
    }
}

#[test]
fn misplaced_bytes_are_noticed() {
    let pattern = Pattern(7);
    let mut bytes = [0; 64];
    pattern.fill(1000, &mut bytes);
    assert!(pattern.mismatch(1001, &bytes).is_some());
    assert!(pattern.mismatch(1064, &bytes).is_some());
    assert!(Pattern(8).mismatch(1000, &bytes).is_some());
    bytes[13] ^= 1;
    assert_eq!(pattern.mismatch(1000, &bytes), Some(1013));
}

#[test]
fn every_datagram_of_a_series_is_its_own() {
    let mut pings = Pings::new(10, (8, 40), Duration::from_millis(1), Pattern(3));
    pings.sent = 10;
    let all: Vec<_> = (0..10).map(|n| pings.datagram(n)).collect();
    for (n, datagram) in all.iter().enumerate() {
        assert!((8..=40).contains(&datagram.len()));
        assert!(!all[..n].contains(datagram));
        pings.check(datagram, false);
    }
    assert!((0..10).all(|n| pings.echoed[&n] == 1));
}

#[test]
#[should_panic(expected = "a datagram nobody sent")]
fn an_invented_datagram_is_noticed() {
    let mut pings = Pings::new(1, (8, 40), Duration::from_millis(1), Pattern(3));
    pings.sent = 1;
    pings.check(&pings.clone().datagram(1), false);
}

#[test]
#[should_panic(expected = "is not whole")]
fn a_cut_datagram_is_noticed() {
    let mut pings = Pings::new(1, (20, 40), Duration::from_millis(1), Pattern(3));
    pings.sent = 1;
    let datagram = pings.datagram(0);
    pings.check(&datagram[..datagram.len() - 1], false);
}
