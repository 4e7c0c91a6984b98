//! Interfaces that another process has when this one comes.
//!
//! A process has an interface's queues, or some of them, alone. It may have no use for them any more: the server that a supervisor started first, the parent of a daemon, the
//! master of workers who do its work. So who finds them taken, and has sockets that would have flows there, tries again now and then: a listener that this process
//! waits at, or a UDP socket. What those have received by the kernel until then, and what connections the kernel has, stays so.
//!
//! The child of a fork asks its parent first. That one gives its interfaces up if it has nothing there: no connection, no UDP socket, and no listener but those that it
//! does not wait at. Else they stay its own until it ends.

use core::time::Duration;

use ringway_devices::{Dialogue, MemberRef, Ring};
use ringway_host::Blocked;
use ringway_stack::Instant;

use super::Interfaces;
use crate::descendants;
use crate::moving::ANSWER;
use crate::process::{self, Offload, Process};
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
    /// Until when a connection counts as a use for them that the kernel has, since they were not there.
    connects_until: Option<Instant>,
    /// Whose child this process is.
    parent: Option<MemberRef>,
}

/// How long a process is one that connects, for which interfaces would be of use.
const CONNECTS_FOR: Duration = Duration::from_secs(10);

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

    /// A connection goes by the kernel that would go by an interface, if that were there: the next one may.
    #[inline]
    pub(crate) fn want_interfaces_to_connect(&mut self) {
        if self.late.are_taken {
            self.late.connects_until = process::process().map(|process| process.now() + CONNECTS_FOR);
            self.want_interfaces();
        }
    }

    fn has_use_for_interfaces(&self, now: Instant) -> bool {
        let has_use = |socket: &Socket| match socket.kind {
            Kind::Listener(_) => socket.waited && !socket.stays_within,
            Kind::Datagram(_) => socket.bound.is_some() && !socket.stays_within && !socket.is_left_by_fork,
            _ => false,
        };
        self.late.connects_until.is_some_and(|until| now < until) || self.sockets.iter().any(|(_, socket)| has_use(socket))
    }

    /// For how long no attempt is due. For the progress thread.
    pub(crate) fn look_after_late_interfaces(&mut self, process: &'static Process, now: Instant) -> Option<Duration> {
        let (at, pause) = self.late.next?;
        if now < at || self.late.has_thread {
            return Some(at.since(now).max(PAUSE_MIN));
        }
        if !self.has_use_for_interfaces(now) {
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
        let own = self.rings.interfaces.and(link_rings.into_iter().collect());
        // (Nobody else is to have them who asks.)
        // (What is lent says by its flow what it is to be given back to: the numbers of those begin anew.)
        if descendants::youngest_child() == 0 || self.loans.lends || !self.are_idle(own) {
            return false;
        }
        let absent: std::io::Result<Vec<_>> = own.iter().map(|ring| Ok((ring, Ring::absent(ring)?))).collect();
        let absent = match absent {
            Ok(absent) => absent,
            Err(error) => {
                tracing::debug!("interfaces are not given up: {error}");
                return false;
            }
        };
        let is_there = |socket: &Socket| !socket.rings().and(own).is_empty();
        let keys: Vec<Key> = self.sockets.iter().filter(|(_, socket)| is_there(socket)).map(|(key, _)| key).collect();
        for key in keys {
            self.close_flows_on(key, own);
            crate::mux::refresh(self, key.index);
        }
        for (number, absent) in absent {
            self.rings.give_up_device(number, absent);
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
            // (A child of fork has no ring on a card, nor on a verbs device.)
            let may_go = own.exempter().is_some() && !own.leaves_at_both_ends() && !own.is_gone() && !watch.is_slept_on();
            may_go && !own.lingering() && own.open_flows().iter().all(is_quiet)
        };
        rings.iter().all(is_idle)
    }

    /// There are more interfaces than before.
    fn have_interfaces(&mut self) {
        if !self.late.are_taken {
            self.late.next = None;
        }
        let keys: Vec<Key> = self.sockets.iter().filter(|(_, socket)| socket.rings() != RingSet::NONE).map(|(key, _)| key).collect();
        for key in keys {
            self.fit_flows(key);
            crate::mux::refresh(self, key.index);
        }
        self.dispatch();
    }
}

/// An attempt is over, however it went.
struct IsOver(&'static Process);

impl Drop for IsOver {
    fn drop(&mut self) {
        let mut guard = self.0.lock();
        guard.late.has_thread = false;
        guard.mux.call_progress();
    }
}

/// The thread's work.
fn attempt(process: &'static Process) {
    let _is_over = IsOver(process);
    let (parent, is_ending) = {
        let offload = process.lock();
        (offload.late.parent, offload.ending)
    };
    if is_ending {
        return;
    }
    if let Some(parent) = parent
        && let Ok(Some(dialogue)) = Dialogue::begin(&parent, ANSWER)
    {
        let _ = dialogue.ask(WORD.as_bytes(), &[], ANSWER);
    }
    let has_more = {
        // (A child of a fork in between would have descriptors, or memory of queues, that nobody has noted yet.)
        let _no_fork = process::INIT.lock();
        Interfaces::attach(process)
    };
    let mut guard = process.lock();
    if has_more && !guard.ending {
        guard.have_interfaces();
    }
}
