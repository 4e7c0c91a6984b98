//! Which ring a socket's flows are on: VMA_RING_ALLOCATION_LOGIC_RX and SO_VMA_RING_ALLOC_LOGIC, for the device's own queues.
//!
//! A ring is opened for the first socket that belongs to a place (a thread, a core, an address …) which has none. What is accepted is on its
//! listener's ring, and what has a ring profile is on the first. Rings stay: each costs its peers a channel, so they are bounded ([`RINGS_MAX`],
//! VMA_RING_LIMIT_PER_INTERFACE), and that of a thread which has ended goes to the next one.

use ringway_params::Id;
use ringway_stack::ring::RingConfig;

use super::{ProcessRing, RINGS_MAX};
use crate::cancel::Masked;
use crate::devices::{self, Ring};
use crate::extra::rings::Home;
use crate::lock::Lock;
use crate::params;
use crate::process::{self, Offload, Process};
use crate::slab::Key;
use crate::socket::datagram::Route;
use crate::socket::routes::Routes;
use crate::socket::table::Sockets;

/// A place that has a ring.
#[derive(Debug)]
struct Known {
    home: Home,
    ring: u16,
}

/// The places that have rings.
#[derive(Debug, Default)]
pub(super) struct Places {
    known: Vec<Known>,
    /// How many places could not be remembered.
    others: usize,
}

/// Places that are remembered; the sockets of more are spread over the rings.
const PLACES_MAX: usize = 512;

impl Places {
    /// The ring of a place, which has one by now, or takes over that of a place which is no more.
    fn ring_of(&mut self, home: &Home, sockets: &Sockets) -> Option<u16> {
        if let Some(known) = self.known.iter().find(|known| known.home.is(home)) {
            return Some(known.ring);
        }
        let gone = self.known.iter_mut().find(|known| known.home.is_gone(sockets))?;
        gone.home = home.clone();
        Some(gone.ring)
    }

    /// Of so many rings, the one with the fewest places.
    fn least_shared(&self, rings: usize) -> u16 {
        let mut shared_by = [0; RINGS_MAX];
        self.known.iter().for_each(|known| shared_by[usize::from(known.ring)] += 1);
        (0..rings as u16).min_by_key(|&ring| shared_by[usize::from(ring)]).unwrap_or(0)
    }

    /// Of so many rings, the next one's turn.
    fn next(&mut self, rings: usize) -> u16 {
        self.others += 1;
        (self.others % rings) as u16
    }
}

impl Offload {
    /// Chooses the ring of a socket that has no flow yet, and opens it if it is not there. What is chosen holds while the socket has a flow.
    pub(crate) fn choose_ring(&mut self, key: Key) -> u16 {
        let Some(socket) = self.sockets.find(key) else { return 0 };
        if socket.flows().next().is_some() {
            return socket.ring;
        }
        let ring = self.home_of(key).map_or(0, |home| self.ring_for(home));
        if let Some(socket) = self.sockets.find_mut(key)
            && core::mem::replace(&mut socket.ring, ring) != ring
        {
            // Peers have other addresses on another ring.
            socket.route = Route::default();
            if let Some(rare) = &mut socket.rare {
                rare.routes = Routes::default();
            }
        }
        ring
    }

    fn ring_for(&mut self, home: Home) -> u16 {
        if let Some(ring) = self.rings.places.ring_of(&home, &self.sockets) {
            return ring;
        }
        if self.rings.places.known.len() >= PLACES_MAX {
            return self.rings.places.next(self.rings.len());
        }
        let limit = match params::settings().count(Id::RingLimit) as usize {
            0 => RINGS_MAX,
            limit => limit.min(RINGS_MAX),
        };
        let ring = match process::process() {
            // (The first place has the ring that is there.)
            _ if self.rings.places.known.is_empty() => 0,
            Some(process) if self.rings.len() < limit => self.open_ring(process),
            _ => self.rings.places.least_shared(self.rings.len()),
        };
        self.rings.places.known.push(Known { home, ring });
        ring
    }

    /// Opens one ring more. Where none is to be had, another place's has to do.
    fn open_ring(&mut self, process: &'static Process) -> u16 {
        let _masked = Masked::new();
        let number = self.rings.len() as u16;
        match process.attach_another(number) {
            Ok(ring) => {
                self.rings.add(ring);
                if self.loans.lends {
                    self.rings.at_mut(number).ring.lend_from_now_on();
                }
                // That thread serves it from now on.
                self.mux.call_progress();
                tracing::debug!("ring {number}: {}", process.rendezvous_at(number).member_name());
                number
            }
            Err(error) => {
                tracing::info!("no further ring can be had, so that one is shared: {error}");
                self.rings.places.least_shared(self.rings.len())
            }
        }
    }
}

impl Process {
    /// The queues of one ring more, of that number, which peers can find.
    fn attach_another(&'static self, number: u16) -> Result<&'static Lock<ProcessRing>, Box<dyn core::error::Error>> {
        let (queues, rendezvous) = devices::attach_another(self.params, self.rendezvous())?;
        let config = RingConfig { number, batch: self.params.cq_poll_batch_max, ..RingConfig::default() };
        let ring = Ring::new(queues, config, params::random_seed()?);
        Ok(self.add_ring(number, ring, rendezvous))
    }
}
