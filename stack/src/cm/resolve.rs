//! Identifiers: their addresses, routes, options and queue pairs.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::{CmId, ConnectParams, EventKind, IdOption, Manager, State, services};
use crate::device::messages::{Access, CmError, Connections, Modify, PortSpace, QpConfig, Transport};
use crate::net::{Delivery, Query, Tables, Unroutable};
use crate::time::Instant;

/// The first port that is nobody's but who asks for any.
const EPHEMERAL_MIN: u16 = 32_768;
/// The longest ACK timeout: 5 bits.
const ACK_TIMEOUT_MAX: u8 = 31;

/// Why nobody looks for an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ResolveError {
    /// The identifier's state, or there is no such one.
    #[error(transparent)]
    Cm(#[from] CmError),
    /// The tables have no way there. The call itself says so, and there is no event (Linux, drivers/infiniband/core/addr.c: rdma_resolve_ip).
    #[error(transparent)]
    Unroutable(#[from] Unroutable),
}

/// Why an address was not resolved, as the event has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// The program: a connection has one peer, and datagrams to all hosts have no way here.
    #[error("the destination is a group's, or all hosts'")]
    NotUnicast,
    /// The way there is not this device's, or only the kernel knows it.
    #[error("the route does not lead over this device")]
    NoDevice,
}

impl AddressError {
    /// What the event's status is in C, negated.
    pub const fn errno(self) -> i32 {
        match self {
            Self::NotUnicast => 22,
            Self::NoDevice => 19,
        }
    }
}

impl Manager {
    /// Gives it an address of its own (rdma_bind_addr); an unspecified one is every address, port zero any port.
    ///
    /// # Errors
    /// [`CmError::Missing`]; [`CmError::State`]: it has one, or is beyond that; [`CmError::Unroutable`]: the address is not this host's.
    pub fn bind_address(&mut self, tables: &Tables, id: CmId, local: SocketAddr) -> Result<(), CmError> {
        let entry = self.entry_in(id, &[State::Idle])?;
        if entry.local.is_some() {
            return Err(CmError::State);
        }
        if !local.ip().is_unspecified() && !tables.is_local(local.ip()) {
            return Err(CmError::Unroutable);
        }
        entry.local = Some(local);
        Ok(())
    }

    /// Finds out by which of our addresses, and whether by this device, the peer is reached (rdma_resolve_addr):
    /// [`EventKind::AddressResolved`] or [`EventKind::AddressError`]. `from`, or the address that it has already, decides if it is given.
    ///
    /// # Errors
    /// [`ResolveError::Cm`]: [`CmError::Missing`], [`CmError::State`]; [`ResolveError::Unroutable`]: it may be tried again.
    pub fn resolve_address<D: Connections>(
        &mut self,
        tables: &Tables,
        device: &D,
        id: CmId,
        from: Option<SocketAddr>,
        to: SocketAddr,
    ) -> Result<(), ResolveError> {
        let entry = self.entry_in(id, &[State::Idle])?;
        let own = from.or(entry.local);
        let given = own.map(|own| own.ip()).filter(|ip| !ip.is_unspecified());
        let query = Query { source: given, tos: entry.tos, destination_port: to.port(), ..Query::to(to.ip()) };
        let takes_groups = entry.space != PortSpace::Tcp;
        let kind = match source_of(tables, device, &query, to, takes_groups)? {
            Ok(source) => {
                entry.local = Some(SocketAddr::new(source, own.map_or(0, |own| own.port())));
                entry.remote = Some(to);
                entry.state = State::AddressResolved;
                EventKind::AddressResolved
            }
            Err(error) => EventKind::AddressError(error),
        };
        self.tell(id, kind);
        Ok(())
    }

    /// Finds the way through the network (rdma_resolve_route): [`EventKind::RouteResolved`] or [`EventKind::RouteError`].
    ///
    /// # Errors
    /// [`CmError::Missing`]; [`CmError::State`]: its address is not resolved.
    pub fn resolve_route<D: Connections>(&mut self, device: &D, id: CmId) -> Result<(), CmError> {
        let entry = self.entry_in(id, &[State::AddressResolved])?;
        let leads = entry.remote.is_some_and(|to| device.leads_to(entry.local.map(|local| local.ip()), to));
        if leads {
            entry.state = State::RouteResolved;
        }
        self.tell(id, if leads { EventKind::RouteResolved } else { EventKind::RouteError });
        Ok(())
    }

    /// Sets an option (rdma_set_option).
    ///
    /// # Errors
    /// [`CmError::Missing`]; [`CmError::State`]: out of its range, or the connection was asked for, or agreed to, already.
    pub fn set_option(&mut self, id: CmId, option: IdOption) -> Result<(), CmError> {
        let before = [State::Idle, State::AddressResolved, State::RouteResolved, State::Listening, State::Asked];
        let entry = self.entry_in(id, &before)?;
        match option {
            IdOption::Tos(tos) => entry.tos = tos,
            IdOption::AckTimeout(code) if code <= ACK_TIMEOUT_MAX => entry.ack_timeout = Some(code),
            IdOption::AckTimeout(_) => return Err(CmError::State),
        }
        Ok(())
    }

    /// Makes its queue pair, in INIT (rdma_create_qp), which becomes ready as its connection does; one of datagrams is ready at once, with RDMA-CM's own key. Its
    /// completion queues are the program's.
    ///
    /// # Errors
    /// [`CmError::Missing`]; [`CmError::State`]: it has one, is connected already, or of the other transport; [`CmError::Full`]: the device made none;
    /// [`CmError::Unsupported`]: there is no key but the program's, which makes its own queue pair.
    pub fn create_qp<D: Connections>(&mut self, now: Instant, device: &mut D, id: CmId, config: QpConfig) -> Result<u32, CmError> {
        let entry = self.entry_in(id, &[State::Idle, State::AddressResolved, State::RouteResolved, State::Asked])?;
        let is_connected = entry.space == PortSpace::Tcp;
        let transport = if is_connected { Transport::Rc } else { Transport::Ud };
        if entry.qp.is_some() || config.transport != transport {
            return Err(CmError::State);
        }
        let of_datagrams;
        let steps: &[Modify] = if is_connected {
            &[INIT]
        } else {
            of_datagrams = services::steps(entry.qkey(&ConnectParams::default())?);
            &of_datagrams
        };
        let qp = device.create_qp(config).map_err(|_| CmError::Full)?;
        if steps.iter().any(|step| device.modify_qp(now, qp, step).is_err()) {
            // It was made just now.
            let _ = device.destroy_qp(qp);
            return Err(CmError::Full);
        }
        entry.qp = Some(qp);
        Ok(qp)
    }

    /// Unmakes its queue pair (rdma_destroy_qp).
    pub fn destroy_qp<D: Connections>(&mut self, device: &mut D, id: CmId) {
        let Some(entry) = self.ids.get_mut(&id) else { return };
        Self::leave_groups(device, entry);
        if let Some(qp) = entry.qp.take() {
            // It may have ended otherwise.
            let _ = device.destroy_qp(qp);
        }
    }

    /// Ports at which nobody listens.
    pub(super) fn free_ports(&self, space: PortSpace) -> impl Iterator<Item = u16> {
        (EPHEMERAL_MIN..=u16::MAX).filter(move |port| !self.listeners.contains_key(&(space, *port)))
    }
}

/// What peers may do to a queue pair that is made here, as RDMA-CM has it.
pub(super) const INIT: Modify = Modify::Init {
    access: Access::LOCAL_WRITE.union(Access::REMOTE_WRITE).union(Access::REMOTE_READ).union(Access::REMOTE_ATOMIC),
    qkey: 0,
};

/// Which of our addresses leads to a peer. The outer error is the tables'.
fn source_of<D: Connections>(
    tables: &Tables,
    device: &D,
    query: &Query,
    to: SocketAddr,
    takes_groups: bool,
) -> Result<Result<IpAddr, AddressError>, Unroutable> {
    let route = match tables.route(query) {
        Ok(route) => route,
        // (What only the kernel knows is no way for a device.)
        Err(why) if why.errno().is_none() => return Ok(Err(AddressError::NoDevice)),
        Err(why) => return Err(why),
    };
    let is_one = matches!(route.delivery, Delivery::Unicast | Delivery::Local);
    if !(is_one || takes_groups && route.delivery == Delivery::Multicast) {
        return Ok(Err(AddressError::NotUnicast));
    }
    Ok(if device.leads_to(Some(route.source), to) { Ok(route.source) } else { Err(AddressError::NoDevice) })
}

/// Every address of a family.
pub(super) const fn unspecified(v4: bool) -> IpAddr {
    if v4 { IpAddr::V4(Ipv4Addr::UNSPECIFIED) } else { IpAddr::V6(Ipv6Addr::UNSPECIFIED) }
}
