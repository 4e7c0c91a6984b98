//! A connection goes over to another ring of its process, step by step and with the very calls of `libvma.so` (`ffi/vma/src/moving/migration.rs`, `follow.rs`).

use core::time::Duration;
use std::net::SocketAddr;

use ringway_stack::Instant;
use ringway_stack::device::MacAddr;
use ringway_stack::ring::{FlowId, NextHop};
use ringway_stack::tcp::{Config, State};

use super::breach;
use super::channel::{Answer, Channel, Question};
use crate::machine::Ports;

/// How long an answer is waited for, between two words to a peer that cannot say yet, and how often a connection is told of that is over: libvma's.
const ANSWER: Duration = Duration::from_secs(5);
const AGAIN_MIN: Duration = Duration::from_micros(100);
const AGAIN_MAX: Duration = Duration::from_millis(100);
const GONE_TRIES: u32 = 3;

/// A peer that is neither stopped nor dead has followed by then: two answers that come too late, and a few words more.
const SILENCE_MAX: Duration = Duration::from_secs(12);

/// A connection that is on its way, or is there and has yet to tell its peer.
#[derive(Debug)]
pub(super) struct Job {
    /// As it was before.
    pub(super) flow: FlowId,
    to: u16,
    /// The peer's ring.
    peer: u16,
    told: Option<Told>,
}

#[derive(Debug)]
struct Told {
    id: FlowId,
    ends: (SocketAddr, SocketAddr),
    since: Instant,
    asked: Option<(u64, Instant)>,
    /// Since it asked, it was told where its peer is: the answer may be older.
    was_told: bool,
    again_at: Instant,
    pause: Duration,
    tries: u32,
}

/// What a machine is to those at work on it.
pub(super) struct Place<'a, 'b> {
    pub(super) now: Instant,
    pub(super) machine: usize,
    /// The MAC address of each machine's first ring.
    pub(super) macs: [MacAddr; 2],
    pub(super) ports: &'a mut Ports<'b>,
    pub(super) channel: &'a mut Channel,
    pub(super) healed_at: Instant,
}

impl Place<'_, '_> {
    /// The MAC address of the peer's ring.
    pub(super) fn hop(&self, ring: u16) -> NextHop {
        NextHop::Mac(ring_mac(self.macs[1 - self.machine], ring))
    }

    /// The peer's ring that a connection is with. `None`: there is no such connection, or nobody is there.
    pub(super) fn member(&mut self, id: FlowId) -> Option<u16> {
        let hop = self.ports.ring(id.ring).tcp_hop(id)?;
        (0..u16::from(u8::MAX)).find(|&ring| self.hop(ring) == hop)
    }

    fn between(&mut self, ends: (SocketAddr, SocketAddr)) -> Option<FlowId> {
        self.ports.iter().find_map(|ring| ring.tcp_between(ends.0, ends.1))
    }

    /// Whether a connection is open, and not ended by this end.
    pub(super) fn may_go_over(&mut self, flow: FlowId) -> bool {
        let state = self.ports.ring(flow.ring).info(flow).and_then(|info| info.state);
        matches!(state, Some(State::Established | State::CloseWait))
    }

    /// The peer's end of a connection is on another ring.
    pub(super) fn follow(&mut self, question: &Question, puts_off: bool) -> Answer {
        let rings = self.ports.iter().count();
        for ring in 0..rings {
            self.ports.ring(ring as u16).poll(self.now);
        }
        if puts_off {
            return Answer::Wait;
        }
        let Some(id) = self.between(question.ends) else { return Answer::No };
        if self.member(id).is_none() {
            return Answer::No;
        }
        if !self.channel.has_met(self.machine, id.ring, question.ring) {
            return Answer::Meet(id.ring);
        }
        let hop = self.hop(question.ring);
        if self.ports.ring(id.ring).tcp_retarget(self.now, id, hop).is_ok() { Answer::Follows(id.ring) } else { Answer::No }
    }
}

/// A ring's MAC address, by that of its machine's first.
fn ring_mac(MacAddr([group, _, a, b, c, d]): MacAddr, ring: u16) -> MacAddr {
    MacAddr([group, u8::try_from(ring).unwrap_or(u8::MAX), a, b, c, d])
}

/// How a step of a job went.
pub(super) enum Went {
    /// The connection stays, or is over, or its peer has followed.
    Done,
    /// It is on another ring.
    Over(FlowId),
    /// It waits until then.
    Until(Instant),
}

impl Job {
    pub(super) const fn new(flow: FlowId, to: u16, peer: u16) -> Self {
        Self { flow, to, peer, told: None }
    }

    /// Whether it has gone over, and its peer has yet to follow.
    pub(super) fn is_silent(&self, id: FlowId) -> bool {
        self.told.as_ref().is_some_and(|told| told.id == id)
    }

    /// The peer has said of the connection between these addresses where it is.
    pub(super) fn note_told(&mut self, ends: (SocketAddr, SocketAddr)) {
        if let Some(told) = self.told.as_mut().filter(|told| told.ends == ends) {
            told.was_told = true;
        }
    }

    pub(super) fn step(&mut self, place: &mut Place<'_, '_>, is_open: bool, config: &Config) -> Went {
        match &mut self.told {
            None => match self.go_over(place, is_open, config) {
                Some((id, ends)) => {
                    let told = Told {
                        id,
                        ends,
                        since: place.now,
                        asked: None,
                        was_told: false,
                        again_at: place.now,
                        pause: AGAIN_MIN,
                        tries: GONE_TRIES,
                    };
                    self.told = Some(told);
                    Went::Over(id)
                }
                None => Went::Done,
            },
            Some(told) => {
                if place.now > told.since.max(place.healed_at) + SILENCE_MAX {
                    breach(format_args!("{told:?} has been silent since then, and its peer is there"));
                }
                told.step(place, self.to, &mut self.peer)
            }
        }
    }

    fn go_over(&self, place: &mut Place<'_, '_>, is_open: bool, config: &Config) -> Option<(FlowId, (SocketAddr, SocketAddr))> {
        let &Self { flow, to, peer, .. } = self;
        if !place.channel.meet(place.machine, to, peer) {
            return None;
        }
        let (now, hop) = (place.now, place.hop(peer));
        // What has come is taken along.
        place.ports.ring(flow.ring).poll(now);
        if !is_open || place.member(flow) != Some(peer) || !place.may_go_over(flow) {
            return None;
        }
        let info = place.ports.ring(flow.ring).info(flow)?;
        let ends = (info.local, info.remote?);
        let bytes = place.ports.ring(flow.ring).tcp_written(flow)?;
        let id = place.ports.ring(to).adopt_snapshot(now, ends, hop, config, &bytes).ok()?;
        drop(place.ports.ring(flow.ring).detach_stream(now, flow));
        let ring = place.ports.ring(to);
        ring.came_over(now, ends, id);
        if let Err(error) = ring.tcp_keep_silent(now, id) {
            breach(format_args!("a connection that has just been read in is kept silent: {error}"));
        }
        Some((id, ends))
    }
}

impl Told {
    /// Tells the peer, and goes on as soon as it follows.
    fn step(&mut self, place: &mut Place<'_, '_>, to: u16, peer: &mut u16) -> Went {
        let now = place.now;
        if now < self.again_at {
            return Went::Until(self.again_at);
        }
        let Some((number, until)) = self.asked else {
            self.was_told = false;
            match place.channel.ask(now, place.machine, self.ends, to) {
                Some(number) => self.asked = Some((number, now + ANSWER)),
                None => return self.heard(place, None, to, peer),
            }
            return Went::Until(now + ANSWER);
        };
        match place.channel.answered(now, place.machine, number) {
            None if now < until => Went::Until(until),
            answer => {
                self.asked = None;
                self.heard(place, answer, to, peer)
            }
        }
    }

    /// What the connection makes of an answer.
    fn heard(&mut self, place: &mut Place<'_, '_>, answer: Option<Answer>, to: u16, peer: &mut u16) -> Went {
        let mut met = |other: u16| place.channel.meet(place.machine, to, other).then_some(other);
        let (is_final, at) = match answer {
            Some(Answer::Meet(other)) => {
                met(other);
                (false, None)
            }
            Some(Answer::Wait) | None => (false, None),
            // It may have gone over itself.
            Some(Answer::Follows(other)) => (true, met(other)),
            Some(Answer::No) => (true, None),
        };
        let is_there = place.ports.ring(to).tcp_between(self.ends.0, self.ends.1) == Some(self.id);
        match place.member(self.id).filter(|_| is_there) {
            None if is_final => return Went::Done,
            None => self.tries -= 1,
            // The peer's end is with that ring by now, which is to be told.
            Some(other) if other != *peer => *peer = other,
            Some(other) if is_final => {
                // (Of where it was, it says no more whether it was through with the connection, should it die now.)
                if let Some(at) = at.filter(|at| *at != other && !self.was_told) {
                    let hop = place.hop(at);
                    let _ = place.ports.ring(to).tcp_retarget(place.now, self.id, hop);
                }
                place.ports.ring(to).tcp_speak(place.now, self.id);
                return Went::Done;
            }
            Some(_) => {}
        }
        if self.tries == 0 {
            return Went::Done;
        }
        self.again_at = place.now + self.pause;
        self.pause = (self.pause * 2).min(AGAIN_MAX);
        Went::Until(self.again_at)
    }
}
