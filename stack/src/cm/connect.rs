//! Connections: of the device's queue pairs, and of the program's own.

use std::net::SocketAddr;

use super::{CmId, Entry, EventKind, Manager, State, services};
use crate::cm::resolve::{INIT, unspecified};
use crate::device::messages::{self, CmError, ConnectionParams, Connections, Endpoint, Modify, PortSpace};
use crate::time::Instant;

/// What one side says of a connection (`struct rdma_conn_param`). The identifier's own options go before what is in `terms`.
#[derive(Clone, Copy, Debug, Default)]
pub struct ConnectParams<'a> {
    /// What the peer is told.
    pub terms: ConnectionParams<'a>,
    /// The number of the program's own queue pair; of no meaning where the identifier has one.
    pub qp_num: u32,
    /// The key of its datagrams; zero: RDMA-CM's own ([`crate::roce::mad::RDMA_UDP_QKEY`]). Of no meaning for connections.
    pub qkey: u32,
}

impl Entry {
    fn endpoint(&self, params: &ConnectParams<'_>) -> Endpoint {
        self.qp.map_or(Endpoint::Own(params.qp_num), Endpoint::Managed)
    }

    pub(super) fn terms<'a>(&self, params: &ConnectParams<'a>) -> ConnectionParams<'a> {
        let traffic_class = if self.tos == 0 { params.terms.traffic_class } else { self.tos };
        ConnectionParams { ack_timeout: self.ack_timeout.or(params.terms.ack_timeout), traffic_class, ..params.terms }
    }
}

impl Manager {
    /// Gives it a port of its own before it listens, if it has none: the first that nobody here listens at, and that `takes`, which is asked about each in turn, can have. It stays with
    /// the one that it has otherwise.
    ///
    /// # Errors
    /// [`CmError::Missing`], [`CmError::State`]; [`CmError::Full`]: there is none.
    pub fn choose_port(&mut self, id: CmId, mut takes: impl FnMut(u16) -> bool) -> Result<(), CmError> {
        let space = self.entry(id)?.space;
        let local = self.entry_in(id, &[State::Idle])?.local.unwrap_or(SocketAddr::new(unspecified(true), 0));
        if local.port() == 0 {
            let port = self.free_ports(space).find(|port| takes(*port)).ok_or(CmError::Full)?;
            self.entry(id)?.local = Some(SocketAddr::new(local.ip(), port));
        }
        Ok(())
    }

    /// Listens at its address (rdma_listen), of which `backlog` requests may wait: each comes as [`EventKind::ConnectRequest`] with an identifier of its own.
    ///
    /// # Errors
    /// [`CmError::Missing`], [`CmError::State`]; [`CmError::InUse`]: somebody does so at that port.
    pub fn listen<D: Connections>(&mut self, device: &mut D, id: CmId, backlog: usize) -> Result<(), CmError> {
        let space = self.entry(id)?.space;
        let any = self.free_ports(space).next();
        let entry = self.entry_in(id, &[State::Idle])?;
        let mut local = entry.local.unwrap_or(SocketAddr::new(unspecified(true), 0));
        if local.port() == 0 {
            local.set_port(any.ok_or(CmError::Full)?);
        }
        match space {
            PortSpace::Tcp => device.listen(local, backlog)?,
            PortSpace::Udp | PortSpace::Ipoib => device.serve(space, local, backlog)?,
        }
        (entry.local, entry.state) = (Some(local), State::Listening);
        self.listeners.insert((space, local.port()), id);
        Ok(())
    }

    /// Asks the peer for a connection (rdma_connect), or for the queue pair of its service: [`EventKind::ServiceFound`] or [`EventKind::ServiceRefused`].
    ///
    /// # Errors
    /// [`CmError::State`]: its route is not resolved; [`CmError`] of the device.
    pub fn connect<D: Connections>(&mut self, now: Instant, device: &mut D, id: CmId, params: &ConnectParams<'_>) -> Result<(), CmError> {
        if self.entry(id)?.space != PortSpace::Tcp {
            return self.ask(now, device, id, params);
        }
        let entry = self.entry_in(id, &[State::RouteResolved])?;
        let (Some(from), Some(to)) = (entry.local, entry.remote) else { return Err(CmError::State) };
        let connection = device.connect_with(now, entry.endpoint(params), from, to, &entry.terms(params))?;
        (entry.connection, entry.state) = (Some(connection), State::Connecting);
        self.by_connection.insert(connection, id);
        Ok(())
    }

    /// Agrees to a request (rdma_accept): the connection stands once the peer says so ([`EventKind::Established`]). Or tells the queue pair of a service, which is
    /// all that there is to that.
    ///
    /// # Errors
    /// [`CmError::State`]: nobody asks; [`CmError::Unsupported`]: there is no key but the program's; [`CmError`] of the device.
    pub fn accept<D: Connections>(&mut self, now: Instant, device: &mut D, id: CmId, params: &ConnectParams<'_>) -> Result<(), CmError> {
        if self.entry(id)?.space != PortSpace::Tcp {
            return self.answer(now, device, id, params);
        }
        let entry = self.entry_in(id, &[State::Asked])?;
        let connection = entry.connection.ok_or(CmError::State)?;
        device.accept_with(now, connection, entry.endpoint(params), &entry.terms(params))?;
        entry.state = State::Accepting;
        Ok(())
    }

    /// Refuses a request, or the peer's answer to one's own where the queue pair is the program's (rdma_reject).
    ///
    /// # Errors
    /// [`CmError::State`]: there is nothing to refuse; [`CmError::TooLong`].
    pub fn reject<D: Connections>(&mut self, now: Instant, device: &mut D, id: CmId, private_data: &[u8]) -> Result<(), CmError> {
        let entry = self.entry_in(id, &[State::Asked, State::Answered])?;
        device.reject_with(now, entry.connection.ok_or(CmError::State)?, private_data)?;
        if entry.space == PortSpace::Tcp {
            entry.state = State::Over;
        } else {
            self.forget_question(id, State::Over);
        }
        Ok(())
    }

    /// Says that the program's own queue pair is ready (rdma_establish): the passive side gets [`EventKind::Established`]. Here there is no event.
    ///
    /// # Errors
    /// [`CmError::State`]: the identifier has a queue pair, or no [`EventKind::ConnectResponse`] came.
    pub fn establish<D: Connections>(&mut self, now: Instant, device: &mut D, id: CmId) -> Result<(), CmError> {
        let entry = self.entry_in(id, &[State::Answered])?;
        device.establish(now, entry.connection.ok_or(CmError::State)?)?;
        entry.state = State::Connected;
        Ok(())
    }

    /// Ends a connection (rdma_disconnect): its queue pair fails whatever is under way, and both sides get [`EventKind::Disconnected`], and later
    /// [`EventKind::TimewaitExit`]. Of a connection that the peer has ended, it only stops the queue pair.
    ///
    /// # Errors
    /// [`CmError::State`]: there is none, as there never is of datagrams.
    pub fn disconnect<D: Connections>(&mut self, now: Instant, device: &mut D, id: CmId) -> Result<(), CmError> {
        let entry = self.entry_in(id, &[State::Accepting, State::Connected, State::Disconnecting, State::Over])?;
        let connection = entry.connection.ok_or(CmError::State)?;
        if matches!(entry.state, State::Accepting | State::Connected) {
            device.disconnect(now, connection)?;
            entry.state = State::Disconnecting;
        }
        if let Some(qp) = entry.qp {
            // One that is in RESET has nothing to fail.
            let _ = device.modify_qp(now, qp, &Modify::Err);
        }
        Ok(())
    }

    /// What a queue pair of the program's own needs to come to a state (rdma_init_qp_attr): INIT always; RTR and RTS once the peer's request, or its answer,
    /// has come. Their path is what an address handle needs.
    ///
    /// # Errors
    /// [`CmError::State`]: that is not known yet, or there is no such step.
    pub fn init_qp_attr<D: Connections>(&self, device: &D, id: CmId, state: messages::State) -> Result<Modify, CmError> {
        let entry = self.ids.get(&id).ok_or(CmError::Missing)?;
        if entry.space != PortSpace::Tcp {
            // (The key is RDMA-CM's own, or there is none to tell.)
            let [init, rtr, rts] = services::steps(entry.qkey(&ConnectParams::default())?);
            return match state {
                messages::State::Init => Ok(init),
                messages::State::Rtr => Ok(rtr),
                messages::State::Rts => Ok(rts),
                _ => Err(CmError::State),
            };
        }
        if state == messages::State::Init {
            return Ok(INIT);
        }
        let attributes = entry.connection.and_then(|connection| device.qp_attributes(connection)).ok_or(CmError::State)?;
        match state {
            messages::State::Rtr => Ok(Modify::Rtr(attributes.peer)),
            messages::State::Rts => {
                let mut sending = attributes.sending;
                sending.timeout = entry.ack_timeout.unwrap_or(sending.timeout);
                Ok(Modify::Rts(sending))
            }
            _ => Err(CmError::State),
        }
    }

    /// Lets go of an identifier (rdma_destroy_id): its connection ends, and there are no more events of it. Of a listener, requests of which the program has
    /// not heard are refused. Its queue pair is the program's to unmake.
    pub fn destroy_id<D: Connections>(&mut self, now: Instant, device: &mut D, id: CmId) {
        let Some(mut entry) = self.ids.remove(&id) else { return };
        Self::leave_groups(device, &mut entry);
        if let Some(connection) = entry.connection {
            self.by_connection.remove(&connection);
            device.destroy(now, connection);
        }
        if entry.state == State::Listening {
            let port = entry.local.map_or(0, |local| local.port());
            self.listeners.remove(&(entry.space, port));
            match entry.space {
                PortSpace::Tcp => device.unlisten(port),
                PortSpace::Udp | PortSpace::Ipoib => device.unserve(entry.space, port),
            }
            let is_unheard = |event: &&super::Event| event.listener == Some(id) && matches!(event.kind, EventKind::ConnectRequest(_));
            let unheard: Vec<CmId> = self.events.iter().filter(is_unheard).map(|event| event.id).collect();
            unheard.into_iter().for_each(|child| self.destroy_id(now, device, child));
        }
        self.events.retain(|event| event.id != id);
    }
}
