//! What is asked of the kernel for one destination: its own answer (what `ip route get` prints), and that it asks a neighbour.

use core::net::IpAddr;
use std::io;

use netlink_packet_core::NLM_F_CREATE;
use ringway_stack::net::{Family, LinkId, Query};

use super::Error;
use super::monitor::{Monitor, attribute};
use super::parse::{Attributes, ip_of, mtu, u32_of};
use crate::solicitation;

const WHAT: &str = "a route";

/// `RTA_IP_PROTO`, `RTA_SPORT`, `RTA_DPORT` (linux/rtnetlink.h).
const RTA_IP_PROTO: u16 = 27;
const RTA_SPORT: u16 = 28;
const RTA_DPORT: u16 = 29;

/// How the kernel would reach a destination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelRoute {
    /// Over which link.
    pub link: LinkId,
    /// From which address; `None`: from the one that was asked for.
    pub source: Option<IpAddr>,
    /// By which router.
    pub gateway: Option<IpAddr>,
    /// The path MTU, in bytes, if it is not the link's.
    pub mtu: Option<u32>,
}

/// `NTF_USE` (linux/neighbour.h): a packet is about to go there.
const NTF_USE: u8 = 1;

impl Monitor {
    /// Tells the kernel that a packet is about to go to a neighbour, so that it asks for one that it does not know, or has not heard of for a while: what `ip
    /// neigh ... use` says. What comes of it is in the tables ([`Monitor::refresh`]). It takes CAP_NET_ADMIN.
    ///
    /// # Errors
    /// [`Error::Ask`], [`Error::Malformed`].
    pub fn use_neighbour(&mut self, id: LinkId, address: IpAddr) -> Result<(), Error> {
        const WHAT: &str = "a neighbour";
        // struct ndmsg: family, padding, index, state (NUD_NONE), flags, type.
        let family = if address.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
        let mut body = vec![family as u8, 0, 0, 0];
        body.extend_from_slice(&id.0.to_ne_bytes());
        body.extend_from_slice(&[0, 0, NTF_USE, 0]);
        match address {
            IpAddr::V4(address) => attribute(&mut body, libc::NDA_DST, &address.octets()),
            IpAddr::V6(address) => attribute(&mut body, libc::NDA_DST, &address.octets()),
        }
        // (That a question is under way is no event, and a second failure would look as the first one did.)
        self.neighbours_are_stale();
        match self.questions.tell(WHAT, libc::RTM_NEWNEIGH, NLM_F_CREATE, &body)? {
            Ok(()) => {
                solicitation::ask_where_needed(self.tables(), id, address);
                Ok(())
            }
            Err(errno) => Err(Error::Ask { what: WHAT, error: io::Error::from_raw_os_error(errno) }),
        }
    }

    /// As [`Monitor::use_neighbour`], where somebody else tells the kernel.
    ///
    /// # Errors
    /// [`Error::Ask`]: what that one says.
    pub fn have_neighbour_used(&mut self, tell: impl FnOnce() -> io::Result<()>) -> Result<(), Error> {
        self.neighbours_are_stale();
        tell().map_err(|error| Error::Ask { what: "a neighbour", error })
    }

    /// Asks the kernel: for people who compare, not for packets. `Ok(Err(_))` is the error number of a destination without a route.
    ///
    /// # Errors
    /// [`Error::Ask`], [`Error::Malformed`].
    pub fn ask_kernel(&mut self, query: &Query) -> Result<Result<KernelRoute, i32>, Error> {
        let kind = libc::RTM_GETROUTE;
        self.questions.get(WHAT, kind, &question(query), |payload| {
            let attributes = payload.get(12..).ok_or(Error::Malformed { what: WHAT })?;
            let mut route = KernelRoute { link: LinkId(0), source: None, gateway: None, mtu: None };
            for attribute in Attributes::new(WHAT, attributes) {
                let (kind, value) = attribute?;
                match kind {
                    libc::RTA_OIF => route.link = LinkId(u32_of(WHAT, value)?),
                    libc::RTA_PREFSRC => route.source = Some(ip_of(WHAT, value)?),
                    libc::RTA_GATEWAY => route.gateway = Some(ip_of(WHAT, value)?),
                    libc::RTA_VIA => route.gateway = Some(ip_of(WHAT, value.get(2..).unwrap_or_default())?),
                    libc::RTA_METRICS => route.mtu = mtu(value)?,
                    _ => {}
                }
            }
            Ok(route)
        })
    }
}

/// `struct rtmsg` and its attributes.
fn question(query: &Query) -> Vec<u8> {
    let bits = Family::of(query.destination).bits();
    let family = if query.destination.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    let source_bits = if query.source.is_some() { bits } else { 0 };
    let mut body = vec![family as u8, bits, source_bits, query.tos & 0xfc, 0, 0, 0, 0, 0, 0, 0, 0];
    let mut address = |kind, address: IpAddr| match address {
        IpAddr::V4(address) => attribute(&mut body, kind, &address.octets()),
        IpAddr::V6(address) => attribute(&mut body, kind, &address.octets()),
    };
    address(libc::RTA_DST, query.destination);
    if let Some(source) = query.source {
        address(libc::RTA_SRC, source);
    }
    if let Some(LinkId(link)) = query.link {
        attribute(&mut body, libc::RTA_OIF, &link.to_ne_bytes());
    }
    attribute(&mut body, libc::RTA_MARK, &query.mark.to_ne_bytes());
    attribute(&mut body, libc::RTA_UID, &query.uid.to_ne_bytes());
    if query.protocol != 0 {
        attribute(&mut body, RTA_IP_PROTO, &[query.protocol]);
        for (kind, port) in [(RTA_SPORT, query.source_port), (RTA_DPORT, query.destination_port)] {
            if port != 0 {
                attribute(&mut body, kind, &port.to_be_bytes());
            }
        }
    }
    body
}
