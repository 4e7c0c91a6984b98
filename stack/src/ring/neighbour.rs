//! Neighbours: which Ethernet address has an IPv4 address (RFC 826), for devices where it doesn't come with the flow.

use core::time::Duration;
use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use crate::device::MacAddr;
use crate::time::Instant;

/// Requests before a neighbour counts as unreachable, and the time between them: Linux's mcast_solicit and retrans_time.
const TRIES_MAX: u32 = 3;
const RETRY: Duration = Duration::from_secs(1);
/// A limit on what ARP can make us remember.
const TABLE_MAX: usize = 4096;

#[derive(Debug)]
enum Neighbour {
    Known(MacAddr),
    Asked { from: Ipv4Addr, tries: u32, again_at: Instant },
}

/// What became of a look-up.
pub(super) enum Lookup {
    Known(MacAddr),
    /// An answer is awaited; `ask` says that a request is to be sent now.
    Unknown {
        ask: bool,
    },
}

/// What the retry timer found.
pub(super) enum Retry {
    Ask { from: Ipv4Addr, target: Ipv4Addr },
    Unreachable(Ipv4Addr),
}

/// The table. Ordered, so that simulations iterate alike.
#[derive(Debug, Default)]
pub(super) struct Neighbours {
    table: BTreeMap<Ipv4Addr, Neighbour>,
}

impl Neighbours {
    pub(super) fn lookup(&mut self, now: Instant, from: Ipv4Addr, ip: Ipv4Addr) -> Lookup {
        match self.table.get(&ip) {
            Some(Neighbour::Known(mac)) => Lookup::Known(*mac),
            Some(Neighbour::Asked { .. }) => Lookup::Unknown { ask: false },
            None if self.table.len() >= TABLE_MAX => Lookup::Unknown { ask: false },
            None => {
                self.table.insert(ip, Neighbour::Asked { from, tries: 1, again_at: now + RETRY });
                Lookup::Unknown { ask: true }
            }
        }
    }

    /// Learns an answer. Only what was asked for, or is known already, changes: an unasked claim enters nothing.
    pub(super) fn learn(&mut self, ip: Ipv4Addr, mac: MacAddr) {
        if let Some(entry) = self.table.get_mut(&ip) {
            *entry = Neighbour::Known(mac);
        }
    }

    pub(super) fn set(&mut self, ip: Ipv4Addr, mac: Option<MacAddr>) {
        match mac {
            Some(mac) => drop(self.table.insert(ip, Neighbour::Known(mac))),
            None => drop(self.table.remove(&ip)),
        }
    }

    /// A request for us tells who asks (RFC 826's merge flag); that station will want an answer, so it may enter the table.
    pub(super) fn learn_asker(&mut self, ip: Ipv4Addr, mac: MacAddr) {
        if self.table.len() < TABLE_MAX {
            self.table.insert(ip, Neighbour::Known(mac));
        } else {
            self.learn(ip, mac);
        }
    }

    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.table
            .values()
            .filter_map(|n| match n {
                Neighbour::Asked { again_at, .. } => Some(*again_at),
                Neighbour::Known(_) => None,
            })
            .min()
    }

    /// What is due at `now`.
    pub(super) fn retry(&mut self, now: Instant) -> Vec<Retry> {
        let mut due = Vec::new();
        for (ip, neighbour) in &mut self.table {
            if let Neighbour::Asked { from, tries, again_at, .. } = neighbour
                && *again_at <= now
            {
                if *tries < TRIES_MAX {
                    *tries += 1;
                    *again_at = now + RETRY;
                    due.push(Retry::Ask { from: *from, target: *ip });
                } else {
                    due.push(Retry::Unreachable(*ip));
                }
            }
        }
        for entry in &due {
            if let Retry::Unreachable(ip) = entry {
                self.table.remove(ip);
            }
        }
        due
    }
}
