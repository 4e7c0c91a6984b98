//! A ring: one device's queues, every flow steered to them, their timers, and the sockets' calls that never block.
//!
//! The owner (a preloaded library, a simulated host) keeps a ring behind one lock, calls [`Ring::poll`] while it waits,
//! no later than [`Ring::next_deadline`], and learns from [`Ring::take_event`] which flows changed.
//!
//! What all flows have in common is here: polling, events, readiness, shutting down, closing. TCP's own calls are in `stream/calls.rs`
//! (`writing.rs` writes, `reading.rs` reads what it polls for, `handover.rs` moves connections), UDP's in `udp/calls.rs` (`multicast.rs`: groups;
//! `listening.rs`: how routers hear of IPv6's),
//! what both lend in `lending.rs`.

mod arp;
mod demux;
mod dummy;
mod fast_open;
mod gone;
mod handover;
mod icmp;
mod incarnations;
mod info;
mod input;
mod ip;
mod ipv6;
mod late;
mod lending;
mod listening;
mod multicast;
mod neighbour;
mod output;
mod parting;
mod path;
mod prediction;
mod rates;
mod reading;
mod recv_filter;
mod rx_shutdown;
mod sleepers;
mod slots;
mod steering;
mod stream;
mod tap;
mod types;
mod udp;
mod writing;

pub use fast_open::EarlyData;
pub use handover::Handover;
pub use late::LatePacket;
pub use output::HEADERS_MAX;
pub use parting::{ASKED_FOR, Answer};
pub use recv_filter::{Candidate, Shown};
pub use tap::{Seen, Tap};
pub use types::{
    Backlog, Batches, Datagram, Event, FlowId, FlowInfo, NextHop, RecvFlags, Reuse, RingConfig, SendFlags, Shutdown, SourceFilter,
    UdpOptions, Usage,
};
pub use udp::{UdpHandover, UdpPast};

pub use crate::flow::{Counters, Readiness};
pub use crate::tcp::{Decision, Lent, LentPieces};

use core::time::Duration;
use std::collections::BTreeMap;
use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};

use rand_chacha::ChaCha8Rng;
use rand_core::{Rng, SeedableRng};

use self::arp::Answers;
use self::demux::Demux;
use self::fast_open::FastOpens;
use self::handover::{FormerMacs, HandedOver, HandoversUnderWay};
use self::incarnations::{EarlierIncarnations, UnansweredSyns};
use self::late::Late;
use self::multicast::Groups;
use self::neighbour::Neighbours;
use self::output::{Envelope, Output};
use self::parting::Partings;
use self::path::Paths;
use self::rates::Rates;
use self::reading::Reader;
use self::slots::{Flow, STALL_MIN, Slots};
use self::steering::Rules;
use self::udp::strides::StridingQueues;
use crate::device::{DeviceEvent, MacAddr, Queues, RxBatch};
use crate::error::Error;
use crate::marks::{MarkCounts, mark};
use crate::mutants::Mutant;
use crate::tcp;
use crate::time::Instant;
use crate::timer::Wheel;

/// Datagrams that wait for a neighbour's answer, in the whole ring.
const HELD_MAX: usize = 64;

/// Polls that may leave the device's finished buffers where they are.
const REAPS_OWED_MAX: u8 = 4;

/// A datagram that waits for its neighbour's Ethernet address.
struct Held {
    envelope: Envelope,
    neighbour: IpAddr,
    ports: (u16, u16),
    /// See [`crate::device::TxOffload::flow`].
    flow: u32,
    bytes: Vec<u8>,
}

impl Held {
    /// Its addresses, here and there.
    fn ends(&self) -> (SocketAddr, SocketAddr) {
        (SocketAddr::new(self.envelope.src, self.ports.0), SocketAddr::new(self.envelope.dst, self.ports.1))
    }
}

/// One device's ring. See the module's documentation.
pub struct Ring<Q: Queues> {
    queues: Q,
    config: RingConfig,
    mac: MacAddr,
    slots: Slots<Q>,
    demux: Demux,
    rules: Rules,
    rates: Rates,
    /// Where peers were that have moved, by their connections' slots: what comes from there was on its way ([`Ring::tcp_retarget`]).
    former_macs: BTreeMap<u32, FormerMacs>,
    wheel: Wheel<(u32, Instant)>,
    fired: Vec<(u32, Instant)>,
    /// Slots with edges that nobody took yet.
    events: VecDeque<u32>,
    /// Connections to transmit for at the end of the poll.
    dirty: Vec<u32>,
    /// Connections whose frames the device refused, and when to try again.
    stalled: Vec<u32>,
    retry_at: Option<Instant>,
    /// The device is gone for good.
    is_gone: bool,
    retry_after: Duration,
    /// When the latest datagram came.
    datagram_at: Instant,
    icmpv6_errors: ipv6::ErrorLimit,
    waiting_neighbour: Vec<u32>,
    /// Where the segment came from that a connection at rest is being woken by.
    third_from: Option<MacAddr>,
    /// Connections that wait for an acknowledgment, or did a while ago ([`Ring::wake`]).
    awaiting: Vec<u32>,
    /// Answers to who asked for the ring's MAC address that the device refused: whoever asked would ask again only after a second.
    answers: Answers,
    held: Vec<Held>,
    neighbours: Neighbours,
    paths: Paths,
    groups: Groups,
    handed_over: HandedOver,
    handovers: HandoversUnderWay,
    late: Late<Q::Rx>,
    partings: Partings,
    strides: StridingQueues<Q::Rx>,
    unanswered_syns: UnansweredSyns,
    earlier_incarnations: EarlierIncarnations,
    /// `None` only while its frames are looked at.
    batch: Option<Box<RxBatch<Q::Rx>>>,
    batches: Batches,
    output: Output,
    /// When it was polled last.
    polled_at: Instant,
    /// Polls that left it to [`Ring::tidy`] to take back the device's buffers.
    reaps_owed: u8,
    /// What arrives stays where the device put it ([`Ring::lend_from_now_on`]).
    lends: bool,
    /// Whose call polls just now ([`Ring::tcp_recv_polling`]).
    reader: Reader,
    secret: [u8; 32],
    fast_opens: FastOpens,
    /// For cookies of listeners that have no key of their own.
    fast_open_key: [u8; 16],
    #[cfg(feature = "marks")]
    marks: MarkCounts,
}

impl<Q: Queues> Ring<Q> {
    /// A ring on these queues. `seed` feeds initial sequence numbers, timestamps' offsets and jitter.
    pub fn new(queues: Q, config: RingConfig, seed: [u8; 32]) -> Self {
        let mut rng = ChaCha8Rng::from_seed(seed);
        let mut secret = [0; 32];
        rng.fill_bytes(&mut secret);
        // (From draws of its own, so that all others are what they were.)
        let mut fast_open_key = [0; 16];
        ChaCha8Rng::from_seed(secret).fill_bytes(&mut fast_open_key);
        let (mac, caps) = (queues.mac(), queues.capabilities().clone());
        Self {
            mac,
            slots: Slots::new(config.number, config.flows_max),
            demux: Demux::new(rng.next_u64()),
            rules: Rules::default(),
            rates: Rates::default(),
            former_macs: BTreeMap::new(),
            wheel: Wheel::default(),
            fired: Vec::new(),
            events: VecDeque::new(),
            dirty: Vec::new(),
            stalled: Vec::new(),
            retry_at: None,
            is_gone: false,
            retry_after: STALL_MIN,
            datagram_at: Instant::ZERO,
            icmpv6_errors: ipv6::ErrorLimit::new(),
            waiting_neighbour: Vec::new(),
            third_from: None,
            awaiting: Vec::new(),
            answers: Answers::new(),
            held: Vec::new(),
            neighbours: Neighbours::new(caps.is_beside_kernel),
            paths: Paths::default(),
            groups: Groups::new(rng.next_u64(), &config.addresses),
            handed_over: HandedOver::default(),
            handovers: HandoversUnderWay::default(),
            late: Late::default(),
            partings: Partings::default(),
            strides: StridingQueues::new(),
            unanswered_syns: UnansweredSyns::default(),
            earlier_incarnations: EarlierIncarnations::default(),
            batch: Some(Box::new(RxBatch::new(config.batch.max(1)))),
            batches: Batches::default(),
            output: Output::new(caps, mac, config.vlan),
            polled_at: Instant::ZERO,
            reaps_owed: 0,
            lends: false,
            reader: Reader::NOBODY,
            secret,
            fast_opens: FastOpens::default(),
            fast_open_key,
            queues,
            config,
            #[cfg(feature = "marks")]
            marks: MarkCounts::default(),
        }
    }

    /// The device's queues below.
    pub fn queues(&self) -> &Q {
        &self.queues
    }

    /// The device's queues below.
    pub fn queues_mut(&mut self) -> &mut Q {
        &mut self.queues
    }

    /// Receives one batch, runs the timers that are due, and sends what follows from both. Returns how many frames and
    /// timers there were; zero means that there was nothing to do.
    pub fn poll(&mut self, now: Instant) -> usize {
        self.poll_here(now)
    }

    /// [`Ring::poll`] as part of the caller's code. (What is rarely to be done is in functions of its own.)
    #[inline(always)]
    fn poll_here(&mut self, now: Instant) -> usize {
        self.polled_at = now;
        if !self.handed_over.is_empty() {
            self.handed_over.expire(now);
        }
        if !self.handovers.is_empty() {
            self.handovers.expire(now, &mut self.queues);
        }
        let mut frames = self.receive(now);
        if !self.strides.is_empty() {
            frames += self.take_strided(now);
        }
        let timers_are_due = self.wheel.is_due(now);
        if timers_are_due && frames >= self.config.batch.max(1) && !self.config.is(Mutant::RestOfFramesAfterTimers) {
            frames += self.receive_rest(now);
        }
        let mut done = frames + self.device_events(now);
        if timers_are_due {
            done += self.run_timers(now);
        }
        if self.retry_at.is_some_and(|at| at <= now) {
            self.retry_stalled(now);
        }
        if !self.output.caps.point_to_point {
            self.retry_neighbours(now);
        }
        if self.groups.next_deadline().is_some_and(|at| at <= now) {
            self.report_groups(now);
        }
        if self.rates.is_due(now) {
            done += self.send_in_turn(now);
        }
        if !self.dirty.is_empty() {
            self.transmit_dirty(now);
        }
        if frames > 0 && self.output.lent {
            // After a single frame the program has something to do that is more urgent, and time for this when it waits.
            self.reaps_owed += 1;
            if frames > 1 || self.reaps_owed >= REAPS_OWED_MAX {
                self.tidy();
            }
        }
        self.output.flush(&mut self.queues);
        done
    }

    #[inline(never)]
    fn transmit_dirty(&mut self, now: Instant) {
        let mut dirty = core::mem::take(&mut self.dirty);
        for index in dirty.drain(..) {
            self.transmit(now, index);
        }
        // The memory is used again.
        dirty.append(&mut self.dirty);
        self.dirty = dirty;
    }

    /// Does what can be done at any time, and costs least while nothing happens: for a program that is about to wait. (Without it, it is
    /// done with every few polls.)
    #[inline]
    pub fn tidy(&mut self) {
        if self.output.lent {
            self.output.lent = false;
            self.reaps_owed = 0;
            self.queues.reap();
        }
    }

    /// Whether [`Ring::poll`] would find anything to do: a few loads, for loops that spin.
    #[inline]
    pub fn is_due(&self, now: Instant) -> bool {
        self.is_due_here(now)
    }

    /// [`Ring::is_due`] as part of the caller's code.
    #[inline(always)]
    fn is_due_here(&self, now: Instant) -> bool {
        self.queues.rx_ready()
            || self.wheel.is_due(now)
            || self.retry_at.is_some_and(|at| at <= now)
            || self.queues.deadline().is_some_and(|at| at <= now)
            || self.groups.next_deadline().is_some_and(|at| at <= now)
            || self.rates.is_due(now)
            || (!self.output.caps.point_to_point && self.neighbours.next_deadline().is_some_and(|at| at <= now))
    }

    /// When [`Ring::poll`] must be called at the latest, even if no frame arrives.
    pub fn next_deadline(&self) -> Option<Instant> {
        let sooner = |a: Option<Instant>, b: Option<Instant>| if b.is_some_and(|b| a.is_none_or(|a| b < a)) { b } else { a };
        let groups = self.groups.next_deadline().filter(|_| !self.config.is(Mutant::GroupsDeadlineMissed));
        let neighbours = self.neighbours.next_deadline().filter(|_| !self.config.is(Mutant::NeighbourDeadlineMissed));
        let turns = self.rates.next_turn().filter(|_| !self.config.is(Mutant::RateDeadlineMissed));
        let neighbours = sooner(sooner(neighbours, groups), turns);
        let retries = sooner(self.retry_at, self.queues.deadline());
        sooner(sooner(self.wheel.next(), retries), neighbours)
    }

    /// As [`Ring::next_deadline`], for who is about to sleep until then: what connections that are gone have left behind in the timer wheel,
    /// one entry each, wakes nobody.
    pub fn sleep_deadline(&mut self) -> Option<Instant> {
        let Self { wheel, slots, .. } = self;
        wheel.forget(|(index, at)| !slots.goes_by(index, at));
        self.next_deadline()
    }

    /// The next socket whose readiness changed, each at most once until it is taken.
    pub fn take_event(&mut self) -> Option<Event> {
        while let Some(index) = self.events.pop_front() {
            let slot = self.slots.slot(index);
            let edges = core::mem::take(&mut slot.edges);
            // A socket that was closed since has none, and its slot may be another's by now.
            if !edges.is_empty() && slot.flow.is_some() {
                return Some(Event { flow: self.slots.id_at(index), edges });
            }
        }
        None
    }

    /// How often each marked code path was taken; all zero without the feature `marks`.
    pub fn marks(&self) -> MarkCounts {
        #[cfg(feature = "marks")]
        return self.marks;
        #[cfg(not(feature = "marks"))]
        MarkCounts::default()
    }

    /// Makes the ring, and connections that begin from now on, a mutant.
    #[cfg(feature = "mutants")]
    pub fn mutate(&mut self, mutant: crate::mutants::Mutant) {
        self.config.mutant = mutant;
        let mutation = self.config.mutation();
        (self.neighbours.mutation, self.groups.mutation, self.demux.mutation, self.output.mutation) =
            (mutation, mutation, mutation, mutation);
        (self.slots.mutation, self.paths.mutation, self.fast_opens.mutation) = (mutation, mutation, mutation);
        (self.unanswered_syns.mutation, self.earlier_incarnations.mutation) = (mutation, mutation);
    }

    /// What is left when everything should be gone.
    pub fn usage(&self) -> Usage {
        Usage { flows: self.occupied(), addresses: self.demux.len() }
    }

    /// Whether [`Ring::take_event`] may have something to give.
    #[inline]
    pub fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    /// What the whole ring counted since its start.
    pub fn counters(&self) -> Counters {
        self.output.counters
    }

    /// Teaches the ring a neighbour's Ethernet address, or forgets it. (Also learned by ARP where the device has no
    /// [`crate::device::Capabilities::point_to_point`], and no kernel is beside it.)
    pub fn set_neighbour(&mut self, ip: IpAddr, mac: Option<MacAddr>) {
        self.neighbours.set(self.polled_at, ip, mac);
        if let Some(mac) = mac {
            self.neighbour_known(ip, mac);
        }
    }

    /// Beside a kernel: the next neighbour that it is to be asked for, or to be told that it is in use. (The answers to a ring's own questions would be the
    /// kernel's.) The owner of the ring answers, as soon as it can, by [`Ring::set_neighbour`] or [`Ring::neighbour_failed`], and polls the ring then.
    pub fn take_neighbour_question(&mut self) -> Option<IpAddr> {
        self.neighbours.take_question()
    }

    /// Whether there is one.
    #[inline]
    pub fn has_neighbour_questions(&self) -> bool {
        self.neighbours.has_questions()
    }

    /// A neighbour that was asked for does not answer: whoever waits for it fails with [`Error::HostUnreachable`].
    pub fn neighbour_failed(&mut self, now: Instant, ip: IpAddr) {
        self.neighbours.forget(ip);
        mark!(self, NeighbourUnreachable);
        self.neighbour_unreachable(now, ip);
        self.output.flush(&mut self.queues);
    }

    /// The device's Ethernet address changed (a failover, a migrated machine): takes the new one. `announce`: tells the neighbours
    /// (an ARP announcement, RFC 5227 s3), of whom those that know us already take notice.
    pub fn readdress(&mut self, announce: bool) {
        self.mac = self.queues.mac();
        self.output.set_mac(self.mac);
        if announce && !self.output.caps.point_to_point {
            let announced = if self.config.is(Mutant::AnnouncesFirstOnly) { 1 } else { usize::MAX };
            for &ip in self.config.addresses.iter().take(announced).filter(|_| !self.config.is(Mutant::ReaddressUnannounced)) {
                // (What the device refuses is lost: those whom it concerns ask in the end.)
                if !self.output.announce(&mut self.queues, ip) {
                    self.output.counters.tx_drops += 1;
                }
            }
            self.output.flush(&mut self.queues);
        }
    }

    /// Ends one or both directions.
    ///
    /// # Errors
    /// [`Error::NotConnected`] (a UDP socket is shut down nevertheless, as on Linux), [`Error::BadSocket`].
    pub fn shutdown(&mut self, now: Instant, flow: FlowId, how: Shutdown) -> Result<(), Error> {
        let (read, write) = (how != Shutdown::Write, how != Shutdown::Read);
        match self.slots.find_mut(flow)? {
            Flow::Stream(stream) => {
                // A connection in TIME-WAIT is no longer the program's: Linux says so too.
                if matches!(stream.connection.state(), tcp::State::Closed | tcp::State::SynSent | tcp::State::TimeWait) {
                    return Err(Error::NotConnected);
                }
                if read {
                    stream.connection.shutdown_read();
                }
                if write {
                    stream.connection.shutdown_write(now);
                }
                self.transmit(now, flow.index);
                self.output.flush(&mut self.queues);
                Ok(())
            }
            Flow::Udp(udp) => {
                let shut = udp.shut(read, write);
                let edges = udp.readiness() & (Readiness::IN | Readiness::RDHUP | Readiness::HUP);
                if !edges.is_empty() {
                    self.raise(flow.index, edges);
                }
                shut
            }
            Flow::Resting(_) => Err(Error::BadSocket),
            Flow::Listener(_) => Err(Error::NotSupported),
        }
    }

    /// Gives the socket up. A stream goes on by itself until its bytes and its end are acknowledged (or fails to), unless it has unread
    /// bytes or `abort` is set: then the peer gets a reset (RFC 9293 s3.10.4, RFC 2525 s2.17). A listener resets what was never
    /// accepted. The id is dead at once.
    pub fn close(&mut self, now: Instant, flow: FlowId, abort: bool) {
        match self.slots.find_mut(flow) {
            Ok(Flow::Stream(stream)) if !stream.orphan => self.close_stream(now, flow.index, abort),
            Ok(Flow::Listener(_)) => self.close_listener(now, flow),
            Ok(Flow::Udp(_)) => self.close_udp(now, flow),
            _ => {}
        }
        self.output.flush(&mut self.queues);
    }

    /// Whether something waits for the device, which refused it.
    pub fn refused(&self) -> bool {
        self.is_stalled() || self.neighbours.is_unasked()
    }

    /// As [`Ring::refused`], but for questions to neighbours, which have a time of their own.
    fn is_stalled(&self) -> bool {
        !self.stalled.is_empty() || !self.answers.is_empty()
    }

    /// Whether anything waits for the device to take what it refused, a flow rule among it.
    fn tries_again(&self) -> bool {
        self.is_stalled() || self.rules.has_unsteered()
    }

    /// Whether a connection has something to send as soon as its peer acknowledges more, opens its window or answers its SYN, or as the device takes
    /// more: whoever owns the ring and leaves it alone then should hear of the next frame. Also of one that the program has closed.
    #[inline(always)]
    pub fn is_held(&self, flow: FlowId) -> bool {
        matches!(self.slots.find(flow), Some(Flow::Stream(stream)) if stream.connection.is_held())
    }

    /// Whether closed connections are still sending (what a process that exits waits for).
    pub fn lingering(&self) -> bool {
        self.slots.iter().any(|(_, flow)| match flow {
            Flow::Stream(stream) => stream.orphan && stream.connection.is_flushing(),
            _ => false,
        })
    }

    /// The closed connections that have bytes, or their end, yet to get acknowledged. [`Ring::info`] and [`Ring::tcp_hop`] know these
    /// ids, and so does [`Ring::end_silently`] their addresses; for everything else they are dead.
    pub fn lingering_streams(&self) -> Vec<FlowId> {
        let lingers = |flow: &Flow<Q>| match flow {
            // (One that was aborted has at most a reset to send.)
            Flow::Stream(stream) => stream.orphan && stream.connection.is_flushing() && stream.connection.state() != tcp::State::Closed,
            _ => false,
        };
        self.slots.iter().filter(|(_, flow)| lingers(flow)).map(|(id, _)| id).collect()
    }

    /// What closed connections have yet to get acknowledged: their bytes, and one for the end of each, which has a sequence number
    /// too (RFC 9293 s3.4). For a process that exits: while this falls, waiting is worth it.
    pub fn lingering_bytes(&self) -> usize {
        let lingers = |flow: &Flow<Q>| match flow {
            Flow::Stream(stream) if stream.orphan && stream.connection.is_flushing() => stream.connection.send_queue() + 1,
            _ => 0,
        };
        self.slots.iter().map(|(_, flow)| lingers(flow)).sum()
    }

    /// How many sockets there are, closed connections that linger or wait out their TIME-WAIT included. Zero: nothing is left.
    pub fn occupied(&self) -> usize {
        self.slots.iter().count()
    }

    /// What can be done without blocking right now. A dead id: `ERR | HUP`.
    pub fn readiness(&self, flow: FlowId) -> Readiness {
        match self.slots.find(flow) {
            Some(Flow::Stream(stream)) if !stream.orphan => stream.connection.readiness(),
            Some(Flow::Listener(listener)) => listener.readiness(),
            Some(Flow::Udp(udp)) => udp.readiness(),
            _ => Readiness::ERR | Readiness::HUP,
        }
    }

    /// Takes the socket's pending error (SO_ERROR).
    pub fn take_error(&mut self, flow: FlowId) -> Option<Error> {
        match self.slots.find_mut(flow).ok()? {
            Flow::Stream(stream) => stream.connection.take_error(),
            Flow::Resting(_) => None,
            Flow::Udp(udp) if self.config.is(Mutant::SoErrorStays) => udp.error,
            Flow::Udp(udp) => Error::take(&mut udp.error),
            Flow::Listener(listener) => Error::take(&mut listener.error),
        }
    }

    /// Addresses, state, queues and counters of a socket. `None`: a dead id.
    pub fn info(&self, flow: FlowId) -> Option<FlowInfo> {
        self.slots.find(flow).map(info::of)
    }

    /// Every open flow, in the order of their slots.
    pub fn open_flows(&self) -> Vec<FlowId> {
        self.slots
            .iter()
            .filter(|(_, flow)| match flow {
                Flow::Stream(stream) => !stream.orphan && stream.parent.is_none(),
                Flow::Resting(_) => false,
                Flow::Listener(_) | Flow::Udp(_) => true,
            })
            .map(|(id, _)| id)
            .collect()
    }

    #[inline(always)]
    fn device_events(&mut self, now: Instant) -> usize {
        self.queues.poll_event().map_or(0, |first| self.on_device_events(now, first))
    }

    #[cold]
    #[inline(never)]
    fn on_device_events(&mut self, now: Instant, first: DeviceEvent) -> usize {
        let mut count = 0;
        let mut next = Some(first);
        while let Some(event) = next {
            count += 1;
            match event {
                DeviceEvent::PeerGone(mac) => self.peer_gone(now, mac),
                DeviceEvent::PeersGone => self.peers_gone(now),
                DeviceEvent::Link { up: true } => self.link_up(now),
                // Retransmission timers carry connections over an outage; nothing to do at once.
                DeviceEvent::Link { up: false } => {}
                DeviceEvent::RuleReady(rule) => self.rule_ready(now, rule),
                DeviceEvent::RuleFailed(rule, why) => self.rule_failed(now, rule, why),
                // Buffers that were in flight are back: whoever waits for some tries again now.
                DeviceEvent::Reset if self.config.is(Mutant::DeviceResetUnnoticed) => {}
                DeviceEvent::Reset => self.retry_at = Some(now).filter(|_| self.tries_again()),
                DeviceEvent::Gone => self.device_gone(now),
            }
            next = self.queues.poll_event();
        }
        count
    }

    #[inline(never)]
    fn run_timers(&mut self, now: Instant) -> usize {
        let mut fired = core::mem::take(&mut self.fired);
        self.wheel.advance(now, &mut fired);
        let count = fired.len();
        for (index, at) in fired.drain(..) {
            self.on_wheel(now, index, at);
        }
        self.fired = fired;
        count
    }

    /// Notes edges, and queues the socket's event unless one is queued already.
    fn raise(&mut self, index: u32, edges: Readiness) {
        let slot = self.slots.slot(index);
        if slot.edges.is_empty() {
            self.events.push_back(index);
        }
        if self.config.is(Mutant::LaterEdgesLost) && !slot.edges.is_empty() {
            return;
        }
        slot.edges |= edges;
    }
}

#[cfg(test)]
mod tests;
