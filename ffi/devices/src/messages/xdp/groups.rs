//! Groups on an interface: the kernel is a member for the process, and tells the network so (IGMP, MLD), as its RDMA core is when a program joins one.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};

use ringway_host::Fd;
use ringway_stack::net::LinkId;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with, sockopt};

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Memberships {
    link: LinkId,
    /// The kernel is a member as long as these are open.
    of: BTreeMap<IpAddr, Fd>,
}

impl Memberships {
    /// None yet, on that interface.
    pub(super) const fn new(link: LinkId) -> Self {
        Self { link, of: BTreeMap::new() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.of.is_empty()
    }

    /// Twice is once.
    ///
    /// # Errors
    /// The kernel's.
    pub(super) fn join(&mut self, group: IpAddr) -> rustix::io::Result<()> {
        if self.of.contains_key(&group) {
            return Ok(());
        }
        let family = if group.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let socket = Fd::of(|| socket_with(family, SocketType::DGRAM, SocketFlags::CLOEXEC, None))?;
        match group {
            IpAddr::V4(group) => sockopt::set_ip_add_membership_with_ifindex(&socket, &group, &Ipv4Addr::UNSPECIFIED, self.link.0)?,
            IpAddr::V6(group) => sockopt::set_ipv6_add_membership(&socket, &group, self.link.0)?,
        }
        self.of.insert(group, socket);
        Ok(())
    }

    /// Ends all others.
    pub(super) fn retain(&mut self, heard: &BTreeSet<IpAddr>) {
        self.of.retain(|group, _| heard.contains(group));
    }
}
