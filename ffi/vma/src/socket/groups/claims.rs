//! Groups that come by interfaces' rings.
//!
//! A frame has one owner, and the kernel gives each of a group's members a copy. So a group's datagrams for a port are a ring's only while every socket of the
//! network namespace that hears them is this process's, and can have them from there. The kernel says which sockets have the port, and whom each of ours hears
//! (`hearers.rs`). Where the port is one socket's, no other comes without its consent; where it is shared (SO_REUSEADDR, SO_REUSEPORT), the kernel is asked again every
//! [`LOOK_SHARED`]: once somebody else has come, the group is the kernel's for all, until it is this process's alone again.
//!
//! In both directions a socket's datagrams stay in order, and none is lost or comes twice. When a group becomes the ring's, the rule is first: what the kernel's half
//! of a socket has by then is put before anything that the ring takes in. When it becomes the kernel's again, the rule ends first; whoever reads then reads what the ring
//! has, to its end, before what the kernel has ([`Groups::reads_ring_first`]). Frames that were just passing the rule are taken in a moment later ([`SETTLED`]).
//!
//! A socket has a flow of its own for each such group, beside the others ([`super::super::flows`]). It outlives the membership until it has been read.
//!
//! [`Groups::reads_ring_first`]: super::Groups::reads_ring_first

use core::time::Duration;
use std::collections::BTreeMap;
use std::net::SocketAddr;

use ringway_host::sleep::ppoll;
use ringway_stack::ring::{Reuse, SourceFilter, UdpOptions};
use ringway_stack::{Error, Instant};

use super::membership;
use super::taking::Taker;
use crate::mux;
use crate::process::Offload;
use crate::slab::Key;
use crate::socket::flows::{Flow, now};
use crate::socket::{Kind, Socket};

/// How often the kernel is asked who else has come to a port that others may share.
pub(super) const LOOK_SHARED: Duration = Duration::from_millis(250);
/// How often it is asked whether somebody has gone.
pub(super) const LOOK_REFUSED: Duration = Duration::from_secs(1);
/// After so long, no frame is between a rule that has ended and the ring's queue.
const SETTLED: Duration = Duration::from_millis(20);

/// How long the kernel may be on its way with a frame that was looked at before a rule came or went: a batch of a device's. (Who has the process's lock for as long polls the
/// ring next.)
const UNDER_WAY: Duration = Duration::from_micros(200);

/// A group's datagrams for a port, on the ring of an interface.
pub(super) type Place = (u16, SocketAddr);

/// Who hears them, and whom.
pub(super) type Hearers = Vec<(Key, SourceFilter)>;

/// Groups that come by rings.
#[derive(Debug, Default)]
pub(crate) struct Claims {
    all: BTreeMap<Place, Claim>,
    /// Some socket has to do with a group, and there are interfaces.
    is_used: bool,
    /// Of which of the kernel's tables the above was true.
    generation: u64,
    /// When it is to be looked at again.
    look_at: Option<Instant>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Claim {
    /// A rule steers them.
    Steered,
    /// They have been the kernel's since then, and some may be on their way to the ring.
    Left(Instant),
}

impl Claims {
    pub(super) fn look_within(&mut self, now: Instant, within: Duration) {
        let at = now + within;
        self.look_at = Some(self.look_at.map_or(at, |before| before.min(at)));
    }
}

impl Offload {
    /// Some socket has to do with a group.
    pub(in crate::socket) fn uses_groups(&mut self) {
        self.groups.is_used = self.interfaces.is_some();
    }

    /// Something has changed that says who hears which group: sockets, what they are bound to, memberships.
    pub(crate) fn settle_groups(&mut self) {
        if self.groups.is_used {
            self.settle_used_groups();
        }
    }

    /// What is due is looked at. For how long nothing is. For the progress thread.
    pub(crate) fn look_after_groups(&mut self, now: Instant) -> Option<Duration> {
        let has_changed = self.interfaces.as_ref().is_some_and(|interfaces| interfaces.generation() != self.groups.generation);
        if self.groups.look_at.is_some_and(|at| at <= now) || self.groups.is_used && has_changed {
            self.settle_used_groups();
        }
        Some(self.groups.look_at?.since(now))
    }

    /// Before a fork: all groups are the kernel's, where each of the processes hears them.
    pub(in crate::socket) fn share_groups(&mut self) {
        let places: Vec<Place> = self.groups.all.keys().copied().collect();
        places.into_iter().for_each(|place| self.leave_group_to_kernel(place));
    }

    #[cold]
    fn settle_used_groups(&mut self) {
        self.groups.look_at = None;
        self.groups.generation = self.interfaces.as_ref().map_or(0, |interfaces| interfaces.generation());
        let wanted = self.wanted_groups();
        let places: Vec<Place> = self.groups.all.keys().copied().collect();
        for place in places.into_iter().filter(|place| !wanted.contains_key(place)) {
            self.leave_group_to_kernel(place);
        }
        for (place, hearers) in wanted {
            match self.groups.all.get(&place) {
                None => self.claim_group(place, &hearers),
                Some(Claim::Steered) => _ = self.fit_group(place, &hearers),
                Some(Claim::Left(_)) => {}
            }
        }
        self.end_groups_left();
        self.close_flows_that_are_read();
        self.dispatch();
        if self.groups.look_at.is_some() {
            // (The progress thread looks, and may be asleep for longer.)
            self.mux.call_progress();
        }
    }

    /// A group is to come by a ring from now on, if it can.
    fn claim_group(&mut self, place: Place, hearers: &Hearers) {
        // (Who has yet to read what came by the ring before would read what the kernel has brought since behind what is to come.)
        let reads = |(key, _): &(Key, SourceFilter)| self.group_flow(*key, place).is_some();
        if hearers.iter().any(reads) {
            return self.groups.look_within(now(), LOOK_SHARED);
        }
        if !self.fit_group(place, hearers) {
            return;
        }
        self.groups.all.insert(place, Claim::Steered);
        let _ = ppoll(&mut [], Some(UNDER_WAY), None);
        for (key, _) in hearers {
            self.take_over_from_kernel(*key, place);
        }
        tracing::debug!("what comes for {} comes by the ring", place.1);
    }

    /// Gives those who hear a group by a ring their flows there, and lets others leave. `false`: it cannot be had, and is the kernel's.
    fn fit_group(&mut self, place: Place, hearers: &Hearers) -> bool {
        for (key, filter) in hearers {
            if let Err(error) = self.hear_by_ring(*key, place, filter) {
                tracing::info!("what comes for {} is the kernel's: {error}", place.1);
                self.leave_group_to_kernel(place);
                self.groups.look_within(now(), LOOK_REFUSED);
                return false;
            }
        }
        let is_hearer = |key: Key| hearers.iter().any(|(hearer, _)| *hearer == key);
        for (key, flow) in self.group_flows(place).into_iter().filter(|(key, _)| !is_hearer(*key)) {
            self.leave_flow(key, flow);
        }
        true
    }

    /// Has a socket hear a group by a ring, by that filter.
    fn hear_by_ring(&mut self, key: Key, place: Place, filter: &SourceFilter) -> Result<(), Error> {
        let (ring, to) = place;
        let (group, nowhere) = (to.ip(), membership::any_of(to.ip()));
        if let Some(flow) = self.group_flow(key, place) {
            return self.rings.of_mut(flow.id).udp_listen(now(), flow.id, group, nowhere, filter.clone());
        }
        self.publish_for_group(key)?;
        let socket = self.sockets.find(key).ok_or(Error::BadSocket)?;
        // (Members of one group share its rule, whatever they have said of their addresses.)
        let options = UdpOptions { reuse: Reuse::Address, ..socket.udp };
        let own = &mut self.rings.at_mut(ring).ring;
        let id = own.udp_open(to, &options)?;
        if let Err(error) = own.udp_listen(now(), id, group, nowhere, filter.clone()) {
            own.close(now(), id, false);
            return Err(error);
        }
        if let Some(socket) = self.sockets.find_mut(key) {
            socket.add_flow(Flow { id, at: group });
        }
        self.link(id, key.index);
        mux::refresh(self, key.index);
        Ok(())
    }

    /// A socket that is bound to a group's address gets the flow that each has, on shared memory, by which nothing comes.
    fn publish_for_group(&mut self, key: Key) -> Result<(), Error> {
        if self.sockets.find(key).is_none_or(|socket| socket.kind != Kind::Datagram(None)) {
            return Ok(());
        }
        self.open_flows(key)?;
        if let Some(socket) = self.sockets.find_mut(key) {
            socket.reason = None;
        }
        Ok(())
    }

    /// A group is the kernel's from now on. What has come by the ring is there to be read.
    fn leave_group_to_kernel(&mut self, place: Place) {
        let Some(claim) = self.groups.all.get_mut(&place).filter(|claim| **claim == Claim::Steered) else { return };
        *claim = Claim::Left(now());
        let (ring, to) = place;
        self.rings.at_mut(ring).ring.udp_leave_group_to_kernel(to);
        for (key, _) in self.group_flows(place) {
            if let Some(socket) = self.sockets.find_mut(key) {
                socket.rare().groups.reads_ring_first = true;
            }
        }
        let _ = ppoll(&mut [], Some(UNDER_WAY), None);
        self.take_all_in(ring, now());
        self.groups.look_within(now(), SETTLED);
        tracing::debug!("what comes for {to} is the kernel's");
    }

    /// Groups that were left some time ago: nobody is a member any more.
    fn end_groups_left(&mut self) {
        let now = now();
        let is_over = |claim: &Claim| matches!(claim, Claim::Left(since) if *since + SETTLED <= now);
        let over: Vec<Place> = self.groups.all.iter().filter(|(_, claim)| is_over(claim)).map(|(place, _)| *place).collect();
        for place in over {
            self.take_all_in(place.0, now);
            for (key, flow) in self.group_flows(place) {
                self.leave_flow(key, flow);
            }
            self.groups.all.remove(&place);
            // (Somebody may hear it again already.)
            self.groups.look_within(now, SETTLED);
        }
        if self.groups.all.values().any(|claim| matches!(claim, Claim::Left(_))) {
            self.groups.look_within(now, SETTLED);
        }
    }

    fn leave_flow(&mut self, key: Key, flow: Flow) {
        let _ = self.rings.of_mut(flow.id).udp_leave(now(), flow.id, flow.at);
        if let Some(socket) = self.sockets.find_mut(key) {
            socket.rare().groups.reads_ring_first = true;
        }
    }

    /// Closes those flows of groups that nothing comes by any more, and that have been read.
    fn close_flows_that_are_read(&mut self) {
        let keys: Vec<Key> = self.sockets.iter().filter(|(_, socket)| socket.reads_ring_first()).map(|(key, _)| key).collect();
        for key in keys {
            let Some(socket) = self.sockets.find(key) else { continue };
            let interfaces = self.rings.interfaces;
            let has_ended = |flow: &Flow| {
                let is_group = interfaces.contains(flow.id.ring) && flow.at.is_multicast();
                is_group && self.rings.of(flow.id).udp_groups(flow.id).is_empty()
            };
            let ended: Vec<Flow> = socket.flows_and_addresses().filter(has_ended).collect();
            let is_left = |flow: &Flow| {
                self.groups.all.iter().any(|((ring, to), claim)| (*ring, to.ip()) == (flow.id.ring, flow.at) && *claim != Claim::Steered)
            };
            let waits = socket.flows_and_addresses().any(|flow| is_left(&flow));
            let (unread, read): (Vec<Flow>, Vec<Flow>) = ended.into_iter().partition(|flow| self.rings.of(flow.id).udp_has_some(flow.id));
            for flow in &read {
                self.close_flow(key, flow.id);
            }
            if !unread.is_empty() {
                self.groups.look_within(now(), LOOK_SHARED);
            } else if !waits && let Some(socket) = self.sockets.find_mut(key) {
                socket.rare().groups.reads_ring_first = false;
            }
            if !read.is_empty() {
                mux::refresh(self, key.index);
            }
        }
    }

    fn group_flow(&self, key: Key, (ring, to): Place) -> Option<Flow> {
        let socket = self.sockets.find(key)?;
        socket.flow_at((ring, to.ip())).map(|id| Flow { id, at: to.ip() })
    }

    /// The flows by which sockets hear a group, or heard it.
    fn group_flows(&self, place: Place) -> Vec<(Key, Flow)> {
        let (_, to) = place;
        let is_there = |socket: &Socket| socket.bound.is_some_and(|bound| bound.port() == to.port());
        let keys = self.sockets.iter().filter(|(_, socket)| is_there(socket)).map(|(key, _)| key);
        keys.filter_map(|key| Some((key, self.group_flow(key, place)?))).collect()
    }

    /// What the kernel's half of a socket has came before what a ring is about to take in for it. (It counts as received now.)
    fn take_over_from_kernel(&mut self, key: Key, place: Place) {
        let Some(flow) = self.group_flow(key, place) else { return };
        let Some(socket) = self.sockets.find(key) else { return };
        let (fd, family) = (socket.fd, socket.family);
        let mut taker = Taker::new(fd, family, place.1.ip());
        while let Some((datagram, bytes)) = taker.next(now()) {
            if self.rings.of_mut(flow.id).udp_requeue(flow.id, &datagram, bytes).is_err() {
                return;
            }
        }
    }
}

impl Socket {
    /// Whether what a ring has for it comes before what the kernel has.
    pub(in crate::socket) fn reads_ring_first(&self) -> bool {
        self.rare.as_ref().is_some_and(|rare| rare.groups.reads_ring_first)
    }
}
