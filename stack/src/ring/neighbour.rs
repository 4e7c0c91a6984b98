//! Neighbours: which Ethernet address has an IPv4 address (RFC 826), for devices where it doesn't come with the flow; and whether
//! it still has it (RFC 1122 s2.3.2.1; the states are those of RFC 4861 s7.3.2, as in Linux).

use core::time::Duration;
use std::collections::BTreeMap;
use std::net::IpAddr;

use super::slots::STALL_MAX;
use crate::device::MacAddr;
use crate::mutants::{Mutant, Mutation};
use crate::time::Instant;

/// Requests before a neighbour counts as unreachable, and the time between them: Linux's mcast_solicit (and ucast_solicit) and
/// retrans_time.
const TRIES_MAX: u32 = 3;
const RETRY: Duration = Duration::from_secs(1);
/// How long an answer is believed: Linux's base_reachable_time.
const REACHABLE: Duration = Duration::from_secs(30);
/// A limit on what ARP can make us remember.
const TABLE_MAX: usize = 4096;
/// What the ring's owner taught it is the owner's to change.
const FOREVER: Instant = Instant::from_nanos(u64::MAX);

#[derive(Debug)]
enum Neighbour {
    Known {
        mac: MacAddr,
        until: Instant,
    },
    /// Used while it is asked whether it is still there: it alone, at the address that it had.
    Probed {
        mac: MacAddr,
        from: IpAddr,
        tries: u32,
        again_at: Instant,
    },
    /// Everyone is asked.
    Asked {
        from: IpAddr,
        tries: u32,
        again_at: Instant,
    },
}

/// What became of a look-up.
pub(super) enum Lookup {
    /// `probe` says that it is to be asked, at that address, whether it still has it.
    Known { mac: MacAddr, probe: bool },
    /// An answer is awaited; `ask` says that a request is to be sent now.
    Unknown { ask: bool },
}

/// What the retry timer found.
pub(super) enum Retry {
    /// `to` one station, or to all.
    Ask {
        from: IpAddr,
        target: IpAddr,
        to: MacAddr,
    },
    Unreachable(IpAddr),
}

/// The table. Ordered, so that simulations iterate alike.
#[derive(Debug, Default)]
pub(super) struct Neighbours {
    table: BTreeMap<IpAddr, Neighbour>,
    /// No entry asks again before this.
    due: Option<Instant>,
    /// The device refused a request, which was not tried again yet.
    unasked: bool,
    pub(super) mutation: Mutation,
}

impl Neighbours {
    #[inline]
    pub(super) fn lookup(&mut self, now: Instant, from: IpAddr, ip: IpAddr) -> Lookup {
        match self.table.get(&ip) {
            Some(Neighbour::Known { mac, until }) if now < *until || self.mutation.is(Mutant::ArpNeverExpires) => {
                Lookup::Known { mac: *mac, probe: false }
            }
            Some(Neighbour::Known { mac, .. }) => {
                let mac = *mac;
                self.ask(ip, Neighbour::Probed { mac, from, tries: 1, again_at: now + RETRY });
                Lookup::Known { mac, probe: true }
            }
            Some(Neighbour::Probed { mac, .. }) => Lookup::Known { mac: *mac, probe: false },
            Some(Neighbour::Asked { .. }) if self.mutation.is(Mutant::ArpAsksForEach) => Lookup::Unknown { ask: true },
            Some(Neighbour::Asked { .. }) => Lookup::Unknown { ask: false },
            None => {
                self.make_room();
                self.ask(ip, Neighbour::Asked { from, tries: 1, again_at: now + RETRY });
                Lookup::Unknown { ask: true }
            }
        }
    }

    /// The address of a neighbour that is known, without asking anybody.
    pub(super) fn known(&self, ip: IpAddr) -> Option<MacAddr> {
        match self.table.get(&ip)? {
            Neighbour::Known { mac, .. } | Neighbour::Probed { mac, .. } => Some(*mac),
            Neighbour::Asked { .. } => None,
        }
    }

    /// Takes in what a station claims, by an answer or by an announcement. Only what was asked for, or is known already, changes: an unasked
    /// claim enters nothing. Whether it was of use.
    pub(super) fn learn(&mut self, now: Instant, ip: IpAddr, mac: MacAddr) -> bool {
        if self.mutation.is(Mutant::ArpLearnsUnasked) && !self.table.contains_key(&ip) {
            self.table.insert(ip, Neighbour::Known { mac, until: now });
        }
        let Some(entry) = self.table.get_mut(&ip) else { return false };
        if self.mutation.is(Mutant::ArpKeepsFirstAnswer) && matches!(entry, Neighbour::Known { until, .. } if now < *until) {
            return true;
        }
        // (As Linux's NUD_PERMANENT, which ARP does not change.)
        let taught = matches!(entry, Neighbour::Known { until, .. } if *until == FOREVER);
        if !taught {
            *entry = Neighbour::Known { mac, until: now + REACHABLE };
        }
        true
    }

    /// A neighbour of IPv6 says where it is (RFC 4861 s7.2.5). It was asked, if it is `solicited`: that alone proves that it hears us. Whether
    /// its station is known by that, for what waits.
    pub(super) fn advertised(&mut self, now: Instant, ip: IpAddr, mac: Option<MacAddr>, solicited: bool, overriding: bool) -> bool {
        let solicited = solicited || self.mutation.is(Mutant::UnsolicitedProvesReachable);
        let until = if solicited { now + REACHABLE } else { now };
        let Some(entry) = self.table.get_mut(&ip) else { return false };
        let (known, is_reachable) = match entry {
            // "If no link-layer address is included, the receiving node should silently discard the received advertisement."
            Neighbour::Asked { .. } => {
                let Some(mac) = mac else { return false };
                *entry = Neighbour::Known { mac, until };
                return true;
            }
            // (As Linux's NUD_PERMANENT.)
            Neighbour::Known { until, .. } if *until == FOREVER => return true,
            Neighbour::Known { mac, until } => (*mac, now < *until),
            Neighbour::Probed { mac, .. } => (*mac, false),
        };
        let is_other = mac.is_some_and(|mac| mac != known);
        match (is_other, overriding) {
            // Whoever that was, the one that is known may be there no longer: it is asked when it is used next.
            (true, false) if is_reachable => *entry = Neighbour::Known { mac: known, until: now },
            (true, false) => {}
            _ if solicited || is_other => *entry = Neighbour::Known { mac: mac.unwrap_or(known), until },
            _ => {}
        }
        !is_other || overriding
    }

    pub(super) fn set(&mut self, ip: IpAddr, mac: Option<MacAddr>) {
        match mac {
            Some(mac) => drop(self.table.insert(ip, Neighbour::Known { mac, until: FOREVER })),
            // A question under way goes on: somebody waits for the answer.
            None if matches!(self.table.get(&ip), Some(Neighbour::Asked { .. })) && !self.mutation.is(Mutant::ForgottenQuestion) => {}
            None => drop(self.table.remove(&ip)),
        }
    }

    /// A request for us tells who asks (RFC 826's merge flag); that station will want an answer, so it may enter the table.
    pub(super) fn learn_asker(&mut self, now: Instant, ip: IpAddr, mac: MacAddr) {
        if !self.learn(now, ip, mac) && self.table.len() < TABLE_MAX && !self.mutation.is(Mutant::ArpAskerForgotten) {
            self.table.insert(ip, Neighbour::Known { mac, until: now + REACHABLE });
        }
    }

    /// The device did not take a request: it is no try, and made up for as soon as frames that the device refuses are tried again. (As one
    /// more loss on the wire it would cost whoever waits a second.)
    pub(super) fn unasked(&mut self, now: Instant, ip: IpAddr) {
        if let Some(Neighbour::Probed { tries, again_at, .. } | Neighbour::Asked { tries, again_at, .. }) = self.table.get_mut(&ip) {
            if self.mutation.is(Mutant::ArpRefusedIsAsked) {
                return;
            }
            (*tries, *again_at) = (tries.saturating_sub(1), now + STALL_MAX);
            self.due = self.due.into_iter().chain([*again_at]).min();
            self.unasked = true;
        }
    }

    /// Whether a request waits for the device, which refused it.
    pub(super) fn is_unasked(&self) -> bool {
        self.unasked
    }

    /// When [`Neighbours::retry`] may have something to do.
    #[inline]
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.due
    }

    /// What is due at `now`.
    pub(super) fn retry(&mut self, now: Instant) -> Vec<Retry> {
        let mut due = Vec::new();
        self.unasked = false;
        for (&target, neighbour) in &mut self.table {
            match neighbour {
                Neighbour::Probed { mac, from, tries, again_at } if *again_at <= now => {
                    let (to, from) = (*mac, *from);
                    if *tries < TRIES_MAX || self.mutation.is(Mutant::ArpProbesForever) {
                        (*tries, *again_at) = (*tries + 1, now + RETRY);
                        due.push(Retry::Ask { from, target, to });
                    } else {
                        let tries = if self.mutation.is(Mutant::ProbeTriesCarryOver) { *tries } else { 1 };
                        *neighbour = Neighbour::Asked { from, tries, again_at: now + RETRY };
                        due.push(Retry::Ask { from, target, to: MacAddr::BROADCAST });
                    }
                }
                Neighbour::Asked { from, tries, again_at } if *again_at <= now => {
                    if *tries < TRIES_MAX && !self.mutation.is(Mutant::ArpAsksOnce) || self.mutation.is(Mutant::ArpAsksForever) {
                        let pause = if self.mutation.is(Mutant::ArpAsksTooOften) { RETRY / 10 } else { RETRY };
                        (*tries, *again_at) = (*tries + 1, now + pause);
                        due.push(Retry::Ask { from: *from, target, to: MacAddr::BROADCAST });
                    } else {
                        due.push(Retry::Unreachable(target));
                    }
                }
                _ => {}
            }
        }
        for entry in &due {
            if let Retry::Unreachable(ip) = entry {
                self.table.remove(ip);
            }
        }
        self.due = self.table.values().filter_map(Neighbour::again_at).min();
        due
    }

    /// Forgets the answer that is the oldest, if there are too many. (What our own program asks for is never refused: it would wait for
    /// an answer that nobody asked for.)
    fn make_room(&mut self) {
        if self.table.len() < TABLE_MAX {
            return;
        }
        let oldest = self.table.iter().filter_map(|(ip, neighbour)| match neighbour {
            Neighbour::Known { until, .. } if *until != FOREVER => Some((*until, *ip)),
            _ => None,
        });
        if let Some((_, ip)) = oldest.min() {
            self.table.remove(&ip);
        }
    }

    fn ask(&mut self, ip: IpAddr, entry: Neighbour) {
        self.due = self.due.into_iter().chain(entry.again_at()).min();
        self.table.insert(ip, entry);
    }
}

impl Neighbour {
    fn again_at(&self) -> Option<Instant> {
        match self {
            Self::Known { .. } => None,
            Self::Probed { again_at, .. } | Self::Asked { again_at, .. } => Some(*again_at),
        }
    }
}
