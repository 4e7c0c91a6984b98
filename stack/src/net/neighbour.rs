//! Neighbours: the kernel's ARP cache (arp(7)) and its neighbour cache (RFC 4861 s5.1).

use core::net::IpAddr;

use super::link::{LinkAddress, LinkId};

/// What is known of a neighbour: RFC 4861 s7.3.2, and what arp(7) adds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NeighbourState {
    /// Asked for, not answered yet.
    Incomplete,
    /// Known to be there a short time ago.
    Reachable,
    /// It was there; the next packet has it asked again.
    Stale,
    /// A packet went out to it, and it may confirm itself until a question is due.
    Delay,
    /// Being asked.
    Probe,
    /// It did not answer.
    Failed,
    /// Nobody need ask: multicast, or a link without addresses.
    NoArp,
    /// Set by hand.
    Permanent,
}

impl NeighbourState {
    /// Whether packets may go to the address that is known (Linux's NUD_VALID).
    pub const fn is_valid(self) -> bool {
        !matches!(self, Self::Incomplete | Self::Failed)
    }
}

/// One entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Neighbour {
    /// On which link.
    pub link: LinkId,
    /// Whose link-layer address is told.
    pub address: IpAddr,
    /// What is known.
    pub state: NeighbourState,
    /// Its link-layer address, if it is known.
    pub link_address: Option<LinkAddress>,
    /// It advertises itself as a router (RFC 4861 s4.4).
    pub is_router: bool,
}

impl Neighbour {
    /// Where to send frames for it, unless it must be asked first.
    pub fn destination(&self) -> Option<&LinkAddress> {
        self.link_address.as_ref().filter(|_| self.state.is_valid())
    }
}
