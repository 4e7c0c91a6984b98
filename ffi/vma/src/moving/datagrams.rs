//! UDP sockets that go over to another ring of the process: that of the thread which uses them, by the rule of connections ([`super::migration`]).
//!
//! Who sends to a socket knows the member that has its address by what that one has published. So a thread first has the new ring meet everybody whom the old
//! one knows. Then, under both rings' locks, the new ring publishes the address, the old one withdraws it, and what waits there is put into the new one's
//! queue: whoever sends next finds that what it knew holds no longer, and asks the kernel and the published rules again, of which one names the socket at
//! any time. So no datagram goes by the kernel in between.
//!
//! Who was about to send when the old ring withdrew the address still does, to the old ring: a flow there, without a rule, takes that in for a while
//! ([`Former`]). Whoever reads looks there last and takes from there first ([`Offload::turn_of_two`]): what a sender sent to the old ring was there before
//! anything that it sent to the new one. So the order is each sender's, and nothing is lost or comes twice. (A sender that is stopped between its last look at
//! the rules and its datagram, for longer than that, loses the datagram.) What the socket itself sends goes by its new ring from then on; a receiver that has
//! yet to take what came by the old ring may find the two in either order, as behind a card with two queues.
//!
//! What stays where it is:
//! - a socket that is not plain: it has several flows (two families, interfaces), callbacks, readers that know it by its ring, datagrams that the program
//!   holds, a cork, a direction that is shut; it shares its address, which is known to the kernel by groups; or it is on its way to another process;
//! - one that the kernel does not name (without SOCK_DIAG), whose address two rings cannot have at once;
//! - one that went over less than so long ago;
//! - one whose ring has more peers than are worth meeting, or one that does not answer.

use core::time::Duration;
use std::io::IoSliceMut;
use std::net::SocketAddr;

use ringway_devices::MemberRef;
use ringway_host::Blocked;
use ringway_stack::device::MacAddr;
use ringway_stack::ring::{FlowId, NextHop, RecvFlags, Reuse};
use ringway_stack::socket::Direction;
use ringway_stack::{Error, Instant};

use crate::descendants;
use crate::mux;
use crate::process::{self, Offload, Process};
use crate::slab::Key;
use crate::socket::flows::Former;
use crate::socket::{Socket, plain};

/// Sockets that are to go over at a time.
const JOBS_MAX: usize = 256;

/// Each peer costs a channel: of more, a socket stays.
const PEERS_MAX: usize = 64;

/// How long somebody may be about to send to the old ring: between a look at its rules and the datagram there are some hundred instructions.
const ABOUT_TO_SEND: Duration = Duration::from_secs(1);

/// The longest datagram.
const LEN_MAX: usize = 1 << 16;

/// UDP sockets that are to go over.
#[derive(Debug, Default)]
pub(super) struct Jobs {
    waiting: Vec<Job>,
    /// A thread sees to them.
    has_thread: bool,
}

#[derive(Clone, Copy, Debug)]
struct Job {
    key: Key,
    flow: FlowId,
    to: u16,
    direction: Direction,
}

impl Offload {
    /// Another thread than its ring's has used a UDP socket for long enough: it is to go over to that thread's.
    pub(super) fn send_datagrams_over(&mut self, key: Key, flow: FlowId, direction: Direction) {
        let Some(process) = process::process() else { return };
        let has_job = self.migrations.datagrams.waiting.iter().any(|job| job.key == key);
        if has_job || self.migrations.datagrams.waiting.len() >= JOBS_MAX {
            return;
        }
        if !self.may_datagrams_go_over(key, flow) {
            // (Who has just come may go on as soon as that is over.)
            if self.sockets.find(key).is_some_and(|socket| socket.former().is_some()) {
                self.rings.at_mut(flow.ring).callers.forget(flow);
            }
            return;
        }
        let Some(to) = self.home_of_caller(key, flow).filter(|to| !self.rings.interfaces.contains(*to)) else { return };
        let jobs = &mut self.migrations.datagrams;
        jobs.waiting.push(Job { key, flow, to, direction });
        if jobs.has_thread {
            return;
        }
        // No handler of the program's runs on a thread that is not its.
        let _undisturbed = Blocked::new();
        let work = move || crate::boundary!((), work(process));
        match std::thread::Builder::new().name("ringway-over".to_owned()).spawn(work) {
            Ok(_) => jobs.has_thread = true,
            Err(_) => jobs.waiting.clear(),
        }
    }

    /// Whether a socket has that flow, and nothing that could not go along.
    fn may_datagrams_go_over(&self, key: Key, flow: FlowId) -> bool {
        let may_socket = |socket: &Socket| {
            let is_simple = plain::are_plain(socket, flow) && !socket.shut.write && !descendants::shared_since(socket.birth);
            is_simple && socket.former().is_none() && socket.udp.reuse == Reuse::No && socket.udp.cookie != 0
        };
        let is_read_as_ever = !self.callbacks.are_used() && !self.is_heard() && !self.rings_are_used() && !self.loans.lends;
        let is_within = !self.rings.interfaces.contains(flow.ring);
        let may = !self.ending && is_read_as_ever && is_within && self.sockets.find(key).is_some_and(may_socket);
        may && self.rings.of(flow).udp_may_leave(flow)
    }

    /// Takes a socket from its ring to the other. Whether it goes.
    fn take_datagrams_over(&mut self, process: &Process, Job { key, flow, to, direction }: Job) -> Result<(), Error> {
        let now = process.now();
        self.rings.touch(to);
        if !self.may_datagrams_go_over(key, flow) {
            return Err(Error::WouldBlock);
        }
        let socket = self.sockets.find(key).ok_or(Error::BadSocket)?;
        let (options, peer) = (socket.udp, socket.peer);
        let bound = SocketAddr::new(socket.flow_at, socket.bound.map_or(0, |bound| bound.port()));
        let local = self.rings.of(flow).info(flow).ok_or(Error::BadSocket)?.local;
        let (here, there) = (process.rendezvous_of(flow), process.rendezvous_at(to));
        there.share_name(here, options.cookie).map_err(|_| Error::NoBuffers)?;
        let opened = self.rings.at_mut(to).ring.udp_open(bound, &options);
        there.let_go_of_name(options.cookie);
        let id = opened?;
        let ring = self.rings.of_mut(id);
        // (Where it sends to is said with each datagram.)
        let remote = peer.map(|peer| (peer, NextHop::Mac(MacAddr::default())));
        if remote.is_some()
            && let Err(error) = ring.udp_connect(id, local.ip(), remote)
        {
            ring.close(now, id, false);
            return Err(error);
        }
        if let Err(error) = self.rings.of_mut(flow).udp_let_go(flow) {
            self.rings.of_mut(id).close(now, id, false);
            return Err(error);
        }
        // From now on nobody finds it at the old ring: what lies there comes first.
        self.take_all_in(flow.ring, now);
        self.move_queue(flow, id);
        if let Some(left) = self.rings.at_mut(flow.ring).datagrams.take_kernel_poll(flow)
            && let Some(socket) = self.sockets.find_mut(key)
        {
            socket.go_on_asking_the_kernel(left);
        }
        self.rings.at_mut(flow.ring).callers.forget(flow);
        if let Some(socket) = self.sockets.find_mut(key) {
            socket.went_over(id, Former { id: flow, until: now + ABOUT_TO_SEND });
            socket.migrations[direction as usize] += 1;
        }
        self.migrations.done += 1;
        self.link(id, key.index);
        mux::went_over(self, key.index);
        self.dispatch();
        self.attend(now);
        tracing::debug!("the socket {local} is on ring {to}");
        Ok(())
    }

    /// Serves what a ring has.
    pub(crate) fn take_all_in(&mut self, ring: u16, now: Instant) {
        self.rings.touch(ring);
        while self.rings.at(ring).ring.rx_ready() && self.rings.at_mut(ring).poll(now) > 0 {}
    }

    /// Puts what waits in one flow of a socket behind what waits in another, with what was counted of it.
    pub(super) fn move_queue(&mut self, from: FlowId, to: FlowId) {
        let mut bytes = vec![0; LEN_MAX];
        loop {
            let datagram = match self.rings.of_mut(from).udp_recv(from, &mut [IoSliceMut::new(&mut bytes)], RecvFlags::empty()) {
                Ok(datagram) => datagram,
                Err(Error::WouldBlock | Error::BadSocket | Error::NotSupported) => break,
                // (What was to be told of what it sent comes before what it received.)
                Err(_) => continue,
            };
            if let Err(error) = self.rings.of_mut(to).udp_requeue(to, &datagram, &bytes[..datagram.copied]) {
                tracing::debug!("a datagram of {} is lost on its way to another ring: {error}", datagram.from);
            }
        }
        let past = self.rings.of_mut(from).udp_take_past(from);
        self.rings.of_mut(to).udp_add_past(to, past);
    }

    /// The flow from which a socket reads next that is on another ring than a moment ago. What its first flow has came after what whoever sent it has sent to
    /// the former one: that is looked at last, and comes first.
    #[cold]
    pub(crate) fn turn_of_two(&mut self, key: Key, former: Former) -> Option<FlowId> {
        let first = self.sockets.find(key)?.ring_id()?;
        let now = process::process().map_or(Instant::ZERO, Process::now);
        self.take_all_in(former.id.ring, now);
        if self.rings.of(former.id).udp_has_some(former.id) {
            return Some(former.id);
        }
        if former.until <= now {
            self.end_former(key);
        }
        Some(first)
    }

    /// What may yet come to the ring that a socket has left does no longer.
    #[cold]
    pub(crate) fn end_former(&mut self, key: Key) {
        let Some(socket) = self.sockets.find(key) else { return };
        let (Some(former), Some(first)) = (socket.former(), socket.ring_id()) else { return };
        let now = process::process().map_or(Instant::ZERO, Process::now);
        self.take_all_in(former.id.ring, now);
        if self.rings.of(former.id).udp_has_some(former.id) {
            // (What the first flow has came later.)
            self.move_queue(first, former.id);
        }
        self.move_queue(former.id, first);
        if let Some(socket) = self.sockets.find_mut(key) {
            socket.others.retain(|flow| flow.id != former.id);
            socket.rare().former = None;
        }
        self.rings.of_mut(former.id).close(now, former.id, false);
        mux::refresh(self, key.index);
    }
}

/// The thread's work.
fn work(process: &'static Process) {
    loop {
        let job = {
            let mut guard = process.lock();
            let jobs = &mut guard.migrations.datagrams;
            let Some(&job) = jobs.waiting.first() else {
                jobs.has_thread = false;
                return;
            };
            job
        };
        if meets_all(process, job)
            && let Err(error) = process.lock().take_datagrams_over(process, job)
        {
            tracing::debug!("a UDP socket stays on its ring: {error}");
        }
        process.lock().migrations.datagrams.waiting.retain(|other| other.key != job.key);
    }
}

/// Has the ring that a socket goes to meet all whom its ring knows. `false`: it stays.
fn meets_all(process: &Process, job: Job) -> bool {
    let (here, there) = (process.rendezvous_of(job.flow), process.rendezvous_at(job.to));
    let peers = here.peers();
    let itself = here.member_ref();
    if peers.len() > PEERS_MAX {
        return false;
    }
    // (Who is gone needs nothing. A sender on the old ring itself knows that one without a channel.)
    let told = peers.into_iter().map(|peer| MemberRef::told(peer.id)).chain([itself]);
    told.into_iter().all(|peer| there.meet(&peer).inspect_err(|error| tracing::debug!("a peer is not met: {error}")).is_ok())
}
