//! The thread that has all connections on their way which leave for the kernels of both hosts.

use core::time::Duration;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Instant;

use ringway_devices::{Entered, Handover};
use ringway_host::leave::Kernel;
use ringway_stack::Error;
use ringway_stack::flow::Counters;
use ringway_stack::offload::Reason;
use ringway_stack::ring::{Answer, FlowId};

use super::super::giving_up::File;
use super::super::{MOMENT, Move, PATIENCE, Role, pair, pause_for, peer, to_kernel};
use super::{SILENT_FOR, STAYS_FOR, Waiting};
use crate::exit;
use crate::fdtable::{self, Entry};
use crate::mux;
use crate::process::{Offload, Process};
use crate::slab::Key;
use crate::socket::{Family, Kind};

/// So many leave at a time that this end began with, and as many whose peers did: each has a descriptor, and its calls wait.
const AT_A_TIME: usize = 64;
/// And of either, so many to one host: one that says nothing keeps its places for as long as it is asked, and the others' connections do not wait for that.
const TO_ONE_HOST: usize = 16;

/// How often the thread looks what comes at the least, and whether more are to leave: the longer nothing has happened, the less often down to this.
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// A connection that is off its ring, and has yet to hear of its peer.
struct Left<'k> {
    way: Way,
    /// (Before the file, in whose descriptor it is.)
    entered: Entered<'k>,
    file: Arc<File>,
    counters: Counters,
}

/// What is known of a connection that has come off its ring.
#[derive(Clone, Copy)]
struct Way {
    local: SocketAddr,
    remote: SocketAddr,
    follows: bool,
    ring: u16,
    /// Whose it was.
    key: Option<Key>,
    /// What its socket was.
    kind: Kind,
}

/// What a connection can leave by.
enum Means {
    Has(Arc<File>),
    /// No descriptor is to be had.
    Scarce,
    /// It has ended meanwhile.
    Over,
}

/// The thread's work, until none is left.
pub(super) fn run(process: &'static Process, kernel: &Kernel) {
    let mut thread = Thread { process, kernel, left: Vec::new(), under_hand: None };
    let is_done = crate::boundary!(false, {
        let mut last = Instant::now();
        while let Some(has_happened) = thread.turn() {
            if has_happened {
                last = Instant::now();
            }
            pause_for((last.elapsed() / 8).clamp(MOMENT, LOOK_EVERY));
        }
        true
    });
    if !is_done {
        thread.fail();
    }
}

struct Thread<'k> {
    process: &'static Process,
    kernel: &'k Kernel,
    left: Vec<Left<'k>>,
    /// The one that something is being done to, which is not among those.
    under_hand: Option<(Way, Arc<File>)>,
}

impl<'k> Thread<'k> {
    /// Has those leave whose turn it is, and goes on with those whose peers have answered: whether there were any. `None`: there is nothing more to be done, and whoever comes next begins another thread.
    fn turn(&mut self) -> Option<bool> {
        let mut has_happened = false;
        // (The lock is others' in between.)
        while self.leave_next() {
            has_happened = true;
        }
        for (at, answer) in self.answers().into_iter().enumerate().rev() {
            if answer != Some(Answer::Awaited) {
                let left = self.left.swap_remove(at);
                self.under_hand = Some((left.way, Arc::clone(&left.file)));
                self.end_of_way(left, answer);
                self.under_hand = None;
                has_happened = true;
            }
        }
        if self.left.is_empty() {
            let mut guard = self.process.lock();
            if guard.departures.waiting.is_empty() {
                guard.departures.kernel = None;
                return None;
            }
        }
        Some(has_happened)
    }

    /// The next one that can leaves, and asks. `false`: none can.
    fn leave_next(&mut self) -> bool {
        let mut guard = self.process.lock();
        let offload = &mut *guard;
        offload.poll_if_due(self.process.now());
        offload.dispatch();
        let Some(next) = self.next(offload) else { return false };
        let (local, remote) = next.ends;
        let Some(id) = offload.rings.tcp_between(local, remote) else {
            self.stays(offload, next);
            return true;
        };
        match means(offload, next) {
            Means::Has(file) => {
                offload.departures.waiting.retain(|waiting| waiting.ends != next.ends);
                let left = self.leave(offload, next, file, id);
                self.left.extend(left);
                self.under_hand = None;
            }
            // (A peer that has left has a descriptor there that others may wait for, as they do here: it hears at once that ours stays.)
            Means::Scarce if !self.left.is_empty() && !next.follows => {
                tell_once(offload, &format_args!("and there are no descriptors for more (RLIMIT_NOFILE)"));
                return false;
            }
            Means::Scarce => {
                tracing::warn!("the connection {local} - {remote} stays this process's alone: no descriptor is to be had (RLIMIT_NOFILE)");
                self.stays_for_now(offload, next);
            }
            Means::Over => self.stays_for_now(offload, next),
        }
        true
    }

    /// The first of those that wait whose turn it is. (Those whose peers wait are ahead of all others, which have a number of their own.)
    fn next(&self, offload: &mut Offload) -> Option<Waiting> {
        let (mut in_all, mut to_host) = ([0; 2], BTreeMap::<(bool, IpAddr), usize>::new());
        for Way { follows, remote, .. } in self.left.iter().map(|left| left.way) {
            in_all[usize::from(follows)] += 1;
            *to_host.entry((follows, remote.ip())).or_default() += 1;
        }
        let has_place = |waiting: &Waiting| {
            let to_host = to_host.get(&(waiting.follows, waiting.ends.1.ip())).copied().unwrap_or(0);
            in_all[usize::from(waiting.follows)] < AT_A_TIME && to_host < TO_ONE_HOST
        };
        // (As soon as its handshake is over.)
        let is_ready = |waiting: &Waiting| waiting.since.elapsed() >= PATIENCE || !offload.handshakes(waiting.ends.0, waiting.ends.1);
        let mut waiting = offload.departures.waiting.iter();
        let next = waiting.find(|waiting| has_place(waiting) && is_ready(waiting)).copied();
        if next.is_none() && offload.departures.waiting.iter().any(|waiting| !has_place(waiting)) {
            tell_once(offload, &format_args!("for {AT_A_TIME} leave at a time, and {TO_ONE_HOST} to one host"));
        }
        next
    }

    /// A host says nothing: what waits for its turn to ask it stays where it is.
    fn wait_no_longer_for(&self, host: IpAddr) {
        let mut guard = self.process.lock();
        let asks = guard.departures.waiting.iter().filter(|waiting| !waiting.follows && waiting.ends.1.ip() == host);
        let asks: Vec<Waiting> = asks.copied().collect();
        if !asks.is_empty() {
            tracing::warn!("{} more connections to {host}, which does not answer, stay this process's alone", asks.len());
        }
        for waiting in asks {
            self.stays_for_now(&mut guard, waiting);
        }
    }

    /// One that waited has not left, nor will.
    fn stays(&self, offload: &mut Offload, Waiting { ends: (local, remote), .. }: Waiting) {
        offload.departures.waiting.retain(|waiting| waiting.ends != (local, remote));
        offload.rings.iter_mut().for_each(|own| own.ring.tcp_stays(self.process.now(), local, remote));
        offload.moves.retain(|moving| !(moving.is_between(local, remote) && moving.role == Role::Asking));
        exit::pulse();
    }

    /// The same of one that is still there: who asks for it hears that it is not to be had.
    fn stays_for_now(&self, offload: &mut Offload, waiting: Waiting) {
        self.stays(offload, waiting);
        offload.departures.note_stayed(self.process.now(), waiting.ends, STAYS_FOR);
    }

    /// Takes it off the ring and into the placeholder, and asks. `None`: it has not left.
    fn leave(
        &mut self,
        offload: &mut Offload,
        Waiting { ends: (local, remote), follows, .. }: Waiting,
        file: Arc<File>,
        id: FlowId,
    ) -> Option<Left<'k>> {
        let now = self.process.now();
        let counters = offload.rings.of(id).info(id).map(|info| info.counters).unwrap_or_default();
        let key = offload.moves.iter().find(|moving| moving.is_between(local, remote)).and_then(|moving| moving.key);
        let kind = key.and_then(|key| offload.sockets.find(key)).map_or(Kind::Stream(id), |socket| socket.kind);
        let way = Way { local, remote, follows, ring: id.ring, key, kind };
        self.under_hand = Some((way, Arc::clone(&file)));
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
                end(offload, local, remote);
                offload.departures.note_stayed(now, (local, remote), STAYS_FOR);
                tracing::warn!("the connection {local} - {remote} stays this process's alone: {error}");
                return None;
            }
        };
        // SAFETY: it is open until the file is dropped, which is kept beside what borrows it here.
        let socket = unsafe { BorrowedFd::borrow_raw(file.raw()) };
        let asked = handover.enter(self.kernel.into_socket(socket)).and_then(|entered| match own.tcp_ask_to_leave(now, &entered) {
            Ok(()) => Ok(entered),
            Err(error) => Err((ringway_host::leave::LeaveError::Ring(error), entered.take_back())),
        });
        let entered = match asked {
            Ok(entered) => entered,
            Err((error, handover)) => {
                self.go_back(offload, way, &file, handover, (STAYS_FOR, &error));
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
        Some(Left { way, entered, file, counters })
    }

    /// What the other ends say. `None`: the move was given up meanwhile.
    fn answers(&self) -> Vec<Option<Answer>> {
        if self.left.is_empty() {
            return Vec::new();
        }
        let (mut guard, now) = (self.process.lock(), self.process.now());
        let answer = |Left { way, file, .. }: &Left<'_>| match guard.rings.at_mut(way.ring).ring.tcp_answer(now, way.local, way.remote) {
            Answer::Awaited if file.is_given_up() => None,
            answer => Some(answer),
        };
        self.left.iter().map(answer).collect()
    }

    fn end_of_way(&self, left: Left<'k>, answer: Option<Answer>) {
        match answer {
            // (Who is gone has a kernel, which answers by a reset.)
            Some(Answer::There | Answer::Gone) => self.speak(left),
            Some(Answer::Silent) => {
                self.wait_no_longer_for(left.way.remote.ip());
                self.stay(left, SILENT_FOR, "its other end does not answer");
            }
            Some(_) => self.stay(
                left,
                STAYS_FOR,
                "its other end stays on its device, for want of CAP_NET_ADMIN or another reason, which its log says",
            ),
            None => self.stay(left, STAYS_FOR, "it was not done in time"),
        }
    }

    /// The other end's kernel has it.
    fn speak(&self, Left { way, file, entered, counters }: Left<'k>) {
        let Way { local, remote, .. } = way;
        let process = self.process;
        let mut guard = process.lock();
        let offload = &mut *guard;
        let own = &mut offload.rings.at_mut(way.ring).ring;
        let mut late = || {
            own.poll(process.now());
            own.tcp_take_late(local, remote)
        };
        let spoken = entered.speak(&mut late);
        own.tcp_end_late(local, remote);
        own.tcp_has_parted(process.now(), local, remote, true);
        offload.closed.rx_bytes += counters.rx_bytes;
        offload.closed.tx_bytes += counters.tx_bytes;
        let (key, reason) = end(offload, local, remote);
        match spoken {
            Ok(unsent) => {
                offload.to_kernel += 1;
                to_kernel::settle(process, offload, (key, reason), file, unsent);
            }
            Err(error) => {
                tracing::warn!("the connection {local} - {remote} is reset: its other end has left its ring, and here: {error}");
                reset(offload, way, &file, (key, reason));
            }
        }
        offload.dispatch();
    }

    fn stay(&self, Left { way, file, entered, .. }: Left<'k>, how_long: Duration, why: &str) {
        let mut guard = self.process.lock();
        let handover = entered.take_back();
        self.go_back(&mut guard, way, &file, handover, (how_long, &why));
    }

    /// Something has failed inside the library: nobody waits for this thread any longer.
    fn fail(mut self) {
        if let Some((way, file)) = self.under_hand.take() {
            crate::boundary!((), self.break_off(way, &file));
        }
        while let Some(left) = self.left.pop() {
            crate::boundary!((), self.stay(left, STAYS_FOR, "something failed inside the library"));
        }
        crate::boundary!((), {
            let mut guard = self.process.lock();
            guard.departures.kernel = None;
            while let Some(&waiting) = guard.departures.waiting.front() {
                self.stays_for_now(&mut guard, waiting);
            }
        });
    }

    /// What was being done to a connection when something failed is known to nobody: it is reset, for all who have it.
    fn break_off(&self, way: Way, file: &File) {
        let Way { local, remote, key, .. } = way;
        let (mut guard, now) = (self.process.lock(), self.process.now());
        let offload = &mut *guard;
        let (_, reason) = end(offload, local, remote);
        if let Some(id) = offload.rings.tcp_between(local, remote) {
            offload.rings.of_mut(id).close(now, id, true);
        }
        let own = &mut offload.rings.at_mut(way.ring).ring;
        own.tcp_end_late(local, remote);
        own.tcp_has_parted(now, local, remote, false);
        pair::end_repair(file.raw());
        reset(offload, way, file, (key, reason));
        offload.dispatch();
    }

    /// It is on its ring again, in another place, as what it was; and for how long at least, and why.
    fn go_back(
        &self,
        offload: &mut Offload,
        way: Way,
        file: &File,
        handover: Handover,
        (how_long, why): (Duration, &dyn core::fmt::Display),
    ) {
        let (Way { local, remote, ring, kind, .. }, now) = (way, self.process.now());
        tracing::warn!("the connection {local} - {remote} stays this process's alone: {why}");
        let (key, reason) = end(offload, local, remote);
        offload.departures.note_stayed(now, (local, remote), how_long);
        let own = &mut offload.rings.at_mut(ring).ring;
        own.tcp_has_parted(now, local, remote, false);
        match own.adopt(now, handover) {
            Ok(again) if file.is_given_up() => {
                offload.rings.of_mut(again).close(now, again, true);
                reset(offload, way, file, (key, reason));
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
                reset(offload, way, file, (key, reason));
            }
        }
        offload.dispatch();
    }
}

/// More wait than leave at a time, and why.
fn tell_once(offload: &mut Offload, why: &dyn core::fmt::Display) {
    let departures = &mut offload.departures;
    if !core::mem::replace(&mut departures.is_told, true) {
        tracing::info!("{} connections wait until others have left for the kernels of both hosts, {why}", departures.waiting.len());
    }
}

/// The descriptor in which the kernel gets what is on a ring: the placeholder's file, by a number that is not the program's. (What is asked by that is asked of the socket.)
fn means(offload: &mut Offload, Waiting { ends: (local, remote), .. }: Waiting) -> Means {
    let Some(at) = offload.moves.iter().position(|moving| moving.is_between(local, remote) && moving.role == Role::Asking) else {
        return Means::Over;
    };
    let moving = &offload.moves[at];
    if let Some(file) = &moving.file {
        return Means::Has(Arc::clone(file));
    }
    let own = match moving.key.and_then(|key| offload.sockets.find(key)) {
        Some(socket) if fdtable::is_stale_now(socket.fd) => return Means::Over,
        Some(socket) => peer::copy_of(socket.fd),
        // The program has closed it while it waited, and nobody else has it: what is to be sent yet is left to the kernel.
        None => {
            offload.moves[at].key = None;
            pair::socket(Family::of(local)).ok().inspect(|fresh| pair::set_reuse_address(fresh, 1))
        }
    };
    let Some(own) = own else { return Means::Scarce };
    let file = Arc::new(File::new(own));
    offload.moves[at].file = Some(Arc::clone(&file));
    Means::Has(file)
}

fn reset(offload: &mut Offload, Way { local, remote, .. }: Way, file: &File, (key, reason): (Option<Key>, Reason)) {
    let family = key.and_then(|key| offload.sockets.find(key)).map_or(Family::of(local), |socket| socket.family);
    pair::reset(file.raw(), family, local, remote);
    if let Some(key) = key {
        offload.arrived(key, reason);
    }
}

/// It moves no more: whose it is, and why it moved.
fn end(offload: &mut Offload, local: SocketAddr, remote: SocketAddr) -> (Option<Key>, Reason) {
    exit::pulse();
    let at = offload.moves.iter().position(|moving| moving.is_between(local, remote));
    let moving: Option<Move> = at.map(|at| offload.moves.swap_remove(at));
    moving.map_or((None, Reason::SharedConnection), |moving| (moving.key, moving.reason))
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
