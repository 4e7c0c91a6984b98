//! The destinations that a UDP socket sent to before its last one: a server answers many clients in turn, and is not to ask the rendezvous for each
//! datagram.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use super::Socket;
use super::datagram::Route;

use crate::devices::Rendezvous;

/// Destinations that are remembered. (A station's memory is let go of when it is gone: what is bounded here are addresses.)
const MOST: usize = 1024;

/// By their addresses.
#[derive(Debug, Default)]
pub(crate) struct Routes(BTreeMap<SocketAddr, Route>);

impl Routes {
    /// Lets go of stations that are no more.
    pub(crate) fn forget_dead(&mut self, rendezvous: &Rendezvous) {
        self.0.values_mut().for_each(|route| route.forget_dead(rendezvous));
    }
}

impl Socket {
    /// Makes the route to an address the one that is used, if it is remembered.
    pub(super) fn recall_route(&mut self, to: SocketAddr) -> bool {
        let Self { route, rare, .. } = self;
        let Some(Routes(others)) = rare.as_mut().map(|rare| &mut rare.routes) else { return false };
        let Some(found) = others.get_mut(&to).map(core::mem::take) else { return false };
        let before = core::mem::replace(route, found);
        // (The one goes in before the other goes out, so that a server of two clients allocates nothing by the datagram.)
        if let Some(known) = before.known() {
            others.insert(known, before);
        }
        others.remove(&to);
        true
    }

    /// Uses a route, and remembers the one before.
    pub(super) fn take_route(&mut self, new: Route) {
        let before = core::mem::replace(&mut self.route, new);
        let Some(to) = before.known().filter(|&to| !self.route.is_to(to)) else { return };
        let Routes(others) = &mut self.rare().routes;
        if others.len() == MOST {
            // Which of them will be asked for again is not known.
            others.pop_first();
        }
        others.insert(to, before);
    }
}
