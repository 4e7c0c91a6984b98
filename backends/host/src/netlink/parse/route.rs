//! RTM_NEWROUTE.

use core::net::IpAddr;

use ringway_stack::net::{LinkId, NextHop, Preference, Prefix, RouteEntry, RouteKind, Scope, Table};

use super::{Attributes, family_of, ip_of, split, u8_of, u16_of, u32_of};
use crate::netlink::Error;

const WHAT: &str = "routes";

/// Room of `struct rtnexthop`.
const NEXT_HOP: usize = 8;

/// `RTAX_MTU` (linux/rtnetlink.h).
const RTAX_MTU: u16 = 2;

/// `RTA_NH_ID`, since Linux 5.3.
const RTA_NH_ID: u16 = 30;

/// `RTNH_F_DEAD`.
const DEAD: u8 = 1;

/// `struct rtmsg` and its attributes.
pub(in super::super) fn route(payload: &[u8]) -> Result<Option<RouteEntry>, Error> {
    let (header, attributes) = split::<12>(WHAT, payload)?;
    let [family, length, source_length, tos, table, _, scope, kind, flags, f1, f2, f3] = *header;
    let (Some(family), Some(kind)) = (family_of(family), kind_of(kind)) else {
        return Ok(None);
    };
    // An exception that the kernel remembers (a redirect, a smaller path MTU), not a route.
    if u32::from_ne_bytes([flags, f1, f2, f3]) & libc::RTM_F_CLONED != 0 {
        return Ok(None);
    }
    let mut way = Way { flags, ..Way::default() };
    let (mut destination, mut source) = (family.unspecified(), family.unspecified());
    let mut entry = RouteEntry::ending(Prefix::all(family), kind);
    (entry.table, entry.tos, entry.scope, entry.metric) = (Table(table.into()), tos, Scope(scope), 0);
    let mut has_object = false;
    for attribute in attributes {
        let (kind, value) = attribute?;
        match kind {
            libc::RTA_DST => destination = ip_of(WHAT, value)?,
            libc::RTA_SRC => source = ip_of(WHAT, value)?,
            libc::RTA_TABLE => entry.table = Table(u32_of(WHAT, value)?),
            libc::RTA_PRIORITY => entry.metric = u32_of(WHAT, value)?,
            libc::RTA_PREFSRC => entry.preferred_source = Some(ip_of(WHAT, value)?),
            libc::RTA_METRICS => entry.mtu = mtu(value)?,
            libc::RTA_PREF => entry.preference = preference(u8_of(WHAT, value)?),
            libc::RTA_MULTIPATH => entry.next_hops = next_hops(value)?,
            RTA_NH_ID => has_object = true,
            _ => way.take(kind, value)?,
        }
    }
    let malformed = || Error::Malformed { what: WHAT };
    entry.destination = Prefix::new(destination, length).ok_or_else(malformed)?;
    entry.source = Prefix::new(source, source_length).ok_or_else(malformed)?;
    if entry.next_hops.is_empty() {
        match way.next_hop() {
            Some(hop) => entry.next_hops.push(hop),
            // A nexthop object, of which the kernel tells no more (`nexthop_compat_mode` is 0): it knows the way, and nobody else.
            None if has_object => entry.next_hops.push(NextHop { is_encapsulated: true, ..NextHop::new(LinkId(0), None) }),
            None => {}
        }
    }
    Ok(Some(entry))
}

const fn kind_of(kind: u8) -> Option<RouteKind> {
    Some(match kind {
        libc::RTN_UNICAST => RouteKind::Unicast,
        libc::RTN_LOCAL => RouteKind::Local,
        libc::RTN_BROADCAST => RouteKind::Broadcast,
        libc::RTN_ANYCAST => RouteKind::Anycast,
        libc::RTN_MULTICAST => RouteKind::Multicast,
        libc::RTN_BLACKHOLE => RouteKind::Blackhole,
        libc::RTN_UNREACHABLE => RouteKind::Unreachable,
        libc::RTN_PROHIBIT => RouteKind::Prohibit,
        libc::RTN_THROW => RouteKind::Throw,
        _ => return None,
    })
}

/// RFC 4191 s2.1's two bits.
const fn preference(bits: u8) -> Preference {
    match bits & 3 {
        1 => Preference::High,
        3 => Preference::Low,
        _ => Preference::Medium,
    }
}

/// RTA_METRICS: the path MTU, unless it is 0.
pub(in super::super) fn mtu(metrics: &[u8]) -> Result<Option<u32>, Error> {
    let mut mtu = None;
    for attribute in Attributes::new(WHAT, metrics) {
        if let (RTAX_MTU, value) = attribute? {
            mtu = Some(u32_of(WHAT, value)?).filter(|&mtu| mtu != 0);
        }
    }
    Ok(mtu)
}

/// One way of a route, as its attributes come.
#[derive(Default)]
struct Way {
    link: Option<LinkId>,
    gateway: Option<IpAddr>,
    is_encapsulated: bool,
    flags: u8,
}

impl Way {
    fn take(&mut self, kind: u16, value: &[u8]) -> Result<(), Error> {
        match kind {
            libc::RTA_OIF => self.link = Some(LinkId(u32_of(WHAT, value)?)),
            libc::RTA_GATEWAY => self.gateway = Some(ip_of(WHAT, value)?),
            libc::RTA_VIA => self.gateway = Some(via(value)?),
            libc::RTA_ENCAP | libc::RTA_ENCAP_TYPE | libc::RTA_NEWDST => self.is_encapsulated = true,
            _ => {}
        }
        Ok(())
    }

    fn next_hop(self) -> Option<NextHop> {
        let hop = NextHop::new(self.link?, self.gateway);
        Some(NextHop { is_dead: self.flags & DEAD != 0, is_encapsulated: self.is_encapsulated, ..hop })
    }
}

/// RTA_VIA: a gateway of the other family, behind its family's number.
fn via(value: &[u8]) -> Result<IpAddr, Error> {
    let (family, address) = value.split_at_checked(2).ok_or(Error::Malformed { what: WHAT })?;
    _ = u16_of(WHAT, family)?;
    ip_of(WHAT, address)
}

/// RTA_MULTIPATH: each with a length, flags, its weight less one, its link, and attributes.
fn next_hops(mut value: &[u8]) -> Result<Vec<NextHop>, Error> {
    let mut hops = Vec::new();
    while let Some(&[l0, l1, flags, weight, i0, i1, i2, i3]) = value.first_chunk::<NEXT_HOP>() {
        let length = usize::from(u16::from_ne_bytes([l0, l1]));
        let attributes = value.get(NEXT_HOP..length).ok_or(Error::Malformed { what: WHAT })?;
        let link = Some(LinkId(u32::from_ne_bytes([i0, i1, i2, i3])));
        let mut way = Way { link, flags, ..Way::default() };
        for attribute in Attributes::new(WHAT, attributes) {
            let (kind, value) = attribute?;
            way.take(kind, value)?;
        }
        let weight = u16::from(weight) + 1;
        hops.extend(way.next_hop().map(|hop| NextHop { weight, ..hop }));
        value = value.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(hops)
}
