//! The calls of a program that concern TCP, but for writing ([`super::super::writing`]) and moving ([`super::super::handover`]).

use std::io::IoSliceMut;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use super::super::Ring;
use super::super::demux::FlowKey;
use super::super::fast_open::EarlyData;
use super::super::slots::{Flow, Listener, Silent};
use super::super::steering::Holder;
use super::super::types::{FlowId, NextHop, RecvFlags, Reuse};
use super::super::udp::rule_error;
use crate::device::{FlowRule, Protocol, Queues};
use crate::error::Error;
use crate::flow::Counters;
use crate::mutants::Mutant;
use crate::tcp;
use crate::time::Instant;

impl<Q: Queues> Ring<Q> {
    /// Opens a connection: sends a SYN. `local` must be complete (the caller chose the port). The socket is writable once
    /// connected; a failure shows as [`crate::flow::Readiness::ERR`] and in [`Ring::take_error`].
    ///
    /// # Errors
    /// [`Error::AddressInUse`]: that pair of addresses has a connection; [`Error::NoBuffers`]: the table is full; [`Error::NetworkUnreachable`]: `remote` is the
    /// address of many; [`Error::Invalid`]: an address is incomplete, or they are of two families.
    pub fn tcp_connect(
        &mut self,
        now: Instant,
        local: SocketAddr,
        remote: SocketAddr,
        hop: NextHop,
        config: &tcp::Config,
    ) -> Result<FlowId, Error> {
        let (id, _) = self.connect(now, (local, remote), hop, config, None)?;
        Ok(id)
    }

    /// As [`Ring::tcp_connect`], where the peer may have given this host a cookie (RFC 7413): then its SYN has as much of the program's bytes as fit, and how many
    /// of them were taken is told. Else it asks for one.
    ///
    /// # Errors
    /// As [`Ring::tcp_connect`].
    pub fn tcp_connect_fast(
        &mut self,
        now: Instant,
        ends: (SocketAddr, SocketAddr),
        hop: NextHop,
        config: &tcp::Config,
        early: &EarlyData<'_>,
    ) -> Result<(FlowId, usize), Error> {
        self.connect(now, ends, hop, config, Some(early))
    }

    fn connect(
        &mut self,
        now: Instant,
        (local, remote): (SocketAddr, SocketAddr),
        hop: NextHop,
        config: &tcp::Config,
        early: Option<&EarlyData<'_>>,
    ) -> Result<(FlowId, usize), Error> {
        let is_complete = |end: SocketAddr| end.port() != 0 && !end.ip().is_unspecified();
        if !is_complete(local) || !is_complete(remote) || local.is_ipv4() != remote.is_ipv4() {
            return Err(Error::Invalid);
        }
        if remote.ip().is_multicast() || remote.ip() == IpAddr::V4(Ipv4Addr::BROADCAST) {
            // RFC 9293 s3.9.2.3: no one host has that address.
            return Err(Error::NetworkUnreachable);
        }
        let key = FlowKey::new(Protocol::Tcp, local, remote);
        let before = self.demux.exact(key);
        let attached = match before {
            Some(old) => self.displace(now, old)?,
            None => self.steer(local, remote).map_err(rule_error)?,
        };
        let config = self.limited(remote.ip(), config);
        let profile = self.slots.profiles.share(&config);
        let connection = tcp::Connection::connect(now, profile, local.port(), remote.port(), self.opening(now, local, remote));
        let id = self.insert_stream(now, key, connection, local, remote, hop, None, attached)?;
        if let (Some(_), Some(attached)) = (before, attached)
            && self.rules.may_move(attached.rule)
        {
            self.retag(attached.rule, id.index);
        }
        if let Some(stream) = self.slots.stream_at(id.index)
            && attached.is_some_and(|attached| !attached.is_ready)
            && !self.config.is(Mutant::SynBeforeRule)
        {
            stream.silent = Silent::UntilSteered;
        }
        let mut taken = 0;
        if let Some(early) = early {
            // (Without buffers it is a SYN without bytes.)
            taken = self.open_fast(now, id, early).unwrap_or(0);
        }
        self.transmit(now, id.index);
        self.output.flush(&mut self.queues);
        Ok((id, taken))
    }

    /// Whether [`Ring::tcp_connect`] could open a connection of these addresses: none has them, or one that may be followed.
    pub fn tcp_is_free(&mut self, now: Instant, local: SocketAddr, remote: SocketAddr) -> bool {
        let Some(index) = self.demux.exact(FlowKey::new(Protocol::Tcp, local, remote)) else { return true };
        self.slots.at(index).is_some_and(|flow| flow.may_be_reused(now))
    }

    /// Says where a connection that was opened with [`NextHop::Pending`] goes: its SYN leaves now.
    ///
    /// # Errors
    /// [`Error::BadSocket`]; [`Error::Invalid`]: its way is known already.
    pub fn tcp_route(&mut self, now: Instant, id: FlowId, hop: NextHop) -> Result<(), Error> {
        let stream = self.slots.stream(id)?;
        if stream.hop != NextHop::Pending {
            return Err(Error::Invalid);
        }
        // (Nobody was there to be told of it before.)
        (stream.hop, stream.noted) = (hop, false);
        self.transmit(now, id.index);
        self.output.flush(&mut self.queues);
        Ok(())
    }

    /// Opens a listener. A local address of `0.0.0.0` accepts on every address. Accepted connections inherit `config`.
    ///
    /// # Errors
    /// [`Error::AddressInUse`], [`Error::NoBuffers`].
    pub fn tcp_listen(&mut self, local: SocketAddr, backlog: usize, config: &tcp::Config) -> Result<FlowId, Error> {
        if local.port() == 0 {
            return Err(Error::Invalid);
        }
        let key = FlowKey::bound(Protocol::Tcp, local);
        let reuse = match config.reuse_port {
            true if self.config.is(Mutant::ListenersNotShared) => Reuse::Address,
            true => Reuse::Port,
            false => Reuse::No,
        };
        if !self.demux.admits(key, reuse) {
            return Err(Error::AddressInUse);
        }
        let rule = FlowRule { shared: config.reuse_port, ..FlowRule::flow(Protocol::Tcp, local, None) };
        let attached = self.attach(&rule).map_err(rule_error)?;
        let listener = Listener {
            local,
            rule: Some(attached.rule),
            error: None,
            is_shared: config.reuse_port,
            backlog,
            half_open: 0,
            ready: Default::default(),
            config: config.clone(),
            counters: Counters::default(),
            syns: (Instant::ZERO, 0),
            early: Default::default(),
        };
        match self.slots.insert(Flow::Listener(Box::new(listener))) {
            Ok(id) => {
                self.demux.join(key, id.index, reuse);
                self.hold(attached, Holder::Flow(id.index), None);
                Ok(id)
            }
            Err(error) => {
                self.detach(attached.rule);
                Err(error)
            }
        }
    }

    /// Changes a listener's backlog (a second `listen`).
    ///
    /// # Errors
    /// [`Error::BadSocket`], [`Error::NotSupported`].
    pub fn tcp_set_backlog(&mut self, listener: FlowId, backlog: usize) -> Result<(), Error> {
        let stays = self.config.is(Mutant::SecondListenIgnored);
        let listener = self.slots.listener(listener)?;
        listener.backlog = if stays { listener.backlog } else { backlog };
        Ok(())
    }

    /// Takes the oldest established connection off a listener's queue.
    ///
    /// # Errors
    /// [`Error::WouldBlock`], [`Error::BadSocket`], [`Error::NotSupported`].
    pub fn tcp_accept(&mut self, id: FlowId) -> Result<FlowId, Error> {
        let newest_first = self.config.is(Mutant::AcceptsNewestFirst);
        let listener = self.slots.listener(id)?;
        let next = if newest_first { listener.ready.pop_back() } else { listener.ready.pop_front() };
        let Some((child, _)) = next else {
            return Err(listener.error.filter(|error| *error == Error::NetworkDown).unwrap_or(Error::WouldBlock));
        };
        listener.counters.rx_packets += 1;
        if let Ok(stream) = self.slots.stream(child) {
            stream.parent = None;
            stream.queued = false;
            stream.connection.accepted();
        }
        self.renote(child.index);
        Ok(child)
    }

    /// How many handshakes a listener has under way.
    pub fn tcp_half_open(&self, listener: FlowId) -> usize {
        match self.slots.find(listener) {
            Some(Flow::Listener(listener)) => listener.half_open,
            _ => 0,
        }
    }

    /// The connections that wait to be accepted, the next one first.
    pub fn tcp_waiting(&self, listener: FlowId) -> Vec<FlowId> {
        match self.slots.find(listener) {
            Some(Flow::Listener(listener)) => listener.ready.iter().map(|(child, _)| *child).collect(),
            _ => Vec::new(),
        }
    }

    /// Takes a listener's rule back: nobody new finds it, while what knows it already is still served.
    pub fn tcp_withdraw(&mut self, listener: FlowId) {
        if let Ok(listener) = self.slots.listener(listener)
            && let Some(rule) = listener.rule.take()
        {
            self.detach_listener_rule(rule);
        }
    }

    /// Gives a listener that was withdrawn a rule again.
    ///
    /// # Errors
    /// [`Error::AddressInUse`], [`Error::NoBuffers`]: as [`Ring::tcp_listen`]; [`Error::BadSocket`], [`Error::NotSupported`].
    pub fn tcp_publish(&mut self, id: FlowId) -> Result<(), Error> {
        let listener = self.slots.listener(id)?;
        if listener.rule.is_some() {
            return Ok(());
        }
        let rule = FlowRule { shared: listener.is_shared, ..FlowRule::flow(Protocol::Tcp, listener.local, None) };
        let attached = self.attach(&rule).map_err(rule_error)?;
        self.slots.listener(id)?.rule = Some(attached.rule);
        self.hold(attached, Holder::Flow(id.index), None);
        Ok(())
    }

    /// A connection's configuration, to be changed in place (no-delay, keepalive, buffer limits…); it takes effect with the next
    /// call or segment. Whatever it says, it is held to what the device can carry.
    ///
    /// # Errors
    /// [`Error::BadSocket`], [`Error::NotSupported`] (not TCP).
    pub fn tcp_configure(&mut self, now: Instant, flow: FlowId, change: impl FnOnce(&mut tcp::Config)) -> Result<(), Error> {
        match self.slots.find_mut(flow)? {
            Flow::Listener(_) if self.config.is(Mutant::ListenerConfigIgnored) => {}
            Flow::Listener(listener) => change(&mut listener.config),
            Flow::Stream(stream) if !stream.orphan => {
                let remote = stream.remote.ip();
                let mut config = tcp::Config::clone(stream.connection.config());
                change(&mut config);
                let mut config = self.limited(remote, &config);
                self.held_to_rate(flow.index, &mut config);
                let profile = self.slots.profiles.share(&config);
                self.slots.stream(flow)?.connection.set_profile(now, profile);
                self.transmit(now, flow.index);
                self.output.flush(&mut self.queues);
            }
            Flow::Stream(_) | Flow::Resting(_) => return Err(Error::BadSocket),
            Flow::Udp(_) => return Err(Error::NotSupported),
        }
        Ok(())
    }

    /// Reads from a TCP stream; `Ok(0)` with room in `into` is the end of the stream.
    ///
    /// # Errors
    /// [`Error::WouldBlock`], the connection's own pending error, [`Error::NotConnected`], [`Error::BadSocket`].
    pub fn tcp_recv(&mut self, now: Instant, flow: FlowId, into: &mut [IoSliceMut<'_>], flags: RecvFlags) -> Result<usize, Error> {
        self.read(now, flow, into, flags.contains(RecvFlags::PEEK))
    }

    /// When the segment came that the last byte came in which a stream's reader took; `peeked`: where it took none, of so many at which it looked. `None`: that is not
    /// known, for nobody had asked when it came ([`tcp::Config::arrival_times`]), or it came elsewhere; or no such id.
    pub fn tcp_arrival(&self, flow: FlowId, peeked: usize) -> Option<tcp::Arrival> {
        match self.slots.find(flow)? {
            Flow::Stream(stream) => stream.connection.arrival(peeked),
            _ => None,
        }
    }

    /// `is_shared`: other processes have the connection as well, so that it goes on when this one ends. Its peer, who sees this host gone, is then
    /// not to take that for the end of the stream.
    ///
    /// # Errors
    /// [`Error::BadSocket`], [`Error::NotSupported`] (not a stream).
    pub fn tcp_share(&mut self, id: FlowId, is_shared: bool) -> Result<(), Error> {
        self.slots.stream(id)?.shared = is_shared;
        self.renote(id.index);
        Ok(())
    }

    /// The state of the connection between these addresses (ours, the peer's), closed by the program or not. `None`: there is none, or one
    /// that has ended.
    pub fn tcp_state(&self, local: SocketAddr, remote: SocketAddr) -> Option<tcp::State> {
        let index = self.demux.exact(FlowKey::new(Protocol::Tcp, local, remote))?;
        self.info(self.slots.id_at(index))?.state
    }

    /// Where a connection's frames go.
    pub fn tcp_hop(&self, flow: FlowId) -> Option<NextHop> {
        self.slots.find(flow)?.stream_hop()
    }

    /// The inside of a TCP connection. `None`: a dead id, or no connection.
    pub fn tcp_details(&self, now: Instant, flow: FlowId) -> Option<tcp::Details> {
        match self.slots.find(flow)? {
            Flow::Stream(stream) => Some(stream.connection.details(now)),
            Flow::Resting(resting) => Some(resting.as_stream::<Q>().connection.details(now)),
            _ => None,
        }
    }
}
