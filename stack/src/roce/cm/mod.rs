//! Connection management (IBTA spec, volume 1, chapter 12): two queue pairs find each other, and part, by management datagrams.
//!
//! Datagrams come in by [`Cm::on_management`] and go out by [`Cm::poll_transmit`]; what a program is to know comes by [`Cm::poll_event`].
//! Queue pairs are the program's, or the layer's above, to make and to modify: nothing here touches them.
//!
//! - `connect`: what a program does
//! - `receive`: what a datagram does
//! - `sidr`: the same for datagrams' services, which have no connections
//! - `timers`: repetitions, and the wait after the end
//!
//! What it leaves out: alternate paths (LAP, APR), peer-to-peer connections, and redirection.

mod connect;
mod receive;
mod sidr;
mod timers;

#[cfg(test)]
mod tests;

pub use crate::device::messages::{CmError, ConnectionId};
pub use connect::{Accept, Connect};

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;

use rand_chacha::ChaCha8Rng;
use rand_core::{Rng, SeedableRng};

use super::flaws::Flaw;
use super::gsi::Management;
use super::mad::{Mad, Message, Reject, RejectReason, Reply, Request, ServiceIdReply, ServiceIdRequest};
use super::packet::datagram::Path;
use super::slab::Slab;
use crate::time::Instant;

/// How many datagrams wait to be sent; more are lost, and come again by their timers.
const SEND_MAX: usize = 256;
/// How many answers to services' questions are remembered.
const ANSWERS_MAX: usize = 1024;

/// What connections have in common.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// The adapter's name.
    pub ca_guid: u64,
    /// How many connections there may be, those that are ending included.
    pub connections_max: usize,
    /// How long an answer may take: 4.096 us * 2^v. RDMA-CM has 20, which is 4.3 s.
    pub response_timeout: u8,
    /// How often a message is sent again without an answer; at most 15, which is what RDMA-CM has.
    pub retries: u8,
    #[cfg(test)]
    pub(crate) flaw: Flaw,
}

impl Config {
    /// Whether this is wrong with it; a constant `false` but in tests.
    #[inline]
    fn has(&self, flaw: Flaw) -> bool {
        #[cfg(test)]
        return self.flaw == flaw;
        #[cfg(not(test))]
        {
            let _ = flaw;
            false
        }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            ca_guid: 0,
            connections_max: 16_384,
            response_timeout: 20,
            retries: 15,
            #[cfg(test)]
            flaw: Flaw::None,
        }
    }
}

/// What a program is to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Somebody asks for a connection; it is to be accepted or rejected.
    Request {
        /// The way back.
        path: Path,
        /// What it says.
        request: Box<Request>,
    },
    /// The peer agrees; [`Cm::establish`] is due, once the queue pair is ready.
    Reply(Box<Reply>),
    /// The peer knows that it was accepted.
    Established,
    /// The peer, or its connection management, said no.
    Rejected(Box<Reject>),
    /// There was no answer.
    Unreachable,
    /// It is over, by either side.
    Disconnected,
    /// Its numbers may be used again. The connection is gone.
    TimewaitExit,
    /// Somebody asks for a service's queue pair: [`Cm::answer_service`] is due, once.
    Question {
        /// The way back.
        path: Path,
        /// What it says.
        request: Box<ServiceIdRequest>,
    },
    /// A service's queue pair, or that there is none.
    ServiceAnswer(Box<ServiceIdReply>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    RequestSent,
    RequestReceived,
    ReplySent,
    ReplyReceived,
    Established,
    DisconnectSent,
    Timewait,
    /// It came to nothing, or is over; the program has not yet let go of it.
    Closed,
    /// A service's queue pair was asked for.
    ServiceAsked,
    /// The peer asks for a service's queue pair, and the program has not answered.
    QuestionReceived,
}

#[derive(Debug)]
struct Connection {
    state: State,
    path: Path,
    transaction: u64,
    /// The peer's number for it; zero until it is known.
    remote_id: u32,
    /// The peer's queue pair.
    remote_qpn: u32,
    /// Who asked for it, of the passive side.
    service: Option<u64>,
    /// Of a question for a service: the peer's number for it.
    question: Option<u32>,
    /// What is sent again until it is answered.
    unanswered: Option<Mad>,
    tries_left: u8,
    /// How long an answer to it may take.
    patience: Duration,
    /// Bytes that answer a message that comes again.
    last_sent: Option<Mad>,
    /// How long numbers rest after the end.
    timewait: Duration,
    deadline: Option<Instant>,
    /// The program let go of it.
    orphan: bool,
}

#[derive(Debug)]
struct Listener {
    backlog: usize,
    /// Requests that the program has neither accepted nor rejected.
    waiting: usize,
}

/// The connection management of one adapter.
#[derive(Debug)]
pub struct Cm {
    config: Config,
    connections: Slab<Box<Connection>>,
    /// Numbers of connections on the wire are keys with these bits changed, so that a stranger does not know them.
    mask: u32,
    listeners: BTreeMap<u64, Listener>,
    /// Connections by peer and its number for them.
    by_remote_id: BTreeMap<(IpAddr, u32), u32>,
    /// Connections by peer and its queue pair.
    by_remote_qpn: BTreeMap<(IpAddr, u32), u32>,
    timers: BTreeSet<(Instant, u32)>,
    to_send: VecDeque<Management>,
    events: VecDeque<(ConnectionId, Event)>,
    /// Questions for services by peer and its number for them, answered or not.
    by_question: BTreeMap<(IpAddr, u32), u32>,
    /// Questions that were answered, the oldest first; some of them are forgotten.
    answered: VecDeque<u32>,
    random: ChaCha8Rng,
}

impl Cm {
    /// Without connections. `seed` is for the numbers that strangers are not to guess.
    pub fn new(config: Config, seed: u64) -> Self {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        Self {
            config,
            connections: Slab::new(config.connections_max),
            mask: random.next_u32(),
            listeners: BTreeMap::new(),
            by_remote_id: BTreeMap::new(),
            by_remote_qpn: BTreeMap::new(),
            timers: BTreeSet::new(),
            to_send: VecDeque::new(),
            events: VecDeque::new(),
            by_question: BTreeMap::new(),
            answered: VecDeque::new(),
            random,
        }
    }

    /// Whether there is one to send.
    pub(super) fn may_transmit(&self) -> bool {
        !self.to_send.is_empty()
    }

    /// The next datagram to send from queue pair 1.
    pub fn poll_transmit(&mut self) -> Option<Management> {
        self.to_send.pop_front()
    }

    /// What happened next.
    pub fn poll_event(&mut self) -> Option<(ConnectionId, Event)> {
        self.events.pop_front()
    }

    #[cfg(test)]
    pub(super) fn connections(&self) -> usize {
        self.connections.keys().count()
    }

    fn connection(&mut self, id: ConnectionId) -> Result<&mut Connection, CmError> {
        self.connections.get_mut(id.0).filter(|c| !c.orphan).map(|c| &mut **c).ok_or(CmError::Missing)
    }

    const fn wire_id(&self, key: u32) -> u32 {
        key ^ self.mask
    }

    fn tell(&mut self, key: u32, event: Event) {
        if self.connections.get(key).is_some_and(|c| !c.orphan) {
            self.events.push_back((ConnectionId(key), event));
        }
    }

    fn send(&mut self, path: Path, mad: &Mad) {
        if self.to_send.len() < SEND_MAX {
            self.to_send.push_back(Management { path, bytes: mad.emit() });
        }
    }

    /// Sends a message of `key`'s connection; `ask`: again and again, until there is an answer.
    fn send_for(&mut self, now: Instant, key: u32, message: Message, ask: bool) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        let mad = Mad { transaction: connection.transaction, message };
        let path = connection.path;
        connection.last_sent = Some(mad);
        connection.unanswered = ask.then_some(mad);
        connection.tries_left = self.config.retries;
        let deadline = ask.then(|| now + connection.patience);
        self.set_deadline(key, deadline);
        self.send(path, &mad);
    }

    fn set_deadline(&mut self, key: u32, deadline: Option<Instant>) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        if let Some(at) = core::mem::replace(&mut connection.deadline, deadline) {
            self.timers.remove(&(at, key));
        }
        if let Some(at) = deadline {
            self.timers.insert((at, key));
        }
    }

    /// Learns the peer's number and queue pair.
    fn bind(&mut self, key: u32, remote_id: u32, remote_qpn: u32) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        (connection.remote_id, connection.remote_qpn) = (remote_id, remote_qpn);
        let peer = connection.path.addresses.dst();
        self.by_remote_id.insert((peer, remote_id), key);
        self.by_remote_qpn.insert((peer, remote_qpn), key);
    }

    /// Takes a connection away.
    fn remove(&mut self, key: u32) {
        self.set_deadline(key, None);
        self.set_state(key, State::Closed);
        let Some(connection) = self.connections.remove(key) else { return };
        let peer = connection.path.addresses.dst();
        if let Some(question) = connection.question
            && self.by_question.get(&(peer, question)) == Some(&key)
        {
            self.by_question.remove(&(peer, question));
        }
        for (map, number) in [(&mut self.by_remote_id, connection.remote_id), (&mut self.by_remote_qpn, connection.remote_qpn)] {
            if map.get(&(peer, number)) == Some(&key) {
                map.remove(&(peer, number));
            }
        }
    }

    fn set_state(&mut self, key: u32, state: State) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        let before = core::mem::replace(&mut connection.state, state);
        if matches!(before, State::RequestReceived | State::QuestionReceived) && state != before {
            let service = connection.service;
            if let Some(listener) = service.and_then(|service| self.listeners.get_mut(&service)) {
                listener.waiting = listener.waiting.saturating_sub(1);
            }
        }
    }

    /// It came to nothing: it waits for the program to let go of it.
    fn close(&mut self, key: u32) {
        self.set_deadline(key, None);
        self.set_state(key, State::Closed);
        let Some(connection) = self.connections.get_mut(key) else { return };
        connection.unanswered = None;
        if connection.orphan {
            self.remove(key);
        }
    }

    /// It is over: its numbers rest for a while, for packets may still be on their way (s12.9.8.4).
    fn enter_timewait(&mut self, now: Instant, key: u32) {
        self.set_state(key, State::Timewait);
        let Some(connection) = self.connections.get_mut(key) else { return };
        connection.unanswered = None;
        let until = now + connection.timewait;
        self.set_deadline(key, Some(until));
    }

    fn rejection(
        &self,
        key: u32,
        responded: super::mad::Responded,
        reason: RejectReason,
        private_data: [u8; Reject::PRIVATE_LEN],
    ) -> Message {
        let remote_id = self.connections.get(key).map_or(0, |c| c.remote_id);
        let local_id = self.wire_id(key);
        Message::Reject(Reject { local_id, remote_id, responded, reason, info_len: 0, info: [0; Reject::INFO_LEN], private_data })
    }
}

/// The longest time that anybody may ask for, by its code: 69 s. Five bits would allow 2.4 hours, and with 15 repetitions a stranger could
/// hold a connection's place for a day and a half.
pub(super) const TIME_MAX: u8 = 24;

/// 4.096 us * 2^v, up to [`TIME_MAX`].
fn time(code: u8) -> Duration {
    Duration::from_nanos(4096 << code.min(TIME_MAX))
}
