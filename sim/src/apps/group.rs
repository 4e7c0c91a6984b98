//! Programs that speak to a group, and programs that listen to it for a while, now and then.

use core::time::Duration;
use std::collections::BTreeMap;
use std::io::{IoSlice, IoSliceMut};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use ringway_stack::ring::{FlowId, RecvFlags, SourceFilter, UdpOptions};
use ringway_stack::{Error, Instant};

use super::{OPEN_RETRY, Pings, Shared};
use crate::addresses::{every, neighbour};
use crate::host::{App, Context, Step};

/// The most that one datagram can have.
const DATAGRAM_MAX: usize = 65_507;
/// Somebody who says nothing.
const SOMEBODY: IpAddr = IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0x9999, 1));

/// Whose datagrams a listener asks for (RFC 3678 s3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// Everybody's.
    Everybody,
    /// The speaker's alone; of IPv6, like all that follow.
    Speaker,
    /// Everybody's but somebody else's.
    NotSomebody,
    /// Everybody's but the speaker's; a while later, the speaker's and somebody else's.
    SpeakerLater,
    /// Somebody else's; a while later, everybody's.
    EverybodyLater,
}

impl Wish {
    /// What it asks for when it joins, and what later.
    fn filters(self, speaker: IpAddr) -> (SourceFilter, Option<SourceFilter>) {
        let (including, excluding) = (|ip| SourceFilter::Include([ip].into()), |ip| SourceFilter::Exclude([ip].into()));
        match self {
            Self::Everybody => (SourceFilter::ANY, None),
            Self::Speaker => (including(speaker), None),
            Self::NotSomebody => (excluding(SOMEBODY), None),
            Self::SpeakerLater => (excluding(speaker), Some(SourceFilter::Include([speaker, SOMEBODY].into()))),
            Self::EverybodyLater => (including(SOMEBODY), Some(SourceFilter::ANY)),
        }
    }
}

/// How a listener goes about it.
#[derive(Clone, Copy, Debug)]
pub struct Pursuit {
    /// It is bound to the group's address, and not to every one.
    pub bound: bool,
    /// Whom it wants to hear.
    pub wish: Wish,
    /// Different datagrams that it wants to hear each time that it joins, and how often it does.
    pub wanted: usize,
    /// See `wanted`.
    pub rounds: u32,
    /// How long it pauses before it joins, and before it asks for what it asks for later.
    pub rest: Duration,
}

/// What is said to a group, and by whom it was heard.
#[derive(Debug)]
pub struct GroupExchange {
    /// The group, and the port of all of its members.
    pub group: SocketAddr,
    /// Who speaks.
    pub speaker: SocketAddr,
    /// What is said; each listener has its own copy of what came back.
    pub pings: Pings,
    /// What each listener heard.
    pub heard: Vec<Shared<Membership>>,
}

/// One listener's part.
#[derive(Debug, Default)]
pub struct Membership {
    /// Datagrams that it heard, and how often each.
    pub heard: BTreeMap<u64, u64>,
    /// The first one said after it joined, the last time it did, and once it left, the first one said after that.
    pub joined: Option<u64>,
    /// See `joined`.
    pub left: Option<u64>,
    /// It has heard enough, and left for good.
    pub done: bool,
}

/// Speaks at an interval until every listener has heard enough.
#[derive(Debug)]
pub struct GroupSpeaker {
    options: UdpOptions,
    exchange: Shared<GroupExchange>,
    socket: Option<FlowId>,
    next_at: Instant,
}

impl GroupSpeaker {
    /// Speaks from a socket with these options.
    pub fn new(options: UdpOptions, exchange: Shared<GroupExchange>) -> Self {
        Self { options, exchange, socket: None, next_at: Instant::ZERO }
    }
}

impl App for GroupSpeaker {
    fn step(&mut self, cx: &mut Context<'_>) -> Step {
        let (speaker, group) = (self.exchange.read().speaker, self.exchange.read().group);
        if self.socket.is_none() {
            self.socket = open(cx, speaker, &self.options);
        }
        let Some(socket) = self.socket else { return Step::Until(cx.now + OPEN_RETRY) };
        if self.exchange.read().heard.iter().all(|member| member.read().done) {
            cx.ring.close(cx.now, socket, false);
            return Step::Finished;
        }
        if self.next_at <= cx.now {
            let datagram = self.exchange.change(|exchange| exchange.pings.next());
            let to = (group, neighbour(group));
            match cx.ring.udp_send(cx.now, socket, &[IoSlice::new(&datagram)], cx.ip, Some(to)) {
                Ok(len) => assert_eq!(len, datagram.len()),
                Err(error) => assert_eq!(error, Error::NoBuffers, "a datagram to a group was refused"),
            }
            self.next_at = cx.now + self.exchange.read().pings.pause();
        }
        Step::Until(self.next_at)
    }
}

/// Joins, listens until it has heard enough for now, leaves, pauses, and again.
#[derive(Debug)]
pub struct GroupListener {
    options: UdpOptions,
    pursuit: Pursuit,
    exchange: Shared<GroupExchange>,
    own: Shared<Membership>,
    socket: Option<FlowId>,
    join_at: Option<Instant>,
    /// It is a member that does not hear the speaker, and asks for him then.
    asks_at: Option<Instant>,
    /// Heard since it joined.
    new: usize,
    buffer: Vec<u8>,
}

impl GroupListener {
    /// Hears as much as it wants in each of its memberships. What a membership came to before its host crashed stays heard, but the crash ended it.
    pub fn new(options: UdpOptions, pursuit: Pursuit, exchange: Shared<GroupExchange>, own: Shared<Membership>) -> Self {
        own.change(|own| (own.joined, own.left) = (None, None));
        let buffer = vec![0; DATAGRAM_MAX];
        Self { options, pursuit, exchange, own, socket: None, join_at: None, asks_at: None, new: 0, buffer }
    }

    fn receive(&mut self, cx: &mut Context<'_>, socket: FlowId) {
        while let Ok(datagram) = cx.ring.udp_recv(socket, &mut [IoSliceMut::new(&mut self.buffer)], RecvFlags::empty()) {
            let exchange = self.exchange.read();
            assert_eq!((datagram.from, datagram.to), (exchange.speaker, exchange.group.ip()), "{}: a stranger's datagram", cx.ip);
            let Some(number) = exchange.pings.verify(&self.buffer[..datagram.copied], cx.tainted) else { continue };
            let first = self.own.change(|own| *own.heard.entry(number).and_modify(|n| *n += 1).or_insert(1)) == 1;
            self.new += usize::from(first);
        }
    }

    /// Joins, unless there is no rule for it now.
    fn join(&mut self, cx: &mut Context<'_>, socket: FlowId) {
        let (group, speaker, sent) = self.exchange_of();
        let (first, later) = self.pursuit.wish.filters(speaker);
        let joined = match self.pursuit.wish {
            Wish::Everybody => cx.ring.udp_join(cx.now, socket, group, cx.ip),
            _ => cx.ring.udp_listen(cx.now, socket, group, cx.ip, first),
        };
        match joined {
            Err(Error::NoBuffers) => return self.join_at = Some(cx.now + OPEN_RETRY),
            joined => joined.expect("the program is no member yet"),
        }
        let again = cx.ring.udp_join(cx.now, socket, group, cx.ip);
        assert_eq!(again, Err(Error::AddressInUse), "a member can't join again");
        self.asks_at = later.is_some().then(|| cx.now + self.pursuit.rest);
        self.hears_from(later.is_none().then_some(sent));
    }

    /// Asks for the speaker, too, whom it did not want to hear before.
    fn ask(&mut self, cx: &mut Context<'_>, socket: FlowId) {
        let (group, speaker, sent) = self.exchange_of();
        if let (_, Some(later)) = self.pursuit.wish.filters(speaker) {
            let asked = cx.ring.udp_listen(cx.now, socket, group, cx.ip, later.clone());
            asked.expect("a member may hear whom it wants");
            assert_eq!(cx.ring.udp_source_filter(socket, group), later, "getsourcefilter(3)");
        }
        self.asks_at = None;
        self.hears_from(Some(sent));
    }

    /// The group, who speaks to it, and the next that is said.
    fn exchange_of(&self) -> (IpAddr, IpAddr, u64) {
        let exchange = self.exchange.read();
        (exchange.group.ip(), exchange.speaker.ip(), exchange.pings.sent)
    }

    /// It is a member, and hears what is said from that one on; `None`: nothing yet.
    fn hears_from(&mut self, number: Option<u64>) {
        self.own.change(|own| (own.joined, own.left) = (number, None));
        self.new = 0;
    }

    /// Leaves, and drains what was queued before.
    fn leave(&mut self, cx: &mut Context<'_>, socket: FlowId) {
        let group = self.exchange.read().group.ip();
        cx.ring.udp_leave(cx.now, socket, group).expect("the program is a member");
        self.receive(cx, socket);
        self.own.change(|own| own.left = Some(self.exchange.read().pings.sent));
        self.pursuit.rounds -= 1;
        self.join_at = Some(cx.now + self.pursuit.rest);
    }

    fn is_member(&self) -> bool {
        let own = self.own.read();
        own.joined.is_some() && own.left.is_none()
    }
}

impl App for GroupListener {
    fn step(&mut self, cx: &mut Context<'_>) -> Step {
        let group = self.exchange.read().group;
        let local = SocketAddr::new(if self.pursuit.bound { group.ip() } else { every(group.ip()) }, group.port());
        if self.own.read().done {
            return Step::Finished;
        }
        if self.socket.is_none() {
            self.socket = open(cx, local, &self.options);
        }
        let Some(socket) = self.socket else { return Step::Until(cx.now + OPEN_RETRY) };
        let join_at = *self.join_at.get_or_insert(cx.now + self.pursuit.rest);
        let before = self.new;
        self.receive(cx, socket);
        assert!(self.is_member() || self.new == before, "{}: whoever left a group, or excludes its speaker, still hears it", cx.ip);
        if self.is_member() && self.new >= self.pursuit.wanted {
            self.leave(cx, socket);
            return self.step(cx);
        }
        if self.pursuit.rounds == 0 {
            self.own.change(|own| own.done = true);
            cx.ring.close(cx.now, socket, false);
            return Step::Finished;
        }
        match self.asks_at {
            Some(at) if at <= cx.now => self.ask(cx, socket),
            Some(_) => {}
            None if !self.is_member() && join_at <= cx.now => self.join(cx, socket),
            None => {}
        }
        if self.is_member() { Step::Wait } else { Step::Until(self.asks_at.or(self.join_at).unwrap_or(cx.now)) }
    }
}

/// Has its ring listen where its host is asked for (RFC 4861 s7.2.1).
#[derive(Clone, Copy, Debug)]
pub struct Neighbourly;

impl App for Neighbourly {
    fn step(&mut self, cx: &mut Context<'_>) -> Step {
        cx.ring.join_solicited_nodes(cx.now).expect("there is no kernel here, and room for a group");
        Step::Finished
    }
}

/// None if there is no rule for it now.
fn open(cx: &mut Context<'_>, local: SocketAddr, options: &UdpOptions) -> Option<FlowId> {
    match cx.ring.udp_open(local, options) {
        Err(Error::NoBuffers) => None,
        opened => Some(opened.expect("a fresh host's port is free")),
    }
}
