//! Connections that go over to another ring of the process: that of the thread which uses them (VMA_RING_MIGRATION_RATIO_RX and _TX).
//!
//! A ring is a member of shared memory with an address of its own, so the ring meets the one at the other end first. Then
//! the connection is written down and read in again there, under both rings' locks, with all that is unread, unsent or unacknowledged; and the
//! peer is told where to send ([`super::follow`]). Until it says that it does, the connection is silent there: the peer would refuse what comes from a
//! MAC address that it does not know. What the peer sends to the old ring meanwhile is lost in silence there, and sent again when it follows. So is what is on
//! its way from here. A thread does it, one for each peer: the program's own do not wait for a peer that is stopped.
//!
//! From then on there is no way back, and none is needed: whoever is asked anything of the connection finds it where it is. If the peer
//! dies before it follows, the connection is reset, for what it sent last may be lost; if it moves the connection to the kernel, what the two rings have not delivered
//! say what is owed. An end of ours at the other side is told under the same lock.
//!
//! What stays where it is:
//! - a socket that is not plain ([`crate::socket::plain`]): it has options, callbacks, or readers that know it by its ring;
//! - a connection of which the program has borrowed bytes, has yet to be told, or which has a rate of its own: what that is, is the ring's;
//! - one that children may have, which goes to the kernel soon, or is on its way;
//! - one that has ended in one direction by this end: it is over soon;
//! - one whose peer is gone, or does not answer.
//!
//! UDP sockets go over in another manner ([`super::datagrams`]), and so does what is on a card ([`super::steered`]).

use core::time::Duration;
use std::net::SocketAddr;

use ringway_devices::{Dialogue, MemberRef};
use ringway_host::Blocked;
use ringway_stack::ring::{FlowId, NextHop};
use ringway_stack::socket::Direction;
use ringway_stack::tcp::State;

use super::{ANSWER, follow};
use crate::descendants;
use crate::mux;
use crate::process::{self, Offload, Process};
use crate::rings::RingSet;
use crate::slab::Key;
use crate::socket::Kind;

/// Connections that are on their way, or are to be.
const JOBS_MAX: usize = 1024;

/// Peers that are talked to at a time.
const THREADS_MAX: usize = 8;

/// Between two words to a peer that cannot say yet: at first, and at most.
const AGAIN_MIN: Duration = Duration::from_micros(100);
const AGAIN_MAX: Duration = Duration::from_millis(100);

/// A connection that is over is told of so many times more, where there is no answer.
const GONE_TRIES: u32 = 3;

/// Connections on their way to other rings.
#[derive(Debug, Default)]
pub(crate) struct Migrations {
    jobs: Vec<Job>,
    /// The peers that threads are for.
    threads: Vec<u64>,
    /// UDP sockets that are to go over.
    pub(super) datagrams: super::datagrams::Jobs,
    /// What is to go over to another ring of a card.
    pub(super) by_rule: Vec<super::steered::Job>,
    /// How many went over.
    pub(crate) done: u64,
}

/// A connection that is to go over.
#[derive(Clone, Copy, Debug)]
struct Job {
    key: Key,
    flow: FlowId,
    /// The ring that it goes to.
    to: u16,
    /// What it goes by.
    direction: Direction,
    /// Who is at the other end.
    peer: MemberRef,
    is_begun: bool,
    /// What it is there.
    over: Option<FlowId>,
    /// Since its peer was asked, that one has said where it is: the answer may be older.
    was_told: bool,
}

impl Migrations {
    /// The peer of a connection has said where it is.
    pub(super) fn note_told(&mut self, id: FlowId) {
        self.of(id).for_each(|job| job.was_told = true);
    }

    fn of(&mut self, id: FlowId) -> impl Iterator<Item = &mut Job> {
        self.jobs.iter_mut().filter(move |job| job.over == Some(id))
    }
}

impl Offload {
    /// A call under the process's lock receives, or sends, on a connection.
    #[inline]
    pub(crate) fn note_caller(&mut self, key: Key, flow: FlowId, direction: Direction) {
        let own = self.rings.at_mut(flow.ring);
        if !own.callers.expects_caller() && own.note_caller(flow, direction) {
            self.send_over(key, flow, direction);
        }
    }

    /// Another thread than its ring's has used a connection, or a UDP socket, for long enough: it is to go over to that thread's.
    #[cold]
    #[inline(never)]
    pub(crate) fn send_over(&mut self, key: Key, flow: FlowId, direction: Direction) {
        self.rings.at_mut(flow.ring).callers.rest(flow);
        if self.send_over_by_rules(key, flow, direction) {
            return;
        }
        if self.sockets.find(key).is_some_and(|socket| matches!(socket.kind, Kind::Datagram(_))) {
            return self.send_datagrams_over(key, flow, direction);
        }
        let Some(process) = process::process().filter(|_| self.may_go_over(key, flow)) else { return };
        let Some(NextHop::Mac(mac)) = self.rings.of(flow).tcp_hop(flow) else { return };
        let Some(peer) = process.rendezvous_of(flow).member_at(mac) else { return };
        if self.migrations.jobs.len() >= JOBS_MAX || self.migrations.jobs.iter().any(|job| job.flow == flow) {
            return;
        }
        let Some(to) = self.home_of_caller(key, flow) else { return };
        self.migrations.jobs.push(Job { key, flow, to, direction, peer, is_begun: false, over: None, was_told: false });
        if self.migrations.threads.len() >= THREADS_MAX || self.migrations.threads.contains(&peer.id()) {
            return;
        }
        // No handler of the program's runs on a thread that is not its.
        let _undisturbed = Blocked::new();
        let work = move || crate::boundary!((), work(process, peer.id()));
        match std::thread::Builder::new().name("ringway-over".to_owned()).spawn(work) {
            Ok(_) => self.migrations.threads.push(peer.id()),
            Err(_) => self.migrations.jobs.retain(|job| job.is_begun),
        }
    }

    /// Whether a socket has that connection, and nothing that could not go along.
    fn may_go_over(&self, key: Key, flow: FlowId) -> bool {
        let may_socket = |socket: &crate::socket::Socket| {
            let ends = socket.bound.zip(socket.peer);
            let is_moving = || self.moves.iter().any(|moving| ends.is_none_or(|(local, remote)| moving.is_between(local, remote)));
            self.is_plain(socket, flow) && !descendants::shared_since(socket.birth) && !is_moving()
        };
        let is_open =
            || self.rings.of(flow).info(flow).is_some_and(|info| matches!(info.state, Some(State::Established | State::CloseWait)));
        !self.ending && !self.callbacks.are_used() && self.sockets.find(key).is_some_and(may_socket) && is_open()
    }

    /// A connection's flow as it is now: it may have gone over since a call looked.
    #[inline]
    pub(crate) fn flow_now(&self, key: Key, flow: FlowId) -> FlowId {
        match self.sockets.find(key).map(|socket| socket.kind) {
            Some(Kind::Stream(now) | Kind::Connecting(now)) => now,
            _ => flow,
        }
    }
}

/// A dialogue with a peer, which goes on from one connection to the next.
struct Known {
    peer: MemberRef,
    dialogue: Option<Dialogue>,
}

impl Known {
    /// With that one.
    fn with(&mut self, peer: MemberRef) -> Option<&Dialogue> {
        if self.peer != peer {
            *self = Self { peer, dialogue: None };
        }
        if self.dialogue.is_none() {
            self.dialogue = Dialogue::begin(&peer, ANSWER).ok().flatten();
        }
        self.dialogue.as_ref()
    }

    /// Asks, and begins again the next time if there is no answer. (One that is late is to no question.)
    fn ask(&mut self, peer: MemberRef, words: &str) -> Option<String> {
        let answer = self.with(peer)?.ask(words.as_bytes(), &[], ANSWER);
        if answer.is_err() {
            self.dialogue = None;
        }
        answer.ok().map(|(answer, _)| String::from_utf8_lossy(&answer).into_owned())
    }
}

/// A thread's work: what goes over from this peer's connections, and then from those of others that have none.
fn work(process: &'static Process, mut peer: u64) {
    let mut known = Known { peer: MemberRef::told(peer), dialogue: None };
    loop {
        let job = {
            let mut guard = process.lock();
            let Migrations { jobs, threads, .. } = &mut guard.migrations;
            let mut next = jobs.iter_mut().find(|job| !job.is_begun && job.peer.id() == peer);
            if next.is_none() {
                threads.retain(|other| *other != peer);
                next = jobs.iter_mut().find(|job| !job.is_begun && !threads.contains(&job.peer.id()));
                let Some(other) = &next else { return };
                peer = other.peer.id();
                threads.push(peer);
            }
            let Some(next) = next else { return };
            next.is_begun = true;
            *next
        };
        job.run(process, &mut known);
        process.lock().migrations.jobs.retain(|other| other.flow != job.flow);
    }
}

impl Job {
    fn run(&self, process: &'static Process, known: &mut Known) {
        let Ok(Some(mac)) = process.rendezvous_at(self.to).meet(&self.peer) else { return };
        let is_own = process.is_own(&self.peer);
        // (So that it is told as soon as the connection is there.)
        if !is_own && known.with(self.peer).is_none() {
            return;
        }
        let Some((id, ends)) = self.go_over(process, &mut process.lock(), NextHop::Mac(mac), is_own) else { return };
        tracing::debug!("the connection {} - {} is on ring {}", ends.0, ends.1, self.to);
        if !is_own {
            self.tell(process, id, ends, known);
        }
    }

    /// Takes the connection from its ring to the other. `None`: it stays.
    fn go_over(&self, process: &Process, offload: &mut Offload, hop: NextHop, is_own: bool) -> Option<(FlowId, (SocketAddr, SocketAddr))> {
        let Self { key, flow, to, direction, peer, .. } = *self;
        let now = process.now();
        offload.rings.touch(to);
        // What has come is taken along, and so is what has come to an end of ours at the other side.
        offload.poll_these(if is_own { offload.rings.all() } else { RingSet::of(flow.ring) }, now);
        let (Some(NextHop::Mac(mac)), NextHop::Mac(its)) = (offload.rings.of(flow).tcp_hop(flow), hop) else { return None };
        // (The peer may be another by now. Whose death the ring has yet to hear of, it hears of with the connection.)
        let is_still = |rendezvous: &ringway_devices::Rendezvous, mac| rendezvous.member_at(mac).is_some_and(|known| known == peer);
        if !offload.may_go_over(key, flow) || !is_still(process.rendezvous_of(flow), mac) || !is_still(process.rendezvous_at(to), its) {
            return None;
        }
        let info = offload.rings.of(flow).info(flow)?;
        let ends = (info.local, info.remote?);
        let other_end = if is_own { Some(other_end(process, offload, ends, to)?) } else { None };
        let bytes = offload.rings.of_mut(flow).tcp_written(flow)?;
        let config = offload.sockets.find(key)?.tcp.clone();
        let id = offload.rings.at_mut(to).adopt_snapshot(now, ends, hop, &config, &bytes).ok()?;
        drop(offload.rings.of_mut(flow).detach_stream(now, flow));
        let ring = offload.rings.of_mut(id);
        if let Some((other, here)) = other_end {
            let _ = ring.tcp_retarget(now, id, hop);
            let _ = offload.rings.of_mut(other).tcp_retarget(now, other, here);
        } else {
            let _ = ring.tcp_keep_silent(id);
        }
        offload.rings.at_mut(flow.ring).callers.forget(flow);
        if let Some(socket) = offload.sockets.find_mut(key) {
            (socket.kind, socket.ring) = (Kind::Stream(id), to);
            socket.migrations[direction as usize] += 1;
        }
        offload.migrations.done += 1;
        offload.migrations.jobs.iter_mut().filter(|job| job.flow == flow).for_each(|job| job.over = Some(id));
        offload.link(id, key.index);
        mux::went_over(offload, key.index);
        offload.dispatch();
        offload.attend(now);
        offload.watch_held(now, id);
        Some((id, ends))
    }

    /// Tells the peer, and goes on as soon as it follows.
    fn tell(&self, process: &Process, id: FlowId, ends: (SocketAddr, SocketAddr), known: &mut Known) {
        let rendezvous = process.rendezvous_at(self.to);
        let words = format!("follow {} {} {:016x}", ends.1, ends.0, rendezvous.member_ref().id());
        let (mut peer, mut pause, mut tries) = (self.peer, AGAIN_MIN, GONE_TRIES);
        while tries > 0 {
            process.lock().migrations.of(id).for_each(|job| job.was_told = false);
            let answer = known.ask(peer, &words);
            let met = |other: &str| {
                let other = u64::from_str_radix(other, 16).ok().map(MemberRef::told)?;
                rendezvous.meet(&other).ok()?.map(NextHop::Mac)
            };
            let (is_final, at) = match answer.as_deref().map(|answer| answer.split_once(' ').unwrap_or((answer, ""))) {
                Some(("meet", other)) => {
                    // It has gone over to another ring itself.
                    met(other);
                    (false, None)
                }
                // It is stopped, or dead, of which the ring hears.
                Some((follow::WAIT, _)) | None => (false, None),
                // It follows, from where it may have gone over to itself.
                Some((follow::FOLLOWS, other)) => (true, met(other)),
                // It knows of no such connection, and says so to what is sent.
                Some(_) => (true, None),
            };
            match self.heard(process, (id, ends), peer, is_final, at) {
                Heard::GoesOn => return,
                Heard::At(other) => peer = other,
                // (Whoever sends to the old ring is to find out here.)
                Heard::Gone if is_final => return,
                Heard::Gone => tries -= 1,
                Heard::Nothing => {}
            }
            super::pause_for(pause);
            pause = (pause * 2).min(AGAIN_MAX);
        }
    }

    /// What the connection makes of an answer of that peer's. `at`: where that one says that the other end is.
    fn heard(
        &self,
        process: &Process,
        (id, ends): (FlowId, (SocketAddr, SocketAddr)),
        peer: MemberRef,
        is_final: bool,
        at: Option<NextHop>,
    ) -> Heard {
        let mut guard = process.lock();
        let offload = &mut *guard;
        if offload.rings.at(self.to).ring.tcp_between(ends.0, ends.1) != Some(id) {
            return Heard::Gone;
        }
        let Some(NextHop::Mac(mac)) = offload.rings.of(id).tcp_hop(id) else { return Heard::Gone };
        match process.rendezvous_at(self.to).member_at(mac) {
            Some(other) if other != peer => Heard::At(other),
            _ if !is_final => Heard::Nothing,
            _ => {
                let now = process.now();
                // (Of where it was, it says no more whether it was through with the connection, should it die now.)
                let was_told = offload.migrations.of(id).any(|job| job.was_told);
                if let Some(at) = at.filter(|at| *at != NextHop::Mac(mac) && !was_told) {
                    let _ = offload.rings.of_mut(id).tcp_retarget(now, id, at);
                }
                offload.rings.of_mut(id).tcp_speak(now, id);
                offload.dispatch();
                offload.attend(now);
                Heard::GoesOn
            }
        }
    }
}

/// See [`Job::heard`].
enum Heard {
    GoesOn,
    /// It is to be told that one: the peer's end is with it by now.
    At(MemberRef),
    /// It has ended, or is the kernel's.
    Gone,
    Nothing,
}

/// The other end of a connection, where that is this process's, too, and where the first one will be, as that one's ring knows it.
fn other_end(process: &Process, offload: &Offload, ends: (SocketAddr, SocketAddr), to: u16) -> Option<(FlowId, NextHop)> {
    let other = offload.rings.tcp_between(ends.1, ends.0).filter(|_| ends.0 != ends.1)?;
    let here = process.rendezvous_at(to).member_ref().id();
    let known = process.rendezvous_of(other).peers().into_iter().find(|peer| peer.id == here)?;
    Some((other, NextHop::Mac(known.mac)))
}
