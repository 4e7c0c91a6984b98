//! Checkers: what must be true of every frame, every socket call and every service, whatever the network does.
//!
//! They see three things: each frame as it leaves or reaches a NIC, parsed by code of their own; each call of a program on its
//! sockets ([`crate::Sockets`]); and each host's sockets after each service. From the wire alone they know what an endpoint may
//! claim to have received, and from the calls what its bytes must be. A breach panics with the checker's name, host, time, frame and law.
//!
//! What a stack owes the wire is worked out by `shadow`, a TCP of their own.
//! One law a file: `stream`, `datagrams`, `after_close`, `sequence`, `window`, `info`, `rto`, `timers`, `edges`, `fast_open`,
//! `closing`, `resources`, `loans`, `recv_filter`, `sharing`, `forged`, `sleepers`; and of what is not TCP's, `headers`, `answers`, `hearing`,
//! `groups`, `neighbours`, `link`; and of connections that go over to another MAC address, `moves`.
//! Where a frame may have been lost between the NIC and the stack, they assume whatever excuses more.
//! Corruption that no checksum catches exempts content, nothing else. That each of them can fail is shown by mutants of the stack
//! (`tests/mutants.rs`).

mod after_close;
mod answers;
mod breach;
mod calls;
mod closing;
mod datagrams;
mod edges;
mod fast_open;
mod flow;
mod forged;
pub(crate) mod groups;
mod headers;
mod hearing;
mod info;
mod leaving;
mod link;
mod loans;
mod marking;
mod moves;
mod neighbours;
mod ranges;
mod recv_filter;
mod resources;
mod ring_state;
mod rto;
mod sequence;
mod services;
mod shadow;
mod sharing;
mod sleepers;
mod stream;
mod timers;
mod window;
mod wire;

#[cfg(test)]
mod tests;

use core::fmt;
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use ringway_stack::Instant;

pub use self::breach::{Breach, NotABreach};
use self::datagrams::Datagrams;
use self::flow::{Flows, Tuple};
use self::ring_state::{RingState, Sock};
use crate::fabric::Marks;
use crate::reached::Reached;
use crate::segment;

/// Names of all checkers, as they stand in the message of a breach: `checker NAME: …`.
pub const CHECKERS: [&str; 40] = [
    "stream",
    "datagrams",
    "after_close",
    "sequence",
    "window",
    "info",
    "rto",
    "timers",
    "edges",
    "closing",
    "resources",
    "loans",
    "recv_filter",
    "sharing",
    "sleepers",
    "format",
    "acknowledging",
    "timestamps",
    "sack",
    "cwnd",
    "recovery",
    "nagle",
    "resets",
    "duties",
    "errors",
    "keepalive",
    "forged",
    "challenges",
    "arp",
    "icmp",
    "drills",
    "headers",
    "answers",
    "hearing",
    "groups",
    "neighbours",
    "sockets",
    "moves",
    "ecn",
    "fast_open",
];

/// Where and when something is checked.
#[derive(Clone, Copy, Debug)]
struct Moment {
    /// The place of a host's ring in `ring_states`.
    place: usize,
    host: usize,
    ip: Option<IpAddr>,
    at: Instant,
    /// When the host last had a reason to be late, or will have had.
    excused: Instant,
    /// When it last was paused, or its device refused frames, or will have.
    hampered: Instant,
    /// When that began: until then, frames went.
    hampered_since: Instant,
    frame: Option<u64>,
    connection: Option<Tuple>,
}

impl Moment {
    /// Of a host that nothing befell, so many milliseconds after the beginning.
    #[cfg(test)]
    fn after(millis: u64) -> Self {
        let zero = Instant::ZERO;
        let at = zero + Duration::from_millis(millis);
        Self { place: 0, host: 0, ip: None, at, excused: zero, hampered: zero, hampered_since: zero, frame: None, connection: None }
    }

    /// The same, about a connection of the host's.
    fn about(self, connection: Tuple) -> Self {
        Self { connection: Some(connection), ..self }
    }

    /// Ends the run.
    #[cold]
    fn breach(&self, checker: &str, law: impl fmt::Display) -> ! {
        let &Self { host, ip, at, frame, connection, .. } = self;
        panic!("{}", Breach { checker: checker.to_owned(), host, ip, at, frame, connection, law: law.to_string() });
    }
}

/// An ARP request that may be unanswered yet.
#[derive(Debug, Default)]
struct Question {
    /// How often, in a row.
    asked: u32,
    /// When last, and that by the host's clock.
    at: Instant,
    by_clock: Instant,
}

/// All checkers of a world, and what they remember.
#[derive(Debug, Default)]
pub struct Checkers {
    flows: Flows,
    cookies: fast_open::Cookies,
    datagrams: Datagrams,
    /// One for each ring of each host.
    ring_states: Vec<RingState>,
    /// Where each host's rings are in `ring_states`.
    places: Vec<Vec<usize>>,
    /// Connections between two rings.
    moving: BTreeMap<Tuple, Sock>,
    /// How the sockets stood that a connection which is just leaving its ring may be.
    leaving: Vec<leaving::Before>,
    /// How often each host has asked for whose Ethernet address since it last heard from there.
    questions: BTreeMap<(usize, IpAddr), Question>,
    /// When each host's NIC took an answer last.
    answered: BTreeMap<(usize, IpAddr), Instant>,
    /// What each host may know of its neighbours; and whether they were introduced to one another, so that nobody need ask.
    neighbours: BTreeMap<(usize, IpAddr), link::Neighbour>,
    introduced: bool,
    /// Endpoints of each host that something came to or went from since it was serviced.
    stirred: Vec<Vec<usize>>,
    /// What came lately to each host, for which it may have no connection.
    strays: Vec<shadow::resets::State>,
    /// What each host was told of its neighbours, and wants of them.
    neighbour_tables: Vec<neighbours::State>,
    /// What each host was asked lately.
    answers: Vec<answers::State>,
    /// Ports of each host that ever had a listener: what is left of one may answer.
    opened_at: BTreeMap<(usize, u16), Instant>,
    /// Ends of connections that programs began; the SYN may wait for a flow rule.
    begun: BTreeSet<Tuple>,
    /// Who speaks TCP without a stack: not judged, but those who speak with them are.
    strangers: BTreeSet<SocketAddr>,
    /// Hosts that an attacker told by ARP that somebody has his MAC address, to which they may lawfully send what is for others.
    lied_to: BTreeSet<usize>,
    /// Hosts that forgot some of their neighbours, and not all.
    forgetful: BTreeSet<usize>,
    /// Since when no fault strikes any more.
    healed_at: Option<Instant>,
    /// Listeners that had a handshake which failed.
    failed_handshakes: BTreeSet<(usize, u16)>,
    reached: Reached,
}

impl Checkers {
    /// A ring of a host, by the numbers of both, (re)starts: whatever it was before is forgotten. Its place in `ring_states`.
    pub(crate) fn adopt(&mut self, (host, ring): (usize, usize), ip: IpAddr, time_wait: Duration) -> usize {
        if self.places.len() <= host {
            self.places.resize_with(host + 1, Vec::new);
        }
        if self.places[host].len() <= ring {
            self.places[host].push(self.ring_states.len());
            self.ring_states.push(RingState::default());
        } else {
            self.note_left_by(ip);
            self.flows.forget(host);
            // What it knew, or was owed, went with it; so did what it owed.
            self.lied_to.insert(host);
            self.strays[host].serviced();
            self.answers[host] = answers::State::default();
        }
        if self.strays.len() <= host {
            self.strays.resize_with(host + 1, shadow::resets::State::default);
            self.answers.resize_with(host + 1, answers::State::default);
            self.stirred.resize_with(host + 1, Vec::new);
            self.neighbour_tables.resize_with(host + 1, neighbours::State::default);
        }
        self.forget_neighbours(host);
        let place = self.places[host][ring];
        // (What still comes for a MAC address that it had before the crash is not for it.)
        let RingState { now, ahead, readdressed, .. } = self.ring_states[place];
        self.ring_states[place] = RingState { host, ip: Some(ip), time_wait, now, ahead, readdressed, ..RingState::default() };
        place
    }

    /// The place of a host's first ring in `ring_states`.
    fn first(&self, host: usize) -> usize {
        self.places.get(host).and_then(|places| places.first().copied()).unwrap_or(usize::MAX)
    }

    /// Faults were switched on or off.
    pub(crate) fn set_faults(&mut self, now: Instant, on: bool) {
        self.healed_at = (!on).then_some(now);
    }

    /// Segments from this address are no stack's.
    pub(crate) fn expect_stranger(&mut self, address: SocketAddr) {
        self.strangers.insert(address);
    }

    fn moment(&self, place: usize, frame: Option<u64>) -> Moment {
        let ring_state = self.ring_states.get(place);
        let (host, ip, at) = ring_state.map_or((usize::MAX, None, Instant::ZERO), |d| (d.host, d.ip, d.now));
        let zero = Instant::ZERO;
        let (excused, hampered, hampered_since) = ring_state.map_or((zero, zero, zero), |d| (d.excused, d.hampered, d.hampered_since));
        Moment { place, host, ip, at, excused, hampered, hampered_since, frame, connection: None }
    }
}

/// Whether a frame was corrupted where no checksum tells: its content is exempt, and nothing else.
fn is_tainted(marks: Marks) -> bool {
    marks.contains(Marks::HIDDEN)
}
