//! A client that some host's [`Reactor`](crate::apps::Reactor) plays: it connects at its time, and holds one conversation with a server that knows it by
//! its first bytes.

use ringway_stack::Instant;

use super::Site;
use crate::apps::{Dialogue, Opening, Registry, Shared, Transfer};

#[derive(Debug)]
pub(super) struct Caller {
    pub(super) host: usize,
    pub(super) at: Instant,
    pub(super) dialogue: Dialogue,
    /// Its own part, and the server's.
    pub(super) transfers: [Shared<Transfer>; 2],
}

impl Caller {
    /// What opens its connection from the client port of this `number` to the `port` of the host `server`, which is told to expect it.
    pub(super) fn opening(&self, site: &Site<'_>, registry: &Shared<Registry>, number: u16, (server, port): (usize, u16)) -> Opening {
        let [own, peer] = &self.transfers;
        registry.change(|r| r.announce(self.dialogue, peer.clone()));
        Opening {
            at: self.at,
            port: site.client_port(number),
            server: site.address(server, port),
            dialogue: self.dialogue,
            config: site.options[self.host].tcp.clone(),
            transfer: own.clone(),
        }
    }
}
