//! A UDP socket that goes over to another ring of its device: a flow there takes over the address, with its rule, and the one here hears no more, and is
//! read to its end.
//!
//! The device moves a rule at once ([`Device::retarget`]): what came before is in the old ring's queue, and what comes after in the new one's. So nothing
//! is lost or comes twice, and who reads the old flow until it is empty, once its ring has taken in what had come ([`Ring::udp_come_to`]), reads all of it in
//! the order of its arrival. Where the rule cannot be moved, the address goes back to the flow that it came from.
//!
//! Where each ring is a device's of its own (shared memory), no rule is moved: the other ring opens the socket once more, this one lets go of the address
//! ([`Ring::udp_let_go`]), and what waits is put into the other's queue, as bytes ([`Ring::udp_requeue`]).

use std::net::SocketAddr;

use super::super::Ring;
use super::super::demux::FlowKey;
use super::super::handover::Carried;
use super::super::rates::Keeper;
use super::super::slots::Flow;
use super::super::steering::Holder;
use super::super::types::{Datagram, FlowId, NextHop, Reuse, UdpOptions};
use super::{OVERHEAD, UdpFlow, Waiting, among_equals, rule_error, udp_rule};
use crate::device::{Attached, Device as _, Pacing, Protocol, Queues, RuleError};
use crate::error::Error;
use crate::flow::{Counters, Readiness};
use crate::mutants::Mutant;
use crate::time::Instant;

/// Batches of frames after which a ring has surely taken in what had come: more than a receive queue holds.
const BATCHES_MAX: usize = 1 << 12;

/// A UDP socket's address between two rings, with all that it is to be in the other one. Dropped, nothing is received there any more.
pub struct UdpHandover<Q: Queues> {
    bound: SocketAddr,
    local: SocketAddr,
    remote: Option<(SocketAddr, NextHop)>,
    options: UdpOptions,
    shut_write: bool,
    rate: Option<Pacing>,
    carried: Carried<Q::Device>,
}

/// What a UDP socket has received and sent, and how full it was, in a ring that it has left.
#[derive(Clone, Copy, Debug, Default)]
pub struct UdpPast {
    counters: Counters,
    peaks: (usize, usize),
    dropped_bytes: u64,
}

impl<Q: Queues> core::fmt::Debug for UdpHandover<Q> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("UdpHandover").field("local", &self.local).field("remote", &self.remote.map(|(remote, _)| remote)).finish()
    }
}

impl<Q: Queues> UdpHandover<Q> {
    /// What the socket's options are.
    pub const fn options(&self) -> &UdpOptions {
        &self.options
    }
}

impl<Q: Queues> Ring<Q> {
    /// Whether a UDP socket can go to another ring now. Not one that shares its address, whose rule is a group's; that is a member of groups, which each
    /// ring hears by rules of its own; whose receiving side is shut; whose reader holds, filters or knows datagrams by this ring; that has an error to
    /// tell of; or whose rule does not steer yet.
    pub fn udp_may_leave(&self, flow: FlowId) -> bool {
        let Some(Flow::Udp(udp)) = self.slots.find(flow) else { return false };
        let is_its_own = udp.options.reuse == Reuse::No && udp.rule.is_some_and(|rule| self.rules.may_move(rule));
        let is_simple = udp.is_plain && udp.strides.is_none() && udp.memberships.is_empty() && !udp.options.tell_drops && udp.lent == 0;
        is_its_own && is_simple && !udp.shut_read && udp.error.is_none()
    }

    /// Gives a UDP socket's address away, to a ring of the same device: see [`Ring::udp_adopt`]. Until then its datagrams still come here, to the flow, which
    /// stays to be read, and is to be closed once it is empty.
    ///
    /// # Errors
    /// [`Error::WouldBlock`]: it cannot go ([`Ring::udp_may_leave`]).
    pub fn udp_hand_over(&mut self, id: FlowId) -> Result<Box<UdpHandover<Q>>, Error> {
        if !self.udp_may_leave(id) {
            return Err(Error::WouldBlock);
        }
        let rate = self.rates.of(id.index);
        let udp = self.slots.udp(id)?;
        let &mut UdpFlow { bound, local, remote, options, shut_write, .. } = udp;
        let mut carried = Carried { device: self.queues.device().clone(), rule: udp.rule.take() };
        if self.config.is(Mutant::RuleGoneBeforeTheNext) {
            carried.end();
        }
        Ok(Box::new(UdpHandover { bound, local, remote, options, shut_write, rate, carried }))
    }

    /// Takes a UDP socket's address over from another ring of the device: from now on its datagrams come here, to the flow that this gives.
    ///
    /// # Errors
    /// [`Error::AddressInUse`] (this ring has a socket of that address), [`Error::NoBuffers`] (no room for it, or for its rate), or what the device says which
    /// does not move the rule; the address comes back as it was, to be taken back ([`Ring::udp_take_back`]).
    pub fn udp_adopt(&mut self, mut handover: Box<UdpHandover<Q>>) -> Result<FlowId, (Error, Box<UdpHandover<Q>>)> {
        let UdpHandover { bound, local, remote, options, shut_write, rate, ref mut carried } = *handover;
        let taken = self.take_address(local, remote.map(|(remote, _)| remote), &options, rate, carried);
        let attached = match taken {
            Ok(attached) => attached,
            Err(error) => return Err((error, handover)),
        };
        carried.rule = None;
        let mut udp = UdpFlow::new(local, Some(attached.rule), options, self.lends, self.config.mutation());
        (udp.bound, udp.remote, udp.shut_write, udp.is_paced) = (bound, remote, shut_write, rate.is_some());
        let key = udp.key();
        let id = self.slots.insert(Flow::Udp(Box::new(udp))).expect("there was room");
        self.demux.join(key, id.index, among_equals(options.reuse, remote.is_some()));
        if let Some(rate) = rate {
            self.rates.insert(id.index, rate, Keeper::Device);
        }
        self.hold(attached, Holder::Flow(id.index), None);
        Ok(id)
    }

    /// Has the rule steer here, and all that the socket is to have beside it. Where one thing cannot be had, all is as before.
    fn take_address(
        &mut self,
        local: SocketAddr,
        remote: Option<SocketAddr>,
        options: &UdpOptions,
        rate: Option<Pacing>,
        carried: &mut Carried<Q::Device>,
    ) -> Result<Attached, Error> {
        let key = remote.map_or(FlowKey::bound(Protocol::Udp, local), |remote| FlowKey::new(Protocol::Udp, local, remote));
        if !self.demux.admits(key, options.reuse) {
            return Err(Error::AddressInUse);
        }
        if !self.slots.has_room() {
            return Err(Error::NoBuffers);
        }
        let index = self.slots.next_index();
        if let Some(rate) = rate {
            self.keeper_of(index, rate, false)?;
        }
        let attached = self.move_rule(local, options, carried);
        if attached.is_err() && rate.is_some() {
            let lifted = self.keeper_of(index, Pacing::UNLIMITED, false);
            debug_assert!(lifted.is_ok(), "a rate that was set can be lifted");
        }
        attached.map_err(rule_error)
    }

    fn move_rule(&mut self, local: SocketAddr, options: &UdpOptions, carried: &mut Carried<Q::Device>) -> Result<Attached, RuleError> {
        let tag = self.tag_of(self.slots.next_index());
        if let Some(rule) = carried.rule {
            match self.queues.device().retarget(rule, self.queues.id().into(), tag) {
                Ok(()) => return Ok(Attached { rule, is_ready: true }),
                // (It ended with its ring.)
                Err(RuleError::Ended) => carried.end(),
                Err(error) => return Err(error),
            }
        }
        self.attach(&udp_rule(local, options, tag))
    }

    /// The address could not go over, and is this flow's again, which gave it away. Where its rule has ended meanwhile, and there is no other to be had, the
    /// socket is told of it.
    pub fn udp_take_back(&mut self, id: FlowId, handover: UdpHandover<Q>) {
        let UdpHandover { local, options, mut carried, .. } = handover;
        let tag = self.tag_of(id.index);
        let Ok(udp) = self.slots.udp(id) else { return };
        // (The device moved nothing: it steers here, under this flow's tag.)
        udp.rule = carried.rule.take();
        if udp.rule.is_some() {
            return;
        }
        let attached = self.attach(&udp_rule(local, &options, tag)).map_err(rule_error);
        if let Ok(udp) = self.slots.udp(id) {
            (udp.rule, udp.error) = (attached.as_ref().ok().map(|attached| attached.rule), attached.as_ref().err().copied());
        }
        if let Ok(attached) = attached {
            self.hold(attached, Holder::Flow(id.index), None);
        }
    }

    /// Takes in what had come when this was called, so that a flow whose address has gone over has all that will ever come for it here. How much of the
    /// socket's buffer that fills: as much less is there for it in its new ring, until it is read ([`Ring::udp_count_elsewhere`]).
    pub fn udp_come_to(&mut self, now: Instant, id: FlowId) -> usize {
        for _ in 0..BATCHES_MAX {
            if self.poll(now) == 0 {
                break;
            }
        }
        self.slots.udp(id).map_or(0, |udp| udp.queued)
    }

    /// So much of a UDP socket's buffer is filled by what waits for its reader in another ring; [`Ring::give_back`] says of each datagram that it has been read.
    pub fn udp_count_elsewhere(&mut self, id: FlowId, filled: usize) {
        if let Ok(udp) = self.slots.udp(id) {
            debug_assert!(filled == 0 || filled >= OVERHEAD, "as the other ring counts");
            udp.lent += filled;
        }
    }

    /// Ends a UDP socket's rule: it is another ring's from now on. What is on its way here still comes to the flow, which is to be closed in the end.
    ///
    /// # Errors
    /// As [`Ring::udp_hand_over`].
    pub fn udp_let_go(&mut self, id: FlowId) -> Result<(), Error> {
        self.udp_hand_over(id).map(drop)
    }

    /// Puts a datagram behind what waits to be read, which another ring has received and counted, and its reader taken there, whole, as `bytes`.
    ///
    /// # Errors
    /// [`Error::BadSocket`], [`Error::NotSupported`] (not UDP; or its reader decides about datagrams before, or wants their headers).
    pub fn udp_requeue(&mut self, id: FlowId, datagram: &Datagram, bytes: &[u8]) -> Result<(), Error> {
        let udp = self.slots.udp(id)?;
        if udp.filter.is_some() || udp.headers.is_some() {
            return Err(Error::NotSupported);
        }
        let &Datagram { from, to, received, hardware_time, drops, .. } = datagram;
        udp.bytes.push(bytes, udp.mutation);
        udp.enqueue(Waiting { from, to, received, hardware_time, drops, head: bytes.len(), buffer: None }, bytes.len());
        self.raise(id.index, Readiness::IN);
        Ok(())
    }

    /// Takes out what was counted of a UDP socket that leaves, for [`Ring::udp_add_past`].
    pub fn udp_take_past(&mut self, id: FlowId) -> UdpPast {
        let Ok(udp) = self.slots.udp(id) else { return UdpPast::default() };
        let (counters, peaks, dropped_bytes) = (&mut udp.counters, &mut udp.peaks, &mut udp.dropped_bytes);
        UdpPast { counters: core::mem::take(counters), peaks: core::mem::take(peaks), dropped_bytes: core::mem::take(dropped_bytes) }
    }

    /// Adds what was counted of a UDP socket in another ring.
    pub fn udp_add_past(&mut self, id: FlowId, past: UdpPast) {
        let Ok(udp) = self.slots.udp(id) else { return };
        let (all, more) = (&mut udp.counters, &past.counters);
        all.rx_packets += more.rx_packets;
        all.rx_bytes += more.rx_bytes;
        all.rx_drops += more.rx_drops;
        all.tx_packets += more.tx_packets;
        all.tx_bytes += more.tx_bytes;
        all.tx_drops += more.tx_drops;
        all.tx_dummies += more.tx_dummies;
        udp.peaks = (udp.peaks.0.max(past.peaks.0), udp.peaks.1.max(past.peaks.1));
        udp.dropped_bytes += past.dropped_bytes;
    }
}

#[cfg(test)]
mod tests;
