//! One connection's way to the kernel, as the side goes that began it: a thread's work from the first question to the end.

use core::ffi::c_int;
use core::sync::atomic::{AtomicU64, Ordering};
use std::net::SocketAddr;
use std::sync::Arc;

use ringway_devices::{Dialogue, Fd, MemberRef};
use ringway_stack::offload::Reason;
use ringway_stack::ring::FlowId;
use ringway_stack::tcp::Undelivered;

use super::backlog::{self, Backlog};
use super::giving_up::File;
use super::{ANSWER, Role, memfd, owner, pair, peer};
use crate::errno::Errno;
use crate::exit;
use crate::process::{Offload, Process};
use crate::socket::Family;

/// Dialogues with ourselves, whose both ends a process may have, count down from here.
static OWN_DIALOGUES: AtomicU64 = AtomicU64::new(*peer::OWN_DIALOGUES.end());

/// One connection's way to the kernel.
pub(super) struct Job {
    pub(super) process: &'static Process,
    /// Of our own, for the program may close all of its.
    pub(super) placeholder: Arc<File>,
    pub(super) family: Family,
    /// Closed by the program after its reading was shut down.
    pub(super) ended_reading: bool,
    /// The program knows that it is connected.
    pub(super) is_told: bool,
    /// Closed here, by a process that ends: nobody goes on with it, and only its reader is owed something.
    pub(super) is_last: bool,
    pub(super) local: SocketAddr,
    pub(super) remote: SocketAddr,
    /// Who is at the other end; `None`: nobody any more.
    pub(super) peer: Option<MemberRef>,
    /// A descriptor that has the connection's own address.
    pub(super) listener: Option<c_int>,
}

/// How the peer took it that the connection leaves.
enum Left {
    /// What is undelivered at its end, and the dialogue in which it waits for the rest.
    Ready(Undelivered, Conversation),
    /// It had not accepted it yet: its listener will, from the kernel.
    Unaccepted(Undelivered, Conversation),
    /// There is nobody.
    Nobody,
    /// The peer, or we ourselves on its behalf, moved it first.
    Overtaken,
    /// It is there, and cannot be asked.
    Silent,
}

/// How the peer is asked.
pub(super) enum Conversation {
    Other(Dialogue),
    Ourselves(u64),
}

impl Conversation {
    pub(super) fn ask(&self, process: &'static Process, words: &str, passed: Vec<Fd>) -> Option<(String, Vec<Fd>)> {
        let (words, passed) = match self {
            Self::Ourselves(dialogue) => peer::answer(process, *dialogue, &process.own_members(), words, passed),
            Self::Other(dialogue) => {
                let raw: Vec<i32> = passed.iter().map(Fd::raw).collect();
                let (words, passed) = dialogue.ask(words.as_bytes(), &raw, ANSWER).ok()?;
                (String::from_utf8(words).ok()?, passed)
            }
        };
        Some((words, passed))
    }

    /// Says no more, which resets a peer that waits for more.
    pub(super) fn hang_up(self, process: &'static Process) {
        match self {
            Self::Ourselves(dialogue) => peer::abandoned(process, dialogue),
            Self::Other(dialogue) => drop(dialogue),
        }
    }
}

impl Job {
    pub(super) fn run(self) {
        let moved = match self.leave() {
            Left::Overtaken => return,
            // Whatever is there answers the ring, or ends it.
            Left::Nobody if self.is_last => Ok(None),
            Left::Ready(theirs, dialogue) if self.is_last => self.leave_to_peer(&theirs, dialogue).map(|()| None),
            Left::Nobody => self.go_on_alone(),
            Left::Silent => self.break_off(),
            Left::Unaccepted(theirs, dialogue) => self.go_to_listener(&theirs, dialogue),
            Left::Ready(theirs, dialogue) => self.go_to(&theirs, dialogue),
        };
        if moved.is_err() && self.is_overtaken() {
            return;
        }
        let rest = moved.unwrap_or_else(|error| {
            let (local, remote) = (self.local, self.remote);
            if self.is_last {
                // (Its descriptor, dropped before its end was in order, resets it.)
                tracing::warn!("the connection {local} - {remote} is reset at the end of the process: it could not be moved: {error:?}");
                return None;
            }
            tracing::warn!("the connection {local} - {remote}, shared with another process, is reset: it could not be moved: {error:?}");
            pair::reset(self.placeholder.raw(), self.family, self.local, self.remote);
            None
        });
        self.finish();
        if let Some(rest) = rest {
            backlog::add(self.process, &mut self.process.lock(), rest);
        }
    }

    /// Whether the move is still ours: the peer may have begun its own meanwhile.
    fn is_ours(&self, offload: &Offload) -> bool {
        offload.moves.iter().any(|moving| moving.is_between(self.local, self.remote) && moving.role == Role::Asking)
    }

    /// Whether the peer has moved it instead, or does so.
    fn is_overtaken(&self) -> bool {
        let guard = self.process.lock();
        let moving = guard.moves.iter().find(|moving| moving.is_between(self.local, self.remote));
        moving.is_none_or(|moving| matches!(moving.role, Role::Peer(_) | Role::Writing))
    }

    /// Whether the connection is over: its two ends have nothing to do with each other any more.
    fn is_over(&self, offload: &Offload) -> bool {
        offload.is_over(self.local, self.remote)
    }

    /// Asks the peer to leave the ring, as soon as the handshake is over.
    fn leave(&self) -> Left {
        let started = std::time::Instant::now();
        loop {
            let (is_alone, reason);
            {
                let mut guard = self.process.lock();
                let now = self.process.now();
                guard.poll_if_due(now);
                if !self.is_ours(&guard) {
                    return Left::Overtaken;
                }
                let moving = guard.moves.iter().find(|moving| moving.is_between(self.local, self.remote));
                is_alone = moving.is_some_and(|moving| moving.key.is_none());
                reason = moving.map_or(Reason::SharedConnection, |moving| moving.reason);
                if self.is_over(&guard) {
                    return Left::Nobody;
                }
                let under_way = guard.handshakes(self.local, self.remote);
                drop(guard);
                if under_way {
                    super::pause();
                    continue;
                }
            }
            let dialogue = match self.peer {
                None => return Left::Nobody,
                Some(member) if self.process.is_own(&member) => Conversation::Ourselves(OWN_DIALOGUES.fetch_sub(1, Ordering::Relaxed)),
                Some(member) => match Dialogue::begin(&member, ANSWER) {
                    Ok(Some(dialogue)) => Conversation::Other(dialogue),
                    Ok(None) => return Left::Nobody,
                    Err(_) if started.elapsed() < super::PATIENCE => {
                        super::pause();
                        continue;
                    }
                    Err(_) => return Left::Silent,
                },
            };
            let alone = if is_alone { peer::ALONE } else { "" };
            let words = format!("leave {} {} {} {alone}", self.remote, self.local, reason.name());
            let Some((answer, passed)) = dialogue.ask(self.process, &words, Vec::new()) else {
                if started.elapsed() < super::PATIENCE {
                    continue;
                }
                return Left::Silent;
            };
            let undelivered = passed.first().and_then(memfd::to_undelivered);
            match (answer.as_str(), undelivered) {
                ("left", Some(undelivered)) => return Left::Ready(undelivered, dialogue),
                ("unaccepted", Some(undelivered)) => return Left::Unaccepted(undelivered, dialogue),
                ("wait", _) if started.elapsed() < super::PATIENCE => super::pause(),
                ("wait", _) => return Left::Silent,
                _ => return Left::Nobody,
            }
        }
    }

    /// Takes our end off the ring.
    pub(super) fn end_silently(&self) -> Result<Undelivered, Errno> {
        let mut guard = self.process.lock();
        let offload = &mut *guard;
        let now = self.process.now();
        offload.poll_if_due(now);
        // (The peer's own move is not to be taken for ours.)
        if !self.is_ours(offload) {
            return Err(Errno(libc::EBADF));
        }
        let undelivered = offload.rings.end_silently(now, self.local, self.remote);
        let mut key = None;
        for moving in offload.moves.iter_mut().filter(|moving| moving.is_between(self.local, self.remote)) {
            moving.role = Role::Owner;
            key = moving.key;
        }
        if let Some(key) = key {
            offload.on_its_way(key);
        }
        offload.dispatch();
        exit::pulse();
        undelivered.map_err(Errno::from)
    }

    /// The connection as it goes on: between the placeholder and a descriptor for the peer.
    pub(super) fn connect(&self) -> Result<Fd, Errno> {
        let fresh = pair::connect(self.placeholder.raw(), self.family, self.local, self.remote, self.listener, self.is_told)?;
        self.placeholder.check().map(|()| fresh)
    }

    fn go_to(&self, theirs: &Undelivered, dialogue: Conversation) -> Result<Option<Backlog>, Errno> {
        let ours = self.end_silently()?;
        if ours.is_broken() || theirs.is_broken() {
            // It failed while we asked. The peer hears of that by our hanging up.
            dialogue.hang_up(self.process);
            return self.leave_alone(ours, false);
        }
        // The peer, which has closed it, may go now.
        let dialogue = (!theirs.orphaned).then_some(dialogue);
        let not_ours = Errno(libc::EPROTO);
        let (to_them, to_us) = (ours.owed_to(theirs).ok_or(not_ours)?, theirs.owed_to(&ours).ok_or(not_ours)?);
        let fresh = self.connect()?;
        // First, where there is room: of an end that was shut down altogether, bytes that come later would reset it.
        let written = if theirs.orphaned { 0 } else { pair::write_some(self.placeholder.raw(), &to_them)? };
        let mut rest = None;
        if let Some(dialogue) = dialogue {
            let words = format!("take {} {}", self.remote, self.local);
            let passed = vec![fresh, memfd::holding(&[&to_us]).map_err(|_| Errno(libc::EMFILE))?];
            match dialogue.ask(self.process, &words, passed) {
                Some((answer, _)) if answer == "taken" => {}
                _ => return Err(Errno(libc::ECONNRESET)),
            }
            self.write_or_leave(&to_them[written..], &dialogue)?;
        } else {
            // Nobody there reads any more; what was written there is still due here.
            rest = Backlog::after(fresh, to_us, false)?;
        }
        if ours.ended {
            pair::end_writing(self.placeholder.raw());
        }
        Ok(rest)
    }

    fn go_to_listener(&self, theirs: &Undelivered, dialogue: Conversation) -> Result<Option<Backlog>, Errno> {
        let ours = self.end_silently()?;
        // The peer did not end before: our ring would have seen that.
        drop(dialogue);
        if ours.is_broken() {
            return if self.is_last { Err(Errno(libc::ECONNRESET)) } else { self.leave_alone(ours, false) };
        }
        let to_them = ours.owed_to(theirs).ok_or(Errno(libc::EPROTO))?;
        pair::bind_beside(self.placeholder.raw(), self.family, self.local, self.listener);
        if self.is_last {
            pair::break_off(&self.placeholder.fd);
        }
        pair::connect_to(self.placeholder.raw(), self.family, self.remote, self.is_told)?;
        self.placeholder.check()?;
        if self.is_last {
            let member = self.peer.ok_or(Errno(libc::ESRCH))?;
            return self
                .write_the_last(&to_them, || Dialogue::begin(&member, ANSWER).ok().flatten().map(Conversation::Other))
                .map(|()| None);
        }
        pair::write_all(self.placeholder.raw(), &to_them)?;
        if ours.ended {
            pair::end_writing(self.placeholder.raw());
        }
        Ok(None)
    }

    /// The peer is there and says nothing: it is to see a reset, and not wait for somebody who is gone.
    fn break_off(&self) -> Result<Option<Backlog>, Errno> {
        let mut guard = self.process.lock();
        let offload = &mut *guard;
        let is_it = |id: &FlowId| owner::ends(offload, *id) == Some((self.local, self.remote));
        let found = offload.rings.open_flows().find(is_it);
        if let Some(id) = found {
            offload.rings.of_mut(id).close(self.process.now(), id, true);
            offload.dispatch();
        }
        Err(Errno(libc::ETIMEDOUT))
    }

    /// The peer is gone: what it sent is there to be read, and then its end, or its reset.
    fn go_on_alone(&self) -> Result<Option<Backlog>, Errno> {
        let was_over = self.is_over(&self.process.lock());
        match self.end_silently() {
            // It ended in order, and the program has closed it meanwhile.
            Err(Errno(libc::EBADF)) if self.is_forgotten() => Ok(None),
            ours => self.leave_alone(ours?, was_over),
        }
    }

    /// Whether the program has closed it since the move began, and no child has it.
    fn is_forgotten(&self) -> bool {
        let guard = self.process.lock();
        let moving = guard.moves.iter().find(|moving| moving.is_between(self.local, self.remote));
        moving.and_then(|moving| moving.key).is_some_and(|key| guard.sockets.find(key).is_none())
    }

    /// As [`Self::go_on_alone`], with what our end left. `was_over`: the program may know that.
    fn leave_alone(&self, ours: Undelivered, was_over: bool) -> Result<Option<Backlog>, Errno> {
        let ended = ours.ended || ours.over;
        let fresh = self.connect()?;
        let written = pair::write_some(fresh.raw(), &ours.unread)?;
        if written < ours.unread.len() {
            if ended {
                pair::end_writing(self.placeholder.raw());
            }
            let is_reset = !ours.peer_ended || ours.error.is_some();
            return Ok(Some(Backlog { other: fresh, bytes: ours.unread, written, is_reset, until: None, birth: None }));
        }
        // One that ended and was reset then has told of both.
        if ours.peer_ended && ours.error.is_some() {
            pair::end_writing(fresh.raw());
        }
        if !ours.peer_ended || ours.error.is_some() {
            pair::break_off(&fresh);
        }
        drop(fresh);
        if was_over && ours.error.is_none() {
            // The program knows of it already.
            pair::take_error(self.placeholder.raw());
        }
        if ended {
            pair::end_writing(self.placeholder.raw());
        }
        Ok(None)
    }

    /// From now on, it is the kernel's.
    fn finish(&self) {
        let mut guard = self.process.lock();
        let offload = &mut *guard;
        let Some(at) = offload.moves.iter().position(|moving| moving.is_between(self.local, self.remote)) else { return };
        let moving = offload.moves.swap_remove(at);
        exit::pulse();
        if self.ended_reading {
            pair::end_reading(self.placeholder.raw());
        }
        if let Some(key) = moving.key {
            offload.arrived(key, moving.reason);
        }
    }
}
