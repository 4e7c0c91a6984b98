mod services;

use core::time::Duration;
use std::net::IpAddr;

use proptest::prelude::*;
use rand_chacha::ChaCha8Rng;
use rand_core::{Rng, SeedableRng};

use super::*;
use crate::device::messages::{ConnectionParams, Data, Messages, Modify, QpConfig, SendOp, SendWr, State as QpState, Status, Transport};
use crate::net::{Address, Builder, Link, LinkId, LinkKind, NextHop, Prefix, RouteEntry, RouteKind, Scope, Table, Tables};
use crate::roce::packet::Packet;
use crate::roce::packet::datagram::{Datagram, OVERHEAD_MAX};
use crate::roce::{Node, NodeConfig};
use crate::time::Instant;

type Machine = Node<Vec<u8>>;

/// Two machines on a cable, each with RDMA-CM over its adapter.
struct Pair {
    now: Instant,
    nodes: [Machine; 2],
    cms: [Manager; 2],
    tables: [Tables; 2],
    /// Nothing arrives while it is cut.
    is_cut: bool,
    sent: usize,
    /// Somebody changes packets, and sends them as well.
    stranger: Option<ChaCha8Rng>,
}

/// The active side, and the passive one.
const ASKS: usize = 0;
const SERVES: usize = 1;

fn address(host: usize) -> IpAddr {
    IpAddr::from([10, 0, 0, 1 + host as u8])
}

/// One link, with one address and the subnet of both machines.
fn tables(host: usize) -> Tables {
    let (link, own) = (LinkId(2), address(host));
    let mut builder = Builder::default();
    builder.links.extend([Link::new(1, "lo", LinkKind::Loopback), Link::new(2, "eth0", LinkKind::Ethernet)]);
    builder.addresses.push(Address::new(link, own, 24).unwrap());
    let base = RouteEntry { preferred_source: Some(own), ..RouteEntry::new(Prefix::host(own), NextHop::new(link, None)) };
    builder.routes.push(RouteEntry { table: Table::LOCAL, kind: RouteKind::Local, scope: Scope::HOST, ..base.clone() });
    builder.routes.push(RouteEntry { destination: Prefix::new(own, 24).unwrap(), ..base });
    builder.build(1)
}

impl Pair {
    fn new() -> Self {
        let node = |host: usize| Node::new(NodeConfig::new(address(host)), host as u64);
        Self {
            now: Instant::ZERO,
            nodes: [node(ASKS), node(SERVES)],
            cms: [Manager::new(), Manager::new()],
            tables: [tables(ASKS), tables(SERVES)],
            is_cut: false,
            sent: 0,
            stranger: None,
        }
    }

    /// Carries packets to and fro for a while.
    fn run_for(&mut self, time: Duration) {
        let mut out = [0; Machine::PACKET_MAX];
        let end = self.now + time;
        loop {
            let mut is_quiet = true;
            for from in [ASKS, SERVES] {
                while let Some(len) = self.nodes[from].poll_transmit(self.now, &mut out) {
                    is_quiet = false;
                    self.sent += 1;
                    if let Some(other) = self.stranger.as_mut().and_then(|dice| changed(dice, &out[..len])) {
                        self.nodes[1 - from].on_packet(self.now, &other);
                    }
                    if !self.is_cut {
                        self.nodes[1 - from].on_packet(self.now, &out[..len]);
                    }
                }
            }
            if is_quiet {
                let next = self.nodes.iter().filter_map(Machine::deadline).min().filter(|at| *at < end);
                let Some(at) = next else { break };
                self.now = at;
                self.nodes.iter_mut().for_each(|node| node.on_timer(at));
            }
        }
        self.now = end;
        for (cm, node) in self.cms.iter_mut().zip(&mut self.nodes) {
            cm.poll(end, node);
        }
    }

    fn run(&mut self) {
        self.run_for(Duration::from_millis(100));
    }

    fn event(&mut self, side: usize) -> Option<EventKind> {
        self.cms[side].next_event().map(|event| event.kind)
    }

    fn qp_config(&mut self, side: usize) -> QpConfig {
        let pd = Messages::alloc_pd(&mut self.nodes[side]);
        let cq = self.nodes[side].create_cq(16).unwrap();
        QpConfig { transport: Transport::Rc, pd, send_cq: cq, recv_cq: cq, send_depth: 4, recv_depth: 4, sges_max: 1, inline_max: 64 }
    }

    /// A queue pair of the identifier's; its completion queue.
    fn create_qp(&mut self, side: usize, id: CmId) -> u32 {
        let config = self.qp_config(side);
        self.cms[side].create_qp(self.now, &mut self.nodes[side], id, config).unwrap();
        config.recv_cq
    }

    fn listen(&mut self, port: u16) -> CmId {
        let cm = &mut self.cms[SERVES];
        let id = cm.create_id().unwrap();
        cm.bind_address(&self.tables[SERVES], id, SocketAddr::new(address(SERVES), port)).unwrap();
        cm.listen(&mut self.nodes[SERVES], id, 4).unwrap();
        id
    }

    /// An identifier that can connect to the other side's port.
    fn resolved(&mut self, port: u16) -> CmId {
        let id = self.cms[ASKS].create_id().unwrap();
        let to = SocketAddr::new(address(SERVES), port);
        self.cms[ASKS].resolve_address(&self.tables[ASKS], &self.nodes[ASKS], id, None, to).unwrap();
        assert_eq!(self.event(ASKS), Some(EventKind::AddressResolved));
        self.cms[ASKS].resolve_route(&self.nodes[ASKS], id).unwrap();
        assert_eq!(self.event(ASKS), Some(EventKind::RouteResolved));
        id
    }

    fn connect(&mut self, id: CmId, qp_num: u32, private_data: &[u8]) {
        let params = ConnectParams { terms: terms(private_data), qp_num, ..ConnectParams::default() };
        self.cms[ASKS].connect(self.now, &mut self.nodes[ASKS], id, &params).unwrap();
    }

    /// The identifier that came with a request, and what that said.
    fn asked(&mut self) -> (CmId, Incoming) {
        self.run();
        match self.cms[SERVES].next_event() {
            Some(Event { id, kind: EventKind::ConnectRequest(incoming), .. }) => (id, *incoming),
            other => panic!("a request comes, and not {other:?}"),
        }
    }

    fn accept(&mut self, id: CmId, qp_num: u32, private_data: &[u8]) {
        let params = ConnectParams { terms: terms(private_data), qp_num, ..ConnectParams::default() };
        self.cms[SERVES].accept(self.now, &mut self.nodes[SERVES], id, &params).unwrap();
    }

    /// A connection of two identifiers with queue pairs.
    fn connected(&mut self) -> [CmId; 2] {
        self.listen(7471);
        let id = self.resolved(7471);
        self.create_qp(ASKS, id);
        self.connect(id, 0, &[]);
        let (asked, _) = self.asked();
        self.create_qp(SERVES, asked);
        self.accept(asked, 0, &[]);
        self.run();
        let both = [self.event(ASKS), self.event(SERVES)];
        assert!(both.iter().all(|event| matches!(event, Some(EventKind::Established(_)))), "{both:?}");
        [id, asked]
    }
}

fn terms(private_data: &[u8]) -> ConnectionParams<'_> {
    ConnectionParams { private_data, ..ConnectionParams::default() }
}

#[test]
fn an_identifier_is_resolved_connected_and_parted_in_order() {
    let mut pair = Pair::new();
    let listener = pair.listen(7471);
    let id = pair.resolved(7471);
    assert_eq!(pair.cms[ASKS].local_address(id).map(|at| at.ip()), Some(address(ASKS)));
    pair.create_qp(ASKS, id);
    pair.connect(id, 0, b"ask");
    pair.run();
    let event = pair.cms[SERVES].next_event().unwrap();
    let EventKind::ConnectRequest(incoming) = event.kind else { panic!("a request comes") };
    assert_eq!((event.listener, &incoming.private_data[..3]), (Some(listener), &b"ask"[..]));
    assert_eq!(pair.cms[SERVES].peer_address(event.id).map(|at| at.ip()), Some(address(ASKS)));
    let cq = pair.create_qp(SERVES, event.id);
    let qp = pair.cms[SERVES].qp(event.id).unwrap();
    pair.nodes[SERVES].post_recv(pair.now, qp, 7, &[]).unwrap();
    pair.accept(event.id, 0, b"answer");
    assert_eq!(pair.event(ASKS), None, "nothing before packets have gone");
    pair.run();
    let Some(EventKind::Established(said)) = pair.event(ASKS) else { panic!("it stands") };
    assert_eq!(said[..6], *b"answer");
    assert!(matches!(pair.event(SERVES), Some(EventKind::Established(_))));

    let wr = SendWr::new(1, SendOp::Send { immediate: Some(5) }, Data::Inline(b""));
    pair.nodes[ASKS].post_send(pair.now, pair.cms[ASKS].qp(id).unwrap(), &wr).unwrap();
    pair.run();
    assert_eq!(pair.nodes[SERVES].poll_cq(cq).map(|got| (got.id, got.status)), Some((7, Status::Success)));

    pair.cms[ASKS].disconnect(pair.now, &mut pair.nodes[ASKS], id).unwrap();
    pair.run_for(Duration::from_secs(60));
    for side in [ASKS, SERVES] {
        assert_eq!(
            [pair.event(side), pair.event(side), pair.event(side)],
            [Some(EventKind::Disconnected), Some(EventKind::TimewaitExit), None]
        );
    }
}

#[test]
fn an_address_is_resolved_by_the_tables_or_says_why_not() {
    let mut pair = Pair::new();
    let mut resolve = |from: Option<&str>, to: &str| {
        let id = pair.cms[ASKS].create_id().unwrap();
        let from = from.map(|from| from.parse().unwrap());
        let resolved = pair.cms[ASKS].resolve_address(&pair.tables[ASKS], &pair.nodes[ASKS], id, from, to.parse().unwrap());
        match (resolved, pair.event(ASKS)) {
            (Err(ResolveError::Unroutable(why)), None) => why.errno().unwrap(),
            (Ok(()), Some(EventKind::AddressResolved)) => 0,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(resolve(None, "10.0.0.2:5"), 0);
    assert_eq!(resolve(Some("10.0.0.1:0"), "10.0.0.2:5"), 0);
    assert_eq!(resolve(None, "10.0.0.1:5"), 0, "ourselves");
    assert_eq!(resolve(None, "192.0.2.1:5"), 101, "no route");
    assert_eq!(resolve(Some("10.0.0.9:0"), "10.0.0.2:5"), 101, "not our address");
    assert_eq!(resolve(None, "239.1.1.1:5"), 101, "no route to groups");
    assert_eq!(resolve(None, "[fd00::1]:5"), 101, "no route of this family");
}

#[test]
fn a_route_that_is_another_device_s_is_none() {
    let mut pair = Pair::new();
    // The host has the address, and the adapter does not.
    pair.nodes[ASKS] = Node::new(NodeConfig::new(IpAddr::from([10, 9, 9, 9])), 1);
    let id = pair.cms[ASKS].create_id().unwrap();
    let to = SocketAddr::new(address(SERVES), 5);
    pair.cms[ASKS].resolve_address(&pair.tables[ASKS], &pair.nodes[ASKS], id, None, to).unwrap();
    assert_eq!(pair.event(ASKS), Some(EventKind::AddressError(AddressError::NoDevice)));
    // It may be resolved again.
    pair.nodes[ASKS] = Node::new(NodeConfig::new(address(ASKS)), 1);
    pair.cms[ASKS].resolve_address(&pair.tables[ASKS], &pair.nodes[ASKS], id, None, to).unwrap();
    assert_eq!(pair.event(ASKS), Some(EventKind::AddressResolved));
}

#[test]
fn calls_out_of_their_order_are_refused() {
    let mut pair = Pair::new();
    let id = pair.cms[ASKS].create_id().unwrap();
    let (now, params) = (pair.now, ConnectParams::default());
    let (cm, node) = (&mut pair.cms[ASKS], &mut pair.nodes[ASKS]);
    assert_eq!(cm.resolve_route(node, id), Err(CmError::State));
    assert_eq!(cm.connect(now, node, id, &params), Err(CmError::State));
    assert_eq!(cm.accept(now, node, id, &params), Err(CmError::State));
    assert_eq!(cm.reject(now, node, id, &[]), Err(CmError::State));
    assert_eq!(cm.establish(now, node, id), Err(CmError::State));
    assert_eq!(cm.disconnect(now, node, id), Err(CmError::State));
    assert_eq!(cm.init_qp_attr(node, id, QpState::Rtr).err(), Some(CmError::State));
    assert!(matches!(cm.init_qp_attr(node, id, QpState::Init), Ok(Modify::Init { .. })));
    assert_eq!(cm.set_option(id, IdOption::AckTimeout(32)), Err(CmError::State), "five bits");
    cm.destroy_id(now, node, id);
    assert_eq!(cm.connect(now, node, id, &params), Err(CmError::Missing));
}

/// Seed 003: the ACK timeout overrides what is calculated, and is 4.096 us * 2^v.
#[test]
fn the_ack_timeout_is_the_one_that_was_set() {
    for code in [10, 16] {
        let mut pair = Pair::new();
        pair.listen(7471);
        let id = pair.resolved(7471);
        pair.cms[ASKS].set_option(id, IdOption::AckTimeout(code)).unwrap();
        pair.create_qp(ASKS, id);
        pair.connect(id, 0, &[]);
        let (asked, _) = pair.asked();
        // The passive side is told of it, and has its own where that was set.
        let Ok(Modify::Rts(sending)) = pair.cms[SERVES].init_qp_attr(&pair.nodes[SERVES], asked, QpState::Rts) else { panic!() };
        assert_eq!(sending.timeout, code);
        pair.cms[SERVES].set_option(asked, IdOption::AckTimeout(3)).unwrap();
        let Ok(Modify::Rts(sending)) = pair.cms[SERVES].init_qp_attr(&pair.nodes[SERVES], asked, QpState::Rts) else { panic!() };
        assert_eq!(sending.timeout, 3);
        pair.create_qp(SERVES, asked);
        pair.accept(asked, 0, &[]);
        pair.run();
        assert_eq!(pair.cms[ASKS].set_option(id, IdOption::AckTimeout(9)), Err(CmError::State), "too late");

        pair.is_cut = true;
        let wr = SendWr::new(1, SendOp::Send { immediate: None }, Data::Inline(b"x"));
        let qp = pair.cms[ASKS].qp(id).unwrap();
        pair.nodes[ASKS].post_send(pair.now, qp, &wr).unwrap();
        pair.sent = 0;
        let timeout = Duration::from_nanos(4096 << code);
        pair.run_for(timeout - Duration::from_nanos(1));
        assert_eq!(pair.sent, 1, "once, and not again before its time");
        // Between once and four times that long (IBTA spec, volume 1, s9.7.6.1.3).
        pair.run_for(timeout * 3 + Duration::from_micros(1));
        assert!(pair.sent > 1, "again after that");
    }
}

/// Seed 003: late establishment. The active side's queue pair is the program's own.
#[test]
fn a_connection_without_a_queue_pair_is_established_by_the_program() {
    let mut pair = Pair::new();
    pair.listen(7471);
    let id = pair.resolved(7471);
    let config = pair.qp_config(ASKS);
    let own = pair.nodes[ASKS].create_qp(config).unwrap();
    pair.connect(id, own, b"ask");
    let (asked, _) = pair.asked();
    let cq = pair.create_qp(SERVES, asked);
    let passive = pair.cms[SERVES].qp(asked).unwrap();
    pair.nodes[SERVES].post_recv(pair.now, passive, 7, &[]).unwrap();
    pair.accept(asked, 0, b"answer");
    pair.run();
    let Some(EventKind::ConnectResponse(said)) = pair.event(ASKS) else { panic!("the response, and not that it stands") };
    assert_eq!(said[..6], *b"answer");
    assert_eq!((pair.event(ASKS), pair.event(SERVES)), (None, None), "the passive side waits");
    assert_eq!(pair.nodes[ASKS].qp_state(own), Some(QpState::Reset), "nobody else touched it");

    for state in [QpState::Init, QpState::Rtr, QpState::Rts] {
        let modify = pair.cms[ASKS].init_qp_attr(&pair.nodes[ASKS], id, state).unwrap();
        pair.nodes[ASKS].modify_qp(pair.now, own, &modify).unwrap();
        assert_eq!(pair.nodes[ASKS].qp_state(own), Some(state));
    }
    pair.run();
    assert_eq!(pair.event(SERVES), None, "still not said");
    pair.cms[ASKS].establish(pair.now, &mut pair.nodes[ASKS], id).unwrap();
    pair.run();
    assert!(matches!(pair.event(SERVES), Some(EventKind::Established(_))));
    assert_eq!(pair.event(ASKS), None, "who establishes knows");
    assert_eq!(pair.cms[ASKS].establish(pair.now, &mut pair.nodes[ASKS], id), Err(CmError::State), "once");

    let wr = SendWr::new(1, SendOp::Send { immediate: None }, Data::Inline(b""));
    pair.nodes[ASKS].post_send(pair.now, own, &wr).unwrap();
    pair.run();
    assert_eq!(pair.nodes[SERVES].poll_cq(cq).map(|got| got.id), Some(7));
}

#[test]
fn the_passive_side_may_have_its_own_queue_pair_too() {
    let mut pair = Pair::new();
    pair.listen(7471);
    let id = pair.resolved(7471);
    pair.create_qp(ASKS, id);
    let asks = ConnectionParams { responder_resources: 4, initiator_depth: 9, ..terms(&[]) };
    pair.cms[ASKS]
        .connect(pair.now, &mut pair.nodes[ASKS], id, &ConnectParams { terms: asks, qp_num: 0, ..ConnectParams::default() })
        .unwrap();
    let (asked, incoming) = pair.asked();
    assert_eq!((incoming.responder_resources, incoming.initiator_depth), (9, 4), "as its own to accept");
    let config = pair.qp_config(SERVES);
    let own = pair.nodes[SERVES].create_qp(config).unwrap();
    for state in [QpState::Init, QpState::Rtr, QpState::Rts] {
        let modify = pair.cms[SERVES].init_qp_attr(&pair.nodes[SERVES], asked, state).unwrap();
        pair.nodes[SERVES].modify_qp(pair.now, own, &modify).unwrap();
    }
    pair.accept(asked, own, &[]);
    pair.run();
    assert!(matches!(pair.event(ASKS), Some(EventKind::Established(_))));
    assert!(matches!(pair.event(SERVES), Some(EventKind::Established(_))));
    assert_eq!(pair.cms[ASKS].establish(pair.now, &mut pair.nodes[ASKS], id), Err(CmError::State), "it has a queue pair");
}

#[test]
fn who_refuses_says_why_and_so_does_who_takes_no_answer() {
    let mut pair = Pair::new();
    pair.listen(7471);
    let id = pair.resolved(7471);
    pair.create_qp(ASKS, id);
    pair.connect(id, 0, &[]);
    let (asked, _) = pair.asked();
    pair.cms[SERVES].reject(pair.now, &mut pair.nodes[SERVES], asked, b"full").unwrap();
    pair.run();
    let Some(EventKind::Rejected(rejection)) = pair.event(ASKS) else { panic!("it is refused") };
    assert_eq!((rejection.reason, &rejection.private_data[..4]), (28, &b"full"[..]), "its program did not want to");

    let id = pair.resolved(7471);
    let config = pair.qp_config(ASKS);
    let own = pair.nodes[ASKS].create_qp(config).unwrap();
    pair.connect(id, own, &[]);
    let (asked, _) = pair.asked();
    pair.create_qp(SERVES, asked);
    pair.accept(asked, 0, &[]);
    pair.run();
    assert!(matches!(pair.event(ASKS), Some(EventKind::ConnectResponse(_))));
    pair.cms[ASKS].reject(pair.now, &mut pair.nodes[ASKS], id, b"late").unwrap();
    pair.run();
    let Some(EventKind::Rejected(rejection)) = pair.event(SERVES) else { panic!("it is refused") };
    assert_eq!(rejection.private_data[..4], *b"late");

    // Where nobody listens, connection management says no.
    let id = pair.resolved(7472);
    pair.create_qp(ASKS, id);
    pair.connect(id, 0, &[]);
    pair.run();
    assert!(matches!(pair.event(ASKS), Some(EventKind::Rejected(rejection)) if rejection.reason == 8));
}

#[test]
fn where_nobody_answers_it_is_unreachable() {
    let mut pair = Pair::new();
    let id = pair.resolved(7471);
    pair.create_qp(ASKS, id);
    pair.is_cut = true;
    pair.connect(id, 0, &[]);
    pair.run_for(Duration::from_secs(200));
    assert_eq!(pair.event(ASKS), Some(EventKind::Unreachable));
    assert_eq!(pair.event(ASKS), None);
}

#[test]
fn private_data_has_its_bounds() {
    let mut pair = Pair::new();
    pair.listen(7471);
    let id = pair.resolved(7471);
    pair.create_qp(ASKS, id);
    let params = ConnectParams { terms: terms(&[1; 57]), qp_num: 0, ..ConnectParams::default() };
    assert_eq!(pair.cms[ASKS].connect(pair.now, &mut pair.nodes[ASKS], id, &params), Err(CmError::TooLong), "RDMA-CM's header is in front");
    pair.connect(id, 0, &[1; 56]);
    let (asked, incoming) = pair.asked();
    assert_eq!(incoming.private_data[..], [1; 56]);
    pair.create_qp(SERVES, asked);
    let params = ConnectParams { terms: terms(&[2; 197]), qp_num: 0, ..ConnectParams::default() };
    assert_eq!(pair.cms[SERVES].accept(pair.now, &mut pair.nodes[SERVES], asked, &params), Err(CmError::TooLong));
    assert_eq!(pair.cms[SERVES].reject(pair.now, &mut pair.nodes[SERVES], asked, &[2; 149]), Err(CmError::TooLong));
    pair.accept(asked, 0, &[2; 196]);
    pair.run();
    assert!(matches!(pair.event(ASKS), Some(EventKind::Established(said)) if said[..] == [2; 196]));
}

#[test]
fn both_may_end_it_at_once_and_each_hears_of_it_once() {
    let mut pair = Pair::new();
    let ids = pair.connected();
    for side in [ASKS, SERVES] {
        pair.cms[side].disconnect(pair.now, &mut pair.nodes[side], ids[side]).unwrap();
        let qp = pair.cms[side].qp(ids[side]).unwrap();
        assert_eq!(pair.nodes[side].qp_state(qp), Some(QpState::Err));
    }
    pair.run_for(Duration::from_secs(60));
    for side in [ASKS, SERVES] {
        assert_eq!(
            [pair.event(side), pair.event(side), pair.event(side)],
            [Some(EventKind::Disconnected), Some(EventKind::TimewaitExit), None]
        );
    }
}

#[test]
fn who_hears_of_the_end_may_stop_its_queue_pair() {
    let mut pair = Pair::new();
    let ids = pair.connected();
    pair.cms[ASKS].disconnect(pair.now, &mut pair.nodes[ASKS], ids[ASKS]).unwrap();
    pair.run();
    assert_eq!(pair.event(SERVES), Some(EventKind::Disconnected));
    let qp = pair.cms[SERVES].qp(ids[SERVES]).unwrap();
    assert_eq!(pair.nodes[SERVES].qp_state(qp), Some(QpState::Rts), "until the program says so");
    pair.cms[SERVES].disconnect(pair.now, &mut pair.nodes[SERVES], ids[SERVES]).unwrap();
    assert_eq!(pair.nodes[SERVES].qp_state(qp), Some(QpState::Err));
}

#[test]
fn of_what_was_let_go_nothing_is_heard() {
    let mut pair = Pair::new();
    let ids = pair.connected();
    pair.cms[ASKS].destroy_id(pair.now, &mut pair.nodes[ASKS], ids[ASKS]);
    pair.run_for(Duration::from_secs(60));
    assert_eq!(pair.event(ASKS), None);
    assert_eq!(pair.event(SERVES), Some(EventKind::Disconnected), "its peer does");

    // A listener's end refuses requests of which the program has not heard.
    let listener = pair.listen(7000);
    let id = pair.resolved(7000);
    pair.create_qp(ASKS, id);
    pair.connect(id, 0, &[]);
    pair.run();
    pair.cms[SERVES].destroy_id(pair.now, &mut pair.nodes[SERVES], listener);
    pair.run();
    assert!(matches!(pair.event(ASKS), Some(EventKind::Rejected(_))));
    assert!(!matches!(pair.event(SERVES), Some(EventKind::ConnectRequest(_))));
}

#[test]
fn two_listeners_have_two_ports_and_any_port_is_a_free_one() {
    let mut pair = Pair::new();
    pair.listen(7471);
    let (cm, node) = (&mut pair.cms[SERVES], &mut pair.nodes[SERVES]);
    let id = cm.create_id().unwrap();
    cm.bind_address(&pair.tables[SERVES], id, SocketAddr::new(address(SERVES), 7471)).unwrap();
    assert_eq!(cm.listen(node, id, 4), Err(CmError::InUse));
    let [a, b] = [(); 2].map(|()| {
        let id = cm.create_id().unwrap();
        cm.listen(node, id, 4).unwrap();
        cm.local_address(id).unwrap().port()
    });
    assert!(a != b && a != 0 && b != 0);
    // One that somebody else has is left out, and one's own is kept.
    let id = cm.create_id().unwrap();
    let mut refused = Vec::new();
    cm.choose_port(id, |port| {
        refused.len() == 2 || {
            refused.push(port);
            false
        }
    })
    .unwrap();
    let chosen = cm.local_address(id).unwrap().port();
    assert!(![a, b, refused[0], refused[1]].contains(&chosen));
    cm.choose_port(id, |_| panic!("it has one")).unwrap();
    cm.listen(node, id, 4).unwrap();
    assert_eq!(cm.local_address(id).unwrap().port(), chosen);
    let id = cm.create_id().unwrap();
    let foreign = SocketAddr::new(address(ASKS), 1);
    assert_eq!(cm.bind_address(&pair.tables[SERVES], id, foreign), Err(CmError::Unroutable), "not our address");
}

#[test]
fn the_type_of_service_is_on_the_packets() {
    let mut pair = Pair::new();
    pair.listen(7471);
    let id = pair.resolved(7471);
    pair.cms[ASKS].set_option(id, IdOption::Tos(0x68)).unwrap();
    pair.create_qp(ASKS, id);
    pair.connect(id, 0, &[]);
    let mut out = [0; Machine::PACKET_MAX];
    pair.nodes[ASKS].poll_transmit(pair.now, &mut out).unwrap();
    assert_eq!(out[1], 0x68, "of IPv4's header");
}

/// A packet with other bytes behind its transport header, and a good CRC; half the time none.
fn changed(dice: &mut ChaCha8Rng, bytes: &[u8]) -> Option<Vec<u8>> {
    let datagram = Datagram::parse(bytes).ok().filter(|_| dice.next_u64() & 1 == 0)?;
    let mut payload = datagram.packet.payload.to_vec();
    for _ in 0..1 + dice.next_u64() % 4 {
        let at = dice.next_u64() as usize % payload.len().max(1);
        *payload.get_mut(at)? = dice.next_u64() as u8;
    }
    let mut out = vec![0; OVERHEAD_MAX + payload.len()];
    let packet = Packet { payload: &payload, ..datagram.packet };
    let len = Datagram { packet, ip_header: &[], ..datagram }.emit(&mut out);
    out.truncate(len);
    Some(out)
}

/// Programs that ask, agree, refuse and end in any order, while a stranger sends changed messages in both their names.
fn among_strangers(seed: u64) {
    let mut dice = ChaCha8Rng::seed_from_u64(seed);
    let mut pair = Pair::new();
    let canaries = [ASKS, SERVES].map(|side| {
        let node = &mut pair.nodes[side];
        let pd = Messages::alloc_pd(node);
        let access = crate::device::messages::Access::LOCAL_WRITE | crate::device::messages::Access::REMOTE_WRITE;
        Messages::register(node, pd, vec![0x5a; 4096], access).unwrap().key
    });
    pair.listen(7471);
    pair.stranger = Some(ChaCha8Rng::seed_from_u64(seed + 1000));
    let mut ids: [Vec<CmId>; 2] = [Vec::new(), Vec::new()];
    for _ in 0..30 {
        let (side, word) = ((dice.next_u64() % 2) as usize, dice.next_u64());
        while let Some(event) = pair.cms[side].next_event() {
            if matches!(event.kind, EventKind::ConnectRequest(_)) {
                ids[side].push(event.id);
            }
        }
        let id = ids[side].get(word as usize % ids[side].len().max(1)).copied();
        let (now, node) = (pair.now, &mut pair.nodes[side]);
        let params = ConnectParams { qp_num: (word >> 40) as u32, ..ConnectParams::default() };
        // Whatever is out of order is refused.
        match (word % 7, id) {
            (0 | 1, _) if side == ASKS && ids[ASKS].len() < 8 => {
                let id = pair.resolved(7471);
                if word & 0x100 == 0 {
                    pair.create_qp(ASKS, id);
                }
                pair.connect(id, 0x1234, &[]);
                ids[ASKS].push(id);
            }
            (2, Some(id)) => drop(pair.cms[side].accept(now, node, id, &params)),
            (3, Some(id)) => drop(pair.cms[side].reject(now, node, id, b"no")),
            (4, Some(id)) => drop(pair.cms[side].establish(now, node, id)),
            (5, Some(id)) => drop(pair.cms[side].disconnect(now, node, id)),
            (6, Some(id)) => {
                pair.cms[side].destroy_id(now, node, id);
                ids[side].retain(|other| *other != id);
            }
            _ => {}
        }
        pair.run_for(Duration::from_millis(word >> 20 & 0x3f));
    }
    for (side, key) in [ASKS, SERVES].into_iter().zip(canaries) {
        assert!(*Messages::memory(&pair.nodes[side], key).unwrap() == vec![0x5a; 4096], "seed {seed}: no memory changes");
        assert!(pair.cms[side].ids.len() < 64, "seed {seed}: identifiers are bounded by what was asked");
        for id in pair.cms[side].ids.keys().copied().collect::<Vec<_>>() {
            pair.cms[side].destroy_id(pair.now, &mut pair.nodes[side], id);
        }
    }
    // Once the stranger is gone, nothing is in the way of the next connection.
    pair.stranger = None;
    pair.run_for(Duration::from_secs(600));
    pair.cms.iter_mut().for_each(|cm| while cm.next_event().is_some() {});
    pair.connected();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn strangers_may_say_anything(seed: u64) {
        among_strangers(seed);
    }
}
