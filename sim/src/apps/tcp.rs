//! A program that connects, and one that accepts.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use ringway_stack::ring::FlowId;
use ringway_stack::tcp::Config;
use ringway_stack::{Error, Instant};

use super::conversation::Conversation;
use super::{Dialogue, Ending, OPEN_RETRY, Shared, Transfer};
use crate::addresses::neighbour;
use crate::host::{App, Context, Step};

/// Connections that wait to be accepted.
const BACKLOG: usize = 128;

/// Opens one connection, holds one conversation.
#[derive(Debug)]
pub struct Client {
    port: u16,
    server: SocketAddr,
    dialogue: Dialogue,
    config: Config,
    transfer: Shared<Transfer>,
    start_at: Instant,
    conversation: Option<Conversation>,
}

impl Client {
    /// Connects from `port` to `server` at its first step.
    pub fn new(port: u16, server: SocketAddr, dialogue: Dialogue, config: Config, transfer: Shared<Transfer>) -> Self {
        Self { port, server, dialogue, config, transfer, start_at: Instant::ZERO, conversation: None }
    }

    /// Connects at this time instead.
    #[must_use]
    pub fn starting_at(self, start_at: Instant) -> Self {
        Self { start_at, ..self }
    }

    fn connect(&mut self, cx: &mut Context<'_>) -> Result<FlowId, Error> {
        let local = SocketAddr::new(cx.ip, self.port);
        cx.ring.tcp_connect(cx.now, local, self.server, neighbour(self.server), &self.config)
    }
}

impl App for Client {
    fn step(&mut self, cx: &mut Context<'_>) -> Step {
        if cx.now < self.start_at {
            return Step::Until(self.start_at);
        }
        if self.conversation.is_none() {
            match self.connect(cx) {
                Ok(socket) => self.conversation = Some(Conversation::new(socket, self.dialogue, self.transfer.clone())),
                Err(Error::NoBuffers) => return Step::Until(cx.now + OPEN_RETRY),
                Err(error) => self.transfer.change(|t| t.ending = Some(Ending::Failed(error))),
            }
        }
        let Some(conversation) = &mut self.conversation else { return Step::Finished };
        let next = conversation.step(cx);
        if conversation.ended() {
            return Step::Finished;
        }
        next.map_or(Step::Wait, Step::Until)
    }
}

/// Listens, and holds with each client the conversation that was arranged for its address.
#[derive(Debug)]
pub struct Server {
    port: u16,
    config: Config,
    expected: BTreeMap<SocketAddr, (Dialogue, Shared<Transfer>)>,
    listener: Shared<Option<FlowId>>,
    conversations: Vec<Conversation>,
}

impl Server {
    /// Listens on `port` from its first step on; the socket is noted in `listener`.
    pub fn new(port: u16, config: Config, listener: Shared<Option<FlowId>>) -> Self {
        Self { port, config, expected: BTreeMap::new(), listener, conversations: Vec::new() }
    }

    /// Arranges a conversation with `client`.
    pub fn expect(&mut self, client: SocketAddr, dialogue: Dialogue, transfer: Shared<Transfer>) {
        self.expected.insert(client, (dialogue, transfer));
    }

    fn accept_all(&mut self, cx: &mut Context<'_>, listener: FlowId) {
        while let Ok(socket) = cx.ring.tcp_accept(listener) {
            let client = cx.ring.info(socket).and_then(|info| info.remote).expect("an accepted connection has a peer");
            let arranged = self.expected.remove(&client);
            // Had it been corrupted or duplicated into being, nobody would have arranged it.
            let (dialogue, transfer) = arranged.unwrap_or_else(|| panic!("{}: a connection from {client}, who made none", cx.ip));
            self.conversations.push(Conversation::new(socket, dialogue, transfer));
        }
    }
}

impl App for Server {
    fn step(&mut self, cx: &mut Context<'_>) -> Step {
        let Some(listener) = listen(cx, self.port, BACKLOG, &self.config, &self.listener) else { return Step::Until(cx.now + OPEN_RETRY) };
        self.accept_all(cx, listener);
        let next: Option<Instant> = self.conversations.iter_mut().filter(|c| c.may_step(cx.events)).filter_map(|c| c.step(cx)).min();
        self.conversations.retain(|c| !c.ended());
        match next {
            _ if self.conversations.is_empty() => Step::Idle,
            Some(at) => Step::Until(at),
            None => Step::Wait,
        }
    }
}

/// The listening socket that `known` names, or a new one that it will name; none if there is no rule for it now.
pub(super) fn listen(cx: &mut Context<'_>, port: u16, backlog: usize, config: &Config, known: &Shared<Option<FlowId>>) -> Option<FlowId> {
    if let Some(socket) = *known.read() {
        return Some(socket);
    }
    let socket = match cx.ring.tcp_listen(SocketAddr::new(cx.ip, port), backlog, config) {
        Err(Error::NoBuffers) => return None,
        opened => opened.expect("a fresh host's port is free"),
    };
    known.set(Some(socket));
    Some(socket)
}
