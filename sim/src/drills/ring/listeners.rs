//! Groups of IPv6: how routers hear of them (RFC 3810), and whose datagrams their members hear; of IPv4's members, too (RFC 3678).

use core::time::Duration;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4};

use ringway_stack::Error;
use ringway_stack::device::MacAddr;
use ringway_stack::ring::{FlowId, RecvFlags, Reuse, RingConfig, SourceFilter, UdpOptions};

use super::host::{self, Host, Link, Sent};
use super::ipv6;
use crate::apps::{Flaw, question};
use crate::checkers::groups::listening::{Record, Wish, is_told, learn, message, records};
use crate::dissect::{self, UDP};
use crate::drills::bench::{Bench, TICK};

const OURS: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1);
const OF_LINK: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);
const OURS_V4: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const ALL_ROUTERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0x16);
/// The last two are told to nobody (RFC 3810 s6); the first two have one Ethernet address.
const GROUPS: [Ipv6Addr; 5] = [
    Ipv6Addr::new(0xff05, 0, 0, 0, 0, 0, 0, 7),
    Ipv6Addr::new(0xff15, 0, 0, 0, 0, 0, 0, 7),
    Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0x99),
    Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1),
    Ipv6Addr::new(0xff01, 0, 0, 0, 0, 0, 0, 7),
];
const PORT: u16 = 500;
/// RFC 3810 s9.11: the unsolicited report interval.
const SOON: Duration = Duration::from_secs(1);

fn host(bench: &mut Bench) -> Host<'_> {
    Host::with(bench, Link::Asked, RingConfig { addresses: vec![OURS.into(), OF_LINK.into(), OURS_V4.into()], ..RingConfig::default() })
}

/// Somebody who speaks to groups.
fn source(is_v6: bool, n: u8) -> IpAddr {
    if is_v6 { Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 1, n.into()).into() } else { Ipv4Addr::new(10, 0, 1, n).into() }
}

fn some_filter(host: &mut Host<'_>, is_v6: bool) -> SourceFilter {
    let sources = (0..4).filter(|_| host.bench.chance(2)).map(|n| source(is_v6, n)).collect();
    match host.bench.below(5) {
        0 => SourceFilter::ANY,
        1 | 2 => SourceFilter::Exclude(sources),
        _ => SourceFilter::Include(sources),
    }
}

fn open(host: &mut Host<'_>, ip: IpAddr) -> FlowId {
    let opened = host.ring.udp_open(SocketAddr::new(ip, PORT), &UdpOptions { reuse: Reuse::Address, ..UdpOptions::default() });
    host.must(opened.is_ok(), format_args!("bind(2): {opened:?} of an address that is shared"));
    opened.unwrap_or(FlowId { ring: 0, index: 0, generation: 0 })
}

/// What a report tells; it has the form that RFC 3810 s5 gives it.
fn told(host: &Host<'_>, sent: &Sent) -> Vec<Record> {
    let read = || {
        let ip = dissect::whole_ipv6(&sent.bytes)?;
        let message = message(&sent.bytes, &ip).filter(|message| message[0] == 143)?;
        let is_for_routers = ip.dst == IpAddr::V6(ALL_ROUTERS) && sent.to_mac() == MacAddr::of_group(ALL_ROUTERS.into());
        records(message).filter(|_| is_for_routers && ip.src == IpAddr::V6(OF_LINK) && ip.end - ip.offset <= 1280)
    };
    let records = read();
    host.must(records.is_some(), format_args!("RFC 3810 s5.2: no report, or not as it is to be: {:x?}", sent.bytes));
    records.unwrap_or_default()
}

/// What the sockets of the model want.
#[derive(Default)]
struct Model(BTreeMap<(Ipv6Addr, FlowId), Wish>);

impl Model {
    fn wish(&self, group: Ipv6Addr) -> Wish {
        let of_group: Vec<_> = self.0.iter().filter(|((its, _), _)| *its == group).map(|(_, wish)| wish).collect();
        Wish::of_all(of_group.into_iter())
    }

    /// A socket wants that of a group, and says so.
    fn change(&mut self, host: &mut Host<'_>, socket: FlowId, group: Ipv6Addr, filter: &SourceFilter) {
        let is_member = self.0.contains_key(&(group, socket));
        let result = match filter {
            any if *any == SourceFilter::ANY && host.bench.chance(2) => {
                let joined = host.ring.udp_join(host.now, socket, group.into(), OURS.into());
                host.must(
                    joined == if is_member { Err(Error::AddressInUse) } else { Ok(()) },
                    format_args!("ipv6(7), IPV6_ADD_MEMBERSHIP: {joined:?}"),
                );
                match is_member {
                    true => return,
                    false => joined,
                }
            }
            none if none.is_none() && host.bench.chance(2) => {
                let left = host.ring.udp_leave(host.now, socket, group.into());
                let expected = if is_member { Ok(()) } else { Err(Error::AddressNotAvailable) };
                host.must(left == expected, format_args!("ipv6(7), IPV6_DROP_MEMBERSHIP: {left:?}"));
                Ok(())
            }
            filter => host.ring.udp_listen(host.now, socket, group.into(), OURS.into(), filter.clone()),
        };
        host.must(result.is_ok(), format_args!("setsourcefilter(3): {result:?}"));
        match filter.is_none() {
            true => drop(self.0.remove(&(group, socket))),
            false => drop(self.0.insert((group, socket), filter.into())),
        }
    }
}

/// RFC 3810 s6.1: what changes of what all sockets want together is told at once, and once more within a second; nothing else is; and a router that heard
/// either time knows what is wanted.
pub(in crate::drills) fn reports(bench: &mut Bench) {
    let mut host = host(bench);
    let mut sockets: Vec<_> = (0..3).map(|_| open(&mut host, Ipv6Addr::UNSPECIFIED.into())).collect();
    let (mut model, mut router, mut deaf_router) = (Model::default(), BTreeMap::<Ipv6Addr, Wish>::new(), BTreeMap::new());
    for _ in 0..host.bench.between(5, 30) {
        let (which, group) = (host.bench.below(3) as usize, host.bench.pick(&GROUPS));
        let before: Vec<_> = GROUPS.map(|group| model.wish(group)).into();
        if host.bench.chance(8) {
            host.ring.close(host.now, sockets[which], false);
            model.0.retain(|(_, socket), _| *socket != sockets[which]);
            sockets[which] = open(&mut host, Ipv6Addr::UNSPECIFIED.into());
        } else {
            let filter = some_filter(&mut host, true);
            model.change(&mut host, sockets[which], group, &filter);
        }
        let changed: Vec<_> =
            GROUPS.into_iter().zip(before).filter(|(group, before)| model.wish(*group) != *before && is_told(*group)).collect();
        for again in [false, true] {
            if again {
                host.pass(SOON + TICK);
            }
            let sent = host.sent();
            let said: Vec<_> = sent.iter().flat_map(|sent| told(&host, sent)).collect();
            let right =
                said.iter().all(|record| changed.iter().any(|(group, _)| *group == record.group)) && said.is_empty() == changed.is_empty();
            host.must(right, format_args!("RFC 3810 s6.1: {said:?} (again: {again}) when {changed:?} changed"));
            said.iter().for_each(|record| learn(router.entry(record.group).or_default(), record));
            if again {
                said.iter().for_each(|record| learn(deaf_router.entry(record.group).or_default(), record));
            }
            for group in GROUPS.into_iter().filter(|group| is_told(*group)) {
                let (known, wanted) = (router.get(&group).cloned().unwrap_or_default(), model.wish(group));
                host.must(known == wanted, format_args!("RFC 3810 s6.1: a router knows {known:?} of {group}, and wanted is {wanted:?}"));
            }
        }
        host.must(
            GROUPS.iter().all(|group| router.get(group) == deaf_router.get(group)),
            "RFC 3810 s6.1: a router that did not hear the first report does not know what one does that heard both",
        );
        host.pass(Duration::from_secs(60));
        host.silence("RFC 3810 s6.1: a report of nothing new, that nobody asked for");
    }
    sockets.into_iter().for_each(|socket| host.close(socket));
    host.pass(SOON + TICK);
    host.sent();
    host.is_empty();
}

/// RFC 3810 s6.2: a router of the link is told what it asks for, in time: of every group, of one, of the sources that are wanted among some. What is not a
/// question of such a router is answered by nobody.
pub(in crate::drills) fn questions(bench: &mut Bench) {
    let mut host = host(bench);
    let socket = open(&mut host, Ipv6Addr::UNSPECIFIED.into());
    let mut model = Model::default();
    for group in GROUPS {
        let filter = some_filter(&mut host, true);
        model.change(&mut host, socket, group, &filter);
    }
    host.pass(Duration::from_secs(30));
    host.sent();
    for _ in 0..8 {
        let about = host.bench.chance(2).then(|| host.bench.pick(&GROUPS[..3]));
        let asked: Vec<_> = if about.is_some() && host.bench.chance(2) { (0..host.bench.between(1, 4)).collect() } else { Vec::new() };
        let asked: Vec<_> = asked.into_iter().map(|n| Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 1, n as u16)).collect();
        let within_ms = host.bench.pick(&[1, 100, 1000, 10_000, 30_000]);
        let flaws = [Flaw::None, Flaw::None, Flaw::None, Flaw::Checksum, Flaw::HopLimit, Flaw::Source, Flaw::Alert, Flaw::Cut];
        let flaw = host.bench.pick(&flaws);
        let asked_at = host.now;
        host.give(question(None, about, within_ms, &asked, flaw));
        host.pass(Duration::from_secs(60));
        let sent = host.sent();
        let said: BTreeMap<_, _> =
            sent.iter().flat_map(|sent| told(&host, sent)).map(|record| (record.group, (record.kind, record.sources))).collect();
        let answer = |group: Ipv6Addr| {
            let wish = model.wish(group);
            let is_meant = flaw == Flaw::None && is_told(group) && about.is_none_or(|about| about == group) && wish != Wish::default();
            let wanted: std::collections::BTreeSet<_> = asked.iter().copied().filter(|&source| wish.wants(source)).collect();
            match asked.is_empty() {
                true => is_meant.then_some((group, (1 + u8::from(wish.others), wish.named))),
                false => (is_meant && !wanted.is_empty()).then_some((group, (1, wanted))),
            }
        };
        let expected: BTreeMap<_, _> = GROUPS.into_iter().filter_map(answer).collect();
        host.must(
            said == expected,
            format_args!("RFC 3810 s6.2: {said:?} after a question ({flaw:?}) about {about:?} and {asked:?}, where {expected:?} is wanted"),
        );
        let late = sent.iter().map(|frame| frame.at.since(asked_at)).max().unwrap_or_default();
        let within = Duration::from_millis(within_ms.into());
        host.must(late <= within + TICK, format_args!("RFC 3810 s6.2: a report after {late:?}, where {within:?} were given"));
    }
    host.close(socket);
    host.pass(SOON + TICK);
    host.sent();
    host.is_empty();
}

/// RFC 3678 s3: each member hears whom it wants to, once, whatever others want; of either family. What its host says itself is filtered as well.
pub(in crate::drills) fn sources(bench: &mut Bench) {
    let mut host = host(bench);
    let is_v6 = host.bench.chance(2);
    let (group, ours, any): (IpAddr, IpAddr, IpAddr) = match is_v6 {
        true => (GROUPS[0].into(), OURS.into(), Ipv6Addr::UNSPECIFIED.into()),
        false => (Ipv4Addr::new(239, 1, 2, 3).into(), OURS_V4.into(), Ipv4Addr::UNSPECIFIED.into()),
    };
    let mut members: Vec<_> = (0..host.bench.between(1, 4))
        .map(|_| {
            let bound = host.bench.pick(&[any, any, group, ours]);
            (open(&mut host, bound), bound != ours, SourceFilter::NONE)
        })
        .collect();
    for _ in 0..host.bench.between(10, 40) {
        let which = host.bench.below(members.len() as u64) as usize;
        let mut filter = some_filter(&mut host, is_v6);
        if host.bench.chance(4)
            && let SourceFilter::Include(sources) | SourceFilter::Exclude(sources) = &mut filter
        {
            sources.insert(ours);
        }
        let listens = host.ring.udp_listen(host.now, members[which].0, group, ours, filter.clone());
        host.must(listens.is_ok(), format_args!("setsourcefilter(3): {listens:?}"));
        members[which].2 = filter;
        host.sent();
        let known = members.iter().all(|(socket, _, filter)| host.ring.udp_source_filter(*socket, group) == *filter);
        host.must(known, "getsourcefilter(3): not what was set");
        let (n, loops) = (host.bench.below(4) as u8, host.bench.chance(4));
        let from = if loops { ours } else { source(is_v6, n) };
        let payload = host.bytes(20);
        if loops {
            let speaker = host.ring.udp_open(SocketAddr::new(ours, 600), &UdpOptions::default());
            let to = Some((SocketAddr::new(group, PORT), ringway_stack::ring::NextHop::Neighbour(group)));
            let sent = speaker.and_then(|speaker| {
                let sent = host.ring.udp_send(host.now, speaker, &[std::io::IoSlice::new(&payload)], ours, to);
                host.ring.close(host.now, speaker, false);
                sent
            });
            host.must(sent == Ok(20), format_args!("send(2): {sent:?} to a group"));
            host.sent();
        } else {
            let frame = match (from, group) {
                (IpAddr::V6(from), IpAddr::V6(group)) => ipv6::packet(1, (from, group), UDP, &ipv6::udp(600, PORT, &payload)),
                (IpAddr::V4(from), IpAddr::V4(group)) => {
                    host::datagram(SocketAddrV4::new(from, 600), SocketAddrV4::new(group, PORT), &payload)
                }
                _ => Vec::new(),
            };
            host.give(frame);
        }
        for (socket, is_for_groups, filter) in &members {
            let wants = match filter {
                SourceFilter::Include(sources) => sources.contains(&from),
                SourceFilter::Exclude(sources) => !sources.contains(&from),
            };
            let heard = host.read(*socket, 100, RecvFlags::empty());
            let is_right = match &heard {
                Ok((datagram, bytes)) => wants && *is_for_groups && datagram.from.ip() == from && *bytes == payload,
                Err(error) => *error == Error::WouldBlock && !(wants && *is_for_groups),
            };
            host.must(is_right, format_args!("RFC 3678 s3: {from} is heard ({}) by who wants {filter:?}", heard.is_ok()));
            let again = host.read(*socket, 100, RecvFlags::empty()).is_ok();
            host.must(!again, "RFC 3678 s3: a group's datagram is heard twice");
        }
    }
    members.into_iter().for_each(|(socket, ..)| host.close(socket));
    host.pass(SOON + TICK);
    host.sent();
    host.is_empty();
}
