//! Connections that change owner, as the parent of a fork goes that has them.
//!
//! A parent that closes a connection while one child has it, and nobody else, leaves it to that child: it keeps the connection on its ring,
//! acknowledging what comes, until the child asks for it. Then it writes the connection down, the child takes it onto a ring of its own
//! ([`super::adoption`]), and the peer is told where to send ([`super::follow`]). Only then does the parent forget it: as long as the peer has not
//! been told, it refuses whatever the child sends, and the parent can take back what it gave.
//!
//! A child that has not asked in a while may not have been forked for the connection, or may be busy; and one may stop while it takes it: then
//! the connection moves to the kernel.

use core::time::Duration;
use std::io;
use std::net::SocketAddr;

use ringway_devices::{Dialogue, Fd, Handover, MemberRef};
use ringway_host::Blocked;
use ringway_stack::Instant;
use ringway_stack::ring::{FlowId, NextHop};
use ringway_stack::tcp::State;

use super::{ANSWER, follow, memfd, owner, peer};
use crate::descendants;
use crate::process::{Offload, Process};
use crate::socket::{Family, Kind, Shut, Socket};

/// So many wait at a time: each has a descriptor.
const AWAITING_CHILD_MAX: usize = 64;

/// Of a peer that has sent more than that, more is likely to come, and it may end before the child reads: then the kernel has it sooner.
const UNREAD_MAX: usize = 64 << 10;

/// How long one waits for its child.
const PROMPT: Duration = Duration::from_secs(1);

/// How long the child may take to have it on its ring.
const TAKING: Duration = ANSWER;

/// A connection that is its child's to take.
#[derive(Debug)]
pub(crate) struct AwaitingChild {
    local: SocketAddr,
    remote: SocketAddr,
    /// The ring that it is, or was, on.
    ring: u16,
    /// The fork whose child has it.
    child: u32,
    placeholder: Fd,
    family: Family,
    since: Instant,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    /// It is on our ring.
    Waiting(FlowId),
    /// The child has taken a copy, in this dialogue.
    Given(u64, Handover),
    /// The peer is being told. No dialogue: the child has hung up meanwhile.
    Telling(Option<u64>, Handover),
    /// It is the child's, who is to hear of that in this dialogue.
    Gone(u64),
}

/// How the peer took it.
enum Told {
    Follows,
    /// It goes on with us, or is gone.
    Refuses,
    /// It may have heard, or may yet hear, and follow.
    Unknown,
}

impl AwaitingChild {
    fn is_between(&self, ends: (SocketAddr, SocketAddr)) -> bool {
        (self.local, self.remote) == ends
    }

    const fn dialogue(&self) -> Option<u64> {
        match self.stage {
            Stage::Given(dialogue, _) | Stage::Gone(dialogue) | Stage::Telling(Some(dialogue), _) => Some(dialogue),
            Stage::Waiting(_) | Stage::Telling(None, _) => None,
        }
    }
}

fn position(offload: &Offload, ends: (SocketAddr, SocketAddr)) -> Option<usize> {
    offload.awaiting_child.iter().position(|awaiting_child| awaiting_child.is_between(ends))
}

/// Whether some are in the middle of their way to their children.
pub(super) fn are_on_their_way(offload: &Offload) -> bool {
    offload.awaiting_child.iter().any(|awaiting_child| matches!(awaiting_child.stage, Stage::Given(..) | Stage::Telling(..)))
}

/// The program closes the last descriptor, `fd`, of a connection: it is kept for a child that is the only one to have it. `false`: there
/// is none, or it could not take it.
pub(crate) fn keep(process: &Process, offload: &mut Offload, socket: &Socket, fd: i32) -> bool {
    let Kind::Stream(id) = socket.kind else { return false };
    let Some(child) = descendants::sole_child_since(socket.birth) else { return false };
    let is_plain = socket.shut == Shut::default() && socket.common.is_none() && socket.rare.is_none() && !offload.is_heard();
    let Some(info) = offload.rings.of(id).info(id) else { return false };
    let is_open = matches!(info.state, Some(State::Established | State::CloseWait)) && info.recv_queue <= UNREAD_MAX;
    let Some(remote) = info.remote.filter(|_| is_plain && is_open && !offload.ending && offload.awaiting_child.len() < AWAITING_CHILD_MAX)
    else {
        return false;
    };
    if peer_of(process, offload, id).is_none() {
        return false;
    }
    let Some(placeholder) = peer::copy_of(fd) else { return false };
    offload.closed.rx_bytes += info.counters.rx_bytes;
    offload.closed.tx_bytes += info.counters.tx_bytes;
    offload.closed.offloaded += 1;
    let (local, family, since) = (info.local, socket.family, process.now());
    offload.awaiting_child.push(AwaitingChild {
        local,
        remote,
        ring: id.ring,
        child,
        placeholder,
        family,
        since,
        stage: Stage::Waiting(id),
    });
    offload.mux.call_progress();
    true
}

/// Who is at the other end, if it is another process, and lives.
fn peer_of(process: &Process, offload: &Offload, id: FlowId) -> Option<MemberRef> {
    let Some(NextHop::Mac(mac)) = offload.rings.of(id).tcp_hop(id) else { return None };
    process.rendezvous_of(id).member_at(mac).filter(|member| !process.is_own(member))
}

/// Whether a connection is between us and a child: on nobody's ring, as far as its peer is concerned.
pub(super) fn is_given(offload: &Offload, ends: (SocketAddr, SocketAddr)) -> bool {
    position(offload, ends).is_some_and(|at| !matches!(offload.awaiting_child[at].stage, Stage::Gone(_)))
}

/// The child asks whether it can have a connection.
pub(super) fn offer(process: &Process, offload: &Offload, ends: (SocketAddr, SocketAddr)) -> String {
    let Some(at) = position(offload, ends) else {
        let socket = peer::socket_between(offload, ends.0, ends.1).and_then(|key| offload.sockets.find(key));
        return if socket.is_some_and(|socket| matches!(socket.kind, Kind::Stream(_))) { "open" } else { "no" }.to_owned();
    };
    match offload.awaiting_child[at].stage {
        Stage::Waiting(id) => peer_of(process, offload, id).map_or_else(|| "no".to_owned(), |peer| format!("meet {:016x}", peer.id())),
        _ => "no".to_owned(),
    }
}

/// The child, which knows the peer now, takes it. `None`: it cannot be had.
pub(super) fn give(process: &'static Process, offload: &mut Offload, dialogue: u64, ends: (SocketAddr, SocketAddr)) -> Option<Fd> {
    let at = position(offload, ends)?;
    let Stage::Waiting(id) = offload.awaiting_child[at].stage else { return None };
    let now = process.now();
    offload.poll_if_due(now);
    let handover = offload.rings.of_mut(id).detach_stream(now, id).ok()?;
    let written = handover.snapshot().and_then(|bytes| memfd::holding(&[&bytes]).ok());
    (offload.awaiting_child[at].stage, offload.awaiting_child[at].since) = (Stage::Given(dialogue, handover), now);
    if written.is_none() {
        take_back(process, offload, at);
    }
    written
}

/// The child has taken it, as this member: the peer is to follow it. The answer: `wait`, `yours`, or `back`, if it is not the child's after all.
pub(super) fn hand_over(
    process: &'static Process,
    offload: &mut Offload,
    dialogue: u64,
    ends: (SocketAddr, SocketAddr),
    child: u64,
) -> &'static str {
    let Some(at) = position(offload, ends).filter(|&at| offload.awaiting_child[at].dialogue() == Some(dialogue)) else { return "back" };
    let member = match &offload.awaiting_child[at].stage {
        Stage::Telling(..) => return "wait",
        Stage::Gone(_) => return "yours",
        Stage::Waiting(_) => return "back",
        Stage::Given(_, handover) => member_of(process, offload.awaiting_child[at].ring, handover),
    };
    // No handler of the program's runs on a thread that is not its.
    let _undisturbed = Blocked::new();
    let started = member.is_some_and(|member| {
        let tell = move || crate::boundary!((), tell(process, &member, ends, child));
        std::thread::Builder::new().name("ringway-child".to_owned()).spawn(tell).is_ok()
    });
    if !started {
        take_back(process, offload, at);
        return "back";
    }
    let awaiting_child = &mut offload.awaiting_child[at];
    if let Stage::Given(dialogue, handover) = core::mem::replace(&mut awaiting_child.stage, Stage::Gone(dialogue)) {
        awaiting_child.stage = Stage::Telling(Some(dialogue), handover);
    }
    "wait"
}

fn member_of(process: &Process, ring: u16, handover: &Handover) -> Option<MemberRef> {
    let NextHop::Mac(mac) = handover.hop() else { return None };
    process.rendezvous_at(ring).member_at(mac)
}

/// Tells the peer; a thread's work.
fn tell(process: &'static Process, member: &MemberRef, ends: (SocketAddr, SocketAddr), child: u64) {
    let words = format!("follow {} {} {child:016x}", ends.1, ends.0);
    let told = match Dialogue::begin(member, ANSWER) {
        Ok(Some(dialogue)) => match dialogue.ask(words.as_bytes(), &[], ANSWER) {
            Ok((answer, _)) if follow::is_followed(&answer) => Told::Follows,
            Ok(_) => Told::Refuses,
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Told::Refuses,
            Err(_) => Told::Unknown,
        },
        Ok(None) | Err(_) => Told::Refuses,
    };
    let mut guard = process.lock();
    let offload = &mut *guard;
    let Some(at) = position(offload, ends) else { return };
    match told {
        Told::Refuses => take_back(process, offload, at),
        Told::Follows => match offload.awaiting_child[at].dialogue() {
            Some(dialogue) => offload.awaiting_child[at].stage = Stage::Gone(dialogue),
            None => drop(offload.awaiting_child.swap_remove(at)),
        },
        // Both ends see a reset, whichever of them the peer is with.
        Told::Unknown => {
            if let AwaitingChild { ring, stage: Stage::Telling(_, handover), .. } = offload.awaiting_child.swap_remove(at)
                && let Ok(id) = offload.rings.at_mut(ring).ring.adopt(process.now(), handover)
            {
                offload.rings.of_mut(id).close(process.now(), id, true);
                offload.dispatch();
            }
        }
    }
}

/// What the child does not take, or the peer does not follow, is on our ring again, and moves to the kernel for whoever has it.
fn take_back(process: &'static Process, offload: &mut Offload, at: usize) {
    let mut awaiting_child = offload.awaiting_child.swap_remove(at);
    let (Stage::Given(_, handover) | Stage::Telling(_, handover)) = awaiting_child.stage else { return };
    match offload.rings.at_mut(awaiting_child.ring).ring.adopt(process.now(), handover) {
        Ok(id) => {
            awaiting_child.stage = Stage::Waiting(id);
            leave(process, offload, awaiting_child);
        }
        Err((error, handover)) => {
            let (local, remote) = (handover.local(), handover.remote());
            tracing::warn!("the connection {local} - {remote} is lost on its way to a child: {error}");
        }
    }
}

/// A connection is the kernel's to carry on, or ends if nobody has it.
fn leave(process: &'static Process, offload: &mut Offload, awaiting_child: AwaitingChild) {
    let Stage::Waiting(id) = awaiting_child.stage else { return };
    let is_wanted = descendants::is_alive(awaiting_child.child);
    if is_wanted && owner::begin_kept(process, offload, id, &awaiting_child.placeholder, awaiting_child.family) {
        return;
    }
    offload.catch_up(process.now());
    offload.rings.of_mut(id).close(process.now(), id, false);
    offload.dispatch();
    offload.watch_held(process.now(), id);
}

/// Moves one to the kernel, or lets whoever asks wait until it has gone another way. `false`: there is none.
pub(super) fn release(process: &'static Process, offload: &mut Offload, ends: (SocketAddr, SocketAddr)) -> bool {
    let Some(at) = position(offload, ends).filter(|&at| !matches!(offload.awaiting_child[at].stage, Stage::Gone(_))) else { return false };
    if matches!(offload.awaiting_child[at].stage, Stage::Waiting(_)) {
        let awaiting_child = offload.awaiting_child.swap_remove(at);
        leave(process, offload, awaiting_child);
    }
    true
}

/// All that wait move to the kernel.
pub(super) fn release_all(process: &'static Process, offload: &mut Offload) {
    let waiting = |awaiting_child: &mut AwaitingChild| matches!(awaiting_child.stage, Stage::Waiting(_));
    let all: Vec<AwaitingChild> = offload.awaiting_child.extract_if(.., waiting).collect();
    for awaiting_child in all {
        leave(process, offload, awaiting_child);
    }
}

/// The child has hung up.
pub(super) fn hung_up(process: &'static Process, offload: &mut Offload, dialogue: u64) {
    let Some(at) = offload.awaiting_child.iter().position(|awaiting_child| awaiting_child.dialogue() == Some(dialogue)) else { return };
    match &mut offload.awaiting_child[at].stage {
        Stage::Given(..) => take_back(process, offload, at),
        Stage::Telling(child, _) => *child = None,
        Stage::Gone(_) => drop(offload.awaiting_child.swap_remove(at)),
        Stage::Waiting(_) => {}
    }
}

/// The progress thread's look: those whose children have ended end, and those whose children don't come move to the kernel. Whether some wait.
pub(crate) fn look_after(process: &'static Process, offload: &mut Offload, now: Instant) -> bool {
    if offload.awaiting_child.is_empty() {
        return false;
    }
    let is_stuck =
        |awaiting_child: &AwaitingChild| matches!(awaiting_child.stage, Stage::Given(..)) && now.since(awaiting_child.since) >= TAKING;
    while let Some(at) = offload.awaiting_child.iter().position(is_stuck) {
        take_back(process, offload, at);
    }
    let Offload { awaiting_child, rings, .. } = offload;
    let is_due = |awaiting_child: &mut AwaitingChild| {
        let Stage::Waiting(id) = awaiting_child.stage else { return false };
        let is_full = rings.of(id).info(id).is_none_or(|info| info.recv_queue > UNREAD_MAX);
        is_full || now.since(awaiting_child.since) >= PROMPT || !descendants::is_alive(awaiting_child.child)
    };
    let due: Vec<AwaitingChild> = awaiting_child.extract_if(.., is_due).collect();
    for awaiting_child in due {
        leave(process, offload, awaiting_child);
    }
    !offload.awaiting_child.is_empty()
}
