//! The side that begins: it has the placeholder that others share.

use core::ffi::c_int;
use core::time::Duration;
use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::Arc;

use ringway_devices::Fd;
use ringway_host::Blocked;
use ringway_stack::offload::Reason;
use ringway_stack::ring::{FlowId, FlowInfo, NextHop};
use ringway_stack::tcp;

use super::giving_up::{self, File, await_or_give_up};
use super::job::Job;
use super::{Move, Role, awaiting_child, pair, peer, to_kernel, together};
use crate::descendants;
use crate::exit::{self, Patience};
use crate::fdtable::{self, Entry};
use crate::mux;
use crate::process::{Offload, Process};
use crate::slab::Key;
use crate::socket::{Family, Kind, Socket, common, flows, greeting};

/// At the end of the process, so many connections move at a time: each has a thread.
const LEFT_TO_PEERS_MAX: usize = 64;

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
    // (Nobody is at its other end yet.)
    if greeting::leave(process, offload, key, reason) {
        return false;
    }
    let begun = start(process, offload, id, Some(key), placeholder);
    if let Some(moving) = offload.moves.iter_mut().find(|moving| moving.key == Some(key)) {
        moving.reason = reason;
    } else if let Some(socket) = offload.sockets.find_mut(key).filter(|socket| begun && socket.moved) {
        // (It is there already.)
        socket.reason = Some(reason);
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
        guard.leaving.push((key, Reason::SharedConnection));
        guard.mux.call_progress();
        claimed
    };
    let started = std::time::Instant::now();
    while matches!(fdtable::peek(fd), Entry::Socket(_) | Entry::Moving(_)) && started.elapsed() < super::PATIENCE {
        super::pause();
    }
    if let Some((local, remote)) = claimed {
        super::inherited::claim_moved(&process.rendezvous().member_ref(), fd, local, remote);
    }
}

/// A peer has sent urgent data, which are the kernel's: they come again when it has the connection. Or it has left for its kernel.
#[cold]
pub(crate) fn leave_for_peer(offload: &mut Offload, index: u32) {
    // (It may have left its ring, instead: what is urgent comes again.)
    let flow = offload.sockets.get(index).and_then(Socket::ring_id);
    if flow.is_some_and(|flow| offload.rings.of(flow).has_leavers()) {
        offload.mux.call_progress();
        return;
    }
    // (They may come again before it has.)
    let key = offload.sockets.key_at(index).filter(|key| !offload.leaving.iter().any(|(leaving, _)| leaving == key));
    let Some(key) = key else { return };
    match offload.sockets.find(key).map(|socket| socket.is_refused) {
        Some(false) => {
            offload.leaving.push((key, Reason::UrgentData));
            offload.mux.call_progress();
        }
        // (It has gone to another ring since.)
        Some(true) => drop(take_urgent_as_data(offload, key)),
        None => {}
    }
}

/// Begins to move what vfork children asked for, what is the kernel's for another reason, and what has left at its other end. For the progress thread.
pub(crate) fn begin_leaving(process: &'static Process, offload: &mut Offload) {
    together::follow(process, offload);
    for (key, reason) in core::mem::take(&mut offload.leaving) {
        let begun = begin_for(process, offload, key, reason);
        if begun || reason != Reason::UrgentData {
            continue;
        }
        let is_news = offload.sockets.find_mut(key).is_some_and(|socket| !core::mem::replace(&mut socket.is_refused, true));
        if let Some((local, remote)) = take_urgent_as_data(offload, key).filter(|_| is_news) {
            tracing::warn!("urgent data of {remote} are data as all others at {local}: the kernel does not take the connection over");
        }
    }
}

/// Urgent data of a connection that stays here are data as all others (RFC 6093 s4), as with SO_OOBINLINE: so they come, where they would be sent again and again else.
/// Between whom.
fn take_urgent_as_data(offload: &mut Offload, key: Key) -> Option<(SocketAddr, SocketAddr)> {
    let Kind::Stream(id) = offload.sockets.find(key)?.kind else { return None };
    let ends = ends(offload, id)?;
    offload.rings.of_mut(id).tcp_configure(flows::now(), id, |config| config.urgent_waits = false).ok()?;
    Some(ends)
}

/// Begins to move a connection whose last descriptor the program is closing. `false`: it must be ended as any other.
pub(crate) fn begin_closed(process: &'static Process, offload: &mut Offload, socket: &Socket, fd: c_int) -> bool {
    let (Kind::Stream(id) | Kind::Connecting(id)) = socket.kind else { return false };
    // (It had to get one of its own before the fork, and could not. Or nobody is at its other end yet.)
    if socket.common.is_some() || offload.rings.of(id).tcp_hop(id) == Some(NextHop::Pending) {
        return false;
    }
    start(process, offload, id, None, (fd, socket.family, socket.shut.read))
}

/// Begins to move a connection that the program has closed, and that was kept for a child. `false`: it must be ended as any other.
pub(super) fn begin_kept(process: &'static Process, offload: &mut Offload, id: FlowId, placeholder: &Fd, family: Family) -> bool {
    start(process, offload, id, None, (placeholder.raw(), family, false))
}

/// The process ends: what a child of its may go on with moves to the kernel. `false`: not in time.
pub(crate) fn leave_shared(process: &'static Process, patience: &mut Patience) -> bool {
    if descendants::forks() > 0 {
        begin_all(process, |socket| descendants::shared_since(socket.birth));
    }
    super::retreat::at_end(process, patience);
    exit::pulse();
    await_or_give_up(process, patience)
}

/// The process becomes another program: every connection becomes the kernel's. Of those that exec closes, the peers keep what they have not
/// read yet and the kernel has no room for; of the others, nobody may write before that is written.
pub(crate) fn at_exec(process: &'static Process, keeps: impl Fn(c_int) -> bool, patience: &mut Patience) {
    {
        let mut guard = process.lock();
        let kept = fdtable::entries().filter(|&(fd, entry)| entry.socket().is_some() && keeps(fd));
        let kept: HashSet<u32> = kept.filter_map(|(_, entry)| Some(entry.socket()?.index)).collect();
        for (key, socket) in guard.sockets.iter_mut() {
            socket.is_left = !kept.contains(&key.index) && !descendants::shared_since(socket.birth);
        }
    }
    begin_all(process, |_| true);
    await_or_give_up(process, patience);
}

/// There was no exec after all.
pub(crate) fn after_exec(process: &Process) {
    process.lock().sockets.iter_mut().for_each(|(_, socket)| socket.is_left = false);
}

/// Moves every connection, and waits until all of them are the kernel's.
pub(crate) fn all(process: &'static Process) {
    leave(process, |_| true);
}

/// Moves every connection that was a parent's, as if the parent had it still.
pub(crate) fn adopted(process: &'static Process) {
    if process.lock().sockets.iter().any(|(_, socket)| socket.is_adopted) {
        leave(process, |socket| socket.is_adopted);
    }
}

fn leave(process: &'static Process, which: impl Fn(&Socket) -> bool) {
    begin_all(process, which);
    if !await_all(process, Waited::All, &mut Patience::of(super::PATIENCE), super::PATIENCE) {
        tracing::warn!("connections could not be moved to the kernel in time");
    }
}

/// Begins to move every connection that `which` names.
fn begin_all(process: &'static Process, which: impl Fn(&Socket) -> bool) {
    let mut guard = process.lock();
    let offload = &mut *guard;
    awaiting_child::release_all(process, offload);
    let keys: Vec<Key> = offload.sockets.iter().filter(|(_, socket)| which(socket)).map(|(key, _)| key).collect();
    for key in keys {
        begin(process, offload, key);
    }
}

/// Which moves are waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waited {
    /// Those that this process began.
    Ours,
    /// Those of peers as well, of which this process has bytes to write.
    All,
}

/// Waits until nothing is on its way. `false`: something is, for longer than this, or without getting on for as long as `still`.
pub(crate) fn await_all(process: &Process, which: Waited, patience: &mut Patience, still: Duration) -> bool {
    while patience.lasts(still) {
        let is_over = match which {
            Waited::Ours => !process.lock().moves.iter().any(|moving| matches!(moving.role, Role::Asking | Role::Owner | Role::Kept)),
            Waited::All => !waits(&process.lock()),
        };
        if is_over {
            return true;
        }
        super::pause();
    }
    false
}

/// Whether something is on its way that ends with the process.
pub(crate) fn waits(offload: &Offload) -> bool {
    offload.moves.iter().any(|moving| moving.role != Role::Kept)
        || offload.backlogs.are_awaited()
        || awaiting_child::are_on_their_way(offload)
}

/// Whether connections of ours have left the ring, and are not the kernel's yet.
pub(crate) fn has_begun(offload: &Offload) -> bool {
    offload.moves.iter().any(|moving| moving.role == Role::Owner)
}

/// They are reset, for whoever else has them.
pub(crate) fn give_up(offload: &mut Offload) {
    giving_up::give_up(offload, |_| true);
}

/// Both addresses of a connection of the ring.
pub(super) fn ends(offload: &Offload, id: FlowId) -> Option<(SocketAddr, SocketAddr)> {
    let info = offload.rings.of(id).info(id)?;
    Some((info.local, info.remote?))
}

/// The process is about to end: what its closed connections have not got rid of is to be the kernel's. `tried`: those that have been
/// moved, or could not be; each is tried once.
pub(crate) fn leave_to_peer(process: &'static Process, offload: &mut Offload, tried: &mut HashSet<FlowId>) {
    for id in offload.rings.lingering_streams().collect::<Vec<_>>() {
        if offload.moves.len() >= LEFT_TO_PEERS_MAX {
            return;
        }
        if !tried.insert(id) {
            continue;
        }
        if offload.rings.interfaces.contains(id.ring) {
            let known: HashSet<FlowId> = offload.rings.lingering_streams().collect();
            if !leave_behind(process, offload, id) {
                // (What stays may have another name now.)
                tried.extend(offload.rings.lingering_streams().filter(|again| !known.contains(again)));
            }
            continue;
        }
        let (Some((local, remote)), Some(NextHop::Mac(mac))) = (ends(offload, id), offload.rings.of(id).tcp_hop(id)) else { continue };
        // Who is dead reads no more, and our own other ends die with us.
        let peer = process.rendezvous_of(id).member_at(mac).filter(|member| !process.is_own(member));
        if peer.is_none() || offload.moves.iter().any(|moving| moving.is_between(local, remote)) {
            continue;
        }
        let Some((placeholder, family)) = last_placeholder(offload, local, remote) else { continue };
        let listener = listener_beside(offload, local);
        let (placeholder, ended_reading, is_told, is_last) = (Arc::new(File::new(placeholder)), false, true, true);
        launch(offload, None, Job { process, placeholder, family, ended_reading, is_told, is_last, local, remote, peer, listener });
    }
}

/// The process is about to end, and so are its rings: the kernel goes on with what a closed connection over an interface has yet to send.
/// `false`: it stays.
pub(super) fn leave_behind(process: &'static Process, offload: &mut Offload, id: FlowId) -> bool {
    let Some((local, _)) = ends(offload, id) else { return false };
    let Ok(fresh) = pair::socket(Family::of(local)) else { return false };
    pair::set_reuse_address(&fresh, 1);
    to_kernel::begin(process, offload, id, None, fresh.raw())
}

/// The placeholder of a connection that ends with the process; a fresh one, if the program closed it long ago.
fn last_placeholder(offload: &Offload, local: SocketAddr, remote: SocketAddr) -> Option<(Fd, Family)> {
    let socket = peer::socket_between(offload, local, remote).and_then(|key| offload.sockets.find(key));
    if let Some(socket) = socket.filter(|socket| socket.common.is_none() && !fdtable::is_stale_now(socket.fd))
        && let Some(copy) = peer::copy_of(socket.fd)
    {
        return Some((copy, socket.family));
    }
    let family = Family::of(local);
    let fresh = pair::socket(family).ok()?;
    // It outlives the server, which may start again, and wants its port.
    pair::set_reuse_address(&fresh, 1);
    Some((fresh, family))
}

/// Starts the job that moves a connection, whose placeholder is a descriptor of this family. `key`: unless the program has closed it,
/// then perhaps after its reading was shut down.
fn start(
    process: &'static Process,
    offload: &mut Offload,
    id: FlowId,
    key: Option<Key>,
    (fd, family, ended_reading): (c_int, Family, bool),
) -> bool {
    if offload.ending {
        return false;
    }
    if offload.rings.interfaces.contains(id.ring) {
        return to_kernel::begin(process, offload, id, key, fd);
    }
    let Some((local, remote)) = ends(offload, id) else { return false };
    if let Some(known) = offload.moves.iter_mut().find(|moving| moving.is_between(local, remote)) {
        known.key = key;
        return true;
    }
    let Some(placeholder) = peer::copy_of(fd) else { return false };
    let peer = match offload.rings.of(id).tcp_hop(id) {
        Some(NextHop::Mac(mac)) => process.rendezvous_of(id).member_at(mac),
        _ => None,
    };
    let listener = listener_beside(offload, local);
    let is_told = key.and_then(|key| offload.sockets.find(key)).is_none_or(|socket| !matches!(socket.kind, Kind::Connecting(_)));
    let (placeholder, is_last) = (Arc::new(File::new(placeholder)), false);
    launch(offload, key, Job { process, placeholder, family, ended_reading, is_told, is_last, local, remote, peer, listener })
}

/// A descriptor of a listener that has this address.
fn listener_beside(offload: &Offload, local: SocketAddr) -> Option<c_int> {
    offload.sockets.iter().find_map(|(_, socket)| {
        let has_it = matches!(socket.kind, Kind::Listener(_)) && socket.bound.is_some_and(|bound| bound.port() == local.port());
        has_it.then_some(socket.fd)
    })
}

/// Gives a job its thread. `false`: there is none to be had.
fn launch(offload: &mut Offload, key: Option<Key>, job: Job) -> bool {
    let (local, remote) = (job.local, job.remote);
    let (role, file, reason) = (Role::Asking, Some(Arc::clone(&job.placeholder)), Reason::SharedConnection);
    offload.moves.push(Move { local, remote, key, role, file, reason, reuse_address: None });
    // No handler of the program's runs on a thread that is not its.
    let _undisturbed = Blocked::new();
    let started = std::thread::Builder::new().name("ringway-move".to_owned()).spawn(move || crate::boundary!((), job.run()));
    if let Err(error) = started {
        tracing::warn!("the connection {local} - {remote} cannot be moved to the kernel: {error}");
        offload.moves.retain(|moving| !moving.is_between(local, remote));
        return false;
    }
    true
}

impl Offload {
    /// Whether a connection of the ring's ended, or was reset, on both sides.
    pub(super) fn is_over(&self, local: SocketAddr, remote: SocketAddr) -> bool {
        let of = |socket: &Socket| socket.ring_id().and_then(|id| self.rings.of(id).info(id));
        let is_it = |info: &FlowInfo| (info.local, info.remote) == (local, Some(remote));
        self.sockets.iter().filter_map(|(_, socket)| of(socket)).any(|info| is_it(&info) && info.state == Some(tcp::State::Closed))
    }

    /// Whether the connection's handshake is under way here.
    pub(super) fn handshakes(&self, local: SocketAddr, remote: SocketAddr) -> bool {
        let of = |socket: &Socket| socket.ring_id().and_then(|id| self.rings.of(id).info(id));
        self.sockets.iter().filter_map(|(_, socket)| of(socket)).any(|info| {
            (info.local, info.remote) == (local, Some(remote)) && matches!(info.state, Some(tcp::State::SynSent | tcp::State::SynReceived))
        })
    }

    /// A socket's connection has left the ring, and is not the kernel's yet: calls wait.
    pub(super) fn on_its_way(&mut self, key: Key) {
        let Some(socket) = self.sockets.find_mut(key) else { return };
        if let Some(id) = socket.ring_id()
            && let Some(info) = self.rings.of(id).info(id)
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
