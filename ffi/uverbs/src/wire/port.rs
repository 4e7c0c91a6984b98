//! Which interface the port is plugged into, and what it has to say of the port.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::OnceLock;

use ringway_host::netlink::Monitor;
use ringway_stack::net::{LinkId, Tables};
use ringway_stack::roce::qp::Mtu;

use crate::log;

/// The interface's name, in the environment.
const WIRE: &str = "RINGWAY_CONNECTX_WIRE";

/// A port on an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Port {
    /// The interface's name.
    pub(crate) name: String,
    /// Its number.
    pub(crate) link: LinkId,
    /// Its first address, which is the port's GID.
    pub(crate) address: Ipv4Addr,
    /// Its Ethernet address.
    pub(crate) mac: [u8; 6],
    /// The longest IP packet that it carries, in bytes.
    pub(crate) mtu: u32,
}

/// Where the port is plugged in.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Plug {
    /// Nowhere but on the bus of this machine.
    Bus,
    /// On an interface that is not there, or has no IPv4 address: there is no carrier. A line on standard error has said so.
    Nothing,
    /// On an interface.
    Interface(&'static Port),
}

/// Where it is. An interface is looked at once.
pub(crate) fn plug() -> Plug {
    static PORT: OnceLock<Option<Port>> = OnceLock::new();
    let Some(name) = name() else { return Plug::Bus };
    match PORT.get_or_init(|| look(&name)) {
        Some(port) => Plug::Interface(port),
        None => Plug::Nothing,
    }
}

/// The interface that was asked for.
pub(crate) fn name() -> Option<String> {
    std::env::var(WIRE).ok().filter(|name| !name.is_empty())
}

fn look(name: &str) -> Option<Port> {
    let monitor = Monitor::open().map_err(|error| log::warn(format_args!("{WIRE}={name}: {error}"))).ok()?;
    let port = of(monitor.tables(), name);
    if port.is_none() {
        log::warn(format_args!(
            "{WIRE}={name}: there is no Ethernet interface of that name that has an IPv4 address, in this network namespace"
        ));
    }
    port
}

fn of(tables: &Tables, name: &str) -> Option<Port> {
    let link = tables.link_named(name)?;
    let address = tables.addresses_of(link.id).iter().find_map(|own| match own.address {
        IpAddr::V4(address) => Some(address),
        IpAddr::V6(_) => None,
    })?;
    Some(Port { name: name.to_owned(), link: link.id, address, mac: link.address.ethernet()?, mtu: link.mtu })
}

impl Port {
    /// The longest payload of a packet of RoCE.
    pub(crate) fn roce_mtu(&self) -> Mtu {
        Mtu::fitting(self.mtu as usize).unwrap_or(Mtu::B256)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_that_is_not_there_is_no_port() {
        let monitor = Monitor::open().unwrap();
        assert_eq!(of(monitor.tables(), "no such"), None);
        // (It has no Ethernet address, or one of zeros.)
        assert!(of(monitor.tables(), "lo").is_none_or(|port| port.mac == [0; 6]));
    }
}
