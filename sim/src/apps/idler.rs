//! A program that holds many connections that do nothing; after a long time a few speak, and all close.

use core::time::Duration;
use std::collections::BTreeMap;
use std::net::SocketAddr;

use ringway_stack::ring::{FlowId, Readiness};
use ringway_stack::tcp::{Config, Keepalive};
use ringway_stack::{Error, Instant};

use super::conversation::Conversation;
use super::{Dialogue, OPEN_RETRY, Shared, Transfer};
use crate::addresses::neighbour;
use crate::host::{App, Context, Step};

/// The time between two batches of closes.
const CLOSE_EVERY: Duration = Duration::from_millis(1);

/// What an [`Idler`]'s silent connections came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IdleCounts {
    /// Those that were established.
    pub established: u32,
    /// Those that failed, before or after.
    pub failed: u32,
    /// Those that were closed without a word.
    pub closed: u32,
}

/// See the module's documentation.
#[derive(Debug)]
pub struct Idler {
    server: SocketAddr,
    config: Config,
    /// Connections under way to being established, at most.
    batch: usize,
    rest: Duration,
    transfer: Shared<IdleCounts>,
    /// Ports to connect from, the next one last.
    ports: Vec<u16>,
    opening: BTreeMap<FlowId, ()>,
    open: Vec<FlowId>,
    speeches: Vec<(Dialogue, Shared<Transfer>)>,
    /// What speakers set when they begin: from then on they must hear if the other side is gone.
    keepalive: Option<Keepalive>,
    speaking: Vec<Conversation>,
    /// When the rest ends.
    speak_at: Option<Instant>,
}

impl Idler {
    /// Connects to `server` from each of `ports`, `batch` at a time, and rests.
    pub fn new(ports: Vec<u16>, server: SocketAddr, config: Config, batch: usize, rest: Duration, transfer: Shared<IdleCounts>) -> Self {
        let (opening, open, speeches, speaking) = (BTreeMap::new(), Vec::new(), Vec::new(), Vec::new());
        Self { server, config, batch, rest, transfer, ports, opening, open, speeches, keepalive: None, speaking, speak_at: None }
    }

    /// After the rest, one connection more speaks.
    pub fn speech(&mut self, dialogue: Dialogue, transfer: Shared<Transfer>) {
        self.speeches.push((dialogue, transfer));
    }

    /// Speakers turn keepalives on, as late as this.
    #[must_use]
    pub fn speaking_with(self, keepalive: Option<Keepalive>) -> Self {
        Self { keepalive, ..self }
    }

    fn connect(&mut self, cx: &mut Context<'_>) {
        while self.opening.len() < self.batch {
            let Some(port) = self.ports.pop() else { break };
            let (local, hop) = (SocketAddr::new(cx.ip, port), neighbour(self.server));
            match cx.ring.tcp_connect(cx.now, local, self.server, hop, &self.config) {
                Err(Error::NoBuffers) => return self.ports.push(port),
                opened => self.opening.insert(opened.expect("a fresh host's ports are free"), ()),
            };
        }
    }

    fn take_events(&mut self, cx: &mut Context<'_>) {
        for event in cx.events {
            if self.opening.remove(&event.flow).is_none() {
                continue;
            }
            if event.edges.contains(Readiness::ERR) || cx.ring.readiness(event.flow).contains(Readiness::HUP) {
                self.transfer.change(|t| t.failed += 1);
                cx.ring.close(cx.now, event.flow, false);
            } else if event.edges.contains(Readiness::OUT) {
                self.transfer.change(|t| t.established += 1);
                self.open.push(event.flow);
            } else {
                self.opening.insert(event.flow, ());
            }
        }
    }

    fn begin_to_speak(&mut self, cx: &mut Context<'_>) {
        for (dialogue, transfer) in core::mem::take(&mut self.speeches) {
            let Some(socket) = self.open.pop() else { return };
            let keepalive = self.keepalive;
            cx.ring.tcp_configure(cx.now, socket, |c| c.keepalive = keepalive).expect("it is open");
            self.speaking.push(Conversation::new(socket, dialogue, transfer));
        }
    }

    fn close_some(&mut self, cx: &mut Context<'_>) {
        let keep = self.open.len().saturating_sub(self.batch);
        for socket in self.open.drain(keep..) {
            let failed = cx.ring.readiness(socket).contains(Readiness::HUP);
            self.transfer.change(|t| if failed { t.failed += 1 } else { t.closed += 1 });
            cx.ring.close(cx.now, socket, false);
        }
    }
}

impl App for Idler {
    fn step(&mut self, cx: &mut Context<'_>) -> Step {
        self.take_events(cx);
        self.connect(cx);
        if !self.ports.is_empty() && self.opening.len() < self.batch {
            return Step::Until(cx.now + OPEN_RETRY);
        }
        if !self.opening.is_empty() || !self.ports.is_empty() {
            return Step::Wait;
        }
        let speak_at = *self.speak_at.get_or_insert(cx.now + self.rest);
        if cx.now < speak_at {
            return Step::Until(speak_at);
        }
        self.begin_to_speak(cx);
        self.close_some(cx);
        let next = self.speaking.iter_mut().filter_map(|c| c.step(cx)).min();
        self.speaking.retain(|c| !c.ended());
        match next {
            _ if !self.open.is_empty() => Step::Until(cx.now + CLOSE_EVERY),
            Some(at) => Step::Until(at),
            None if self.speaking.is_empty() => Step::Finished,
            None => Step::Wait,
        }
    }
}
