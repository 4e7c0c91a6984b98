//! A program that opens one short connection after the other, from few ports.

use core::time::Duration;
use std::net::SocketAddr;

use ringway_stack::ring::{FlowId, NextHop};
use ringway_stack::tcp::Config;
use ringway_stack::{Error, Instant};

use super::conversation::Conversation;
use super::{Dialogue, Ending, OPEN_RETRY, Pattern, Registry, Shared, Transfer};
use crate::addresses::neighbour;
use crate::host::{App, Context, Step};

/// After how long a port is tried again whose last connection still lingers: first, and at most. (It may do so for a minute.)
const PORT_RETRY: Duration = Duration::from_millis(10);
pub(crate) const PORT_RETRY_MAX: Duration = Duration::from_millis(100);

/// Each so many connections, one is opened before its way is known, and learns it so much later.
const LATE_EVERY: u32 = 3;
const LATE_BY: Duration = Duration::from_micros(700);

/// What a [`Churner`] does, and how far it got.
#[derive(Debug)]
pub struct Cycles {
    /// The conversation of each cycle, but for what is said.
    pub dialogue: Dialogue,
    /// How many there are to be.
    pub wanted: u32,
    /// The time between two.
    pub pause: Duration,
    /// The key of everything that is said.
    pub key: u64,
    /// Cycles that ended well, as their client sees it.
    pub whole: u32,
    /// Why the others failed.
    pub failed: Vec<Error>,
    /// The server's part of each that was announced.
    pub served: Vec<Shared<Transfer>>,
}

impl Cycles {
    /// None begun.
    pub fn new(dialogue: Dialogue, wanted: u32, pause: Duration, key: u64) -> Self {
        Self { dialogue, wanted, pause, key, whole: 0, failed: Vec::new(), served: Vec::new() }
    }

    /// What is said in a cycle: no two say the same.
    fn cycle(&self, number: u64) -> Dialogue {
        let mut dialogue = self.dialogue;
        dialogue.own.pattern = Pattern(self.key.wrapping_add(2 * number));
        dialogue.peer.pattern = Pattern(self.key.wrapping_add(2 * number + 1));
        dialogue
    }
}

/// Connects, talks, closes, and again.
#[derive(Debug)]
pub struct Churner {
    ports: Vec<u16>,
    server: SocketAddr,
    config: Config,
    registry: Shared<Registry>,
    cycles: Shared<Cycles>,
    begun: u32,
    next_at: Instant,
    /// After how long a port that is in use is tried again.
    port_retry: Duration,
    now: Option<(Conversation, Shared<Transfer>)>,
    /// A connection that was opened before its way was known, and when it is.
    unrouted: Option<(FlowId, Instant)>,
}

impl Churner {
    /// Connects to `server` from each of `ports` in turn; the server knows what is said from `registry`. If some cycles were begun before
    /// a crash, it goes on with the next one.
    pub fn new(ports: Vec<u16>, server: SocketAddr, config: Config, registry: Shared<Registry>, cycles: Shared<Cycles>) -> Self {
        let begun = u32::try_from(cycles.read().served.len()).unwrap_or(u32::MAX);
        let port_retry = PORT_RETRY;
        Self { ports, server, config, registry, cycles, begun, next_at: Instant::ZERO, port_retry, now: None, unrouted: None }
    }

    fn begin(&mut self, cx: &mut Context<'_>) {
        let port = self.ports[self.begun as usize % self.ports.len()];
        let is_late = self.begun % LATE_EVERY == LATE_EVERY - 1;
        let hop = if is_late { NextHop::Pending } else { neighbour(self.server) };
        let ends = (SocketAddr::new(cx.ip, port), self.server);
        let opened = if self.config.fast_open.under_way_max > 0 {
            // As much as goes with the SYN; the rest, or all, when the handshake is over.
            let said = self.cycles.read().cycle(u64::from(self.begun)).own.first();
            cx.ring.tcp_connect_fast(cx.now, ends, hop, &self.config, &said)
        } else {
            cx.ring.tcp_connect(cx.now, ends.0, ends.1, hop, &self.config).map(|socket| (socket, 0))
        };
        match opened {
            Ok((socket, said)) => {
                self.port_retry = PORT_RETRY;
                self.unrouted = is_late.then(|| (socket, cx.now + LATE_BY));
                self.converse(socket, said as u64);
            }
            Err(Error::AddressInUse) => {
                self.next_at = cx.now + self.port_retry;
                self.port_retry = (self.port_retry * 2).min(PORT_RETRY_MAX);
            }
            Err(Error::NoBuffers) => self.next_at = cx.now + OPEN_RETRY,
            Err(error) => panic!("{}: a connection was refused before it was tried: {error}", cx.ip),
        }
    }

    /// Of what is to be said, so much went with the SYN.
    fn converse(&mut self, socket: FlowId, said: u64) {
        let dialogue = self.cycles.read().cycle(u64::from(self.begun));
        let [own, peer] = [said, 0].map(|written| Shared::new(Transfer { written, ..Transfer::default() }));
        self.registry.change(|r| r.announce(dialogue, peer.clone()));
        self.cycles.change(|c| c.served.push(peer));
        self.now = Some((Conversation::new(socket, dialogue, own.clone()), own));
        self.begun += 1;
    }

    fn note(&mut self, now: Instant, ending: Ending) {
        let cycles = &mut self.cycles;
        cycles.change(|c| match ending {
            Ending::Failed(error) => c.failed.push(error),
            Ending::Whole | Ending::Aborted | Ending::Left | Ending::Carried => c.whole += 1,
        });
        self.next_at = now + cycles.read().pause;
    }
}

impl App for Churner {
    fn step(&mut self, cx: &mut Context<'_>) -> Step {
        loop {
            if let Some((socket, at)) = self.unrouted {
                if cx.now < at {
                    return Step::Until(at);
                }
                self.unrouted = None;
                // (A fault may have ended it meanwhile; its conversation will find out.)
                let _ = cx.ring.tcp_route(cx.now, socket, neighbour(self.server));
            }
            if let Some((conversation, transfer)) = &mut self.now {
                let next = conversation.step(cx);
                let ending = transfer.read().ending;
                let Some(ending) = ending else { return next.map_or(Step::Wait, Step::Until) };
                self.now = None;
                self.note(cx.now, ending);
            }
            if self.begun >= self.cycles.read().wanted {
                return Step::Finished;
            }
            if self.next_at > cx.now {
                return Step::Until(self.next_at);
            }
            self.begin(cx);
            if self.now.is_some() && self.unrouted.is_none() {
                return Step::Wait;
            }
        }
    }
}
