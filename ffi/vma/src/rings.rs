//! The process's rings, and what belongs to each: who watches it, and which socket stands above which of its flows. (What the Extra API calls a ring,
//! [`crate::extra::Rings`], is a set of sockets that share a descriptor and a queue of completions.)
//!
//! A flow's name says which ring has it ([`FlowId::ring`]), so a call that has a socket finds its ring by [`Rings::of`]. What a ring is to its peers
//! (a member of shared memory, which they find and greet) has its own locks and is outside of these: [`Process::rendezvous_of`].
//!
//! [`Process::rendezvous_of`]: crate::process::Process::rendezvous_of

mod above;
mod callers;
mod choice;

pub(crate) use self::above::{Above, Only};
pub(crate) use self::callers::Callers;

use core::cell::Cell;
use core::sync::atomic::{AtomicU64, Ordering};
use std::borrow::Cow;
use std::net::SocketAddr;
use std::os::fd::RawFd;

use ringway_devices::{Rendezvous, Ring};
use ringway_stack::net::LinkId;
use ringway_stack::ring::{Event, FlowId, NextHop, Reuse, UdpOptions};
use ringway_stack::socket::{Direction, FlowRing};
use ringway_stack::tcp::{self, Undelivered};
use ringway_stack::{Error, Instant};

use crate::card_time::CardTime;
use crate::lock::{Lock, Protected};
use crate::memory::{self, OwnHeap};
use crate::mux::RingWatch;
use crate::socket::plain;

/// The most rings that a process has. (A [`RingSet`] has a bit for each.)
pub(crate) const RINGS_MAX: usize = 64;

/// A ring of the process's.
pub(crate) struct ProcessRing {
    pub(crate) ring: Ring,
    pub(crate) watch: RingWatch,
    /// Calls that had this ring's lock alone.
    pub(crate) calls: &'static Calls,
    /// An event that such a call could not tell of.
    pub(crate) untold: Option<Event>,
    /// What is known of the sockets above its flows of datagrams, for who has this ring's lock alone.
    pub(crate) datagrams: plain::Beside,
    /// Who calls on its connections.
    pub(crate) callers: Callers,
    /// What its card's clock says.
    pub(crate) card_time: CardTime,
    /// By the flow's slot.
    by_slot: Vec<Above>,
    /// The heap of the thread that made it, which everything of the ring's is from: whoever polls it.
    heap: OwnHeap,
}

/// What is changed by who has a ring's lock, and read by all. (It is a cache line of its own, so that who reads it is in nobody's way for long.)
#[derive(Debug, Default)]
#[repr(align(64))]
pub(crate) struct Calls {
    count: AtomicU64,
    /// Frames that the ring had received after the last one.
    received: AtomicU64,
}

impl Calls {
    /// One more; for who has the ring's lock.
    #[inline(always)]
    fn note(&self, received: u64) {
        self.count.store(self.so_far().wrapping_add(1), Ordering::Relaxed);
        self.received.store(received, Ordering::Relaxed);
    }

    #[inline(always)]
    pub(crate) fn so_far(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }
}

/// Which rings their threads look at, for who has no lock.
#[derive(Default)]
pub(crate) struct Looks {
    rings: Vec<&'static Calls>,
    /// What each had received, as of the last look.
    seen: Vec<u64>,
}

impl Looks {
    /// From now on these rings are meant, and what they have received so far counts for nothing: whoever asks may have looked at them itself.
    pub(crate) fn follow(&mut self, rings: &Rings) {
        if self.rings.len() != rings.calls.len() {
            self.rings.clone_from(&rings.calls);
            self.seen.resize(self.rings.len(), 0);
        }
        self.since_last();
    }

    /// Those that have received something, in calls by their locks alone (by the process's, where there is one ring), since this was asked last, or they were followed.
    pub(crate) fn since_last(&mut self) -> RingSet {
        let is_looked_at = |(calls, seen): (&&Calls, &mut u64)| {
            let received = calls.received.load(Ordering::Relaxed);
            core::mem::replace(seen, received) != received
        };
        let looked_at = self.rings.iter().zip(&mut self.seen).map(is_looked_at);
        (0..).zip(looked_at).filter_map(|(number, is_looked_at)| is_looked_at.then_some(number)).collect()
    }

    /// Whether those are all.
    pub(crate) fn are_all(&self, rings: RingSet) -> bool {
        !self.rings.is_empty() && rings.iter().count() == self.rings.len()
    }
}

impl ProcessRing {
    pub(crate) fn new(ring: Ring) -> Self {
        Self {
            ring,
            watch: RingWatch::new(),
            calls: Box::leak(Box::default()),
            untold: None,
            datagrams: plain::Beside::new(),
            callers: Callers::default(),
            card_time: CardTime::default(),
            by_slot: Vec::new(),
            heap: memory::own_heap(),
        }
    }

    /// Another ring takes its place, which has no flows; and is shown to whom it was.
    fn renew(&mut self, ring: Ring) {
        let tap = self.ring.set_tap(None);
        self.ring = ring;
        let _ = self.ring.set_tap(tap);
        self.untold = None;
        self.datagrams = plain::Beside::new();
        self.callers = Callers::default();
        self.card_time = CardTime::default();
        self.heap = memory::own_heap();
    }

    /// A call that had this ring's lock alone is over.
    #[inline(always)]
    pub(crate) fn note_call(&self) {
        self.calls.note(self.ring.rx_packets());
    }

    /// The same of a call that had the process's lock, where that is the ring's.
    #[inline(always)]
    pub(crate) fn note_received(&self) {
        self.calls.received.store(self.ring.rx_packets(), Ordering::Relaxed);
    }

    /// Serves what the ring has, and says how many frames that were.
    #[inline]
    pub(crate) fn poll(&mut self, now: Instant) -> usize {
        let _lent = self.heap.lend();
        self.ring.poll(now)
    }

    /// What is to be told next.
    #[inline]
    pub(crate) fn take_event(&mut self) -> Option<Event> {
        let event = self.untold.take().or_else(|| self.ring.take_event())?;
        if let Some(lone) = self.watch.lone_for(event.flow) {
            lone.wake();
        }
        Some(event)
    }

    /// Whether there is anything to tell.
    #[inline]
    pub(crate) fn has_events(&self) -> bool {
        self.untold.is_some() || self.ring.has_events()
    }

    /// The socket, by its index, that stood last above a flow's slot.
    #[inline]
    pub(crate) fn socket_above(&self, flow: FlowId) -> Option<u32> {
        self.by_slot.get(flow.index as usize).map(Above::socket)
    }

    /// What stands above a flow.
    #[inline]
    pub(crate) fn above(&self, flow: FlowId) -> Option<&Above> {
        self.by_slot.get(flow.index as usize)
    }

    /// As [`ProcessRing::above`].
    pub(crate) fn above_mut(&mut self, flow: FlowId) -> Option<&mut Above> {
        self.by_slot.get_mut(flow.index as usize)
    }

    /// A call that may be another thread's than the ring's receives, or sends, on a connection. Whether that goes over to the caller's ring.
    #[cold]
    #[inline(never)]
    pub(crate) fn note_caller(&mut self, flow: FlowId, direction: Direction) -> bool {
        let Self { ring, callers, .. } = self;
        callers.prune(|index, generation| ring.info(FlowId { index, generation, ..flow }).is_some());
        callers.note(flow, direction)
    }

    /// Takes a connection from another ring of the process, as it is written there: [`Ring::adopt_snapshot`].
    ///
    /// # Errors
    /// As there.
    pub(crate) fn adopt_snapshot(
        &mut self,
        now: Instant,
        ends: (SocketAddr, SocketAddr),
        hop: NextHop,
        config: &tcp::Config,
        bytes: &[u8],
    ) -> Result<FlowId, Error> {
        let _lent = self.heap.lend();
        self.ring.adopt_snapshot(now, ends, hop, config, bytes)
    }

    /// Lets go of what is known of flows that are closed, and of members that are gone.
    pub(crate) fn forget_dead_ways(&mut self, number: u16, rendezvous: &Rendezvous) {
        let Self { ring, datagrams, .. } = self;
        datagrams.forget_dead(rendezvous, number, |flow| ring.info(flow).is_some());
    }

    /// The descriptor that tells who sleeps on the ring; -1 if it has none.
    pub(crate) fn wait_fd(&self) -> RawFd {
        self.ring.wait_fd().unwrap_or(-1)
    }
}

impl Protected for ProcessRing {
    type Left = ();
}

/// All of them, for whoever holds the process's lock.
///
/// Where there is one, that lock protects it. Where there are several, each has a lock of its own, which is all that a thread needs for the data of a
/// connection ([`crate::socket::plain`]): whoever holds the process's lock takes those of the rings that it comes to, and lets go of them with it.
/// So the order is the process's lock, then rings; and who has a ring's alone waits for no other.
pub(crate) struct Rings {
    /// Invariant: there is at least one, and none ever goes, so that the number of a ring is its place here.
    all: Vec<&'static Lock<ProcessRing>>,
    /// The first of them.
    first: &'static Lock<ProcessRing>,
    /// What has been called on each.
    calls: Vec<&'static Calls>,
    /// There are several.
    are_locked: bool,
    /// Those whose locks were taken since the process's was.
    taken: Cell<RingSet>,
    /// Those that are on interfaces, and none of shared memory's.
    pub(crate) interfaces: RingSet,
    /// Those of one interface each that nobody knows of which of them something comes to.
    together: Vec<RingSet>,
    places: choice::Places,
}

impl Rings {
    pub(crate) fn new(first: &'static Lock<ProcessRing>) -> Self {
        Self {
            all: vec![first],
            first,
            calls: vec![first.lock().calls],
            are_locked: false,
            taken: Cell::new(RingSet::NONE),
            interfaces: RingSet::NONE,
            together: Vec::new(),
            places: choice::Places::new(),
        }
    }

    /// One more.
    pub(crate) fn add(&mut self, ring: &'static Lock<ProcessRing>) {
        self.all.push(ring);
        self.calls.push(ring.lock().calls);
        self.are_locked = true;
        // (What was done with the first one in this hold is yet to be told.)
        self.take(0);
    }

    /// One more, of an interface.
    pub(crate) fn add_of_interface(&mut self, ring: &'static Lock<ProcessRing>, link: LinkId) {
        let number = self.all.len() as u16;
        self.add(ring);
        self.interfaces = self.interfaces.with(RingSet::of(number));
        self.places.add(link, number);
    }

    /// Gives up what a ring of an interface is on. Its number is the next one's of an interface.
    pub(crate) fn give_up_device(&mut self, number: u16, absent: Ring) {
        self.at_mut(number).renew(absent);
        self.places.remove_link_of(number);
        self.together.retain(|rings| !rings.contains(number));
    }

    /// Those that are on a device.
    pub(crate) fn present(&self) -> usize {
        self.len() - self.interfaces.iter().filter(|&number| self.at(number).ring.is_absent()).count()
    }

    /// One whose device was given up.
    pub(crate) fn absent(&self) -> Option<u16> {
        self.interfaces.iter().find(|&number| self.at(number).ring.is_absent())
    }

    /// That one is on a device again.
    pub(crate) fn renew(&mut self, number: u16, ring: Ring, link: LinkId) {
        self.at_mut(number).renew(ring);
        self.places.add(link, number);
    }

    /// What is for one of these may come to any: whoever waits for one waits for all.
    pub(crate) fn watch_together(&mut self, rings: RingSet) {
        self.together.push(rings);
    }

    /// Some rings, with those that what is for them may come to.
    #[inline]
    pub(crate) fn with_those_beside(&self, rings: RingSet) -> RingSet {
        let beside = self.together.iter().filter(|beside| !beside.and(rings).is_empty());
        beside.fold(rings, |all, beside| all.with(*beside))
    }

    /// Whether threads go on with connections by their rings' locks alone.
    #[inline]
    pub(crate) const fn are_locked(&self) -> bool {
        self.are_locked
    }

    /// The ring that a flow is on.
    #[inline]
    pub(crate) fn of(&self, flow: FlowId) -> &Ring {
        &self.at(flow.ring).ring
    }

    /// As [`Rings::of`].
    #[inline]
    pub(crate) fn of_mut(&mut self, flow: FlowId) -> &mut Ring {
        &mut self.at_mut(flow.ring).ring
    }

    #[inline(always)]
    pub(crate) fn at(&self, number: u16) -> &ProcessRing {
        // SAFETY: it is taken, and released by who has an exclusive reference to this (`let_go`); as has who changes it.
        unsafe { self.take(number).taken() }
    }

    #[inline(always)]
    pub(crate) fn at_mut(&mut self, number: u16) -> &mut ProcessRing {
        // SAFETY: as in `at`; and the reference is as exclusive as the one to this.
        unsafe { self.take(number).taken_mut() }
    }

    /// A ring whose lock is taken: by this, unless it is taken already, or none is needed.
    #[inline(always)]
    fn take(&self, number: u16) -> &'static Lock<ProcessRing> {
        // (One that is alone has no lock to be taken; and no flow, whatever its name says, is on another.)
        if self.are_locked { self.take_one_of(number) } else { self.first }
    }

    fn take_one_of(&self, number: u16) -> &'static Lock<ProcessRing> {
        let ring = self.all[usize::from(number)];
        if !self.taken.get().contains(number) {
            ring.take();
            self.taken.set(self.taken.get().with(RingSet::of(number)));
        }
        ring
    }

    /// Those that the holder of the process's lock has come to; all, where there is one.
    #[inline]
    pub(crate) fn touched(&self) -> RingSet {
        if self.are_locked { self.taken.get() } else { RingSet::of(0) }
    }

    /// Comes to a ring, so that what it has to tell is told.
    pub(crate) fn touch(&self, number: u16) {
        self.take(number);
    }

    /// As [`Rings::touch`], some of them: before a lock is taken that comes behind theirs.
    #[inline]
    pub(crate) fn touch_these(&self, rings: RingSet) {
        if self.are_locked {
            rings.and(self.all()).iter().for_each(|number| self.touch(number));
        }
    }

    /// Takes the locks of all.
    pub(crate) fn take_all(&self) {
        for number in self.all().iter() {
            self.take(number);
        }
    }

    /// Takes the locks of these, unless somebody has one. `false`: somebody does, and polls that ring, most likely.
    pub(crate) fn try_take(&self, rings: RingSet) -> bool {
        rings.iter().filter(|_| self.are_locked).all(|number| {
            let is_taken = self.taken.get().contains(number) || self.all[usize::from(number)].try_take();
            if is_taken {
                self.taken.set(self.taken.get().with(RingSet::of(number)));
            }
            is_taken
        })
    }

    /// Calls that had one ring's lock alone, whichever it was.
    pub(crate) fn calls(&self) -> u64 {
        self.calls.iter().map(|calls| calls.so_far()).sum()
    }

    /// The process's lock is released, and so are these.
    #[inline]
    pub(crate) fn let_go(&mut self) {
        if self.are_locked {
            self.taken.take().iter().for_each(|number| self.all[usize::from(number)].release());
        }
    }

    /// The one that the process began with.
    #[inline(always)]
    pub(crate) fn first(&self) -> &ProcessRing {
        self.at(0)
    }

    /// As [`Rings::first`].
    pub(crate) fn first_mut(&mut self) -> &mut ProcessRing {
        self.at_mut(0)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &ProcessRing> {
        self.all().iter().map(|number| self.at(number))
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut ProcessRing> {
        self.take_all();
        // SAFETY: as in `at_mut`: they are taken, and each is another one's.
        self.all.iter().map(|ring| unsafe { ring.taken_mut() })
    }

    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    /// What a connection on that ring has to do with: no longer segments than its device, and the path to that peer, carry, and no more pieces.
    pub(crate) fn tcp_config<'a>(&self, ring: u16, config: &'a tcp::Config, path: (Option<SocketAddr>, u16)) -> Cow<'a, tcp::Config> {
        if !self.interfaces.contains(ring) {
            return Cow::Borrowed(config);
        }
        let capabilities = self.at(ring).ring.capabilities();
        let (peer, path_mtu) = path;
        // RFC 9293 s3.7.1: the MTU less both fixed headers.
        let headers = if peer.is_some_and(|peer| peer.is_ipv6()) { 60 } else { 40 };
        let longest = u16::try_from(capabilities.mtu).unwrap_or(u16::MAX).min(path_mtu).saturating_sub(headers);
        let (mss_max, gather_max) = (config.mss_max.min(longest), config.gather_max.min(capabilities.gather_max));
        Cow::Owned(tcp::Config { mss_max, gather_max, ..config.clone() })
    }

    /// What a UDP socket's flow begins with on that ring. (On an interface, whoever has an address has it alone.)
    pub(crate) fn udp_options(&self, ring: u16, options: &UdpOptions) -> UdpOptions {
        if self.interfaces.contains(ring) { UdpOptions { reuse: Reuse::No, cookie: 0, ..*options } } else { *options }
    }

    /// The numbers of all.
    #[inline]
    pub(crate) fn all(&self) -> RingSet {
        RingSet(u64::MAX >> (RINGS_MAX - self.all.len()))
    }

    /// Whether one of them has something to do.
    #[inline]
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        self.iter().any(|own| own.ring.is_due(now))
    }

    /// Polls each of these once, and says how many frames were served.
    pub(crate) fn poll(&mut self, rings: RingSet, now: Instant) -> usize {
        rings.iter().map(|number| self.at_mut(number).poll(now)).sum()
    }

    /// Connections that the program has closed, and that are not over yet.
    pub(crate) fn lingering_streams(&self) -> impl Iterator<Item = FlowId> {
        self.iter().flat_map(|own| own.ring.lingering_streams())
    }

    /// All flows that the program has open.
    pub(crate) fn open_flows(&self) -> impl Iterator<Item = FlowId> {
        self.iter().flat_map(|own| own.ring.open_flows())
    }

    /// The state of the connection between two addresses, ours and its peer's, whichever ring has it.
    pub(crate) fn tcp_state(&self, local: SocketAddr, remote: SocketAddr) -> Option<tcp::State> {
        self.iter().find_map(|own| own.ring.tcp_state(local, remote))
    }

    /// The connection between two addresses, ours and its peer's, whichever ring has it.
    pub(crate) fn tcp_between(&self, local: SocketAddr, remote: SocketAddr) -> Option<FlowId> {
        self.iter().find_map(|own| own.ring.tcp_between(local, remote))
    }

    /// Whether none of the rings has a connection between two addresses, ours and its peer's, or remembers one that may not be followed yet.
    pub(crate) fn tcp_is_free(&mut self, now: Instant, local: SocketAddr, remote: SocketAddr) -> bool {
        self.iter_mut().all(|own| own.ring.tcp_is_free(now, local, remote))
    }

    /// [`Ring::end_silently`], by the ring that has the connection.
    ///
    /// # Errors
    /// As there.
    pub(crate) fn end_silently(&mut self, now: Instant, local: SocketAddr, remote: SocketAddr) -> Result<Undelivered, Error> {
        let mut found = Err(Error::BadSocket);
        for own in self.iter_mut() {
            found = own.ring.end_silently(now, local, remote);
            if !matches!(found, Err(Error::BadSocket)) {
                break;
            }
        }
        found
    }

    /// The socket, by its index, that stood last above a flow's slot.
    #[inline]
    pub(crate) fn socket_above(&self, flow: FlowId) -> Option<u32> {
        self.at(flow.ring).socket_above(flow)
    }

    /// Remembers which of our sockets stands above a flow.
    pub(crate) fn put_above(&mut self, flow: FlowId, socket: u32) {
        let own = self.at_mut(flow.ring);
        own.datagrams.forget(flow.index);
        let (by_slot, slot) = (&mut own.by_slot, flow.index as usize);
        if slot >= by_slot.len() {
            by_slot.resize(slot + 1, Above::nothing());
        }
        by_slot[slot] = Above::new(socket);
    }
}

impl ringway_stack::socket::Rings for Rings {
    fn at(&mut self, number: u16) -> Option<&mut dyn FlowRing> {
        self.all().contains(number).then(|| self.at_mut(number).ring.as_flow_ring())
    }
}

/// Some of the process's rings, by their numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RingSet(u64);

impl RingSet {
    pub(crate) const NONE: Self = Self(0);

    #[inline]
    pub(crate) const fn of(number: u16) -> Self {
        Self(1 << number)
    }

    #[inline]
    pub(crate) const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Those that are not among the others.
    #[inline]
    pub(crate) const fn but_for(self, others: Self) -> Self {
        Self(self.0 & !others.0)
    }

    /// Those but for one.
    #[inline]
    pub(crate) const fn without(self, number: u16) -> Self {
        Self(self.0 & !Self::of(number).0)
    }

    #[inline]
    pub(crate) const fn contains(self, number: u16) -> bool {
        self.0 & Self::of(number).0 != 0
    }

    /// As a word: zero is none.
    #[inline]
    pub(crate) const fn bits(self) -> u64 {
        self.0
    }

    /// See [`RingSet::bits`].
    #[inline]
    pub(crate) const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// Whether all of the others are among them.
    #[inline]
    pub(crate) const fn has(self, others: Self) -> bool {
        others.0 & !self.0 == 0
    }

    #[inline]
    pub(crate) const fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    pub(crate) const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The one that it is, if it is one.
    #[inline]
    pub(crate) fn only(self) -> Option<u16> {
        self.0.is_power_of_two().then(|| self.0.trailing_zeros() as u16)
    }

    #[inline]
    pub(crate) fn iter(self) -> impl Iterator<Item = u16> {
        let mut left = self.0;
        core::iter::from_fn(move || {
            let number = (left != 0).then(|| left.trailing_zeros() as u16)?;
            left &= left - 1;
            Some(number)
        })
    }
}

impl FromIterator<u16> for RingSet {
    fn from_iter<I: IntoIterator<Item = u16>>(numbers: I) -> Self {
        numbers.into_iter().fold(Self::NONE, |set, number| set.with(Self::of(number)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_has_what_was_put_into_it() {
        let set: RingSet = [0, 5, 63].into_iter().collect();
        assert_eq!(set.iter().collect::<Vec<_>>(), [0, 5, 63]);
        assert!(set.contains(63) && !set.contains(62));
        assert_eq!((set.without(5).iter().collect::<Vec<_>>(), RingSet::from_bits(set.bits())), (vec![0, 63], set));
        assert_eq!((set.only(), RingSet::of(5).only(), RingSet::NONE.only()), (None, Some(5), None));
        assert_eq!(set.but_for([5, 6].into_iter().collect()).iter().collect::<Vec<_>>(), [0, 63]);
        assert!(RingSet::NONE.is_empty() && RingSet::NONE.iter().next().is_none());
    }

    #[test]
    fn a_ring_is_looked_at_that_has_received_something_since_it_was_asked_about() {
        let calls: [&'static Calls; 2] = [Box::leak(Box::default()), Box::leak(Box::default())];
        let mut looks = Looks { rings: calls.to_vec(), seen: vec![0; 2] };
        assert!(looks.since_last().is_empty());
        calls[1].note(5);
        let looked_at = looks.since_last();
        assert!(looked_at == RingSet::of(1) && !looks.are_all(looked_at));
        calls[1].note(5);
        assert!(looks.since_last().is_empty(), "a call that receives nothing may not have looked");
        calls.iter().for_each(|calls| calls.note(7));
        let looked_at = looks.since_last();
        assert!(looks.are_all(looked_at) && looks.since_last().is_empty());
        assert!(!Looks::default().are_all(RingSet::NONE), "none are known");
    }
}
