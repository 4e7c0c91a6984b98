//! RTM_NEWLINK.

use ringway_stack::net::{Link, LinkAddress, LinkId, LinkKind};

use super::{Attributes, split, text_of, u8_of, u16_of, u32_of};
use crate::netlink::Error;

const WHAT: &str = "links";

/// `IFLA_VLAN_*`, `IFLA_BOND_*`, `IFLA_VRF_*` and `IFLA_INET6_*` (linux/if_link.h).
const VLAN_ID: u16 = 1;
const VLAN_PROTOCOL: u16 = 5;
const BOND_MODE: u16 = 1;
const BOND_ACTIVE_SLAVE: u16 = 2;
const VRF_TABLE: u16 = 1;
const INET6_CONF: u16 = 2;

/// Indices into IPv6's settings of a link (linux/ipv6.h).
const DEVCONF_MTU6: usize = 2;
const DEVCONF_USE_TEMPADDR: usize = 10;

/// `struct ifinfomsg` and its attributes.
pub(in super::super) fn link(payload: &[u8]) -> Result<Option<Link>, Error> {
    let (header, attributes) = split::<16>(WHAT, payload)?;
    let [family, _, t0, t1, i0, i1, i2, i3, f0, f1, f2, f3, ..] = *header;
    // (A bridge's view of its ports is none of ours.)
    if i32::from(family) != libc::AF_UNSPEC {
        return Ok(None);
    }
    let hardware = u16::from_ne_bytes([t0, t1]);
    let flags = u32::from_ne_bytes([f0, f1, f2, f3]);
    let mut link = Link::new(u32::from_ne_bytes([i0, i1, i2, i3]), "", LinkKind::Ethernet);
    link.is_up = flags & libc::IFF_UP as u32 != 0;
    link.has_carrier = flags & libc::IFF_LOWER_UP as u32 != 0;
    let (mut name, mut data) = (None, &[][..]);
    for attribute in attributes {
        let (kind, value) = attribute?;
        match kind {
            libc::IFLA_IFNAME => link.name = text_of(value),
            libc::IFLA_MTU => link.mtu = u32_of(WHAT, value)?,
            libc::IFLA_ADDRESS => link.address = hardware_address(value)?,
            libc::IFLA_BROADCAST => link.broadcast = hardware_address(value)?,
            libc::IFLA_LINK => link.parent = other_link(value)?,
            libc::IFLA_MASTER => link.master = other_link(value)?,
            libc::IFLA_LINKINFO => (name, data) = info(value)?,
            libc::IFLA_AF_SPEC => settings(value, &mut link)?,
            _ => {}
        }
    }
    link.kind = kind(hardware, name, data)?;
    Ok(Some(link))
}

fn hardware_address(value: &[u8]) -> Result<LinkAddress, Error> {
    LinkAddress::new(value).ok_or(Error::Malformed { what: WHAT })
}

/// 0 is none.
fn other_link(value: &[u8]) -> Result<Option<LinkId>, Error> {
    let id = u32_of(WHAT, value)?;
    Ok((id != 0).then_some(LinkId(id)))
}

/// IFLA_LINKINFO: the kind's name, and what it says of itself.
fn info(value: &[u8]) -> Result<(Option<Box<str>>, &[u8]), Error> {
    let (mut name, mut data) = (None, &[][..]);
    for attribute in Attributes::new(WHAT, value) {
        match attribute? {
            (libc::IFLA_INFO_KIND, value) => name = Some(text_of(value)),
            (libc::IFLA_INFO_DATA, value) => data = value,
            _ => {}
        }
    }
    Ok((name, data))
}

fn kind(hardware: u16, name: Option<Box<str>>, data: &[u8]) -> Result<LinkKind, Error> {
    let data = Attributes::new(WHAT, data);
    Ok(match name.as_deref() {
        Some("vlan") => {
            let (mut id, mut protocol) = (0, 0x8100);
            for attribute in data {
                match attribute? {
                    (VLAN_ID, value) => id = u16_of(WHAT, value)?,
                    // (In network byte order.)
                    (VLAN_PROTOCOL, value) => protocol = u16::from_be(u16_of(WHAT, value)?),
                    _ => {}
                }
            }
            LinkKind::Vlan { id, protocol }
        }
        Some("bond") => {
            let (mut mode, mut active) = (0, None);
            for attribute in data {
                match attribute? {
                    (BOND_MODE, value) => mode = u8_of(WHAT, value)?,
                    (BOND_ACTIVE_SLAVE, value) => active = other_link(value)?,
                    _ => {}
                }
            }
            LinkKind::Bond { mode, active }
        }
        Some("vrf") => {
            let mut table = 0;
            for attribute in data {
                if let (VRF_TABLE, value) = attribute? {
                    table = u32_of(WHAT, value)?;
                }
            }
            LinkKind::Vrf { table }
        }
        Some("bridge") => LinkKind::Bridge,
        Some(_) => LinkKind::Other(name.unwrap_or_default()),
        None => match hardware {
            libc::ARPHRD_LOOPBACK => LinkKind::Loopback,
            libc::ARPHRD_ETHER => LinkKind::Ethernet,
            libc::ARPHRD_INFINIBAND => LinkKind::InfiniBand,
            other => LinkKind::Other(format!("hardware type {other}").into()),
        },
    })
}

/// IFLA_AF_SPEC: what IPv6 is set to on the link.
fn settings(value: &[u8], link: &mut Link) -> Result<(), Error> {
    for family in Attributes::new(WHAT, value) {
        let (family, value) = family?;
        if i32::from(family) != libc::AF_INET6 {
            continue;
        }
        for attribute in Attributes::new(WHAT, value) {
            let (INET6_CONF, value) = attribute? else {
                continue;
            };
            let setting = |at: usize| value.chunks_exact(4).nth(at).and_then(|setting| setting.try_into().ok()).map(i32::from_ne_bytes);
            link.mtu_v6 = setting(DEVCONF_MTU6).and_then(|mtu| u32::try_from(mtu).ok());
            link.prefers_temporary = setting(DEVCONF_USE_TEMPADDR).is_some_and(|wish| wish >= 2);
        }
    }
    Ok(())
}
