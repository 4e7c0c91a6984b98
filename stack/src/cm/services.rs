//! Services of datagrams, and groups (RDMA_PS_UDP, RDMA_PS_IPOIB). An identifier of these port spaces has a UD queue pair, which is ready at once; connecting asks
//! for the peer's, and accepting tells one's own. Nothing stands after that, and nothing is to be ended.

use std::net::{IpAddr, SocketAddr};

use super::{CmId, ConnectParams, Entry, EventKind, Manager, State};
use crate::device::messages::{
    Access, CmError, ConnectionId, Connections, DatagramPeer, MULTICAST_QP, Modify, PortSpace, PrivateData, Psn,
};
use crate::roce::mad::RDMA_UDP_QKEY;
use crate::time::Instant;

/// How many groups an identifier is in at most.
pub const GROUPS_MAX: usize = 64;

impl Entry {
    /// The key of its datagrams: the program's, or RDMA-CM's own. Where each link has its own (IPoIB), only the program can say which.
    pub(super) fn qkey(&self, params: &ConnectParams<'_>) -> Result<u32, CmError> {
        match (params.qkey, self.space) {
            (0, PortSpace::Udp) => Ok(RDMA_UDP_QKEY),
            (0, _) => Err(CmError::Unsupported),
            (qkey, _) => Ok(qkey),
        }
    }
}

impl Manager {
    /// Asks for the queue pair of the service at the peer's address: what [`Manager::connect`] is to datagrams.
    pub(super) fn ask<D: Connections>(
        &mut self,
        now: Instant,
        device: &mut D,
        id: CmId,
        params: &ConnectParams<'_>,
    ) -> Result<(), CmError> {
        let entry = self.entry_in(id, &[State::RouteResolved])?;
        let (Some(from), Some(to)) = (entry.local, entry.remote) else { return Err(CmError::State) };
        let connection = device.ask(now, entry.space, from, to, &entry.terms(params))?;
        (entry.connection, entry.state) = (Some(connection), State::Connecting);
        self.by_connection.insert(connection, id);
        Ok(())
    }

    /// Answers a question with the identifier's queue pair, or the program's own: what [`Manager::accept`] is to datagrams. The passive side hears no more.
    pub(super) fn answer<D: Connections>(
        &mut self,
        now: Instant,
        device: &mut D,
        id: CmId,
        params: &ConnectParams<'_>,
    ) -> Result<(), CmError> {
        let entry = self.entry_in(id, &[State::Asked])?;
        let connection = entry.connection.ok_or(CmError::State)?;
        let qp = entry.qp.unwrap_or(params.qp_num);
        device.answer(now, connection, qp, entry.qkey(params)?, params.terms.private_data)?;
        self.forget_question(id, State::Connected);
        Ok(())
    }

    /// The device has answered, and may give the question's name to another one.
    pub(super) fn forget_question(&mut self, id: CmId, state: State) {
        let Some(entry) = self.ids.get_mut(&id) else { return };
        entry.state = state;
        if let Some(connection) = entry.connection.take() {
            self.by_connection.remove(&connection);
        }
    }

    /// Takes datagrams to a group (rdma_join_multicast): [`EventKind::MulticastJoined`] says where the group's datagrams go, and the identifier's queue pair, if it has
    /// one by now, gets them. The identifier has an address of its own, or knows the peer's. Groups are left by [`Manager::leave_multicast`], or with the identifier.
    ///
    /// # Errors
    /// [`CmError::Missing`]; [`CmError::State`]: it is of connections, or has no address; [`CmError::InUse`]: it is a member; [`CmError::Full`];
    /// [`CmError::Unroutable`], [`CmError::Unsupported`]: of the device.
    pub fn join_multicast<D: Connections>(&mut self, device: &mut D, id: CmId, group: IpAddr) -> Result<(), CmError> {
        let entry = self.entry(id)?;
        let local = entry.local.filter(|_| entry.space != PortSpace::Tcp).ok_or(CmError::State)?;
        if entry.groups.contains(&group) {
            return Err(CmError::InUse);
        }
        if entry.groups.len() >= GROUPS_MAX {
            return Err(CmError::Full);
        }
        let (path, mtu) = device.group_path(Some(local.ip()), group)?;
        // Of a group of IPoIB's, the key is the link's, and the program knows it.
        let qkey = if entry.space == PortSpace::Udp { RDMA_UDP_QKEY } else { 0 };
        if let Some(qp) = entry.qp {
            device.join(qp, group)?;
        }
        entry.groups.push(group);
        let peer = DatagramPeer { path, mtu, qpn: MULTICAST_QP, qkey, private_data: PrivateData::new() };
        self.tell(id, EventKind::MulticastJoined(Box::new(peer)));
        Ok(())
    }

    /// Leaves a group (rdma_leave_multicast). That it was joined is not told of any more, if it was not yet.
    ///
    /// # Errors
    /// [`CmError::Missing`]: there is no such identifier, or it is no member.
    pub fn leave_multicast<D: Connections>(&mut self, device: &mut D, id: CmId, group: IpAddr) -> Result<(), CmError> {
        let entry = self.entry(id)?;
        let at = entry.groups.iter().position(|joined| *joined == group).ok_or(CmError::Missing)?;
        entry.groups.swap_remove(at);
        if let Some(qp) = entry.qp {
            // One that was made after the group was joined never heard it.
            let _ = device.leave(qp, group);
        }
        self.events.retain(|event| {
            let is_its = |peer: &DatagramPeer| event.id == id && peer.path.addresses.dst() == group;
            !matches!(&event.kind, EventKind::MulticastJoined(peer) if is_its(peer))
        });
        Ok(())
    }

    /// Leaves all groups.
    pub(super) fn leave_groups<D: Connections>(device: &mut D, entry: &mut Entry) {
        let groups = core::mem::take(&mut entry.groups);
        for (qp, group) in entry.qp.into_iter().flat_map(|qp| groups.iter().map(move |group| (qp, *group))) {
            let _ = device.leave(qp, group);
        }
    }

    pub(super) fn on_question(
        &mut self,
        space: PortSpace,
        connection: ConnectionId,
        local: SocketAddr,
        remote: SocketAddr,
    ) -> Option<CmId> {
        let &listener = self.listeners.get(&(space, local.port()))?;
        let tos = self.ids.get(&listener)?.tos;
        let (connection, listener) = (Some(connection), Some(listener));
        let entry = Entry { local: Some(local), remote: Some(remote), connection, listener, tos, ..Entry::new(State::Asked, space) };
        let id = self.insert(entry).ok()?;
        self.by_connection.extend(connection.map(|connection| (connection, id)));
        Some(id)
    }
}

/// What a UD queue pair becomes ready by.
pub(super) const fn steps(qkey: u32) -> [Modify; 3] {
    [Modify::Init { access: Access::LOCAL_WRITE, qkey }, Modify::RtrDatagram, Modify::RtsDatagram { sq_psn: Psn::new(0) }]
}
