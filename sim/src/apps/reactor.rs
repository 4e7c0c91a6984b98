//! A program that holds any number of conversations behind one epoll instance, and acts on nothing but what that reports.

use core::time::Duration;
use std::collections::BTreeMap;
use std::io::IoSliceMut;
use std::net::SocketAddr;

use ringway_stack::ring::{FlowId, Readiness, RecvFlags};
use ringway_stack::tcp::Config;
use ringway_stack::{Error, Instant};

use super::conversation::Conversation;
use super::{Dialogue, Ending, Epoll, Manner, OPEN_RETRY, Registry, Shared, Transfer};
use crate::addresses::neighbour;
use crate::host::{App, Context, Step};
use crate::random::RandomStream;

/// Sockets that one wait reports.
const REPORTED_MAX: usize = 64;
/// Reads and writes that a level-triggered conversation does at a time.
const LEVEL_BURST: u32 = 1;
/// One report in so many changes an interest, if there are whims.
const WHIM_EVERY: u64 = 4;

/// What a reactor listens on.
#[derive(Clone, Debug)]
pub struct Listening {
    /// Its port.
    pub port: u16,
    /// See [`ringway_stack::ring::Ring::tcp_listen`].
    pub backlog: usize,
    /// What its connections inherit.
    pub config: Config,
    /// Who may come.
    pub registry: Shared<Registry>,
    /// Where the socket is noted.
    pub socket: Shared<Option<FlowId>>,
    /// The time from one accept to the next; zero: at once, and all.
    pub accept_every: Duration,
}

/// A conversation that a reactor opens.
#[derive(Debug)]
pub struct Opening {
    /// When.
    pub at: Instant,
    /// From which port.
    pub port: u16,
    /// To whom.
    pub server: SocketAddr,
    /// From this side's point of view.
    pub dialogue: Dialogue,
    /// With which configuration.
    pub config: Config,
    /// This side's part.
    pub transfer: Shared<Transfer>,
}

/// Someone at the other end.
#[derive(Debug)]
enum Peer {
    /// It has not named itself yet.
    Stranger,
    Known(Box<Conversation>),
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub struct Reactor {
    listening: Option<Listening>,
    /// There may be someone to accept, but not before this time.
    accepting: bool,
    accept_at: Instant,
    /// There was no rule to listen with: it tries again then.
    listen_at: Option<Instant>,
    /// The last one to open comes first.
    openings: Vec<Opening>,
    whims: Option<RandomStream>,
    epoll: Epoll,
    peers: BTreeMap<FlowId, Peer>,
    /// Peers that want to go on by themselves: after a rest, or when buffers may be back.
    alarms: BTreeMap<FlowId, Instant>,
}

impl Reactor {
    /// Does nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Listens too.
    #[must_use]
    pub fn listening(self, listening: Listening) -> Self {
        Self { listening: Some(listening), ..self }
    }

    /// Opens these conversations too.
    #[must_use]
    pub fn opening(self, mut openings: Vec<Opening>) -> Self {
        openings.sort_by_key(|opening| core::cmp::Reverse(opening.at));
        Self { openings, ..self }
    }

    /// Changes its mind about edges and levels, one-shot and not, all the time. (Otherwise everything is edge-triggered.)
    #[must_use]
    pub fn whimsical(self, whims: RandomStream) -> Self {
        Self { whims: Some(whims), ..self }
    }

    fn listen(&mut self, cx: &mut Context<'_>) {
        let Some(listening) = &self.listening else { return };
        if listening.socket.read().is_none() {
            let local = SocketAddr::new(cx.ip, listening.port);
            let socket = match cx.ring.tcp_listen(local, listening.backlog, &listening.config) {
                Err(Error::NoBuffers) => return self.listen_at = Some(cx.now + OPEN_RETRY),
                opened => opened.expect("a fresh host's port is free"),
            };
            self.listen_at = None;
            listening.socket.change(|s| *s = Some(socket));
            self.epoll.set(cx.ring, socket, Readiness::IN, Manner::Edge);
        }
    }

    fn open_due(&mut self, cx: &mut Context<'_>) {
        while let Some(opening) = self.openings.pop_if(|opening| opening.at <= cx.now) {
            let Opening { port, server, dialogue, ref config, ref transfer, .. } = opening;
            let local = SocketAddr::new(cx.ip, port);
            match cx.ring.tcp_connect(cx.now, local, server, neighbour(server), config) {
                Ok(socket) => {
                    self.peers.insert(socket, Peer::Known(Box::new(Conversation::new(socket, dialogue, transfer.clone()))));
                    self.watch(cx, socket);
                }
                Err(Error::NoBuffers) => {
                    self.openings.push(Opening { at: cx.now + OPEN_RETRY, ..opening });
                    self.openings.sort_by_key(|opening| core::cmp::Reverse(opening.at));
                }
                Err(error) => transfer.change(|t| t.ending = Some(Ending::Failed(error))),
            }
        }
    }

    /// Accepts what may be accepted now. Says whether that was anyone.
    fn accept(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(listening) = &self.listening else { return false };
        let (every, listener) = (listening.accept_every, *listening.socket.read());
        let Some(listener) = listener else { return false };
        let before = self.peers.len();
        while self.accepting && self.accept_at <= cx.now {
            let Ok(socket) = cx.ring.tcp_accept(listener) else {
                self.accepting = false;
                break;
            };
            if every > Duration::ZERO {
                self.accept_at = cx.now + every;
            }
            self.peers.insert(socket, Peer::Stranger);
            // A level would be reported for ever, while half a name lies there to be peeked at.
            self.epoll.set(cx.ring, socket, Readiness::IN, Manner::Edge);
        }
        self.peers.len() > before
    }

    fn serve(&mut self, cx: &mut Context<'_>, socket: FlowId) {
        match self.peers.get(&socket) {
            Some(Peer::Stranger) => self.greet(cx, socket),
            Some(Peer::Known(_)) => {}
            None => self.accepting |= self.listening.as_ref().is_some_and(|l| *l.socket.read() == Some(socket)),
        }
        let Some(Peer::Known(conversation)) = self.peers.get_mut(&socket) else { return };
        let alarm = conversation.step(cx);
        if conversation.ended() {
            self.forget(socket);
            return;
        }
        match alarm {
            Some(at) => drop(self.alarms.insert(socket, at)),
            None => drop(self.alarms.remove(&socket)),
        }
        match self.epoll.manner(socket) {
            // What was reported once must be armed again, and a level is only watched for what is wanted.
            Some(Manner::OneShot | Manner::Level) => self.watch(cx, socket),
            Some(Manner::Edge) if self.whim(WHIM_EVERY) == Some(0) => self.watch(cx, socket),
            _ => {}
        }
    }

    /// Asks a stranger's name.
    fn greet(&mut self, cx: &mut Context<'_>, socket: FlowId) {
        let Some(listening) = &self.listening else { return };
        let mut name = [0; 8];
        match cx.ring.tcp_recv(cx.now, socket, &mut [IoSliceMut::new(&mut name)], RecvFlags::PEEK) {
            Ok(8) => {
                let repeats = listening.config.fast_open.under_way_max > 0;
                let known = listening.registry.change(|r| r.begin(u64::from_be_bytes(name), cx.tainted, repeats));
                let Some((dialogue, transfer)) = known else {
                    listening.registry.change(|r| r.broken += 1);
                    return self.dismiss(cx, socket);
                };
                self.peers.insert(socket, Peer::Known(Box::new(Conversation::new(socket, dialogue, transfer))));
                self.watch(cx, socket);
            }
            Ok(0) => {
                listening.registry.change(|r| r.silent += 1);
                self.dismiss(cx, socket);
            }
            Ok(_) | Err(Error::WouldBlock) if !cx.ring.readiness(socket).contains(Readiness::HUP) => {
                let ended = cx.ring.readiness(socket).contains(Readiness::RDHUP);
                assert!(!ended, "{}: a stream ended in the middle of a name", cx.ip);
            }
            Ok(_) | Err(_) => {
                listening.registry.change(|r| r.broken += 1);
                self.dismiss(cx, socket);
            }
        }
    }

    fn dismiss(&mut self, cx: &mut Context<'_>, socket: FlowId) {
        cx.ring.close(cx.now, socket, false);
        self.forget(socket);
    }

    fn forget(&mut self, socket: FlowId) {
        self.epoll.remove(socket);
        self.peers.remove(&socket);
        self.alarms.remove(&socket);
    }

    /// Registers a conversation's interest, in the manner of the moment.
    fn watch(&mut self, cx: &mut Context<'_>, socket: FlowId) {
        let (manner, again) = match self.whim(8) {
            Some(0..=2) => (Manner::Level, false),
            Some(3) => (Manner::Level, true),
            Some(4..=5) => (Manner::OneShot, false),
            Some(6) => (Manner::Edge, true),
            _ => (Manner::Edge, false),
        };
        let Some(Peer::Known(conversation)) = self.peers.get_mut(&socket) else { return };
        conversation.set_burst(if manner == Manner::Level { LEVEL_BURST } else { u32::MAX });
        // Whatever isn't wanted would be reported again and again, but for an edge.
        let (edge, connecting) = (manner == Manner::Edge, cx.ring.readiness(socket).is_empty());
        let mut interest = Readiness::empty();
        interest.set(Readiness::IN | Readiness::RDHUP, edge || conversation.wants_bytes());
        interest.set(Readiness::OUT, edge || connecting || conversation.wants_room());
        if again {
            self.epoll.remove(socket);
        }
        self.epoll.set(cx.ring, socket, interest, manner);
    }

    fn whim(&mut self, bound: u64) -> Option<u64> {
        self.whims.as_mut().map(|whims| whims.below(bound))
    }

    fn ring_alarms(&mut self, cx: &mut Context<'_>) {
        let due: Vec<_> = self.alarms.iter().filter(|&(_, at)| *at <= cx.now).map(|(socket, _)| *socket).collect();
        for socket in due {
            self.alarms.remove(&socket);
            self.serve(cx, socket);
        }
    }

    fn next_step(&self) -> Step {
        let accept_at = self.accepting.then_some(self.accept_at);
        let opening = self.openings.last().map(|opening| opening.at);
        let next = self.alarms.values().copied().chain(accept_at).chain(opening).chain(self.listen_at).min();
        match next {
            Some(at) => Step::Until(at),
            None if !self.peers.is_empty() => Step::Wait,
            None if self.listening.is_some() => Step::Idle,
            None => Step::Finished,
        }
    }
}

impl App for Reactor {
    fn step(&mut self, cx: &mut Context<'_>) -> Step {
        self.listen(cx);
        self.open_due(cx);
        self.epoll.take(cx.events);
        self.ring_alarms(cx);
        loop {
            let reported = self.epoll.wait(cx.ring, REPORTED_MAX);
            let idle = reported.is_empty();
            for (socket, _) in reported {
                self.serve(cx, socket);
            }
            if !self.accept(cx) && idle {
                break;
            }
        }
        self.next_step()
    }
}
