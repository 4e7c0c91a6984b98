//! The process's rings, and what belongs to each: who watches it, and which socket stands above which of its flows.
//!
//! A flow's name says which ring has it ([`FlowId::ring`]), so a call that has a socket finds its ring by [`Rings::of`]. What a ring is to its peers
//! (a member of shared memory, which they find and greet) has its own locks and is outside of these: [`Process::rendezvous_of`].
//!
//! [`Process::rendezvous_of`]: crate::process::Process::rendezvous_of

mod choice;

use std::net::SocketAddr;
use std::os::fd::RawFd;

use ringway_stack::device::Queues as _;
use ringway_stack::ring::FlowId;
use ringway_stack::tcp::{self, Remains};
use ringway_stack::{Error, Instant};

use crate::devices::Ring;
use crate::mux::RingWatch;

/// The most rings that a process has. (A [`RingSet`] has a bit for each.)
pub(crate) const RINGS_MAX: usize = 64;

/// A ring of the process's.
pub(crate) struct ProcessRing {
    pub(crate) ring: Ring,
    pub(crate) watch: RingWatch,
    /// The flow's slot -> our socket's index; `u32::MAX` where there is none.
    by_slot: Vec<u32>,
}

impl ProcessRing {
    const fn new(ring: Ring) -> Self {
        Self { ring, watch: RingWatch::new(), by_slot: Vec::new() }
    }

    /// The descriptor that tells who sleeps on the ring; -1 if it has none.
    pub(crate) fn wait_fd(&self) -> RawFd {
        self.ring.queues().wait_fd().unwrap_or(-1)
    }
}

/// All of them.
pub(crate) struct Rings {
    /// Invariant: there is at least one, and none ever goes, so that the number of a ring is its place here.
    all: Vec<ProcessRing>,
    places: choice::Places,
}

impl Rings {
    pub(crate) fn new(first: Ring) -> Self {
        Self { all: vec![ProcessRing::new(first)], places: choice::Places::default() }
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

    #[inline]
    pub(crate) fn at(&self, number: u16) -> &ProcessRing {
        &self.all[usize::from(number)]
    }

    #[inline]
    pub(crate) fn at_mut(&mut self, number: u16) -> &mut ProcessRing {
        &mut self.all[usize::from(number)]
    }

    /// The one that the process began with.
    pub(crate) fn first(&self) -> &ProcessRing {
        &self.all[0]
    }

    /// As [`Rings::first`].
    pub(crate) fn first_mut(&mut self) -> &mut ProcessRing {
        &mut self.all[0]
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &ProcessRing> {
        self.all.iter()
    }

    #[inline]
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut ProcessRing> {
        self.all.iter_mut()
    }

    fn len(&self) -> usize {
        self.all.len()
    }

    /// The numbers of all.
    #[inline]
    pub(crate) fn all(&self) -> RingSet {
        RingSet(u64::MAX >> (RINGS_MAX - self.all.len()))
    }

    /// Whether one of them has something to do.
    #[inline]
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        self.all.iter().any(|own| own.ring.is_due(now))
    }

    /// Polls each once, and says how many frames were served.
    pub(crate) fn poll(&mut self, now: Instant) -> usize {
        self.all.iter_mut().map(|own| own.ring.poll(now)).sum()
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

    /// Whether none of the rings has a connection between two addresses, ours and its peer's, or remembers one that may not be followed yet.
    pub(crate) fn tcp_is_free(&mut self, now: Instant, local: SocketAddr, remote: SocketAddr) -> bool {
        self.iter_mut().all(|own| own.ring.tcp_is_free(now, local, remote))
    }

    /// [`Ring::dissolve`], by the ring that has the connection.
    ///
    /// # Errors
    /// As there.
    pub(crate) fn dissolve(&mut self, now: Instant, local: SocketAddr, remote: SocketAddr) -> Result<Remains, Error> {
        let mut found = Err(Error::BadSocket);
        for own in self.iter_mut() {
            found = own.ring.dissolve(now, local, remote);
            if !matches!(found, Err(Error::BadSocket)) {
                break;
            }
        }
        found
    }

    /// The socket, by its index, that stood last above a flow's slot.
    #[inline]
    pub(crate) fn socket_above(&self, flow: FlowId) -> Option<u32> {
        self.at(flow.ring).by_slot.get(flow.index as usize).copied()
    }

    /// Remembers which of our sockets stands above a flow.
    pub(crate) fn put_above(&mut self, flow: FlowId, socket: u32) {
        let (by_slot, slot) = (&mut self.at_mut(flow.ring).by_slot, flow.index as usize);
        if slot >= by_slot.len() {
            by_slot.resize(slot + 1, u32::MAX);
        }
        by_slot[slot] = socket;
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

    #[inline]
    pub(crate) const fn contains(self, number: u16) -> bool {
        self.0 & Self::of(number).0 != 0
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
        assert_eq!((set.only(), RingSet::of(5).only(), RingSet::NONE.only()), (None, Some(5), None));
        assert!(RingSet::NONE.is_empty() && RingSet::NONE.iter().next().is_none());
    }
}
