//! How destinations are reached, remembered for as long as the tables are the same.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use crate::addr::MacAddr;
use crate::mutants::{Mutant, Mutation};
use crate::net::{Delivery, LinkId, NeighbourState, Query, Tables, Unroutable};
use crate::ring::NextHop;

/// How a destination is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Way {
    /// Over which link; the loopback link where it is this host.
    pub link: LinkId,
    /// From which address.
    pub source: IpAddr,
    /// To which MAC address.
    pub hop: NextHop,
    /// The longest packet, in bytes.
    pub mtu: u32,
}

/// Asks the tables.
///
/// # Errors
/// [`Unroutable`].
pub fn way(tables: &Tables, query: &Query) -> Result<Way, Unroutable> {
    let route = tables.route(query)?;
    let neighbour = route.neighbour(query.destination);
    let hop = match route.delivery {
        Delivery::Broadcast => NextHop::Mac(MacAddr::BROADCAST),
        // (What was not set by hand may be elsewhere tomorrow: the ring knows where it is, or asks.)
        _ => {
            let by_hand = tables.neighbour(route.link, neighbour).filter(|neighbour| neighbour.state == NeighbourState::Permanent);
            let mac = by_hand.and_then(|neighbour| neighbour.destination()?.ethernet());
            mac.map_or(NextHop::Neighbour(neighbour), |mac| NextHop::Mac(MacAddr(mac)))
        }
    };
    Ok(Way { link: route.link, source: route.source, hop, mtu: route.mtu })
}

/// Destinations that are remembered. A program that has more of them in turn asks the tables each time.
const REMEMBERED_MAX: usize = 64;

/// A socket's destinations, and how they are reached. A socket whose own part of the question changes (its address, its link, its type of service)
/// forgets them all.
#[derive(Debug, Default)]
pub struct Routes {
    /// Of which snapshot they are.
    generation: u64,
    ways: BTreeMap<SocketAddr, Result<Way, Unroutable>>,
    /// How often the tables were asked.
    asked: u64,
}

impl Routes {
    /// The way to a destination: `query` without it is the same for all calls until [`Routes::forget`].
    ///
    /// # Errors
    /// [`Unroutable`], which is remembered as well.
    pub fn way(&mut self, tables: &Tables, to: SocketAddr, query: &Query) -> Result<Way, Unroutable> {
        self.way_of(tables, to, query, Mutation::HEALTHY)
    }

    pub(super) fn way_of(&mut self, tables: &Tables, to: SocketAddr, query: &Query, mutation: Mutation) -> Result<Way, Unroutable> {
        if self.generation != tables.generation() && !mutation.is(Mutant::RoutesOutliveTables) {
            self.forget();
        }
        self.generation = tables.generation();
        if let Some(way) = self.ways.get(&to) {
            return *way;
        }
        self.asked += 1;
        let way = way(tables, &Query { destination: to.ip(), destination_port: to.port(), ..*query });
        if self.ways.len() >= REMEMBERED_MAX {
            self.ways.clear();
        }
        self.ways.insert(to, way);
        way
    }

    /// Forgets all of them.
    pub fn forget(&mut self) {
        self.ways.clear();
    }

    /// How often the tables had to be asked.
    pub const fn asked(&self) -> u64 {
        self.asked
    }
}
