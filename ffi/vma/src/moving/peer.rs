//! The side that is asked: by a child that wants what it inherited, or by the owner of a connection's other end.

use std::net::SocketAddr;
use std::sync::Arc;

use ringway_devices::{DialogueHandler, Fd};
use ringway_host::Blocked;
use ringway_stack::Error;
use ringway_stack::offload::Reason;
use ringway_stack::ring::{FlowId, NextHop};

use super::backlog::{self, Backlog, Taken};
use super::giving_up::File;
use super::{FormerDescriptor, Move, Role, addresses, awaiting_child, follow, memfd, owner, pair, retreat};
use crate::capture;
use crate::descendants;
use crate::fdtable;
use crate::fork::sharing;
use crate::interfaces::late;
use crate::process::{Offload, Process};
use crate::slab::Key;
use crate::socket::{Family, Kind, Socket, address};

/// Answers for a process.
pub(super) struct Answers {
    pub(super) process: &'static Process,
    /// Which of its members is talked to.
    pub(super) member: u64,
}

impl DialogueHandler for Answers {
    fn asked(&self, dialogue: u64, from: &[u64], words: &[u8], passed: Vec<Fd>) -> (Vec<u8>, Vec<Fd>) {
        let words = String::from_utf8_lossy(words);
        let (answer, with) = crate::boundary!((String::new(), Vec::new()), {
            match *words.split_ascii_whitespace().collect::<Vec<_>>() {
                ["capture", ref what @ ..] => capture::asked(self.process, (self.member, dialogue), what),
                _ => answer(self.process, dialogue, from, &words, passed),
            }
        });
        (answer.into_bytes(), with)
    }

    fn hung_up(&self, dialogue: u64) {
        let process = self.process;
        crate::boundary!((), capture::hung_up(process, (self.member, dialogue)));
        crate::boundary!((), abandoned(process, dialogue));
        crate::boundary!((), awaiting_child::hung_up(process, &mut process.lock(), dialogue));
    }
}

/// Answers some words of a process that these peers are, if it is any.
pub(super) fn answer(process: &'static Process, dialogue: u64, from: &[u64], words: &str, passed: Vec<Fd>) -> (String, Vec<Fd>) {
    let mut parts = words.split_ascii_whitespace();
    let verb = parts.next().unwrap_or("");
    if verb == "share" {
        let local = parts.next().and_then(|local| local.parse().ok());
        let mut offload = process.lock();
        let listener = offload.sockets.iter().find(|(_, s)| matches!(s.kind, Kind::Listener(_)) && s.bound == local);
        if let Some(key) = listener.map(|(key, _)| key) {
            retreat::share(&mut offload, key);
        }
        return ("done".to_owned(), Vec::new());
    }
    if verb == late::WORD {
        let is_given_up = process.lock().give_up_idle_interfaces();
        return (if is_given_up { "done" } else { "no" }.to_owned(), Vec::new());
    }
    if verb == "forked" {
        if let Some(reading) = passed.first().filter(|reading| pair::is_pipe(reading.raw())) {
            let mut guard = process.lock();
            keep_for_child(&mut guard);
            descendants::announced(reading.raw());
            sharing::begin(&mut guard, process.now());
        }
        return ("done".to_owned(), Vec::new());
    }
    let Some((local, remote)) = addresses(&mut parts) else {
        tracing::debug!(?from, "words that mean nothing: {words}");
        return ("gone".to_owned(), Vec::new());
    };
    if verb == "keep" {
        return (keep(process, dialogue, (local, remote), passed).to_owned(), Vec::new());
    }
    let mut guard = process.lock();
    let offload = &mut *guard;
    let (answer, with) = match verb {
        "release" => release(process, offload, local, remote),
        "leave" => {
            let reason = parts.next().and_then(Reason::from_name).unwrap_or(Reason::SharedConnection);
            leave(process, offload, Asker { dialogue, members: from, is_alone: parts.next() == Some(ALONE), reason }, local, remote)
        }
        "adopt" => return (awaiting_child::offer(process, offload, (local, remote)), Vec::new()),
        "give" => {
            let given = awaiting_child::give(process, offload, dialogue, (local, remote));
            (if given.is_some() { "given" } else { "no" }, given)
        }
        "follow" => {
            let member = parts.next().and_then(|member| u64::from_str_radix(member, 16).ok());
            let answer = member.map(|member| follow::follow(process, offload, from, (local, remote), member));
            return (answer.unwrap_or_else(|| "no".to_owned()), Vec::new());
        }
        "handover" => match parts.next().and_then(|member| u64::from_str_radix(member, 16).ok()) {
            Some(member) => (awaiting_child::hand_over(process, offload, dialogue, (local, remote), member), None),
            None => ("no", None),
        },
        "take" => (take(process, offload, dialogue, (local, remote), passed), None),
        _ => ("gone", None),
    };
    (answer.to_owned(), with.into_iter().collect())
}

/// The socket of a connection, whatever carries it.
pub(super) fn socket_between(offload: &Offload, local: SocketAddr, remote: SocketAddr) -> Option<Key> {
    offload.sockets.iter().find(|(_, socket)| (socket.bound, socket.peer) == (Some(local), Some(remote))).map(|(key, _)| key)
}

/// The word by which an owner says that its own program has closed the connection.
pub(super) const ALONE: &str = "alone";

/// Dialogues with ourselves, whose both ends a process may have, are numbered from the end. (Nobody hangs up in one.)
pub(super) const OWN_DIALOGUES: core::ops::RangeInclusive<u64> = u64::MAX / 2..=u64::MAX;

/// Who takes the connection to the kernel.
struct Asker<'a> {
    dialogue: u64,
    /// The peers that it is, as the kernel vouches for it.
    members: &'a [u64],
    is_alone: bool,
    /// Why it does.
    reason: Reason,
}

/// A child wants to use what it inherited from us.
fn release(process: &'static Process, offload: &mut Offload, local: SocketAddr, remote: SocketAddr) -> (&'static str, Option<Fd>) {
    if offload.moves.iter().any(|moving| moving.is_between(local, remote)) || awaiting_child::release(process, offload, (local, remote)) {
        return ("wait", None);
    }
    if let Some(at) = offload.former_descriptors.iter().position(|former| (former.local, former.remote) == (local, remote)) {
        if offload.former_descriptors[at].is_early
            && let Some(key) = socket_between(offload, local, remote)
            && owner::begin(process, offload, key)
        {
            return ("wait", None);
        }
        let former = &offload.former_descriptors[at];
        let copy = copy_of(former.fd.raw());
        // The last that can ask for it has it now, and is to be the last that closes it.
        if descendants::children_since(former.birth) <= 1 {
            offload.former_descriptors.swap_remove(at);
        }
        return copy.map_or(("gone", None), |copy| ("here", Some(copy)));
    }
    let Some(key) = socket_between(offload, local, remote) else { return ("gone", None) };
    if owner::begin(process, offload, key) {
        return ("wait", None);
    }
    match offload.sockets.find(key) {
        // Moved by the peer, so that its descriptor is another one than the child's.
        Some(socket) if socket.moved => copy_of(socket.fd).map_or(("gone", None), |copy| ("here", Some(copy))),
        Some(socket) if matches!(socket.kind, Kind::Stream(_) | Kind::Connecting(_)) && !offload.is_over(local, remote) => ("stays", None),
        _ => ("gone", None),
    }
}

/// A child has come from a fork before which connections got no placeholders of their own: it is to have them when it asks.
fn keep_for_child(offload: &mut Offload) {
    let common: Vec<Key> = offload.sockets.iter().filter(|(_, socket)| socket.common.is_some()).map(|(key, _)| key).collect();
    for key in common {
        if crate::socket::common::own(offload, key)
            && let Some(socket) = offload.sockets.find(key)
            && let (Some(local), Some(remote), Some(fd)) = (socket.bound, socket.peer, copy_of(socket.fd))
        {
            let birth = socket.birth;
            offload.former_descriptors.push(FormerDescriptor { local, remote, fd, birth, is_early: true });
            offload.mux.call_progress();
        }
    }
}

/// Another descriptor of a program's file, for the library.
pub(crate) fn copy_of(fd: i32) -> Option<Fd> {
    let copy = |least| {
        // SAFETY: plain integers.
        let copy = unsafe { crate::real::fcntl(fd, libc::F_DUPFD_CLOEXEC, least) };
        if copy < 0 { Err(std::io::Error::last_os_error()) } else { Ok(copy) }
    };
    Fd::make(|| copy(descendants::HIGH).or_else(|_| copy(0))).ok()
}

/// The other end's owner takes the connection to the kernel.
fn leave(
    process: &'static Process,
    offload: &mut Offload,
    asker: Asker<'_>,
    local: SocketAddr,
    remote: SocketAddr,
) -> (&'static str, Option<Fd>) {
    offload.poll_if_due(process.now());
    // The peer follows the connection to us before we know that it does: there is no socket yet that could take its descriptor.
    if offload.adopting == Some((local, remote)) {
        return ("wait", None);
    }
    if offload.is_over(local, remote) {
        return ("gone", None);
    }
    let begun = offload.moves.iter().position(|moving| moving.is_between(local, remote));
    let flow = flow_between(offload, begun.and_then(|at| offload.moves[at].key), (local, remote));
    let (own, theirs) = members_of(process, offload, flow);
    // Only who is at the other end may take a connection along.
    if theirs.is_some_and(|theirs| !asker.members.contains(&theirs)) {
        return ("gone", None);
    }
    let mut key = None;
    if let Some(at) = begun {
        // Both ends have begun: one gives way, and both must agree which. Not one whose program has closed it, for then nobody could take
        // the other's descriptor, and only those who share its own have it.
        let gives_way = match (asker.is_alone, offload.moves[at].key.is_none()) {
            (true, false) => true,
            (false, true) => false,
            _ => Some(own) >= theirs,
        };
        if offload.moves[at].role != Role::Asking || !gives_way {
            return ("wait", None);
        }
        key = offload.moves.swap_remove(at).key;
    }
    // What is kept for a child is for its owner to move, who has the child's descriptor.
    if awaiting_child::release(process, offload, (local, remote)) {
        return ("wait", None);
    }
    let now = process.now();
    offload.poll_if_due(now);
    if let Some(key) = key.or_else(|| socket_between(offload, local, remote)) {
        // (Not without descriptors: they may come.)
        if !crate::socket::common::own(offload, key) {
            return ("wait", None);
        }
    }
    let undelivered = match offload.rings.end_silently(now, local, remote) {
        Ok(undelivered) => undelivered,
        Err(Error::NotConnected) => return ("wait", None),
        Err(_) => return ("gone", None),
    };
    let key = key.or_else(|| socket_between(offload, local, remote));
    let file = memfd::of_undelivered(&undelivered).ok();
    let is_open = |key: &Key| offload.sockets.find(*key).is_some_and(|s| matches!(s.kind, Kind::Stream(_) | Kind::Connecting(_)));
    // (A process that ends has closed it, and the asker has all that is left of it.)
    if let Some(key) = key.filter(is_open).filter(|_| !offload.ending) {
        let reuse_address = offload.sockets.find(key).and_then(|socket| pair::share_address(socket.fd));
        offload.on_its_way(key);
        let (role, reason) = (Role::Peer(asker.dialogue), asker.reason);
        offload.moves.push(Move { local, remote, key: Some(key), role, file: None, reason, reuse_address });
    } else if !OWN_DIALOGUES.contains(&asker.dialogue) {
        // Until the asker has left its ring as well, which it tells by hanging up: it must not see this process end before.
        let (role, reason) = (Role::Peer(asker.dialogue), asker.reason);
        offload.moves.push(Move { local, remote, key: None, role, file: None, reason, reuse_address: None });
    }
    offload.dispatch();
    if !undelivered.accepted {
        super::note_unaccepted(offload, remote, asker.reason);
    }
    (if undelivered.accepted { "left" } else { "unaccepted" }, file)
}

/// A connection that is on one of our rings. `key`: its socket, if that is known already.
fn flow_between(offload: &Offload, key: Option<Key>, ends: (SocketAddr, SocketAddr)) -> Option<FlowId> {
    let socket = key.or_else(|| socket_between(offload, ends.0, ends.1)).and_then(|key| offload.sockets.find(key));
    let closed = || offload.rings.lingering_streams().find(|&id| owner::ends(offload, id) == Some(ends));
    socket.and_then(Socket::ring_id).or_else(closed)
}

/// As which members we have a connection, and who is at its other end.
fn members_of(process: &Process, offload: &Offload, flow: Option<FlowId>) -> (u64, Option<u64>) {
    let Some(flow) = flow else { return (process.rendezvous().member_ref().id(), None) };
    let rendezvous = process.rendezvous_of(flow);
    let theirs = match offload.rings.of(flow).tcp_hop(flow) {
        Some(NextHop::Mac(mac)) => rendezvous.member_at(mac).map(|member| member.id()),
        _ => None,
    };
    (rendezvous.member_ref().id(), theirs)
}

/// The descriptor that goes on in place of the ring's connection, and what is to be written into it first.
fn take(process: &'static Process, offload: &mut Offload, dialogue: u64, ends: (SocketAddr, SocketAddr), passed: Vec<Fd>) -> &'static str {
    let mine = |moving: &Move| moving.is_between(ends.0, ends.1) && moving.role == Role::Peer(dialogue);
    let Some(at) = offload.moves.iter().position(mine) else { return "gone" };
    let Ok([fresh, file]) = <[Fd; 2]>::try_from(passed) else { return "gone" };
    let (Some(key), Ok(owed)) = (offload.moves[at].key, memfd::read(&file)) else { return "gone" };
    let is_stream = pair::stream_family(fresh.raw()).is_some();
    let Some([fresh, _file]) = is_stream.then(|| recognised([fresh, file])).flatten() else { return "gone" };
    let descriptors = offload.descriptors(key);
    // (One that is being closed is in no table any more; children may have it.)
    let closing = || offload.sockets.find(key).map(|socket| socket.fd).filter(|&fd| !fdtable::is_stale_now(fd));
    if let Some(fd) = descriptors.first().copied().or_else(closing) {
        pair::copy_options(fd, &fresh);
    }
    if descriptors.into_iter().any(|fd| pair::replace(fd, &fresh).is_err()) {
        return "gone";
    }
    if let Some(value) = offload.moves[at].reuse_address {
        pair::set_reuse_address(&fresh, value);
    }
    let socket = offload.sockets.find(key);
    let (ended, birth) = (socket.is_some_and(|socket| socket.shut.write), socket.map_or(0, |socket| socket.birth));
    let family = socket.map_or(Family::of(ends.0), |socket| socket.family);
    if !OWN_DIALOGUES.contains(&dialogue) {
        offload.taken.retain(|taken| taken.dialogue != dialogue);
        offload.taken.push(Taken { dialogue, local: ends.0, remote: ends.1, birth });
    }
    // What fails here fails for the program too, with its next call.
    let written = pair::write_some(fresh.raw(), &owed).unwrap_or(owed.len());
    if written < owed.len() {
        // More than the kernel keeps for a reader that is slow: whoever writes next must come after it.
        // The owner's part is done, and so may its life be.
        let file = Arc::new(File::new(fresh));
        let moving = &mut offload.moves[at];
        (moving.role, moving.file) = (Role::Writing, Some(Arc::clone(&file)));
        let writing = move || {
            let _ = pair::write_all(file.raw(), &owed[written..]);
            if file.is_given_up() {
                pair::reset(file.raw(), family, ends.0, ends.1);
            }
            let mut offload = process.lock();
            arrive(&mut offload, key, ended, &file.fd);
        };
        let _undisturbed = Blocked::new();
        if std::thread::Builder::new().name("ringway-owed".to_owned()).spawn(writing).is_err() {
            abandon(offload, at);
        }
        return "taken";
    }
    arrive(offload, key, ended, &fresh);
    "taken"
}

/// What was passed is what it was to be. (What is not, is closed by a thread that nobody waits for: it might take long.)
fn recognised(passed: [Fd; 2]) -> Option<[Fd; 2]> {
    let [first, second] = passed.map(Fd::recognised);
    Some([first.ok()?, second.ok()?])
}

/// The other end's process ends, and leaves us what the kernel has no room for before our program reads: its own descriptor, and what is to
/// be written into that before the end.
fn keep(process: &'static Process, dialogue: u64, (local, remote): (SocketAddr, SocketAddr), passed: Vec<Fd>) -> &'static str {
    let mut passed = passed.into_iter();
    let (Some(other), Some(file), until) = (passed.next(), passed.next(), passed.next()) else { return "gone" };
    let Some(len) = memfd::len(&file).ok().and_then(|len| usize::try_from(len).ok()) else { return "gone" };
    let is_ours =
        |offload: &Offload| offload.backlogs.has_room(len).then(|| birth_of_reader(offload, dialogue, local, remote, &other)).flatten();
    if is_ours(&process.lock()).is_none() {
        tracing::debug!("the rest of a connection {local} - {remote}, of {len} bytes, is not kept");
        return "gone";
    }
    // (Which takes its time: not under the lock.)
    let Ok(bytes) = memfd::read_up_to(&file, len as u64) else { return "gone" };
    let mut guard = process.lock();
    let Some(birth) = is_ours(&guard) else { return "gone" };
    let Some([other, _file]) = recognised([other, file]) else { return "gone" };
    let until = until.and_then(|until| until.recognised().ok());
    let rest = Backlog { other, bytes, written: 0, is_reset: false, until, birth: Some(birth) };
    if backlog::add(process, &mut guard, rest) { "kept" } else { "gone" }
}

/// Forks before the socket was made whose connection another process leaves a rest of. `None`: it has nothing to do with that.
fn birth_of_reader(offload: &Offload, dialogue: u64, local: SocketAddr, remote: SocketAddr, other: &Fd) -> Option<u32> {
    let family = pair::stream_family(other.raw())?;
    let taken = offload.taken.iter().find(|taken| (taken.dialogue, taken.local, taken.remote) == (dialogue, local, remote));
    if let Some(taken) = taken {
        return Some(taken.birth);
    }
    // Nobody had accepted it, and so it is connected to our listener, in the kernel.
    if address::of_peer(other.raw(), family) != Some(local) {
        return None;
    }
    let has_it = |bound: SocketAddr| bound.port() == local.port() && (bound.ip().is_unspecified() || bound.ip() == local.ip());
    let listens = |socket: &Socket| matches!(socket.kind, Kind::Listener(_)) && socket.bound.is_some_and(has_it);
    let accepted = socket_between(offload, local, remote).and_then(|key| offload.sockets.find(key));
    let reader = accepted.or_else(|| offload.sockets.iter().map(|(_, socket)| socket).find(|socket| listens(socket)));
    Some(reader?.birth)
}

fn arrive(offload: &mut Offload, key: Key, ended: bool, fresh: &Fd) {
    if ended {
        pair::end_writing(fresh.raw());
    }
    let reason = offload.moves.iter().find(|moving| moving.key == Some(key)).map_or(Reason::SharedConnection, |moving| moving.reason);
    offload.moves.retain(|moving| moving.key != Some(key));
    if let Some(socket) = offload.sockets.find(key)
        && descendants::shared_since(socket.birth)
        && let (Some(local), Some(remote), Some(fd)) = (socket.bound, socket.peer, copy_of(fresh.raw()))
    {
        let birth = socket.birth;
        offload.former_descriptors.retain(|former| (former.local, former.remote) != (local, remote));
        offload.former_descriptors.push(FormerDescriptor { local, remote, fd, birth, is_early: false });
        offload.mux.call_progress();
    }
    offload.arrived(key, reason);
}

/// The other end's owner is gone in the middle of it.
pub(super) fn abandoned(process: &Process, dialogue: u64) {
    let mut guard = process.lock();
    let offload = &mut *guard;
    offload.taken.retain(|taken| taken.dialogue != dialogue);
    let Some(at) = offload.moves.iter().position(|moving| moving.role == Role::Peer(dialogue)) else { return };
    abandon(offload, at);
}

/// Ends a move of ours as a reset.
pub(super) fn abandon(offload: &mut Offload, at: usize) {
    let moving = offload.moves.swap_remove(at);
    let Some(key) = moving.key else { return };
    if let Some(socket) = offload.sockets.find(key) {
        pair::reset(socket.fd, socket.family, moving.local, moving.remote);
    }
    offload.arrived(key, moving.reason);
}
