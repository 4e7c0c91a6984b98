//! Wires and a switch: how a frame gets from one host to another, or doesn't.
//!
//! Every host has one full-duplex link to one switch. The switch forwards by a static table of Ethernet addresses: nothing is
//! learned, so nothing depends on who spoke first. Group addresses go to every other port.

mod classes;
mod corruption;
mod ecn;
pub(crate) mod forge;
pub(crate) mod icmp;
mod lane;
mod partition;
mod strike;
mod weather;

pub(crate) use lane::Lane;
pub(crate) use partition::{Cut, Cuts, Drawer, HostSet};
pub use strike::Strike;
pub(crate) use weather::{Conditions, WEATHER};

use core::fmt;
use core::time::Duration;
use std::rc::Rc;

use ringway_stack::Instant;
use ringway_stack::device::MacAddr;

use crate::faults::Faults;

/// A link between a host and the switch, both ways.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkConfig {
    /// Propagation delay, one way.
    pub latency: Duration,
    /// Bits a second, each way; `None`: frames take no time to serialise.
    pub bandwidth_bps: Option<u64>,
    /// Most bytes that wait for the link on the switch's side; more are dropped. (On the host's side its send queue waits.)
    pub queue_bytes_max: usize,
    /// The switch marks a frame that finds more bytes than these waiting for the link on its side, if the frame is capable of ECN (RFC 3168 s5). `None`: none is marked.
    pub mark_bytes: Option<usize>,
    /// The longest IP packet in bytes; a longer one is dropped, and its sender told (RFC 1191). `None`: whatever the NICs send.
    pub mtu: Option<u16>,
    /// What goes wrong on it, each way.
    pub faults: Faults,
}

impl Default for LinkConfig {
    /// 10 Gbit/s over 5 µs, half a megabyte of switch buffer, no faults.
    fn default() -> Self {
        Self {
            latency: Duration::from_micros(5),
            bandwidth_bps: Some(10_000_000_000),
            queue_bytes_max: 512 << 10,
            mark_bytes: None,
            mtu: None,
            faults: Faults::default(),
        }
    }
}

/// One way along a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the host to the switch.
    Up,
    /// From the switch to the host.
    Down,
}

impl fmt::Display for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Up => "up",
            Self::Down => "down",
        })
    }
}

bitflags::bitflags! {
    /// What has befallen a frame so far.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Marks: u8 {
        /// Its bits flipped.
        const CORRUPTED = 1;
        /// It is the second copy.
        const DUPLICATE = 2;
        /// It was held back.
        const HELD_BACK = 4;
        /// Its payload changed, and no checksum tells: its content proves nothing, the rest of it does.
        const HIDDEN = 8;
        /// A slower link, or a lazy router, delayed it.
        const DELAYED = 16;
        /// Somebody who is no part of the conversation forged it.
        const FORGED = 32;
        /// The router between the links made it.
        const ROUTER = 64;
    }
}

/// A frame under way.
#[derive(Clone, Debug)]
pub(crate) struct Frame {
    /// Which transmission it is: counted over the whole world, shared by all copies.
    pub(crate) id: u64,
    /// From the Ethernet header to the padding.
    pub(crate) bytes: Rc<[u8]>,
    /// What has befallen it.
    pub(crate) marks: Marks,
    /// The sender's NIC filled in its checksums, and these are the very bytes: they are right, and nobody needs to sum them up again.
    pub(crate) sound: bool,
    /// Its sender says that it may wait ([`ringway_stack::device::TxOffload::unsolicited`]).
    pub(crate) unsolicited: bool,
}

impl Frame {
    /// Other bytes take the place of its own.
    fn damage(&mut self, bytes: Rc<[u8]>, mark: Marks) {
        self.bytes = bytes;
        self.marks |= mark;
        self.sound = false;
    }
}

/// A frame at the end of a lane.
#[derive(Clone, Debug)]
pub(crate) struct Arrival {
    pub(crate) at: Instant,
    pub(crate) frame: Frame,
}

/// All links and the switch between them. A link has the number of its host.
#[derive(Debug, Default)]
pub(crate) struct Fabric {
    links: Vec<[Lane; 2]>,
    /// The MAC address on each link.
    macs: Vec<MacAddr>,
    pub(crate) cuts: Cuts,
}

impl Fabric {
    pub(crate) fn attach(&mut self, seed: u64, mac: MacAddr, config: LinkConfig) -> usize {
        let link = self.links.len();
        self.links.push([Direction::Up, Direction::Down].map(|direction| Lane::new(seed, link, direction, config)));
        assert!(self.link_of(mac).is_none(), "two hosts have the Ethernet address {mac}");
        self.macs.push(mac);
        link
    }

    pub(crate) fn lane(&mut self, link: usize, direction: Direction) -> &mut Lane {
        &mut self.links[link][direction as usize]
    }

    /// Changes both ways of a link.
    pub(crate) fn weather(&mut self, link: usize, change: impl Fn(&mut Conditions)) {
        self.links[link].iter_mut().for_each(|lane| change(lane.conditions_mut()));
    }

    /// A host has another Ethernet address from now on.
    pub(crate) fn readdress(&mut self, link: usize, mac: MacAddr) {
        assert!(self.link_of(mac).is_none_or(|at| at == link), "two hosts have the Ethernet address {mac}");
        self.macs[link] = mac;
    }

    /// The link of a MAC address.
    pub(crate) fn link_of(&self, mac: MacAddr) -> Option<usize> {
        // Addresses count up as links do, until one changes.
        let [.., hi, lo] = mac.0;
        let guess = usize::from(u16::from_be_bytes([hi, lo])).wrapping_sub(1);
        if self.macs.get(guess) == Some(&mac) {
            return Some(guess);
        }
        // (Where each ring has a MAC address, the second byte counts them.)
        let [group, _, rest @ ..] = mac.0;
        let is_it = |its: &MacAddr| *its == mac || (its.0[0] == group && its.0[1] == 0 && its.0[2..] == rest);
        self.macs.iter().position(is_it)
    }

    /// The links on which the switch sends a frame that came in from `from`: one, all but that, or none if no host has the address.
    pub(crate) fn route(&self, from: usize, frame: &[u8]) -> impl Iterator<Item = usize> + use<> {
        let dst = crate::dissect::mac_at(frame, 0);
        let links = match dst {
            Some(dst) if dst.is_multicast() => 0..self.links.len(),
            Some(dst) => self.link_of(dst).map_or(0..0, |link| link..link + 1),
            None => 0..0,
        };
        // A switch never sends a frame back to where it came from (IEEE 802.1D s7.7.1).
        links.filter(move |&link| link != from)
    }
}

#[cfg(test)]
mod tests;
