//! Which ports identifiers are bound to, as the kernel's rdma_cm has it (drivers/infiniband/core/cma.c): those of a port space are one identifier's each, whatever its process, but for those that may be used again.
//! IPv4's and IPv6's are told apart, as the port has addresses of one family alone.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use ringway_host::Fd;
use ringway_preload::Errno;
use ringway_stack::device::messages::PortSpace;

use crate::bus::Bus;

/// The first port for who asks for any.
const EPHEMERAL_MIN: u16 = 32_768;

/// Ports, by the numbers of their identifiers.
#[derive(Debug, Default)]
pub(super) struct Ports {
    taken: BTreeMap<u32, Taken>,
    /// How many were asked for.
    asked: u16,
}

#[derive(Debug)]
struct Taken {
    key: (&'static str, u16),
    /// What keeps it on the bus.
    _claim: Option<Fd>,
}

fn kind_of(space: PortSpace, at: SocketAddr) -> &'static str {
    match (space, at.is_ipv4()) {
        (PortSpace::Tcp, true) => "tcp4",
        (PortSpace::Tcp, false) => "tcp6",
        (PortSpace::Udp, true) => "udp4",
        (PortSpace::Udp, false) => "udp6",
        (PortSpace::Ipoib, true) => "ipoib4",
        (PortSpace::Ipoib, false) => "ipoib6",
    }
}

impl Ports {
    /// Takes the port of an address for an identifier, or any if it is zero, in place of the one that it had; gives the address with it. `reuses`: others may have it as well.
    ///
    /// # Errors
    /// EADDRINUSE: it is another's; EADDRNOTAVAIL: all are.
    pub(super) fn take(&mut self, bus: &Bus, number: u32, space: PortSpace, at: SocketAddr, reuses: bool) -> Result<SocketAddr, Errno> {
        let kind = kind_of(space, at);
        if at.port() == 0 {
            let port = self.free_port(bus, number, kind).ok_or(Errno(libc::EADDRNOTAVAIL))?;
            return Ok(SocketAddr::new(at.ip(), port));
        }
        if !reuses && self.claim(bus, number, (kind, at.port())).is_none() {
            return Err(Errno(libc::EADDRINUSE));
        }
        Ok(at)
    }

    fn free_port(&mut self, bus: &Bus, number: u32, kind: &'static str) -> Option<u16> {
        let count = u16::MAX - EPHEMERAL_MIN;
        // (One that was just given back is not the next one's; nor do processes all begin with the same.)
        self.asked = self.asked.wrapping_add(1);
        let first = (u32::from(self.asked) + std::process::id().wrapping_mul(7919)) % u32::from(count);
        let ports = (0..count).map(|step| EPHEMERAL_MIN + ((first + u32::from(step)) % u32::from(count)) as u16);
        ports.into_iter().find(|port| self.claim(bus, number, (kind, *port)).is_some())
    }

    fn claim(&mut self, bus: &Bus, number: u32, key: (&'static str, u16)) -> Option<()> {
        if self.taken.get(&number).is_some_and(|taken| taken.key == key) {
            return Some(());
        }
        // (On a bus that is a folder, this process's are known alone.)
        if self.taken.iter().any(|(other, taken)| *other != number && taken.key == key) {
            return None;
        }
        let claim = bus.claim_port(key.0, key.1).ok()?;
        self.taken.insert(number, Taken { key, _claim: claim });
        Some(())
    }

    /// An identifier has its port no more.
    pub(super) fn give_up(&mut self, number: u32) {
        self.taken.remove(&number);
    }

    /// Only some identifiers are left.
    pub(super) fn retain(&mut self, is_left: impl Fn(u32) -> bool) {
        self.taken.retain(|number, _| is_left(*number));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_one_identifier_s_on_the_whole_bus() {
        let name = format!("ports-{}", std::process::id());
        let (bus, other_bus) = (Bus::join(name.clone()).unwrap(), Bus::join(name).unwrap());
        let (mut ports, mut others) = (Ports::default(), Ports::default());
        let at = |text: &str| text.parse::<SocketAddr>().unwrap();
        let tcp = PortSpace::Tcp;
        assert_eq!(ports.take(&bus, 1, tcp, at("0.0.0.0:7471"), false), Ok(at("0.0.0.0:7471")));
        let taken = Err(Errno(libc::EADDRINUSE));
        assert_eq!(ports.take(&bus, 2, tcp, at("127.0.0.1:7471"), false), taken);
        assert_eq!(others.take(&other_bus, 1, tcp, at("127.0.0.1:7471"), false), taken);
        assert!(others.take(&other_bus, 1, tcp, at("127.0.0.1:7471"), true).is_ok());
        assert!(ports.take(&bus, 3, PortSpace::Udp, at("0.0.0.0:7471"), false).is_ok());
        assert!(ports.take(&bus, 4, tcp, at("[::]:7471"), false).is_ok());
        ports.give_up(1);
        assert!(others.take(&other_bus, 1, tcp, at("127.0.0.1:7471"), false).is_ok());
        let mut any = |number| ports.take(&bus, number, tcp, at("127.0.0.1:0"), false).unwrap().port();
        let (first, second) = (any(5), any(6));
        assert!(first >= EPHEMERAL_MIN && second >= EPHEMERAL_MIN && first != second);
        ports.retain(|number| number == 6);
        assert!(others.take(&other_bus, 2, tcp, at(&format!("0.0.0.0:{first}")), false).is_ok());
        assert_eq!(others.take(&other_bus, 3, tcp, at(&format!("0.0.0.0:{second}")), false), taken);
    }
}
