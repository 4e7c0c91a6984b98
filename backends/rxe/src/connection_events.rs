//! What librdmacm tells (rdma_get_cm_event(3)).

use rdma_core_sys as sys;
use ringway_stack::device::messages::{ConnectionEvent, ConnectionId, IncomingRequest, NoWay, PrivateData};

use crate::adapter::Adapter;
use crate::cm::{Event, Id};
use crate::connections::{Connection, RESOLVE_MS, Stage};
use crate::memory::CardMemory;

/// How often an address, or a way, is looked for again, each time for twice as long: librdmacm's rsockets give up after a minute, too.
const TRIES_MAX: u32 = 5;

impl<M: CardMemory> Adapter<M> {
    pub(crate) fn on_event(&mut self, mut event: Event) {
        let id = ConnectionId(event.number);
        tracing::trace!("{}: event {} of connection {}, status {}", self.settings.device, event.kind, event.number, event.status);
        match event.kind {
            sys::RDMA_CM_EVENT_CONNECT_REQUEST => {
                if let Some(incoming) = event.incoming.take() {
                    self.on_request(incoming, event);
                }
            }
            sys::RDMA_CM_EVENT_ADDR_RESOLVED => self.on_address(id),
            sys::RDMA_CM_EVENT_ROUTE_RESOLVED => self.on_route(id),
            sys::RDMA_CM_EVENT_ADDR_ERROR | sys::RDMA_CM_EVENT_ROUTE_ERROR => self.look_again(id, event.status),
            sys::RDMA_CM_EVENT_CONNECT_RESPONSE => self.on_response(id, event.private_data),
            sys::RDMA_CM_EVENT_ESTABLISHED => self.tell(id, Stage::Stands, ConnectionEvent::Established(event.private_data)),
            sys::RDMA_CM_EVENT_REJECTED => self.tell(id, Stage::Over, ConnectionEvent::Rejected),
            sys::RDMA_CM_EVENT_UNREACHABLE | sys::RDMA_CM_EVENT_CONNECT_ERROR => self.tell(id, Stage::Over, ConnectionEvent::Unreachable),
            sys::RDMA_CM_EVENT_DISCONNECTED => {
                if let Some(cm) = self.connections.get(&id).and_then(|connection| connection.id.as_ref()) {
                    // (The peer waits for that.)
                    cm.disconnect();
                }
                self.tell(id, Stage::Over, ConnectionEvent::Disconnected);
            }
            sys::RDMA_CM_EVENT_DEVICE_REMOVAL => {
                tracing::warn!("{} is being removed; its connections end", self.settings.device);
                self.on_removed();
            }
            // An address that moved to another interface, and numbers that may be used again.
            _ => {}
        }
    }

    fn tell(&mut self, id: ConnectionId, stage: Stage, event: ConnectionEvent) {
        // (Of one that is over nobody wants to hear more.)
        let Some(connection) = self.connections.get_mut(&id).filter(|connection| connection.stage != Stage::Over) else { return };
        connection.stage = stage;
        self.happened.push_back((id, event));
    }

    fn fail(&mut self, id: ConnectionId, event: ConnectionEvent, why: &std::io::Error) {
        tracing::debug!("{}: connection {}: {why}", self.settings.device, id.0);
        self.tell(id, Stage::Over, event);
    }

    /// Whether an identifier is of this device: connections may come, or lead, to all that the machine has.
    fn is_of_this_device(&self, id: &Id) -> bool {
        self.opened.as_ref().is_some_and(|opened| id.device(opened.context.verbs).is_some_and(|name| name == opened.context.name))
    }

    fn on_address(&mut self, id: ConnectionId) {
        let Some(cm) = self.connections.get(&id).and_then(|connection| connection.id.as_ref()) else { return };
        if !self.is_of_this_device(cm) {
            tracing::warn!("the peer is reached by another RDMA device than {}", self.settings.device);
            return self.tell(id, Stage::Over, ConnectionEvent::Unroutable(NoWay::Device));
        }
        let resolved = cm.resolve_route(RESOLVE_MS);
        match resolved {
            Ok(()) => self.set_stage(id, Stage::Route),
            Err(error) => self.fail(id, ConnectionEvent::Unreachable, &error),
        }
    }

    fn set_stage(&mut self, id: ConnectionId, stage: Stage) {
        if let Some(connection) = self.connections.get_mut(&id) {
            (connection.stage, connection.tries) = (stage, 0);
        }
    }

    fn on_route(&mut self, id: ConnectionId) {
        let asked = self.make_init(id).and_then(|()| {
            let connection = self.connections.get(&id).ok_or(std::io::ErrorKind::NotFound)?;
            let (Some(cm), Some(qp)) = (&connection.id, connection.qp) else { return Err(std::io::ErrorKind::NotFound.into()) };
            cm.connect(qp, connection.depths, &connection.private_data)
        });
        match asked {
            Ok(()) => self.set_stage(id, Stage::Asked),
            Err(error) => self.fail(id, ConnectionEvent::Unreachable, &error),
        }
    }

    /// The time is over in which a peer may answer.
    pub(crate) fn give_up_asking(&mut self, id: ConnectionId) {
        let is_asking = |connection: &Connection| matches!(connection.stage, Stage::Address | Stage::Route | Stage::Asked);
        if self.connections.get(&id).is_some_and(is_asking) {
            self.fail(id, ConnectionEvent::Unreachable, &std::io::ErrorKind::TimedOut.into());
        }
    }

    /// A neighbour may be slow to answer; anything else does not get better by time.
    fn look_again(&mut self, id: ConnectionId, status: i32) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let again = (status == -libc::ETIMEDOUT && connection.tries < TRIES_MAX).then_some(connection.id.as_ref()).flatten();
        let resolved = again.map(|cm| {
            connection.tries += 1;
            let timeout = RESOLVE_MS << connection.tries;
            if connection.stage == Stage::Address { cm.resolve_address(None, connection.to, timeout) } else { cm.resolve_route(timeout) }
        });
        if !matches!(resolved, Some(Ok(()))) {
            let event = NoWay::of_errno(status.abs()).map_or(ConnectionEvent::Unreachable, ConnectionEvent::Unroutable);
            self.fail(id, event, &std::io::Error::from_raw_os_error(status.abs()));
        }
    }

    /// The peer agrees: the queue pair gets ready, and the peer is told.
    fn on_response(&mut self, id: ConnectionId, private_data: PrivateData) {
        let stands = self.make_ready(id).and_then(|()| {
            let cm = self.connections.get(&id).and_then(|connection| connection.id.as_ref());
            cm.ok_or(std::io::ErrorKind::NotFound)?.establish()
        });
        match stands {
            Ok(()) => self.tell(id, Stage::Stands, ConnectionEvent::Established(private_data)),
            Err(error) => self.fail(id, ConnectionEvent::Rejected, &error),
        }
    }

    /// Somebody asks. (Whoever cannot be answered is refused by the end of its identifier.)
    fn on_request(&mut self, mut incoming: Id, event: Event) {
        let (Some(local), Some(remote)) = incoming.names() else { return };
        if !self.is_of_this_device(&incoming) {
            tracing::warn!("{remote} asks by another RDMA device than {}, and is refused", self.settings.device);
            return;
        }
        let id = ConnectionId(self.number());
        incoming.set_number(id.0);
        let connection = Connection {
            id: Some(incoming),
            qp: None,
            stage: Stage::Waits,
            private_data: PrivateData::new(),
            depths: event.depths,
            tries: 0,
            to: remote,
        };
        self.connections.insert(id, connection);
        let request = IncomingRequest { local, remote, private_data: event.private_data };
        self.happened.push_back((id, ConnectionEvent::Request(Box::new(request))));
    }
}
