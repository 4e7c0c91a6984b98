use core::time::Duration;
use std::net::Ipv4Addr;

use proptest::prelude::*;
use rand_chacha::ChaCha8Rng;
use rand_core::{Rng, SeedableRng};

use super::*;
use crate::roce::capture;
use crate::roce::mad::private::{self, PortSpace};
use crate::roce::mad::{GSI_QKEY, Responded, SidrStatus};
use crate::roce::packet::Body;
use crate::roce::packet::datagram::Addresses;
use crate::roce::packet::frame::Frame;
use crate::roce::psn::Psn;
use crate::roce::qp::Mtu;

const SERVICE: u64 = private::service_id(PortSpace::Tcp, 7471);
const LATENCY: Duration = Duration::from_millis(1);
/// 4.096 us * 2^20.
const PATIENCE: Duration = Duration::from_nanos(4096 << 20);
const NO_PRIVATE: [u8; Reject::PRIVATE_LEN] = [0; Reject::PRIVATE_LEN];

type Fate = Box<dyn FnMut(usize, &Mad) -> Vec<Duration>>;

/// Two connection managements, A at index 0 and B at 1, and a wire.
struct Pair {
    now: Instant,
    ends: [Cm; 2],
    /// Says when copies of a datagram arrive, given how many were sent before it.
    fate: Fate,
    wire: Vec<(Instant, usize, Management)>,
    /// All that was sent: by whom, when, what.
    log: Vec<(usize, Instant, Mad)>,
    events: [Vec<(ConnectionId, Event)>; 2],
}

const A: usize = 0;
const B: usize = 1;

fn path(from: usize) -> Path {
    let host = |side: usize| Ipv4Addr::new(10, 9, 0, side as u8 + 1);
    Path::new(Addresses::V4 { src: host(from), dst: host(1 - from) }, 1)
}

fn connect() -> Connect {
    Connect {
        path: path(A),
        service_id: SERVICE,
        qpn: 0x100,
        starting_psn: Psn::new(1),
        mtu: Mtu::B1024,
        ack_timeout: 19,
        responder_resources: 1,
        initiator_depth: 2,
        flow_control: true,
        retry_count: 7,
        rnr_retry_count: 7,
        private_data: [3; Request::PRIVATE_LEN],
    }
}

fn accept() -> Accept {
    Accept {
        qpn: 0x200,
        starting_psn: Psn::new(2),
        responder_resources: 2,
        initiator_depth: 1,
        flow_control: true,
        rnr_retry_count: 7,
        private_data: [4; Reply::PRIVATE_LEN],
    }
}

impl Pair {
    fn new() -> Self {
        let mut pair = Self {
            now: Instant::from_nanos(5),
            ends: [Cm::new(Config::default(), 1), Cm::new(Config::default(), 2)],
            fate: Box::new(|_, _| vec![LATENCY]),
            wire: Vec::new(),
            log: Vec::new(),
            events: [Vec::new(), Vec::new()],
        };
        pair.ends[B].listen(SERVICE, 2).unwrap();
        pair
    }

    fn transmit(&mut self) {
        for side in [A, B] {
            while let Some(management) = self.ends[side].poll_transmit() {
                let mad = Mad::parse(&management.bytes).expect("what is sent parses");
                for delay in (self.fate)(self.log.len(), &mad) {
                    self.wire.push((self.now + delay, 1 - side, management.clone()));
                }
                self.log.push((side, self.now, mad));
            }
        }
        self.wire.sort_by_key(|(at, ..)| *at);
    }

    /// Lets this much time pass. Programs accept all requests and establish all replies, if `eager`.
    fn run(&mut self, time: Duration, eager: bool) {
        let end = self.now + time;
        loop {
            self.take_events(eager);
            self.transmit();
            let timers = self.ends.iter().filter_map(Cm::deadline);
            let next = self.wire.first().map(|(at, ..)| *at).into_iter().chain(timers).min();
            let Some(next) = next.filter(|at| *at <= end) else {
                self.now = end;
                return;
            };
            self.now = next;
            while self.wire.first().is_some_and(|(at, ..)| *at <= self.now) {
                let (_, to, management) = self.wire.remove(0);
                let mad = Mad::parse(&management.bytes).expect("what is sent parses");
                let (concerns, before) = (self.ends[to].concerns(&mad), self.ends[to].events.len());
                self.ends[to].on_management(self.now, &management);
                assert!(concerns || self.ends[to].events.len() == before, "an event by what is said to concern nobody: {mad:?}");
            }
            for end in &mut self.ends {
                end.on_timer(self.now);
            }
        }
    }

    fn take_events(&mut self, eager: bool) {
        for side in [A, B] {
            while let Some((id, event)) = self.ends[side].poll_event() {
                match event {
                    Event::Request { .. } if eager => self.ends[side].accept(self.now, id, &accept()).unwrap(),
                    Event::Reply(_) if eager => self.ends[side].establish(self.now, id).unwrap(),
                    _ => {}
                }
                self.events[side].push((id, event));
            }
        }
    }

    /// Both programs let go of all that they have.
    fn destroy_all(&mut self) {
        for side in [A, B] {
            let keys: Vec<_> = self.ends[side].connections.keys().collect();
            keys.into_iter().for_each(|key| self.ends[side].destroy(self.now, ConnectionId(key)));
        }
    }

    /// What `side` learned since the last call, as names.
    fn names(&mut self, side: usize) -> Vec<&'static str> {
        core::mem::take(&mut self.events[side]).iter().map(|(_, event)| name(event)).collect()
    }

    fn last(&self, side: usize) -> ConnectionId {
        self.events[side].last().expect("there was an event").0
    }

    /// A connection with both numbers.
    fn connected(&mut self) -> [ConnectionId; 2] {
        let now = self.now;
        let a = self.ends[A].connect(now, &connect()).unwrap();
        self.run(LATENCY * 10, true);
        let b = self.last(B);
        assert_eq!(self.names(A), ["reply"]);
        assert_eq!(self.names(B), ["request", "established"]);
        [a, b]
    }

    /// In an hour, nothing is left: no connection, no timer.
    fn check_empty(&mut self) {
        self.run(Duration::from_secs(3600), false);
        for cm in &self.ends {
            assert_eq!(cm.connections.keys().count(), 0);
            assert!(cm.by_remote_id.is_empty() && cm.by_remote_qpn.is_empty() && cm.timers.is_empty());
            assert!(cm.listeners.values().all(|listener| listener.waiting == 0));
        }
    }

    /// How many messages with this attribute `side` sent.
    fn count(&self, side: usize, attribute: u16) -> usize {
        self.log.iter().filter(|(from, _, mad)| *from == side && mad.message.attribute() == attribute).count()
    }
}

fn name(event: &Event) -> &'static str {
    match event {
        Event::Request { .. } => "request",
        Event::Reply(_) => "reply",
        Event::Established => "established",
        Event::Rejected(_) => "rejected",
        Event::Unreachable => "unreachable",
        Event::Disconnected => "disconnected",
        Event::TimewaitExit => "timewait exit",
        Event::Question { .. } => "question",
        Event::ServiceAnswer(_) => "service",
    }
}

#[test]
fn a_connection_begins_and_ends_as_in_the_capture() {
    let mut pair = Pair::new();
    let [a, _] = pair.connected();
    pair.ends[A].disconnect(pair.now, a).unwrap();
    pair.run(LATENCY * 10, true);
    assert_eq!((pair.names(A), pair.names(B)), (vec!["disconnected"], vec!["disconnected"]));
    // REQ, REP, RTU, DREQ, DREP.
    let attributes: Vec<_> = pair.log.iter().map(|(from, _, mad)| (*from, mad.message.attribute())).collect();
    assert_eq!(attributes, [(A, 0x10), (B, 0x13), (A, 0x14), (A, 0x15), (B, 0x16)]);
    assert!(pair.log.iter().take(3).all(|(.., mad)| mad.transaction == pair.log[0].2.transaction));
    assert_eq!(pair.ends[A].disconnect(pair.now, a), Err(CmError::State));
    pair.check_empty();
    assert_eq!((pair.names(A), pair.names(B)), (vec!["timewait exit"], vec!["timewait exit"]));
}

#[test]
fn a_request_says_what_upstream_s_said() {
    let mads = capture::frames().filter_map(|bytes| Frame::parse(bytes).ok()).filter_map(|frame| {
        let datagram = frame.datagram;
        let management = matches!(datagram.packet.header.body, Body::Datagram(deth, _) if deth.qkey == GSI_QKEY);
        management.then(|| (datagram.path, Mad::parse(datagram.packet.payload).unwrap()))
    });
    let mads: Vec<_> = mads.take(2).collect();
    let [(their_path, Mad { message: Message::Request(theirs), .. }), (_, Mad { message: Message::Reply(reply), .. })] = mads[..] else {
        panic!()
    };
    let mut pair = Pair::new();
    let path = Path { flow_label: theirs.primary.flow_label, ..their_path };
    let connect = Connect {
        path,
        service_id: theirs.service_id,
        qpn: theirs.qpn,
        starting_psn: theirs.starting_psn,
        mtu: Mtu::B1024,
        ack_timeout: 19,
        responder_resources: 0,
        initiator_depth: 0,
        flow_control: true,
        retry_count: 7,
        rnr_retry_count: 7,
        private_data: theirs.private_data,
    };
    pair.ends[A].config.ca_guid = theirs.ca_guid;
    let id = pair.ends[A].connect(pair.now, &connect).unwrap();
    let Some(sent) = pair.ends[A].poll_transmit() else { panic!() };
    let Ok(Mad { message: Message::Request(ours), .. }) = Mad::parse(&sent.bytes) else { panic!() };
    // Its own number is each one's; the rate is of a link that is not there.
    let mut expected = Request { local_id: ours.local_id, ..theirs };
    expected.primary.packet_rate = 0;
    assert_eq!(ours, expected);
    assert_eq!(ours.local_id, pair.ends[A].wire_id(id.0));

    pair.ends[B].config.ca_guid = reply.ca_guid;
    pair.ends[B].on_management(pair.now, &sent);
    let Some((id, Event::Request { .. })) = pair.ends[B].poll_event() else { panic!() };
    let (qpn, starting_psn, private_data) = (reply.qpn, reply.starting_psn, reply.private_data);
    let accept = Accept { qpn, starting_psn, responder_resources: 0, initiator_depth: 0, private_data, ..accept() };
    pair.ends[B].accept(pair.now, id, &accept).unwrap();
    let Some(sent) = pair.ends[B].poll_transmit() else { panic!() };
    let Ok(Mad { message: Message::Reply(answer), .. }) = Mad::parse(&sent.bytes) else { panic!() };
    assert_eq!(answer, Reply { local_id: answer.local_id, remote_id: ours.local_id, ..reply });
}

#[test]
fn whatever_is_lost_once_comes_again() {
    for lost in 0..5 {
        let mut pair = Pair::new();
        pair.fate = Box::new(move |number, _| if number == lost { vec![] } else { vec![LATENCY] });
        let a = pair.ends[A].connect(pair.now, &connect()).unwrap();
        pair.run(PATIENCE * 3, true);
        assert_eq!((pair.names(A), pair.names(B)), (vec!["reply"], vec!["request", "established"]), "{lost}");
        pair.ends[A].disconnect(pair.now, a).unwrap();
        pair.run(PATIENCE * 3, true);
        let ends = ["disconnected", "timewait exit"];
        assert_eq!((pair.names(A), pair.names(B)), (ends.to_vec(), ends.to_vec()), "{lost}");
        pair.check_empty();
    }
}

#[test]
fn whatever_comes_twice_is_done_once() {
    let mut pair = Pair::new();
    pair.fate = Box::new(|_, _| vec![LATENCY, LATENCY * 3, LATENCY * 30]);
    let a = pair.ends[A].connect(pair.now, &connect()).unwrap();
    pair.run(PATIENCE, true);
    assert_eq!((pair.names(A), pair.names(B)), (vec!["reply"], vec!["request", "established"]));
    pair.ends[A].disconnect(pair.now, a).unwrap();
    pair.run(LATENCY * 300, true);
    assert_eq!((pair.names(A), pair.names(B)), (vec!["disconnected"], vec!["disconnected"]));
    pair.check_empty();
}

#[test]
fn nobody_answers() {
    let mut pair = Pair::new();
    pair.fate = Box::new(|_, _| vec![]);
    let a = pair.ends[A].connect(pair.now, &connect()).unwrap();
    pair.run(PATIENCE * 16 - LATENCY, true);
    assert!(pair.names(A).is_empty());
    assert_eq!(pair.count(A, 0x10), 16, "once, and 15 times again, as RDMA-CM does");
    pair.run(LATENCY, true);
    assert_eq!(pair.names(A), ["unreachable"]);
    assert_eq!(pair.count(A, 0x12), 1, "if the peer heard anything, it is told");
    pair.ends[A].destroy(pair.now, a);
    pair.check_empty();
}

#[test]
fn a_reply_that_nobody_answers_ends_both() {
    let mut pair = Pair::new();
    // Nothing of A's gets through after its request, until the rejection could.
    pair.fate = Box::new(|_, mad| if matches!(mad.message, Message::ReadyToUse(_)) { vec![] } else { vec![LATENCY] });
    let a = pair.ends[A].connect(pair.now, &connect()).unwrap();
    pair.run(PATIENCE * 19, true);
    assert_eq!(pair.names(A), ["reply", "disconnected", "timewait exit"]);
    let b = pair.last(B);
    assert_eq!(pair.names(B), ["request", "unreachable"]);
    pair.ends[A].destroy(pair.now, a);
    pair.ends[B].destroy(pair.now, b);
    pair.check_empty();
}

#[test]
fn a_packet_says_as_much_as_an_rtu() {
    let mut pair = Pair::new();
    pair.fate = Box::new(|_, mad| if matches!(mad.message, Message::ReadyToUse(_)) { vec![] } else { vec![LATENCY] });
    pair.ends[A].connect(pair.now, &connect()).unwrap();
    pair.run(LATENCY * 10, true);
    let b = pair.last(B);
    pair.ends[B].on_communication(b);
    pair.run(PATIENCE * 5, true);
    assert_eq!(pair.names(B), ["request", "established"]);
    assert_eq!(pair.count(B, 0x13), 1, "the reply is not sent again");
}

#[test]
fn a_program_says_no() {
    let mut pair = Pair::new();
    let a = pair.ends[A].connect(pair.now, &connect()).unwrap();
    pair.run(LATENCY * 2, false);
    let b = pair.last(B);
    pair.ends[B].reject(pair.now, b, RejectReason::CONSUMER_DEFINED, [9; Reject::PRIVATE_LEN]).unwrap();
    pair.run(LATENCY * 2, false);
    let Some((_, Event::Rejected(reject))) = pair.events[A].pop() else { panic!() };
    assert_eq!((reject.reason, reject.responded, reject.private_data[0]), (RejectReason::CONSUMER_DEFINED, Responded::Request, 9));
    assert_eq!(pair.ends[A].establish(pair.now, a), Err(CmError::State));
    assert_eq!(pair.ends[B].accept(pair.now, b, &accept()), Err(CmError::State));
    pair.ends[A].destroy(pair.now, a);
    pair.check_empty();
}

#[test]
fn requests_that_cannot_be_are_refused() {
    let reasons = |pair: &mut Pair| -> Vec<u16> {
        core::mem::take(&mut pair.events[A])
            .iter()
            .filter_map(|(_, e)| if let Event::Rejected(r) = e { Some(r.reason.0) } else { None })
            .collect()
    };
    let mut pair = Pair::new();
    pair.ends[A].connect(pair.now, &Connect { service_id: SERVICE + 1, ..connect() }).unwrap();
    pair.run(LATENCY * 3, false);
    assert_eq!(reasons(&mut pair), [RejectReason::INVALID_SERVICE_ID.0]);
    for qpn in 0..3 {
        pair.ends[A].connect(pair.now, &Connect { qpn, ..connect() }).unwrap();
    }
    pair.run(LATENCY * 3, false);
    assert_eq!(reasons(&mut pair), [RejectReason::NO_RESOURCES.0], "two may wait");
    assert_eq!(pair.names(B), ["request", "request"]);
    assert_eq!(pair.ends[B].listen(SERVICE, 1), Err(CmError::InUse));
    pair.ends[B].unlisten(SERVICE).unwrap();
    assert_eq!(pair.ends[B].unlisten(SERVICE), Err(CmError::Missing));
}

#[test]
fn a_queue_pair_that_begins_anew_ends_its_old_connection() {
    let mut pair = Pair::new();
    pair.connected();
    // A has forgotten everything.
    pair.ends[A] = Cm::new(Config::default(), 3);
    let again = pair.ends[A].connect(pair.now, &connect()).unwrap();
    pair.run(LATENCY * 10, true);
    let Some((_, Event::Rejected(reject))) = pair.events[A].pop() else { panic!() };
    assert_eq!(reject.reason, RejectReason::STALE_CONNECTION);
    assert_eq!(pair.names(B), ["disconnected"], "A agrees to the end of what it does not know");
    pair.ends[A].destroy(pair.now, again);
    pair.run(PATIENCE * 2, true);
    assert_eq!(pair.names(B), ["timewait exit"]);
    pair.connected();
}

#[test]
fn more_time_is_given_if_it_is_asked_for() {
    let mut pair = Pair::new();
    pair.ends[A].connect(pair.now, &connect()).unwrap();
    pair.run(LATENCY * 2, false);
    let b = pair.last(B);
    pair.ends[B].prolong(pair.now, b, 24).unwrap();
    pair.run(PATIENCE * 16, false);
    assert_eq!(pair.count(A, 0x10), 1, "A waits");
    pair.run(PATIENCE * 2, false);
    assert!(pair.count(A, 0x10) > 1, "no longer than it was told");
    assert!(pair.count(B, 0x11) > 1, "and is told again");
    pair.ends[B].accept(pair.now, b, &accept()).unwrap();
    pair.run(LATENCY * 3, true);
    assert_eq!(pair.names(A), ["reply"]);
}

#[test]
fn both_end_it_at_once() {
    let mut pair = Pair::new();
    let [a, b] = pair.connected();
    pair.ends[A].disconnect(pair.now, a).unwrap();
    pair.ends[B].disconnect(pair.now, b).unwrap();
    pair.run(LATENCY * 10, true);
    assert_eq!((pair.names(A), pair.names(B)), (vec!["disconnected"], vec!["disconnected"]));
    pair.check_empty();
}

#[test]
fn a_peer_that_does_not_agree_to_the_end_is_left() {
    let mut pair = Pair::new();
    let [a, _] = pair.connected();
    pair.fate = Box::new(|_, _| vec![]);
    pair.ends[A].disconnect(pair.now, a).unwrap();
    pair.run(PATIENCE * 16, true);
    assert_eq!(pair.names(A), ["disconnected"]);
    assert_eq!(pair.count(A, 0x15), 16);
}

#[test]
fn what_a_program_lets_go_of_ends_whatever_its_state() {
    // After so many datagrams, both programs let go of all they have.
    for steps in 0..8 {
        let mut pair = Pair::new();
        pair.ends[A].connect(pair.now, &connect()).unwrap();
        pair.run(LATENCY * steps, steps % 2 == 0);
        pair.destroy_all();
        pair.events = [Vec::new(), Vec::new()];
        // What was on its way then is a stranger's.
        pair.run(LATENCY * 5, false);
        assert!(pair.names(A).is_empty(), "no events of what was let go of");
        pair.destroy_all();
        pair.check_empty();
    }
}

#[test]
fn a_service_s_queue_pair_is_found() {
    let mut pair = Pair::new();
    let service = private::service_id(PortSpace::Udp, 7174);
    pair.ends[B].listen(service, 2).unwrap();
    pair.fate = Box::new(|number, _| if number == 0 { vec![] } else { vec![LATENCY] });
    let id = pair.ends[A].ask_service(pair.now, path(A), service, [5; 216]).unwrap();
    pair.run(PATIENCE + LATENCY * 2, false);
    let Some((question, Event::Question { request, .. })) = pair.events[B].pop() else { panic!("the second one came") };
    assert_eq!((request.service_id, request.private_data[0]), (service, 5));
    let reply = ServiceIdReply { qpn: 0x300, qkey: 0x0123_4567, ..ServiceIdReply::refusal(SidrStatus::Valid) };
    pair.ends[B].answer_service(pair.now, question, &reply).unwrap();
    assert_eq!(pair.ends[B].answer_service(pair.now, question, &reply), Err(CmError::Missing));
    pair.run(LATENCY * 2, false);
    let Some((of, Event::ServiceAnswer(answer))) = pair.events[A].pop() else { panic!() };
    assert_eq!((of, answer.qpn, answer.qkey, answer.service_id), (id, 0x300, 0x0123_4567, service));
    pair.ends[A].destroy(pair.now, id);

    pair.fate = Box::new(|_, _| vec![]);
    let id = pair.ends[A].ask_service(pair.now, path(A), service, [0; 216]).unwrap();
    pair.run(PATIENCE * 16, false);
    assert_eq!(pair.names(A), ["unreachable"]);
    pair.ends[A].destroy(pair.now, id);
    // An answer is remembered for as long as it may be asked for again.
    pair.run(Duration::from_secs(70), false);
    pair.check_empty();
}

/// Many connections over a network that loses, doubles and delays: both sides agree on what there is, and in the end nothing is left.
#[test]
fn seeds() {
    let mut established = 0;
    for seed in 0..200 {
        let mut dice = ChaCha8Rng::seed_from_u64(seed);
        let mut below = move |limit: u64| dice.next_u64() % limit;
        let (loss, double, late) = (below(50), below(30), below(30));
        let mut pair = Pair::new();
        pair.ends[B].listeners.get_mut(&SERVICE).unwrap().backlog = 100;
        let mut weather = ChaCha8Rng::seed_from_u64(seed ^ 0xffff);
        let mut weather = move |limit: u64| weather.next_u64() % limit;
        pair.fate = Box::new(move |_, _| {
            let copies = if weather(100) < loss { 0 } else { 1 + u64::from(weather(100) < double) };
            (0..copies).map(|_| if weather(100) < late { LATENCY * (1 + weather(9000) as u32) } else { LATENCY }).collect()
        });
        for qpn in 0..10 {
            pair.ends[A].connect(pair.now, &Connect { qpn: 0x100 + qpn, ..connect() }).unwrap();
            pair.run(LATENCY * below(5000) as u32, true);
        }
        pair.run(PATIENCE * 40, true);
        let of = |pair: &Pair, side: usize, what: &str| pair.events[side].iter().filter(|(_, e)| name(e) == what).count();
        // Whoever was told that it is established has a peer that thinks so, too, or was told otherwise.
        let (replies, established_b) = (of(&pair, A, "reply"), of(&pair, B, "established"));
        established += established_b;
        let ended = of(&pair, A, "disconnected");
        assert_eq!(replies - ended, established_b - of(&pair, B, "disconnected"), "seed {seed}");
        pair.destroy_all();
        pair.check_empty();
        let mut ids: Vec<_> = pair.events[B].iter().filter(|(_, e)| name(e) == "established").map(|(id, _)| *id).collect();
        let all = ids.len();
        ids.dedup();
        assert_eq!(ids.len(), all, "seed {seed}: each is established once");
    }
    assert!(established > 1800, "most of 2000 were: {established}");
}

/// What a stranger sends: mutations of real messages, with numbers that it may have learned.
fn hostile(seed: u64, rounds: usize) -> Pair {
    let mut pair = Pair::new();
    pair.connected();
    pair.ends[B].connect(pair.now, &Connect { path: path(B), qpn: 0x400, ..connect() }).unwrap();
    pair.run(LATENCY * 5, false);
    let seen: Vec<_> = pair.log.iter().map(|(.., mad)| mad.emit()).collect();
    let mut dice = ChaCha8Rng::seed_from_u64(seed);
    let mut below = move |limit: u64| dice.next_u64() % limit;
    for _ in 0..rounds {
        let mut bytes = seen[below(seen.len() as u64) as usize];
        bytes[16..18].copy_from_slice(&(0x10 + below(9) as u16).to_be_bytes());
        if below(3) == 0 {
            let at = below(128) as usize;
            bytes[at] = below(256) as u8;
        }
        if below(3) == 0 {
            let (a, b) = ([24, 28][below(2) as usize], [24, 28][below(2) as usize]);
            let word: [u8; 4] = bytes[a..a + 4].try_into().unwrap();
            bytes[b..b + 4].copy_from_slice(&word);
        }
        let management = Management { path: path(A), bytes };
        pair.ends[B].on_management(pair.now, &management);
    }
    pair
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn a_stranger_costs_no_more_than_limits_allow(seed: u64) {
        let pair = hostile(seed, 300);
        let cm = &pair.ends[B];
        prop_assert!(cm.to_send.len() <= SEND_MAX && cm.answered.len() <= ANSWERS_MAX);
        prop_assert!(cm.listeners[&SERVICE].waiting <= 2);
        prop_assert!(cm.connections.keys().count() <= 4 + cm.events.len());
        prop_assert!(cm.by_remote_id.len() <= cm.connections.keys().count());
    }

    #[test]
    fn a_stranger_leaves_nothing_behind(seed: u64) {
        let mut pair = hostile(seed, 50);
        pair.run(LATENCY, false);
        pair.destroy_all();
        pair.check_empty();
    }
}

#[test]
fn the_number_of_connections_is_bounded() {
    let mut cm = Cm::new(Config { connections_max: 3, ..Config::default() }, 1);
    for _ in 0..3 {
        cm.connect(Instant::ZERO, &connect()).unwrap();
    }
    assert_eq!(cm.connect(Instant::ZERO, &connect()), Err(CmError::Full));
    let missing = ConnectionId(0x9900);
    assert_eq!(cm.reject(Instant::ZERO, missing, RejectReason::NO_QP, NO_PRIVATE), Err(CmError::Missing));
}
