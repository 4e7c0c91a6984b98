//! Programs that speak to a group, and programs that listen to it for a while, now and then.

use core::time::Duration;
use std::collections::BTreeMap;
use std::io::{IoSlice, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use ringway_stack::ring::{FlowId, RecvFlags, UdpOptions};
use ringway_stack::{Error, Instant};

use super::{OPEN_RETRY, Pings, Shared};
use crate::addresses::neighbour;
use crate::host::{App, Context, Step};

/// The most that one datagram can have.
const DATAGRAM_MAX: usize = 65_507;

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
    talk: Shared<GroupExchange>,
    socket: Option<FlowId>,
    next_at: Instant,
}

impl GroupSpeaker {
    /// Speaks from a socket with these options.
    pub fn new(options: UdpOptions, talk: Shared<GroupExchange>) -> Self {
        Self { options, talk, socket: None, next_at: Instant::ZERO }
    }
}

impl App for GroupSpeaker {
    fn step(&mut self, cx: &mut Context<'_>) -> Step {
        let (speaker, group) = (self.talk.read().speaker, self.talk.read().group);
        if self.socket.is_none() {
            self.socket = open(cx, speaker, &self.options);
        }
        let Some(socket) = self.socket else { return Step::Until(cx.now + OPEN_RETRY) };
        if self.talk.read().heard.iter().all(|member| member.read().done) {
            cx.ring.close(cx.now, socket, false);
            return Step::Finished;
        }
        if self.next_at <= cx.now {
            let datagram = self.talk.change(|talk| talk.pings.next());
            let to = (group, neighbour(group));
            match cx.ring.udp_send(cx.now, socket, &[IoSlice::new(&datagram)], cx.ip, Some(to)) {
                Ok(len) => assert_eq!(len, datagram.len()),
                Err(error) => assert_eq!(error, Error::NoBuffers, "a datagram to a group was refused"),
            }
            self.next_at = cx.now + self.talk.read().pings.pause();
        }
        Step::Until(self.next_at)
    }
}

/// Joins, listens until it has heard enough for now, leaves, pauses, and again.
#[derive(Debug)]
pub struct GroupListener {
    options: UdpOptions,
    /// Bound to the group's address, and not to every one.
    bound: bool,
    talk: Shared<GroupExchange>,
    own: Shared<Membership>,
    /// Different datagrams that it wants to hear each time that it joins, and how often it does.
    wanted: usize,
    rounds: u32,
    rest: Duration,
    socket: Option<FlowId>,
    join_at: Option<Instant>,
    /// Heard since it joined.
    new: usize,
    buffer: Vec<u8>,
}

impl GroupListener {
    /// Hears `wanted` datagrams in each of `rounds` memberships, the first of which begins after `rest`. What a membership came to before
    /// its host crashed stays heard, but the crash ended it.
    pub fn new(
        options: UdpOptions,
        bound: bool,
        talk: Shared<GroupExchange>,
        own: Shared<Membership>,
        wanted: usize,
        rounds: u32,
        rest: Duration,
    ) -> Self {
        own.change(|own| (own.joined, own.left) = (None, None));
        let buffer = vec![0; DATAGRAM_MAX];
        Self { options, bound, talk, own, wanted, rounds, rest, socket: None, join_at: None, new: 0, buffer }
    }

    fn receive(&mut self, cx: &mut Context<'_>, socket: FlowId) {
        while let Ok(datagram) = cx.ring.udp_recv(socket, &mut [IoSliceMut::new(&mut self.buffer)], RecvFlags::empty()) {
            let talk = self.talk.read();
            assert_eq!((datagram.from, datagram.to), (talk.speaker, talk.group.ip()), "{}: a stranger's datagram", cx.ip);
            let Some(number) = talk.pings.verify(&self.buffer[..datagram.copied], cx.tainted) else { continue };
            let first = self.own.change(|own| *own.heard.entry(number).and_modify(|n| *n += 1).or_insert(1)) == 1;
            self.new += usize::from(first);
        }
    }

    /// Joins, unless there is no rule for it now.
    fn join(&mut self, cx: &mut Context<'_>, socket: FlowId) {
        let talk = self.talk.read();
        match cx.ring.udp_join(cx.now, socket, talk.group.ip(), cx.ip) {
            Err(Error::NoBuffers) => return self.join_at = Some(cx.now + OPEN_RETRY),
            joined => joined.expect("the program is no member yet"),
        }
        let again = cx.ring.udp_join(cx.now, socket, talk.group.ip(), cx.ip);
        assert_eq!(again, Err(Error::AddressInUse), "a member can't join again");
        self.own.change(|own| (own.joined, own.left) = (Some(talk.pings.sent), None));
        self.new = 0;
    }

    /// Leaves, and drains what was queued before.
    fn leave(&mut self, cx: &mut Context<'_>, socket: FlowId) {
        let group = self.talk.read().group.ip();
        cx.ring.udp_leave(cx.now, socket, group).expect("the program is a member");
        self.receive(cx, socket);
        self.own.change(|own| own.left = Some(self.talk.read().pings.sent));
        self.rounds -= 1;
        self.join_at = Some(cx.now + self.rest);
    }

    fn is_member(&self) -> bool {
        let own = self.own.read();
        own.joined.is_some() && own.left.is_none()
    }
}

impl App for GroupListener {
    fn step(&mut self, cx: &mut Context<'_>) -> Step {
        let group = self.talk.read().group;
        let local = SocketAddr::new(if self.bound { group.ip() } else { IpAddr::V4(Ipv4Addr::UNSPECIFIED) }, group.port());
        if self.own.read().done {
            return Step::Finished;
        }
        if self.socket.is_none() {
            self.socket = open(cx, local, &self.options);
        }
        let Some(socket) = self.socket else { return Step::Until(cx.now + OPEN_RETRY) };
        let join_at = *self.join_at.get_or_insert(cx.now + self.rest);
        let before = self.new;
        self.receive(cx, socket);
        assert!(self.is_member() || self.new == before, "{}: whoever left a group still hears it", cx.ip);
        if self.is_member() && self.new >= self.wanted {
            self.leave(cx, socket);
            return self.step(cx);
        }
        if self.rounds == 0 {
            self.own.change(|own| own.done = true);
            cx.ring.close(cx.now, socket, false);
            return Step::Finished;
        }
        if !self.is_member() && join_at <= cx.now {
            self.join(cx, socket);
        }
        if self.is_member() { Step::Wait } else { Step::Until(self.join_at.unwrap_or(cx.now)) }
    }
}

/// None if there is no rule for it now.
fn open(cx: &mut Context<'_>, local: SocketAddr, options: &UdpOptions) -> Option<FlowId> {
    match cx.ring.udp_open(local, options) {
        Err(Error::NoBuffers) => None,
        opened => Some(opened.expect("a fresh host's port is free")),
    }
}
