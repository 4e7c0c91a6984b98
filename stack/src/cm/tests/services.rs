//! Datagrams' services and groups: three machines on a switch that loses, doubles, delays and damages what it carries.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::*;
use crate::device::messages::{DatagramPeer, MULTICAST_QP, PortSpace, PrivateData, Sge};
use crate::roce::mad::{self, Mad, Message, RDMA_UDP_QKEY};
use crate::roce::{Flaw, GRH_LEN};

const LATENCY: Duration = Duration::from_micros(5);
const HOSTS: usize = 3;
const PORT: u16 = 7174;
const GROUP: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(239, 1, 2, 3));
/// Bytes of a datagram: its number.
const LEN: usize = 8;
/// Receives of a queue pair, a place each.
const PLACES: u64 = 32;

/// Bytes behind a packet's payload, and in front of what a program's question says.
const ICRC_LEN: usize = 4;
const CM_HEADER_LEN: usize = 36;
/// How long a question is asked for: sixteen times, 4.096 us * 2^14 each.
const PATIENCE: Duration = Duration::from_nanos(16 * (4096 << 14));

/// A UD queue pair of an identifier's, and where its datagrams come to.
struct Ear {
    id: CmId,
    qp: u32,
    cq: u32,
    region: u32,
    address: u64,
    is_member: bool,
}

struct Host {
    node: Machine,
    cm: Manager,
    tables: Tables,
}

/// Percents.
#[derive(Clone, Copy, Default)]
struct Weather {
    loss: u64,
    double: u64,
    late: u64,
    damage: u64,
    /// Packets that are changed, with a good CRC, beside the true ones.
    strange: bool,
}

struct Net {
    now: Instant,
    hosts: Vec<Host>,
    wire: VecDeque<(Instant, usize, Vec<u8>)>,
    weather: Weather,
    dice: ChaCha8Rng,
    /// Questions that have come whole, or will, by their numbers; and when the first answer to each does, by who is answered.
    questions: BTreeSet<u64>,
    answers: BTreeMap<(usize, u64), Instant>,
}

impl Net {
    fn new(weather: Weather, flaw: Flaw, seed: u64) -> Self {
        let host = |host: usize| {
            let mut config = NodeConfig::new(address(host));
            config.addresses.push(format!("fd00::{}", host + 1).parse().unwrap());
            config.cm.response_timeout = 14;
            (config.cm.flaw, config.tuning.flaw) = (flaw, flaw);
            Host { node: Node::new(config, host as u64), cm: Manager::new(), tables: tables(host) }
        };
        let hosts = (0..HOSTS).map(host).collect();
        Self {
            now: Instant::ZERO,
            hosts,
            wire: VecDeque::new(),
            weather,
            dice: ChaCha8Rng::seed_from_u64(seed),
            questions: BTreeSet::new(),
            answers: BTreeMap::new(),
        }
    }

    fn plain() -> Self {
        Self::new(Weather::default(), Flaw::None, 1)
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.dice.next_u64() % 100 < percent
    }

    fn carry(&mut self, from: usize, bytes: &[u8]) {
        let Ok(datagram) = Datagram::parse(bytes) else { return };
        let dst = datagram.path.addresses.dst();
        for to in (0..HOSTS).filter(|to| *to != from && (dst.is_multicast() || dst == address(*to))) {
            let copies = if self.chance(self.weather.loss) { 0 } else { 1 + u64::from(self.chance(self.weather.double)) };
            for _ in 0..copies {
                let late = if self.chance(self.weather.late) { 1 + self.dice.next_u64() % 20_000 } else { 1 };
                let (at, mut bytes) = (self.now + LATENCY * late as u32, bytes.to_vec());
                if self.chance(self.weather.damage) {
                    let bit = self.dice.next_u64() as usize % (bytes.len() * 8);
                    bytes[bit / 8] ^= 1 << (bit % 8);
                } else {
                    self.note(at, to, &bytes);
                }
                self.put(at, to, bytes);
            }
            if let Some(other) = self.weather.strange.then(|| changed(&mut self.dice, bytes)).flatten() {
                self.put(self.now + LATENCY, to, other);
            }
        }
    }

    /// A packet comes whole: which question it is, or answers.
    fn note(&mut self, at: Instant, to: usize, bytes: &[u8]) {
        let mad = bytes.len().checked_sub(mad::LEN + ICRC_LEN).and_then(|begin| Mad::parse(&bytes[begin..]).ok());
        let number = |data: &[u8]| data.first_chunk().map(|bytes| u64::from_be_bytes(*bytes));
        match mad.map(|mad| mad.message) {
            // (RDMA-CM's header is in front.)
            Some(Message::ServiceIdRequest(question)) => self.questions.extend(number(&question.private_data[CM_HEADER_LEN..])),
            Some(Message::ServiceIdReply(answer)) => {
                let number = number(&answer.private_data).unwrap_or_default();
                let first = self.answers.entry((to, number)).or_insert(at);
                *first = at.min(*first);
            }
            _ => {}
        }
    }

    fn put(&mut self, at: Instant, to: usize, bytes: Vec<u8>) {
        let place = self.wire.partition_point(|(other, ..)| *other <= at);
        self.wire.insert(place, (at, to, bytes));
    }

    fn run(&mut self, time: Duration) {
        let end = self.now + time;
        let mut out = [0; Machine::PACKET_MAX];
        loop {
            for from in 0..HOSTS {
                let Host { node, cm, .. } = &mut self.hosts[from];
                cm.poll(self.now, node);
                while let Some(len) = self.hosts[from].node.poll_transmit(self.now, &mut out) {
                    self.carry(from, &out[..len]);
                }
            }
            let timers = self.hosts.iter().filter_map(|host| host.node.deadline());
            let next = self.wire.front().map(|(at, ..)| *at).into_iter().chain(timers).min();
            let Some(next) = next.filter(|at| *at <= end) else { break };
            self.now = self.now.max(next);
            while self.wire.front().is_some_and(|(at, ..)| *at <= self.now) {
                let Some((_, to, bytes)) = self.wire.pop_front() else { break };
                self.hosts[to].node.on_packet(self.now, &bytes);
            }
            self.hosts.iter_mut().for_each(|host| host.node.on_timer(self.now));
        }
        self.now = end;
    }

    fn event(&mut self, host: usize) -> Option<Event> {
        self.hosts[host].cm.next_event()
    }

    fn kind(&mut self, host: usize) -> Option<EventKind> {
        self.event(host).map(|event| event.kind)
    }

    /// An identifier of datagrams with an address, and a queue pair that receives.
    fn ear(&mut self, host: usize) -> Ear {
        let now = self.now;
        let Host { node, cm, tables } = &mut self.hosts[host];
        let id = cm.create_id_in(PortSpace::Udp).unwrap();
        cm.bind_address(tables, id, SocketAddr::new(address(host), 0)).unwrap();
        let pd = Messages::alloc_pd(node);
        let cq = node.create_cq(128).unwrap();
        let config = QpConfig {
            transport: Transport::Ud,
            pd,
            send_cq: cq,
            recv_cq: cq,
            send_depth: 32,
            recv_depth: 32,
            sges_max: 1,
            inline_max: 64,
        };
        let qp = cm.create_qp(now, node, id, config).unwrap();
        let memory = vec![0; PLACES as usize * (GRH_LEN + LEN)];
        let region = Messages::register(node, pd, memory, crate::device::messages::Access::LOCAL_WRITE).unwrap();
        let ear = Ear { id, qp, cq, region: region.key, address: region.address, is_member: false };
        (0..PLACES).for_each(|place| self.post_receive(host, &ear, place));
        ear
    }

    fn post_receive(&mut self, host: usize, ear: &Ear, place: u64) {
        let len = GRH_LEN + LEN;
        let sge = Sge { address: ear.address + place * len as u64, len: len as u32, lkey: ear.region };
        self.hosts[host].node.post_recv(self.now, ear.qp, place, &[sge]).unwrap();
    }

    fn send(&mut self, host: usize, ear: &Ear, to: &DatagramPeer, number: u64) {
        let op = SendOp::Datagram { path: to.path, dest_qp: to.qpn, qkey: to.qkey, immediate: None };
        let bytes = number.to_be_bytes();
        let wr = SendWr::new(u64::MAX, op, Data::Inline(&bytes));
        self.hosts[host].node.post_send(self.now, ear.qp, &wr).unwrap();
    }

    /// The numbers that came.
    fn heard(&mut self, host: usize, ear: &Ear) -> Vec<u64> {
        let mut numbers = Vec::new();
        while let Some(completion) = self.hosts[host].node.poll_cq(ear.cq) {
            assert_eq!(completion.status, Status::Success);
            if completion.id == u64::MAX {
                continue;
            }
            let mut bytes = [0; LEN];
            let at = completion.id * (GRH_LEN + LEN) as u64 + GRH_LEN as u64;
            let memory = Messages::memory(&self.hosts[host].node, ear.region).unwrap();
            crate::device::messages::Memory::read(memory, at, &mut bytes);
            numbers.push(u64::from_be_bytes(bytes));
            self.post_receive(host, ear, completion.id);
        }
        numbers
    }

    fn serve(&mut self, host: usize, backlog: usize) -> CmId {
        let Host { node, cm, tables } = &mut self.hosts[host];
        let id = cm.create_id_in(PortSpace::Udp).unwrap();
        cm.bind_address(tables, id, SocketAddr::new(address(host), PORT)).unwrap();
        cm.listen(node, id, backlog).unwrap();
        id
    }

    /// An identifier that asks `host`'s service, saying so.
    fn ask(&mut self, from: usize, host: usize, port: u16, private_data: &[u8]) -> Result<CmId, CmError> {
        let now = self.now;
        let Host { node, cm, tables } = &mut self.hosts[from];
        let id = cm.create_id_in(PortSpace::Udp).unwrap();
        cm.resolve_address(tables, node, id, None, SocketAddr::new(address(host), port)).unwrap();
        cm.resolve_route(node, id).unwrap();
        assert_eq!(self.kind(from), Some(EventKind::AddressResolved));
        assert_eq!(self.kind(from), Some(EventKind::RouteResolved));
        let Host { node, cm, .. } = &mut self.hosts[from];
        let params = ConnectParams { terms: terms(private_data), ..ConnectParams::default() };
        cm.connect(now, node, id, &params).map(|()| id)
    }

    fn answer(&mut self, host: usize, id: CmId, qp: u32, private_data: &[u8]) -> Result<(), CmError> {
        let params = ConnectParams { terms: terms(private_data), qp_num: qp, qkey: 0 };
        let Host { node, cm, .. } = &mut self.hosts[host];
        cm.accept(self.now, node, id, &params)
    }

    fn join(&mut self, host: usize, ear: &mut Ear) -> DatagramPeer {
        let Host { node, cm, .. } = &mut self.hosts[host];
        cm.join_multicast(node, ear.id, GROUP).unwrap();
        ear.is_member = true;
        let Some(EventKind::MulticastJoined(peer)) = self.kind(host) else { panic!("it is told where the group is") };
        *peer
    }

    fn leave(&mut self, host: usize, ear: &mut Ear) {
        let Host { node, cm, .. } = &mut self.hosts[host];
        cm.leave_multicast(node, ear.id, GROUP).unwrap();
        ear.is_member = false;
    }
}

/// The question that came: whose it is, and what it says.
fn question(event: Option<Event>) -> (CmId, PrivateData) {
    match event {
        Some(Event { id, kind: EventKind::ConnectRequest(incoming), .. }) => (id, incoming.private_data),
        other => panic!("a question comes, and not {other:?}"),
    }
}

#[test]
fn a_service_is_found_and_spoken_to() {
    let mut net = Net::plain();
    net.serve(1, 4);
    let (mine, theirs) = (net.ear(0), net.ear(1));
    let id = net.ask(0, 1, PORT, &[7; 180]).unwrap();
    net.run(Duration::from_millis(1));
    let (asked, said) = question(net.event(1));
    assert_eq!(said[..], [7; 180], "all that there is room for");
    assert_eq!(net.hosts[1].cm.peer_address(asked).map(|at| at.ip()), Some(address(0)));
    assert_eq!(net.answer(1, asked, theirs.qp, &[8; 137]), Err(CmError::TooLong));
    net.answer(1, asked, theirs.qp, &[8; 136]).unwrap();
    assert_eq!(net.answer(1, asked, theirs.qp, &[]), Err(CmError::State), "once");
    net.run(Duration::from_millis(1));
    let Some(Event { id: of, kind: EventKind::ServiceFound(peer), .. }) = net.event(0) else { panic!("it is found") };
    assert_eq!((of, peer.qpn, peer.qkey, &peer.private_data[..]), (id, theirs.qp, RDMA_UDP_QKEY, &[8; 136][..]));
    assert_eq!(EventKind::ServiceFound(peer.clone()).number(), 9);
    net.send(0, &mine, &peer, 42);
    net.run(Duration::from_millis(1));
    assert_eq!(net.heard(1, &theirs), [42]);
    assert_eq!((net.kind(0), net.kind(1)), (None, None), "nothing stands, and nothing ends");
    let now = net.now;
    let Host { node, cm, .. } = &mut net.hosts[0];
    assert_eq!(cm.disconnect(now, node, id), Err(CmError::State));
    assert_eq!(net.ask(0, 1, PORT, &[0; 181]), Err(CmError::TooLong), "RDMA-CM's header is in front");
}

#[test]
fn a_service_may_refuse_be_none_be_busy_or_not_answer() {
    let mut net = Net::plain();
    let listener = net.serve(1, 1);
    let refused = |net: &mut Net, reason: u16, words: &[u8]| {
        net.run(Duration::from_millis(1));
        let Some(EventKind::ServiceRefused(said)) = net.kind(0) else { panic!("it is refused") };
        assert_eq!((said.reason, &said.private_data[..words.len()]), (reason, words));
        assert_eq!(EventKind::ServiceRefused(said).number(), 7);
    };
    net.ask(0, 1, PORT, b"a").unwrap();
    net.run(Duration::from_millis(1));
    let (asked, _) = question(net.event(1));
    // One may wait.
    net.ask(0, 1, PORT, b"b").unwrap();
    refused(&mut net, 3, &[]);
    let now = net.now;
    let Host { node, cm, .. } = &mut net.hosts[1];
    cm.reject(now, node, asked, b"no").unwrap();
    refused(&mut net, 2, b"no");
    net.ask(0, 1, PORT + 1, b"c").unwrap();
    refused(&mut net, 1, &[]);
    // Whoever lets go of a question refuses it; so does a listener's end, of those that were not heard of.
    net.ask(0, 1, PORT, b"d").unwrap();
    net.run(Duration::from_millis(1));
    let now = net.now;
    let Host { node, cm, .. } = &mut net.hosts[1];
    cm.destroy_id(now, node, listener);
    assert_eq!(cm.next_event(), None);
    refused(&mut net, 2, &[]);

    net.serve(2, 4);
    net.ask(0, 2, PORT, b"e").unwrap();
    net.run(Duration::from_millis(1));
    question(net.event(2));
    net.run(Duration::from_secs(3));
    assert_eq!((net.kind(0), net.kind(2)), (Some(EventKind::Unreachable), None), "heard of once, however often it was asked");
}

/// Where each link has its own key, only the program can say which.
#[test]
fn of_ipoib_the_program_says_the_key() {
    let mut net = Net::plain();
    let theirs = net.ear(1);
    let Host { node, cm, tables } = &mut net.hosts[1];
    let listener = cm.create_id_in(PortSpace::Ipoib).unwrap();
    cm.bind_address(tables, listener, SocketAddr::new(address(1), PORT)).unwrap();
    cm.listen(node, listener, 4).unwrap();
    let Host { node, cm, tables } = &mut net.hosts[0];
    let id = cm.create_id_in(PortSpace::Ipoib).unwrap();
    cm.resolve_address(tables, node, id, None, SocketAddr::new(address(1), PORT)).unwrap();
    cm.resolve_route(node, id).unwrap();
    let (pd, cq) = (Messages::alloc_pd(node), node.create_cq(4).unwrap());
    let config =
        QpConfig { transport: Transport::Ud, pd, send_cq: cq, recv_cq: cq, send_depth: 4, recv_depth: 4, sges_max: 1, inline_max: 64 };
    assert_eq!(cm.create_qp(Instant::ZERO, node, id, config), Err(CmError::Unsupported));
    assert_eq!(cm.init_qp_attr(node, id, QpState::Init).err(), Some(CmError::Unsupported));
    cm.connect(Instant::ZERO, node, id, &ConnectParams::default()).unwrap();
    net.run(Duration::from_millis(1));
    let (asked, _) = question(net.event(1));
    assert_eq!(net.answer(1, asked, theirs.qp, &[]), Err(CmError::Unsupported));
    let params = ConnectParams { qp_num: theirs.qp, qkey: 0x0b1b, ..ConnectParams::default() };
    let now = net.now;
    let Host { node, cm, .. } = &mut net.hosts[1];
    cm.accept(now, node, asked, &params).unwrap();
    net.run(Duration::from_millis(1));
    let found = [net.kind(0), net.kind(0), net.kind(0)];
    assert!(matches!(&found[2], Some(EventKind::ServiceFound(peer)) if peer.qkey == 0x0b1b), "{found:?}");
}

#[test]
fn calls_out_of_their_order_are_refused_of_datagrams_too() {
    let mut net = Net::plain();
    let mut ear = net.ear(0);
    let peer = net.join(0, &mut ear);
    assert_eq!((peer.qpn, peer.qkey, peer.path.hop_limit, peer.path.addresses.dst()), (MULTICAST_QP, RDMA_UDP_QKEY, 1, GROUP));
    assert_eq!(EventKind::MulticastJoined(Box::new(peer)).number(), 12);
    let Host { node, cm, tables } = &mut net.hosts[0];
    assert_eq!(cm.join_multicast(node, ear.id, GROUP), Err(CmError::InUse));
    assert_eq!(cm.join_multicast(node, ear.id, address(1)), Err(CmError::Unroutable), "no group's address");
    assert_eq!(cm.join_multicast(node, ear.id, "ff0e::1".parse().unwrap()), Err(CmError::Unroutable), "not of its address's family");
    assert_eq!(cm.leave_multicast(node, ear.id, "239.9.9.9".parse().unwrap()), Err(CmError::Missing));
    let bare = cm.create_id_in(PortSpace::Udp).unwrap();
    assert_eq!(cm.join_multicast(node, bare, GROUP), Err(CmError::State), "without an address");
    let stream = cm.create_id().unwrap();
    cm.bind_address(tables, stream, SocketAddr::new(address(0), 9)).unwrap();
    assert_eq!(cm.join_multicast(node, stream, GROUP), Err(CmError::State), "connections have no groups");
    for number in 1..GROUPS_MAX as u8 {
        cm.join_multicast(node, ear.id, IpAddr::from([239, 2, 2, number])).unwrap();
    }
    assert_eq!(cm.join_multicast(node, ear.id, IpAddr::from([239, 2, 3, 0])), Err(CmError::Full));
    let (pd, cq) = (Messages::alloc_pd(node), node.create_cq(4).unwrap());
    let config =
        QpConfig { transport: Transport::Rc, pd, send_cq: cq, recv_cq: cq, send_depth: 4, recv_depth: 4, sges_max: 1, inline_max: 64 };
    assert_eq!(cm.create_qp(Instant::ZERO, node, bare, config), Err(CmError::State), "of the other transport");
}

#[test]
fn a_group_ends_with_the_identifier_or_its_queue_pair() {
    for by_id in [false, true] {
        let mut net = Net::plain();
        let (mut speaker, mut listener) = (net.ear(0), net.ear(1));
        let peer = net.join(0, &mut speaker);
        net.join(1, &mut listener);
        net.send(0, &speaker, &peer, 1);
        net.run(Duration::from_millis(1));
        assert_eq!((net.heard(0, &speaker), net.heard(1, &listener)), (vec![1], vec![1]), "who is a member hears itself");
        let now = net.now;
        let Host { node, cm, .. } = &mut net.hosts[1];
        if by_id {
            cm.destroy_id(now, node, listener.id);
        } else {
            cm.leave_multicast(node, listener.id, GROUP).unwrap();
        }
        net.send(0, &speaker, &peer, 2);
        net.run(Duration::from_millis(1));
        assert_eq!((net.heard(0, &speaker), net.heard(1, &listener)), (vec![2], vec![]));
    }
}

/// What is known of a question.
struct Asked {
    by: (usize, CmId),
    at: Instant,
    /// How often the program that is asked heard of it.
    times: u32,
    ends: Vec<EventKind>,
}

/// Questions, answers, refusals, joins, leaves and datagrams in any order. Each question is heard of once and ends once, as its answer says; and who is a member
/// hears what is sent to the group, and nobody else does.
fn world(seed: u64, flaw: Flaw) {
    let mut dice = ChaCha8Rng::seed_from_u64(seed);
    let mut below = move |limit: u64| dice.next_u64() % limit;
    let is_gentle = below(3) == 0;
    let weather = if is_gentle {
        Weather::default()
    } else {
        Weather { loss: below(30), double: below(30), late: below(30), damage: below(10), strange: false }
    };
    let mut net = Net::new(weather, flaw, seed + 1);
    for host in 0..HOSTS {
        net.serve(host, 100);
    }
    let mut ears: Vec<(usize, Ear)> = (0..HOSTS * 2).map(|number| (number % HOSTS, net.ear(number % HOSTS))).collect();
    let mut asked: BTreeMap<u64, Asked> = BTreeMap::new();
    let mut heard: BTreeMap<(usize, u64), u32> = BTreeMap::new();
    let mut due: BTreeMap<(usize, u64), u32> = BTreeMap::new();
    for number in 0..25_u64 {
        let (host, ear) = (below(HOSTS as u64) as usize, below(ears.len() as u64) as usize);
        match below(3) {
            0 => {
                let to = (host + 1 + below(2) as usize) % HOSTS;
                let id = net.ask(host, to, PORT, &number.to_be_bytes()).unwrap();
                asked.insert(number, Asked { by: (host, id), at: net.now, times: 0, ends: Vec::new() });
            }
            1 => {
                let (host, ear) = &mut ears[ear];
                if ear.is_member { net.leave(*host, ear) } else { drop(net.join(*host, ear)) }
            }
            _ => {
                let (host, ear) = &ears[ear];
                let (path, mtu) = crate::device::messages::Connections::group_path(&net.hosts[*host].node, None, GROUP).unwrap();
                let peer = DatagramPeer { path, mtu, qpn: MULTICAST_QP, qkey: RDMA_UDP_QKEY, private_data: PrivateData::new() };
                net.send(*host, ear, &peer, number);
                due.extend(ears.iter().enumerate().filter(|(_, (_, ear))| ear.is_member).map(|(place, _)| ((place, number), 1)));
            }
        }
        let rounds = if number == 24 { 40 } else { 1 };
        for _ in 0..rounds {
            // (Where nothing comes late, all has come by then.)
            net.run(LATENCY * 2 + if number == 24 { Duration::from_millis(100) } else { LATENCY * below(2000) as u32 });
            for (place, (host, ear)) in ears.iter().enumerate() {
                for number in net.heard(*host, ear) {
                    assert!(ear.is_member, "seed {seed}: who has left a group hears nothing of it");
                    *heard.entry((place, number)).or_default() += 1;
                }
            }
            for host in 0..HOSTS {
                while let Some(event) = net.event(host) {
                    look(&mut net, host, event, &mut asked, seed);
                }
            }
        }
    }
    assert!(!is_gentle || heard == due, "seed {seed}: members hear all that is sent to the group");
    for (number, Asked { by, at, times, ends }) in &asked {
        let has_come = net.questions.contains(number);
        // (Damage to what a router changes, too, is no damage: RoCEv2's CRC leaves it out.)
        assert!(*times == 1 || *times == 0 && !has_come, "seed {seed}: question {number} was heard {times} times");
        match &ends[..] {
            [EventKind::ServiceFound(peer)] => assert!(number % 4 != 3 && peer.qpn == 0x400 + *number as u32, "seed {seed}"),
            [EventKind::ServiceRefused(_)] => assert!(number % 4 == 3, "seed {seed}"),
            // (Of sixteen questions, and as many answers, all may be lost.)
            [EventKind::Unreachable] => {
                let answered = net.answers.get(&(by.0, *number)).filter(|answered| **answered < *at + PATIENCE);
                assert!(answered.is_none(), "seed {seed}: question {number} of {at:?} was answered at {answered:?}");
            }
            other => panic!("seed {seed}: question {number} ended {other:?}"),
        }
    }
}

fn look(net: &mut Net, host: usize, event: Event, asked: &mut BTreeMap<u64, Asked>, seed: u64) {
    if let EventKind::ConnectRequest(incoming) = event.kind {
        let number = u64::from_be_bytes(incoming.private_data[..8].try_into().unwrap());
        asked.get_mut(&number).expect("somebody asked").times += 1;
        if number % 4 == 3 {
            let now = net.now;
            let Host { node, cm, .. } = &mut net.hosts[host];
            cm.reject(now, node, event.id, &number.to_be_bytes()).unwrap();
        } else {
            net.answer(host, event.id, 0x400 + number as u32, &number.to_be_bytes()).unwrap();
        }
        let now = net.now;
        let Host { node, cm, .. } = &mut net.hosts[host];
        cm.destroy_id(now, node, event.id);
        return;
    }
    let known = asked.values_mut().find(|asked| asked.by == (host, event.id) && asked.ends.is_empty());
    known.unwrap_or_else(|| panic!("seed {seed}: {event:?} comes once")).ends.push(event.kind);
}

#[test]
fn seeds() {
    (0..150).for_each(|seed| world(seed, Flaw::None));
}

/// A campaign of any length: `RINGWAY_MESSAGE_SEEDS=150..20000`.
#[test]
#[ignore = "as long as one likes: RINGWAY_MESSAGE_SEEDS says which seeds"]
fn more_seeds() {
    crate::roce::tests::seeds::run(|seed| world(seed, Flaw::None));
}

#[test]
fn flaws_are_caught() {
    let escaped = crate::roce::tests::flaws::escaped(&Flaw::OF_SERVICES, world);
    assert!(escaped.is_empty(), "{escaped:?}");
}

/// Strangers change what is said, in everybody's name: nothing panics, and what is remembered stays bounded.
#[test]
fn strangers_may_say_anything_of_services() {
    for seed in 0..40 {
        let weather = Weather { strange: true, double: 20, ..Weather::default() };
        let mut net = Net::new(weather, Flaw::None, seed);
        for host in 0..HOSTS {
            net.serve(host, 4);
        }
        let mut ears: Vec<Ear> = (0..HOSTS).map(|host| net.ear(host)).collect();
        let peers: Vec<DatagramPeer> = ears.iter_mut().enumerate().map(|(host, ear)| net.join(host, ear)).collect();
        for number in 0..30 {
            let host = number as usize % HOSTS;
            let _ = net.ask(host, (host + 1) % HOSTS, PORT, b"?");
            net.send(host, &ears[host], &peers[host], number);
            net.run(Duration::from_millis(30));
            for (host, ear) in ears.iter().enumerate() {
                net.heard(host, ear);
                while let Some(event) = net.event(host) {
                    if matches!(event.kind, EventKind::ConnectRequest(_)) && number % 3 > 0 {
                        let _ = net.answer(host, event.id, number as u32, b"!");
                    }
                }
                assert!(net.hosts[host].cm.ids.len() < 200, "seed {seed}: identifiers are bounded by what was asked");
            }
        }
    }
}
