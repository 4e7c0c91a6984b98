//! The side that begins: it has the placeholder that others share.

use core::ffi::c_int;
use core::sync::atomic::{AtomicU64, Ordering};
use std::net::SocketAddrV4;

use ringway_shm::{Fd, Talk};
use ringway_stack::offload::Reason;
use ringway_stack::ring::{NextHop, SocketId, SocketInfo};
use ringway_stack::tcp::{self, Remains};

use super::{ANSWER, Move, Role, memfd, pair, peer};
use crate::errno::Errno;
use crate::fdtable::{self, Entry};
use crate::lineage;
use crate::mux;
use crate::process::{Offload, Process};
use crate::real;
use crate::slab::Key;
use crate::socket::accept::SignalsBlocked;
use crate::socket::{Family, Kind, Socket, common};

/// Talks with ourselves, whose both ends a process may have, count down from here.
static OWN_TALKS: AtomicU64 = AtomicU64::new(u64::MAX);

/// One connection's way to the kernel.
struct Job {
    process: &'static Process,
    /// Of our own, for the program may close all of its.
    placeholder: Fd,
    family: Family,
    /// Closed by the program after its reading was shut down.
    ended_reading: bool,
    /// The program knows that it is connected.
    is_told: bool,
    local: SocketAddrV4,
    remote: SocketAddrV4,
    /// Who is at the other end; `None`: nobody any more.
    peer: Option<i32>,
    /// A descriptor that has the connection's own address.
    listener: Option<c_int>,
}

/// Begins to move an open connection; it goes on by itself. `false`: it is none, or cannot be moved.
pub(crate) fn begin(process: &'static Process, offload: &mut Offload, key: Key) -> bool {
    begin_for(process, offload, key, Reason::SharedConnection)
}

/// As [`begin`], for this reason.
pub(crate) fn begin_for(process: &'static Process, offload: &mut Offload, key: Key, reason: Reason) -> bool {
    let Some(socket) = offload.sockets.find(key) else { return false };
    if socket.kind == Kind::Moving {
        return true;
    }
    let (Kind::Stream(id) | Kind::Connecting(id)) = socket.kind else { return false };
    let placeholder = (socket.fd, socket.family, false);
    if !common::own(offload, key) {
        return false;
    }
    let begun = start(process, offload, id, Some(key), placeholder);
    if let Some(moving) = offload.moves.iter_mut().find(|moving| moving.key == Some(key)) {
        moving.reason = reason;
    }
    begun
}

/// In a vfork child, which has its parent's memory and descriptors of its own: the parent is to move a connection, and is waited for.
pub(crate) fn lend(process: &Process, fd: c_int) {
    let Entry::Socket(key) = fdtable::peek(fd) else { return };
    let claimed = {
        let mut guard = process.lock();
        let is_connection = |socket: &&Socket| matches!(socket.kind, Kind::Stream(_) | Kind::Connecting(_));
        let Some(socket) = guard.sockets.find(key).filter(is_connection) else { return };
        // The parent's numbers get a placeholder of its own; the child's do not.
        let claimed = socket.common.and(socket.bound.zip(socket.peer));
        guard.lent.push(key);
        if let Some(progress) = guard.mux.watch.progress {
            ringway_host::sleep::signal(progress);
        }
        claimed
    };
    let started = std::time::Instant::now();
    while matches!(fdtable::peek(fd), Entry::Socket(_) | Entry::Moving(_)) && started.elapsed() < super::PATIENCE {
        super::pause();
    }
    if let Some((local, remote)) = claimed {
        super::heir::claim_moved(process.owner_pid, fd, local, remote);
    }
}

/// Begins to move what vfork children asked for. For the progress thread.
pub(crate) fn begin_lent(process: &'static Process, offload: &mut Offload) {
    for key in core::mem::take(&mut offload.lent) {
        begin(process, offload, key);
    }
}

/// Begins to move a connection whose last descriptor the program is closing. `false`: it must be ended as any other.
pub(crate) fn begin_closed(process: &'static Process, offload: &mut Offload, socket: &Socket, fd: c_int) -> bool {
    let (Kind::Stream(id) | Kind::Connecting(id)) = socket.kind else { return false };
    // (It had to get one of its own before the fork, and could not.)
    if socket.common.is_some() {
        return false;
    }
    start(process, offload, id, None, (fd, socket.family, socket.shut.read))
}

/// The process ends: what a child of its may go on with moves to the kernel.
pub(crate) fn leave_shared(process: &'static Process) {
    if lineage::forks() > 0 {
        all(process, |socket| lineage::shared_since(socket.birth));
    }
    super::retreat::at_end(process);
    await_all(process, Waited::All);
}

/// Begins to move every connection that `which` names, and waits until all of them are the kernel's.
pub(crate) fn all(process: &'static Process, which: impl Fn(&Socket) -> bool) {
    {
        let mut guard = process.lock();
        let offload = &mut *guard;
        let keys: Vec<Key> = offload.sockets.iter().filter(|(_, socket)| which(socket)).map(|(key, _)| key).collect();
        for key in keys {
            begin(process, offload, key);
        }
    }
    await_all(process, Waited::All);
}

/// Which moves are waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waited {
    /// Those that this process began.
    Ours,
    /// Those of peers as well, of which this process has bytes to write.
    All,
}

/// Waits until nothing is on its way.
pub(crate) fn await_all(process: &Process, which: Waited) {
    let started = std::time::Instant::now();
    while started.elapsed() < super::PATIENCE {
        let counts = |moving: &Move| which == Waited::All || matches!(moving.role, Role::Asking | Role::Owner);
        if !process.lock().moves.iter().any(counts) {
            return;
        }
        super::pause();
    }
    tracing::warn!("connections that other processes share could not be moved to the kernel in time");
}

/// Both addresses of a connection of the ring.
fn ends(offload: &Offload, id: SocketId) -> Option<(SocketAddrV4, SocketAddrV4)> {
    let info = offload.ring.info(id)?;
    Some((info.local, info.remote?))
}

/// Starts the job that moves a connection, whose placeholder is a descriptor of this family. `key`: unless the program has closed it,
/// then perhaps after its reading was shut down.
fn start(
    process: &'static Process,
    offload: &mut Offload,
    id: SocketId,
    key: Option<Key>,
    (fd, family, ended_reading): (c_int, Family, bool),
) -> bool {
    if offload.ending {
        return false;
    }
    let Some((local, remote)) = ends(offload, id) else { return false };
    if let Some(known) = offload.moves.iter_mut().find(|moving| moving.is_between(local, remote)) {
        known.key = key;
        return true;
    }
    // SAFETY: plain integers.
    let copy = unsafe { real::fcntl(fd, libc::F_DUPFD_CLOEXEC, 0) };
    let Ok(placeholder) = Fd::new(copy) else { return false };
    let peer = match offload.ring.tcp_hop(id) {
        Some(NextHop::Station(mac)) => process.rendezvous.pid_of(mac),
        _ => None,
    };
    let listener = offload.sockets.iter().find_map(|(_, socket)| {
        let has_it = matches!(socket.kind, Kind::Listener(_)) && socket.bound.is_some_and(|bound| bound.port() == local.port());
        has_it.then_some(socket.fd)
    });
    offload.moves.push(Move { local, remote, key, role: Role::Asking, reason: Reason::SharedConnection, reuse_address: None });
    let is_told = key.and_then(|key| offload.sockets.find(key)).is_none_or(|socket| !matches!(socket.kind, Kind::Connecting(_)));
    let job = Job { process, placeholder, family, ended_reading, is_told, local, remote, peer, listener };
    // No handler of the program's runs on a thread that is not its.
    let _undisturbed = SignalsBlocked::new();
    let started = std::thread::Builder::new().name("ringway-move".to_owned()).spawn(move || crate::boundary!((), job.run()));
    if let Err(error) = started {
        tracing::warn!("a connection that is shared with another process cannot be moved to the kernel: {error}");
        offload.moves.retain(|moving| !moving.is_between(local, remote));
        return false;
    }
    true
}

/// What is owed to the readers of the placeholder, and found no room before they read.
struct Rest {
    /// The placeholder's other side.
    other: Fd,
    bytes: Vec<u8>,
    /// And then a reset, not an end.
    is_reset: bool,
}

impl Rest {
    /// Writes what there is room for; what is left, if anything is.
    fn after(other: Fd, bytes: Vec<u8>, is_reset: bool) -> Result<Option<Self>, Errno> {
        let written = pair::write_some(other.raw(), &bytes)?;
        let rest = bytes[written..].to_vec();
        Ok((!rest.is_empty()).then_some(Self { other, bytes: rest, is_reset }))
    }
}

/// How the peer took it that the connection leaves.
enum Left {
    /// Its end's remains, and the talk in which it waits for the rest.
    Ready(Remains, Conversation),
    /// It had not accepted it yet: its listener will, from the kernel.
    Unaccepted(Remains, Conversation),
    /// There is nobody.
    Nobody,
    /// The peer, or we ourselves on its behalf, moved it first.
    Overtaken,
    /// It is there, and cannot be asked.
    Silent,
}

/// How the peer is asked.
enum Conversation {
    Other(Talk),
    Ourselves(u64),
}

impl Conversation {
    fn ask(&self, process: &'static Process, words: &str, passed: Vec<Fd>) -> Option<(String, Vec<Fd>)> {
        let (words, passed) = match self {
            Self::Ourselves(talk) => peer::answer(process, *talk, process.owner_pid, words, passed),
            Self::Other(talk) => {
                let raw: Vec<i32> = passed.iter().map(Fd::raw).collect();
                let (words, passed) = talk.ask(words.as_bytes(), &raw, ANSWER).ok()?;
                (String::from_utf8(words).ok()?, passed)
            }
        };
        Some((words, passed))
    }

    /// Says no more, which resets a peer that waits for more.
    fn hang_up(self, process: &'static Process) {
        match self {
            Self::Ourselves(talk) => peer::abandoned(process, talk),
            Self::Other(talk) => drop(talk),
        }
    }
}

impl Job {
    fn run(self) {
        let moved = match self.leave() {
            Left::Overtaken => return,
            Left::Nobody => self.go_on_alone(),
            Left::Silent => self.break_off(),
            Left::Unaccepted(theirs, talk) => self.go_to_listener(&theirs, talk),
            Left::Ready(theirs, talk) => self.go_to(&theirs, talk),
        };
        let rest = moved.unwrap_or_else(|error| {
            let (local, remote) = (self.local, self.remote);
            tracing::warn!("the connection {local} - {remote}, shared with another process, is reset: it could not be moved: {error:?}");
            pair::reset(self.placeholder.raw(), self.family, self.local, self.remote);
            None
        });
        self.finish();
        if let Some(rest) = rest {
            self.write_rest(&rest);
        }
    }

    /// Writes what the kernel had no room for before anybody read. The process does not end meanwhile, if that is its choice.
    fn write_rest(&self, rest: &Rest) {
        let (local, remote) = (self.local, self.remote);
        let writing = Move { local, remote, key: None, role: Role::Writing, reason: Reason::SharedConnection, reuse_address: None };
        self.process.lock().moves.push(writing);
        // Who is killed here leaves no stream that seems to end.
        pair::break_off(&rest.other);
        if pair::write_all(rest.other.raw(), &rest.bytes).is_ok() && !rest.is_reset {
            pair::end_in_order(&rest.other);
        }
        self.process.lock().moves.retain(|moving| !(moving.is_between(local, remote) && moving.is_rest()));
    }

    /// Whether the move is still ours: the peer may have begun its own meanwhile.
    fn is_ours(&self, offload: &Offload) -> bool {
        offload.moves.iter().any(|moving| moving.is_between(self.local, self.remote) && moving.role == Role::Asking)
    }

    /// Whether the connection is over: its two ends have nothing to do with each other any more.
    fn is_over(&self, offload: &Offload) -> bool {
        offload.is_over(self.local, self.remote)
    }

    /// Asks the peer to leave the ring, as soon as the handshake is over.
    fn leave(&self) -> Left {
        let started = std::time::Instant::now();
        loop {
            let is_alone;
            {
                let mut guard = self.process.lock();
                let now = self.process.now();
                guard.poll_if_due(now);
                if !self.is_ours(&guard) {
                    return Left::Overtaken;
                }
                is_alone = guard.moves.iter().any(|m| m.is_between(self.local, self.remote) && m.key.is_none());
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
            let talk = match self.peer {
                None => return Left::Nobody,
                Some(pid) if pid == self.process.owner_pid => Conversation::Ourselves(OWN_TALKS.fetch_sub(1, Ordering::Relaxed)),
                Some(pid) => match Talk::begin(pid, ANSWER) {
                    Ok(Some(talk)) => Conversation::Other(talk),
                    Ok(None) => return Left::Nobody,
                    Err(_) if started.elapsed() < super::PATIENCE => {
                        super::pause();
                        continue;
                    }
                    Err(_) => return Left::Silent,
                },
            };
            let alone = if is_alone { peer::ALONE } else { "" };
            let words = format!("leave {} {} {alone}", self.remote, self.local);
            let Some((answer, passed)) = talk.ask(self.process, &words, Vec::new()) else {
                if started.elapsed() < super::PATIENCE {
                    continue;
                }
                return Left::Silent;
            };
            let remains = passed.first().and_then(memfd::to_remains);
            match (answer.as_str(), remains) {
                ("left", Some(remains)) => return Left::Ready(remains, talk),
                ("unaccepted", Some(remains)) => return Left::Unaccepted(remains, talk),
                ("wait", _) => super::pause(),
                _ => return Left::Nobody,
            }
        }
    }

    /// Takes our end off the ring.
    fn dissolve(&self) -> Result<Remains, Errno> {
        let mut guard = self.process.lock();
        let offload = &mut *guard;
        let now = self.process.now();
        offload.poll_if_due(now);
        let remains = offload.ring.dissolve(now, self.local, self.remote);
        let mut key = None;
        for moving in offload.moves.iter_mut().filter(|moving| moving.is_between(self.local, self.remote)) {
            moving.role = Role::Owner;
            key = moving.key;
        }
        if let Some(key) = key {
            offload.on_its_way(key);
        }
        offload.dispatch();
        remains.map_err(Errno::from)
    }

    /// The connection as it goes on: between the placeholder and a descriptor for the peer.
    fn connect(&self) -> Result<Fd, Errno> {
        pair::connect(self.placeholder.raw(), self.family, self.local, self.remote, self.listener, self.is_told)
    }

    fn go_to(&self, theirs: &Remains, talk: Conversation) -> Result<Option<Rest>, Errno> {
        let ours = self.dissolve()?;
        if ours.is_broken() || theirs.is_broken() {
            // It failed while we asked. The peer hears of that by our hanging up.
            talk.hang_up(self.process);
            return self.leave_alone(&ours, false);
        }
        // The peer, which has closed it, may go now.
        let talk = (!theirs.orphaned).then_some(talk);
        let not_ours = Errno(libc::EPROTO);
        let (to_them, to_us) = (ours.owed_to(theirs).ok_or(not_ours)?, theirs.owed_to(&ours).ok_or(not_ours)?);
        let fresh = self.connect()?;
        // First, where there is room: of an end that was shut down altogether, bytes that come later would reset it.
        let written = if theirs.orphaned { 0 } else { pair::write_some(self.placeholder.raw(), &to_them)? };
        let mut rest = None;
        if let Some(talk) = talk {
            let words = format!("take {} {}", self.remote, self.local);
            let passed = vec![fresh, memfd::holding(&[&to_us]).map_err(|_| Errno(libc::EMFILE))?];
            match talk.ask(self.process, &words, passed) {
                Some((answer, _)) if answer == "taken" => {}
                _ => return Err(Errno(libc::ECONNRESET)),
            }
            pair::write_all(self.placeholder.raw(), &to_them[written..])?;
        } else {
            // Nobody there reads any more; what was written there is still due here.
            rest = Rest::after(fresh, to_us, false)?;
        }
        if ours.ended {
            pair::end_writing(self.placeholder.raw());
        }
        Ok(rest)
    }

    fn go_to_listener(&self, theirs: &Remains, talk: Conversation) -> Result<Option<Rest>, Errno> {
        let ours = self.dissolve()?;
        // The peer did not end before: our ring would have seen that.
        drop(talk);
        if ours.is_broken() {
            return self.leave_alone(&ours, false);
        }
        let to_them = ours.owed_to(theirs).ok_or(Errno(libc::EPROTO))?;
        pair::connect_to(self.placeholder.raw(), self.family, self.remote, self.is_told)?;
        pair::write_all(self.placeholder.raw(), &to_them)?;
        if ours.ended {
            pair::end_writing(self.placeholder.raw());
        }
        Ok(None)
    }

    /// The peer is there and says nothing: it is to see a reset, and not wait for somebody who is gone.
    fn break_off(&self) -> Result<Option<Rest>, Errno> {
        let mut guard = self.process.lock();
        let offload = &mut *guard;
        let is_it = |id: &SocketId| ends(offload, *id) == Some((self.local, self.remote));
        if let Some(id) = offload.ring.sockets().into_iter().find(is_it) {
            offload.ring.close(self.process.now(), id, true);
            offload.dispatch();
        }
        Err(Errno(libc::ETIMEDOUT))
    }

    /// The peer is gone: what it sent is there to be read, and then its end, or its reset.
    fn go_on_alone(&self) -> Result<Option<Rest>, Errno> {
        let was_over = self.is_over(&self.process.lock());
        let ours = self.dissolve()?;
        self.leave_alone(&ours, was_over)
    }

    /// As [`Self::go_on_alone`], with what our end left. `was_over`: the program may know that.
    fn leave_alone(&self, ours: &Remains, was_over: bool) -> Result<Option<Rest>, Errno> {
        let ended = ours.ended || ours.over;
        let fresh = self.connect()?;
        let written = pair::write_some(fresh.raw(), &ours.unread)?;
        if written < ours.unread.len() {
            if ended {
                pair::end_writing(self.placeholder.raw());
            }
            let is_reset = !ours.peer_ended || ours.error.is_some();
            return Ok(Some(Rest { other: fresh, bytes: ours.unread[written..].to_vec(), is_reset }));
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
        if self.ended_reading {
            pair::end_reading(self.placeholder.raw());
        }
        if let Some(key) = moving.key {
            offload.arrived(key, moving.reason);
        }
    }
}

impl Offload {
    /// Whether a connection of the ring's ended, or was reset, on both sides.
    pub(super) fn is_over(&self, local: SocketAddrV4, remote: SocketAddrV4) -> bool {
        let of = |socket: &Socket| socket.ring_id().and_then(|id| self.ring.info(id));
        let is_it = |info: &SocketInfo| (info.local, info.remote) == (local, Some(remote));
        self.sockets.iter().filter_map(|(_, socket)| of(socket)).any(|info| is_it(&info) && info.state == Some(tcp::State::Closed))
    }

    /// Whether the connection's handshake is under way here.
    fn handshakes(&self, local: SocketAddrV4, remote: SocketAddrV4) -> bool {
        let of = |socket: &Socket| socket.ring_id().and_then(|id| self.ring.info(id));
        self.sockets.iter().filter_map(|(_, socket)| of(socket)).any(|info| {
            (info.local, info.remote) == (local, Some(remote)) && matches!(info.state, Some(tcp::State::SynSent | tcp::State::SynReceived))
        })
    }

    /// A socket's connection has left the ring, and is not the kernel's yet: calls wait.
    pub(super) fn on_its_way(&mut self, key: Key) {
        let Some(socket) = self.sockets.find_mut(key) else { return };
        if let Some(id) = socket.ring_id()
            && let Some(info) = self.ring.info(id)
        {
            self.closed.rx_bytes += info.counters.rx_bytes;
            self.closed.tx_bytes += info.counters.tx_bytes;
        }
        socket.kind = Kind::Moving;
        for (fd, entry) in fdtable::entries().filter(|(_, entry)| entry.socket() == Some(key)) {
            fdtable::change_if(fd, entry, Entry::Moving(key));
        }
        mux::refresh(self, key.index);
    }

    /// A socket's connection is the kernel's.
    pub(super) fn arrived(&mut self, key: Key, reason: Reason) {
        let Some(socket) = self.sockets.find_mut(key) else { return };
        socket.moved = true;
        if socket.shut.read {
            pair::end_reading(socket.fd);
        }
        self.leave_to_kernel(key, "move", reason);
        tracing::info!("a connection moved to the kernel ({reason}): {}", reason.advice());
    }

    /// Every descriptor of a socket.
    pub(crate) fn descriptors(&self, key: Key) -> Vec<c_int> {
        fdtable::entries().filter(|(_, entry)| entry.socket() == Some(key)).map(|(fd, _)| fd).collect()
    }
}
