//! RTM_NEWNEIGH.

use ringway_stack::net::{LinkAddress, LinkId, Neighbour, NeighbourState};

use super::{family_of, ip_of, split};
use crate::netlink::Error;

const WHAT: &str = "neighbours";

/// `struct ndmsg` and its attributes.
pub(in super::super) fn neighbour(payload: &[u8]) -> Result<Option<Neighbour>, Error> {
    let (header, attributes) = split::<12>(WHAT, payload)?;
    let [family, _, _, _, i0, i1, i2, i3, s0, s1, flags, _] = *header;
    if family_of(family).is_none() || flags & libc::NTF_PROXY != 0 {
        return Ok(None);
    }
    let state = match u16::from_ne_bytes([s0, s1]) {
        libc::NUD_INCOMPLETE => NeighbourState::Incomplete,
        libc::NUD_REACHABLE => NeighbourState::Reachable,
        libc::NUD_STALE => NeighbourState::Stale,
        libc::NUD_DELAY => NeighbourState::Delay,
        libc::NUD_PROBE => NeighbourState::Probe,
        libc::NUD_FAILED => NeighbourState::Failed,
        libc::NUD_NOARP => NeighbourState::NoArp,
        libc::NUD_PERMANENT => NeighbourState::Permanent,
        // NUD_NONE: it was made, and nobody asked.
        _ => return Ok(None),
    };
    let (mut address, mut link_address) = (None, None);
    for attribute in attributes {
        match attribute? {
            (libc::NDA_DST, value) => address = Some(ip_of(WHAT, value)?),
            (libc::NDA_LLADDR, value) => link_address = Some(LinkAddress::new(value).ok_or(Error::Malformed { what: WHAT })?),
            _ => {}
        }
    }
    let link = LinkId(u32::from_ne_bytes([i0, i1, i2, i3]));
    let is_router = flags & libc::NTF_ROUTER != 0;
    Ok(address.map(|address| Neighbour { link, address, state, link_address, is_router }))
}
