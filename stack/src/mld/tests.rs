use proptest::prelude::*;

use super::*;
use crate::wire::ipv6::extension::walk;

const START: Instant = Instant::from_nanos(1_000_000_000);
const SECOND: Duration = Duration::from_secs(1);
const US: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);
const ROUTER: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 9);
const GROUP: Ipv6Addr = group(0x99);

const fn group(n: u16) -> Ipv6Addr {
    Ipv6Addr::new(0xff15, 0, 0, 0, 0, 0, 0, n)
}

const fn source(n: u16) -> Ipv6Addr {
    Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, n)
}

fn sources(numbers: &[u16]) -> BTreeSet<Ipv6Addr> {
    numbers.iter().map(|&n| source(n)).collect()
}

fn include(numbers: &[u16]) -> Filter {
    Filter::Include(sources(numbers))
}

fn exclude(numbers: &[u16]) -> Filter {
    Filter::Exclude(sources(numbers))
}

fn listener() -> Listener {
    let mut listener = Listener::new(3);
    listener.set_source(START, US);
    listener
}

/// A record, to compare: kind, group and sources.
type Told = (RecordKind, Ipv6Addr, Vec<Ipv6Addr>);

/// A packet's records, after all checks that a router makes.
fn read(packet: &Packet) -> Vec<Told> {
    let (header, _) = ipv6::Header::parse(&packet.bytes).unwrap();
    let upper = walk(&header, &packet.bytes).unwrap();
    let bytes = &packet.bytes[upper.at..];
    assert_eq!((header.dst, header.hop_limit, header.check_addresses()), (packet.dst, 1, Ok(())));
    assert_eq!(header.check_upper(ipv6::PROTOCOL_ICMPV6, bytes), Ok(()));
    assert!(packet.bytes.len() <= 1280);
    match Message::parse(&header, upper.router_alert, bytes).unwrap() {
        Message::Report { records } => {
            assert_eq!(packet.dst, ipv6::ALL_MLDV2_ROUTERS);
            records.iter().map(|record| (record.kind, record.group, record.sources.iter().collect())).collect()
        }
        Message::ReportV1 { group } => vec![(RecordKind::Other(131), group, vec![packet.dst])],
        Message::Done { group } => vec![(RecordKind::Other(132), group, vec![packet.dst])],
        Message::Query { .. } => panic!("hosts ask nothing"),
    }
}

fn said(listener: &mut Listener) -> Vec<Told> {
    core::iter::from_fn(|| listener.poll_transmit()).flat_map(|packet| read(&packet)).collect()
}

fn told(kind: RecordKind, numbers: &[u16]) -> Told {
    (kind, GROUP, numbers.iter().map(|&n| source(n)).collect())
}

/// Lets the listener's own deadlines pass up to `until`; gives what it said, and when.
fn pass(listener: &mut Listener, until: Instant) -> Vec<(Instant, Told)> {
    let mut done = vec![];
    while let Some(at) = listener.next_deadline().filter(|&at| at <= until) {
        listener.on_timer(at);
        done.extend(said(listener).into_iter().map(|told| (at, told)));
        assert!(listener.next_deadline().is_none_or(|next| next > at), "a deadline is met once");
    }
    done
}

fn told_by(passed: Vec<(Instant, Told)>) -> Vec<Told> {
    passed.into_iter().map(|(_, told)| told).collect()
}

/// A listener to GROUP, which it has told of.
fn settled(filter: Filter) -> (Listener, Instant) {
    let mut listener = listener();
    listener.listen(START, 1, GROUP, filter).unwrap();
    let now = START + SECOND * 20;
    said(&mut listener);
    pass(&mut listener, now);
    assert_eq!(listener.next_deadline(), None);
    (listener, now)
}

/// A query in a packet, as a listener hears it. `code`: milliseconds.
fn ask(listener: &mut Listener, now: Instant, dst: Ipv6Addr, group: Option<Ipv6Addr>, code: u16, v2: Option<&[u16]>) {
    let tail = v2.map(|numbers| {
        let octets = numbers.iter().flat_map(|&n| source(n).octets());
        [2, 125, 0, numbers.len() as u8].into_iter().chain(octets).collect::<Vec<_>>()
    });
    let mut packet = vec![0; mld::V1_PACKET_LEN + tail.as_ref().map_or(0, Vec::len)];
    mld::emit_query((ROUTER, dst), group, code, tail.as_deref().unwrap_or_default(), &mut packet);
    let (header, _) = ipv6::Header::parse(&packet).unwrap();
    let upper = walk(&header, &packet).unwrap();
    listener.on_message(now, dst, &Message::parse(&header, upper.router_alert, &packet[upper.at..]).unwrap());
}

/// RFC 3810 s6.1: told at once, and once more within a second (robustness is 2); so is the end.
#[test]
fn joining_and_leaving_are_told_twice() {
    let mut listener = listener();
    listener.listen(START, 1, GROUP, Filter::ANY).unwrap();
    listener.listen(START, 2, GROUP, Filter::ANY).unwrap();
    assert_eq!(said(&mut listener), [told(RecordKind::ToExclude, &[])], "the second socket changes nothing");
    let again = pass(&mut listener, START + SECOND);
    assert_eq!(told_by(again), [told(RecordKind::ToExclude, &[])]);
    assert_eq!(listener.next_deadline(), None);
    assert!(listener.hears(GROUP, source(1)) && !listener.hears(group(1), source(1)));
    let now = START + SECOND * 5;
    listener.close(now, 1);
    assert_eq!(said(&mut listener), []);
    listener.close(now, 2);
    assert_eq!(said(&mut listener), [told(RecordKind::ToInclude, &[])]);
    assert!(!listener.hears(GROUP, source(1)) && listener.filter(GROUP).is_none());
    assert_eq!(told_by(pass(&mut listener, now + SECOND)), [told(RecordKind::ToInclude, &[])]);
    assert_eq!((listener.next_deadline(), listener.groups.len()), (None, 0));
}

/// RFC 3810 s6: "the all-nodes … and the multicast addresses of scope 0 and 1" are never told of.
#[test]
fn some_groups_are_never_told_of() {
    let mut listener = listener();
    for silent in [ipv6::ALL_NODES, Ipv6Addr::new(0xff01, 0, 0, 0, 0, 0, 0, 9), Ipv6Addr::new(0xff10, 0, 0, 0, 0, 0, 0, 9)] {
        listener.listen(START, 1, silent, Filter::ANY).unwrap();
        assert!(listener.hears(silent, source(1)));
    }
    ask(&mut listener, START, ipv6::ALL_NODES, None, 1000, Some(&[]));
    ask(&mut listener, START, ipv6::ALL_NODES, Some(ipv6::ALL_NODES), 1000, Some(&[]));
    assert_eq!(pass(&mut listener, START + SECOND * 60), []);
    listener.close(START, 1);
    assert_eq!((said(&mut listener), listener.groups.len()), (vec![], 0));
    assert!(listener.hears(ipv6::ALL_NODES, source(1)), "every node is one of all nodes");
}

/// RFC 3810 s4.2 has these examples.
#[test]
fn filters_are_merged() {
    let merged = |filters: &[Filter]| Filter::merge(filters.iter());
    assert_eq!(merged(&[exclude(&[1, 2, 3, 4]), exclude(&[2, 3, 4, 5]), include(&[4, 5, 6])]), exclude(&[2, 3]));
    assert_eq!(merged(&[include(&[1, 2, 3]), include(&[2, 3, 4]), include(&[5, 6])]), include(&[1, 2, 3, 4, 5, 6]));
    assert_eq!(merged(&[]), Filter::NONE);
    assert_eq!(merged(&[exclude(&[1]), Filter::ANY]), Filter::ANY);
}

/// RFC 3810 s6.1's table, row by row.
#[test]
fn each_change_has_its_record() {
    use RecordKind::{Allow, Block, ToExclude, ToInclude};
    for (old, new, expected) in [
        (include(&[1, 2]), include(&[2, 3]), vec![told(Allow, &[3]), told(Block, &[1])]),
        (exclude(&[1, 2]), exclude(&[2, 3]), vec![told(Allow, &[1]), told(Block, &[3])]),
        (include(&[1, 2]), exclude(&[2, 3]), vec![told(ToExclude, &[2, 3])]),
        (exclude(&[1, 2]), include(&[2, 3]), vec![told(ToInclude, &[2, 3])]),
        (include(&[1]), Filter::NONE, vec![told(Block, &[1])]),
        (include(&[1]), include(&[1]), vec![]),
    ] {
        let (mut listener, now) = settled(old.clone());
        listener.listen(now, 1, GROUP, new.clone()).unwrap();
        assert_eq!(said(&mut listener), expected, "{old:?} {new:?}");
        assert_eq!(told_by(pass(&mut listener, now + SECOND * 9)), expected, "and again: {old:?} {new:?}");
        assert_eq!(listener.next_deadline(), None);
    }
}

/// RFC 3810 s6.1: a change before the last one was told often enough is told with it.
#[test]
fn changes_that_overlap_are_told_together() {
    let (mut listener, now) = settled(include(&[1]));
    listener.listen(now, 1, GROUP, include(&[1, 2])).unwrap();
    listener.listen(now, 1, GROUP, include(&[2])).unwrap();
    let (allow, block) = (|numbers: &[u16]| told(RecordKind::Allow, numbers), |numbers: &[u16]| told(RecordKind::Block, numbers));
    assert_eq!(said(&mut listener), [allow(&[2]), allow(&[2]), block(&[1])]);
    assert_eq!(told_by(pass(&mut listener, now + SECOND * 9)), [block(&[1])]);
    // A source that changes back is told as it is now, as often as any.
    listener.listen(now, 1, GROUP, include(&[])).unwrap();
    listener.listen(now, 1, GROUP, include(&[2])).unwrap();
    assert_eq!(said(&mut listener), [block(&[2]), allow(&[2])]);
    assert_eq!(told_by(pass(&mut listener, now + SECOND * 99)), [allow(&[2])]);
    // A mode says all, whatever was about to be said.
    listener.listen(now, 1, GROUP, include(&[2, 3])).unwrap();
    listener.listen(now, 1, GROUP, exclude(&[7])).unwrap();
    let mode = told(RecordKind::ToExclude, &[7]);
    assert_eq!(said(&mut listener), [allow(&[3]), mode.clone()]);
    assert_eq!(told_by(pass(&mut listener, now + SECOND * 999)), [mode]);
}

/// What Linux told in the same place (conformance/data/README.md): 2, then 2 and 3, then 3, then everybody, then 3 again, then nobody.
#[test]
fn linux_tells_the_same() {
    use RecordKind::{Allow, Block, ToExclude, ToInclude};
    let group: Ipv6Addr = "ff15::1234".parse().unwrap();
    let host: Ipv6Addr = "fe80::ff:fe00:1".parse().unwrap();
    let linux: Vec<Vec<Told>> = crate::capture::ipv6()
        .filter_map(|frame| {
            let (header, _) = ipv6::Header::parse(&frame[14..]).ok()?;
            let is_report = header.src == host && header.dst == ipv6::ALL_MLDV2_ROUTERS;
            let told = is_report.then(|| read(&Packet { dst: header.dst, bytes: frame[14..].to_vec() }))?;
            told.iter().any(|(_, told, _)| *told == group).then_some(told)
        })
        .collect();
    let at = |n: u16| Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, n);
    let wanted = |numbers: &[u16]| Filter::Include(numbers.iter().map(|&n| at(n)).collect());
    let story = [
        (1, wanted(&[2]), Allow, 2),
        (1, wanted(&[2, 3]), Allow, 3),
        (1, wanted(&[3]), Block, 2),
        (2, Filter::ANY, ToExclude, 0),
        (2, Filter::NONE, ToInclude, 3),
        (1, Filter::NONE, Block, 3),
    ];
    let mut listener = Listener::new(1);
    listener.set_source(START, host);
    let mut now = START;
    for (socket, filter, kind, number) in story {
        listener.listen(now, socket, group, filter).unwrap();
        let ours = said(&mut listener);
        let (_, _, named) = ours.iter().find(|(told, ..)| *told == kind).unwrap_or_else(|| panic!("{kind:?} in {ours:?}"));
        assert_eq!(named.contains(&at(number)), number != 0);
        // Linux waits a moment before each report, so that it tells some changes together. It tells of each.
        let theirs = linux.iter().flatten().any(|(told, _, named)| *told == kind && (number == 0 || named.contains(&at(number))));
        assert!(theirs, "{kind:?} {number} in {linux:?}");
        now += SECOND * 9;
        pass(&mut listener, now);
    }
    // The first one has nothing to be told together with: it is the same packet.
    let mut listener = Listener::new(1);
    listener.set_source(START, host);
    listener.listen(START, 1, group, wanted(&[2])).unwrap();
    let ours = listener.poll_transmit().unwrap();
    assert!(crate::capture::ipv6().any(|frame| frame[14..] == ours.bytes), "{linux:?}");
}

/// RFC 3810 s6.2: within the maximum response time, each host at a time of its own.
#[test]
fn queries_about_everything_are_answered_once_in_time() {
    let (mut listener, now) = settled(exclude(&[4]));
    listener.listen(now, 7, group(1), include(&[5])).unwrap();
    said(&mut listener);
    pass(&mut listener, now + SECOND * 9);
    let now = now + SECOND * 10;
    ask(&mut listener, now, ipv6::ALL_NODES, None, 10_000, Some(&[]));
    let planned = listener.next_deadline().unwrap();
    assert!(planned < now + SECOND * 10);
    // A later one changes nothing, if the answer to the first comes sooner.
    ask(&mut listener, planned, ipv6::ALL_NODES, None, 10_000, Some(&[]));
    ask(&mut listener, planned, GROUP, Some(GROUP), 10_000, Some(&[4]));
    assert_eq!(listener.next_deadline(), Some(planned));
    let answer = pass(&mut listener, now + SECOND * 60);
    let expected = [(RecordKind::IsInclude, group(1), vec![source(5)]), told(RecordKind::IsExclude, &[4])];
    assert_eq!(answer, expected.map(|told| (planned, told)));
    // Without delay: at once.
    ask(&mut listener, planned, ipv6::ALL_NODES, None, 0, Some(&[]));
    assert_eq!(listener.next_deadline(), Some(planned));
}

/// RFC 3810 s6.2, what is told about the sources that were asked for.
#[test]
fn queries_about_sources_are_answered_with_those_wanted() {
    for (filter, asked, expected) in [
        (include(&[1, 2, 3]), &[2, 3, 4][..], vec![told(RecordKind::IsInclude, &[2, 3])]),
        (exclude(&[1, 2, 3]), &[2, 3, 4], vec![told(RecordKind::IsInclude, &[4])]),
        (include(&[1]), &[2], vec![]),
        (include(&[1, 2]), &[], vec![told(RecordKind::IsInclude, &[1, 2])]),
        (exclude(&[1, 2]), &[], vec![told(RecordKind::IsExclude, &[1, 2])]),
    ] {
        let (mut listener, now) = settled(filter);
        ask(&mut listener, now, GROUP, Some(GROUP), 1000, Some(asked));
        assert_eq!(told_by(pass(&mut listener, now + SECOND)), expected);
    }
    // Rules 4 and 5: several are answered by one report, of all sources, or of the group if one was about it.
    let (mut listener, now) = settled(exclude(&[1]));
    ask(&mut listener, now, GROUP, Some(GROUP), 1000, Some(&[2]));
    ask(&mut listener, now, GROUP, Some(GROUP), 1000, Some(&[1, 3]));
    assert_eq!(told_by(pass(&mut listener, now + SECOND)), [told(RecordKind::IsInclude, &[2, 3])]);
    for asked in [[&[2][..], &[]], [&[], &[2]]] {
        for asked in asked {
            ask(&mut listener, now, GROUP, Some(GROUP), 1000, Some(asked));
        }
        assert_eq!(told_by(pass(&mut listener, now + SECOND * 2)), [told(RecordKind::IsExclude, &[1])]);
    }
    // Groups that nobody here listens to, and queries that went astray.
    ask(&mut listener, now, group(1), Some(group(1)), 1000, Some(&[]));
    ask(&mut listener, now, group(1), Some(GROUP), 1000, Some(&[]));
    ask(&mut listener, now, GROUP, None, 1000, Some(&[]));
    assert_eq!(listener.next_deadline(), None);
    // To our own address it is in order (RFC 3810 s5.1.15).
    ask(&mut listener, now, US, Some(GROUP), 1000, Some(&[]));
    assert!(listener.next_deadline().is_some());
}

#[test]
fn a_query_about_a_great_many_sources_is_one_about_all() {
    let (mut listener, now) = settled(include(&[1, 2]));
    for start in [0, 60, 120] {
        let asked: Vec<_> = (start..start + 60).collect();
        ask(&mut listener, now, GROUP, Some(GROUP), 1000, Some(&asked));
        assert!(listener.groups[&GROUP].answer.as_ref().is_none_or(|answer| answer.sources.len() <= SOURCES_MAX));
    }
    assert_eq!(told_by(pass(&mut listener, now + SECOND)), [told(RecordKind::IsInclude, &[1, 2])]);
}

/// RFC 3810 s8.2.1: after an old querier, its version is spoken for 2 × 125 + 10 s.
#[test]
fn an_old_querier_is_spoken_to_in_its_version() {
    let v1 = |code: u8, group: Ipv6Addr, dst: Ipv6Addr| (RecordKind::Other(code), group, vec![dst]);
    let (mut listener, now) = settled(include(&[1]));
    listener.listen(now, 1, GROUP, include(&[1, 2])).unwrap();
    said(&mut listener);
    ask(&mut listener, now, ipv6::ALL_NODES, None, 10_000, None);
    assert!(listener.speaks_v1(now));
    let answer = pass(&mut listener, now + SECOND * 10);
    assert_eq!(told_by(answer), [v1(131, GROUP, GROUP)], "what was about to be said in the newer version is not");
    // Joining is told twice (RFC 2710 s4), within ten seconds; sources make no difference; leaving is told to all routers.
    let other = group(1);
    listener.listen(now, 1, other, include(&[1])).unwrap();
    listener.listen(now, 2, other, Filter::ANY).unwrap();
    assert_eq!(said(&mut listener), [v1(131, other, other)]);
    assert_eq!(told_by(pass(&mut listener, now + SECOND * 10)), [v1(131, other, other)]);
    listener.close(now, 2);
    assert_eq!(said(&mut listener), []);
    listener.listen(now, 1, other, Filter::NONE).unwrap();
    assert_eq!(said(&mut listener), [v1(132, other, ipv6::ALL_ROUTERS)]);
    // Newer queries meanwhile are answered in the older version, too.
    ask(&mut listener, now, ipv6::ALL_NODES, None, 1000, Some(&[]));
    assert_eq!(told_by(pass(&mut listener, now + SECOND)), [v1(131, GROUP, GROUP)]);
    // Another host's report is enough; one that was sent elsewhere is none.
    let report = Message::ReportV1 { group: GROUP };
    for (dst, expected) in [(GROUP, 0), (group(2), 1)] {
        ask(&mut listener, now, GROUP, Some(GROUP), 1000, None);
        listener.on_message(now, dst, &report);
        assert_eq!(pass(&mut listener, now + SECOND).len(), expected);
    }
    let end = now + SECOND * 260;
    assert_eq!((listener.next_deadline(), listener.speaks_v1(end)), (Some(end), false));
    listener.on_timer(end);
    assert_eq!((listener.next_deadline(), said(&mut listener)), (None, vec![]));
    listener.listen(end, 1, GROUP, Filter::ANY).unwrap();
    assert_eq!(said(&mut listener), [told(RecordKind::ToExclude, &[])]);
    // In the newer version everyone tells for himself.
    ask(&mut listener, end, ipv6::ALL_NODES, None, 1000, Some(&[]));
    listener.on_message(end, GROUP, &report);
    assert!(told_by(pass(&mut listener, end + SECOND * 2)).contains(&told(RecordKind::IsExclude, &[])));
}

/// RFC 3810 s9.1: who hears a querier's robustness tells as often.
#[test]
fn robustness_is_the_queriers() {
    let (mut listener, now) = settled(include(&[1]));
    let v2 = |robustness| QueryV2 { suppress: false, robustness, interval: SECOND * 10, sources: mld::Sources::default() };
    for (robustness, times) in [(5, 5), (0, 2), (1, 1)] {
        listener.on_message(now, GROUP, &Message::Query { group: Some(GROUP), max_response: Duration::ZERO, v2: Some(v2(robustness)) });
        pass(&mut listener, now);
        listener.listen(now, 1, GROUP, Filter::ANY).unwrap();
        assert_eq!(said(&mut listener).len() + pass(&mut listener, now + SECOND * 9).len(), times);
        listener.listen(now, 1, GROUP, include(&[1])).unwrap();
        said(&mut listener);
        pass(&mut listener, now + SECOND * 20);
    }
}

/// RFC 3810 s5.2.13, RFC 3590 s4: reports from nobody may be ignored, so that they are told again once there is an address.
#[test]
fn reports_from_nobody_are_told_again() {
    let mut listener = Listener::new(3);
    listener.listen(START, 1, GROUP, include(&[1])).unwrap();
    let packet = listener.poll_transmit().unwrap();
    assert_eq!(packet.bytes[8..24], [0; 16]);
    pass(&mut listener, START + SECOND * 9);
    listener.set_source(START, US);
    assert_eq!(said(&mut listener), [told(RecordKind::ToInclude, &[1])]);
    listener.set_source(START, ROUTER);
    assert_eq!(said(&mut listener), []);
}

/// RFC 3810 s5.2.15.
#[test]
fn long_lists_are_told_in_several_packets() {
    let mut listener = listener();
    for socket in 0..4u16 {
        let numbers: Vec<_> = (0..60).map(|n| socket * 60 + n).collect();
        listener.listen(START, socket.into(), GROUP, include(&numbers)).unwrap();
    }
    let now = START + SECOND * 9;
    said(&mut listener);
    pass(&mut listener, now);
    ask(&mut listener, now, ipv6::ALL_NODES, None, 1000, Some(&[]));
    let at = listener.next_deadline().unwrap();
    listener.on_timer(at);
    let packets: Vec<_> = core::iter::from_fn(|| listener.poll_transmit()).collect();
    let told: Vec<_> = packets.iter().flat_map(read).collect();
    assert_eq!(packets.len(), 4);
    assert!(told.iter().all(|(kind, ..)| *kind == RecordKind::IsInclude));
    let named: BTreeSet<_> = told.iter().flat_map(|(_, _, sources)| sources.iter().copied()).collect();
    assert_eq!(named, (0..240).map(source).collect());
    // Many groups with few sources share packets.
    let mut listener = self::listener();
    for n in 0..200 {
        listener.listen(START, 1, group(n), Filter::ANY).unwrap();
    }
    said(&mut listener);
    pass(&mut listener, now);
    ask(&mut listener, now, ipv6::ALL_NODES, None, 0, Some(&[]));
    listener.on_timer(now);
    let packets: Vec<_> = core::iter::from_fn(|| listener.poll_transmit()).collect();
    assert_eq!((packets.len(), packets.iter().map(|packet| read(packet).len()).sum::<usize>()), (4, 200));
    // An exclusion is told by one record, or not at all.
    let mut out = VecDeque::new();
    let mut reports = Reports::new(US, &mut out);
    let many: Vec<_> = (0..200).map(source).collect();
    reports.add(RecordKind::ToExclude, GROUP, &many);
    reports.finish();
    assert_eq!(out.iter().flat_map(read).map(|(.., sources)| sources.len()).collect::<Vec<_>>(), [75]);
}

#[test]
fn what_programs_and_peers_can_make_us_remember_is_bounded() {
    let mut listener = listener();
    assert_eq!(listener.listen(START, 1, source(1), Filter::ANY), Err(ListenError::NoGroup));
    let numbers: Vec<_> = (0..65).collect();
    assert_eq!(listener.listen(START, 1, GROUP, include(&numbers)), Err(ListenError::Full));
    assert_eq!(listener.listen(START, 1, GROUP, include(&numbers[1..])), Ok(()));
    // Sources that come and go before they are told often enough.
    for n in 0..1000 {
        listener.listen(START, 1, GROUP, include(&[n])).unwrap();
        assert!(listener.groups[&GROUP].changes.sources.len() <= 2 * SOURCES_MAX);
    }
    // Groups that are left make room; nobody fetched a packet in all this time.
    for n in 0..5000 {
        listener.listen(START, 1, group(n), Filter::ANY).unwrap();
        listener.listen(START, 1, group(n), Filter::NONE).unwrap();
    }
    assert!(listener.groups.len() <= GROUPS_MAX && listener.out.len() <= report::PACKETS_MAX);
    let joined = (0..5000).take_while(|&n| listener.listen(START, 1, group(n), Filter::ANY).is_ok()).count();
    assert!(joined == GROUPS_MAX || joined == GROUPS_MAX - 1, "{joined}");
}

/// What a router makes of reports (RFC 3810 s7.4), without its timers.
#[derive(Debug, Default)]
struct Router(BTreeMap<Ipv6Addr, Filter>);

impl Router {
    fn hear(&mut self, records: Vec<Told>) {
        for (kind, group, sources) in records {
            let sources: BTreeSet<_> = sources.into_iter().collect();
            let filter = self.0.entry(group).or_insert(Filter::NONE);
            match (kind, filter) {
                (RecordKind::ToInclude | RecordKind::IsInclude, filter) => *filter = Filter::Include(sources),
                (RecordKind::ToExclude | RecordKind::IsExclude, filter) => *filter = Filter::Exclude(sources),
                (RecordKind::Allow, Filter::Include(known)) | (RecordKind::Block, Filter::Exclude(known)) => known.extend(sources),
                (RecordKind::Allow, Filter::Exclude(known)) | (RecordKind::Block, Filter::Include(known)) => {
                    known.retain(|source| !sources.contains(source));
                }
                (RecordKind::Other(kind), _) => panic!("{kind}"),
            }
        }
    }
}

fn filter() -> impl Strategy<Value = Filter> {
    (any::<bool>(), proptest::collection::btree_set(0..6u16, 0..4)).prop_map(|(excludes, numbers)| {
        let numbers: Vec<_> = numbers.into_iter().collect();
        if excludes { exclude(&numbers) } else { include(&numbers) }
    })
}

proptest! {
    /// A router knows what is wanted, though any one packet is lost: that is what robustness of 2 means (RFC 3810 s9.1).
    #[test]
    fn routers_know_what_is_wanted(
        steps in proptest::collection::vec((0..3u32, 0..2u16, filter(), 0..2000u64), 1..20),
        lost in any::<proptest::sample::Index>(),
        loses: bool,
    ) {
        let mut listener = listener();
        let mut now = START;
        let mut wanted: BTreeMap<(u16, u32), Filter> = BTreeMap::new();
        let mut packets = vec![];
        for (socket, n, filter, wait) in steps {
            listener.listen(now, socket, group(n), filter.clone()).unwrap();
            wanted.insert((n, socket), filter);
            packets.extend(core::iter::from_fn(|| listener.poll_transmit()));
            let until = now + Duration::from_millis(wait);
            while let Some(at) = listener.next_deadline().filter(|&at| at <= until) {
                listener.on_timer(at);
                packets.extend(core::iter::from_fn(|| listener.poll_transmit()));
            }
            now = until;
        }
        while let Some(at) = listener.next_deadline() {
            listener.on_timer(at);
            packets.extend(core::iter::from_fn(|| listener.poll_transmit()));
        }
        let mut router = Router::default();
        let lost = (loses && !packets.is_empty()).then(|| lost.index(packets.len()));
        for (at, packet) in packets.iter().enumerate() {
            if Some(at) != lost {
                router.hear(read(packet));
            }
        }
        for n in 0..2 {
            let told = router.0.get(&group(n)).cloned().unwrap_or(Filter::NONE);
            for s in 0..6 {
                // RFC 3810 s4.2, in one sentence: a source is wanted if any socket wants it.
                let is_wanted = (0..3).any(|socket| wanted.get(&(n, socket)).is_some_and(|filter| filter.admits(source(s))));
                prop_assert_eq!(listener.hears(group(n), source(s)), is_wanted);
                prop_assert_eq!(told.admits(source(s)), is_wanted, "group {} source {} lost {:?}", n, s, lost);
            }
            prop_assert_eq!(listener.filter(group(n)).is_some(), wanted.iter().any(|((g, _), filter)| *g == n && !filter.is_none()));
        }
    }

    #[test]
    fn no_message_panics(bytes in proptest::collection::vec(any::<u8>(), 0..120), kind in prop_oneof![Just(130u8), Just(131), Just(132), Just(143)]) {
        let (mut listener, now) = settled(exclude(&[1]));
        let mut bytes = bytes;
        if let Some(first) = bytes.first_mut() {
            *first = kind;
        }
        let header = ipv6::Header {
            src: ROUTER, dst: GROUP, next_header: 0, hop_limit: 1, traffic_class: 0, flow_label: 0, payload_len: bytes.len() as u16,
        };
        if let Ok(message) = Message::parse(&header, Some(0), &bytes) {
            listener.on_message(now, GROUP, &message);
            listener.on_message(now, ipv6::ALL_NODES, &message);
            pass(&mut listener, now + SECOND * 100_000);
        }
    }
}
