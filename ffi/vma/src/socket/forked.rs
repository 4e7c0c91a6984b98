//! Listeners and UDP sockets on interfaces, and forks.
//!
//! What comes by an interface comes to the process that has its rings, and the others that have the socket find what the kernel has. Who of them is to have it nobody can
//! tell when the fork happens. So from then on it is the kernel's, until it is known:
//!
//! - A listener's rule is withdrawn: who connects meanwhile comes by the kernel, to whichever process accepts first. What has come by the ring already stays there, to be
//!   accepted. As soon as this process waits at the listener again (a server that forks for each connection, or runs some program), it has its rule back. Connections
//!   that the kernel has by then stay the kernel's (`queues/kernels.rs` of the device).
//! - A UDP socket has no flows on interfaces until no other process has it: its children have ended, or become other programs.

use ringway_stack::device::Protocol;

use super::Socket;
use super::flows::Flow;
use crate::process::Offload;
use crate::slab::Key;
use crate::{errno, mux};

impl Offload {
    /// Before a fork.
    pub(crate) fn share_flows(&mut self) {
        self.share_groups();
        let interfaces = self.rings.interfaces;
        let is_there = |socket: &Socket| socket.first_flow().is_some() && !socket.rings().and(interfaces).is_empty();
        let keys: Vec<Key> = self.sockets.iter().filter(|(_, socket)| is_there(socket)).map(|(key, _)| key).collect();
        if !keys.is_empty() {
            mux::epoll::leave_listeners(self);
        }
        for key in keys {
            self.leave_interfaces(key);
        }
    }

    /// What comes for a listener, or a UDP socket, by interfaces is the kernel's, for another process may have it.
    pub(crate) fn leave_interfaces(&mut self, key: Key) {
        let interfaces = self.rings.interfaces;
        let Some(socket) = self.sockets.find_mut(key).filter(|socket| !socket.rings().and(interfaces).is_empty()) else { return };
        socket.is_left_by_fork = true;
        // (A card's rules have no exceptions for what the kernel accepts meanwhile: there it stays the kernel's.)
        let has_exceptions = socket.rings().and(interfaces).iter().all(|ring| self.rings.at(ring).ring.exempter().is_some());
        if !has_exceptions {
            socket.stays_within = true;
        } else if socket.protocol == Protocol::Tcp {
            let flows: Vec<Flow> = socket.flows_and_addresses().filter(|flow| interfaces.contains(flow.id.ring)).collect();
            flows.iter().for_each(|flow| self.rings.of_mut(flow.id).tcp_withdraw(flow.id));
            return;
        }
        if has_exceptions {
            self.take_to_shared_memory(key);
        }
        // (What came for groups is to be read.)
        self.retain_flows(key, |flow| !interfaces.contains(flow.id.ring) || flow.at.is_multicast());
    }

    /// This process waits at a listener: what comes by interfaces is its own again.
    #[cold]
    pub(crate) fn return_to_interfaces(&mut self, key: Key) {
        let interfaces = self.rings.interfaces;
        let Some(socket) = self.sockets.find_mut(key) else { return };
        // (A wait leaves errno alone.)
        let saved = errno::current();
        socket.is_left_by_fork = false;
        if socket.protocol == Protocol::Tcp {
            let flows: Vec<Flow> = socket.flows_and_addresses().filter(|flow| interfaces.contains(flow.id.ring)).collect();
            for flow in flows {
                if let Err(error) = self.rings.of_mut(flow.id).tcp_publish(flow.id) {
                    tracing::info!("what comes for {} by an interface is the kernel's: {error}", flow.at);
                    self.close_flow(key, flow.id);
                }
            }
        }
        self.fit_flows(key);
        self.want_interfaces();
        mux::refresh(self, key.index);
        self.dispatch();
        errno::set(saved);
    }

    /// UDP sockets that no other process has any more are interfaces' again. Whether some still are others', too.
    pub(crate) fn return_datagrams(&mut self, youngest_child: u32) -> bool {
        if self.parent.is_some() {
            return self.has_datagrams_left();
        }
        let is_left = |socket: &Socket| socket.is_left_by_fork && socket.protocol == Protocol::Udp;
        let left: Vec<(Key, u32)> =
            self.sockets.iter().filter(|(_, socket)| is_left(socket)).map(|(key, socket)| (key, socket.birth)).collect();
        let (shared, own): (Vec<_>, Vec<_>) = left.into_iter().partition(|&(_, birth)| birth < youngest_child);
        own.into_iter().for_each(|(key, _)| self.return_to_interfaces(key));
        !shared.is_empty()
    }

    /// Whether there are such.
    pub(crate) fn has_datagrams_left(&self) -> bool {
        self.sockets.iter().any(|(_, socket)| socket.is_left_by_fork && socket.protocol == Protocol::Udp)
    }
}
