//! What comes of what was asked for.

use std::net::SocketAddr;

use super::{Node, Pending};
use crate::device::messages::{
    ConnectionEvent, ConnectionId, Endpoint, IncomingRequest, Path, Peer, PrivateData, QpAttributes, Rejection, Sending,
};
use crate::roce::cm::{Event, TIME_MAX};
use crate::roce::mad::private::{HEADER_LEN, IpHeader, of_service_id};
use crate::roce::mad::{Reject, RejectReason, Reply, Request};
use crate::roce::memory::Memory;
use crate::roce::qp::{Mtu, RD_ATOMIC_MAX};
use crate::time::Instant;

impl<M: Memory> Node<M> {
    pub(super) fn take_events(&mut self, now: Instant) {
        while let Some((id, event)) = self.cm.poll_event() {
            match event {
                Event::Request { path, request } => self.on_request(now, id, path, &request),
                Event::Reply(reply) => self.on_reply(now, id, &reply),
                Event::Established => self.tell(id, ConnectionEvent::Established(PrivateData::new())),
                Event::Rejected(reject) => {
                    self.tell(id, ConnectionEvent::Rejected);
                    let private_data = reject.private_data.iter().copied().collect();
                    self.pending.insert(id, Pending::Refused(Box::new(Rejection { reason: reject.reason.0, private_data })));
                }
                Event::Unreachable => self.tell(id, ConnectionEvent::Unreachable),
                Event::Disconnected => self.tell(id, ConnectionEvent::Disconnected),
                Event::TimewaitExit => self.tell(id, ConnectionEvent::TimewaitExit),
                Event::Question { path: _, request } => self.on_question(now, id, &request),
                Event::ServiceAnswer(reply) => self.on_service_answer(id, &reply),
            }
        }
    }

    pub(super) fn tell(&mut self, id: ConnectionId, event: ConnectionEvent) {
        // (A connection of the program's own queue pair has attributes as long as it stands.)
        if !matches!(event, ConnectionEvent::Established(_)) {
            self.pending.remove(&id);
        }
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
        let attributes = QpAttributes {
            peer: Peer {
                path,
                mtu: mtu.min(self.config.mtu),
                dest_qp: request.qpn,
                rq_psn: self.psn(),
                max_dest_rd_atomic: request.initiator_depth.min(RD_ATOMIC_MAX),
                min_rnr_timer: self.config.min_rnr_timer,
            },
            sending: Sending {
                sq_psn: request.starting_psn,
                // A stranger may not have us wait for ever.
                timeout: if request.primary.ack_timeout == 0 { self.config.ack_timeout } else { request.primary.ack_timeout.min(TIME_MAX) },
                retry_count: request.retry_count,
                rnr_retry: request.rnr_retry_count,
                max_rd_atomic: request.responder_resources.min(RD_ATOMIC_MAX),
            },
        };
        self.pending.insert(id, Pending::Waits(Box::new(attributes)));
        let private_data = request.private_data[HEADER_LEN..].iter().copied().collect();
        let request = IncomingRequest { local: SocketAddr::new(header.dst, port), remote: header.src, private_data };
        self.events.push_back((id, ConnectionEvent::Request(Box::new(request))));
    }

    /// Whether somebody listens at the address that was asked.
    fn listens(&self, header: &IpHeader, port: u16) -> bool {
        self.listeners.get(&port).is_some_and(|at| self.is_asked(*at, header))
    }

    /// Whether a request or question that names this address of ours is for who listens at `at`.
    pub(super) fn is_asked(&self, at: SocketAddr, header: &IpHeader) -> bool {
        // (Among adapters of one machine, all its addresses are everybody's.)
        let is_ours = self.config.gid.is_some() || self.config.addresses.contains(&header.dst);
        is_ours && (at.ip().is_unspecified() || at.ip() == header.dst)
    }

    fn on_reply(&mut self, now: Instant, id: ConnectionId, reply: &Reply) {
        let Some(Pending::Asked(endpoint, attributes)) = self.pending.get(&id) else { return };
        let (endpoint, mut attributes) = (*endpoint, attributes.clone());
        attributes.peer.dest_qp = reply.qpn;
        let sending = &mut attributes.sending;
        (sending.sq_psn, sending.rnr_retry) = (reply.starting_psn, reply.rnr_retry_count);
        sending.max_rd_atomic = sending.max_rd_atomic.min(reply.responder_resources);
        let private_data = reply.private_data.iter().copied().collect();
        let Endpoint::Managed(qp) = endpoint else {
            self.tell(id, ConnectionEvent::Response(private_data));
            self.pending.insert(id, Pending::Own(attributes));
            return;
        };
        // The queue pair may be gone, or the reply's numbers out of range.
        let ready = self.make_ready(now, qp, &attributes);
        if ready.is_err() || self.cm.establish(now, id).is_err() {
            let _ = self.cm.reject(now, id, RejectReason::CONSUMER_DEFINED, [0; Reject::PRIVATE_LEN]);
            return self.tell(id, ConnectionEvent::Rejected);
        }
        self.pending.remove(&id);
        self.tell(id, ConnectionEvent::Established(private_data));
    }
}
