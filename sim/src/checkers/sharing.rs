//! Which socket of several that share a port gets what comes (socket(7), SO_REUSEADDR and SO_REUSEPORT). Connections are shared out among
//! listeners by a hash of their addresses, so that each of them gets some. Of UDP sockets, those with that peer come before those with that
//! address, and those before the ones with every address; of equal ones, the last has it, or any of those with SO_REUSEPORT.

use core::time::Duration;
use std::collections::BTreeSet;
use std::net::SocketAddr;

use ringway_stack::Instant;
use ringway_stack::device::Queues;
use ringway_stack::ring::{Datagram, FlowId, Readiness, Reuse, Ring};

use super::Moment;

const NAME: &str = "sharing";

/// Of so many clients for each of those that share them, every listener gets one: that one of two or three gets none by chance is less likely
/// than one in ten thousand million.
const CLIENTS_EACH: usize = 20;
/// What was received this soon after a socket came, or found its peer, may have been received before.
const SOON: Duration = Duration::from_millis(1);

/// A listener or a UDP socket.
#[derive(Clone, Copy, Debug)]
struct Bound {
    socket: FlowId,
    local: SocketAddr,
    remote: Option<SocketAddr>,
    reuse: Reuse,
    /// A connection ever came out of it.
    accepted: bool,
}

impl Bound {
    /// How well it fits; `None`: not at all.
    fn fits(&self, from: SocketAddr, to: SocketAddr) -> Option<u8> {
        let (any, local) = (self.local.ip().is_unspecified(), self.local.ip() == to.ip());
        let fits = (any || local) && self.remote.is_none_or(|remote| remote == from);
        fits.then_some(2 * u8::from(self.remote.is_some()) + u8::from(local))
    }
}

/// The sockets of one port of a ring.
#[derive(Debug, Default)]
pub(super) struct Port {
    /// In the order in which they came, or found their peers.
    sockets: Vec<Bound>,
    changed_at: Instant,
    /// Who connected since then.
    clients: BTreeSet<SocketAddr>,
}

impl Port {
    /// The sockets, one after the other.
    pub(super) fn socket(&self, at: usize) -> Option<FlowId> {
        self.sockets.get(at).map(|bound| bound.socket)
    }

    /// Whether some are bound to every address and others to one, whether some have peers and others none, and whether they are several.
    pub(super) fn mixture(&self) -> (bool, bool, bool) {
        let differ = |of: fn(&Bound) -> bool| self.sockets.iter().any(of) && !self.sockets.iter().all(of);
        (differ(|bound| bound.local.ip().is_unspecified()), differ(|bound| bound.remote.is_some()), self.sockets.len() > 1)
    }

    /// Whether a socket of the port may have received something of a stranger's: it wants nobody's alone, or did not when that came.
    pub(super) fn is_open(&self, socket: FlowId, from: SocketAddr, received: Instant) -> bool {
        let mut own = self.sockets.iter().filter(|bound| bound.socket == socket);
        received <= self.changed_at + SOON || own.any(|bound| bound.remote.is_none_or(|remote| remote == from))
    }

    /// The socket of the port, if there is but one, and it hears that.
    pub(super) fn only(&self, from: SocketAddr, to: SocketAddr) -> Option<FlowId> {
        let [bound] = self.sockets[..] else { return None };
        bound.fits(from, to).map(|_| bound.socket)
    }

    /// Whether a socket of the port hears that.
    pub(super) fn hears(&self, socket: FlowId, from: SocketAddr, to: SocketAddr) -> bool {
        self.sockets.iter().any(|bound| bound.socket == socket && bound.fits(from, to).is_some())
    }

    /// Whether any socket of the port hears that.
    pub(super) fn is_for_one(&self, from: SocketAddr, to: SocketAddr) -> bool {
        self.sockets.iter().any(|bound| bound.fits(from, to).is_some())
    }

    /// The socket that is to hear that, if that is one's alone.
    pub(super) fn best(&self, from: SocketAddr, to: SocketAddr) -> Option<FlowId> {
        let best = self.sockets.iter().filter_map(|bound| bound.fits(from, to)).max()?;
        let mut equal = self.sockets.iter().filter(|bound| bound.fits(from, to) == Some(best));
        let last = equal.next_back()?;
        let shared = last.reuse == Reuse::Port && last.remote.is_none() && equal.any(|bound| bound.reuse == Reuse::Port);
        (!shared).then_some(last.socket)
    }

    /// Sockets that speak to that peer from there.
    pub(super) fn with_peer(&self, local: SocketAddr, remote: SocketAddr) -> impl Iterator<Item = FlowId> + '_ {
        let speaks = move |bound: &&Bound| bound.remote == Some(remote) && bound.fits(remote, local).is_some();
        self.sockets.iter().filter(speaks).map(|bound| bound.socket)
    }

    pub(super) fn add<Q: Queues>(&mut self, now: Instant, ring: &Ring<Q>, socket: FlowId, reuse: Reuse) {
        if let Some(info) = ring.info(socket) {
            self.sockets.push(Bound { socket, local: info.local, remote: info.remote, reuse, accepted: false });
        }
        self.change(now);
    }

    /// Whether it was the last one.
    pub(super) fn remove(&mut self, now: Instant, socket: FlowId) -> bool {
        self.sockets.retain(|bound| bound.socket != socket);
        self.change(now);
        self.sockets.is_empty()
    }

    /// A UDP socket has a peer, or none any more.
    pub(super) fn reconnected<Q: Queues>(&mut self, now: Instant, ring: &Ring<Q>, socket: FlowId) {
        let Some(at) = self.sockets.iter().position(|bound| bound.socket == socket) else { return };
        let reuse = self.sockets.remove(at).reuse;
        self.add(now, ring, socket, reuse);
    }

    fn change(&mut self, now: Instant) {
        self.changed_at = now;
        self.clients.clear();
    }

    /// A client's connection was accepted.
    pub(super) fn accepted<Q: Queues>(
        &mut self,
        moment: &Moment,
        ring: &Ring<Q>,
        listener: FlowId,
        (client, began_at): (SocketAddr, Option<Instant>),
    ) {
        let [first, _, ..] = self.sockets[..] else { return };
        // (Who came before a listener did went to those that were there.)
        if began_at.is_some_and(|at| at > self.changed_at + SOON) {
            self.clients.insert(client);
        }
        self.sockets.iter_mut().filter(|bound| bound.socket == listener).for_each(|bound| bound.accepted = true);
        if self.clients.len() < CLIENTS_EACH * self.sockets.len() {
            return;
        }
        // (Those that wait to be accepted, which poll(2) tells, were shared out as well.)
        let idle = |bound: &&Bound| !bound.accepted && !ring.readiness(bound.socket).contains(Readiness::IN);
        if let Some(idle) = self.sockets.iter().find(idle) {
            let (clients, local) = (self.clients.len(), first.local);
            moment.breach(NAME, format_args!("SO_REUSEPORT: none of {clients} clients of {local} came to {idle:?} of {:?}", self.sockets));
        }
        self.clients.clear();
    }

    /// A datagram was read from a socket, to which it must have been the one to go.
    pub(super) fn read(&self, moment: &Moment, socket: FlowId, datagram: &Datagram) {
        if self.sockets.len() < 2 || datagram.to.is_multicast() || datagram.received <= self.changed_at + SOON {
            return;
        }
        let (from, to) = (datagram.from, SocketAddr::new(datagram.to, self.sockets[0].local.port()));
        let best = self.sockets.iter().filter_map(|bound| bound.fits(from, to)).max();
        let equal = || self.sockets.iter().filter(|bound| bound.fits(from, to) == best);
        let lawful = |last: &Bound| match last.reuse {
            Reuse::Port if last.remote.is_none() => equal().any(|bound| bound.socket == socket && bound.reuse == Reuse::Port),
            _ => last.socket == socket,
        };
        if best.is_none() || !equal().next_back().is_some_and(lawful) {
            let all = &self.sockets;
            moment.breach(NAME, format_args!("udp(7): {socket:?} read what {from} sent to {to}, which others of {all:?} fit better"));
        }
    }
}
