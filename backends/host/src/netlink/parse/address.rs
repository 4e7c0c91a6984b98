//! RTM_NEWADDR.

use ringway_stack::net::{Address, Family, LinkId, Prefix, Scope};

use super::{family_of, ip_of, split, u32_of};
use crate::netlink::Error;

const WHAT: &str = "addresses";

/// linux/if_addr.h.
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const IFA_FLAGS: u16 = 8;

/// `struct ifaddrmsg` and its attributes.
pub(in super::super) fn address(payload: &[u8]) -> Result<Option<Address>, Error> {
    let (header, attributes) = split::<8>(WHAT, payload)?;
    let [family, length, flags, scope, i0, i1, i2, i3] = *header;
    let Some(family) = family_of(family) else {
        return Ok(None);
    };
    let (mut own, mut peer, mut flags) = (None, None, u32::from(flags));
    for attribute in attributes {
        let (kind, value) = attribute?;
        match kind {
            IFA_ADDRESS => peer = Some(ip_of(WHAT, value)?),
            IFA_LOCAL => own = Some(ip_of(WHAT, value)?),
            // (Those of the header are its first eight.)
            IFA_FLAGS => flags = u32_of(WHAT, value)?,
            _ => {}
        }
    }
    // rtnetlink(7): IFA_ADDRESS is the other end's on a point-to-point link, and else the same as IFA_LOCAL, which IPv6 leaves out.
    let (Some(own), Some(peer)) = (own.or(peer), peer.or(own)) else {
        return Ok(None);
    };
    let malformed = Error::Malformed { what: WHAT };
    let link = LinkId(u32::from_ne_bytes([i0, i1, i2, i3]));
    let prefix = Prefix::new(peer, length).ok_or(malformed)?;
    let has = |flag: u32| flags & flag != 0;
    Ok(Some(Address {
        link,
        address: own,
        prefix,
        scope: Scope(scope),
        // One bit for both.
        is_secondary: family == Family::V4 && has(libc::IFA_F_SECONDARY),
        is_temporary: family == Family::V6 && has(libc::IFA_F_TEMPORARY),
        is_tentative: has(libc::IFA_F_TENTATIVE | libc::IFA_F_DADFAILED),
        is_optimistic: has(libc::IFA_F_OPTIMISTIC),
        is_deprecated: has(libc::IFA_F_DEPRECATED),
        is_home: has(libc::IFA_F_HOMEADDRESS),
    }))
}
