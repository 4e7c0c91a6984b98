//! At which Ethernet addresses RoCE's packets leave: the kernel's routes and neighbours say. A card has the kernel's RDMA core ask for it when a queue pair or an address is made; here it is asked
//! for when something is to be sent, and what is sent in the meantime waits.

use core::time::Duration;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr};

use ringway_host::netlink::{Error, Monitor};
use ringway_stack::net::{Link, LinkId, Query};
use ringway_stack::time::Instant;

use super::port::Port;

/// Packets that wait for neighbours at most: of more, the oldest is lost.
const WAITING_MAX: usize = 256;
/// How often the kernel's tables are read again.
const READ_EVERY: Duration = Duration::from_millis(20);
/// How often the same neighbour is asked for.
const ASK_EVERY: Duration = Duration::from_millis(200);
/// How often the kernel hears that a neighbour is in use, so that it notices one that has moved (RFC 4861 s7.3, which Linux follows for ARP as well).
const CONFIRM_EVERY: Duration = Duration::from_secs(10);
/// Neighbours of which it is remembered when that was: of more, each is in use anew.
const CONFIRMED_MAX: usize = 4096;
/// What waits for longer is lost: whoever sent it has sent it again.
const WAIT_MAX: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(super) struct Neighbours {
    monitor: Monitor,
    link: LinkId,
    read_at: Instant,
    /// Whether there was a carrier when that was looked at last.
    had_carrier: bool,
    asked: BTreeMap<IpAddr, Instant>,
    /// When the kernel is to hear of a neighbour again.
    confirm_at: BTreeMap<IpAddr, Instant>,
    waiting: VecDeque<(Instant, IpAddr, Vec<u8>)>,
}

impl Neighbours {
    pub(super) fn of(port: &Port) -> Result<Self, Error> {
        let monitor = Monitor::open()?;
        let (asked, confirm_at) = (BTreeMap::new(), BTreeMap::new());
        Ok(Self { monitor, link: port.link, read_at: Instant::ZERO, had_carrier: true, asked, confirm_at, waiting: VecDeque::new() })
    }

    /// Where a packet of IPv4 is to be sent, if that is known; else it waits.
    pub(super) fn resolve(&mut self, now: Instant, packet: &[u8]) -> Option<[u8; 6]> {
        self.read(now);
        let &[a, b, c, d] = packet.get(16..20)? else { return None };
        let destination = IpAddr::V4(Ipv4Addr::new(a, b, c, d));
        let next = self.next_hop(destination);
        let known = self.at(next);
        if known.is_some() {
            self.confirm(now, next);
        } else {
            if self.waiting.len() == WAITING_MAX {
                self.waiting.pop_front();
            }
            self.waiting.push_back((now, next, packet.to_vec()));
            self.ask(now, next);
        }
        known
    }

    /// What waited, and need not any more.
    pub(super) fn resolved(&mut self, now: Instant) -> Vec<([u8; 6], Vec<u8>)> {
        if self.waiting.is_empty() {
            return Vec::new();
        }
        self.read(now);
        let mut leaving = Vec::new();
        for (since, next, packet) in core::mem::take(&mut self.waiting) {
            match self.at(next) {
                Some(mac) => {
                    self.confirm(now, next);
                    leaving.push((mac, packet));
                }
                None if since + WAIT_MAX > now => {
                    self.ask(now, next);
                    self.waiting.push_back((since, next, packet));
                }
                None => {}
            }
        }
        leaving
    }

    /// Whether the interface has a carrier, if that has changed.
    pub(super) fn carrier(&mut self, now: Instant) -> Option<bool> {
        self.read(now);
        let has = self.monitor.tables().link(self.link).is_some_and(Link::is_running);
        (core::mem::replace(&mut self.had_carrier, has) != has).then_some(has)
    }

    fn next_hop(&self, destination: IpAddr) -> IpAddr {
        let query = Query { link: Some(self.link), ..Query::to(destination) };
        self.monitor.tables().route(&query).map_or(destination, |route| route.neighbour(destination))
    }

    fn at(&self, address: IpAddr) -> Option<[u8; 6]> {
        self.monitor.tables().neighbour(self.link, address)?.destination()?.ethernet()
    }

    fn ask(&mut self, now: Instant, address: IpAddr) {
        self.asked.retain(|_, at| *at + ASK_EVERY > now);
        if let Entry::Vacant(place) = self.asked.entry(address) {
            place.insert(now);
        } else {
            return;
        }
        self.tell(address);
    }

    /// Something is sent to a neighbour that is known. The kernel, which sees nothing of that, would take it for unused, and believe for ever what it has heard of it.
    fn confirm(&mut self, now: Instant, address: IpAddr) {
        if is_due(&mut self.confirm_at, now, address) {
            self.tell(address);
        }
    }

    fn tell(&mut self, address: IpAddr) {
        if let Err(error) = self.monitor.use_neighbour(self.link, address) {
            crate::log::say(format_args!("{address} is not asked for its Ethernet address: {error}"));
        }
    }

    fn read(&mut self, now: Instant) {
        if self.read_at + READ_EVERY <= now {
            self.read_at = now;
            // (What fails is said, and tried again.)
            let _ = self.monitor.refresh();
        }
    }
}

/// Whether the kernel is to hear of a neighbour now.
fn is_due(confirm_at: &mut BTreeMap<IpAddr, Instant>, now: Instant, address: IpAddr) -> bool {
    if confirm_at.get(&address).is_some_and(|at| now < *at) {
        return false;
    }
    if confirm_at.len() >= CONFIRMED_MAX {
        confirm_at.clear();
    }
    confirm_at.insert(address, now + CONFIRM_EVERY);
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_neighbour_in_use_is_told_of_now_and_then() {
        let mut confirm_at = BTreeMap::new();
        let [a, b] = [[10, 0, 0, 1], [10, 0, 0, 2]].map(IpAddr::from);
        let mut due = |seconds, address| is_due(&mut confirm_at, Instant::ZERO + Duration::from_secs(seconds), address);
        assert_eq!(
            [due(0, a), due(9, a), due(9, b), due(10, a), due(11, a), due(18, b), due(19, b)],
            [true, false, true, true, false, false, true]
        );
        for other in 0..=CONFIRMED_MAX as u32 {
            is_due(&mut confirm_at, Instant::ZERO, IpAddr::from(other.to_be_bytes()));
        }
        assert!(confirm_at.len() <= CONFIRMED_MAX);
    }
}
