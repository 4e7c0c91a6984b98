//! What comes of what was asked for.

use std::net::SocketAddr;

use super::{Node, Pending, READS_MAX, Reads};
use crate::device::messages::{ConnectionEvent, ConnectionId, IncomingRequest, Path, PrivateData};
use crate::roce::cm::Event;
use crate::roce::mad::private::{HEADER_LEN, IpHeader, of_service_id};
use crate::roce::mad::{Reject, RejectReason, Reply, Request};
use crate::roce::memory::Memory;
use crate::roce::qp::Mtu;
use crate::time::Instant;

impl<M: Memory> Node<M> {
    pub(super) fn take_events(&mut self, now: Instant) {
        while let Some((id, event)) = self.cm.poll_event() {
            match event {
                Event::Request { path, request } => self.on_request(now, id, path, &request),
                Event::Reply(reply) => self.on_reply(now, id, &reply),
                Event::Established => self.tell(id, ConnectionEvent::Established(PrivateData::new())),
                Event::Rejected(_) => self.tell(id, ConnectionEvent::Rejected),
                Event::Unreachable => self.tell(id, ConnectionEvent::Unreachable),
                Event::Disconnected => self.tell(id, ConnectionEvent::Disconnected),
                // Neither is for connections' programs.
                Event::TimewaitExit | Event::ServiceAnswer(_) => {}
            }
        }
    }

    fn tell(&mut self, id: ConnectionId, event: ConnectionEvent) {
        self.pending.remove(&id);
        self.events.push_back((id, event));
    }

    fn on_request(&mut self, now: Instant, id: ConnectionId, path: Path, request: &Request) {
        let asked =
            IpHeader::parse(&request.private_data).ok().zip(of_service_id(request.service_id)).zip(Mtu::from_request(request.path_mtu));
        let Some(((header, (_, port)), mtu)) = asked.filter(|((header, (_, port)), _)| self.listens(header, *port)) else {
            let _ = self.cm.reject(now, id, RejectReason::INVALID_SERVICE_ID, [0; Reject::PRIVATE_LEN]);
            self.cm.destroy(now, id);
            return;
        };
        let mtu = mtu.min(self.config.mtu);
        let reads = Reads { answered: request.initiator_depth.min(READS_MAX), asked: request.responder_resources.min(READS_MAX) };
        self.pending.insert(id, Pending::Waits { path, dest_qp: request.qpn, sq_psn: request.starting_psn, mtu, reads });
        let private_data = request.private_data[HEADER_LEN..].iter().copied().collect();
        let request = IncomingRequest { local: SocketAddr::new(header.dst, port), remote: header.src, private_data };
        self.events.push_back((id, ConnectionEvent::Request(Box::new(request))));
    }

    /// Whether somebody listens at the address that was asked.
    fn listens(&self, header: &IpHeader, port: u16) -> bool {
        let Some(at) = self.listeners.get(&port) else { return false };
        // (Among adapters of one machine, all its addresses are everybody's.)
        let is_ours = self.config.gid.is_some() || self.config.addresses.contains(&header.dst);
        is_ours && (at.ip().is_unspecified() || at.ip() == header.dst)
    }

    fn on_reply(&mut self, now: Instant, id: ConnectionId, reply: &Reply) {
        let Some(Pending::Asked { qp, path, rq_psn }) = self.pending.get(&id).copied() else { return };
        // The queue pair may be gone, or the reply's numbers out of range.
        let ready = self.make_ready(now, qp, path, self.config.mtu, reply.qpn, (rq_psn, reply.starting_psn), Reads::default());
        if ready.is_err() || self.cm.establish(now, id).is_err() {
            let _ = self.cm.reject(now, id, RejectReason::CONSUMER_DEFINED, [0; Reject::PRIVATE_LEN]);
            return self.tell(id, ConnectionEvent::Rejected);
        }
        let private_data = reply.private_data.iter().copied().collect();
        self.tell(id, ConnectionEvent::Established(private_data));
    }
}
