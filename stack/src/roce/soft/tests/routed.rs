//! Machines on an ordinary network: a segment each, or a router between, with hosts that resolve neighbours.

use std::sync::Arc;

use super::*;
use crate::net::{Address, Builder, Family, Link, LinkAddress, LinkId, LinkKind, Neighbour, NeighbourState, NextHop, Prefix, RouteEntry};
use crate::roce::Network;

type Routers = SoftRoce<Port, Vec<u8>, Routed>;

const LINK: LinkId = LinkId(2);

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// A host's tables: its address, a route to its own subnet and one by 10.1.0.254 to all else; and its neighbours, by their last bytes.
struct Tabled {
    address: &'static str,
    is_running: bool,
    mtu: u32,
    neighbours: Vec<(&'static str, NeighbourState, Option<u8>)>,
}

impl Tabled {
    const fn new(address: &'static str) -> Self {
        Self { address, is_running: true, mtu: 5000, neighbours: Vec::new() }
    }

    /// Who has answered, and who has not.
    fn knows(&self, neighbours: &[(&'static str, NeighbourState, Option<u8>)]) -> Self {
        Self { neighbours: neighbours.to_vec(), ..*self }
    }

    fn network(&self, generation: u64) -> Network {
        let own = Address::new(LINK, ip(self.address), 24).unwrap();
        let router = NextHop::new(LINK, Some(ip("10.1.0.254")));
        let mut routes = vec![RouteEntry::new(own.prefix, NextHop::new(LINK, None)), RouteEntry::new(Prefix::all(Family::V4), router)];
        routes.iter_mut().for_each(|route| route.preferred_source = Some(ip(self.address)));
        let neighbours = self.neighbours.iter().map(|(address, state, last)| Neighbour {
            link: LINK,
            address: ip(address),
            state: *state,
            link_address: last.and_then(|last| LinkAddress::new(&mac(last).0)),
            is_router: false,
        });
        let link = Link { is_up: self.is_running, mtu: self.mtu, ..Link::new(LINK.0, "w0", LinkKind::Ethernet) };
        let routes = if self.is_running { routes } else { Vec::new() };
        let builder = Builder { links: vec![link], addresses: vec![own], routes, neighbours: neighbours.collect(), ..Builder::default() };
        Network::new(LINK, Arc::new(builder.build(generation)))
    }
}

fn machine_on(switch: &Switch, number: u8, tables: &Tabled) -> Routers {
    let network = tables.network(1);
    let mut node = Node::new(NodeConfig { mtu: Mtu::B1024, ..NodeConfig::new(ip("0.0.0.0")) }, number.into());
    node.set_network(network.clone());
    SoftRoce::new(switch.port(number), node, Routed::new(network))
}

const REACHABLE: NeighbourState = NeighbourState::Reachable;
const A: Tabled = Tabled::new("10.1.0.1");
const B: Tabled = Tabled::new("10.1.0.2");

fn to_b() -> SocketAddr {
    SocketAddr::new(ip(B.address), 7471)
}

fn ask(now: Instant, a: &mut Routers, end: &End, to: SocketAddr) -> Result<ConnectionId, crate::device::messages::CmError> {
    a.node_mut().connect(now, end.qp, "0.0.0.0:0".parse().unwrap(), to, b"ask")
}

/// A's and B's queue pairs, connected; both know each other's Ethernet addresses.
fn connected(now: &mut Instant, a: &mut Routers, b: &mut Routers) -> (End, End, [ConnectionId; 2]) {
    a.set_network(A.knows(&[("10.1.0.2", REACHABLE, Some(2))]).network(2));
    b.set_network(B.knows(&[("10.1.0.1", REACHABLE, Some(1))]).network(2));
    let (of_a, of_b) = (end(a), end(b));
    let _ = b.node_mut().listen(to_b(), 8);
    let asked = ask(*now, a, &of_a, to_b()).unwrap();
    run(now, MS, &mut [a, b]);
    let Some((id, ConnectionEvent::Request(request))) = b.node_mut().poll_connection() else { panic!("a request comes") };
    assert_eq!((request.local, request.remote.ip()), (to_b(), ip(A.address)));
    assert_eq!(a.node().local_name(asked), Some(request.remote));
    b.node_mut().accept(*now, id, of_b.qp, b"answer").unwrap();
    run(now, MS, &mut [a, b]);
    assert!(matches!(a.node_mut().poll_connection(), Some((_, ConnectionEvent::Established(_)))));
    assert!(matches!(b.node_mut().poll_connection(), Some((_, ConnectionEvent::Established(_)))));
    (of_a, of_b, [asked, id])
}

#[test]
fn what_is_for_a_neighbour_waits_until_the_host_knows_it() {
    let switch = Switch::new(100);
    let (mut a, mut b) = (machine_on(&switch, 1, &A), machine_on(&switch, 2, &B));
    let mut now = Instant::ZERO;
    let of_a = end(&mut a);
    b.node_mut().listen(to_b(), 8).unwrap();
    ask(now, &mut a, &of_a, to_b()).unwrap();
    a.transmit(now);
    assert!(a.has_questions());
    assert_eq!((a.take_question(), a.take_question()), (Some(ip("10.1.0.2")), None));
    // Another one that is under way asks nobody anew; what came of others is no answer.
    ask(now, &mut a, &of_a, to_b()).unwrap();
    a.set_network(A.knows(&[("10.1.0.9", REACHABLE, Some(9)), ("10.1.0.2", NeighbourState::Incomplete, None)]).network(2));
    a.transmit(now);
    assert_eq!((a.take_question(), switch.take(2).len(), a.traffic().lost), (None, 0, 0));
    a.set_network(A.knows(&[("10.1.0.2", REACHABLE, Some(2))]).network(3));
    run(&mut now, Duration::ZERO, &mut [&mut a, &mut b]);
    assert!(a.waiting.is_empty());
    assert!(matches!(b.node_mut().poll_connection(), Some((_, ConnectionEvent::Request(_)))));
    // The host is told now and then that a neighbour is in use.
    assert_eq!((a.take_question(), a.take_question()), (Some(ip("10.1.0.2")), None));
}

#[test]
fn who_is_beyond_a_router_is_reached_by_it() {
    let switch = Switch::new(100);
    let mut a = machine_on(&switch, 1, &A);
    let of_a = end(&mut a);
    let _router = switch.port(254);
    ask(Instant::ZERO, &mut a, &of_a, "10.9.9.9:7471".parse().unwrap()).unwrap();
    a.transmit(Instant::ZERO);
    assert_eq!(a.take_question(), Some(ip("10.1.0.254")));
    a.set_network(A.knows(&[("10.1.0.254", REACHABLE, Some(254))]).network(2));
    a.transmit(Instant::ZERO);
    let frames = switch.take(254);
    assert_eq!(frames.len(), 1);
    assert_eq!(ends_of(&frames[0][ethernet::LEN..]), Some((ip("10.1.0.1"), ip("10.9.9.9"))));
}

#[test]
fn who_does_not_answer_the_host_is_nowhere() {
    let switch = Switch::new(100);
    let mut a = machine_on(&switch, 1, &A);
    let of_a = end(&mut a);
    ask(Instant::ZERO, &mut a, &of_a, to_b()).unwrap();
    a.transmit(Instant::ZERO);
    assert_eq!((a.waiting.len(), a.take_question()), (1, Some(ip("10.1.0.2"))));
    a.set_network(A.knows(&[("10.1.0.2", NeighbourState::Failed, None)]).network(2));
    a.transmit(Instant::ZERO);
    assert_eq!((a.waiting.len(), a.traffic().lost, a.take_question()), (0, 1, None));
    // The next packet has it asked for again, for a while, whatever the host says of before.
    ask(Instant::ZERO, &mut a, &of_a, to_b()).unwrap();
    a.transmit(Instant::ZERO);
    assert_eq!((a.waiting.len(), a.take_question()), (1, Some(ip("10.1.0.2"))));
    let later = Instant::ZERO + Duration::from_secs(4);
    assert!(a.deadline().is_some_and(|at| at <= later));
    a.poll(later);
    assert_eq!(a.traffic().lost, 2);
}

#[test]
fn whole_messages_go_both_ways_and_only_those_that_are_for_this_machine() {
    let switch = Switch::new(100);
    let (mut a, mut b) = (machine_on(&switch, 1, &A), machine_on(&switch, 2, &B));
    let mut now = Instant::ZERO;
    let (of_a, of_b, _) = connected(&mut now, &mut a, &mut b);
    let bytes: Vec<u8> = (0..20_000u32).map(|i| (i % 251) as u8).collect();
    Messages::memory_mut(a.node_mut(), of_a.region.key).unwrap().write(0, &bytes);
    write(now, &mut a, &of_a, &of_b, 20_000);
    a.transmit(now);
    let frames = switch.take(2);
    assert_eq!(frames.len(), 5, "of 4096 bytes, as the link has it");
    // Each with its CRC: one that is damaged is no packet. Nor is one that is for another machine, or that says it is from this one.
    let mut damaged = frames[0].clone();
    damaged[100] ^= 1;
    switch.deliver(1, 2, damaged);
    let strange = b.traffic().strange;
    for (at, with) in [(30, [10, 1, 0, 7]), (26, [10, 1, 0, 2])] {
        let mut other = frames[0].clone();
        other[at..at + 4].copy_from_slice(&with);
        switch.deliver(1, 2, other);
    }
    b.poll(now);
    assert_eq!((b.traffic().strange - strange, b.node().hca().dropped().corrupted), (2, 1));
    frames.into_iter().for_each(|frame| switch.deliver(1, 2, frame));
    run(&mut now, MS, &mut [&mut a, &mut b]);
    assert_eq!(completed(&mut a, &of_a), [Status::Success]);
    assert!(*Messages::memory(b.node(), of_b.region.key).unwrap() == bytes);
}

#[test]
fn a_queue_without_room_is_tried_again_after_a_moment() {
    let switch = Switch::new(3);
    let (mut a, mut b) = (machine_on(&switch, 1, &A), machine_on(&switch, 2, &B));
    let mut now = Instant::ZERO;
    let (of_a, of_b, _) = connected(&mut now, &mut a, &mut b);
    write(now, &mut a, &of_a, &of_b, 20_000);
    a.transmit(now);
    assert_eq!(a.deadline(), Some(now + ROOM_AFTER));
    run(&mut now, MS, &mut [&mut a, &mut b]);
    assert_eq!((completed(&mut a, &of_a), a.look_at), (vec![Status::Success], None));
}

#[test]
fn connections_end_when_the_link_goes_down() {
    let switch = Switch::new(100);
    let (mut a, mut b) = (machine_on(&switch, 1, &A), machine_on(&switch, 2, &B));
    let mut now = Instant::ZERO;
    let (of_a, of_b, ids) = connected(&mut now, &mut a, &mut b);
    let asking = end(&mut a);
    let asked = ask(now, &mut a, &asking, to_b()).unwrap();
    write(now, &mut a, &of_a, &of_b, 100);
    a.set_network(Tabled { is_running: false, ..A }.network(3));
    let mut events = [a.node_mut().poll_connection(), a.node_mut().poll_connection()];
    events.sort_by_key(|event| event.as_ref().map(|(id, _)| *id));
    let mut expected = [ids[0], asked].map(|id| Some((id, ConnectionEvent::Down)));
    expected.sort_by_key(|event| event.as_ref().map(|(id, _)| *id));
    assert_eq!((events, a.node_mut().poll_connection()), (expected, None));
    assert_eq!(ask(now, &mut a, &asking, to_b()), Err(crate::device::messages::CmError::Unroutable));
    ids[..1].iter().chain([&asked]).for_each(|id| a.node_mut().destroy(now, *id));
    // The queue pair asks in vain, and gives up.
    run(&mut now, Duration::from_secs(100), &mut [&mut a]);
    assert_eq!((completed(&mut a, &of_a), a.node().qp_state(of_a.qp)), (vec![Status::RetryExceeded], Some(State::Err)));
    assert_eq!(a.deadline(), None);
    // It is up again.
    let _ = connected(&mut now, &mut a, &mut b);
}

#[test]
fn what_is_sent_to_a_group_goes_to_its_ethernet_address() {
    let switch = Switch::new(100);
    let mut a = machine_on(&switch, 1, &A);
    let _group = switch.port(3);
    let node = a.node_mut();
    let pd = Messages::alloc_pd(node);
    let cq = node.create_cq(16).unwrap();
    let config =
        QpConfig { transport: Transport::Ud, pd, send_cq: cq, recv_cq: cq, send_depth: 4, recv_depth: 4, sges_max: 1, inline_max: 64 };
    let qp = node.create_qp(config).unwrap();
    let sq_psn = crate::device::messages::Psn::new(0);
    for modify in [Modify::Init { access: Access::empty(), qkey: 7 }, Modify::RtrDatagram, Modify::RtsDatagram { sq_psn }] {
        node.modify_qp(Instant::ZERO, qp, &modify).unwrap();
    }
    let (path, _) = node.group_path(None, ip("224.129.2.3")).unwrap();
    let op = SendOp::Datagram { path, dest_qp: crate::device::messages::MULTICAST_QP, qkey: 7, immediate: None };
    node.post_send(Instant::ZERO, qp, &SendWr::new(1, op, Data::Inline(b"all"))).unwrap();
    a.transmit(Instant::ZERO);
    let frames = switch.take(3);
    assert_eq!(frames.iter().map(|frame| &frame[..6]).collect::<Vec<_>>(), [[0x01, 0x00, 0x5e, 0x01, 2, 3]]);
}
