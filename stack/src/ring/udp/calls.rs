//! The calls of a program that concern UDP, but for groups ([`super::super::multicast`]).

use std::io::{IoSlice, IoSliceMut};
use std::net::{IpAddr, SocketAddr};

use super::super::Ring;
use super::super::demux::FlowKey;
use super::super::output::Envelope;
use super::super::rates;
use super::super::slots::Flow;
use super::super::steering::Holder;
use super::super::types::{Datagram, FlowId, NextHop, RecvFlags, UdpOptions};
use super::{OVERHEAD, UdpFlow, among_equals, rule_error, udp_rule};
use crate::device::{MacAddr, Protocol, Queues, SendError};
use crate::error::Error;
use crate::mutants::Mutant;
use crate::tcp::Lent;
use crate::time::Instant;
use crate::wire::udp as wire;

impl<Q: Queues> Ring<Q> {
    /// Opens a UDP socket that receives datagrams for `local` (`0.0.0.0`: for every address; the port must be given), but for those that
    /// another socket fits better ([`UdpOptions::reuse`]).
    ///
    /// # Errors
    /// [`Error::AddressInUse`], [`Error::NoBuffers`]; [`Error::NotSupported`]: the address is to be shared, and the device cannot.
    pub fn udp_open(&mut self, local: SocketAddr, options: &UdpOptions) -> Result<FlowId, Error> {
        if local.port() == 0 {
            return Err(Error::Invalid);
        }
        let key = FlowKey::bound(Protocol::Udp, local);
        if !self.demux.admits(key, options.reuse) {
            return Err(Error::AddressInUse);
        }
        // A group's datagrams come with its first member.
        let attached = match local.ip().is_multicast() {
            true => None,
            false => Some(self.attach(&udp_rule(local, options, self.tag_of(self.slots.next_index()))).map_err(rule_error)?),
        };
        let rule = attached.map(|attached| attached.rule);
        let flow = UdpFlow::new(local, rule, *options, self.lends, self.config.mutation());
        match self.slots.insert(Flow::Udp(Box::new(flow))) {
            Ok(id) => {
                self.demux.join(key, id.index, options.reuse);
                if let Some(attached) = attached {
                    self.hold(attached, Holder::Flow(id.index), None);
                }
                Ok(id)
            }
            Err(error) => {
                attached.into_iter().for_each(|attached| self.detach(attached.rule));
                Err(error)
            }
        }
    }

    /// Fixes the peer (datagrams of others are no longer received), or undoes it. Where the socket is not bound to one address, `source` is the
    /// local one that it has from now on (connect(2) on Linux chooses the route's); `0.0.0.0`: it keeps all of them.
    ///
    /// # Errors
    /// [`Error::BadSocket`], [`Error::NotSupported`] (not UDP); [`Error::AddressInUse`], [`Error::NoBuffers`]: it cannot have that address, and
    /// all is as before; [`Error::Invalid`]: an address of another family.
    pub fn udp_connect(&mut self, id: FlowId, source: IpAddr, remote: Option<(SocketAddr, NextHop)>) -> Result<(), Error> {
        let flow = self.slots.udp(id)?;
        let ip = if remote.is_some() && flow.bound.ip().is_unspecified() { source } else { flow.bound.ip() };
        let ip = if remote.is_none() && self.config.is(Mutant::UdpDisconnectKeepsAddress) { flow.local.ip() } else { ip };
        let local = SocketAddr::new(ip, flow.bound.port());
        let is_other = |end: SocketAddr| end.is_ipv4() != flow.bound.is_ipv4();
        if is_other(local) || remote.is_some_and(|(remote, _)| is_other(remote)) {
            return Err(Error::Invalid);
        }
        if flow.strides.is_some() {
            // (Whose it is goes by the address, and there may be a peer.)
            self.udp_from_strides(id)?;
        }
        let flow = self.slots.udp(id)?;
        let (before, after) = (flow.key(), flow.key_with(local, remote.map(|(remote, _)| remote)));
        let (options, moves) = (flow.options, local != flow.local);
        let stays = flow.remote.is_some() && self.config.is(Mutant::FormerPeerHeard);
        // (One whose receiving side was shut down has no rule, and nothing comes for it.)
        let is_rx_shut = flow.rule.is_none() && !flow.bound.ip().is_multicast();
        if is_rx_shut || before == after || self.config.is(Mutant::PeerIsNotPreferred) {
            flow.remote = remote;
            return Ok(());
        }
        if !self.demux.admits(after, options.reuse) {
            return Err(Error::AddressInUse);
        }
        let tag = self.tag_of(id.index);
        let attached = if moves { Some(self.attach(&udp_rule(local, &options, tag)).map_err(rule_error)?) } else { None };
        if !stays {
            self.demux.leave(before, id.index);
        }
        self.demux.join(after, id.index, among_equals(options.reuse, remote.is_some()));
        if let Ok(flow) = self.slots.udp(id) {
            (flow.local, flow.remote) = (local, remote);
            if let Some(attached) = attached {
                let before = flow.rule.replace(attached.rule).filter(|_| !self.config.is(Mutant::ConnectLeaksRule));
                self.hold(attached, Holder::Flow(id.index), before);
            }
        }
        Ok(())
    }

    /// A UDP socket's options, to be changed in place.
    ///
    /// # Errors
    /// [`Error::BadSocket`], [`Error::NotSupported`] (not UDP); where it is to share its address in another manner and cannot, all that it shares is as
    /// before: as [`Ring::udp_open`].
    pub fn udp_configure(&mut self, flow: FlowId, change: impl FnOnce(&mut UdpOptions)) -> Result<(), Error> {
        let options = &mut self.slots.udp(flow)?.options;
        let before = *options;
        change(options);
        let shares_otherwise = (before.reuse, before.cookie) != (options.reuse, options.cookie);
        if shares_otherwise { self.reuse_otherwise(flow, before) } else { Ok(()) }
    }

    /// A socket shares its address in another manner than `before`.
    fn reuse_otherwise(&mut self, id: FlowId, before: UdpOptions) -> Result<(), Error> {
        self.udp_from_strides(id)?;
        let flow = self.slots.udp(id)?;
        let (key, local, options, has_peer) = (flow.key(), flow.local, flow.options, flow.remote.is_some());
        let Some(rule) = flow.rule.take() else { return Ok(()) };
        self.demux.leave(key, id.index);
        // (The device may not have both rules at once.)
        self.detach(rule);
        let admitted = if self.demux.admits(key, options.reuse) { Ok(()) } else { Err(Error::AddressInUse) };
        let tag = self.tag_of(id.index);
        let (attached, now, result) = match admitted.and_then(|()| self.attach(&udp_rule(local, &options, tag)).map_err(rule_error)) {
            Ok(attached) => (Some(attached), options, Ok(())),
            Err(error) => (self.attach(&udp_rule(local, &before, tag)).ok(), before, Err(error)),
        };
        if attached.is_some() {
            self.demux.join(key, id.index, among_equals(now.reuse, has_peer));
        }
        if let Ok(flow) = self.slots.udp(id) {
            flow.rule = attached.map(|attached| attached.rule);
            (flow.options.reuse, flow.options.cookie) = (now.reuse, now.cookie);
        }
        if let Some(attached) = attached {
            self.hold(attached, Holder::Flow(id.index), None);
        }
        result
    }

    /// Sends one datagram, from `source` where the socket is bound to every address (else ignored), to `to` or to the
    /// connected peer. A receiver that cannot keep up loses it, as on any network; that counts as success.
    ///
    /// # Errors
    /// [`Error::MessageTooLong`], [`Error::DestinationRequired`], [`Error::HostUnreachable`] (no host has that MAC address), a
    /// pending [`Error::Refused`], [`Error::BadSocket`]; [`Error::Invalid`]: the two ends are of different families.
    pub fn udp_send(
        &mut self,
        now: Instant,
        flow: FlowId,
        data: &[IoSlice<'_>],
        source: IpAddr,
        to: Option<(SocketAddr, NextHop)>,
    ) -> Result<usize, Error> {
        match self.udp_try_send(now, flow, data, source, to.as_ref().map(|(to, hop)| (to, *hop))) {
            Err(Error::WouldBlock) => self.lose_datagram(flow, data),
            sent => sent,
        }
    }

    /// The same, but a datagram that the device has no room for is not lost, and nothing is counted: [`Error::WouldBlock`]. (A group's is lost all
    /// the same: its members here have it.)
    ///
    /// # Errors
    /// As [`Ring::udp_send`].
    #[inline(always)]
    pub fn udp_try_send(
        &mut self,
        now: Instant,
        id: FlowId,
        data: &[IoSlice<'_>],
        source: IpAddr,
        to: Option<(&SocketAddr, NextHop)>,
    ) -> Result<usize, Error> {
        let flow = self.slots.udp(id)?;
        let peer = flow.remote.as_ref().map(|(peer, hop)| (peer, *hop));
        let to = if self.config.is(Mutant::PeerBeforeDestination) { peer.or(to) } else { to.or(peer) };
        let Some((remote, hop)) = to else { return Err(Error::DestinationRequired) };
        // (Its parts, each where it is needed: an address is copied as a whole only for who rarely wants one.)
        let (dst, dst_port) = (remote.ip(), remote.port());
        let len = data.iter().map(|d| d.len()).sum::<usize>();
        if len + usize::from(self.config.is(Mutant::LongestDatagramRefused)) > self.output.payload_max(dst, wire::LEN) {
            return Err(Error::MessageTooLong);
        }
        let pending = if self.config.is(Mutant::ErrorToldAgain) { flow.error } else { Error::take(&mut flow.error) };
        if let Some(error) = pending {
            return Err(error);
        }
        if flow.shut_write && !self.config.is(Mutant::ShutWriteSends) {
            return Err(Error::Pipe);
        }
        let ports = (flow.local.port(), dst_port);
        let src = if flow.local.ip().is_unspecified() { source } else { flow.local.ip() };
        if src.is_ipv4() != dst.is_ipv4() {
            return Err(Error::Invalid);
        }
        let (ttl, tos) = (flow.options.ttl, flow.options.tos);
        flow.counters.tx_packets += 1;
        flow.counters.tx_bytes += len as u64;
        let is_paced = flow.is_paced && !self.config.is(Mutant::DatagramsUnpaced);
        if is_paced {
            self.output.set_flow(rates::tag(id.index));
        }
        let sent = match hop {
            _ if dst.is_multicast() => {
                self.send_to_group(now, id, SocketAddr::new(src, ports.0), SocketAddr::new(dst, dst_port), data, len)
            }
            NextHop::Mac(mac) => self.udp_emit(&Envelope { src, dst, mac, ttl, tos }, ports, data, len),
            NextHop::Pending => Err(SendError::NoPeer),
            NextHop::Neighbour(ip) => {
                self.send_to_neighbour(now, ip, Envelope { src, dst, mac: MacAddr::default(), ttl, tos }, ports, data, len)
            }
        };
        if is_paced {
            self.output.set_flow(0);
        }
        self.output.flush(&mut self.queues);
        match sent {
            Ok(()) => Ok(len),
            Err(error) => self.not_sent(id, error, len, dst.is_multicast()),
        }
    }

    /// A queue that overflows loses datagrams, here as in a switch; the counters tell.
    #[cold]
    fn lose_datagram(&mut self, id: FlowId, data: &[IoSlice<'_>]) -> Result<usize, Error> {
        let len = data.iter().map(|d| d.len()).sum::<usize>();
        self.count_sent(id, 1, len as u64)?;
        self.output.counters.tx_drops += 1;
        Ok(len)
    }

    /// Takes (or peeks at) the oldest datagram. The rest of one longer than the buffers is lost, as ever.
    ///
    /// # Errors
    /// [`Error::WouldBlock`], a pending [`Error::Refused`], [`Error::BadSocket`].
    pub fn udp_recv(&mut self, id: FlowId, into: &mut [IoSliceMut<'_>], flags: RecvFlags) -> Result<Datagram, Error> {
        self.udp_recv_here(id, into, flags, |datagram| datagram)
    }

    /// [`Ring::udp_recv`] as part of the caller's code, which is told of the datagram what it asks for.
    #[inline(always)]
    pub(in crate::ring) fn udp_recv_here<T>(
        &mut self,
        id: FlowId,
        into: &mut [IoSliceMut<'_>],
        flags: RecvFlags,
        tell: impl FnOnce(Datagram) -> T,
    ) -> Result<T, Error> {
        let flow = self.slots.udp(id)?;
        if let Some(error) = Error::take(&mut flow.error) {
            if self.config.is(Mutant::ErrorEatsDatagram) {
                let _ = flow.pop(into, false, |_| ());
            }
            return Err(error);
        }
        flow.pop(into, flags.contains(RecvFlags::PEEK), tell)
    }

    /// As [`Ring::udp_lend`], but piece by piece, for who keeps them elsewhere.
    ///
    /// # Errors
    /// As [`Ring::udp_recv`]; there was no piece.
    #[inline]
    pub fn udp_lend_each(&mut self, id: FlowId, mut take: impl FnMut(Lent<Q::Rx>)) -> Result<Datagram, Error> {
        let flow = self.slots.udp(id)?;
        if let Some(error) = Error::take(&mut flow.error) {
            return Err(error);
        }
        let lent = flow.lend(|piece| {
            #[cfg(feature = "marks")]
            self.marks.hit(piece.mark());
            take(piece);
        })?;
        if self.config.is(Mutant::LentUncounted) {
            flow.lent = 0;
        }
        Ok(lent)
    }

    /// [`Ring::give_back`] of a datagram, which needs no time. `false`: the socket is not of UDP, or gone, and nothing was done.
    #[inline]
    pub fn udp_give_back(&mut self, id: FlowId, len: usize) -> bool {
        let forgets = self.config.is(Mutant::GiveBackForgotten);
        let Ok(flow) = self.slots.udp(id) else { return false };
        if self.config.is(Mutant::GiveBackKeepsOverhead) {
            flow.lent = flow.lent.saturating_sub(len);
        } else if !forgets {
            flow.lent = flow.lent.saturating_sub(len + OVERHEAD);
        }
        true
    }
}
