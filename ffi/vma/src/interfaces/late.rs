//! Interfaces that another process has when this one comes.
//!
//! A process has an interface's queues, or some of them, alone. It may have no use for them any more: the server that a supervisor started first, the parent of a daemon, the
//! master of workers who do its work. So who finds them taken, and has sockets that would have flows there, tries again now and then: a listener that this process
//! waits at, or a UDP socket. What those have received by the kernel until then, and what connections the kernel has, stays so.
//!
//! The child of a fork asks its parent first. That one gives its interfaces up if it has nothing there: no connection, no UDP socket, and no listener but those that it
//! does not wait at. Else they stay its own until it ends.

use core::time::Duration;

use ringway_devices::{Dialogue, MemberRef};
use ringway_host::Blocked;
use ringway_stack::Instant;

use super::Interfaces;
use crate::descendants;
use crate::moving::ANSWER;
use crate::process::{Offload, Process};
use crate::rings::{ProcessRing, RingSet};
use crate::slab::Key;
use crate::socket::{Kind, Socket};

/// Between two attempts: at first, and at most. In between it doubles.
const PAUSE_MIN: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// The word by which a child asks for them.
pub(crate) const WORD: &str = "interfaces";

/// See the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct Late {
    /// They are to be had later, perhaps.
    pub(super) are_taken: bool,
    /// The next attempt, and how long after that the one behind it.
    next: Option<(Instant, Duration)>,
    /// One is under way.
    has_thread: bool,
    /// Whose child this process is.
    parent: Option<MemberRef>,
}

impl Late {
    /// Whether they are to be had later, perhaps.
    pub(crate) const fn are_taken(&self) -> bool {
        self.are_taken
    }
}

impl Offload {
    /// Whose child this process is that has just begun.
    pub(crate) fn ask_for_interfaces_of(&mut self, parent: MemberRef) {
        self.late.parent = Some(parent);
    }

    /// A socket would have flows on interfaces, if they were there.
    #[inline]
    pub(crate) fn want_interfaces(&mut self) {
        if self.late.are_taken && self.late.next.is_none() {
            self.late.next = Some((Instant::ZERO, PAUSE_MIN));
            self.mux.call_progress();
        }
    }

    fn has_use_for_interfaces(&self) -> bool {
        let has_use = |socket: &Socket| match socket.kind {
            Kind::Listener(_) => socket.waited && !socket.stays_within,
            Kind::Datagram(_) => socket.bound.is_some() && !socket.stays_within && !socket.is_left_by_fork,
            _ => false,
        };
        self.sockets.iter().any(|(_, socket)| has_use(socket))
    }

    /// For how long no attempt is due. For the progress thread.
    pub(crate) fn look_after_late_interfaces(&mut self, process: &'static Process, now: Instant) -> Option<Duration> {
        let (at, pause) = self.late.next?;
        if now < at || self.late.has_thread {
            return Some(at.since(now).max(PAUSE_MIN));
        }
        if !self.has_use_for_interfaces() {
            self.late.next = None;
            return None;
        }
        self.late.next = Some((now + pause, (pause * 2).min(PAUSE_MAX)));
        let _undisturbed = Blocked::new();
        let work = move || crate::boundary!((), attempt(process));
        // (Without a thread, the next attempt may have one.)
        self.late.has_thread = std::thread::Builder::new().name("ringway-attach".to_owned()).spawn(work).is_ok();
        Some(pause)
    }

    /// What this process has no use for is another one's from now on. Whether it has none of them any more.
    pub(crate) fn give_up_idle_interfaces(&mut self) -> bool {
        let Some(link_rings) = self.interfaces.as_ref().map(|interfaces| interfaces.rings()) else { return true };
        let own = self.rings.interfaces.and(link_rings.iter().copied().collect());
        // (Nobody else is to have them who asks.)
        if descendants::youngest_child() == 0 || !self.are_idle(own) {
            return false;
        }
        let is_there = |socket: &Socket| !socket.rings().and(own).is_empty();
        let keys: Vec<Key> = self.sockets.iter().filter(|(_, socket)| is_there(socket)).map(|(key, _)| key).collect();
        for key in keys {
            self.close_flows_on(key, own);
            crate::mux::refresh(self, key.index);
        }
        for ring in own.iter() {
            if let Err(error) = self.rings.give_up_device(ring) {
                tracing::debug!("an interface is not given up: {error}");
                return false;
            }
        }
        self.interfaces = None;
        self.late.are_taken = true;
        tracing::info!("a child has the interfaces from now on: nothing here had any use for them");
        self.dispatch();
        true
    }

    /// Whether nothing of these rings is in use: listeners at most that this process does not wait at.
    fn are_idle(&self, rings: RingSet) -> bool {
        let is_idle = |ring: u16| {
            let ProcessRing { ring: own, watch, .. } = self.rings.at(ring);
            let is_quiet = |&flow: &_| {
                let socket = own
                    .info(flow)
                    .and_then(|_| self.rings.socket_above(flow))
                    .and_then(|index| self.sockets.find(self.sockets.key_at(index)?));
                let is_withdrawn = socket.is_some_and(|socket| matches!(socket.kind, Kind::Listener(_)) && socket.is_left_by_fork);
                is_withdrawn && own.tcp_half_open(flow) == 0 && own.tcp_waiting(flow).is_empty()
            };
            // (A child of fork has no ring on a card.)
            let may_go = own.exempter().is_some() && !own.is_gone() && !watch.is_slept_on();
            may_go && !own.lingering() && own.open_flows().iter().all(is_quiet)
        };
        rings.iter().all(is_idle)
    }

    /// The interfaces are there.
    fn have_interfaces(&mut self) {
        self.late.are_taken = false;
        self.late.next = None;
        let keys: Vec<Key> = self.sockets.iter().filter(|(_, socket)| socket.rings() != RingSet::NONE).map(|(key, _)| key).collect();
        for key in keys {
            self.fit_flows(key);
            crate::mux::refresh(self, key.index);
        }
        self.dispatch();
    }
}

/// The thread's work.
fn attempt(process: &'static Process) {
    let parent = process.lock().late.parent;
    if let Some(parent) = parent
        && let Ok(Some(dialogue)) = Dialogue::begin(&parent, ANSWER)
    {
        let _ = dialogue.ask(WORD.as_bytes(), &[], ANSWER);
    }
    let had = process.lock().ending;
    if !had {
        Interfaces::attach(process);
    }
    let mut guard = process.lock();
    guard.late.has_thread = false;
    if guard.interfaces.is_some() {
        guard.have_interfaces();
    }
    guard.mux.call_progress();
}
