//! RDMA-CM above a device's message plane (rdma_cm(7); seed 003): identifiers that are resolved, connected, and parted, and the events of that in their order.
//!
//! A [`Manager`] has the identifiers of one device. Calls are those of librdmacm, under the names that the words have: an address and a route are resolved by
//! [`crate::net::Tables`]; connections are the device's ([`Connections`]). Nothing blocks: what came of a call, and what a peer did, is an [`Event`].
//!
//! - `resolve`: identifiers, their addresses, options and queue pairs
//! - `connect`: connections, of the device's queue pairs and of the program's own
//! - `services`: datagrams' services, and groups
//! - `events`: what comes of it
//!
//! Where an identifier has no queue pair (`id->qp == NULL`), its connection is established late: the active side gets [`EventKind::ConnectResponse`], makes
//! its own queue pair ready with what [`Manager::init_qp_attr`] says, and calls [`Manager::establish`]; only then the passive side hears that the connection
//! stands.
//!
//! What it leaves out: migration of identifiers to another channel, and RDMA_OPTION_ID_REUSEADDR and _AFONLY.

mod connect;
mod events;
mod resolve;
mod services;
#[cfg(test)]
mod tests;

pub use connect::ConnectParams;
pub use events::{Event, EventKind, Incoming};
pub use resolve::{AddressError, ResolveError};
pub use services::GROUPS_MAX;

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};

#[cfg(doc)]
use crate::device::messages::Connections;
use crate::device::messages::{CmError, ConnectionId, PortSpace};

/// The most identifiers that a manager has.
pub const IDS_MAX: usize = 65_536;

/// An identifier's name (`struct rdma_cm_id`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CmId(u32);

/// An option of an identifier, of level RDMA_OPTION_ID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdOption {
    /// RDMA_OPTION_ID_TOS: differentiated services of its packets.
    Tos(u8),
    /// RDMA_OPTION_ID_ACK_TIMEOUT: how long its queue pair waits for an acknowledgment, 4.096 us * 2^v; 5 bits. It overrides what is calculated, and is to be
    /// set before the connection is asked for, or agreed to.
    AckTimeout(u8),
}

impl IdOption {
    /// Its level and its number in C. Both options' values are one byte.
    pub const fn numbers(self) -> (i32, i32) {
        match self {
            Self::Tos(_) => (0, 0),
            Self::AckTimeout(_) => (0, 3),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// As created; it may have an address of its own.
    Idle,
    /// It knows the peer's address, and which of ours leads there.
    AddressResolved,
    /// It can connect.
    RouteResolved,
    Listening,
    /// Asked, and not answered.
    Connecting,
    /// The peer asks.
    Asked,
    /// The peer was answered, and has not said that it knows.
    Accepting,
    /// The peer agrees; the program is to say that its queue pair is ready.
    Answered,
    Connected,
    /// We ask for the end.
    Disconnecting,
    /// It is over, or came to nothing.
    Over,
}

#[derive(Debug)]
struct Entry {
    space: PortSpace,
    state: State,
    local: Option<SocketAddr>,
    remote: Option<SocketAddr>,
    qp: Option<u32>,
    connection: Option<ConnectionId>,
    /// Of an identifier that came with a request: who listened.
    listener: Option<CmId>,
    tos: u8,
    ack_timeout: Option<u8>,
    /// At most [`GROUPS_MAX`].
    groups: Vec<IpAddr>,
}

impl Entry {
    const fn new(state: State, space: PortSpace) -> Self {
        Self {
            space,
            state,
            local: None,
            remote: None,
            qp: None,
            connection: None,
            listener: None,
            tos: 0,
            ack_timeout: None,
            groups: Vec::new(),
        }
    }
}

/// The identifiers of one device, whose connections are all its own.
#[derive(Debug, Default)]
pub struct Manager {
    ids: BTreeMap<CmId, Entry>,
    next: u32,
    by_connection: BTreeMap<ConnectionId, CmId>,
    /// Who listens at a port.
    listeners: BTreeMap<(PortSpace, u16), CmId>,
    events: VecDeque<Event>,
}

impl Manager {
    /// Without identifiers.
    pub fn new() -> Self {
        Self::default()
    }

    /// A new identifier (rdma_create_id), of port space TCP.
    ///
    /// # Errors
    /// [`CmError::Full`]: there are [`IDS_MAX`].
    pub fn create_id(&mut self) -> Result<CmId, CmError> {
        self.create_id_in(PortSpace::Tcp)
    }

    /// A new identifier of a port space.
    ///
    /// # Errors
    /// [`CmError::Full`]: there are [`IDS_MAX`].
    pub fn create_id_in(&mut self, space: PortSpace) -> Result<CmId, CmError> {
        self.insert(Entry::new(State::Idle, space))
    }

    /// The next event (rdma_get_cm_event). What a device has to tell comes by [`Manager::poll`] first.
    pub fn next_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Our address, once it is known (rdma_get_local_addr).
    pub fn local_address(&self, id: CmId) -> Option<SocketAddr> {
        self.ids.get(&id)?.local
    }

    /// The peer's address, once it is known (rdma_get_peer_addr).
    pub fn peer_address(&self, id: CmId) -> Option<SocketAddr> {
        self.ids.get(&id)?.remote
    }

    /// The port space that it was made in.
    pub fn port_space(&self, id: CmId) -> Option<PortSpace> {
        Some(self.ids.get(&id)?.space)
    }

    /// The queue pair, if it has one (`id->qp`).
    pub fn qp(&self, id: CmId) -> Option<u32> {
        self.ids.get(&id)?.qp
    }

    fn insert(&mut self, entry: Entry) -> Result<CmId, CmError> {
        if self.ids.len() >= IDS_MAX {
            return Err(CmError::Full);
        }
        let id = CmId(self.next);
        // (One that lives as long as four thousand million others keeps its name.)
        self.next = self.next.wrapping_add(1);
        if self.ids.contains_key(&id) {
            return self.insert(entry);
        }
        self.ids.insert(id, entry);
        Ok(id)
    }

    fn entry(&mut self, id: CmId) -> Result<&mut Entry, CmError> {
        self.ids.get_mut(&id).ok_or(CmError::Missing)
    }

    /// The entry, if it is in one of these states.
    fn entry_in(&mut self, id: CmId, states: &[State]) -> Result<&mut Entry, CmError> {
        let entry = self.entry(id)?;
        if states.contains(&entry.state) { Ok(entry) } else { Err(CmError::State) }
    }

    fn tell(&mut self, id: CmId, kind: EventKind) {
        let listener = self.ids.get(&id).and_then(|entry| entry.listener);
        self.events.push_back(Event { id, listener, kind });
    }
}
