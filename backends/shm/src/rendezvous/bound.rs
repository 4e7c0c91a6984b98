//! Whether the kernel agrees that an address is a member's: whoever publishes one that it has not bound gets nothing of what is sent there.
//!
//! The kernel's names for sockets say whose user they are, not which process has them; so what is told apart is the own user from nobody
//! and from others. (A process of the own user can claim what another one of that user has bound: see the promises in [`super`].)

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use ringway_stack::device::Protocol;

use super::receivers::KernelSocket;
use super::{Rendezvous, Resolved};
use crate::error::ResolveError;

/// How long the kernel is not asked again who listens.
const BELIEVED_FOR: Duration = Duration::from_secs(1);
/// Addresses that are remembered.
const ADDRESSES_MAX: usize = 1024;

/// When the kernel last said of an address that a socket of our user listens there.
#[derive(Default)]
pub(super) struct Bound(HashMap<SocketAddr, Instant>);

impl Bound {
    pub(super) fn is_known(&self, to: SocketAddr) -> bool {
        self.0.get(&to).is_some_and(|told| told.elapsed() < BELIEVED_FOR)
    }

    fn note(&mut self, to: SocketAddr) {
        if self.0.len() >= ADDRESSES_MAX {
            self.0.clear();
        }
        self.0.insert(to, Instant::now());
    }
}

impl Rendezvous {
    /// What was found for connections to `to`, if that is bound in the kernel. Never waits, and takes a system call once a second at most.
    pub(super) fn if_bound(&self, protocol: Protocol, to: SocketAddr, found: Option<Resolved>) -> Result<Option<Resolved>, ResolveError> {
        let is_others = found.as_ref().is_some_and(|found| found.link.peer.id != self.member.id);
        if !self.listeners_are_bound || protocol != Protocol::Tcp || !is_others || self.lock().bound.is_known(to) {
            return Ok(found);
        }
        match self.receivers.listener(to) {
            Ok(Some(socket)) if socket.uid == self.member.uid => self.lock().bound.note(to),
            Ok(Some(socket)) => return Err(ResolveError::OtherUser { uid: socket.uid }),
            Ok(None) => return Err(ResolveError::Unbound),
            // The kernel does not say.
            Err(_) => {}
        }
        Ok(found)
    }

    /// Whether a datagram's receiver can be a member's. (Another user's may be named by anybody.)
    pub(super) fn is_of_own_user(&self, socket: KernelSocket) -> bool {
        socket.uid == self.member.uid || self.lock().table.has_socket(socket.cookie)
    }
}
