//! Memberships, as they are told, and as they are not.

use super::*;

const GROUP: IpAddr = IpAddr::V4(Ipv4Addr::new(239, 0, 0, 1));
const SPEAKER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 9));
const ONE: FlowId = FlowId { ring: 0, index: 0, generation: 0 };
const OTHER: FlowId = FlowId { ring: 0, index: 1, generation: 0 };

fn at(millis: u64) -> Moment {
    Moment::after(millis)
}

/// A ring with a member, which has been reported once, at one second.
fn member() -> Groups {
    let mut groups = Groups::default();
    groups.join(at(1000).at, GROUP, ONE);
    assert!(groups.says(REPORT, GROUP) && !groups.says(REPORT, GROUP));
    groups.check(&at(1000));
    groups
}

#[test]
fn what_came_for_a_group_is_under_way_for_a_while() {
    let mut groups = Groups::default();
    let ends = ("10.0.0.2:90".parse().unwrap(), SocketAddr::new(GROUP, 80));
    groups.came(at(1000).at, ends, Datagram::new(ends.0, ends.1, b"one"));
    assert_eq!([1002, 1003].map(|millis| groups.under_way(at(millis).at).count()), [1, 0]);
    (0..=AWAITED_MAX).for_each(|_| groups.came(at(1003).at, ends, Datagram::new(ends.0, ends.1, b"more")));
    assert_eq!([1002, 1003].map(|millis| groups.under_way(at(millis).at).count()), [AWAITED_MAX; 2]);
}

fn message(kind: u8, tenths: u8, group: IpAddr) -> Vec<u8> {
    [&[kind, tenths, 0, 0][..], &crate::addresses::ipv4(group).octets()].concat()
}

#[test]
fn a_membership_is_reported_twice_and_when_a_router_asks_and_left_by_its_last_member() {
    let mut groups = member();
    assert!(groups.reports(GROUP));
    groups.check(&at(60_000));
    groups.heard(at(60_000).at, &message(QUERY, 10, IpAddr::V4(Ipv4Addr::UNSPECIFIED)), ALL_SYSTEMS);
    groups.check(&at(61_000));
    assert!(groups.reports(GROUP));
    groups.heard(at(70_000).at, &message(QUERY, 10, GROUP), GROUP);
    groups.heard(at(70_500).at, &message(REPORT, 0, GROUP), GROUP);
    groups.check(&at(80_000));
    groups.join(at(80_000).at, GROUP, OTHER);
    groups.leave(at(1000).at, GROUP, ONE);
    assert!(groups.unsaid.is_empty() && groups.members(GROUP, SPEAKER).eq([OTHER]));
    groups.leave_all(at(80_000).at, OTHER);
    assert!(groups.says(LEAVE, GROUP) && groups.members(GROUP, SPEAKER).next().is_none());
    assert!(groups.reports(GROUP), "a report that was due left in the service that ended the membership");
    assert!(!groups.reports(GROUP));
}

#[test]
#[should_panic(expected = "RFC 2236 s3: 239.0.0.1 was joined by its first member, and nobody is told")]
fn a_membership_begins_in_silence() {
    let mut groups = Groups::default();
    groups.join(at(1000).at, GROUP, ONE);
    groups.check(&at(1000));
}

#[test]
#[should_panic(expected = "RFC 2236 s3: 239.0.0.1 was left by its last member, and nobody is told")]
fn a_membership_ends_in_silence() {
    let mut groups = member();
    groups.leave(at(1000).at, GROUP, ONE);
    groups.check(&at(1000));
}

#[test]
#[should_panic(expected = "RFC 2236 s3: a report of 239.0.0.1 was due by Some(Instant(11000000000))")]
fn a_membership_is_not_reported_again() {
    member().check(&at(11_100));
}

#[test]
#[should_panic(expected = "a report of 239.0.0.1 was due by Some(Instant(3000000000))")]
fn a_router_that_asks_is_not_told() {
    let mut groups = member();
    groups.heard(at(2000).at, &message(QUERY, 10, GROUP), GROUP);
    groups.check(&at(3100));
}

#[test]
fn members_hear_whom_they_want() {
    let mut groups = member();
    let heard = |groups: &Groups, from: IpAddr| groups.members(GROUP, from).count();
    let other = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 8));
    for (filter, expected) in
        [(SourceFilter::Include([SPEAKER].into()), [1, 0]), (SourceFilter::Exclude([SPEAKER].into()), [0, 1]), (SourceFilter::ANY, [1, 1])]
    {
        groups.listen(at(1000).at, GROUP, ONE, filter);
        assert_eq!([SPEAKER, other].map(|from| heard(&groups, from)), expected);
    }
}
