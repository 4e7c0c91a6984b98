//! What a program asks for.

use std::ffi::c_int;
use std::net::{IpAddr, SocketAddr};

use rdma_core_sys as sys;
use ringway_stack::device::messages::{
    Addresses, CmError, ConnectionEvent, ConnectionId, Connections, Mtu, NoWay, Path, PrivateData, State,
};
use ringway_stack::time::Instant;

use crate::adapter::{Adapter, PORT};
use crate::cm::{Depths, Id};
use crate::listeners::refusal;
use crate::memory::CardMemory;
use crate::paths::{mtu_of, source_towards, vector_of, why_no_source};

/// Bytes of private data that a request has room for behind the kernel's header, and a reply.
const REQUEST_LEN_MAX: usize = 56;
const REPLY_LEN_MAX: usize = 196;

/// How long the first look for a neighbour, or for a way, may take; each one after it takes twice as long.
pub(crate) const RESOLVE_MS: c_int = 1000;

/// What a connection waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// The peer's address is looked for.
    Address,
    /// The way there is.
    Route,
    /// The peer's answer is awaited.
    Asked,
    /// The program's answer is.
    Waits,
    /// Nothing: it stands, or is about to.
    Stands,
    /// It came to nothing, or is over.
    Over,
}

/// A connection.
#[derive(Debug)]
pub(crate) struct Connection {
    /// `None`: its device was removed.
    pub(crate) id: Option<Id>,
    pub(crate) qp: Option<u32>,
    pub(crate) stage: Stage,
    /// What the program says.
    pub(crate) private_data: PrivateData,
    /// Reads and atomics at once: of who asks, what is asked for; of who was asked, what the peer would have.
    pub(crate) depths: Depths,
    /// How often the address, or the way, was looked for in vain.
    pub(crate) tries: u32,
    pub(crate) to: SocketAddr,
}

impl<M: CardMemory> Connections for Adapter<M> {
    fn path(&self, from: Option<IpAddr>, to: IpAddr) -> Option<(Path, Mtu)> {
        let from = from.filter(|ip| !ip.is_unspecified()).or_else(|| source_towards(to))?;
        let mtu = mtu_of(&self.opened.as_ref()?.context, PORT)?;
        Some((Path::new(Addresses::new(from, to)?, 0), mtu))
    }

    fn no_way(&self, to: IpAddr) -> NoWay {
        why_no_source(to)
    }

    fn leads_to(&self, from: Option<IpAddr>, to: SocketAddr) -> bool {
        let Some((path, _)) = self.path(from, to.ip()) else { return false };
        self.opened.as_ref().is_some_and(|opened| vector_of(&opened.context, PORT, &path).is_some())
    }

    fn listen(&mut self, at: SocketAddr, backlog: usize) -> Result<(), CmError> {
        self.listen_at(at, backlog)
    }

    fn unlisten(&mut self, port: u16) {
        self.unlisten_at(port);
    }

    fn connect(&mut self, now: Instant, qp: u32, from: SocketAddr, to: SocketAddr, private_data: &[u8]) -> Result<ConnectionId, CmError> {
        if private_data.len() > REQUEST_LEN_MAX {
            return Err(CmError::TooLong);
        }
        let private_data = private_data.try_into().map_err(|_| CmError::TooLong)?;
        if !self.qps.has(qp) {
            return Err(CmError::Missing);
        }
        self.active_at = Some(now);
        let name = ConnectionId(self.number());
        let (mut id, is_bound) = match self.ports.take(from) {
            Some(id) => (id, true),
            None => (self.channel().and_then(|events| Id::new(events, sys::RDMA_PS_TCP, name.0)).map_err(|error| refusal(&error))?, false),
        };
        id.set_number(name.0);
        let from = Some(from).filter(|from| !is_bound && (!from.ip().is_unspecified() || from.port() != 0));
        id.resolve_address(from, to, RESOLVE_MS).map_err(|error| refusal(&error))?;
        let wanted = self.settings.rd_atomic;
        let depths = Depths { responder: wanted.min(self.depths_max.responder), initiator: wanted.min(self.depths_max.initiator) };
        let connection = Connection { id: Some(id), qp: Some(qp), stage: Stage::Address, private_data, depths, tries: 0, to };
        self.connections.insert(name, connection);
        self.note_asked(now, name);
        Ok(name)
    }

    fn accept(&mut self, _now: Instant, id: ConnectionId, qp: u32, private_data: &[u8]) -> Result<(), CmError> {
        if private_data.len() > REPLY_LEN_MAX {
            return Err(CmError::TooLong);
        }
        let connection = self.connections.get_mut(&id).filter(|connection| connection.stage == Stage::Waits).ok_or(CmError::State)?;
        let depths = Depths {
            responder: connection.depths.responder.min(self.depths_max.responder),
            initiator: connection.depths.initiator.min(self.depths_max.initiator),
        };
        (connection.qp, connection.depths) = (Some(qp), depths);
        self.make_ready(id).map_err(|error| refusal(&error))?;
        let connection = self.connections.get_mut(&id).ok_or(CmError::State)?;
        connection.stage = Stage::Stands;
        let cm = connection.id.as_ref().ok_or(CmError::State)?;
        cm.accept(qp, depths, private_data).map_err(|error| refusal(&error))
    }

    fn reject(&mut self, now: Instant, id: ConnectionId) {
        if let Some(cm) = self.connections.get(&id).and_then(|connection| connection.id.as_ref()) {
            cm.reject();
        }
        self.destroy(now, id);
    }

    fn on_communication(&mut self, id: ConnectionId) {
        if let Some(cm) = self.connections.get(&id).and_then(|connection| connection.id.as_ref()) {
            cm.communicates();
        }
    }

    fn destroy(&mut self, _now: Instant, id: ConnectionId) {
        self.connections.remove(&id);
        self.asked.retain(|(_, of)| *of != id);
        self.happened.retain(|(of, _)| *of != id);
    }

    fn local_name(&self, id: ConnectionId) -> Option<SocketAddr> {
        self.connections.get(&id)?.id.as_ref()?.names().0
    }

    fn poll_connection(&mut self) -> Option<(ConnectionId, ConnectionEvent)> {
        self.happened.pop_front()
    }
}

impl<M: CardMemory> Adapter<M> {
    /// A connection's queue pair from INIT to RTS, as its connection management has it.
    pub(crate) fn make_ready(&mut self, id: ConnectionId) -> std::io::Result<()> {
        self.make_init(id)?;
        let none = std::io::ErrorKind::NotFound;
        let connection = self.connections.get(&id).ok_or(none)?;
        let cm = connection.id.as_ref().ok_or(none)?;
        let queue = connection.qp.and_then(|qp| self.qps.get_mut(qp)).ok_or(none)?;
        let (mut attr, mask) = cm.attributes(sys::IBV_QPS_RTR)?;
        (attr.max_dest_rd_atomic, attr.min_rnr_timer) = (connection.depths.responder, self.settings.min_rnr_timer);
        queue.pair.modify(&mut attr, mask)?;
        queue.state = State::Rtr;
        let (mut attr, mask) = cm.attributes(sys::IBV_QPS_RTS)?;
        attr.max_rd_atomic = connection.depths.initiator;
        queue.pair.modify(&mut attr, mask)?;
        queue.state = State::Rts;
        Ok(())
    }

    /// It is in INIT already, with receives; now its port and partition are known. What peers may do stays as it is.
    pub(crate) fn make_init(&mut self, id: ConnectionId) -> std::io::Result<()> {
        let none = std::io::ErrorKind::NotFound;
        let connection = self.connections.get(&id).ok_or(none)?;
        let cm = connection.id.as_ref().ok_or(none)?;
        let queue = connection.qp.and_then(|qp| self.qps.get(qp)).ok_or(none)?;
        let (mut attr, mask) = cm.attributes(sys::IBV_QPS_INIT)?;
        queue.pair.modify(&mut attr, mask & !sys::IBV_QP_ACCESS_FLAGS)
    }
}
