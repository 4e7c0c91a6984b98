//! The destinations that a UDP socket sent to before its last one: a server answers many clients in turn, and is not to ask the rendezvous for each
//! datagram.

use std::net::SocketAddrV4;

use ringway_shm::Rendezvous;

use super::Socket;
use super::datagram::Route;

/// Destinations that are remembered.
const MOST: usize = 16;

/// The latest first.
#[derive(Debug, Default)]
pub(crate) struct Routes(Vec<Route>);

impl Routes {
    /// Lets go of stations that are no more.
    pub(crate) fn forget_dead(&mut self, rendezvous: &Rendezvous) {
        self.0.iter_mut().for_each(|route| route.forget_dead(rendezvous));
    }
}

impl Socket {
    /// Makes the route to an address the one that is used, if it is remembered.
    #[cold]
    pub(super) fn recall_route(&mut self, to: SocketAddrV4) -> bool {
        let Self { route, rare, .. } = self;
        let Some(Routes(others)) = rare.as_mut().map(|rare| &mut rare.routes) else { return false };
        let Some(place) = others.iter().position(|other| other.is_to(to)) else { return false };
        core::mem::swap(route, &mut others[place]);
        true
    }

    /// Uses a route, and remembers the one before.
    pub(super) fn take_route(&mut self, new: Route) {
        let before = core::mem::replace(&mut self.route, new);
        if before.is_known() && !self.route.is_as(&before) {
            let Routes(others) = &mut self.rare().routes;
            others.truncate(MOST - 1);
            others.insert(0, before);
        }
    }
}
