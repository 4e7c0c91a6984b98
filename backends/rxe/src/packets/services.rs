//! Ports that anybody may send to: each is listened at in RDMA_PS_UDP, and who asks is told the ring's queue pair.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use rdma_core_sys as sys;
use ringway_stack::device::{Protocol, RuleError};
use ringway_stack::ud::VERSION;

use super::presences::answer_of;
use crate::cm::{Depths, Event, EventChannel, Id};

/// What is in a request's private data: the version of our header, and the protocol's number.
pub(crate) const fn asked_for(protocol: Protocol) -> [u8; 2] {
    match protocol {
        Protocol::Tcp => [VERSION, 6],
        Protocol::Udp => [VERSION, 17],
    }
}

/// Requests that wait for an answer, of one port.
const BACKLOG: usize = 128;

#[derive(Debug)]
struct Service {
    /// Listens for as long as it is there.
    _id: Id,
    number: u32,
    /// How many rules of TCP and of UDP it stands for.
    rules: [u32; 2],
}

/// All of a device's.
#[derive(Debug, Default)]
pub(crate) struct Services(BTreeMap<SocketAddr, Service>);

const fn place(protocol: Protocol) -> usize {
    match protocol {
        Protocol::Tcp => 0,
        Protocol::Udp => 1,
    }
}

impl Services {
    /// One more rule for a port. `number`: for its events, should it be the first.
    pub(crate) fn add(&mut self, channel: &Arc<EventChannel>, number: u32, protocol: Protocol, at: SocketAddr) -> Result<(), RuleError> {
        if let Some(known) = self.0.get_mut(&at) {
            known.rules[place(protocol)] += 1;
            return Ok(());
        }
        let listen = || -> io::Result<Id> {
            let id = Id::new(channel, sys::RDMA_PS_UDP, number)?;
            id.bind(at)?;
            id.listen(BACKLOG)?;
            Ok(id)
        };
        let id = listen().map_err(|error| {
            tracing::debug!("no service at {at}: {error}");
            if error.raw_os_error() == Some(libc::EADDRINUSE) { RuleError::Taken } else { RuleError::Full }
        })?;
        let mut rules = [0; 2];
        rules[place(protocol)] = 1;
        self.0.insert(at, Service { _id: id, number, rules });
        Ok(())
    }

    /// One less.
    pub(crate) fn remove(&mut self, protocol: Protocol, at: SocketAddr) {
        let Some(known) = self.0.get_mut(&at) else { return };
        let count = &mut known.rules[place(protocol)];
        *count = count.saturating_sub(1);
        if known.rules == [0; 2] {
            self.0.remove(&at);
        }
    }

    /// Answers who asks. `qpn`: the ring's queue pair, if it has one; `presence_at`: where connections to an address are taken by which it is known that we are there.
    pub(crate) fn answer(&self, event: Event, qpn: Option<u32>, presence_at: impl FnOnce(IpAddr) -> u16) {
        let Some(asker) = event.incoming else { return };
        let service = self.0.values().find(|service| service.number == event.number);
        // (Other private data are another program's, or another version's.)
        let is_ours = |protocol| event.private_data.starts_with(&asked_for(protocol));
        let has = |service: &Service, protocol| service.rules[place(protocol)] > 0 && is_ours(protocol);
        let is_there = service.is_some_and(|service| has(service, Protocol::Tcp) || has(service, Protocol::Udp));
        match qpn.filter(|_| is_there) {
            Some(qpn) => {
                let presence = asker.names().0.map_or(0, |local| presence_at(local.ip()));
                if let Err(error) = asker.accept(qpn, Depths::default(), &answer_of(presence)) {
                    tracing::debug!("who asks is not answered: {error}");
                }
            }
            None => asker.reject(),
        }
    }

    /// All end.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_asks_says_for_which_protocol_and_in_which_version() {
        assert_eq!([asked_for(Protocol::Tcp), asked_for(Protocol::Udp)], [[1, 6], [1, 17]]);
    }

    #[test]
    fn what_is_not_there_is_not_taken_away() {
        let mut services = Services::default();
        services.remove(Protocol::Udp, "10.9.0.1:7".parse().unwrap());
        assert!(services.0.is_empty());
    }
}
