//! Two programs whose connection leaves both rings at some moment of its life, as one does that several processes share: one side asks the
//! other to take its end off the ring, takes its own off then, and lays together what is owed to each reader. Both then have all that was
//! written, its end if it was ended, and no more. Later they may connect once more from the same addresses.

mod dialogue;
mod line;

pub use line::Line;

use core::time::Duration;
use std::net::SocketAddr;

use ringway_stack::ring::FlowId;
use ringway_stack::tcp::{Config, State};
use ringway_stack::{Error, Instant};

use self::line::{Account, Inbox, Letter};
use super::conversation::Conversation;
use super::tcp::listen;
use super::{Dialogue, Ending, OPEN_RETRY, Shared, Transfer};
use crate::addresses::neighbour;
use crate::host::{App, Context, Step};

/// Connections that wait to be accepted.
const BACKLOG: usize = 8;
/// How often one looks for letters who expects none: at first, and once that time has passed.
const LOOK: Duration = Duration::from_millis(5);
const LATER: Duration = Duration::from_secs(2);
/// Who has waited for a while looks again after that part of it.
const PATIENCE: u32 = 16;
const LATER_LOOK: Duration = Duration::from_millis(50);
/// And not much more often than this, however long the run is.
const LATER_LOOKS: u32 = 1000;

/// When a side begins to take the connection along, if it is there by then.
#[derive(Clone, Copy, Debug)]
pub enum When {
    /// It leaves that to the other.
    Never,
    /// At this time.
    At(Instant),
    /// So long after it has read so many bytes.
    Read(u64, Duration),
    /// So long after it has written so many.
    Written(u64, Duration),
    /// So long after its program has closed it.
    Closed(Duration),
}

/// What a side does beside talking.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// When it begins to take the connection along.
    pub begin: When,
    /// How often it looks for letters while something is under way.
    pub look: Duration,
    /// How long it waits for an answer, and how often.
    pub patience: Duration,
    /// How many times it asks.
    pub tries: u32,
    /// A client: after how long it connects once more. A server: when it begins to accept.
    pub pause: Duration,
}

/// A side's part: what is said over the first connection and over the second, and what it came to.
#[derive(Clone, Debug)]
pub struct Share {
    /// From this side's point of view.
    pub dialogues: [Dialogue; 2],
    /// Its own.
    pub transfers: [Shared<Transfer>; 2],
    /// What it does beside.
    pub plan: Plan,
}

/// How a side comes by its connections.
#[derive(Debug)]
enum Opening {
    Connect,
    Accept(Shared<Option<FlowId>>),
}

/// Where it is with taking the first connection along.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    /// It may begin.
    Free,
    /// It has asked the other, and waits since then.
    Asking(u64, Instant),
    /// Both ends are off their rings, and the other has yet to say that it has what it is owed.
    Owner(u64, Instant),
    /// It was asked, and its end is off the ring.
    Peer(u64),
    /// That is over, or there is nothing to take.
    Done,
}

/// See the module's documentation.
#[derive(Debug)]
pub struct Sharer {
    /// Its number on the line: the client is 0.
    own: usize,
    local: SocketAddr,
    remote: SocketAddr,
    config: Config,
    opening: Opening,
    share: Share,
    line: Shared<Line>,
    inbox: Inbox,
    role: Role,
    /// Its end is not on the ring any more.
    left: bool,
    asked: u32,
    begin_at: Option<Instant>,
    again_at: Option<Instant>,
    /// Which connection it is at.
    round: usize,
    conversation: Option<Conversation>,
    /// Its part and its round as of the last step, and since when it has them.
    part: (Role, usize),
    part_since: Instant,
}

impl Sharer {
    /// The one that connects, from `local` to `remote`.
    pub fn connecting(local: SocketAddr, remote: SocketAddr, config: Config, share: Share, line: Shared<Line>) -> Self {
        Self::new(0, (local, remote), config, Opening::Connect, share, line)
    }

    /// The one that accepts at `local` who comes from `remote`; the listening socket is noted in `listener`.
    pub fn accepting(
        (local, remote): (SocketAddr, SocketAddr),
        config: Config,
        share: Share,
        line: Shared<Line>,
        listener: Shared<Option<FlowId>>,
    ) -> Self {
        Self::new(1, (local, remote), config, Opening::Accept(listener), share, line)
    }

    fn new(
        own: usize,
        (local, remote): (SocketAddr, SocketAddr),
        config: Config,
        opening: Opening,
        share: Share,
        line: Shared<Line>,
    ) -> Self {
        let inbox = Inbox::default();
        let (role, left, asked, begin_at, again_at, round) = (Role::Free, false, 0, None, None, 0);
        let (part, part_since) = ((role, round), Instant::ZERO);
        Self {
            own,
            local,
            remote,
            config,
            opening,
            share,
            line,
            inbox,
            role,
            left,
            asked,
            begin_at,
            again_at,
            round,
            conversation: None,
            part,
            part_since,
        }
    }

    fn other(&self) -> usize {
        1 - self.own
    }

    fn transfer(&self) -> Transfer {
        *self.share.transfers[self.round].read()
    }

    /// Whether a conversation is going on over the ring.
    fn talks(&self) -> bool {
        self.conversation.as_ref().is_some_and(|c| !c.ended()) && !(self.left && self.round == 0)
    }

    /// Whether it waits for the other to say something.
    fn waits(&self) -> bool {
        matches!(self.role, Role::Asking(..) | Role::Owner(..) | Role::Peer(_))
    }

    /// Opens the connection of this round if it is time to. Says when to try again if there was no rule for it.
    fn open(&mut self, cx: &mut Context<'_>) -> Option<Instant> {
        let socket = match &self.opening {
            Opening::Connect if self.conversation.is_some() || self.transfer().ending.is_some() => return None,
            Opening::Connect => {
                let opened = cx.ring.tcp_connect(cx.now, self.local, self.remote, neighbour(self.remote), &self.config);
                assert_ne!(opened, Err(Error::AddressInUse), "{}: the addresses of what has left the ring are free", cx.ip);
                opened
            }
            Opening::Accept(listener) => {
                let Some(listener) = listen(cx, self.local.port(), BACKLOG, &self.config, listener) else {
                    return Some(cx.now + OPEN_RETRY);
                };
                let from = Instant::ZERO + self.share.plan.pause;
                let gone = self.left && self.round == 0;
                if gone || self.conversation.is_some() || self.transfer().ending.is_some() {
                    return None;
                }
                if cx.now < from {
                    return Some(from);
                }
                let Ok(accepted) = cx.ring.tcp_accept(listener) else { return None };
                let client = cx.ring.info(accepted).and_then(|info| info.remote);
                assert_eq!(client, Some(self.remote), "{}: a connection from a stranger", cx.ip);
                assert!(self.round == 0 || self.line.read().again, "{}: a connection that nobody made", cx.ip);
                Ok(accepted)
            }
        };
        match socket {
            Ok(socket) => {
                let (dialogue, transfer) = (self.share.dialogues[self.round], self.share.transfers[self.round].clone());
                self.conversation = Some(Conversation::new(socket, dialogue, transfer));
            }
            Err(Error::NoBuffers) => return Some(cx.now + OPEN_RETRY),
            Err(error) => self.share.transfers[self.round].change(|t| t.ending = Some(Ending::Failed(error))),
        }
        None
    }

    /// Goes on to the second connection, if there is to be one and it is time to. Whether it did.
    fn goes_on(&mut self, cx: &Context<'_>) -> bool {
        if self.round > 0 || self.role != Role::Done || self.transfer().ending.is_none() {
            return false;
        }
        let begins = match self.opening {
            Opening::Accept(_) => true,
            Opening::Connect if self.transfer().ending != Some(Ending::Carried) || !self.line.read().carried => false,
            Opening::Connect => *self.again_at.get_or_insert(cx.now + self.share.plan.pause) <= cx.now,
        };
        if begins {
            self.round = 1;
            self.conversation = None;
            self.line.change(|line| line.again |= self.own == 0);
        }
        begins
    }

    /// Begins to take the connection along, if that was planned for now.
    fn begin(&mut self, cx: &mut Context<'_>) {
        let Some(conversation) = self.conversation.as_ref().filter(|_| self.role == Role::Free && self.round == 0) else { return };
        let (transfer, closed) = (self.transfer(), conversation.ended());
        let after = |reached: bool, pause| reached.then_some(cx.now + pause);
        let planned = match self.share.plan.begin {
            When::Never => None,
            When::At(at) => Some(at),
            When::Read(bytes, pause) => after(transfer.read >= bytes, pause),
            When::Written(bytes, pause) => after(transfer.written >= bytes, pause),
            When::Closed(pause) => after(closed, pause),
        };
        self.begin_at = self.begin_at.or(planned);
        if self.begin_at.is_none_or(|at| at > cx.now) {
            return;
        }
        match cx.ring.info(conversation.socket()).and_then(|info| info.state) {
            // A handshake is waited for.
            Some(State::SynSent | State::SynReceived) => self.begin_at = Some(cx.now + self.pause(cx.now)),
            None => self.role = Role::Done,
            // Over: there is nobody to ask.
            Some(State::Closed) => self.go_alone(cx),
            Some(_) => self.ask(cx),
        }
    }

    fn ask(&mut self, cx: &mut Context<'_>) {
        if self.line.read().dead[self.other()] {
            return self.go_alone(cx);
        }
        self.asked += 1;
        let (other, dialogue) = (self.other(), self.line.change(Line::new_dialogue));
        self.line.change(|line| line.post(other, Letter::Leave(dialogue)));
        self.role = Role::Asking(dialogue, cx.now);
    }

    /// Until it looks again: the longer it has waited, the longer, so that what takes seconds is not looked for a million times.
    fn pause(&self, now: Instant) -> Duration {
        self.share.plan.look.max(now.since(self.part_since) / PATIENCE)
    }

    /// When there is something to do next, though nothing happens; `next`: to the conversation.
    fn next_at(&self, cx: &Context<'_>, next: Option<Instant>) -> Option<Instant> {
        let line = self.line.read();
        let settled = |side: usize| line.over[side] || line.dead[side];
        let look = match () {
            () if self.waits() || line.begun && !(settled(0) && settled(1)) => Some(cx.now + self.pause(cx.now)),
            () if settled(self.other()) => None,
            () if cx.now < Instant::ZERO + LATER => Some(cx.now + LOOK),
            // (Beside others, who may be idle for weeks.)
            () => Some(cx.now + LATER_LOOK.max(cx.now.since(Instant::ZERO) / LATER_LOOKS)),
        };
        let begin = self.begin_at.filter(|_| self.role == Role::Free && self.round == 0);
        let again = self.again_at.filter(|_| self.round == 0);
        [next, look, begin, again, self.inbox.next_at()].into_iter().flatten().min()
    }
}

impl App for Sharer {
    fn step(&mut self, cx: &mut Context<'_>) -> Step {
        let retry = self.open(cx);
        self.hear_all(cx);
        let next = if self.talks() { self.conversation.as_mut().and_then(|c| c.step(cx)) } else { None };
        self.begin(cx);
        self.lose_patience(cx);
        let pending = self.round == 0 && self.role == Role::Free && self.begin_at.is_some() && self.conversation.is_some();
        let (own, over) = (self.own, self.round > 0 || !self.talks() && !self.waits() && !pending && self.transfer().ending.is_some());
        self.line.change(|line| line.over[own] = over);
        if core::mem::replace(&mut self.part, (self.role, self.round)) != self.part {
            self.part_since = cx.now;
        }
        if self.goes_on(cx) {
            return Step::Until(cx.now);
        }
        let at = self.next_at(cx, [next, retry].into_iter().flatten().min()).map(|at| at.max(cx.now + Duration::from_nanos(1)));
        let again = self.again_at.is_some() && self.round == 0;
        let busy = self.talks() || self.waits() || again || self.own == 0 && self.transfer().ending.is_none();
        match at {
            Some(at) if busy => Step::Until(at),
            None if busy => Step::Wait,
            Some(at) => Step::IdleUntil(at),
            None => Step::Idle,
        }
    }

    fn crash(&mut self) {
        let own = self.own;
        self.line.change(|line| line.dead[own] = true);
    }
}
