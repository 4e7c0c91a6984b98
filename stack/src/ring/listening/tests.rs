use core::time::Duration;
use std::collections::BTreeSet;
use std::io::IoSliceMut;
use std::net::{Ipv4Addr, SocketAddr};

use proptest::prelude::*;

use super::*;
use crate::device::Capabilities;
use crate::ring::tests::{A, Cable, Pair};
use crate::ring::{FlowId, NextHop, RecvFlags, RingConfig, SourceFilter, UdpOptions};
use crate::wire::icmpv6::mld::{self, RecordKind};
use crate::wire::ipv6::extension;

const A6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1);
const B6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2);
const A_LINK: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);
const ROUTER: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0xfe);
const GROUP: Ipv6Addr = Ipv6Addr::new(0xff05, 0, 0, 0, 0, 0, 0, 7);
const OTHER: Ipv6Addr = Ipv6Addr::new(0xff05, 0, 0, 0, 0, 0, 0, 8);
const SECOND: Duration = Duration::from_secs(1);

type Told = (RecordKind, Ipv6Addr, Vec<Ipv6Addr>);

fn pair() -> Pair {
    let mut pair = Pair::between(A6.into(), B6.into());
    pair.a.config.addresses.push(A_LINK.into());
    pair.a.groups.listener.set_source(pair.now, A_LINK);
    pair
}

fn open(ring: &mut Ring<Cable>, local: Ipv6Addr) -> FlowId {
    ring.udp_open(SocketAddr::new(local.into(), 7000), &UdpOptions { reuse: crate::ring::Reuse::Address, ..UdpOptions::default() }).unwrap()
}

/// What A's frames tell that B has yet to receive; each has the form that RFC 3810 s5 gives it.
fn told(pair: &Pair) -> Vec<Told> {
    let frames: Vec<_> = pair.a.queues().out.lock().unwrap().drain(..).collect();
    let mut told = Vec::new();
    for frame in frames {
        let (link, at) = ethernet::Header::parse(&frame).unwrap();
        assert_eq!(link.dst, MacAddr::of_group(ipv6::ALL_MLDV2_ROUTERS.into()));
        let packet = &frame[at..];
        assert!(packet.len() <= 1280);
        let (header, _) = ipv6::Header::parse(packet).unwrap();
        assert_eq!((header.hop_limit, header.dst, packet.len()), (1, ipv6::ALL_MLDV2_ROUTERS, ipv6::LEN + usize::from(header.payload_len)));
        let upper = extension::walk(&header, packet).unwrap();
        let message = &packet[upper.at..];
        assert_eq!(header.check_upper(ipv6::PROTOCOL_ICMPV6, message), Ok(()));
        let Ok(Message::Report { records }) = Message::parse(&header, upper.router_alert, message) else { panic!("a report") };
        told.extend(records.iter().map(|record| (record.kind, record.group, record.sources.iter().collect::<Vec<_>>())));
    }
    told
}

/// A router's question, as a frame.
fn question(src: Ipv6Addr, about: Option<Ipv6Addr>, sources: &[Ipv6Addr]) -> Vec<u8> {
    let dst = about.unwrap_or(ipv6::ALL_NODES);
    let mut tail = vec![2, 125];
    tail.extend((sources.len() as u16).to_be_bytes());
    tail.extend(sources.iter().flat_map(Ipv6Addr::octets));
    let mut packet = vec![0; mld::V1_PACKET_LEN + tail.len()];
    mld::emit_query((src, dst), about, 1000, &tail, &mut packet);
    framed(dst, &packet)
}

fn framed(dst: Ipv6Addr, packet: &[u8]) -> Vec<u8> {
    let mut frame = vec![0; ethernet::LEN];
    let link =
        ethernet::Header { dst: MacAddr::of_group(dst.into()), src: MacAddr([2; 6]), vlan: None, ethertype: ethernet::ETHERTYPE_IPV6 };
    link.emit(&mut frame);
    frame.extend(packet);
    frame
}

fn ask(pair: &mut Pair, frame: Vec<u8>) {
    pair.a.queues().inward.lock().unwrap().push_back(frame);
    pair.a.poll(pair.now);
}

/// All that A tells within that time.
fn pass(pair: &mut Pair, time: Duration) -> Vec<Told> {
    let end = pair.now + time;
    while let Some(at) = pair.a.next_deadline().filter(|at| *at <= end) {
        pair.now = at;
        pair.a.poll(at);
    }
    pair.now = end;
    told(pair)
}

fn sources(numbers: core::ops::Range<u16>) -> Vec<Ipv6Addr> {
    numbers.map(|n| Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, n)).collect()
}

fn including(sources: impl IntoIterator<Item = Ipv6Addr>) -> SourceFilter {
    Filter::Include(sources.into_iter().map(IpAddr::V6).collect())
}

/// A datagram from B to a group, and whether each of A's sockets hears it.
fn heard(pair: &mut Pair, speaker: FlowId, members: &[FlowId]) -> Vec<bool> {
    let to = Some((SocketAddr::new(GROUP.into(), 7000), NextHop::Neighbour(GROUP.into())));
    assert_eq!(pair.b.udp_send(pair.now, speaker, &[IoSlice::new(b"said")], B6.into(), to), Ok(4));
    pair.settle();
    let mut hears = |member: FlowId| {
        let got = pair.a.udp_recv(member, &mut [IoSliceMut::new(&mut [0; 9])], RecvFlags::empty());
        assert!(
            got.is_ok_and(|datagram| (datagram.from.ip(), datagram.to) == (IpAddr::V6(B6), IpAddr::V6(GROUP)))
                || got == Err(Error::WouldBlock)
        );
        got.is_ok()
    };
    members.iter().map(|&member| hears(member)).collect()
}

#[test]
fn members_hear_their_group_and_routers_hear_of_them() {
    let mut pair = pair();
    let speaker = open(&mut pair.b, B6);
    let (any, bound) = (open(&mut pair.a, Ipv6Addr::UNSPECIFIED), open(&mut pair.a, GROUP));
    assert_eq!(heard(&mut pair, speaker, &[any, bound]), [false, false]);
    let start = pair.now;
    pair.a.udp_join(start, any, GROUP.into(), A6.into()).unwrap();
    assert_eq!(pair.a.udp_join(start, any, GROUP.into(), A6.into()), Err(Error::AddressInUse));
    pair.a.udp_join(start, bound, GROUP.into(), A6.into()).unwrap();
    let joined = (RecordKind::ToExclude, GROUP, vec![]);
    assert_eq!(told(&pair), core::slice::from_ref(&joined), "the second member changes nothing");
    assert_eq!(pass(&mut pair, SECOND), [joined], "once more within a second (RFC 3810 s9.11)");
    assert_eq!(pair.a.next_deadline(), None);
    assert_eq!(heard(&mut pair, speaker, &[any, bound]), [true, true]);
    pair.a.udp_leave(pair.now, any, GROUP.into()).unwrap();
    assert_eq!((told(&pair), heard(&mut pair, speaker, &[any, bound])), (vec![], vec![false, true]));
    pair.a.close(pair.now, bound, false);
    let left = (RecordKind::ToInclude, GROUP, vec![]);
    assert_eq!(told(&pair), core::slice::from_ref(&left));
    assert_eq!(pass(&mut pair, SECOND), [left]);
    assert!(!pair.a.groups.hears(GROUP.into()) && pair.a.queues().table().rules.len() == 1);
}

#[test]
fn routers_of_this_link_are_answered_in_time_and_nobody_else() {
    let mut pair = pair();
    let socket = open(&mut pair.a, Ipv6Addr::UNSPECIFIED);
    for group in [GROUP, OTHER] {
        pair.a.udp_join(pair.now, socket, group.into(), A6.into()).unwrap();
    }
    pass(&mut pair, SECOND * 20);
    let state = |group| (RecordKind::IsExclude, group, vec![]);
    for (about, expected) in [(None, vec![state(GROUP), state(OTHER)]), (Some(GROUP), vec![state(GROUP)])] {
        ask(&mut pair, question(ROUTER, about, &[]));
        assert_eq!(told(&pair), [], "some time later, so that not all speak at once");
        assert_eq!(pass(&mut pair, SECOND), expected);
    }
    // RFC 3810 s6.2: whatever is wrong with a question, it is dropped.
    let whole = question(ROUTER, None, &[]);
    let change = |at: usize, byte: u8| {
        let mut frame = whole.clone();
        frame[ethernet::LEN + at] = byte;
        frame
    };
    let mut without_alert = whole[ethernet::LEN..].to_vec();
    without_alert.drain(ipv6::LEN..HEADERS_LEN);
    (without_alert[6], without_alert[5]) = (ipv6::PROTOCOL_ICMPV6, without_alert[5] - 8);
    let cut = |len: usize| {
        let mut frame = whole[..whole.len() - len].to_vec();
        frame[ethernet::LEN + 5] -= len as u8;
        frame
    };
    for (frame, why) in [
        (change(7, 2), "a router let it through"),
        (change(HEADERS_LEN + 2, 0x55), "a wrong checksum"),
        (change(HEADERS_LEN + 6, 1), "a wrong checksum"),
        (framed(ipv6::ALL_NODES, &without_alert), "no router alert"),
        (question(A6, None, &[]), "not from a link-local address"),
        (question(Ipv6Addr::UNSPECIFIED, None, &[]), "from nobody"),
        (cut(2), "cut off, whatever its checksum is"),
        (cut(20), "cut off"),
        (cut(27), "cut off"),
        (whole[..whole.len() - 3].to_vec(), "longer than its frame"),
    ] {
        ask(&mut pair, frame);
        assert_eq!((pair.a.next_deadline(), pass(&mut pair, SECOND * 20)), (None, vec![]), "{why}");
    }
}

/// A question with as many sources as a link carries: more than a head has room for, and than anybody has filters for.
#[test]
fn long_questions_and_long_answers_are_whole() {
    let mut pair = pair();
    let socket = open(&mut pair.a, Ipv6Addr::UNSPECIFIED);
    let wanted = sources(0..64);
    pair.a.udp_listen(pair.now, socket, GROUP.into(), A6.into(), including(wanted.iter().copied())).unwrap();
    // (A filter's first sources are told as such; the report is longer than a head.)
    assert_eq!(told(&pair), [(RecordKind::Allow, GROUP, wanted.clone())]);
    pass(&mut pair, SECOND * 20);
    ask(&mut pair, question(ROUTER, Some(GROUP), &sources(60..89)));
    assert_eq!(pass(&mut pair, SECOND), [(RecordKind::IsInclude, GROUP, sources(60..64))]);
    ask(&mut pair, question(ROUTER, Some(GROUP), &sources(100..188)));
    assert_eq!(pass(&mut pair, SECOND), [(RecordKind::IsInclude, GROUP, wanted)], "all that is wanted is shorter");
    let too_many = including(sources(0..65));
    assert_eq!(pair.a.udp_listen(pair.now, socket, GROUP.into(), A6.into(), too_many), Err(Error::NoBuffers));
}

#[test]
fn a_socket_hears_the_sources_that_it_wants() {
    let mut pair = pair();
    let speaker = open(&mut pair.b, B6);
    let (one, two) = (open(&mut pair.a, Ipv6Addr::UNSPECIFIED), open(&mut pair.a, Ipv6Addr::UNSPECIFIED));
    let stranger = sources(1..2)[0];
    pair.a.udp_listen(pair.now, one, GROUP.into(), A6.into(), including([stranger])).unwrap();
    pair.a.udp_listen(pair.now, two, GROUP.into(), A6.into(), Filter::Exclude(BTreeSet::from([B6.into()]))).unwrap();
    assert_eq!(told(&pair), [(RecordKind::Allow, GROUP, vec![stranger]), (RecordKind::ToExclude, GROUP, vec![B6])]);
    assert_eq!(heard(&mut pair, speaker, &[one, two]), [false, false]);
    pair.a.udp_listen(pair.now, one, GROUP.into(), A6.into(), including([stranger, B6])).unwrap();
    assert_eq!(heard(&mut pair, speaker, &[one, two]), [true, false]);
    pair.a.udp_listen(pair.now, two, GROUP.into(), A6.into(), Filter::ANY).unwrap();
    assert_eq!(heard(&mut pair, speaker, &[one, two]), [true, true]);
    assert_eq!(
        (pair.a.udp_source_filter(one, GROUP.into()), pair.a.udp_source_filter(two, GROUP.into())),
        (including([stranger, B6]), Filter::ANY)
    );
    // To hear nobody is to leave, once or more often (RFC 3678 s4.2.1).
    for _ in 0..2 {
        pair.a.udp_listen(pair.now, one, GROUP.into(), A6.into(), Filter::NONE).unwrap();
        assert!(pair.a.udp_groups(one).is_empty() && pair.a.udp_source_filter(one, GROUP.into()).is_none());
    }
    assert_eq!(heard(&mut pair, speaker, &[one, two]), [false, true]);
    // Who joins anew hears everybody.
    pair.a.udp_join(pair.now, one, GROUP.into(), A6.into()).unwrap();
    assert_eq!(heard(&mut pair, speaker, &[one, two]), [true, true]);
    let of_another_family = Filter::Include(BTreeSet::from([A]));
    assert_eq!(pair.a.udp_listen(pair.now, one, GROUP.into(), A6.into(), of_another_family), Err(Error::Invalid));
    assert_eq!(pair.a.udp_listen(pair.now, one, GROUP.into(), A, Filter::ANY), Err(Error::Invalid));
}

#[test]
fn what_loops_is_filtered_as_what_comes() {
    let mut pair = pair();
    let (speaker, member) = (open(&mut pair.a, A6), open(&mut pair.a, Ipv6Addr::UNSPECIFIED));
    let to = Some((SocketAddr::new(GROUP.into(), 7000), NextHop::Neighbour(GROUP.into())));
    let hears = |pair: &mut Pair| {
        pair.a.udp_send(pair.now, speaker, &[IoSlice::new(b"x")], A6.into(), to).unwrap();
        pair.a.udp_recv(member, &mut [IoSliceMut::new(&mut [0; 9])], RecvFlags::empty()).is_ok()
    };
    for (filter, expected) in [(Filter::ANY, true), (including([B6]), false), (including([A6]), true)] {
        pair.a.udp_listen(pair.now, member, GROUP.into(), A6.into(), filter).unwrap();
        assert_eq!(hears(&mut pair), expected);
    }
    pair.a.udp_configure(speaker, |options| options.multicast_loop = false).unwrap();
    assert!(!hears(&mut pair));
}

/// RFC 3678 s3: filters are not of IPv6 alone; but IGMP's second version tells nobody of them.
#[test]
fn filters_of_ipv4_hold_in_the_ring() {
    let mut pair = Pair::new();
    let group = IpAddr::V4(Ipv4Addr::new(239, 1, 2, 3));
    let local = |ip: IpAddr, port| SocketAddr::new(ip, port);
    let speaker = pair.b.udp_open(local(crate::ring::tests::B, 5000), &UdpOptions::default()).unwrap();
    let member = pair.a.udp_open(local(Ipv4Addr::UNSPECIFIED.into(), 7000), &UdpOptions::default()).unwrap();
    for (filter, expected) in [
        (Filter::Exclude(BTreeSet::from([crate::ring::tests::B])), false),
        (Filter::ANY, true),
        (Filter::Include(BTreeSet::from([A])), false),
        (Filter::Include(BTreeSet::from([A, crate::ring::tests::B])), true),
    ] {
        pair.a.udp_listen(pair.now, member, group, A, filter).unwrap();
        let to = Some((local(group, 7000), NextHop::Neighbour(group)));
        pair.b.udp_send(pair.now, speaker, &[IoSlice::new(b"x")], crate::ring::tests::B, to).unwrap();
        pair.settle();
        assert_eq!(pair.a.udp_recv(member, &mut [IoSliceMut::new(&mut [0; 9])], RecvFlags::empty()).is_ok(), expected);
    }
    assert_eq!(pair.a.queues().out.lock().unwrap().len(), 0);
}

#[test]
fn a_ring_without_a_link_local_address_reports_from_nobody() {
    let mut pair = Pair::between(A6.into(), B6.into());
    let socket = open(&mut pair.a, Ipv6Addr::UNSPECIFIED);
    pair.a.udp_join(pair.now, socket, GROUP.into(), A6.into()).unwrap();
    let report = pair.a.queues().out.lock().unwrap().back().cloned().unwrap();
    assert_eq!(report[ethernet::LEN + 8..][..16], [0; 16], "RFC 3810 s5.2.13");
    let config = RingConfig { addresses: vec![A6.into(), A_LINK.into()], ..RingConfig::default() };
    let device = Cable::new(MacAddr([2; 6]), &Default::default(), &Default::default());
    let mut ring = Ring::new(device, config, [1; 32]);
    let socket = open(&mut ring, Ipv6Addr::UNSPECIFIED);
    ring.udp_join(pair.now, socket, GROUP.into(), A6.into()).unwrap();
    let report = ring.queues().out.lock().unwrap().back().cloned().unwrap();
    assert_eq!(report[ethernet::LEN + 8..][..16], A_LINK.octets());
}

#[test]
fn whoever_is_asked_for_in_a_group_listens_to_it() {
    let mut pair = pair();
    pair.a.join_solicited_nodes(pair.now).unwrap();
    // (Both addresses have one group.)
    let group = ipv6::solicited_node(A6);
    assert_eq!(told(&pair), [(RecordKind::ToExclude, group, vec![])]);
    pass(&mut pair, SECOND);
    ask(&mut pair, question(ROUTER, None, &[]));
    assert_eq!(pass(&mut pair, SECOND), [(RecordKind::IsExclude, group, vec![])]);
}

/// Where a kernel is beside the device, it is the kernel that tells routers.
#[test]
fn a_kernel_beside_the_device_reports() {
    let mut pair = pair();
    pair.a.output.caps.is_beside_kernel = true;
    let socket = open(&mut pair.a, Ipv6Addr::UNSPECIFIED);
    pair.a.udp_join(pair.now, socket, GROUP.into(), A6.into()).unwrap();
    pair.a.udp_listen(pair.now, socket, GROUP.into(), A6.into(), including([B6])).unwrap();
    pair.a.udp_leave(pair.now, socket, GROUP.into()).unwrap();
    assert_eq!(pair.a.join_solicited_nodes(pair.now), Err(Error::NotSupported));
    assert_eq!((told(&pair), pair.a.next_deadline()), (vec![], None));
}

/// A device that inserts VLAN tags inserts them into reports, too: routers of the VLAN would not hear of the membership.
#[test]
fn reports_are_of_the_vlan() {
    let mut pair = pair();
    let caps = Capabilities { vlan_insert: true, ..pair.a.output.caps.clone() };
    pair.a.output = Output::new(caps, pair.a.mac, Some(5));
    let socket = open(&mut pair.a, Ipv6Addr::UNSPECIFIED);
    pair.a.udp_join(pair.now, socket, GROUP.into(), A6.into()).unwrap();
    let of_ipv4 = pair.a.udp_open(SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 7000), &UdpOptions::default()).unwrap();
    pair.a.udp_join(pair.now, of_ipv4, Ipv4Addr::new(239, 1, 2, 3).into(), A).unwrap();
    assert_eq!(pair.a.queues().vlans, [Some(5), Some(5)]);
}

#[test]
fn what_a_device_refuses_is_made_up_for() {
    let mut pair = pair();
    let socket = open(&mut pair.a, Ipv6Addr::UNSPECIFIED);
    pair.a.queues_mut().room = 0;
    pair.a.udp_join(pair.now, socket, GROUP.into(), A6.into()).unwrap();
    assert_eq!((told(&pair), pair.a.counters().tx_drops), (vec![], 1));
    pair.a.queues_mut().room = 9;
    assert_eq!(pass(&mut pair, SECOND), [(RecordKind::ToExclude, GROUP, vec![])]);
}

#[test]
fn rings_have_so_many_groups_and_no_more() {
    let mut pair = pair();
    let sockets = [open(&mut pair.a, Ipv6Addr::UNSPECIFIED), open(&mut pair.a, Ipv6Addr::UNSPECIFIED)];
    let group = |n: u16| IpAddr::V6(Ipv6Addr::new(0xff05, 0, 0, 0, 0, 0, 1, n));
    let joined = (0..3000).take_while(|&n| pair.a.udp_join(pair.now, sockets[usize::from(n) % 2], group(n), A6.into()).is_ok()).count();
    assert_eq!(joined, crate::mld::GROUPS_MAX);
    let rules = pair.a.queues().table().rules.len();
    assert_eq!(pair.a.udp_join(pair.now, sockets[0], group(2999), A6.into()), Err(Error::NoBuffers));
    assert_eq!(pair.a.queues().table().rules.len(), rules, "who could not join has no rule");
    sockets.into_iter().for_each(|socket| pair.a.close(pair.now, socket, false));
    assert_eq!((pair.a.queues().table().rules.len(), pair.a.groups.hears(group(0))), (0, false));
}

proptest! {
    /// Whatever a host of the link sends about groups: nothing panics, what is told fits and is true, and what is remembered is bounded.
    #[test]
    fn nobody_can_hurt_a_listener(
        messages in proptest::collection::vec((proptest::collection::vec(any::<u8>(), 0..400), prop_oneof![Just(130u8), Just(131), Just(132), Just(143)], any::<bool>()), 1..20),
    ) {
        let mut pair = pair();
        let socket = open(&mut pair.a, Ipv6Addr::UNSPECIFIED);
        pair.a.udp_listen(pair.now, socket, GROUP.into(), A6.into(), including(sources(0..4))).unwrap();
        pass(&mut pair, SECOND * 20);
        for (mut body, kind, for_all) in messages {
            body.resize(body.len().max(28), 0);
            body[..4].copy_from_slice(&[kind, 0, 0, 0]);
            if for_all {
                body[8..24].fill(0);
            } else {
                body[8..24].copy_from_slice(&GROUP.octets());
            }
            // (A question of this version, with sources that the frame has or has not.)
            let dst = if for_all { ipv6::ALL_NODES } else { GROUP };
            let mut sum = crate::wire::checksum::Checksum::pseudo_header_v6(ROUTER, dst, ipv6::PROTOCOL_ICMPV6, body.len());
            sum.add(&body);
            body[2..4].copy_from_slice(&sum.finish().to_be_bytes());
            let mut packet = vec![0; HEADERS_LEN];
            extension::emit_router_alert(ipv6::PROTOCOL_ICMPV6, 0, &mut packet[ipv6::LEN..]);
            let payload_len = (HEADERS_LEN - ipv6::LEN + body.len()) as u16;
            ipv6::Header { src: ROUTER, dst, next_header: extension::HOP_BY_HOP, hop_limit: 1, traffic_class: 0, flow_label: 0, payload_len }.emit(&mut packet);
            packet.extend(body);
            ask(&mut pair, framed(dst, &packet));
            if pair.a.groups.listener.speaks_v1(pair.now) {
                pair.a.queues().out.lock().unwrap().clear();
                continue;
            }
            for (kind, group, named) in pass(&mut pair, SECOND) {
                prop_assert_eq!((kind, group), (RecordKind::IsInclude, GROUP));
                prop_assert!(named.iter().all(|source| sources(0..4).contains(source)));
            }
        }
        prop_assert_eq!(pair.a.udp_groups(socket), [IpAddr::V6(GROUP)]);
    }
}
