//! Ports: those that are taken, and those that are listened at. A port is an identifier of librdmacm's that is bound to it, so that the kernel knows of it.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use rdma_core_sys as sys;
use ringway_stack::device::messages::{CmError, NoWay};
use ringway_stack::device::{Protocol, RuleError, RuleId};

use crate::adapter::Adapter;
use crate::cm::Id;
use crate::memory::CardMemory;

/// A port that was taken.
#[derive(Debug)]
struct Port {
    at: SocketAddr,
    /// `None`: it is one for datagrams, which whoever takes it has by a UDP socket.
    id: Option<Id>,
    listens: bool,
}

/// The ports of a process.
#[derive(Debug, Default)]
pub(crate) struct Ports {
    taken: BTreeMap<RuleId, Port>,
    next: u64,
}

impl Ports {
    fn insert(&mut self, port: Port) -> RuleId {
        self.next += 1;
        self.taken.insert(RuleId(self.next), port);
        RuleId(self.next)
    }

    /// The identifier of a port that is taken, and not listened at: a connection goes out from there.
    pub(crate) fn take(&mut self, at: SocketAddr) -> Option<Id> {
        let port = self.taken.values_mut().find(|port| port.at == at && !port.listens)?;
        port.id.take()
    }
}

impl<M: CardMemory> Adapter<M> {
    /// Takes a port; of connections, from everybody on this machine.
    ///
    /// # Errors
    /// [`RuleError::Taken`]; [`RuleError::Full`]: the system has no room for one more, or the address is none of its own.
    pub fn claim(&mut self, protocol: Protocol, at: SocketAddr) -> Result<RuleId, RuleError> {
        let id = match protocol {
            Protocol::Tcp => Some(self.bound(at).map_err(|error| match error.raw_os_error() {
                Some(libc::EADDRINUSE) => RuleError::Taken,
                _ => RuleError::Full,
            })?),
            Protocol::Udp => None,
        };
        Ok(self.ports.insert(Port { at, id, listens: false }))
    }

    /// Gives one back. Whoever listened there does so no more.
    pub fn give_up(&mut self, rule: RuleId) {
        self.ports.taken.remove(&rule);
    }

    fn bound(&self, at: SocketAddr) -> io::Result<Id> {
        let id = Id::new(self.channel()?, sys::RDMA_PS_TCP, 0)?;
        id.bind(at)?;
        Ok(id)
    }

    /// Listens at a port that was taken, or takes it.
    pub(crate) fn listen_at(&mut self, at: SocketAddr, backlog: usize) -> Result<(), CmError> {
        // (`::` stands for IPv4's addresses, too, where those were taken as well.)
        let is_all = at.ip() == IpAddr::V6(Ipv6Addr::UNSPECIFIED);
        let is_it = |port: &Port| port.at == at || is_all && port.at.ip().is_unspecified() && port.at.port() == at.port();
        if !self.ports.taken.values().any(|port| is_it(port) && port.id.is_some()) {
            let id = Some(self.bound(at).map_err(|error| refusal(&error))?);
            self.ports.insert(Port { at, id, listens: false });
        }
        for port in self.ports.taken.values_mut().filter(|port| is_it(port)) {
            let Some(id) = &port.id else { continue };
            id.listen(backlog).map_err(|error| refusal(&error))?;
            port.listens = true;
        }
        Ok(())
    }

    /// Listens no more.
    pub(crate) fn unlisten_at(&mut self, number: u16) {
        self.ports.taken.retain(|_, port| !port.listens || port.at.port() != number);
    }
}

/// Why a call of librdmacm's was refused.
pub(crate) fn refusal(error: &io::Error) -> CmError {
    match error.raw_os_error() {
        Some(libc::EADDRINUSE) => CmError::InUse,
        Some(libc::EOPNOTSUPP) => CmError::Unsupported,
        Some(libc::EADDRNOTAVAIL) => CmError::Unroutable,
        Some(libc::ENOMEM | libc::EMFILE | libc::ENFILE | libc::ENOSPC | libc::EAGAIN) => CmError::Full,
        errno => errno.and_then(NoWay::of_errno).map_or(CmError::State, CmError::NoWay),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_system_says_has_one_reason_each() {
        let of = |errno| refusal(&io::Error::from_raw_os_error(errno));
        assert_eq!([of(libc::EADDRINUSE), of(libc::ENODEV)], [CmError::InUse, CmError::NoWay(NoWay::Device)]);
        assert_eq!([of(libc::ENOMEM), of(libc::EINVAL)], [CmError::Full, CmError::State]);
    }
}
