//! Neighbours: which Ethernet address has an IPv4 address (RFC 826), for devices where it doesn't come with the flow; and whether
//! it still has it (RFC 1122 s2.3.2.1; the states are those of RFC 4861 s7.3.2, as in Linux).
//!
//! Beside a kernel ([`crate::device::Capabilities::is_beside_kernel`]) it is the kernel that asks, hears the answers and finds out who is gone. Then a
//! question goes to the ring's owner ([`Neighbours::take_question`]), who passes it on and tells what the kernel knows; and so does, now and then, that a
//! neighbour is in use.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};
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
/// As often, at the most, the kernel beside the ring hears that a neighbour is in use: before it would find out itself (Linux's delay_first_probe_time).
const USED: Duration = Duration::from_secs(5);
/// How often it is asked before a neighbour counts as unreachable. It says so itself, and sooner (after mcast_solicit requests), unless nobody hears it.
const OWNER_TRIES_MAX: u32 = 10;
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
    /// A SYN in its name came from there, which anybody can send: it is answered there, and whoever has more to send asks everyone.
    Told {
        mac: MacAddr,
    },
    /// Everyone is asked; `told` as above.
    Asked {
        told: Option<MacAddr>,
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
    /// `to` one host, or to all.
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
    /// The kernel asks.
    is_beside_kernel: bool,
    /// Whom the kernel is to be asked for, or to be told that they are in use.
    questions: BTreeSet<IpAddr>,
    pub(super) mutation: Mutation,
}

impl Neighbours {
    pub(super) fn new(is_beside_kernel: bool) -> Self {
        Self { is_beside_kernel, ..Self::default() }
    }

    /// Whether a kernel beside the ring asks.
    pub(super) const fn are_the_kernels(&self) -> bool {
        self.is_beside_kernel
    }

    /// The next one that the ring's owner is to ask the kernel for.
    pub(super) fn take_question(&mut self) -> Option<IpAddr> {
        self.questions.pop_first()
    }

    pub(super) fn has_questions(&self) -> bool {
        !self.questions.is_empty()
    }

    #[inline]
    pub(super) fn lookup(&mut self, now: Instant, from: IpAddr, ip: IpAddr) -> Lookup {
        match self.table.get(&ip) {
            Some(Neighbour::Known { mac, until }) if now < *until || self.mutation.is(Mutant::ArpNeverExpires) => {
                Lookup::Known { mac: *mac, probe: false }
            }
            Some(Neighbour::Known { mac, .. }) if self.is_beside_kernel => {
                let mac = *mac;
                self.table.insert(ip, Neighbour::Known { mac, until: now + USED });
                self.questions.insert(ip);
                Lookup::Known { mac, probe: false }
            }
            Some(Neighbour::Known { mac, .. }) => {
                let mac = *mac;
                self.ask(ip, Neighbour::Probed { mac, from, tries: 1, again_at: now + RETRY });
                Lookup::Known { mac, probe: true }
            }
            Some(Neighbour::Told { mac }) => {
                let told = Some(*mac);
                self.ask(ip, Neighbour::Asked { told, from, tries: 1, again_at: now + RETRY });
                Lookup::Unknown { ask: true }
            }
            Some(Neighbour::Probed { mac, .. }) => Lookup::Known { mac: *mac, probe: false },
            Some(Neighbour::Asked { .. }) if self.mutation.is(Mutant::ArpAsksForEach) => Lookup::Unknown { ask: true },
            Some(Neighbour::Asked { .. }) => Lookup::Unknown { ask: false },
            None => {
                self.make_room();
                self.ask(ip, Neighbour::Asked { told: None, from, tries: 1, again_at: now + RETRY });
                if self.is_beside_kernel {
                    self.questions.insert(ip);
                }
                Lookup::Unknown { ask: !self.is_beside_kernel }
            }
        }
    }

    /// The address of a neighbour that is known, without asking anybody.
    pub(super) fn known(&self, ip: IpAddr) -> Option<MacAddr> {
        match self.table.get(&ip)? {
            Neighbour::Known { mac, .. } | Neighbour::Probed { mac, .. } => Some(*mac),
            Neighbour::Told { .. } | Neighbour::Asked { .. } => None,
        }
    }

    /// Where a SYN of a neighbour came from, of whom no more is known.
    pub(super) fn told(&self, ip: IpAddr) -> Option<MacAddr> {
        match self.table.get(&ip)? {
            Neighbour::Told { mac } => Some(*mac),
            Neighbour::Asked { told, .. } => *told,
            Neighbour::Known { .. } | Neighbour::Probed { .. } => None,
        }
    }

    /// Takes in what a host claims, by an answer or by an announcement. Only what was asked for, or is known already, changes: an unasked
    /// claim enters nothing. Whether it was of use.
    pub(super) fn learn(&mut self, now: Instant, ip: IpAddr, mac: MacAddr) -> bool {
        if self.mutation.is(Mutant::ArpLearnsUnasked) && !self.table.contains_key(&ip) {
            self.table.insert(ip, Neighbour::Known { mac, until: now });
        }
        let believed = self.believed();
        let Some(entry) = self.table.get_mut(&ip) else { return false };
        if self.mutation.is(Mutant::ArpKeepsFirstAnswer) && matches!(entry, Neighbour::Known { until, .. } if now < *until) {
            return true;
        }
        // (As Linux's NUD_PERMANENT, which ARP does not change.)
        let taught = matches!(entry, Neighbour::Known { until, .. } if *until == FOREVER);
        if !taught {
            *entry = Neighbour::Known { mac, until: now + believed };
        }
        true
    }

    /// A neighbour of IPv6 says where it is (RFC 4861 s7.2.5). It was asked, if it is `solicited`: that alone proves that it hears us. Whether
    /// its MAC address is known by that, for what waits.
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
            Neighbour::Told { mac } | Neighbour::Probed { mac, .. } => (*mac, false),
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

    pub(super) fn set(&mut self, now: Instant, ip: IpAddr, mac: Option<MacAddr>) {
        match mac {
            Some(mac) if self.is_beside_kernel => drop(self.table.insert(ip, Neighbour::Known { mac, until: now + USED })),
            Some(mac) => drop(self.table.insert(ip, Neighbour::Known { mac, until: FOREVER })),
            // A question under way goes on: somebody waits for the answer.
            None if matches!(self.table.get(&ip), Some(Neighbour::Asked { .. })) && !self.mutation.is(Mutant::ForgottenQuestion) => {}
            None => drop(self.table.remove(&ip)),
        }
    }

    /// A request for us tells who asks (RFC 826's merge flag); that host will want an answer, so it may enter the table.
    pub(super) fn learn_asker(&mut self, now: Instant, ip: IpAddr, mac: MacAddr) {
        if !self.learn(now, ip, mac) && self.table.len() < TABLE_MAX && !self.mutation.is(Mutant::ArpAskerForgotten) {
            self.table.insert(ip, Neighbour::Known { mac, until: now + self.believed() });
        }
    }

    /// A SYN in a neighbour's name came from there. What ARP said stays: that only the neighbour's own network can say, and this anybody, through any
    /// router. So it is where the SYN is answered, and nobody else depends on it.
    pub(super) fn told_by_syn(&mut self, ip: IpAddr, mac: MacAddr) {
        match self.table.get_mut(&ip) {
            Some(Neighbour::Known { .. } | Neighbour::Probed { .. }) => {}
            Some(Neighbour::Told { mac: told }) => *told = mac,
            Some(Neighbour::Asked { told, .. }) => *told = Some(mac),
            None => {
                self.make_room();
                self.table.insert(ip, Neighbour::Told { mac });
            }
        }
    }

    /// Who answers a SYN-ACK from where it was sent to has read it: that is where this neighbour is (RFC 4861 s7.3.1). Whether that was not known.
    pub(super) fn confirmed(&mut self, now: Instant, ip: IpAddr, mac: MacAddr) -> bool {
        let is_news = self.told(ip) == Some(mac);
        if is_news {
            self.table.insert(ip, Neighbour::Known { mac, until: now + self.believed() });
        }
        is_news
    }

    /// How long what a host says of itself is believed. (The kernel knows better, and is asked by the first answer.)
    fn believed(&self) -> Duration {
        if self.is_beside_kernel { Duration::ZERO } else { REACHABLE }
    }

    /// A neighbour did not answer, or is the ring's no more.
    pub(super) fn forget(&mut self, ip: IpAddr) {
        self.table.remove(&ip);
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
        let Self { table, questions, .. } = self;
        for (&target, neighbour) in table {
            match neighbour {
                Neighbour::Probed { mac, from, tries, again_at } if *again_at <= now => {
                    let (to, from) = (*mac, *from);
                    if *tries < TRIES_MAX || self.mutation.is(Mutant::ArpProbesForever) {
                        (*tries, *again_at) = (*tries + 1, now + RETRY);
                        due.push(Retry::Ask { from, target, to });
                    } else {
                        let tries = if self.mutation.is(Mutant::ProbeTriesCarryOver) { *tries } else { 1 };
                        *neighbour = Neighbour::Asked { told: None, from, tries, again_at: now + RETRY };
                        due.push(Retry::Ask { from, target, to: MacAddr::BROADCAST });
                    }
                }
                Neighbour::Asked { tries, again_at, .. } if *again_at <= now && self.is_beside_kernel => {
                    if *tries < OWNER_TRIES_MAX {
                        (*tries, *again_at) = (*tries + 1, now + RETRY);
                        questions.insert(target);
                    } else {
                        due.push(Retry::Unreachable(target));
                    }
                }
                Neighbour::Asked { from, tries, again_at, .. } if *again_at <= now => {
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

    /// Forgets what a SYN told, else the answer that is the oldest, if there are too many. (What our own program asks for is never refused: it would wait
    /// for an answer that nobody asked for.)
    fn make_room(&mut self) {
        if self.table.len() < TABLE_MAX {
            return;
        }
        let oldest = self.table.iter().filter_map(|(ip, neighbour)| match neighbour {
            Neighbour::Told { .. } => Some((Instant::ZERO, *ip)),
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
            Self::Known { .. } | Self::Told { .. } => None,
            Self::Probed { again_at, .. } | Self::Asked { again_at, .. } => Some(*again_at),
        }
    }
}
