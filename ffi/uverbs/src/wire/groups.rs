//! Groups on the interface: the kernel is a member for the card, and tells the network so (IGMP), as its RDMA core is when a program joins one.

use std::net::Ipv4Addr;

use ringway_host::Fd;
use ringway_stack::device::RuleId;
use ringway_stack::roce::group_mac;
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

use super::port::Port;

/// A group that is heard.
#[derive(Debug)]
pub(super) struct Group {
    /// What has its packets come here.
    pub(super) rule: RuleId,
    /// The kernel is a member as long as this is open.
    pub(super) _member: Fd,
}

/// Makes the kernel a member on the interface.
///
/// # Errors
/// The kernel's.
pub(super) fn join(port: &Port, group: Ipv4Addr) -> rustix::io::Result<Fd> {
    let socket = Fd::of(|| rustix::net::socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None))?;
    sockopt::set_ip_add_membership_with_ifindex(&socket, &group, &Ipv4Addr::UNSPECIFIED, port.link.0)?;
    Ok(socket)
}

/// Whether an address of IPv4 is a group's.
pub(super) fn is_group(address: &[u8]) -> bool {
    matches!(address, [224..=239, ..])
}

/// The Ethernet address of the group that a packet of IPv4 is for; `None`: it is for none.
pub(super) fn destination(packet: &[u8]) -> Option<[u8; 6]> {
    let &[a, b, c, d] = packet.get(16..20)? else { return None };
    group_mac(Ipv4Addr::new(a, b, c, d).into()).map(|mac| mac.0)
}
