//! What a program asks for.

use std::net::{IpAddr, SocketAddr};

use super::services::cm_error;
use super::{Node, Pending};
use crate::device::messages::{
    CmError, ConnectionEvent, ConnectionId, ConnectionParams, Connections, Endpoint, Mtu, Path, PortSpace, QpAttributes, Rejection,
};
use crate::roce::cm::{Accept, Connect};
use crate::roce::mad::private::{HEADER_LEN, IpHeader, REQUEST_LEN_MAX, service_id};
use crate::roce::mad::{Reject, RejectReason, Reply, Request};
use crate::roce::memory::Memory;
use crate::roce::packet::datagram::Addresses;
use crate::roce::psn::Psn;
use crate::roce::qp::{Modify, Peer, Sending};
use crate::time::Instant;

impl<M: Memory + From<Vec<u8>>> Connections for Node<M> {
    fn path(&self, from: Option<IpAddr>, to: IpAddr) -> Option<(Path, Mtu)> {
        // Behind an address alone there may be several adapters.
        self.config.gid.is_none().then_some(())?;
        if let Some(network) = &self.network {
            let (from, mtu) = network.way(from.filter(|ip| !ip.is_unspecified()), to)?;
            return Some((Path::new(Addresses::new(from, to)?, flow_of(to)), mtu));
        }
        let from = match from.filter(|ip| !ip.is_unspecified()) {
            Some(ip) => Some(ip).filter(|ip| self.config.addresses.contains(ip))?,
            None => self.config.addresses.iter().copied().find(|ip| ip.is_ipv4() == to.is_ipv4())?,
        };
        Some((Path::new(Addresses::new(from, to)?, flow_of(to)), self.config.mtu))
    }

    fn datagram_path(&self, from: Option<IpAddr>, to: SocketAddr) -> Option<(Path, Mtu, IpAddr)> {
        let Some(own) = self.config.gid else {
            return self.path(from, to.ip()).map(|(path, mtu)| (path, mtu, path.addresses.src()));
        };
        let (path, src) = self.way_to(own, *self.datagrams_to.get(&to)?, from, to)?;
        Some((path, self.config.mtu, src))
    }

    fn listen(&mut self, at: SocketAddr, backlog: usize) -> Result<(), CmError> {
        self.cm.listen(Self::service(at.port()), backlog)?;
        self.listeners.insert(at.port(), at);
        Ok(())
    }

    fn unlisten(&mut self, port: u16) {
        if self.listeners.remove(&port).is_some() {
            // It was there.
            let _ = self.cm.unlisten(Self::service(port));
        }
    }

    fn connect(&mut self, now: Instant, qp: u32, from: SocketAddr, to: SocketAddr, private_data: &[u8]) -> Result<ConnectionId, CmError> {
        self.connect_with(now, Endpoint::Managed(qp), from, to, &ConnectionParams { private_data, ..ConnectionParams::default() })
    }

    fn accept(&mut self, now: Instant, id: ConnectionId, qp: u32, private_data: &[u8]) -> Result<(), CmError> {
        // As many reads and atomics as the peer would have (rdma_accept(3) without parameters).
        let params =
            ConnectionParams { private_data, responder_resources: u8::MAX, initiator_depth: u8::MAX, ..ConnectionParams::default() };
        self.accept_with(now, id, Endpoint::Managed(qp), &params)
    }

    fn reject(&mut self, now: Instant, id: ConnectionId) {
        self.pending.remove(&id);
        // Whatever is no request that waits needs no refusal.
        let _ = self.cm.reject(now, id, RejectReason::CONSUMER_DEFINED, [0; Reject::PRIVATE_LEN]);
        self.cm.destroy(now, id);
    }

    fn leads_to(&self, from: Option<IpAddr>, to: SocketAddr) -> bool {
        match self.config.gid {
            Some(_) => self.resolved.contains_key(&to),
            None => self.path(from, to.ip()).is_some(),
        }
    }

    fn connect_with(
        &mut self,
        now: Instant,
        endpoint: Endpoint,
        from: SocketAddr,
        to: SocketAddr,
        params: &ConnectionParams<'_>,
    ) -> Result<ConnectionId, CmError> {
        let private_data = params.private_data;
        if private_data.len() > REQUEST_LEN_MAX {
            return Err(CmError::TooLong);
        }
        let (path, mtu, src) = self.way(from.ip(), to).ok_or(CmError::Unroutable)?;
        let path = Path { traffic_class: params.traffic_class, ..path };
        let port = if from.port() == 0 { self.ephemeral_port() } else { from.port() };
        let header = IpHeader { src: SocketAddr::new(src, port), dst: to.ip() };
        let mut private = [0; Request::PRIVATE_LEN];
        private[..HEADER_LEN].copy_from_slice(&header.emit());
        private[HEADER_LEN..HEADER_LEN + private_data.len()].copy_from_slice(private_data);
        let ack_timeout = params.ack_timeout.unwrap_or(self.config.ack_timeout);
        let attributes = QpAttributes {
            peer: Peer {
                path,
                mtu,
                dest_qp: 0,
                rq_psn: self.psn(),
                max_dest_rd_atomic: params.responder_resources,
                min_rnr_timer: self.config.min_rnr_timer,
            },
            sending: Sending {
                sq_psn: Psn::default(),
                timeout: ack_timeout,
                retry_count: params.retry_count,
                rnr_retry: 0,
                max_rd_atomic: params.initiator_depth,
            },
        };
        let (Endpoint::Managed(qpn) | Endpoint::Own(qpn)) = endpoint;
        let connect = Connect {
            path,
            service_id: Self::service(to.port()),
            qpn,
            starting_psn: attributes.peer.rq_psn,
            mtu,
            ack_timeout,
            responder_resources: params.responder_resources,
            initiator_depth: params.initiator_depth,
            flow_control: params.flow_control,
            retry_count: params.retry_count,
            rnr_retry_count: params.rnr_retry_count,
            private_data: private,
        };
        let id = self.cm.connect(now, &connect)?;
        self.names.insert(id, header.src);
        self.pending.insert(id, Pending::Asked(endpoint, Box::new(attributes)));
        Ok(id)
    }

    fn accept_with(&mut self, now: Instant, id: ConnectionId, to: Endpoint, params: &ConnectionParams<'_>) -> Result<(), CmError> {
        let Some(Pending::Waits(attributes)) = self.pending.get(&id) else { return Err(CmError::State) };
        let mut attributes = **attributes;
        let mut private = [0; Reply::PRIVATE_LEN];
        private.get_mut(..params.private_data.len()).ok_or(CmError::TooLong)?.copy_from_slice(params.private_data);
        // No more than either side said.
        let (peer, sending) = (&mut attributes.peer, &mut attributes.sending);
        peer.max_dest_rd_atomic = peer.max_dest_rd_atomic.min(params.responder_resources);
        sending.max_rd_atomic = sending.max_rd_atomic.min(params.initiator_depth);
        sending.timeout = params.ack_timeout.unwrap_or(sending.timeout);
        if let Endpoint::Managed(qp) = to {
            self.make_ready(now, qp, &attributes)?;
        }
        let (Endpoint::Managed(qpn) | Endpoint::Own(qpn)) = to;
        let accept = Accept {
            qpn,
            starting_psn: attributes.peer.rq_psn,
            responder_resources: attributes.peer.max_dest_rd_atomic,
            initiator_depth: attributes.sending.max_rd_atomic,
            flow_control: params.flow_control,
            rnr_retry_count: params.rnr_retry_count,
            private_data: private,
        };
        match to {
            Endpoint::Managed(_) => self.pending.remove(&id),
            Endpoint::Own(_) => self.pending.insert(id, Pending::Own(Box::new(attributes))),
        };
        self.cm.accept(now, id, &accept)
    }

    fn reject_with(&mut self, now: Instant, id: ConnectionId, private_data: &[u8]) -> Result<(), CmError> {
        let mut private = [0; Reject::PRIVATE_LEN];
        private.get_mut(..private_data.len()).ok_or(CmError::TooLong)?.copy_from_slice(private_data);
        if let Some(Pending::Question) = self.pending.get(&id) {
            return self.refuse(now, id, private_data);
        }
        self.cm.reject(now, id, RejectReason::CONSUMER_DEFINED, private)?;
        self.pending.remove(&id);
        Ok(())
    }

    fn serve(&mut self, space: PortSpace, at: SocketAddr, backlog: usize) -> Result<(), CmError> {
        self.serve_at(space, at, backlog)
    }

    fn unserve(&mut self, space: PortSpace, port: u16) {
        if self.services.remove(&(space, port)).is_some() {
            // It was there.
            let _ = self.cm.unlisten(service_id(space, port));
        }
    }

    fn ask(
        &mut self,
        now: Instant,
        space: PortSpace,
        from: SocketAddr,
        to: SocketAddr,
        params: &ConnectionParams<'_>,
    ) -> Result<ConnectionId, CmError> {
        let (path, mtu, src) = self.way(from.ip(), to).ok_or(CmError::Unroutable)?;
        let path = Path { traffic_class: params.traffic_class, ..path };
        let port = if from.port() == 0 { self.ephemeral_port() } else { from.port() };
        let header = IpHeader { src: SocketAddr::new(src, port), dst: to.ip() };
        self.ask_on(now, (path, mtu), service_id(space, to.port()), &header, params.private_data)
    }

    fn answer(&mut self, now: Instant, id: ConnectionId, qp: u32, qkey: u32, private_data: &[u8]) -> Result<(), CmError> {
        self.answer_with(now, id, qp, qkey, private_data)
    }

    fn group_path(&self, from: Option<IpAddr>, group: IpAddr) -> Result<(Path, Mtu), CmError> {
        self.way_to_group(from, group)
    }

    fn join(&mut self, qp: u32, group: IpAddr) -> Result<(), CmError> {
        self.way_to_group(None, group)?;
        self.hca.join(qp, group).map_err(cm_error)
    }

    fn leave(&mut self, qp: u32, group: IpAddr) -> Result<(), CmError> {
        self.hca.leave(qp, group).map_err(cm_error)
    }

    fn establish(&mut self, now: Instant, id: ConnectionId) -> Result<(), CmError> {
        self.cm.establish(now, id)
    }

    fn disconnect(&mut self, now: Instant, id: ConnectionId) -> Result<(), CmError> {
        self.cm.disconnect(now, id)
    }

    fn qp_attributes(&self, id: ConnectionId) -> Option<QpAttributes> {
        match self.pending.get(&id)? {
            Pending::Waits(attributes) | Pending::Own(attributes) => Some(**attributes),
            Pending::Asked(..) | Pending::Refused(_) | Pending::AskedService(..) | Pending::Question => None,
        }
    }

    fn rejection(&self, id: ConnectionId) -> Option<Rejection> {
        match self.pending.get(&id)? {
            Pending::Refused(rejection) => Some((**rejection).clone()),
            _ => None,
        }
    }

    fn on_communication(&mut self, id: ConnectionId) {
        self.cm.on_communication(id);
    }

    fn destroy(&mut self, now: Instant, id: ConnectionId) {
        self.pending.remove(&id);
        self.names.remove(&id);
        self.cm.destroy(now, id);
        self.events.retain(|(of, _)| *of != id);
    }

    fn local_name(&self, id: ConnectionId) -> Option<SocketAddr> {
        self.names.get(&id).copied()
    }

    fn poll_connection(&mut self) -> Option<(ConnectionId, ConnectionEvent)> {
        self.events.pop_front()
    }
}

const fn flow_of(to: IpAddr) -> u32 {
    match to {
        IpAddr::V4(ip) => ip.to_bits(),
        IpAddr::V6(ip) => ip.to_bits() as u32,
    }
}

impl<M: Memory + From<Vec<u8>>> Node<M> {
    /// The way of a connection, and which address of ours its peer is to know.
    fn way(&mut self, from: IpAddr, to: SocketAddr) -> Option<(Path, Mtu, IpAddr)> {
        let Some(own) = self.config.gid else {
            let (path, mtu) = self.path(Some(from), to.ip())?;
            return Some((path, mtu, path.addresses.src()));
        };
        let gid = self.resolved.remove(&to)?;
        let (path, src) = self.way_to(own, gid, Some(from), to)?;
        Some((path, self.config.mtu, src))
    }

    /// The way from our adapter to another one, and which address of ours is shown there.
    fn way_to(&self, own: IpAddr, gid: IpAddr, from: Option<IpAddr>, to: SocketAddr) -> Option<(Path, IpAddr)> {
        let path = Path::new(Addresses::new(own, gid)?, flow_of(gid));
        // Both are on one machine, where each address is anybody's who asks for none.
        let src = from.filter(|from| !from.is_unspecified()).unwrap_or(to.ip());
        (src.is_ipv4() == to.is_ipv4()).then_some((path, src))
    }
}

impl<M: Memory> Node<M> {
    /// A queue pair from INIT to RTS.
    pub(super) fn make_ready(&mut self, now: Instant, qp: u32, attributes: &QpAttributes) -> Result<(), CmError> {
        for modify in [Modify::Rtr(attributes.peer), Modify::Rts(attributes.sending)] {
            self.hca.modify_qp(now, qp, &modify).map_err(|_| CmError::State)?;
        }
        Ok(())
    }
}
