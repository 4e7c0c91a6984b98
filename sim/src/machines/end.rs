//! One end of a connection: it writes a pattern, reads its peer's, and is used by several threads in turn.

use std::io::{IoSlice, IoSliceMut};
use std::net::SocketAddr;

use ringway_stack::ring::{FlowId, RecvFlags, SendFlags, Shutdown};
use ringway_stack::socket::{Caller, Env, Place, Socket, State};
use ringway_stack::{Error, tcp};

use super::{Plan, breach};
use crate::apps::Pattern;
use crate::random::{SplitMix, scale};

/// The longest stream.
const TOTAL_MAX: u64 = 60_000;
/// The longest piece that is written or read.
const PIECE_MAX: u64 = 6_000;

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct End {
    pub(super) socket: Socket,
    /// Where it connects to, if it is the opener's.
    remote: Option<SocketAddr>,
    writes: Stream,
    reads: Stream,
    /// Who uses it, and for how many calls yet.
    thread: u64,
    burst: u64,
    /// The thread that has used it alone since its ring's own, and how often.
    stranger: Option<(u64, u32)>,
    /// How often it was due to migrate, and did not.
    pub(super) stayed: u64,
}

/// One direction.
#[derive(Debug)]
struct Stream {
    pattern: Pattern,
    done: u64,
    total: u64,
    ended: bool,
}

impl Stream {
    /// Named by the opener's port, and whether it is what the opener writes.
    fn new(port: u16, is_openers: bool) -> Self {
        let key = u64::from(port) * 2 + u64::from(is_openers);
        let pattern = Pattern(SplitMix(key).next());
        Self { pattern, done: 0, total: scale(SplitMix(!key).next(), TOTAL_MAX), ended: false }
    }
}

impl End {
    pub(super) fn new(socket: Socket, opener_port: u16, remote: Option<SocketAddr>) -> Self {
        let is_opener = remote.is_some();
        let [writes, reads] = [is_opener, !is_opener].map(|is_openers| Stream::new(opener_port, is_openers));
        Self { socket, remote, writes, reads, thread: 0, burst: 0, stranger: None, stayed: 0 }
    }

    pub(super) fn is_done(&self) -> bool {
        self.writes.ended && self.reads.ended
    }

    /// A few calls. Whether they got anywhere.
    pub(super) fn go(&mut self, env: &mut Env<'_>, dice: &mut SplitMix, plan: &Plan) -> bool {
        let mut got_on = false;
        for _ in 0..1 + scale(dice.next(), 6) {
            if self.burst == 0 {
                self.burst = 1 + scale(dice.next(), 12);
                self.thread = scale(dice.next(), plan.threads);
            }
            self.burst -= 1;
            env.caller = Caller { thread: self.thread, core: 0 };
            let len = 1 + scale(dice.next(), PIECE_MAX);
            got_on |= self.call(env, plan, len, dice.next() & 1 == 0);
            if self.is_done() {
                break;
            }
        }
        got_on
    }

    fn call(&mut self, env: &mut Env<'_>, plan: &Plan, len: u64, reads: bool) -> bool {
        self.socket.settle(env);
        self.check_state(env);
        if self.has_failed(env) {
            return self.connect_again(env);
        }
        // (A direction that has ended is used no more; and who has written all does not call to write.)
        let reads = (reads && !self.reads.ended) || self.writes.ended;
        let before = if reads || self.writes.done < self.writes.total { self.due(env, plan) } else { None };
        let result = if reads { self.read(env, len) } else { self.write(env, len) };
        self.check_ring(env, plan, before);
        match result {
            Ok(_) => true,
            Err(Error::WouldBlock | Error::NoBuffers) => false,
            Err(error) => breach(format_args!("a connection that nobody ended fails: {error}, {:?}", self.socket)),
        }
    }

    /// Whether its connection attempt found no rule.
    fn has_failed(&self, env: &mut Env<'_>) -> bool {
        let state = |flow: &FlowId| env.rings.at(flow.ring)?.info(*flow)?.state;
        match self.socket.state() {
            State::Bound(_) => true,
            State::Connecting(_) => self.socket.flows().first().and_then(state) == Some(tcp::State::Closed),
            _ => false,
        }
    }

    fn connect_again(&mut self, env: &mut Env<'_>) -> bool {
        let Some(remote) = self.remote else { breach("a connection that was accepted is none") };
        match self.socket.connect(env, remote) {
            Err(Error::InProgress) => true,
            Err(Error::NoBuffers) => false,
            result => breach(format_args!("a connection is opened once more: {result:?}, {:?}", self.socket)),
        }
    }

    fn read(&mut self, env: &mut Env<'_>, len: u64) -> Result<usize, Error> {
        let mut bytes = vec![0; len as usize];
        let stream = &mut self.reads;
        let read = self.socket.recv(env, &mut [IoSliceMut::new(&mut bytes)], RecvFlags::empty())?;
        if let Some(at) = stream.pattern.mismatch(stream.done, &bytes[..read]) {
            breach(format_args!("byte {at} of {} was read as another", stream.total));
        }
        stream.done += read as u64;
        stream.ended = read == 0;
        if stream.done > stream.total || (stream.ended && stream.done < stream.total) {
            breach(format_args!("{} bytes were read of {}", stream.done, stream.total));
        }
        Ok(read)
    }

    fn write(&mut self, env: &mut Env<'_>, len: u64) -> Result<usize, Error> {
        let stream = &mut self.writes;
        let len = len.min(stream.total - stream.done);
        let written = if len > 0 {
            let mut bytes = vec![0; len as usize];
            stream.pattern.fill(stream.done, &mut bytes);
            self.socket.send(env, &[IoSlice::new(&bytes)], SendFlags::empty())?
        } else {
            0
        };
        stream.done += written as u64;
        if stream.done == stream.total && matches!(self.socket.state(), State::Connected(_)) && !self.socket.flows().is_empty() {
            self.socket.shutdown(env, Shutdown::Write)?;
            stream.ended = true;
        }
        Ok(written)
    }

    /// A connection is one from when its handshake is over on.
    fn check_state(&self, env: &mut Env<'_>) {
        let Some(&flow) = self.socket.flows().first() else { return };
        let state = env.rings.at(flow.ring).and_then(|ring| ring.info(flow)?.state);
        let is_opening = matches!(state, Some(tcp::State::SynSent | tcp::State::SynReceived));
        if is_opening && matches!(self.socket.state(), State::Connected(_)) {
            breach("a socket counts as connected before its handshake is over");
        }
    }

    /// In which ring it is, and in which it must be after this call; `None`: in none, or it is no connection yet.
    fn due(&mut self, env: &mut Env<'_>, plan: &Plan) -> Option<(u16, bool)> {
        let State::Connected(stream) = self.socket.state() else { return None };
        let (link, flow) = (super::Links::id(super::Links::link_of(stream.local().ip())), *self.socket.flows().first()?);
        let calls = self.stranger.filter(|(thread, _)| *thread == self.thread).map_or(0, |(_, calls)| calls);
        if env.choice.known(link, Place::Thread(self.thread)) == Some(flow.ring) {
            self.stranger = None;
            return Some((flow.ring, false));
        }
        self.stranger = Some((self.thread, calls + 1));
        let may_leave = env.rings.at(flow.ring).is_some_and(|ring| ring.may_leave(flow));
        Some((flow.ring, calls + 1 > plan.ratio && may_leave))
    }

    fn check_ring(&mut self, env: &mut Env<'_>, plan: &Plan, before: Option<(u16, bool)>) {
        let Some((before, is_due)) = before else { return };
        let State::Connected(stream) = self.socket.state() else { return };
        let link = super::Links::id(super::Links::link_of(stream.local().ip()));
        let after = self.socket.flows().first().map(|flow| flow.ring);
        let own = env.choice.known(link, Place::Thread(self.thread));
        if is_due {
            self.stranger = None;
        }
        match after {
            _ if is_due && after == own => {}
            // There may have been no room, or no rule.
            Some(ring) if is_due && ring == before && (plan.flows_max < 100 || plan.refuses) => self.stayed += 1,
            None if is_due && plan.refuses => self.stayed += 1,
            Some(ring) if !is_due && ring == before => {}
            _ => {
                let was = if is_due { "due" } else { "not due" };
                breach(format_args!("a connection was in ring {before}, and {was} to go to {own:?} with this call; it is in {after:?}"));
            }
        }
    }
}
