//! What a socket has beyond shared memory: flows on the rings of interfaces.
//!
//! A connection over an interface is a flow as any other ([`Kind::Stream`]). A listener, and a UDP socket, has flows there beside its own on shared
//! memory: one for each address of the interfaces that it is bound to. They come and go with its own, and who reads takes what came first.

use core::ffi::c_int;
use std::io::IoSlice;
use std::net::SocketAddr;

use ringway_stack::device::Protocol;
use ringway_stack::offload::Reason;
use ringway_stack::ring::{FlowId, Readiness};
use ringway_stack::socket::Routes;
use ringway_stack::{Error, Instant, socket};

use super::{Kind, Socket, address, datagram, flows};
use crate::cancel::Masked;
use crate::errno::{self, Errno};
use crate::interfaces::Path;
use crate::lock::Guard;
use crate::process::{Offload, Process};
use crate::slab::Key;

/// See the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct Beyond {
    flows: Vec<FlowId>,
    /// How it reached what it sent to.
    routes: Routes,
}

impl Socket {
    /// Whether it has that flow beyond shared memory.
    #[inline]
    pub(crate) fn has_beyond(&self, flow: FlowId) -> bool {
        self.beyond.as_ref().is_some_and(|beyond| beyond.flows.contains(&flow))
    }

    /// Its flows beyond shared memory.
    #[inline]
    pub(crate) fn flows_beyond(&self) -> impl Iterator<Item = FlowId> + use<> {
        self.beyond.as_ref().map(|beyond| beyond.flows.clone()).into_iter().flatten()
    }

    /// Whether it reads from more than one flow.
    #[inline]
    pub(crate) const fn has_several_flows(&self) -> bool {
        !self.others.is_empty() || self.beyond.is_some()
    }
}

impl Offload {
    /// The way of a connection to a destination that is not on this machine, for a socket that is neither connected nor listening; which is on that ring from now on.
    /// `None`: no interface leads there, or the kernel is to have it.
    pub(super) fn path_of(&mut self, key: Key, to: SocketAddr) -> Option<Path> {
        let socket = self.sockets.find(key)?;
        // (Who reads the Extra API's rings reads shared memory's.)
        if self.rings_are_used() || self.is_heard() {
            return None;
        }
        let path = self.interfaces.as_ref()?.path(socket.protocol, socket.bound, to)?;
        let socket = self.sockets.find_mut(key).filter(|socket| socket.kind == Kind::Fresh)?;
        socket.ring = path.ring;
        Some(path)
    }

    /// A listener, or a UDP socket, has its own flow: it gets those on interfaces. What cannot be had there is the kernel's.
    pub(super) fn open_beyond(&mut self, key: Key, takes_both: bool) {
        let Some(interfaces) = &self.interfaces else { return };
        let Some(socket) = self.sockets.find(key) else { return };
        let Some(bound) = socket.bound else { return };
        // (Who reads by one flow reads shared memory's. Of a group that shares an address, the kernel chooses one.)
        if self.goes_by_one(socket) || socket.reuse_port || socket.stays_within {
            return;
        }
        let known: Vec<_> = socket.flows_beyond().collect();
        let is_known = |at: &(u16, SocketAddr)| {
            known.iter().any(|&flow| (flow.ring, self.rings.of(flow).info(flow).map(|info| info.local)) == (at.0, Some(at.1)))
        };
        let places: Vec<_> = interfaces.places(bound, takes_both).into_iter().filter(|at| !is_known(at)).collect();
        let mut flows = Vec::new();
        for (ring, local) in places {
            match self.open_flow_on(ring, key, local) {
                Ok(flow) => flows.push(flow),
                Err(error) => tracing::info!("{local} is served by the kernel only: {error}"),
            }
        }
        if flows.is_empty() {
            return;
        }
        if let Some(socket) = self.sockets.find_mut(key) {
            socket.beyond.get_or_insert_default().flows.extend(&flows);
        }
        flows.into_iter().for_each(|flow| self.link(flow, key.index));
    }

    /// Closes what it has there.
    pub(super) fn close_beyond(&mut self, key: Key, now: Instant) {
        let beyond = self.sockets.find_mut(key).and_then(|socket| socket.beyond.take());
        beyond.into_iter().flat_map(|beyond| beyond.flows).for_each(|flow| self.rings.of_mut(flow).close(now, flow, false));
    }

    /// The flow from which a socket that has some beyond reads next: that where what came first waits. Its own: `None` does.
    pub(super) fn first_beyond(&mut self, key: Key) -> Option<FlowId> {
        let flows: Vec<FlowId> = self.sockets.find(key).filter(|socket| socket.beyond.is_some())?.flows().collect();
        let first = socket::first_of(&mut self.rings, &flows);
        // (Where nothing waits there may be an error, which reading tells.)
        let failed = |flow: &FlowId| self.rings.of(*flow).readiness(*flow).contains(Readiness::ERR);
        let is_beyond = |flow: &FlowId| self.rings.interfaces.contains(flow.ring);
        first.or_else(|| flows.into_iter().filter(is_beyond).find(failed)).filter(is_beyond)
    }

    /// Whose datagrams a connected socket hears there: its peer's, by the interface that leads to it.
    pub(super) fn set_peer_beyond(&mut self, key: Key) {
        let now = flows::now();
        let Some(socket) = self.sockets.find(key) else { return };
        if socket.beyond.is_none() {
            return;
        }
        let Some(peer) = socket.peer else {
            // (It hears everybody again, by all of them.)
            let takes_both = socket.takes_both();
            self.close_beyond(key, now);
            return self.open_beyond(key, takes_both);
        };
        let path = self.interfaces.as_ref().and_then(|interfaces| interfaces.path(Protocol::Udp, socket.bound, peer));
        for flow in socket.flows_beyond() {
            let local = self.rings.of(flow).info(flow).map(|info| info.local.ip());
            let connected = match path.filter(|path| path.ring == flow.ring && Some(path.source) == local) {
                Some(path) => self.rings.of_mut(flow).udp_connect(flow, path.source, Some((peer, path.hop))),
                None => Err(Error::HostUnreachable),
            };
            if connected.is_err() {
                self.rings.of_mut(flow).close(now, flow, false);
                self.drop_beyond(key, flow);
            }
        }
    }

    /// The interfaces have other addresses: what is bound to all of them has flows for these from now on.
    pub(crate) fn follow_addresses(&mut self, now: Instant) {
        let has_own = |socket: &Socket| matches!(socket.kind, Kind::Listener(Some(_)) | Kind::Datagram(Some(_))) && socket.peer.is_none();
        let keys: Vec<Key> = self.sockets.iter().filter(|(_, socket)| has_own(socket)).map(|(key, _)| key).collect();
        for key in keys {
            let Some(socket) = self.sockets.find(key) else { continue };
            let (Some(bound), takes_both, Some(interfaces)) = (socket.bound, socket.takes_both(), &self.interfaces) else { continue };
            let places = interfaces.places(bound, takes_both);
            for flow in socket.flows_beyond() {
                let local = self.rings.of(flow).info(flow).map(|info| info.local);
                if local.is_none_or(|local| !places.contains(&(flow.ring, local))) {
                    self.rings.of_mut(flow).close(now, flow, false);
                    self.drop_beyond(key, flow);
                }
            }
            self.open_beyond(key, takes_both);
            crate::mux::refresh(self, key.index);
        }
        self.dispatch();
    }

    /// Before a fork: what comes for a listener by an interface is the kernel's from now on, where each of the processes finds it.
    pub(crate) fn share_listeners_beyond(&mut self, now: Instant) {
        let is_beyond = |socket: &Socket| matches!(socket.kind, Kind::Listener(_)) && socket.beyond.is_some();
        let keys: Vec<Key> = self.sockets.iter().filter(|(_, socket)| is_beyond(socket)).map(|(key, _)| key).collect();
        for key in keys {
            tracing::info!("a listener is the kernel's on interfaces from now on, as a child has it too");
            if let Some(socket) = self.sockets.find_mut(key) {
                socket.stays_within = true;
            }
            self.close_beyond(key, now);
        }
    }

    fn drop_beyond(&mut self, key: Key, flow: FlowId) {
        let Some(socket) = self.sockets.find_mut(key) else { return };
        if let Some(beyond) = &mut socket.beyond {
            beyond.flows.retain(|known| *known != flow);
            if beyond.flows.is_empty() {
                socket.beyond = None;
            }
        }
    }

    /// Sends a datagram over the interface that leads to its destination. `None`: none does, or the kernel is to send it (it is longer than a packet, say).
    pub(super) fn send_beyond(
        &mut self,
        process: &Process,
        key: Key,
        data: &[IoSlice<'_>],
        to: SocketAddr,
        now: Instant,
    ) -> Option<Result<usize, Error>> {
        self.sockets.find(key).filter(|socket| socket.beyond.is_some())?;
        if to.ip().is_multicast() || process.addresses.contains(to.ip()) {
            return None;
        }
        let socket = self.sockets.find_mut(key)?;
        let routes = &mut socket.beyond.as_mut()?.routes;
        let path = self.interfaces.as_ref()?.path_by(routes, Protocol::Udp, socket.bound, to)?;
        let is_its =
            |flow: &FlowId| flow.ring == path.ring && self.rings.of(*flow).info(*flow).is_some_and(|info| info.local.ip() == path.source);
        let flow = socket.beyond.as_ref()?.flows.iter().copied().find(is_its)?;
        let sent = self.rings.of_mut(flow).udp_send(now, flow, data, path.source, Some((to, path.hop)));
        self.dispatch();
        match sent {
            Err(Error::MessageTooLong) => None,
            sent => {
                self.decided_once(key, sent.is_ok());
                Some(sent)
            }
        }
    }

    fn decided_once(&mut self, key: Key, is_sent: bool) {
        if let Some(socket) = self.sockets.find_mut(key).filter(|socket| is_sent && socket.reason == Some(Reason::NotLocal)) {
            socket.reason = None;
        }
    }
}

/// Sends a datagram over the interface that leads to its destination, if one does: a socket that is not bound yet gets an address for it.
///
/// # Errors
/// None does, or the kernel is to send it; the guard comes back.
pub(super) fn send<'a>(
    process: &'a Process,
    mut guard: Guard<'a, Offload>,
    now: Instant,
    (fd, key): (c_int, Key),
    data: &[IoSlice<'_>],
    to: SocketAddr,
) -> Result<Result<usize, Errno>, Guard<'a, Offload>> {
    if guard.sockets.find(key).is_some_and(|socket| socket.kind == Kind::Datagram(None) && socket.bound.is_none()) {
        drop(guard);
        if leads_to(process, key, to) {
            let saved = errno::current();
            let _masked = Masked::new();
            datagram::ensure_published(process, fd, key);
            errno::set(saved);
        }
        guard = process.lock();
    }
    guard.send_beyond(process, key, data, to, now).map(|sent| sent.map_err(Errno::from)).ok_or(guard)
}

/// Whether an unbound socket that sends to an address is to have an address of its own for it: an interface leads there.
pub(super) fn leads_to(process: &Process, key: Key, to: SocketAddr) -> bool {
    let guard = process.lock();
    let Some(interfaces) = &guard.interfaces else { return false };
    let Some(socket) = guard.sockets.find(key) else { return false };
    let to = address::destination(to);
    !to.ip().is_multicast() && !process.addresses.contains(to.ip()) && interfaces.path(socket.protocol, socket.bound, to).is_some()
}
