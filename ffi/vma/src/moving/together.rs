//! A connection on a device whose peers hear nothing of the kernel beside it (a verbs device): it leaves for the kernels of both hosts, or it stays.
//!
//! Whichever process has to give it to the kernel begins: a thread takes it off the ring and into its placeholder, by TCP_REPAIR as on other interfaces ([`super::to_kernel`]), where it says nothing yet, and the
//! ring asks the other end to do the same ([`ringway_stack::ring::Ring::tcp_ask_to_leave`]). When that one has, the placeholder speaks. Until then calls wait, as those for a child's connection do on
//! shared memory. If the other end stays, because its process may not use TCP_REPAIR for one, or does not answer, the connection is back on the ring as if nothing had been, and the log says so.
//!
//! The other end ([`follow`]) does the same: its question is the answer to ours.

use core::time::Duration;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use ringway_devices::{Entered, Fd, Handover};
use ringway_host::Blocked;
use ringway_host::leave::Kernel;
use ringway_stack::Error;
use ringway_stack::flow::Counters;
use ringway_stack::offload::Reason;
use ringway_stack::ring::{Answer, FlowId};

use super::giving_up::File;
use super::{Move, PATIENCE, Role, owner, pair, pause, to_kernel};
use crate::exit;
use crate::fdtable::{self, Entry};
use crate::mux;
use crate::process::{Offload, Process};
use crate::slab::Key;
use crate::socket::{Family, Kind};

/// How long nobody tries again to move a connection that had to stay: a child that asks for it hears that it cannot have it, and a process that ends does not go on trying.
const STAYS_FOR: Duration = Duration::from_secs(5);
/// The same where the peer did not answer: calls waited for it.
const SILENT_FOR: Duration = Duration::from_secs(60);
/// Of so many connections that is remembered.
const STAYED_MAX: usize = 1024;

/// One connection's way.
struct Job {
    process: &'static Process,
    kernel: Kernel,
    file: Arc<File>,
    local: SocketAddr,
    remote: SocketAddr,
}

/// A connection that is off its ring, and has yet to hear of its peer.
struct Left<'a> {
    entered: Entered<'a>,
    ring: u16,
    /// What its socket was.
    kind: Kind,
    counters: Counters,
}

/// Begins to move a connection into its placeholder. `key`: its socket, unless the program has closed it. `false`: it stays where it is, and the log says why.
pub(super) fn begin(
    process: &'static Process,
    offload: &mut Offload,
    (local, remote): (SocketAddr, SocketAddr),
    key: Option<Key>,
    placeholder: Fd,
) -> bool {
    if let Some(known) = offload.moves.iter_mut().find(|moving| moving.is_between(local, remote)) {
        known.key = key;
        return true;
    }
    let now = process.now();
    if offload.stayed.get(&(local, remote)).is_some_and(|until| now < *until) {
        tracing::debug!("the connection {local} - {remote} stays this process's alone, as it had to a moment ago");
        return false;
    }
    let kernel = match Kernel::open(process.clock) {
        Ok(kernel) => kernel,
        Err(error) => {
            tracing::warn!("the connection {local} - {remote} stays this process's alone: {error}");
            return false;
        }
    };
    let file = Arc::new(File::new(placeholder));
    let (role, reason) = (Role::Asking, Reason::SharedConnection);
    offload.moves.push(Move { local, remote, key, role, file: Some(Arc::clone(&file)), reason, reuse_address: None });
    let job = Job { process, kernel, file, local, remote };
    // No handler of the program's runs on a thread that is not its.
    let _undisturbed = Blocked::new();
    let started = std::thread::Builder::new().name("ringway-move".to_owned()).spawn(move || crate::boundary!((), job.run()));
    if let Err(error) = started {
        tracing::warn!("the connection {local} - {remote} stays this process's alone: {error}");
        offload.moves.retain(|moving| !moving.is_between(local, remote));
        return false;
    }
    true
}

/// The peers of connections have left their rings, and ask for ours to follow. For the progress thread.
pub(super) fn follow(process: &'static Process, offload: &mut Offload) {
    if !offload.rings.iter().any(|own| own.ring.has_leavers()) {
        return;
    }
    // (What was raised for them is not to be taken for something else once they are taken.)
    offload.dispatch();
    let mut leavers = Vec::new();
    for own in offload.rings.iter_mut() {
        leavers.extend(core::iter::from_fn(|| own.ring.tcp_take_leaver()));
    }
    for id in leavers {
        let Some((local, remote)) = owner::ends(offload, id) else { continue };
        let key = offload.socket_of(id).and_then(|index| offload.sockets.key_at(index));
        let has_left = match key {
            Some(key) => owner::begin(process, offload, key),
            None => owner::leave_behind(process, offload, id),
        };
        // (What is on its way by itself says so by itself.)
        if !has_left {
            let now = process.now();
            offload.rings.at_mut(id.ring).ring.tcp_has_parted(now, local, remote, false);
        }
    }
}

impl Job {
    fn run(self) {
        let Some(left) = self.leave() else { return };
        match self.answer(left.ring) {
            // (Who is gone has a kernel, which answers by a reset.)
            Some(Answer::There | Answer::Gone) => self.speak(left),
            Some(Answer::Silent) => self.stay(left, SILENT_FOR, "its other end does not answer"),
            Some(_) => self.stay(left, STAYS_FOR, "its other end stays on its device, and says there why"),
            None => self.stay(left, STAYS_FOR, "it was not done in time"),
        }
    }

    /// Takes it off the ring and into the placeholder, as soon as its handshake is over, and asks. `None`: it has not left.
    fn leave(&self) -> Option<Left<'_>> {
        let (process, local, remote) = (self.process, self.local, self.remote);
        let started = std::time::Instant::now();
        loop {
            let mut guard = process.lock();
            let offload = &mut *guard;
            offload.poll_if_due(process.now());
            offload.dispatch();
            if offload.handshakes(local, remote) && started.elapsed() < PATIENCE {
                drop(guard);
                pause();
                continue;
            }
            let Some(id) = offload.rings.tcp_between(local, remote) else {
                offload.rings.iter_mut().for_each(|own| own.ring.tcp_stays(process.now(), local, remote));
                self.end(offload);
                return None;
            };
            return self.leave_now(offload, id);
        }
    }

    fn leave_now(&self, offload: &mut Offload, id: FlowId) -> Option<Left<'_>> {
        let (local, remote, now) = (self.local, self.remote, self.process.now());
        let counters = offload.rings.of(id).info(id).map(|info| info.counters).unwrap_or_default();
        let key = offload.moves.iter().find(|moving| moving.is_between(local, remote)).and_then(|moving| moving.key);
        let kind = key.and_then(|key| offload.sockets.find(key)).map_or(Kind::Stream(id), |socket| socket.kind);
        let own = &mut offload.rings.at_mut(id.ring).ring;
        own.tcp_keep_late(local, remote);
        let detached = match own.detach_stream(now, id) {
            Err(Error::BadSocket) => own.detach_closed(now, id),
            detached => detached,
        };
        let handover = match detached {
            Ok(handover) => handover,
            Err(error) => {
                own.tcp_end_late(local, remote);
                own.tcp_stays(now, local, remote);
                self.end(offload);
                tracing::warn!("the connection {local} - {remote} stays this process's alone: {error}");
                return None;
            }
        };
        // SAFETY: it is open until it is dropped.
        let socket = unsafe { BorrowedFd::borrow_raw(self.file.raw()) };
        let asked = handover.enter(self.kernel.into_socket(socket)).and_then(|entered| match own.tcp_ask_to_leave(now, &entered) {
            Ok(()) => Ok(entered),
            Err(error) => Err((ringway_host::leave::LeaveError::Ring(error), entered.take_back())),
        });
        let entered = match asked {
            Ok(entered) => entered,
            Err((error, handover)) => {
                self.go_back(offload, (id.ring, kind), handover, (STAYS_FOR, &error));
                return None;
            }
        };
        if let Some(moving) = offload.moves.iter_mut().find(|moving| moving.is_between(local, remote)) {
            moving.role = Role::Owner;
        }
        if let Some(key) = key {
            offload.on_its_way(key);
        }
        offload.dispatch();
        exit::pulse();
        Some(Left { entered, ring: id.ring, kind, counters })
    }

    /// What the other end says. `None`: the move was given up meanwhile.
    fn answer(&self, ring: u16) -> Option<Answer> {
        loop {
            {
                let mut guard = self.process.lock();
                let offload = &mut *guard;
                let now = self.process.now();
                offload.poll_if_due(now);
                offload.dispatch();
                match offload.rings.at_mut(ring).ring.tcp_answer(now, self.local, self.remote) {
                    Answer::Awaited if self.file.is_given_up() => return None,
                    Answer::Awaited => {}
                    answer => return Some(answer),
                }
            }
            pause();
        }
    }

    /// The other end's kernel has it.
    fn speak(&self, left: Left<'_>) {
        let (process, local, remote) = (self.process, self.local, self.remote);
        let mut guard = process.lock();
        let offload = &mut *guard;
        let own = &mut offload.rings.at_mut(left.ring).ring;
        let mut late = || {
            own.poll(process.now());
            own.tcp_take_late(local, remote)
        };
        let spoken = left.entered.speak(&mut late);
        own.tcp_end_late(local, remote);
        own.tcp_has_parted(process.now(), local, remote, true);
        offload.closed.rx_bytes += left.counters.rx_bytes;
        offload.closed.tx_bytes += left.counters.tx_bytes;
        let moving = self.end(offload);
        let (key, reason) = moving.map_or((None, Reason::SharedConnection), |moving| (moving.key, moving.reason));
        match spoken {
            Ok(unsent) => {
                offload.to_kernel += 1;
                to_kernel::settle(process, offload, (key, reason), Arc::clone(&self.file), unsent);
            }
            Err(error) => {
                tracing::warn!("the connection {local} - {remote} is reset: its other end has left its ring, and here: {error}");
                self.reset(offload, key, reason);
            }
        }
        offload.dispatch();
    }

    fn reset(&self, offload: &mut Offload, key: Option<Key>, reason: Reason) {
        let family = key.and_then(|key| offload.sockets.find(key)).map_or(Family::of(self.local), |socket| socket.family);
        pair::reset(self.file.raw(), family, self.local, self.remote);
        if let Some(key) = key {
            offload.arrived(key, reason);
        }
    }

    fn stay(&self, left: Left<'_>, how_long: Duration, why: &str) {
        let mut guard = self.process.lock();
        let handover = left.entered.take_back();
        self.go_back(&mut guard, (left.ring, left.kind), handover, (how_long, &why));
    }

    /// It is on its ring again, in another place, as what it was; and for how long at least, and why.
    fn go_back(
        &self,
        offload: &mut Offload,
        (ring, kind): (u16, Kind),
        handover: Handover,
        (how_long, why): (Duration, &dyn core::fmt::Display),
    ) {
        let (local, remote, now) = (self.local, self.remote, self.process.now());
        tracing::warn!("the connection {local} - {remote} stays this process's alone: {why}");
        let moving = self.end(offload);
        let (key, reason) = moving.map_or((None, Reason::SharedConnection), |moving| (moving.key, moving.reason));
        offload.stayed.retain(|_, until| now < *until);
        if offload.stayed.len() < STAYED_MAX {
            offload.stayed.insert((local, remote), now + how_long);
        }
        let own = &mut offload.rings.at_mut(ring).ring;
        own.tcp_has_parted(now, local, remote, false);
        match own.adopt(now, handover) {
            Ok(again) if self.file.is_given_up() => {
                offload.rings.of_mut(again).close(now, again, true);
                self.reset(offload, key, reason);
            }
            // (What the program has closed, and a child may have, ends here for whoever has it, behind what was written. What was left behind by a process that ends goes on.)
            Ok(again) => {
                if !offload.is_back(key, kind, again) {
                    offload.rings.of_mut(again).close(now, again, false);
                }
            }
            Err((error, _)) => {
                tracing::error!("the connection {local} - {remote} is lost on its way back to its ring: {error}");
                // (What the peer sends from now on is answered by a reset.)
                own.tcp_end_late(local, remote);
                self.reset(offload, key, reason);
            }
        }
        offload.dispatch();
    }

    /// It moves no more.
    fn end(&self, offload: &mut Offload) -> Option<Move> {
        exit::pulse();
        let at = offload.moves.iter().position(|moving| moving.is_between(self.local, self.remote))?;
        Some(offload.moves.swap_remove(at))
    }
}

impl Offload {
    /// A connection is on its ring again, under another name. `false`: it has no socket.
    fn is_back(&mut self, key: Option<Key>, before: Kind, id: FlowId) -> bool {
        let Some(key) = key else { return false };
        let Some(socket) = self.sockets.find_mut(key) else { return false };
        socket.kind = if matches!(before, Kind::Connecting(_)) { Kind::Connecting(id) } else { Kind::Stream(id) };
        for (fd, entry) in fdtable::entries().filter(|(_, entry)| *entry == Entry::Moving(key)) {
            fdtable::change_if(fd, entry, Entry::Socket(key));
        }
        self.link(id, key.index);
        mux::refresh(self, key.index);
        true
    }
}
