//! UDP sockets of SO_REUSEADDR on interfaces.
//!
//! Others may come to have such a socket's address, and of those who have it the kernel gives all datagrams to one. So what comes for it by an interface is its
//! ring's as long as no other socket of the network namespace has the port, and the kernel's else. Most of them are alone: their programs want to be started again
//! at once. Sockets of this process that come to a port are seen at once; the kernel is asked for those of others every [`LOOK`].
//!
//! What has come by the ring until then is read before what the kernel has: it goes to the socket's flow on shared memory.

use core::time::Duration;
use std::io::IoSliceMut;

use ringway_host::netlink::SocketDiag;
use ringway_stack::Instant;
use ringway_stack::device::Protocol;
use ringway_stack::ring::{RecvFlags, Reuse};

use super::flows::{Flow, now};
use super::{Kind, Socket, sharing};
use crate::mux;
use crate::process::Offload;
use crate::slab::Key;

/// How often the kernel is asked who else has come.
const LOOK: Duration = Duration::from_millis(250);

/// Ports that the kernel is asked about: each time it goes through all UDP sockets for each. Those of more sockets are the kernel's.
const PORTS_MAX: usize = 64;

/// The longest datagram.
const DATAGRAM_MAX: usize = 65_535;

/// When they are to be looked at again, if there are any.
#[derive(Debug, Default)]
pub(crate) struct SharedPorts {
    look_at: Option<Instant>,
}

impl Socket {
    /// Whether others may come to have its address, as the kernel has it: the last of them all of what comes.
    fn may_come_to_share(&self) -> bool {
        self.protocol == Protocol::Udp && self.udp.reuse == Reuse::Address && !self.reuse_port
    }
}

impl Offload {
    /// Whether others may come to have a socket's address, by SO_REUSEADDR.
    pub(super) fn may_come_to_share(&self, key: Key) -> bool {
        self.sockets.find(key).is_some_and(Socket::may_come_to_share)
    }

    /// A socket is about to have flows: it has a port, which it may be alone at.
    pub(super) fn look_at_port_of(&mut self, key: Key) {
        let Some(socket) = self.sockets.find(key).filter(|_| self.interfaces.is_some()) else { return };
        let (true, Some(bound)) = (socket.protocol == Protocol::Udp, socket.bound) else { return };
        if !socket.may_come_to_share() {
            return;
        }
        let is_there = |other: &Socket| other.may_come_to_share() && other.bound.is_some_and(|at| at.port() == bound.port());
        let keys: Vec<Key> = self.sockets.iter().filter(|(_, other)| is_there(other)).map(|(key, _)| key).collect();
        self.settle_ports(&keys);
        if self.shared_ports.look_at.is_none() {
            self.shared_ports.look_at = Some(now() + LOOK);
            // (The progress thread looks, and may be asleep for longer.)
            self.mux.call_progress();
        }
    }

    /// What is due is looked at. For how long nothing is. For the progress thread.
    pub(crate) fn look_after_shared_ports(&mut self, now: Instant) -> Option<Duration> {
        if self.shared_ports.look_at.is_some_and(|at| at <= now) {
            let is_there = |socket: &Socket| socket.may_come_to_share() && matches!(socket.kind, Kind::Datagram(Some(_)));
            let keys: Vec<Key> = self.sockets.iter().filter(|(_, socket)| is_there(socket)).map(|(key, _)| key).collect();
            self.settle_ports(&keys);
            self.shared_ports.look_at = (!keys.is_empty()).then(|| now + LOOK);
            self.dispatch();
        }
        Some(self.shared_ports.look_at?.since(now))
    }

    fn settle_ports(&mut self, keys: &[Key]) {
        let mut diag = (keys.len() <= PORTS_MAX).then(SocketDiag::open).and_then(Result::ok);
        for &key in keys {
            let Some(socket) = self.sockets.find(key) else { continue };
            let is_alone = diag.as_mut().is_some_and(|diag| is_alone(diag, socket));
            if is_alone == socket.is_alone_at_port {
                continue;
            }
            if !is_alone {
                self.take_to_shared_memory(key);
            }
            if let Some(socket) = self.sockets.find_mut(key) {
                socket.is_alone_at_port = is_alone;
                tracing::debug!(
                    "port {:?} {}",
                    socket.bound,
                    if is_alone { "is one socket's" } else { "is shared, and the kernel's on interfaces" }
                );
            }
            self.fit_flows(key);
            mux::refresh(self, key.index);
        }
    }

    /// What waits in a socket's flows on interfaces, which are about to be closed, is to be read from that on shared memory.
    pub(super) fn take_to_shared_memory(&mut self, key: Key) {
        let Some(socket) = self.sockets.find(key) else { return };
        let (there, within): (Vec<Flow>, Vec<Flow>) =
            socket.flows_and_addresses().partition(|flow| self.rings.interfaces.contains(flow.id.ring));
        let mut bytes = Vec::new();
        for flow in there.into_iter().filter(|flow| !flow.at.is_multicast()) {
            let Some(to) = within.iter().find(|to| to.at.is_ipv4() == flow.at.is_ipv4()) else { continue };
            // (What comes from now on is the kernel's; what was on its way still comes here.)
            if let Err(error) = self.rings.of_mut(flow.id).udp_let_go(flow.id) {
                tracing::debug!("a socket's rule ends with its flow: {error}");
            }
            self.take_all_in(flow.id.ring, now());
            bytes.resize(DATAGRAM_MAX, 0);
            while let Ok(datagram) = self.rings.of_mut(flow.id).udp_recv(flow.id, &mut [IoSliceMut::new(&mut bytes)], RecvFlags::empty()) {
                if self.rings.of_mut(to.id).udp_requeue(to.id, &datagram, &bytes[..datagram.copied]).is_err() {
                    break;
                }
            }
        }
    }
}

/// Whether no other socket of the network namespace has its port. (Where the kernel does not say, others may.)
fn is_alone(diag: &mut SocketDiag, socket: &Socket) -> bool {
    let Some(bound) = socket.bound else { return false };
    match diag.at_port(Protocol::Udp, bound.port(), true).as_deref() {
        Ok([one]) => one.cookie == sharing::cookie_of(socket.fd),
        Ok(_) => false,
        Err(error) => {
            tracing::debug!("port {} is the kernel's on interfaces, which does not say who has it: {error}", bound.port());
            false
        }
    }
}
