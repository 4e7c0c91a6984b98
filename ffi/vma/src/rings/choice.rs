//! Which ring a socket's flows are on: VMA_RING_ALLOCATION_LOGIC_RX and SO_VMA_RING_ALLOC_LOGIC, for the device's own queues.
//! (Of an interface all rings are there from the beginning: each has queues of it. A card makes them as they are wanted: [`crate::interfaces::cards`].)
//!
//! Where nobody sets either, each thread's sockets have a ring, up to a few. A ring is opened for the first socket that belongs to a place (a thread, a
//! core, an address …) which has none. What is accepted is on its listener's ring, and what has a ring profile is on the first. Rings stay: each costs its peers a channel, so they are bounded ([`RINGS_MAX`],
//! VMA_RING_LIMIT_PER_INTERFACE), and that of a thread which has ended goes to the next one.

use ringway_devices::Ring;
use ringway_params::Id;
use ringway_stack::net::LinkId;
use ringway_stack::ring::{FlowId, RingConfig};
use ringway_stack::socket::{Choice, Place};

use super::{ProcessRing, RINGS_MAX};
use crate::cancel::Masked;
use crate::extra::rings::{Owner, is_closed};
use crate::lock::Lock;
use crate::params;
use crate::process::{self, Offload, Process};
use crate::slab::Key;
use crate::socket::routes::Routes;
use crate::socket::table::Sockets;

/// Shared memory is one link.
const FABRIC: LinkId = LinkId(1);

/// The places that have rings.
#[derive(Debug)]
pub(super) struct Places {
    choice: Choice,
    /// Of those that are threads'.
    owners: Vec<Owner>,
}

impl Places {
    /// With the ring that the process begins with.
    pub(super) fn new() -> Self {
        let limit = match params::settings().count(Id::RingLimit) as usize {
            0 => RINGS_MAX,
            limit => limit.min(RINGS_MAX),
        };
        let mut choice = Choice::new(limit);
        choice.add(FABRIC, 0);
        Self { choice, owners: Vec::new() }
    }

    /// A ring of an interface.
    pub(super) fn add(&mut self, link: LinkId, number: u16) {
        self.choice.add(link, number);
    }

    /// The link of a ring has none any more.
    pub(super) fn remove_link_of(&mut self, number: u16) {
        if let Some(link) = self.choice.link_of(number) {
            self.choice.remove(link);
        }
    }

    /// Lets go of places that are no more: threads that have ended, sockets that are closed.
    fn forget_the_gone(&mut self, sockets: &Sockets) {
        let Self { choice, owners } = self;
        let is_gone = |place: &Place| is_closed(*place, sockets) || owners.iter().any(|owner| owner.is_of(*place) && owner.is_gone());
        let links = choice.links();
        let gone: Vec<Place> = links.into_iter().flat_map(|link| choice.places_of(link)).filter(is_gone).collect();
        gone.into_iter().for_each(|place| choice.release(place));
        owners.retain(|owner| !owner.is_gone());
    }
}

impl Offload {
    /// Chooses the ring of a socket that has no flow yet, and opens it if it is not there. What is chosen holds while the socket has a flow.
    pub(crate) fn choose_ring(&mut self, key: Key) -> u16 {
        let Some(socket) = self.sockets.find(key) else { return 0 };
        if socket.flows().next().is_some() {
            return socket.ring;
        }
        let ring = self.place_of(key).map_or(0, |(place, most)| self.ring_for(place, most));
        if let Some(socket) = self.sockets.find_mut(key)
            && core::mem::replace(&mut socket.ring, ring) != ring
        {
            // Peers have other addresses on another ring.
            socket.routes = Routes::default();
        }
        ring
    }

    fn ring_for(&mut self, place: Place, most: usize) -> u16 {
        let Self { rings, sockets, .. } = self;
        if let Some(ring) = rings.places.choice.known(FABRIC, place) {
            return ring;
        }
        rings.places.forget_the_gone(sockets);
        if rings.len() < most.saturating_add(rings.interfaces.iter().count()).min(RINGS_MAX)
            && rings.places.choice.wants_ring(FABRIC, place)
            && let Some(process) = process::process()
        {
            self.open_ring(process);
        }
        let places = &mut self.rings.places;
        places.owners.extend(Owner::of(place));
        let ring = places.choice.ring(FABRIC, place).unwrap_or(0);
        if let Some((is_by_core, ratios)) = self.extra_rings.migration_by(place) {
            self.rings.at_mut(ring).callers.claim(is_by_core, ratios);
        }
        ring
    }

    /// The ring of an interface that is for a place, which is the calling thread's.
    pub(crate) fn ring_on(&mut self, link: LinkId, place: Place) -> Option<u16> {
        let Self { rings, sockets, .. } = self;
        let places = &mut rings.places;
        if let Some(ring) = places.choice.known(link, place) {
            return Some(ring);
        }
        places.forget_the_gone(sockets);
        places.owners.extend(Owner::of(place));
        let ring = places.choice.ring(link, place)?;
        // (Where no rules lead to rings, what comes by which queue says which ring a connection is on.)
        let is_steered = self.interfaces.as_ref().is_some_and(|interfaces| interfaces.steered_link(ring).is_some());
        if let Some((is_by_core, ratios)) = self.extra_rings.migration_by(place).filter(|_| is_steered) {
            self.rings.at_mut(ring).callers.claim(is_by_core, ratios);
        }
        Some(ring)
    }

    /// The first ring of a card is for sockets of no place from now on, if it is no place's.
    pub(crate) fn keep_for_all(&mut self, link: LinkId, first: u16) {
        let choice = &mut self.rings.places.choice;
        let is_taken = choice.places_of(link).any(|place| choice.known(link, place) == Some(first));
        if !is_taken {
            choice.ring(link, Place::Interface);
        }
    }

    /// The ring of a link that a place has.
    pub(crate) fn known_ring_on(&self, link: LinkId, place: Place) -> Option<u16> {
        self.rings.places.choice.known(link, place)
    }

    /// Whether a place has no ring of a link, and there is none that is nobody's, nor as many as there may be.
    pub(crate) fn has_no_ring_for(&mut self, link: LinkId, place: Place) -> bool {
        let Self { rings, sockets, .. } = self;
        if rings.places.choice.known(link, place).is_some() {
            return false;
        }
        rings.places.forget_the_gone(sockets);
        rings.places.choice.wants_ring(link, place)
    }

    /// The ring of the calling thread, to which a connection goes over that it alone uses, and which is opened if it is not there. `None`: it is on that ring,
    /// or on none that is chosen by who calls.
    pub(crate) fn home_of_caller(&mut self, key: Key, flow: FlowId) -> Option<u16> {
        let (place, most) = self.place_of(key)?;
        self.extra_rings.migration_by(place)?;
        Some(self.ring_for(place, most)).filter(|ring| *ring != flow.ring)
    }

    /// Opens one ring more. Where none is to be had, another place's has to do.
    fn open_ring(&mut self, process: &'static Process) {
        let _masked = Masked::new();
        let number = self.rings.len() as u16;
        match process.attach_another(number) {
            Ok(ring) => {
                self.rings.add(ring);
                self.rings.places.choice.add(FABRIC, number);
                if self.loans.lends {
                    self.rings.at_mut(number).ring.lend_from_now_on();
                }
                crate::capture::ring_begins(self, process.clock, number);
                // That thread serves it from now on.
                self.mux.call_progress();
                tracing::debug!("ring {number}: {}", process.rendezvous_at(number).member_name());
            }
            Err(error) => tracing::info!("no further ring can be had, so that one is shared: {error}"),
        }
    }
}

impl Process {
    /// The queues of one ring more, of that number, which peers can find.
    fn attach_another(&'static self, number: u16) -> Result<&'static Lock<ProcessRing>, Box<dyn core::error::Error>> {
        let (queues, rendezvous) = self.params.shared_memory().attach_another(self.rendezvous())?;
        let config = RingConfig { number, batch: self.params.cq_poll_batch_max, ..RingConfig::default() };
        let ring = Ring::new(queues, config, params::random_seed()?);
        Ok(self.add_ring(number, ring, rendezvous))
    }
}

#[cfg(test)]
mod tests {
    use ringway_stack::socket::SocketId;

    use super::*;

    #[test]
    fn the_ring_of_a_thread_that_has_ended_is_the_next_ones() {
        let (mut places, sockets) = (Places::new(), Sockets::new());
        places.choice.add(FABRIC, 1);
        let (here, there) = (Place::Thread(1), Place::Thread(2));
        let ring = |places: &mut Places, place| {
            places.forget_the_gone(&sockets);
            places.owners.extend(Owner::of(place));
            places.choice.ring(FABRIC, place)
        };
        assert_eq!(ring(&mut places, here), Some(0));
        let owner = std::thread::spawn(move || Owner::of(there)).join().expect("it does not panic");
        assert_eq!(places.choice.ring(FABRIC, there), Some(1));
        places.owners.extend(owner);
        assert_eq!(ring(&mut places, Place::Thread(3)), Some(1), "that thread has ended");
        assert_eq!(ring(&mut places, here), Some(0));
    }

    #[test]
    fn the_ring_of_a_socket_that_is_closed_is_the_next_ones() {
        let (mut places, sockets) = (Places::new(), Sockets::new());
        places.choice.add(FABRIC, 1);
        let of = |index| Place::Socket(SocketId(index));
        for closed in 1..5 {
            places.forget_the_gone(&sockets);
            assert_eq!(places.choice.ring(FABRIC, of(closed)), Some(0), "nobody has it");
        }
    }
}
