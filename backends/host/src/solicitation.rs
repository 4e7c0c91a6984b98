//! A question for a neighbour of IPv6 (RFC 4861 s4.3), sent by a raw socket of the kernel's.
//!
//! The kernel asks from an address of the packet's that waits for the answer, and has none where it is only told that a neighbour is in use
//! ([`crate::Monitor::use_neighbour`]). Then it asks from the link's own address (fe80::/10), and not at all as long as that is under duplicate address
//! detection: for one to two seconds after the link has come up. The answer to this question is the kernel's, whoever sent it.

use core::net::{IpAddr, Ipv6Addr, SocketAddrV6};
use std::io;

use ringway_stack::net::{LinkId, Query, Tables};
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, bind, ipproto, sendto, socket_with, sockopt};

/// RFC 4861 s4.3, s4.6.1.
const NEIGHBOR_SOLICITATION: u8 = 135;
const SOURCE_LINK_LAYER_ADDRESS: u8 = 1;
/// RFC 4861 s4.3: whoever hears another one knows that a router was between.
const HOP_LIMIT: u32 = 255;

/// Asks for a neighbour that the kernel, told that it is in use, cannot ask for yet. (If that fails, the kernel can in a moment.)
pub(crate) fn ask_where_needed(tables: &Tables, link: LinkId, neighbour: IpAddr) {
    let IpAddr::V6(address) = neighbour else { return };
    if is_needed(tables, link, neighbour)
        && let Err(error) = ask(tables, link, address)
    {
        tracing::debug!("no question for {neighbour}: {error}");
    }
}

/// Whether the kernel cannot ask for a neighbour that it is told is in use.
fn is_needed(tables: &Tables, link: LinkId, neighbour: IpAddr) -> bool {
    let asks = |own: &ringway_stack::net::Address| {
        own.link == link
            && matches!(own.address, IpAddr::V6(address) if address.is_unicast_link_local())
            && (!own.is_tentative || own.is_optimistic)
    };
    neighbour.is_ipv6() && !tables.addresses().iter().any(asks)
}

/// Asks for it, by its link. `Ok(false)`: there is no address to ask from, or the link is no Ethernet.
fn ask(tables: &Tables, link: LinkId, neighbour: Ipv6Addr) -> io::Result<bool> {
    let source = tables.route(&Query { link: Some(link), ..Query::to(neighbour.into()) }).ok().map(|route| route.source);
    let mac = tables.link(link).and_then(|link| link.address.ethernet());
    let (Some(IpAddr::V6(source)), Some(mac)) = (source, mac) else { return Ok(false) };
    let socket = socket_with(AddressFamily::INET6, SocketType::RAW, SocketFlags::CLOEXEC, Some(ipproto::ICMPV6))?;
    sockopt::set_ipv6_multicast_hops(&socket, HOP_LIMIT)?;
    bind(&socket, &SocketAddrV6::new(source, 0, 0, link.0))?;
    let to = SocketAddrV6::new(solicited_node(neighbour), 0, 0, link.0);
    sendto(&socket, &message(neighbour, mac), SendFlags::DONTWAIT, &to)?;
    Ok(true)
}

/// The group that whoever has this address is a member of (RFC 4291 s2.7.1).
fn solicited_node(address: Ipv6Addr) -> Ipv6Addr {
    let [.., a, b, c] = address.octets();
    Ipv6Addr::from([0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, a, b, c])
}

/// (Its checksum is the kernel's to fill in: RFC 3542 s3.1.)
fn message(target: Ipv6Addr, mac: [u8; 6]) -> [u8; 32] {
    let mut message = [0; 32];
    message[0] = NEIGHBOR_SOLICITATION;
    message[8..24].copy_from_slice(&target.octets());
    (message[24], message[25]) = (SOURCE_LINK_LAYER_ADDRESS, 1);
    message[26..].copy_from_slice(&mac);
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 4291 s2.7.1 has this example.
    #[test]
    fn the_group_of_an_address() {
        assert_eq!(solicited_node("4037::01:800:200e:8c6c".parse().unwrap()), "ff02::1:ff0e:8c6c".parse::<Ipv6Addr>().unwrap());
    }

    #[test]
    fn a_question_has_the_target_and_who_asks() {
        let target: Ipv6Addr = "fd77::2".parse().unwrap();
        let message = message(target, [2, 0, 0, 0, 0, 0x0a]);
        assert_eq!((message[0], &message[8..24], &message[24..]), (135, &target.octets()[..], &[1, 1, 2, 0, 0, 0, 0, 0x0a][..]));
    }
}
