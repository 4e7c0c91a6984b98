//! The listening side: a state machine a connection, none of which ever waits.

use std::sync::Arc;

use super::hello::{self, Half, Kind, PeerHalf};
use super::{Key, Rendezvous, State, control};
use crate::closing;
use crate::fd::Fd;
use crate::identity::Identity;
use crate::limit::Limit;
use crate::member::slot_of;
use crate::sys::{self, Passed};

/// Connections that were greeted and have not made their offer; the oldest gives way.
const INCOMING_MAX: usize = 64;
/// How long nobody is accepted, where too much is left to close.
const PAUSE_SECONDS: i64 = 1;
/// Events worked off in one go.
const EVENTS: usize = 64;
/// Connections accepted in one go.
const ACCEPTS: usize = 16;

/// What an epoll entry is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Token {
    /// The control socket.
    Control,
    /// The socket where a rule's address is asked for.
    Rule(u64),
    /// A greeted connection.
    Incoming(u64),
    /// A control connection.
    Client(u64),
    /// The proof that the peer in a slot lives.
    Alive(u64),
    /// Where dialogues begin.
    Dialogues,
    /// A dialogue.
    Dialogue(u64),
    /// Time to look whether there is room for what closes slowly.
    Pause,
}

const KIND_SHIFT: u32 = 56;

impl Token {
    pub(super) const fn pack(self) -> u64 {
        let (kind, number) = match self {
            Self::Control => (0, 0),
            Self::Rule(number) => (1, number),
            Self::Incoming(number) => (2, number),
            Self::Client(number) => (3, number),
            Self::Alive(slot) => (4, slot),
            Self::Dialogues => (5, 0),
            Self::Dialogue(number) => (6, number),
            Self::Pause => (7, 0),
        };
        kind << KIND_SHIFT | number
    }

    const fn parse(word: u64) -> Self {
        let number = word & ((1 << KIND_SHIFT) - 1);
        match word >> KIND_SHIFT {
            1 => Self::Rule(number),
            2 => Self::Incoming(number),
            3 => Self::Client(number),
            4 => Self::Alive(number),
            5 => Self::Dialogues,
            6 => Self::Dialogue(number),
            7 => Self::Pause,
            _ => Self::Control,
        }
    }
}

/// A connection that was greeted.
pub(super) struct Incoming {
    number: u64,
    /// The number of the name that it asked for; `None`: it came to where dialogues begin.
    name: Option<u64>,
    pub(super) socket: Fd,
    who: Identity,
}

/// An offer that waits for the end of our own negotiation with the same member.
pub(super) struct Deferred {
    socket: Fd,
    id: u64,
    who: Identity,
    passed: Passed,
}

pub(super) fn service(rendezvous: &Rendezvous) {
    let mut requests = Vec::new();
    let mut matters = Vec::new();
    {
        let mut state = rendezvous.lock();
        if state.has_left {
            return;
        }
        for token in rendezvous.epoll.ready::<EVENTS>() {
            match Token::parse(token) {
                token @ (Token::Control | Token::Rule(_) | Token::Dialogues) if !closing::has_room() => rendezvous.pause(&mut state, token),
                Token::Pause => rendezvous.end_pause(&mut state),
                Token::Control => rendezvous.accept_clients(&mut state),
                Token::Rule(number) => rendezvous.accept_members(&mut state, number),
                Token::Incoming(number) => rendezvous.hear(&mut state, number),
                Token::Client(number) => requests.extend(rendezvous.serve_client(&mut state, number)),
                Token::Alive(slot) => rendezvous.look_after(&mut state, slot as usize),
                Token::Dialogues => matters.extend(rendezvous.accept_dialogues(&mut state)),
                Token::Dialogue(number) => matters.extend(rendezvous.hear_dialogue(&mut state, number)),
            }
        }
    }
    for request in requests {
        control::answer(rendezvous, request);
    }
    for matter in matters {
        rendezvous.attend_to(matter);
    }
}

/// Accepts a connection. Where there is no descriptor for it, it is closed instead: left where it is, it would keep the listener
/// readable, and the progress thread busy, until the program closes something; and its peer would wait for nothing.
pub(super) fn accept_or_refuse(listener: &Fd, spare: &mut Option<Fd>) -> Option<Fd> {
    if spare.is_none() {
        *spare = sys::eventfd().ok();
    }
    match sys::accept(listener) {
        Ok(socket) => Some(socket),
        Err(e) if matches!(e.raw_os_error(), Some(libc::EMFILE | libc::ENFILE)) => {
            *spare = None;
            drop(sys::accept(listener));
            *spare = sys::eventfd().ok();
            None
        }
        Err(_) => None,
    }
}

/// Listeners that accept nobody at the moment, for what was accepted takes too long to close.
#[derive(Default)]
pub(super) struct Pause {
    listeners: Vec<Token>,
    timer: Option<Fd>,
}

impl Rendezvous {
    fn pause(&self, state: &mut State, token: Token) {
        self.listen_for(state, token, 0);
        state.pause.listeners.push(token);
        if state.pause.timer.is_none() {
            state.pause.timer =
                sys::timer(PAUSE_SECONDS).ok().filter(|timer| self.epoll.add(timer, libc::EPOLLIN, Token::Pause.pack()).is_ok());
        }
    }

    fn end_pause(&self, state: &mut State) {
        if let Some(timer) = state.pause.timer.take() {
            self.discard(timer);
        }
        for token in core::mem::take(&mut state.pause.listeners) {
            self.listen_for(state, token, libc::EPOLLIN);
        }
    }

    fn listen_for(&self, state: &State, token: Token, events: i32) {
        let listener = match token {
            Token::Rule(number) => state.names.get(&number).map(|name| &name.socket),
            Token::Dialogues => state.dialogues.listener.as_ref(),
            _ => self.control.as_ref(),
        };
        if let Some(listener) = listener {
            let _ = self.epoll.modify(listener, events, token.pack());
        }
    }

    fn accept_members(&self, state: &mut State, rule: u64) {
        for _ in 0..ACCEPTS {
            let Some(name) = state.names.get(&rule) else { return };
            // Whoever asks for a socket by its name may be about to have datagrams that it got until now (before it is greeted: it waits for that).
            let unsettles = name.is_shared && matches!(name.key, Key::Socket(_));
            let Some(socket) = accept_or_refuse(&name.socket, &mut state.spare) else { return };
            let Ok(who) = Identity::of_peer(&socket) else { continue };
            if who.uid != self.member.uid {
                static LINES: Limit = Limit::new();
                if let Some(left_out) = LINES.pass() {
                    tracing::debug!(uid = who.uid, "refusing another user's process{left_out}");
                }
                continue;
            }
            if unsettles {
                state.table.unsettle(&*self.member.segment);
            }
            self.silences.heard_of(who.pid);
            self.welcome(state, socket, who, Some(rule));
        }
    }

    /// Greets a process of this user that wants a link.
    pub(super) fn welcome(&self, state: &mut State, socket: Fd, who: Identity, name: Option<u64>) {
        let number = state.number();
        // Those of its offer.
        let _ = sys::set_takes_rights(&socket, true);
        if hello::send(&socket, Kind::Greeting, self.member.id, &[]).is_err()
            || self.epoll.add(&socket, libc::EPOLLIN, Token::Incoming(number).pack()).is_err()
        {
            return;
        }
        if state.incoming.len() >= INCOMING_MAX
            && let Some(oldest) = state.incoming.pop_front()
        {
            self.discard(oldest.socket);
        }
        state.incoming.push_back(Incoming { number, name, socket, who });
    }

    /// A greeted connection has said something, or ended.
    fn hear(&self, state: &mut State, number: u64) {
        let Some(at) = state.incoming.iter().position(|incoming| incoming.number == number) else { return };
        let received = hello::receive(&state.incoming[at].socket);
        if matches!(received, hello::Incoming::Nothing) {
            return;
        }
        let Some(incoming) = state.incoming.remove(at) else { return };
        self.epoll.remove(&incoming.socket);
        let _ = sys::set_takes_rights(&incoming.socket, false);
        let hello::Incoming::Message(message) = received else { return };
        match message.kind {
            Kind::Offer => {
                self.consider(state, Deferred { socket: incoming.socket, id: message.id, who: incoming.who, passed: message.passed });
            }
            Kind::Joined => self.note_joined(state, incoming.name),
            Kind::Greeting | Kind::Answer => {}
        }
    }

    /// Answers an offer, or closes its connection: the connector then looks whether there is a link by now.
    ///
    /// When two members make offers to each other at once, one of the two must give way, and both must agree which. The one with the
    /// lower id lets the other's offer wait until its own was answered, which the other one does at once; so
    /// the lower one's becomes the link, and nobody waits for somebody who waits.
    fn consider(&self, state: &mut State, offer: Deferred) {
        if offer.id == self.member.id || sys::is_hung_up(&offer.socket) || self.living(state, offer.id).is_some() {
            return;
        }
        // (Whose queue there is full is not asked twice: the connector takes the kernel.)
        if !matches!(self.vouch(offer.id, &offer.who), Ok(Some(true))) {
            static LINES: Limit = Limit::new();
            if let Some(left_out) = LINES.pass() {
                tracing::debug!(pid = offer.who.pid, "refusing a process that is not certain to be the member that it says{left_out}");
            }
            return;
        }
        if state.outgoing.contains(&offer.id) && self.member.id < offer.id {
            if state.deferred.len() < INCOMING_MAX {
                state.deferred.push(offer);
            }
            return;
        }
        self.accept(state, offer);
    }

    fn accept(&self, state: &mut State, offer: Deferred) {
        let Ok(peer) = PeerHalf::open(&self.member, offer.id, offer.who, offer.passed) else {
            static LINES: Limit = Limit::new();
            if let Some(left_out) = LINES.pass() {
                tracing::warn!(pid = offer.who.pid, "what a peer passed is not a member's{left_out}");
            }
            return;
        };
        let Ok(half) = Half::new(&self.member, offer.id) else { return };
        let Some(mac) = self.reserve(state) else { return };
        let connection = Arc::new(offer.socket);
        let (link, fds) = half.join(&self.member, peer, mac, Some(connection.clone()));
        // Before the answer: with the answer the peer may send, and the device must look there.
        let answered = self.install(state, &link).and_then(|()| fds.send(&connection, Kind::Answer, &self.member));
        if answered.is_err() {
            if state.links[slot_of(mac)].is_some() {
                self.lost(state, slot_of(mac));
            } else {
                Self::unreserve(state, mac);
            }
        }
        self.settled.notify_all();
    }

    /// Considers the deferred offers again, at the end of one of our own negotiations.
    pub(super) fn answer_deferred(&self, state: &mut State) {
        for offer in core::mem::take(&mut state.deferred) {
            self.consider(state, offer);
        }
    }

    /// A peer's connection has ended, it seems.
    fn look_after(&self, state: &mut State, slot: usize) {
        let Some(Some(entry)) = state.links.get(slot) else { return };
        let Some(socket) = &entry.socket else { return };
        if sys::is_hung_up(socket) {
            self.lost(state, slot);
        }
    }
}
