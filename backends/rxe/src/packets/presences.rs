//! Who is there: a queue pair of datagrams says nothing when its process is killed, so each pair of processes also has a connection of librdmacm's. By it nothing is sent. When either
//! process ends, however it does, its kernel ends the connection by a DREQ (IBTA spec, volume 1, s12.9.8.1), and the other one hears of that.
//!
//! Who asks for a port by SIDR is told with the answer where such a connection is taken, and makes one if it has none to that queue pair of datagrams. Its request says of whom it is.
//! Each has a queue pair of RC of its own that is never used: a peer's kernel knows connections by these numbers, and takes two of one number for remains of an earlier one.
//!
//! A peer can have so many connections here, and all peers so many. Who has none is found out by TCP's own timers.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use rdma_core_sys as sys;
use ringway_stack::device::messages::{Addresses, Pd, QpConfig, Transport};
use ringway_stack::ud::VERSION;

use super::peers::Means;
use crate::cm::{Depths, Event, EventChannel, Id};
use crate::verbs::{Channel, CompletionQueue, Domain, QueuePair};

/// Connections in all, and with one address.
const PRESENCES_MAX: usize = 1024;
const OF_ADDRESS_MAX: usize = 128;
/// Requests that wait for an answer.
const BACKLOG: usize = 128;
/// What librdmacm's own steps may take, in milliseconds.
const STEP_MS: i32 = 2000;

/// A process: its address and ours, and its queue pair of datagrams.
pub(crate) type Peer = (Addresses, u32);

/// What is in a request's private data: the version of our header, and of which queue pair of datagrams it is.
pub(crate) const fn request_of(qpn: u32) -> [u8; 5] {
    let [a, b, c, d] = qpn.to_be_bytes();
    [VERSION, a, b, c, d]
}

fn parse_request(private_data: &[u8]) -> Option<u32> {
    match *private_data {
        [VERSION, a, b, c, d, ..] => Some(u32::from_be_bytes([a, b, c, d])),
        _ => None,
    }
}

/// What is in the private data of an answer about a port: the version of our header, and the port where connections of this kind are taken; 0: nowhere.
pub(crate) const fn answer_of(port: u16) -> [u8; 3] {
    let [a, b] = port.to_be_bytes();
    [VERSION, a, b]
}

/// That port.
pub(crate) fn parse_answer(private_data: &[u8]) -> Option<u16> {
    match *private_data {
        [VERSION, a, b, ..] => Some(u16::from_be_bytes([a, b])).filter(|port| *port != 0),
        _ => None,
    }
}

#[derive(Debug)]
struct Presence {
    /// Ends first: the order of these fields.
    id: Id,
    /// `None`: its time has not come.
    pair: Option<QueuePair>,
    peer: Peer,
    /// The peer has agreed.
    stands: bool,
}

/// Where connections to one of our addresses are taken.
#[derive(Debug)]
struct Listener {
    _id: Id,
    number: u32,
    port: u16,
}

/// See the module's documentation.
#[derive(Default)]
pub(crate) struct Presences {
    listeners: BTreeMap<IpAddr, Listener>,
    /// By their numbers. (They end before what they would complete to.)
    all: BTreeMap<u32, Presence>,
    peers: BTreeMap<Peer, u32>,
    completions: Option<CompletionQueue>,
}

impl core::fmt::Debug for Presences {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Presences").field("listeners", &self.listeners).field("peers", &self.peers).finish_non_exhaustive()
    }
}

impl Presences {
    /// The port where connections to that address are taken, from now on; 0: they cannot be. `number`: for its events, should it be the first time.
    pub(crate) fn port_at(&mut self, channel: &Arc<EventChannel>, number: u32, at: IpAddr) -> u16 {
        if let Some(known) = self.listeners.get(&at) {
            return known.port;
        }
        let listen = || -> io::Result<Listener> {
            let id = Id::new(channel, sys::RDMA_PS_TCP, number)?;
            id.bind(SocketAddr::new(at, 0))?;
            id.listen(BACKLOG)?;
            let port = id.names().0.ok_or(io::ErrorKind::AddrNotAvailable)?.port();
            Ok(Listener { _id: id, number, port })
        };
        match listen() {
            Ok(listener) => {
                let port = listener.port;
                self.listeners.insert(at, listener);
                port
            }
            Err(error) => {
                tracing::warn!("nobody at {at} is told should this process be killed: {error}");
                0
            }
        }
    }

    /// Whether events of that number are of a listener here.
    pub(crate) fn is_listener(&self, number: u32) -> bool {
        self.listeners.values().any(|listener| listener.number == number)
    }

    /// A peer takes connections at that port: one is made, unless there is one.
    pub(crate) fn seek(&mut self, means: Means<'_>, peer: Peer, port: u16) {
        if self.peers.contains_key(&peer) || !self.has_room(peer.0) {
            return;
        }
        let begin = || -> io::Result<Id> {
            let id = Id::new(means.channel, sys::RDMA_PS_TCP, means.number)?;
            id.resolve_address(Some(SocketAddr::new(peer.0.src(), 0)), SocketAddr::new(peer.0.dst(), port), STEP_MS)?;
            Ok(id)
        };
        match begin() {
            Ok(id) => self.keep(means.number, Presence { id, pair: None, peer, stands: false }),
            Err(error) => tracing::debug!("{} is not connected to: {error}", peer.0.dst()),
        }
    }

    /// Somebody asks for one. `qpn`: our queue pair of datagrams.
    pub(crate) fn accept(&mut self, means: Means<'_>, event: Event, qpn: Option<u32>) {
        let Some(mut id) = event.incoming else { return };
        let addresses = || {
            let (local, remote) = id.names();
            Addresses::new(local?.ip(), remote?.ip())
        };
        let peer = addresses().zip(parse_request(&event.private_data));
        let (Some(peer), Some(_)) = (peer.filter(|peer| self.has_room(peer.0)), qpn) else {
            return id.reject();
        };
        id.set_number(means.number);
        let accepted = self.pair(means.domain).and_then(|pair| {
            id.accept(pair.number(), Depths::default(), &[VERSION])?;
            Ok(pair)
        });
        match accepted {
            Ok(pair) => self.keep(means.number, Presence { id, pair: Some(pair), peer, stands: true }),
            Err(error) => tracing::debug!("{} is not answered: {error}", peer.0.dst()),
        }
    }

    fn has_room(&self, addresses: Addresses) -> bool {
        let of_address = self.peers.range((addresses, 0)..=(addresses, u32::MAX)).take(OF_ADDRESS_MAX).count();
        self.all.len() < PRESENCES_MAX && of_address < OF_ADDRESS_MAX
    }

    /// (Two that ask each other have two. Either tells.)
    fn keep(&mut self, number: u32, presence: Presence) {
        self.peers.entry(presence.peer).or_insert(number);
        self.all.insert(number, presence);
    }

    fn pair(&mut self, domain: &Arc<Domain>) -> io::Result<QueuePair> {
        if self.completions.is_none() {
            let channel = Arc::new(Channel::new(&domain.context)?);
            self.completions = Some(CompletionQueue::new(&channel, 1, 0)?);
        }
        let completions = self.completions.as_ref().ok_or(io::ErrorKind::NotFound)?;
        let config = QpConfig {
            transport: Transport::Rc,
            pd: Pd(0),
            send_cq: 0,
            recv_cq: 0,
            send_depth: 1,
            recv_depth: 1,
            sges_max: 1,
            inline_max: 0,
        };
        QueuePair::new(domain, &config, sys::IBV_QPT_RC, [completions, completions])
    }

    /// Takes an event of one of these, if it is. Who is gone, if somebody is.
    pub(crate) fn on_event(&mut self, domain: &Arc<Domain>, event: &Event, qpn: Option<u32>) -> Option<Peer> {
        let presence = self.all.get(&event.number)?;
        let goes_on = match event.kind {
            sys::RDMA_CM_EVENT_ADDR_RESOLVED => presence.id.resolve_route(STEP_MS).is_ok(),
            sys::RDMA_CM_EVENT_ROUTE_RESOLVED => self.ask(domain, event.number, qpn).is_ok(),
            sys::RDMA_CM_EVENT_CONNECT_RESPONSE => presence.id.establish().is_ok(),
            sys::RDMA_CM_EVENT_ESTABLISHED => true,
            sys::RDMA_CM_EVENT_DISCONNECTED
            | sys::RDMA_CM_EVENT_REJECTED
            | sys::RDMA_CM_EVENT_UNREACHABLE
            | sys::RDMA_CM_EVENT_ADDR_ERROR
            | sys::RDMA_CM_EVENT_ROUTE_ERROR
            | sys::RDMA_CM_EVENT_CONNECT_ERROR => false,
            // An address that moved to another interface, and numbers that may be used again.
            _ => return None,
        };
        if goes_on {
            if let Some(presence) = self.all.get_mut(&event.number) {
                presence.stands |= event.kind == sys::RDMA_CM_EVENT_CONNECT_RESPONSE;
            }
            return None;
        }
        tracing::debug!("a connection to another process ends: event {}, status {}", event.kind, event.status);
        let over = self.all.remove(&event.number)?;
        if self.peers.get(&over.peer) == Some(&event.number) {
            self.peers.remove(&over.peer);
        }
        (event.kind == sys::RDMA_CM_EVENT_DISCONNECTED && over.stands).then_some(over.peer)
    }

    fn ask(&mut self, domain: &Arc<Domain>, number: u32, qpn: Option<u32>) -> io::Result<()> {
        let qpn = qpn.ok_or(io::ErrorKind::NotConnected)?;
        let pair = self.pair(domain)?;
        let presence = self.all.get_mut(&number).ok_or(io::ErrorKind::NotFound)?;
        presence.id.connect(pair.number(), Depths::default(), &request_of(qpn))?;
        presence.pair = Some(pair);
        Ok(())
    }

    /// All end.
    pub(crate) fn clear(&mut self) {
        self.listeners.clear();
        self.all.clear();
        self.peers.clear();
        self.completions = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_and_answers_are_read_as_they_were_written_and_others_are_refused() {
        assert_eq!(request_of(0x0001_0203), [1, 0, 1, 2, 3]);
        assert_eq!(parse_request(&request_of(0x00ab_cdef)), Some(0x00ab_cdef));
        assert_eq!((parse_request(&[1, 0, 0, 1]), parse_request(&[2, 0, 0, 0, 1])), (None, None));
        // (The kernel hands over all bytes that there could be.)
        assert_eq!(parse_answer(&[1, 0x12, 0x34, 0, 0]), Some(0x1234));
        assert_eq!([parse_answer(&answer_of(0)), parse_answer(&[1]), parse_answer(&[2, 0, 1])], [None; 3]);
    }
}
