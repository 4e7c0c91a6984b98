//! The ring's flows: a slab with generations, so that a stale id never reaches another flow.

mod resting;

use core::time::Duration;
use std::collections::VecDeque;
use std::net::SocketAddr;

use self::resting::Resting;
use super::fast_open::Early;
use super::types::{FlowId, NextHop};
use super::udp::UdpFlow;
use crate::device::{FiveTuple, Protocol, Queues, RuleId};
use crate::error::Error;
use crate::flow::{Counters, Readiness};
use crate::mutants::{Mutant, Mutation};
use crate::tcp;
use crate::time::Instant;

/// What a slot holds.
pub(super) enum Flow<Q: Queues> {
    Stream(Box<Stream<Q>>),
    /// A stream, too, in a small form.
    Resting(Box<Resting>),
    Listener(Box<Listener>),
    Udp(Box<UdpFlow<Q>>),
}

/// A TCP connection with its addresses.
pub(super) struct Stream<Q: Queues> {
    pub(super) connection: tcp::Connection<Q::Rx, Q::Tx>,
    pub(super) local: SocketAddr,
    pub(super) remote: SocketAddr,
    pub(super) hop: NextHop,
    /// Its flow rule, on a device with several rings, or if it came from another ring: its own, or a share in its listener's. Else it arrives by its host's.
    pub(super) rule: Option<RuleId>,
    /// What it waits for before it says anything.
    pub(super) silent: Silent,
    /// The wheel's entry that counts; others of this slot are stale.
    pub(super) wheel_at: Option<Instant>,
    /// A later entry that an earlier one took over from. It is used again, so that a connection which is busy now and then
    /// doesn't leave an entry for its keepalive behind each time.
    pub(super) far_at: Option<Instant>,
    /// The listener that has not seen it accepted yet.
    pub(super) parent: Option<FlowId>,
    /// Waits in the parent's accept queue.
    pub(super) queued: bool,
    /// The program closed it; it ends by itself.
    pub(super) orphan: bool,
    /// Waits in the ring's list of flows that the device refused.
    pub(super) stalled: bool,
    /// Other processes have it as well: the end of this one is not the end of it ([`super::Ring::tcp_share`]).
    pub(super) shared: bool,
    /// What the device was told last ([`Queues::note_unfinished`]).
    pub(super) noted: bool,
    /// It has a rate of its own ([`super::Ring::set_rate`]).
    pub(super) is_paced: bool,
}

/// Until when a connection says nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Silent {
    /// It says what there is to say.
    #[default]
    No,
    /// It is being opened, and its rule does not steer yet.
    UntilSteered,
    /// Its peer has yet to be told that it is on this ring, and would refuse what it sends ([`super::Ring::tcp_keep_silent`]).
    UntilFollowed,
}

impl Silent {
    /// What was waited for has come. Whether it was that.
    pub(super) fn ends(&mut self, what: Self) -> bool {
        let is_it = *self == what;
        if is_it {
            *self = Self::No;
        }
        is_it
    }
}

impl<Q: Queues> Stream<Q> {
    /// Whether it would be wrong to take the death of this host for the end of our stream. (A connection that nobody accepted is reset together with its
    /// listener.)
    #[inline(always)]
    pub(super) fn is_unfinished(&self) -> bool {
        // (What it sent last from the ring before may be with nobody until it speaks here.)
        self.connection.is_unfinished() || self.parent.is_some() || self.shared || self.silent == Silent::UntilFollowed
    }

    /// Whether whoever sleeps is to be woken for an acknowledgment of this connection.
    #[inline(always)]
    pub(super) fn awaits_acknowledgment(&self) -> bool {
        let is_closing = self.connection.state() != tcp::State::Established;
        self.connection.awaits_acknowledgment() || (is_closing && !self.orphan && self.connection.awaits_end())
    }

    /// The addresses, as the device knows them.
    pub(super) fn five_tuple(&self) -> FiveTuple {
        FiveTuple { protocol: Protocol::Tcp, local: self.local, remote: Some(self.remote) }
    }

    /// Whether a new entry must go into the wheel for `deadline`; then it is the one that counts.
    #[inline(always)]
    pub(super) fn needs_wheel(&mut self, deadline: Instant) -> bool {
        self.wheel_at.is_none_or(|at| at > deadline) && self.goes_into_wheel(deadline)
    }

    /// The wheel has nothing for it so soon. Whether a new entry must go there.
    #[inline(never)]
    fn goes_into_wheel(&mut self, deadline: Instant) -> bool {
        if self.wheel_at.is_none() && self.far_at.is_some_and(|far| far <= deadline) {
            self.wheel_at = self.far_at.take();
            return false;
        }
        if self.far_at.is_none() {
            self.far_at = self.wheel_at;
        }
        self.wheel_at = Some(deadline);
        true
    }
}

/// A listening socket.
pub(super) struct Listener {
    pub(super) local: SocketAddr,
    /// None: nobody new finds it.
    pub(super) rule: Option<RuleId>,
    /// Why it has none, until somebody asks.
    pub(super) error: Option<Error>,
    /// Its rule is one of a group's.
    pub(super) is_shared: bool,
    pub(super) backlog: usize,
    /// Handshakes under way.
    pub(super) half_open: usize,
    /// Established, not accepted yet, and since when; the oldest first.
    pub(super) ready: VecDeque<(FlowId, Instant)>,
    pub(super) config: tcp::Config,
    pub(super) counters: Counters,
    /// SYNs that were taken since then: within a second.
    pub(super) syns: (Instant, u32),
    /// Those that began with bytes.
    pub(super) early: Early,
}

impl Listener {
    pub(super) fn readiness(&self) -> Readiness {
        let mut readiness = if self.ready.is_empty() { Readiness::empty() } else { Readiness::IN };
        readiness.set(Readiness::ERR, self.error.is_some());
        readiness
    }

    /// Whether one more connection may begin now ([`tcp::Config::syn_rate_max`]).
    pub(super) fn lets_begin(&mut self, now: Instant, mutation: Mutation) -> bool {
        if self.config.syn_rate_max == 0 {
            return true;
        }
        let (since, taken) = &mut self.syns;
        if *taken == 0 || (now.since(*since) >= Duration::from_secs(1) && !mutation.is(Mutant::SynRateCountsForever)) {
            (*since, *taken) = (now, 0);
        }
        let fits = *taken < self.config.syn_rate_max;
        *taken += u32::from(fits);
        fits
    }
}

pub(super) struct Slot<Q: Queues> {
    generation: u32,
    pub(super) flow: Option<Flow<Q>>,
    /// Edges not taken yet. Invariant: if there are any, the slot is in the event queue.
    pub(super) edges: Readiness,
    /// The slot is in the ring's list of those that wait for an acknowledgment.
    pub(super) awaiting: bool,
}

/// The slab.
pub(super) struct Slots<Q: Queues> {
    slots: Vec<Slot<Q>>,
    free: Vec<u32>,
    max: usize,
    /// What the connections are configured like.
    pub(super) profiles: tcp::Profiles,
    /// The ring's number.
    ring: u16,
    pub(super) mutation: Mutation,
}

impl<Q: Queues> Slots<Q> {
    pub(super) fn new(ring: u16, max: usize) -> Self {
        Self { slots: Vec::new(), free: Vec::new(), max, profiles: tcp::Profiles::default(), ring, mutation: Mutation::HEALTHY }
    }

    pub(super) fn has_room(&self) -> bool {
        !self.free.is_empty() || self.slots.len() < self.max
    }

    /// Where the next flow goes, if there is room for one.
    pub(super) fn next_index(&self) -> u32 {
        self.free.last().copied().unwrap_or(self.slots.len() as u32)
    }

    pub(super) fn insert(&mut self, flow: Flow<Q>) -> Result<FlowId, Error> {
        let index = match self.free.pop() {
            Some(index) => index,
            None if self.slots.len() < self.max => {
                self.grow();
                self.slots.push(Slot { generation: 0, flow: None, edges: Readiness::empty(), awaiting: false });
                (self.slots.len() - 1) as u32
            }
            None => return Err(Error::NoBuffers),
        };
        let slot = &mut self.slots[index as usize];
        if !self.mutation.is(Mutant::StaleIdFindsNextFlow) || slot.generation == 0 {
            slot.generation = slot.generation.wrapping_add(1);
        }
        slot.flow = Some(flow);
        slot.edges = Readiness::empty();
        Ok(FlowId { ring: self.ring, index, generation: slot.generation })
    }

    /// Makes room by a quarter, not by as much again: of a million slots half may be too many.
    fn grow(&mut self) {
        let len = self.slots.len();
        if len == self.slots.capacity() {
            self.slots.reserve_exact((len / 4).max(16).min(self.max - len));
        }
    }

    pub(super) fn remove(&mut self, index: u32) -> Option<Flow<Q>> {
        let mut flow = self.slots[index as usize].flow.take()?;
        flow.wake();
        if !self.mutation.is(Mutant::SlotLeaks) {
            self.free.push(index);
        }
        Some(flow)
    }

    #[inline]
    pub(super) fn slot(&mut self, index: u32) -> &mut Slot<Q> {
        &mut self.slots[index as usize]
    }

    #[inline]
    pub(super) fn at(&mut self, index: u32) -> Option<&mut Flow<Q>> {
        self.slots.get_mut(index as usize)?.flow.as_mut()
    }

    /// As [`Slots::at`], for who has something for a connection: one that rested does no longer.
    #[inline]
    pub(super) fn awake_at(&mut self, index: u32) -> Option<&mut Flow<Q>> {
        let flow = self.slots.get_mut(index as usize)?.flow.as_mut()?;
        if !matches!(flow, Flow::Stream(_)) {
            flow.wake();
        }
        Some(flow)
    }

    /// A connection that does not rest.
    #[inline]
    pub(super) fn live_at(&mut self, index: u32) -> Option<&mut Stream<Q>> {
        match self.at(index) {
            Some(Flow::Stream(stream)) => Some(&mut **stream),
            _ => None,
        }
    }

    /// A connection: one that rested does no longer.
    #[inline]
    pub(super) fn stream_at(&mut self, index: u32) -> Option<&mut Stream<Q>> {
        match self.awake_at(index) {
            Some(Flow::Stream(stream)) => Some(stream),
            _ => None,
        }
    }

    #[inline]
    pub(super) fn find(&self, id: FlowId) -> Option<&Flow<Q>> {
        self.slots.get(id.index as usize).filter(|s| s.generation == id.generation && id.ring == self.ring)?.flow.as_ref()
    }

    #[inline]
    pub(super) fn find_mut(&mut self, id: FlowId) -> Result<&mut Flow<Q>, Error> {
        self.slots
            .get_mut(id.index as usize)
            .filter(|s| s.generation == id.generation && id.ring == self.ring)
            .and_then(|s| s.flow.as_mut())
            .ok_or(Error::BadSocket)
    }

    #[inline]
    pub(super) fn stream(&mut self, id: FlowId) -> Result<&mut Stream<Q>, Error> {
        match self.find_mut(id)? {
            Flow::Stream(stream) if !stream.orphan => Ok(stream),
            Flow::Stream(_) | Flow::Resting(_) => Err(Error::BadSocket),
            _ => Err(Error::NotSupported),
        }
    }

    pub(super) fn listener(&mut self, id: FlowId) -> Result<&mut Listener, Error> {
        match self.find_mut(id)? {
            Flow::Listener(listener) => Ok(listener),
            _ => Err(Error::NotSupported),
        }
    }

    #[inline]
    pub(super) fn udp(&mut self, id: FlowId) -> Result<&mut UdpFlow<Q>, Error> {
        match self.find_mut(id)? {
            Flow::Udp(flow) => Ok(flow),
            _ => Err(Error::NotSupported),
        }
    }

    pub(super) fn id_at(&self, index: u32) -> FlowId {
        FlowId { ring: self.ring, index, generation: self.slots[index as usize].generation }
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Flow<Q>> {
        self.slots.iter_mut().filter_map(|slot| slot.flow.as_mut())
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (FlowId, &Flow<Q>)> {
        (0u32..).zip(&self.slots).filter_map(|(index, slot)| {
            slot.flow.as_ref().map(|flow| (FlowId { ring: self.ring, index, generation: slot.generation }, flow))
        })
    }
}

/// How long a flow whose frame the device refused waits before it tries again; doubled up to the maximum.
pub(super) const STALL_MIN: Duration = Duration::from_micros(50);
/// See [`STALL_MIN`].
pub(super) const STALL_MAX: Duration = Duration::from_millis(5);
