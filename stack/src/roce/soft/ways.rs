//! Which Ethernet address leads to whom, and who may speak for whom.
//!
//! - [`Vouched`]: the device knows its neighbours, each by its own Ethernet address, and vouches for who sent a frame (shared memory)
//! - [`Routed`]: an ordinary network, with routers, whose host resolves neighbours (an interface)

use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;

use crate::device::MacAddr;
use crate::net::{Delivery, NeighbourState, Query};
use crate::roce::network::{Network, group_mac};
use crate::time::Instant;

/// Where a packet is to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// To this Ethernet address.
    To(MacAddr),
    /// The host asks for it: the packet waits.
    Asked,
    /// Nowhere.
    Nowhere,
}

/// See the module's documentation.
pub trait Ways {
    /// Whether the device tells when there is room again in a queue that was full. If not, what waits is tried again after a moment.
    const TELLS_OF_ROOM: bool;

    /// The way to `to`.
    fn way(&mut self, now: Instant, to: IpAddr) -> Way;

    /// Whether a frame from `mac` may carry a packet from `from` to `to`.
    fn admits(&mut self, mac: MacAddr, from: IpAddr, to: IpAddr) -> bool;

    /// The same of an IPv6 packet, for most of which the answer is at hand; `false`: ask [`Ways::admits`].
    fn surely_admits(&self, _mac: [u8; 6], _from: [u8; 16]) -> bool {
        false
    }

    /// [`Ways::way`] to an IPv6 address, if it is at hand.
    fn surely_leads(&self, _to: [u8; 16]) -> Option<MacAddr> {
        None
    }

    /// The device says that whoever has this Ethernet address is gone: whose adapter that was, if it is known.
    fn gone(&mut self, mac: MacAddr) -> Option<IpAddr>;
}

/// Who is at the other end of a device's links.
pub trait Neighbours {
    /// All that are there now: the Ethernet address by which the device knows each, and its adapter's address ([`crate::roce::NodeConfig::gid`]), which the device
    /// vouches for.
    fn neighbours(&self) -> Vec<(MacAddr, IpAddr)>;
}

/// Ways between neighbours that the device vouches for.
#[derive(Debug)]
pub struct Vouched<N> {
    neighbours: N,
    /// What is known of them: both are the same pairs.
    macs: BTreeMap<IpAddr, MacAddr>,
    addresses: BTreeMap<MacAddr, IpAddr>,
    /// The pair that was asked for last: the next packet is mostly of the same neighbour.
    last: Option<(MacAddr, IpAddr)>,
}

impl<N: Neighbours> Vouched<N> {
    /// Between these.
    pub const fn new(neighbours: N) -> Self {
        Self { neighbours, macs: BTreeMap::new(), addresses: BTreeMap::new(), last: None }
    }

    /// How many neighbours are known.
    #[cfg(test)]
    pub(super) fn known(&self) -> usize {
        self.addresses.len()
    }

    /// Learns of neighbours that have come. What is known stays until the device says that it is gone.
    fn look_around(&mut self) {
        for (mac, address) in self.neighbours.neighbours() {
            if !self.addresses.contains_key(&mac) && !self.macs.contains_key(&address) {
                self.addresses.insert(mac, address);
                self.macs.insert(address, mac);
            }
        }
    }
}

impl<N: Neighbours> Ways for Vouched<N> {
    const TELLS_OF_ROOM: bool = true;

    fn way(&mut self, _: Instant, to: IpAddr) -> Way {
        if let Some((mac, _)) = self.last.filter(|(_, address)| *address == to) {
            return Way::To(mac);
        }
        if !self.macs.contains_key(&to) {
            self.look_around();
        }
        let Some(&mac) = self.macs.get(&to) else { return Way::Nowhere };
        self.last = Some((mac, to));
        Way::To(mac)
    }

    fn admits(&mut self, mac: MacAddr, from: IpAddr, _: IpAddr) -> bool {
        if self.last == Some((mac, from)) {
            return true;
        }
        if !self.addresses.contains_key(&mac) {
            self.look_around();
        }
        let is_its = self.addresses.get(&mac) == Some(&from);
        if is_its {
            self.last = Some((mac, from));
        }
        is_its
    }

    #[inline]
    fn surely_admits(&self, mac: [u8; 6], from: [u8; 16]) -> bool {
        matches!(self.last, Some((MacAddr(last), IpAddr::V6(address))) if last == mac && address.octets() == from)
    }

    #[inline]
    fn surely_leads(&self, to: [u8; 16]) -> Option<MacAddr> {
        match self.last {
            Some((mac, IpAddr::V6(address))) if address.octets() == to => Some(mac),
            _ => None,
        }
    }

    fn gone(&mut self, mac: MacAddr) -> Option<IpAddr> {
        let address = self.addresses.remove(&mac)?;
        self.macs.remove(&address);
        self.last = None;
        Some(address)
    }
}

/// How long the host may ask for a neighbour: it does so three times, a second apart (arp(7), RFC 4861 s10).
const ASKED_MAX: Duration = Duration::from_secs(4);
/// How often the host hears that a neighbour is in use, so that it notices one that has moved.
const CONFIRM_EVERY: Duration = Duration::from_secs(10);
/// Destinations that are known at once; of more, all are looked up anew.
const KNOWN_MAX: usize = 4096;
/// Neighbours that are asked for at once.
const ASKED_AT_ONCE_MAX: usize = 256;

#[derive(Clone, Copy, Debug)]
struct Known {
    mac: MacAddr,
    hop: IpAddr,
    confirm_at: Instant,
}

#[derive(Clone, Copy, Debug)]
struct Question {
    at: Instant,
    /// What is known of a neighbour in tables up to here is from before the question.
    generation: u64,
}

/// Ways on an ordinary network. Nobody vouches for who sent a frame there: queue pairs look at addresses and numbers, as anywhere on such a network.
#[derive(Debug)]
pub struct Routed {
    network: Network,
    own: Vec<IpAddr>,
    known: BTreeMap<IpAddr, Known>,
    asked: BTreeMap<IpAddr, Question>,
    questions: VecDeque<IpAddr>,
}

impl Routed {
    /// On this network.
    pub fn new(network: Network) -> Self {
        let own = network.addresses();
        Self { network, own, known: BTreeMap::new(), asked: BTreeMap::new(), questions: VecDeque::new() }
    }

    pub(super) const fn network(&self) -> &Network {
        &self.network
    }

    /// The host's tables have changed.
    pub(super) fn set_network(&mut self, network: Network) {
        self.own = network.addresses();
        self.network = network;
        self.known.clear();
    }

    /// The next neighbour that the host is to ask for, or to hear of that it is in use.
    pub(super) fn take_question(&mut self) -> Option<IpAddr> {
        self.questions.pop_front()
    }

    pub(super) fn has_questions(&self) -> bool {
        !self.questions.is_empty()
    }

    fn ask(&mut self, now: Instant, hop: IpAddr) -> Way {
        let generation = self.network.tables().generation();
        if let Some(question) = self.asked.get(&hop) {
            let entry = self.network.tables().neighbour(self.network.link_id(), hop);
            let has_failed = generation > question.generation && entry.is_some_and(|entry| entry.state == NeighbourState::Failed);
            if !has_failed && now.since(question.at) < ASKED_MAX {
                return Way::Asked;
            }
            // (What is sent next has it asked for again.)
            self.asked.remove(&hop);
            return Way::Nowhere;
        }
        self.asked.retain(|_, question| now.since(question.at) < ASKED_MAX);
        if self.asked.len() >= ASKED_AT_ONCE_MAX {
            return Way::Nowhere;
        }
        self.asked.insert(hop, Question { at: now, generation });
        self.questions.push_back(hop);
        Way::Asked
    }
}

impl Ways for Routed {
    const TELLS_OF_ROOM: bool = false;

    fn way(&mut self, now: Instant, to: IpAddr) -> Way {
        if let Some(mac) = group_mac(to) {
            return Way::To(mac);
        }
        if let Some(known) = self.known.get_mut(&to) {
            if known.confirm_at <= now {
                known.confirm_at = now + CONFIRM_EVERY;
                self.questions.push_back(known.hop);
            }
            return Way::To(known.mac);
        }
        let (tables, link) = (self.network.tables(), self.network.link_id());
        let route = tables.route(&Query { link: Some(link), ..Query::to(to) });
        let Some(route) = route.ok().filter(|route| route.delivery == Delivery::Unicast) else { return Way::Nowhere };
        let hop = route.neighbour(to);
        let entry = tables.neighbour(link, hop);
        let Some(mac) = entry.and_then(|entry| entry.destination()?.ethernet()).map(MacAddr) else { return self.ask(now, hop) };
        self.asked.remove(&hop);
        if self.known.len() >= KNOWN_MAX {
            self.known.clear();
        }
        self.known.insert(to, Known { mac, hop, confirm_at: now });
        Way::To(mac)
    }

    fn admits(&mut self, _: MacAddr, from: IpAddr, to: IpAddr) -> bool {
        // (Other processes of this host have its addresses, and send to groups.)
        let is_for_us = to.is_multicast() || self.own.contains(&to) && !self.own.contains(&from);
        is_for_us && !from.is_unspecified() && !from.is_multicast()
    }

    fn gone(&mut self, _: MacAddr) -> Option<IpAddr> {
        None
    }
}
