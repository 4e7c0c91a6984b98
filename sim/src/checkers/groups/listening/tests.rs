//! What is listened to, as it is told, and as it is not.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::*;

const GROUP: Ipv6Addr = Ipv6Addr::new(0xff05, 0, 0, 0, 0, 0, 0, 1);
const ONE: FlowId = FlowId { ring: 0, index: 0, generation: 0 };
const OTHER: FlowId = FlowId { ring: 0, index: 1, generation: 0 };
const TO_INCLUDE: u8 = 3;
const TO_EXCLUDE: u8 = 4;
const ALLOW: u8 = 5;
const BLOCK: u8 = 6;

fn at(millis: u64) -> Moment {
    Moment::after(millis)
}

fn source(n: u16) -> Ipv6Addr {
    Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, n)
}

fn wish(others: bool, named: &[u16]) -> Wish {
    Wish { others, named: named.iter().copied().map(source).collect() }
}

fn record(kind: u8, sources: &[u16]) -> Record {
    Record { kind, group: GROUP, sources: sources.iter().copied().map(source).collect() }
}

fn says(law: &str, what: impl FnOnce()) {
    let breach = catch_unwind(AssertUnwindSafe(what)).err().map(|breach| *breach.downcast::<String>().unwrap());
    assert!(breach.as_ref().is_some_and(|breach| breach.contains(law)), "{law}: {breach:?}");
}

/// A ring with a listener, whose change has been told twice, by two seconds.
fn settled(wish: Wish) -> Listening {
    let mut listening = Listening::default();
    let kind = if wish.others { TO_EXCLUDE } else { ALLOW };
    listening.wants(at(1000).at, GROUP, ONE, wish.clone());
    for millis in [1000, 1500] {
        listening.reports(at(millis).at, &[Record { kind, group: GROUP, sources: wish.named.clone() }]).unwrap();
        listening.settle(true, &at(millis));
    }
    listening.settle(true, &at(60_000));
    listening
}

/// A question about the group, or about all.
fn question(about: Option<Ipv6Addr>, within: u16, robustness: u8, sources: &[u16]) -> Vec<u8> {
    let mut message = vec![QUERY, 0, 0, 0];
    message.extend(within.to_be_bytes());
    message.extend([0, 0]);
    message.extend(about.unwrap_or(Ipv6Addr::UNSPECIFIED).octets());
    message.extend([robustness, 125, 0, sources.len() as u8]);
    message.extend(sources.iter().flat_map(|&n| source(n).octets()));
    message
}

#[test]
fn changes_are_told_at_once_and_again() {
    let listening = settled(wish(true, &[]));
    assert!(!listening.is_quiet());
    let mut listening = settled(wish(false, &[1]));
    listening.wants(at(60_000).at, GROUP, OTHER, wish(false, &[2]));
    listening.reports(at(60_000).at, &[record(ALLOW, &[2])]).unwrap();
    listening.settle(true, &at(60_000));
    says("of ff05::1 it was to be told again by Instant(61000000000)", || listening.settle(true, &at(61_100)));
    listening.reports(at(60_500).at, &[record(ALLOW, &[2])]).unwrap();
    listening.settle(true, &at(61_100));
    listening.wants(at(62_000).at, GROUP, ONE, Wish::default());
    says("and Wish { others: false, named: {fd00::2} } is wanted", || listening.settle(true, &at(62_000)));
    listening.reports(at(62_000).at, &[record(BLOCK, &[1])]).unwrap();
    listening.wants(at(62_000).at, GROUP, OTHER, Wish::default());
    says("and Wish { others: false, named: {} } is wanted", || listening.settle(true, &at(62_000)));
    for millis in [62_000, 62_900] {
        listening.reports(at(millis).at, &[record(BLOCK, &[2])]).unwrap();
        listening.settle(true, &at(millis));
    }
    assert!(!listening.is_quiet());
    listening.settle(true, &at(70_000));
    assert!(listening.is_quiet(), "nobody listens, and it was told often enough");
}

#[test]
fn what_is_told_is_true_or_was_in_this_service() {
    let mut listening = settled(wish(true, &[1, 2]));
    for (kind, sources, is_true) in [
        (TO_EXCLUDE, &[1, 2][..], true),
        (TO_EXCLUDE, &[1], false),
        (TO_EXCLUDE, &[], false),
        (TO_INCLUDE, &[], false),
        (TO_INCLUDE, &[3], false),
        (1, &[3, 4], true),
        (1, &[], false),
        (1, &[2], false),
        (2, &[1, 2], true),
        (ALLOW, &[3], true),
        (ALLOW, &[1], false),
        (BLOCK, &[1], true),
        (BLOCK, &[3], false),
        (9, &[], false),
    ] {
        assert_eq!(listening.reports(at(60_000).at, &[record(kind, sources)]).is_ok(), is_true, "{kind}, {sources:?}");
    }
    listening.wants(at(60_000).at, GROUP, ONE, wish(true, &[]));
    assert!(listening.reports(at(60_000).at, &[record(2, &[1, 2])]).is_ok(), "it was so before");
    listening.reports(at(60_000).at, &[record(BLOCK, &[1]), record(ALLOW, &[1, 2])]).unwrap();
    listening.settle(true, &at(60_000));
    assert!(listening.reports(at(60_000).at, &[record(2, &[1, 2])]).is_err());
    let of_another = Record { group: ALL_NODES, ..record(2, &[]) };
    assert!(listening.reports(at(60_000).at, &[of_another]).is_err());
}

#[test]
fn routers_are_answered() {
    for (about, sources, answers) in [
        (None, &[][..], Some((2, &[1, 2][..]))),
        (Some(GROUP), &[], Some((2, &[1, 2]))),
        (Some(GROUP), &[1, 7], Some((1, &[7]))),
        (Some(GROUP), &[1], None),
        (Some(ALL_ROUTERS), &[], None),
    ] {
        let mut listening = settled(wish(true, &[1, 2]));
        listening.asked(at(60_000).at, &question(about, 1000, 2, sources)).unwrap();
        listening.settle(true, &at(61_000));
        match answers {
            None => listening.settle(true, &at(61_100)),
            Some((kind, named)) => {
                says("a router that asks about ff05::1 was to be answered by Instant(61000000000)", || listening.settle(true, &at(61_100)));
                listening.reports(at(61_000).at, &[record(kind, named)]).unwrap();
                listening.settle(true, &at(61_100));
            }
        }
    }
    // An answer about some sources is none about all; who asks about all and about some is answered once.
    let mut listening = settled(wish(true, &[1, 2]));
    for sources in [&[7][..], &[]] {
        listening.asked(at(60_000).at, &question(Some(GROUP), 1000, 2, sources)).unwrap();
    }
    listening.reports(at(60_500).at, &[record(1, &[7])]).unwrap();
    says("was to be answered", || listening.settle(true, &at(61_100)));
    listening.reports(at(61_000).at, &[record(2, &[1, 2])]).unwrap();
    listening.settle(true, &at(61_100));
    // Each of two questions has its own time, if one is about every group.
    let mut listening = settled(wish(true, &[1, 2]));
    listening.asked(at(60_000).at, &question(Some(GROUP), 1000, 2, &[7])).unwrap();
    listening.asked(at(60_000).at, &question(None, 3000, 2, &[])).unwrap();
    listening.reports(at(61_000).at, &[record(1, &[7])]).unwrap();
    listening.settle(true, &at(63_000));
    says("was to be answered by Instant(63000000000)", || listening.settle(true, &at(63_100)));
    listening.reports(at(63_000).at, &[record(2, &[1, 2])]).unwrap();
    // An answer about this group leaves the one about every group to come, which answers whoever asks until then, though not sooner.
    for (asked_at, is_new, is_late) in [(62_000, false, false), (62_000, true, false), (64_000, false, true)] {
        let mut listening = settled(wish(true, &[1, 2]));
        if is_new {
            // (Nobody listened to it when that was asked.)
            listening = Listening::default();
        }
        listening.asked(at(60_000).at, &question(None, 3000, 2, &[])).unwrap();
        if is_new {
            listening.wants(at(60_500).at, GROUP, ONE, wish(true, &[1, 2]));
            listening.reports(at(60_500).at, &[record(4, &[1, 2])]).unwrap();
            listening.reports(at(61_000).at, &[record(4, &[1, 2])]).unwrap();
        } else {
            listening.reports(at(60_500).at, &[record(2, &[1, 2])]).unwrap();
        }
        listening.asked(at(asked_at).at, &question(Some(GROUP), 2000, 2, &[])).unwrap();
        listening.asked(at(asked_at).at, &question(Some(GROUP), 100, 2, &[7])).unwrap();
        match is_late {
            true => says("was to be answered", || listening.settle(true, &at(asked_at + 200))),
            false => listening.settle(true, &at(asked_at + 200)),
        }
    }
    // Who asks says how often changes are told.
    listening.asked(at(70_000).at, &question(Some(ALL_ROUTERS), 1000, 1, &[])).unwrap();
    listening.wants(at(70_000).at, GROUP, ONE, wish(true, &[]));
    listening.reports(at(70_000).at, &[record(ALLOW, &[1, 2])]).unwrap();
    listening.settle(true, &at(90_000));
    assert!(listening.asked(at(70_000).at, &question(None, 0, 2, &[1])[..30]).is_none());
}

#[test]
fn who_has_an_excuse_is_not_judged() {
    let mut listening = settled(wish(true, &[]));
    listening.wants(at(60_000).at, GROUP, ONE, Wish::default());
    listening.settle(false, &at(60_000));
    listening.settle(true, &at(70_000));
    assert!(listening.is_quiet());
}

#[test]
fn wishes_come_together() {
    let together = |wishes: &[Wish]| Wish::of_all(wishes.iter());
    assert_eq!(together(&[]), Wish::default());
    assert_eq!(together(&[wish(false, &[1, 2]), wish(false, &[2, 3])]), wish(false, &[1, 2, 3]));
    assert_eq!(together(&[wish(true, &[1, 2, 3]), wish(true, &[2, 3, 4]), wish(false, &[3])]), wish(true, &[2]));
}
