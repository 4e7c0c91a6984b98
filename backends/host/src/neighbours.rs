//! Neighbours of a ring that has a kernel beside it: the kernel asks for them (ARP, neighbour discovery), and hears the answers; the ring is told.
//!
//! A ring asks for an address that it sends to, and says again, now and then, that it still does ([`Ring::take_neighbour_question`]). Each time the kernel is
//! told that the neighbour is in use (NTF_USE, neighbour.h), as if it had sent a packet there itself: it asks a neighbour that it does not know, and
//! one that it has heard nothing of for a while. What comes of it is in the [`Monitor`]'s tables, and so is a neighbour that moved.
//!
//! An address that is not on the link (a peer who came by a router) is reached by its route's next hop.

use core::net::IpAddr;
use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::Arc;

use ringway_stack::addr::MacAddr;
use ringway_stack::device::Queues;
use ringway_stack::net::{LinkId, NeighbourState, Query, Tables};
use ringway_stack::ring::Ring;
use ringway_stack::time::Instant;

use crate::lender::Lender;
use crate::netlink::{Error, Monitor};

/// A neighbour that the ring has not spoken of for so long is forgotten.
const UNUSED_MAX: Duration = Duration::from_secs(60);
/// So many are known at most: whoever speaks to more of them in that time has each asked for anew.
const KNOWN_MAX: usize = 16_384;

/// The neighbours of one ring.
#[derive(Debug)]
pub struct Neighbours {
    link: LinkId,
    known: BTreeMap<IpAddr, Neighbour>,
    /// Of which tables the ring was told.
    generation: u64,
    swept_at: Instant,
    /// Who tells the kernel, where the process may not.
    lender: Option<Arc<dyn Lender>>,
}

#[derive(Debug)]
struct Neighbour {
    /// Whom the kernel asks.
    hop: IpAddr,
    /// Where the ring believes it is.
    told: Option<MacAddr>,
    /// The kernel has been asked, and has not answered yet.
    is_awaited: bool,
    used_at: Instant,
}

impl Neighbours {
    /// Of a ring on that link.
    pub const fn new(link: LinkId) -> Self {
        Self { link, known: BTreeMap::new(), generation: 0, swept_at: Instant::ZERO, lender: None }
    }

    /// The same, where somebody else tells the kernel that a neighbour is in use.
    #[must_use]
    pub fn told_by(self, lender: Option<Arc<dyn Lender>>) -> Self {
        Self { lender, ..self }
    }

    /// Whether [`Neighbours::serve`] has something to do: the ring has asked, or the tables are other ones.
    #[inline]
    pub fn is_due<Q: Queues>(&self, monitor: &Monitor, ring: &Ring<Q>) -> bool {
        ring.has_neighbour_questions() || self.generation != monitor.tables().generation()
    }

    /// Passes the ring's questions on, and tells it what the kernel knows. To be called after the ring was used, and after the monitor was refreshed. `true`: the
    /// ring was told something, and is to be polled.
    ///
    /// # Errors
    /// [`Error::Ask`]: the kernel takes no questions. What it answers by itself is told nevertheless.
    pub fn serve<Q: Queues>(&mut self, now: Instant, monitor: &mut Monitor, ring: &mut Ring<Q>) -> Result<bool, Error> {
        monitor.tell_of(self.link);
        let mut result = Ok(());
        let mut is_told = false;
        if ring.has_neighbour_questions() {
            // The kernel may have given somebody up since it was asked. The next question would have it begin again, and the failure would be seen by nobody.
            result = monitor.refresh().map(drop);
            let tables = monitor.tables().clone();
            is_told = self.tell(now, &tables, ring);
        }
        while let Some(address) = ring.take_neighbour_question() {
            let hop = hop(monitor.tables(), self.link, address);
            // (Since Linux 5.16, one that was set by hand would be asked for from then on like any other.)
            let entry = monitor.tables().neighbour(self.link, hop);
            let is_fixed = entry.is_some_and(|entry| matches!(entry.state, NeighbourState::Permanent | NeighbourState::NoArp));
            let told = match &self.lender {
                _ if is_fixed => Ok(()),
                Some(lender) => monitor.have_neighbour_used(|| lender.use_neighbour(hop)),
                None => monitor.use_neighbour(self.link, hop),
            };
            result = result.and(told);
            let neighbour = self.known.entry(address).or_insert(Neighbour { hop, told: None, is_awaited: true, used_at: now });
            (neighbour.hop, neighbour.used_at) = (hop, now);
            // (Whoever is told nothing has been forgotten by the ring, and waits.)
            neighbour.is_awaited |= neighbour.told.is_none();
            self.generation = 0;
        }
        // (Before the questions, the tables may have had an earlier failure.)
        result = result.and(monitor.refresh().map(drop));
        let tables = monitor.tables().clone();
        if core::mem::replace(&mut self.generation, tables.generation()) != tables.generation() {
            is_told |= self.tell(now, &tables, ring);
        }
        if self.known.len() > KNOWN_MAX {
            self.sweep(now, Duration::ZERO, ring);
        } else if now.since(self.swept_at) > UNUSED_MAX {
            self.sweep(now, UNUSED_MAX, ring);
        }
        result.map(|()| is_told)
    }

    /// Tells the ring what has changed.
    fn tell<Q: Queues>(&mut self, now: Instant, tables: &Tables, ring: &mut Ring<Q>) -> bool {
        let mut is_told = false;
        for (&address, neighbour) in &mut self.known {
            neighbour.hop = hop(tables, self.link, address);
            let entry = tables.neighbour(self.link, neighbour.hop);
            let mac = entry.and_then(|entry| entry.destination()?.ethernet()).map(MacAddr);
            let has_failed = entry.is_some_and(|entry| entry.state == NeighbourState::Failed);
            if mac.is_some() && (mac != neighbour.told || neighbour.is_awaited) {
                ring.set_neighbour(address, mac);
            } else if has_failed && (neighbour.is_awaited || neighbour.told.is_some()) {
                tracing::info!("{} does not answer (ip neigh): what is sent to {address} fails until it does", neighbour.hop);
                ring.neighbour_failed(now, address);
            } else if mac != neighbour.told {
                ring.set_neighbour(address, None);
            } else {
                continue;
            }
            (neighbour.told, neighbour.is_awaited, is_told) = (mac, mac.is_none() && !has_failed, true);
        }
        is_told
    }

    /// Forgets what has not been in use for so long.
    fn sweep<Q: Queues>(&mut self, now: Instant, unused: Duration, ring: &mut Ring<Q>) {
        self.swept_at = now;
        for (address, _) in self.known.extract_if(.., |_, neighbour| now.since(neighbour.used_at) > unused) {
            ring.set_neighbour(address, None);
        }
    }
}

/// Who is asked for an address.
fn hop(tables: &Tables, link: LinkId, address: IpAddr) -> IpAddr {
    let route = tables.route(&Query { link: Some(link), ..Query::to(address) });
    route.map_or(address, |route| route.neighbour(address))
}
