//! What comes of it: events, with librdmacm's numbers, in the order in which things happen to an identifier.

use super::{AddressError, CmId, Entry, Manager, State};
use crate::device::messages::{
    ConnectionEvent, ConnectionId, Connections, DatagramPeer, IncomingRequest, PortSpace, PrivateData, Rejection,
};
use crate::time::Instant;

/// An event (`struct rdma_cm_event`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Whose it is.
    pub id: CmId,
    /// Of an identifier that came with a request: who listened.
    pub listener: Option<CmId>,
    /// What happened.
    pub kind: EventKind,
}

/// Somebody asks for a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Incoming {
    /// What the peer's program says; zeros follow.
    pub private_data: PrivateData,
    /// How many reads and atomics the peer issues at once at most.
    pub responder_resources: u8,
    /// How many the peer takes at once at most.
    pub initiator_depth: u8,
}

/// What happened (`enum rdma_cm_event_type`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// The address is resolved.
    AddressResolved,
    /// It is not.
    AddressError(AddressError),
    /// The route is resolved.
    RouteResolved,
    /// It is not.
    RouteError,
    /// Somebody asks, of a new identifier: [`Manager::accept`] or [`Manager::reject`].
    ConnectRequest(Box<Incoming>),
    /// The peer agrees, and the identifier has no queue pair: [`Manager::establish`].
    ConnectResponse(PrivateData),
    /// There was no answer.
    Unreachable,
    /// The peer said no.
    Rejected(Box<Rejection>),
    /// The connection stands. The active side is told what the passive one said.
    Established(PrivateData),
    /// It is over, by either side.
    Disconnected,
    /// Its numbers may be used again.
    TimewaitExit,
    /// Where datagrams to the service go that was asked for. (librdmacm calls it ESTABLISHED.)
    ServiceFound(Box<DatagramPeer>),
    /// The service said no, or is none; the reason is a status of SIDR's. (librdmacm calls it UNREACHABLE, with that status.)
    ServiceRefused(Box<Rejection>),
    /// Where datagrams to the group go that was joined.
    MulticastJoined(Box<DatagramPeer>),
}

impl EventKind {
    /// Its number in C.
    pub const fn number(&self) -> u32 {
        match self {
            Self::AddressResolved => 0,
            Self::AddressError(_) => 1,
            Self::RouteResolved => 2,
            Self::RouteError => 3,
            Self::ConnectRequest(_) => 4,
            Self::ConnectResponse(_) => 5,
            Self::Unreachable | Self::ServiceRefused(_) => 7,
            Self::Rejected(_) => 8,
            Self::Established(_) | Self::ServiceFound(_) => 9,
            Self::Disconnected => 10,
            Self::MulticastJoined(_) => 12,
            Self::TimewaitExit => 15,
        }
    }
}

impl Manager {
    /// Takes what the device has to tell of its connections, which are all this manager's.
    pub fn poll<D: Connections>(&mut self, now: Instant, device: &mut D) {
        while let Some((connection, event)) = device.poll_connection() {
            self.on_connection(now, device, connection, event);
        }
    }

    fn on_connection<D: Connections>(&mut self, now: Instant, device: &mut D, connection: ConnectionId, event: ConnectionEvent) {
        match event {
            ConnectionEvent::Request(request) => {
                if self.on_request(device, connection, &request).is_none() {
                    device.reject(now, connection);
                }
                return;
            }
            ConnectionEvent::Question(space, request) => {
                match self.on_question(space, connection, request.local, request.remote) {
                    Some(id) => {
                        let incoming = Incoming { private_data: request.private_data, responder_resources: 0, initiator_depth: 0 };
                        self.tell(id, EventKind::ConnectRequest(Box::new(incoming)));
                    }
                    None => device.destroy(now, connection),
                }
                return;
            }
            _ => {}
        }
        let Some((&id, entry)) = self.by_connection.get(&connection).and_then(|id| Some((id, self.ids.get_mut(id)?))) else { return };
        let (state, kind) = match event {
            ConnectionEvent::Request(_) | ConnectionEvent::Question(..) => return,
            ConnectionEvent::Served(peer) => (State::Connected, EventKind::ServiceFound(peer)),
            ConnectionEvent::Response(said) => (State::Answered, EventKind::ConnectResponse(said)),
            ConnectionEvent::Established(said) => (State::Connected, EventKind::Established(said)),
            ConnectionEvent::Rejected => {
                let said = device.rejection(connection).unwrap_or(Rejection { reason: 0, private_data: PrivateData::new() });
                let said = Box::new(said);
                let is_service = entry.space != PortSpace::Tcp;
                (State::Over, if is_service { EventKind::ServiceRefused(said) } else { EventKind::Rejected(said) })
            }
            ConnectionEvent::Unreachable | ConnectionEvent::Unroutable(_) => (State::Over, EventKind::Unreachable),
            ConnectionEvent::Disconnected => (State::Over, EventKind::Disconnected),
            // (librdmacm says of a port that is down what becomes of its connections, too.)
            ConnectionEvent::Down if entry.state == State::Connected => (State::Over, EventKind::Disconnected),
            ConnectionEvent::Down => (State::Over, EventKind::Unreachable),
            ConnectionEvent::TimewaitExit => {
                // The device knows it no more, and may give its name to another one.
                entry.connection = None;
                self.by_connection.remove(&connection);
                (State::Over, EventKind::TimewaitExit)
            }
        };
        // (What is being ended stands no more, whatever comes late.)
        if entry.state != State::Disconnecting || state == State::Over {
            entry.state = state;
        }
        self.tell(id, kind);
    }

    fn on_request<D: Connections>(&mut self, device: &D, connection: ConnectionId, request: &IncomingRequest) -> Option<()> {
        let &listener = self.listeners.get(&(PortSpace::Tcp, request.local.port()))?;
        let (tos, ack_timeout) = self.ids.get(&listener).map(|entry| (entry.tos, entry.ack_timeout))?;
        let entry = Entry {
            local: Some(request.local),
            remote: Some(request.remote),
            connection: Some(connection),
            listener: Some(listener),
            tos,
            ack_timeout,
            ..Entry::new(State::Asked, PortSpace::Tcp)
        };
        let id = self.insert(entry).ok()?;
        self.by_connection.insert(connection, id);
        let attributes = device.qp_attributes(connection);
        let incoming = Incoming {
            private_data: request.private_data.clone(),
            responder_resources: attributes.map_or(0, |attributes| attributes.peer.max_dest_rd_atomic),
            initiator_depth: attributes.map_or(0, |attributes| attributes.sending.max_rd_atomic),
        };
        self.tell(id, EventKind::ConnectRequest(Box::new(incoming)));
        Some(())
    }
}
