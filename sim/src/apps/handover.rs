//! Two programs that pass one connection to and fro while data flow on it.

use core::fmt;
use core::time::Duration;
use std::net::SocketAddr;

use ringway_stack::ring::{FlowId, Handover, NextHop};
use ringway_stack::tcp::Config;
use ringway_stack::{Error, Instant};

use super::conversation::Conversation;
use super::tcp::listen;
use super::{Dialogue, Ending, OPEN_RETRY, Shared, Transfer};
use crate::addresses::neighbour;
use crate::host::{App, Context, Step};
use crate::nic::SimQueues;

/// After how long a runner looks again whose partner is about to pass something on, or that could not take it.
const LOOK_AGAIN: Duration = Duration::from_micros(1);
const TRY_AGAIN: Duration = Duration::from_millis(1);
/// How late a turn that nobody expected any more is noticed: at first, and at most. (The world may go on for days.)
const LATE_LOOK: Duration = Duration::from_millis(100);
const LATE_LOOK_MAX: Duration = Duration::from_secs(20);

/// What two [`Runner`]s share.
#[derive(Default)]
pub struct Baton {
    parcel: Option<Parcel>,
    /// How often it was passed on.
    pub passed: u32,
    /// How often a ring could not take it since.
    refused: u32,
    ended: bool,
}

struct Parcel {
    /// Whether the runner that began gave it.
    from_first: bool,
    handover: Handover<SimQueues>,
    conversation: Box<Conversation>,
}

impl fmt::Debug for Baton {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Baton").field("passed", &self.passed).field("ended", &self.ended).finish_non_exhaustive()
    }
}

/// When a connection is passed on, if it can be.
#[derive(Clone, Copy, Debug)]
pub struct Turns {
    /// The time from one to the next, the first one included.
    pub every: Duration,
    /// How many.
    pub count: u32,
}

/// How a connection begins.
#[derive(Debug)]
enum Beginning {
    Connect(SocketAddr),
    /// Accepts from this client, on the socket noted there.
    Accept(SocketAddr, Shared<Option<FlowId>>),
    /// It has begun, or the other runner begins.
    Done,
}

/// See the module's documentation.
#[derive(Debug)]
pub struct Runner {
    port: u16,
    config: Config,
    dialogue: Dialogue,
    transfer: Shared<Transfer>,
    baton: Shared<Baton>,
    turns: Turns,
    turn_at: Instant,
    late_look: Duration,
    beginning: Beginning,
    first: bool,
    holds: Option<Box<Conversation>>,
}

impl Runner {
    /// The one of two runners that doesn't begin.
    pub fn second(port: u16, config: Config, dialogue: Dialogue, transfer: Shared<Transfer>, baton: Shared<Baton>, turns: Turns) -> Self {
        let turn_at = Instant::ZERO + turns.every;
        let (late_look, beginning) = (LATE_LOOK, Beginning::Done);
        Self { port, config, dialogue, transfer, baton, turns, turn_at, late_look, beginning, first: false, holds: None }
    }

    /// Begins by connecting to `server`.
    #[must_use]
    pub fn connecting(self, server: SocketAddr) -> Self {
        Self { beginning: Beginning::Connect(server), first: true, ..self }
    }

    /// Begins by accepting from `client`; the listening socket is noted in `listener`.
    #[must_use]
    pub fn accepting(self, client: SocketAddr, listener: Shared<Option<FlowId>>) -> Self {
        Self { beginning: Beginning::Accept(client, listener), first: true, ..self }
    }

    /// Begins, if that can be done by now. Says when to try again if there was no rule for it.
    fn begin(&mut self, cx: &mut Context<'_>) -> Option<Instant> {
        let socket = match &self.beginning {
            Beginning::Connect(server) => {
                let local = SocketAddr::new(cx.ip, self.port);
                cx.ring.tcp_connect(cx.now, local, *server, neighbour(*server), &self.config)
            }
            Beginning::Accept(client, listener) => match accept(cx, self.port, &self.config, *client, listener) {
                Ok(Some(socket)) => Ok(socket),
                Ok(None) => return None,
                Err(error) => Err(error),
            },
            Beginning::Done => return None,
        };
        if socket == Err(Error::NoBuffers) {
            return Some(cx.now + OPEN_RETRY);
        }
        self.beginning = Beginning::Done;
        match socket {
            Ok(socket) => self.holds = Some(Box::new(Conversation::new(socket, self.dialogue, self.transfer.clone()))),
            Err(error) => {
                self.transfer.change(|t| t.ending = Some(Ending::Failed(error)));
                self.baton.change(|b| b.ended = true);
            }
        }
        while self.turn_at < cx.now && self.turns.count > 0 {
            self.turn_over();
        }
        None
    }

    fn turn_over(&mut self) {
        self.turns.count = self.turns.count.saturating_sub(1);
        self.turn_at += self.turns.every;
    }

    /// Takes what the other has passed on. Says when to try again if that failed.
    fn take(&mut self, cx: &mut Context<'_>) -> Option<Instant> {
        let first = self.first;
        let Parcel { from_first, handover, mut conversation } =
            self.baton.change(|b| b.parcel.take_if(|parcel| parcel.from_first != first))?;
        // Every other time as between two processes, which share no memory; and of those every other time as if nothing of it had been lost meanwhile.
        let (passed, refused) = self.baton.change(|b| (b.passed, b.refused));
        // (One that was written down needs buffers for all that it has yet to send, which a device that refuses some now and then may never give at once: its peer
        // would give up. Every other try needs a rule alone, as in 223567083/registration/7/handover.)
        let adopted = if passed.is_multiple_of(2) && refused.is_multiple_of(2) {
            let hop = NextHop::Neighbour(handover.remote().ip());
            cx.ring.adopt_written(cx.now, handover, hop, &self.config, passed.is_multiple_of(4))
        } else {
            cx.ring.adopt(cx.now, handover)
        };
        match adopted {
            Ok(socket) => {
                self.baton.change(|b| b.refused = 0);
                conversation.moved(socket);
                self.holds = Some(conversation);
                if self.turn_at <= cx.now {
                    self.turn_over();
                }
                None
            }
            Err((_, handover)) => {
                let parcel = Parcel { from_first, handover, conversation };
                self.baton.change(|b| (b.parcel, b.refused) = (Some(parcel), refused.wrapping_add(1)));
                Some(cx.now + TRY_AGAIN)
            }
        }
    }

    /// Passes on what it holds.
    fn pass(&mut self, cx: &mut Context<'_>) {
        let Some(conversation) = self.holds.take() else { return };
        match cx.ring.detach_stream(cx.now, conversation.socket()) {
            Ok(handover) => {
                let parcel = Parcel { from_first: self.first, handover, conversation };
                self.baton.change(|b| (b.parcel, b.passed) = (Some(parcel), b.passed + 1));
            }
            Err(error) => {
                assert_eq!(error, Error::NotConnected, "a connection can't be passed on");
                self.holds = Some(conversation);
            }
        }
    }

    /// Goes on with what it holds, and passes it on if it is time to.
    fn hold(&mut self, cx: &mut Context<'_>) -> Option<Step> {
        let conversation = self.holds.as_mut()?;
        let next = conversation.step(cx);
        if conversation.ended() {
            self.holds = None;
            self.baton.change(|b| b.ended = true);
            return Some(Step::Finished);
        }
        if self.turns.count == 0 {
            return Some(next.map_or(Step::Wait, Step::Until));
        }
        if self.turn_at <= cx.now {
            self.pass(cx);
            self.turn_over();
        }
        let turn_at = self.turn_at;
        self.holds.is_some().then(|| Step::Until(next.map_or(turn_at, |at| at.min(turn_at))))
    }

    /// Waits to be passed it, as long as there are turns.
    fn wait(&mut self, cx: &Context<'_>) -> Step {
        if self.turn_at + LOOK_AGAIN <= cx.now {
            self.turn_over();
        }
        match self.turns.count {
            _ if self.baton.read().ended => Step::Finished,
            // What was passed on after all turns is still somebody's to take.
            0 if self.baton.read().parcel.is_some() => Step::Until(cx.now + LATE_LOOK),
            // A clock that jumped, or a ring that could not take the connection for long, may have used the turns up before the other's last one.
            0 => {
                let look_at = cx.now + self.late_look;
                self.late_look = (self.late_look * 2).min(LATE_LOOK_MAX);
                Step::IdleUntil(look_at)
            }
            // The other may have its turn after this one's.
            _ if self.turn_at <= cx.now => Step::Until(self.turn_at + LOOK_AGAIN),
            _ => Step::Until(self.turn_at),
        }
    }
}

impl App for Runner {
    fn step(&mut self, cx: &mut Context<'_>) -> Step {
        if let Some(again) = self.begin(cx) {
            return Step::Until(again);
        }
        if !matches!(self.beginning, Beginning::Done) {
            return Step::Idle;
        }
        if let Some(again) = self.take(cx) {
            return Step::Until(again);
        }
        match self.hold(cx) {
            Some(step) => step,
            None => self.wait(cx),
        }
    }
}

/// A connection, if there is one. `Err`: there is no rule to listen with now.
fn accept(
    cx: &mut Context<'_>,
    port: u16,
    config: &Config,
    client: SocketAddr,
    listener: &Shared<Option<FlowId>>,
) -> Result<Option<FlowId>, Error> {
    let socket = listen(cx, port, 8, config, listener).ok_or(Error::NoBuffers)?;
    let Ok(accepted) = cx.ring.tcp_accept(socket) else { return Ok(None) };
    assert_eq!(cx.ring.info(accepted).and_then(|i| i.remote), Some(client), "a connection from a stranger");
    Ok(Some(accepted))
}
