//! Services of datagrams, and groups.

use std::net::{IpAddr, SocketAddr};

use super::{Node, Pending};
use crate::device::messages::{
    CmError, ConnectionEvent, ConnectionId, CreateError, DatagramPeer, IncomingRequest, Mtu, Path, PortSpace, Rejection,
};
use crate::roce::mad::private::{HEADER_LEN, IpHeader, QUESTION_LEN_MAX, of_service_id, service_id};
use crate::roce::mad::{ServiceIdReply, ServiceIdRequest, SidrStatus};
use crate::roce::memory::Memory;
use crate::roce::packet::datagram::Addresses;
use crate::time::Instant;

impl<M: Memory> Node<M> {
    pub(super) fn serve_at(&mut self, space: PortSpace, at: SocketAddr, backlog: usize) -> Result<(), CmError> {
        // Connections have listeners.
        if space == PortSpace::Tcp {
            return Err(CmError::Unsupported);
        }
        self.cm.listen(service_id(space, at.port()), backlog)?;
        self.services.insert((space, at.port()), at);
        Ok(())
    }

    pub(super) fn ask_on(
        &mut self,
        now: Instant,
        (path, mtu): (Path, Mtu),
        service: u64,
        header: &IpHeader,
        private_data: &[u8],
    ) -> Result<ConnectionId, CmError> {
        if private_data.len() > QUESTION_LEN_MAX {
            return Err(CmError::TooLong);
        }
        let mut private = [0; ServiceIdRequest::PRIVATE_LEN];
        private[..HEADER_LEN].copy_from_slice(&header.emit());
        private[HEADER_LEN..HEADER_LEN + private_data.len()].copy_from_slice(private_data);
        let id = self.cm.ask_service(now, path, service, private)?;
        self.pending.insert(id, Pending::AskedService(path, mtu));
        Ok(id)
    }

    pub(super) fn answer_with(&mut self, now: Instant, id: ConnectionId, qpn: u32, qkey: u32, private_data: &[u8]) -> Result<(), CmError> {
        self.reply(now, id, ServiceIdReply { qpn, qkey, ..ServiceIdReply::refusal(SidrStatus::Valid) }, private_data)
    }

    pub(super) fn refuse(&mut self, now: Instant, id: ConnectionId, private_data: &[u8]) -> Result<(), CmError> {
        self.reply(now, id, ServiceIdReply::refusal(SidrStatus::Rejected), private_data)
    }

    fn reply(&mut self, now: Instant, id: ConnectionId, mut reply: ServiceIdReply, private_data: &[u8]) -> Result<(), CmError> {
        reply.private_data.get_mut(..private_data.len()).ok_or(CmError::TooLong)?.copy_from_slice(private_data);
        self.cm.answer_service(now, id, &reply)?;
        self.pending.remove(&id);
        Ok(())
    }

    pub(super) fn on_question(&mut self, now: Instant, id: ConnectionId, request: &ServiceIdRequest) {
        let asked = IpHeader::parse(&request.private_data).ok().zip(of_service_id(request.service_id));
        let is_served = |(header, (space, port)): &(IpHeader, (PortSpace, u16))| {
            self.services.get(&(*space, *port)).is_some_and(|at| self.is_asked(*at, header))
        };
        let Some((header, (space, port))) = asked.filter(is_served) else {
            let _ = self.cm.answer_service(now, id, &ServiceIdReply::refusal(SidrStatus::Unsupported));
            return;
        };
        self.pending.insert(id, Pending::Question);
        let private_data = request.private_data[HEADER_LEN..].iter().copied().collect();
        let request = IncomingRequest { local: SocketAddr::new(header.dst, port), remote: header.src, private_data };
        self.events.push_back((id, ConnectionEvent::Question(space, Box::new(request))));
    }

    pub(super) fn on_service_answer(&mut self, id: ConnectionId, reply: &ServiceIdReply) {
        let Some(Pending::AskedService(path, mtu)) = self.pending.get(&id) else { return };
        let (path, mtu, private_data) = (*path, *mtu, reply.private_data.iter().copied().collect());
        if reply.status == SidrStatus::Valid {
            let peer = DatagramPeer { path, mtu, qpn: reply.qpn, qkey: reply.qkey, private_data };
            return self.tell(id, ConnectionEvent::Served(Box::new(peer)));
        }
        self.tell(id, ConnectionEvent::Rejected);
        self.pending.insert(id, Pending::Refused(Box::new(Rejection { reason: reply.status as u16, private_data })));
    }

    pub(super) fn way_to_group(&self, from: Option<IpAddr>, group: IpAddr) -> Result<(Path, Mtu), CmError> {
        // Among the adapters of one machine, nothing carries a packet to all of them.
        if self.config.gid.is_some() {
            return Err(CmError::Unsupported);
        }
        let from = from.filter(|ip| !ip.is_unspecified());
        let own = self.config.addresses.iter().copied().find(|ip| from.is_none_or(|from| from == *ip) && ip.is_ipv4() == group.is_ipv4());
        let addresses = own.filter(|_| group.is_multicast()).and_then(|own| Addresses::new(own, group)).ok_or(CmError::Unroutable)?;
        // One hop, unless the program says otherwise (RFC 1112 s6.1).
        Ok((Path { hop_limit: 1, ..Path::new(addresses, 0) }, self.config.mtu))
    }
}

pub(super) const fn cm_error(error: CreateError) -> CmError {
    match error {
        CreateError::Limit | CreateError::Full => CmError::Full,
        CreateError::Missing | CreateError::InUse => CmError::Missing,
    }
}
