//! What neighbours say of themselves: in answers, and by the way.

use core::net::Ipv6Addr;
use std::collections::VecDeque;

use rand_chacha::ChaCha8Rng;

use super::{Cache, DELAY, Entry, Reach, State};
use crate::addr::MacAddr;
use crate::ndisc::Action;
use crate::time::Instant;

/// What a neighbour advertisement says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::ndisc) struct Advertised {
    pub(in crate::ndisc) router: bool,
    pub(in crate::ndisc) solicited: bool,
    pub(in crate::ndisc) overriding: bool,
    pub(in crate::ndisc) mac: Option<MacAddr>,
}

impl<P> Cache<P> {
    /// RFC 4861 s7.2.3, s6.3.4, s8.3, and appendix C: a message that is no answer has its sender's address.
    pub(in crate::ndisc) fn learn(
        &mut self,
        now: Instant,
        ip: Ipv6Addr,
        mac: MacAddr,
        router: Option<bool>,
        actions: &mut VecDeque<Action<P>>,
    ) {
        let Some(entry) = self.table.get_mut(&ip) else { return self.insert_unasked(ip, mac, router) };
        entry.router = router.unwrap_or(entry.router);
        match &mut entry.state {
            State::Known { mac: known, reach } if *known != mac && !matches!(reach, Reach::Permanent) => {
                (*known, *reach) = (mac, Reach::Stale);
            }
            State::Known { .. } => {}
            State::Incomplete { .. } => self.resolve(now, ip, mac, Reach::Stale, actions),
        }
    }

    /// Nobody asked, so that nobody but its like has to give way.
    fn insert_unasked(&mut self, ip: Ipv6Addr, mac: MacAddr, router: Option<bool>) {
        let is_full = self.table.len() >= self.config.neighbours_max;
        if (is_full || self.unasked.len() >= self.config.neighbours_max / 4) && !self.evict_unasked() {
            return;
        }
        let order = self.order();
        self.unasked.insert(order, ip);
        let state = State::Known { mac, reach: Reach::Stale };
        self.table.insert(ip, Entry { state, router: router.unwrap_or(false), used: Instant::ZERO, order });
    }

    /// RFC 4861 s7.2.5.
    pub(in crate::ndisc) fn on_advertisement(
        &mut self,
        now: Instant,
        ip: Ipv6Addr,
        advertised: Advertised,
        random: &mut ChaCha8Rng,
        actions: &mut VecDeque<Action<P>>,
    ) {
        let Advertised { router, solicited, overriding, mac } = advertised;
        // "If no entry exists, the advertisement SHOULD be silently discarded."
        if !self.table.contains_key(&ip) {
            return;
        }
        let reachable = self.reachable(now, random);
        let Some(entry) = self.table.get_mut(&ip) else { return };
        let (known, reach) = match &mut entry.state {
            State::Known { reach: Reach::Permanent, .. } => return,
            State::Known { mac, reach } => (mac, reach),
            State::Incomplete { .. } => {
                // An answer without the address that was asked for is none.
                let Some(mac) = mac else { return };
                entry.router = router;
                return self.resolve(now, ip, mac, if solicited { reachable } else { Reach::Stale }, actions);
            }
        };
        let is_other = mac.is_some_and(|mac| mac != *known);
        if is_other && !overriding {
            // Whoever is right, it is worth asking; nothing else is taken from it.
            if matches!(reach, Reach::Reachable { .. }) {
                *reach = Reach::Stale;
            }
            return;
        }
        *known = mac.unwrap_or(*known);
        if solicited {
            *reach = reachable;
        } else if is_other {
            *reach = Reach::Stale;
        }
        let lost = entry.router && !router;
        entry.router = router;
        // (Who changes its mind faster than anybody listens is heard once for each entry at most.)
        if lost && actions.len() < self.config.neighbours_max {
            actions.push_back(Action::RouterLost(ip));
        }
    }

    /// A neighbour that was asked for is known.
    fn resolve(&mut self, now: Instant, ip: Ipv6Addr, mac: MacAddr, mut reach: Reach, actions: &mut VecDeque<Action<P>>) {
        let Some(entry) = self.table.get_mut(&ip) else { return };
        let State::Incomplete { from, packets, .. } = &mut entry.state else { return };
        // What waited is sent now: where nobody has confirmed the address, that is a reason to find out (RFC 4861 s7.3.3).
        let confirms = !packets.is_empty() && matches!(reach, Reach::Stale);
        if confirms {
            reach = Reach::Delay { from: *from, until: now + DELAY };
        }
        actions.push_back(Action::Resolved { neighbour: ip, mac, packets: core::mem::take(packets) });
        entry.state = State::Known { mac, reach };
        self.incomplete.remove(&core::mem::take(&mut entry.order));
        if confirms {
            self.wake_at(now + DELAY);
        }
    }
}
