//! The neighbour cache and its states (RFC 4861 s5.1, s7.2, s7.3, and the table of its appendix C).
//!
//! It is bounded, and what strangers make us remember never displaces what our own programs use:
//! - A neighbour that nobody here has sent to, and that only told us its address, may have a quarter of the table. The oldest such goes first.
//! - Then goes who has not answered yet, the oldest first: a flood of packets that we answer to addresses that nobody has displaces one
//!   known neighbour at most.
//! - Then goes who was not heard of for the longest time, and of those the one that was used the longest ago.

use core::net::Ipv6Addr;
use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};

use arrayvec::ArrayVec;
use rand_chacha::ChaCha8Rng;

use super::{Action, Saying, Transmit, ask_all, some_time};
use crate::addr::MacAddr;
use crate::time::Instant;

mod learning;

pub(super) use self::learning::Advertised;

/// Packets that wait for one neighbour (RFC 4861 s7.2.2: "a small queue").
pub const HELD_MAX: usize = 3;
/// What waits for one neighbour.
pub type Held<P> = ArrayVec<P, HELD_MAX>;

/// Solicitations before a neighbour counts as unreachable: RFC 4861 s10's MAX_MULTICAST_SOLICIT and MAX_UNICAST_SOLICIT.
const TRIES_MAX: u8 = 3;
/// How long an upper layer has for confirming what was known before it is asked for (RFC 4861 s10, DELAY_FIRST_PROBE_TIME).
const DELAY: Duration = Duration::from_secs(5);
/// How often another factor is drawn for how long neighbours count as reachable: "every few hours" says RFC 4861 s6.3.2, which Linux takes for
/// five minutes.
const REDRAW: Duration = Duration::from_secs(300);
/// What a router may make of our times, so that none is a flood of questions, or a neighbour for ever. (RFC 4861 s6.2.1 allows routers an
/// hour at most; 10 ms is Linux's.)
const RETRANSMIT_MIN: Duration = Duration::from_millis(10);
const RETRANSMIT_MAX: Duration = Duration::from_secs(60);
const REACHABLE_MAX: Duration = Duration::from_secs(3600);

/// What a cache can be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// For about how long a neighbour counts as reachable after it was last heard of (RFC 4861 s10, REACHABLE_TIME; Linux's
    /// base_reachable_time).
    pub reachable: Duration,
    /// How long to wait between solicitations (RFC 4861 s10, RETRANS_TIMER; Linux's retrans_time).
    pub retransmit: Duration,
    /// How many neighbours are remembered (Linux's gc_thresh3). At least 4.
    pub neighbours_max: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self { reachable: Duration::from_secs(30), retransmit: Duration::from_secs(1), neighbours_max: 1024 }
    }
}

/// What became of a look-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lookup {
    /// There.
    Known(MacAddr),
    /// It was asked for, now or earlier.
    Asked,
    /// It cannot even be asked for: the table is full of neighbours that are not to be forgotten.
    Full,
}

/// A neighbour's state, in RFC 4861's words (s7.3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NeighbourState {
    /// Its address is asked for.
    Incomplete,
    /// It was heard of lately.
    Reachable,
    /// It was not, which is of no interest before something is sent to it.
    Stale,
    /// Something was sent to it, and perhaps an upper layer will hear of it.
    Delay,
    /// It is asked, alone, whether it is still there.
    Probe,
    /// The caller said so.
    Permanent,
}

#[derive(Debug)]
enum State<P> {
    Incomplete { from: Ipv6Addr, tries: u8, again_at: Instant, packets: Held<P> },
    Known { mac: MacAddr, reach: Reach },
}

#[derive(Debug)]
enum Reach {
    /// Stale from `until` on, which needs no timer.
    Reachable {
        until: Instant,
    },
    Stale,
    Delay {
        from: Ipv6Addr,
        until: Instant,
    },
    Probe {
        from: Ipv6Addr,
        tries: u8,
        again_at: Instant,
    },
    Permanent,
}

#[derive(Debug)]
struct Entry<P> {
    state: State<P>,
    router: bool,
    /// When something was last sent to it.
    used: Instant,
    /// Its place in `unasked` or `incomplete`; zero: it is in neither.
    order: u64,
}

/// The cache. Ordered, so that simulations iterate alike.
#[derive(Debug)]
pub struct Cache<P> {
    config: Config,
    table: BTreeMap<Ipv6Addr, Entry<P>>,
    /// Neighbours that nobody here has asked for, in the order in which they came.
    unasked: BTreeMap<u64, Ipv6Addr>,
    /// Neighbours whose address is asked for, likewise.
    incomplete: BTreeMap<u64, Ipv6Addr>,
    next_order: u64,
    /// No timer runs out before this.
    due: Option<Instant>,
    /// For how long who was heard of counts as reachable, until that is drawn again.
    reachable: Duration,
    redraw_at: Instant,
}

impl<P> Cache<P> {
    pub(super) fn new(config: Config, random: &mut ChaCha8Rng) -> Self {
        let mut cache = Self {
            config: Config { neighbours_max: config.neighbours_max.max(4), ..config },
            table: BTreeMap::new(),
            unasked: BTreeMap::new(),
            incomplete: BTreeMap::new(),
            next_order: 0,
            due: None,
            reachable: Duration::ZERO,
            redraw_at: Instant::ZERO,
        };
        cache.draw(Instant::ZERO, random);
        cache
    }

    /// How many neighbours are known or asked for.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    /// A neighbour's state.
    pub fn state(&self, now: Instant, ip: Ipv6Addr) -> Option<NeighbourState> {
        Some(match &self.table.get(&ip)?.state {
            State::Incomplete { .. } => NeighbourState::Incomplete,
            State::Known { reach, .. } => match reach {
                Reach::Reachable { until } if now < *until => NeighbourState::Reachable,
                Reach::Reachable { .. } | Reach::Stale => NeighbourState::Stale,
                Reach::Delay { .. } => NeighbourState::Delay,
                Reach::Probe { .. } => NeighbourState::Probe,
                Reach::Permanent => NeighbourState::Permanent,
            },
        })
    }

    /// A neighbour's address, without asking anybody.
    pub fn known(&self, ip: Ipv6Addr) -> Option<MacAddr> {
        match self.table.get(&ip)?.state {
            State::Known { mac, .. } => Some(mac),
            State::Incomplete { .. } => None,
        }
    }

    /// Whether a neighbour last said that it is a router.
    pub fn is_router(&self, ip: Ipv6Addr) -> bool {
        self.table.get(&ip).is_some_and(|entry| entry.router)
    }

    /// How long to wait between solicitations.
    pub(super) fn retransmit(&self) -> Duration {
        self.config.retransmit
    }

    /// A router's times (RFC 4861 s6.3.4); zero says nothing.
    pub(super) fn configure(&mut self, now: Instant, reachable: Duration, retransmit: Duration, random: &mut ChaCha8Rng) {
        if !retransmit.is_zero() {
            self.config.retransmit = retransmit.clamp(RETRANSMIT_MIN, RETRANSMIT_MAX);
        }
        let reachable = reachable.min(REACHABLE_MAX);
        if !reachable.is_zero() && reachable != self.config.reachable {
            self.config.reachable = reachable;
            self.draw(now, random);
        }
    }

    /// RFC 4861 s6.3.2: between half and one and a half times what is configured, so that hosts don't ask in step.
    fn draw(&mut self, now: Instant, random: &mut ChaCha8Rng) {
        self.reachable = self.config.reachable / 2 + some_time(random, self.config.reachable);
        self.redraw_at = now + REDRAW;
    }

    fn reachable(&mut self, now: Instant, random: &mut ChaCha8Rng) -> Reach {
        if self.redraw_at <= now {
            self.draw(now, random);
        }
        Reach::Reachable { until: now + self.reachable }
    }

    fn wake_at(&mut self, at: Instant) {
        self.due = self.due.into_iter().chain([at]).min();
    }

    #[inline]
    pub(super) fn lookup(&mut self, now: Instant, from: Ipv6Addr, to: Ipv6Addr, actions: &mut VecDeque<Action<P>>) -> Lookup {
        let Some(entry) = self.table.get_mut(&to) else { return self.ask(now, from, to, actions) };
        entry.used = now;
        let State::Known { mac, reach } = &mut entry.state else { return Lookup::Asked };
        let mac = *mac;
        if entry.order != 0 {
            self.unasked.remove(&entry.order);
            entry.order = 0;
        }
        match reach {
            Reach::Reachable { until } if now < *until => {}
            Reach::Reachable { .. } | Reach::Stale => {
                *reach = Reach::Delay { from, until: now + DELAY };
                self.wake_at(now + DELAY);
            }
            Reach::Delay { .. } | Reach::Probe { .. } | Reach::Permanent => {}
        }
        Lookup::Known(mac)
    }

    /// RFC 4861 s7.2.2.
    fn ask(&mut self, now: Instant, from: Ipv6Addr, to: Ipv6Addr, actions: &mut VecDeque<Action<P>>) -> Lookup {
        if self.table.len() >= self.config.neighbours_max && !self.make_room(now, actions) {
            return Lookup::Full;
        }
        let again_at = now + self.config.retransmit;
        let order = self.order();
        self.incomplete.insert(order, to);
        let state = State::Incomplete { from, tries: 1, again_at, packets: Held::new() };
        self.table.insert(to, Entry { state, router: false, used: now, order });
        self.wake_at(again_at);
        actions.push_back(ask_all(from, to, None));
        Lookup::Asked
    }

    pub(super) fn hold(&mut self, to: Ipv6Addr, packet: P) -> Option<P> {
        match self.table.get_mut(&to).map(|entry| &mut entry.state) {
            Some(State::Incomplete { packets, .. }) => {
                let oldest = if packets.is_full() { packets.pop_at(0) } else { None };
                packets.push(packet);
                oldest
            }
            _ => Some(packet),
        }
    }

    /// Has a neighbour stay as it is, whatever it says; or forgets it. Whether there was room.
    pub(super) fn set(&mut self, ip: Ipv6Addr, mac: Option<MacAddr>, actions: &mut VecDeque<Action<P>>) -> bool {
        let is_new = mac.is_some() && !self.table.contains_key(&ip);
        if is_new && self.table.len() >= self.config.neighbours_max && !self.make_room(Instant::MAX, actions) {
            return false;
        }
        let waited = match self.forget(ip) {
            Some(State::Incomplete { packets, .. }) => Some(packets),
            _ => None,
        };
        let Some(mac) = mac else {
            actions.extend(waited.map(|packets| Action::Unreachable { neighbour: ip, packets }));
            return true;
        };
        let state = State::Known { mac, reach: Reach::Permanent };
        self.table.insert(ip, Entry { state, router: false, used: Instant::ZERO, order: 0 });
        actions.extend(waited.map(|packets| Action::Resolved { neighbour: ip, mac, packets }));
        true
    }

    pub(super) fn confirm(&mut self, now: Instant, ip: Ipv6Addr, random: &mut ChaCha8Rng) {
        let reachable = self.reachable(now, random);
        if let Some(Entry { state: State::Known { reach, .. }, .. }) = self.table.get_mut(&ip)
            && !matches!(reach, Reach::Permanent)
        {
            *reach = reachable;
        }
    }

    #[inline]
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.due
    }

    pub(super) fn on_timer(&mut self, now: Instant, actions: &mut VecDeque<Action<P>>) {
        if self.due.is_none_or(|due| due > now) {
            return;
        }
        let again = now + self.config.retransmit;
        let mut gone = Vec::new();
        for (&ip, entry) in &mut self.table {
            match &mut entry.state {
                State::Incomplete { from, tries, again_at, .. } if *again_at <= now => {
                    if *tries < TRIES_MAX {
                        (*tries, *again_at) = (*tries + 1, again);
                        actions.push_back(ask_all(*from, ip, None));
                    } else {
                        gone.push(ip);
                    }
                }
                State::Known { mac, reach } => match reach {
                    Reach::Delay { from, until } if *until <= now => {
                        actions.push_back(ask_one(*from, ip, *mac));
                        *reach = Reach::Probe { from: *from, tries: 1, again_at: again };
                    }
                    Reach::Probe { from, tries, again_at } if *again_at <= now => {
                        if *tries < TRIES_MAX {
                            (*tries, *again_at) = (*tries + 1, again);
                            actions.push_back(ask_one(*from, ip, *mac));
                        } else {
                            gone.push(ip);
                        }
                    }
                    _ => {}
                },
                State::Incomplete { .. } => {}
            }
        }
        for ip in gone {
            self.give_up(ip, actions);
        }
        self.due = self.table.values().filter_map(Entry::deadline).min();
    }

    /// RFC 4861 s7.2.2, s7.3.3: the entry is deleted, so that what is sent next begins anew, perhaps on another route.
    fn give_up(&mut self, ip: Ipv6Addr, actions: &mut VecDeque<Action<P>>) {
        let packets = match self.forget(ip) {
            Some(State::Incomplete { packets, .. }) => packets,
            _ => Held::new(),
        };
        actions.push_back(Action::Unreachable { neighbour: ip, packets });
    }

    fn forget(&mut self, ip: Ipv6Addr) -> Option<State<P>> {
        let entry = self.table.remove(&ip)?;
        self.unasked.remove(&entry.order);
        self.incomplete.remove(&entry.order);
        Some(entry.state)
    }

    fn order(&mut self) -> u64 {
        self.next_order += 1;
        self.next_order
    }

    /// Forgets somebody for the sake of one that our own program asks for; see the module.
    fn make_room(&mut self, now: Instant, actions: &mut VecDeque<Action<P>>) -> bool {
        if self.evict_unasked() {
            return true;
        }
        if let Some((_, &ip)) = self.incomplete.first_key_value() {
            self.give_up(ip, actions);
            return true;
        }
        let candidates = self.table.iter().filter(|(_, entry)| !matches!(entry.state, State::Known { reach: Reach::Permanent, .. }));
        let Some(ip) = candidates.min_by_key(|(_, entry)| (!entry.is_stale(now), entry.used)).map(|(&ip, _)| ip) else { return false };
        self.forget(ip);
        true
    }

    fn evict_unasked(&mut self) -> bool {
        let Some((_, &ip)) = self.unasked.first_key_value() else { return false };
        self.forget(ip).is_some()
    }
}

impl<P> Entry<P> {
    fn deadline(&self) -> Option<Instant> {
        match &self.state {
            State::Incomplete { again_at: at, .. }
            | State::Known { reach: Reach::Delay { until: at, .. } | Reach::Probe { again_at: at, .. }, .. } => Some(*at),
            State::Known { .. } => None,
        }
    }

    fn is_stale(&self, now: Instant) -> bool {
        match &self.state {
            State::Known { reach: Reach::Reachable { until }, .. } => *until <= now,
            State::Known { reach: Reach::Stale, .. } => true,
            _ => false,
        }
    }
}

fn ask_one<P>(src: Ipv6Addr, target: Ipv6Addr, to: MacAddr) -> Action<P> {
    Action::Transmit(Transmit { src, dst: target, to, what: Saying::Solicitation { target, nonce: None } })
}

#[cfg(test)]
mod tests;
