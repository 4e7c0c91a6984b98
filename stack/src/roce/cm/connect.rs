//! What a program does.

use core::time::Duration;
use std::net::IpAddr;

use rand_core::Rng;

use super::{Cm, CmError, Connection, ConnectionId, Listener, State, time};
use crate::roce::mad::{
    DisconnectRequest, Message, PathRecord, ReadyToUse, ReceiptAcknowledgment, Reject, RejectReason, Reply, Request, Responded,
    ServiceIdReply, SidrStatus,
};
use crate::roce::packet::PKEY_DEFAULT;
use crate::roce::packet::datagram::Path;
use crate::roce::psn::Psn;
use crate::roce::qp::Mtu;
use crate::time::Instant;

/// A local identifier where there is none.
const LID_NONE: u16 = 0xffff;

/// What is asked for.
#[derive(Clone, Copy, Debug)]
pub struct Connect {
    /// How to get there.
    pub path: Path,
    /// Which service.
    pub service_id: u64,
    /// The own queue pair.
    pub qpn: u32,
    /// Which number the peer's first packet is to have.
    pub starting_psn: Psn,
    /// The path MTU.
    pub mtu: Mtu,
    /// How long to wait for acknowledgments: 4.096 us * 2^v; 5 bits.
    pub ack_timeout: u8,
    /// As in [`Request`].
    pub responder_resources: u8,
    /// As in [`Request`].
    pub initiator_depth: u8,
    /// As in [`Request`].
    pub flow_control: bool,
    /// As in [`Request`].
    pub retry_count: u8,
    /// As in [`Request`].
    pub rnr_retry_count: u8,
    /// The program's, RDMA-CM's header included.
    pub private_data: [u8; Request::PRIVATE_LEN],
}

/// What is agreed to.
#[derive(Clone, Copy, Debug)]
pub struct Accept {
    /// The own queue pair.
    pub qpn: u32,
    /// Which number the peer's first packet is to have.
    pub starting_psn: Psn,
    /// As in [`Reply`].
    pub responder_resources: u8,
    /// As in [`Reply`].
    pub initiator_depth: u8,
    /// As in [`Reply`].
    pub flow_control: bool,
    /// As in [`Reply`].
    pub rnr_retry_count: u8,
    /// The program's.
    pub private_data: [u8; Reply::PRIVATE_LEN],
}

impl Cm {
    /// Listens for requests for a service, of which `backlog` may wait for an answer.
    ///
    /// # Errors
    /// [`CmError::InUse`].
    pub fn listen(&mut self, service_id: u64, backlog: usize) -> Result<(), CmError> {
        if self.listeners.contains_key(&service_id) {
            return Err(CmError::InUse);
        }
        self.listeners.insert(service_id, Listener { backlog, waiting: 0 });
        Ok(())
    }

    /// Listens no more. Requests that wait stay to be answered.
    ///
    /// # Errors
    /// [`CmError::Missing`].
    pub fn unlisten(&mut self, service_id: u64) -> Result<(), CmError> {
        self.listeners.remove(&service_id).map(|_| ()).ok_or(CmError::Missing)
    }

    /// Asks for a connection.
    ///
    /// # Errors
    /// [`CmError::Full`].
    pub fn connect(&mut self, now: Instant, connect: &Connect) -> Result<ConnectionId, CmError> {
        let transaction = self.random.next_u64();
        // Twice the time that an acknowledgment may take: one way, and back (s12.9.8.4).
        let timewait = time(connect.ack_timeout) * 2;
        let key = self.insert(State::RequestSent, connect.path, transaction, timewait)?;
        let request = Request {
            local_id: self.wire_id(key),
            service_id: connect.service_id,
            ca_guid: self.config.ca_guid,
            qkey: 0,
            qpn: connect.qpn,
            responder_resources: connect.responder_resources,
            initiator_depth: connect.initiator_depth,
            remote_response_timeout: self.config.response_timeout,
            transport: 0,
            flow_control: connect.flow_control,
            starting_psn: connect.starting_psn,
            local_response_timeout: self.config.response_timeout,
            retry_count: connect.retry_count,
            pkey: PKEY_DEFAULT,
            path_mtu: connect.mtu as u8,
            rnr_retry_count: connect.rnr_retry_count,
            cm_retries: self.config.retries,
            srq: false,
            extended_transport: 0,
            primary: path_record(&connect.path, connect.ack_timeout),
            alternate: PathRecord::default(),
            private_data: connect.private_data,
        };
        self.send_for(now, key, Message::Request(request), true);
        Ok(ConnectionId(key))
    }

    pub(super) fn insert(&mut self, state: State, path: Path, transaction: u64, timewait: Duration) -> Result<u32, CmError> {
        let patience = time(self.config.response_timeout);
        let connection = Connection {
            state,
            path,
            transaction,
            remote_id: 0,
            remote_qpn: 0,
            service: None,
            question: None,
            unanswered: None,
            tries_left: 0,
            patience,
            last_sent: None,
            timewait,
            deadline: None,
            orphan: false,
        };
        self.connections.insert_with(|_| Box::new(connection)).ok_or(CmError::Full)
    }

    /// Agrees to a request.
    ///
    /// # Errors
    /// [`CmError::Missing`]; [`CmError::State`]: it is not a request that waits.
    pub fn accept(&mut self, now: Instant, id: ConnectionId, accept: &Accept) -> Result<(), CmError> {
        let connection = self.connection(id)?;
        if connection.state != State::RequestReceived {
            return Err(CmError::State);
        }
        let remote_id = connection.remote_id;
        let reply = Reply {
            local_id: self.wire_id(id.0),
            remote_id,
            qkey: 0,
            qpn: accept.qpn,
            starting_psn: accept.starting_psn,
            responder_resources: accept.responder_resources,
            initiator_depth: accept.initiator_depth,
            ack_delay: 15,
            failover: 0,
            flow_control: accept.flow_control,
            rnr_retry_count: accept.rnr_retry_count,
            srq: false,
            ca_guid: self.config.ca_guid,
            private_data: accept.private_data,
        };
        self.set_state(id.0, State::ReplySent);
        self.send_for(now, id.0, Message::Reply(reply), true);
        Ok(())
    }

    /// Refuses a request, or a reply.
    ///
    /// # Errors
    /// [`CmError::Missing`]; [`CmError::State`]: there is nothing to refuse.
    pub fn reject(
        &mut self,
        now: Instant,
        id: ConnectionId,
        reason: RejectReason,
        private_data: [u8; Reject::PRIVATE_LEN],
    ) -> Result<(), CmError> {
        let responded = match self.connection(id)?.state {
            State::RequestReceived => Responded::Request,
            State::ReplyReceived => Responded::Reply,
            _ => return Err(CmError::State),
        };
        let rejection = self.rejection(id.0, responded, reason, private_data);
        self.send_for(now, id.0, rejection, false);
        // Its numbers are remembered for a while, so that a request that comes again is refused again.
        self.enter_timewait(now, id.0);
        Ok(())
    }

    /// Tells the peer that an answer to its request or reply takes up to 4.096 us * 2^`service_timeout` longer.
    ///
    /// # Errors
    /// [`CmError::Missing`]; [`CmError::State`]: the peer waits for nothing.
    pub fn prolong(&mut self, now: Instant, id: ConnectionId, service_timeout: u8) -> Result<(), CmError> {
        let connection = self.connection(id)?;
        let responded = match connection.state {
            State::RequestReceived => Responded::Request,
            State::ReplyReceived => Responded::Reply,
            _ => return Err(CmError::State),
        };
        let remote_id = connection.remote_id;
        let local_id = self.wire_id(id.0);
        let message = ReceiptAcknowledgment { local_id, remote_id, responded, service_timeout, private_data: [0; 222] };
        self.send_for(now, id.0, Message::ReceiptAcknowledgment(message), false);
        Ok(())
    }

    /// Tells the peer that its reply has come, and that the queue pair is ready.
    ///
    /// # Errors
    /// [`CmError::Missing`]; [`CmError::State`]: there was no reply.
    pub fn establish(&mut self, now: Instant, id: ConnectionId) -> Result<(), CmError> {
        let connection = self.connection(id)?;
        if connection.state != State::ReplyReceived {
            return Err(CmError::State);
        }
        let remote_id = connection.remote_id;
        let message = ReadyToUse { local_id: self.wire_id(id.0), remote_id, private_data: [0; 224] };
        self.set_state(id.0, State::Established);
        self.send_for(now, id.0, Message::ReadyToUse(message), false);
        Ok(())
    }

    /// The queue pair of a connection that was accepted got a packet, which says as much as an RTU (s12.9.6).
    pub fn on_communication(&mut self, id: ConnectionId) {
        if self.connection(id).is_ok_and(|c| c.state == State::ReplySent) {
            self.become_established(id.0);
        }
    }

    /// Ends a connection.
    ///
    /// # Errors
    /// [`CmError::Missing`]; [`CmError::State`]: there is none, or not any more.
    pub fn disconnect(&mut self, now: Instant, id: ConnectionId) -> Result<(), CmError> {
        let connection = self.connection(id)?;
        if !matches!(connection.state, State::Established | State::ReplySent) {
            return Err(CmError::State);
        }
        self.begin_disconnect(now, id.0);
        Ok(())
    }

    pub(super) fn begin_disconnect(&mut self, now: Instant, key: u32) {
        let Some(connection) = self.connections.get(key) else { return };
        let (remote_id, remote_qpn) = (connection.remote_id, connection.remote_qpn);
        let message = DisconnectRequest { local_id: self.wire_id(key), remote_id, remote_qpn, private_data: [0; 220] };
        self.set_state(key, State::DisconnectSent);
        self.send_for(now, key, Message::DisconnectRequest(message), true);
    }

    /// Lets go of a connection: whatever its state, it ends, and there are no more events of it.
    pub fn destroy(&mut self, now: Instant, id: ConnectionId) {
        let Ok(connection) = self.connection(id) else { return };
        let state = connection.state;
        match state {
            State::RequestReceived | State::ReplyReceived => {
                let _ = self.reject(now, id, RejectReason::CONSUMER_DEFINED, [0; Reject::PRIVATE_LEN]);
            }
            State::RequestSent => {
                let rejection = self.rejection(id.0, Responded::Other, RejectReason::TIMEOUT, [0; Reject::PRIVATE_LEN]);
                self.send_for(now, id.0, rejection, false);
                self.enter_timewait(now, id.0);
            }
            State::Established | State::ReplySent => self.begin_disconnect(now, id.0),
            State::DisconnectSent | State::Timewait => {}
            State::QuestionReceived => {
                let _ = self.answer_service(now, id, &ServiceIdReply::refusal(SidrStatus::Rejected));
            }
            State::Closed | State::ServiceAsked => self.remove(id.0),
        }
        if let Some(connection) = self.connections.get_mut(id.0) {
            connection.orphan = true;
        }
        self.events.retain(|(of, _)| *of != id);
    }
}

fn path_record(path: &Path, ack_timeout: u8) -> PathRecord {
    let gid = |address: IpAddr| match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    };
    PathRecord {
        local_lid: LID_NONE,
        remote_lid: LID_NONE,
        local_gid: gid(path.addresses.src()),
        remote_gid: gid(path.addresses.dst()),
        flow_label: path.flow_label,
        packet_rate: 0,
        traffic_class: path.traffic_class,
        hop_limit: path.hop_limit,
        service_level: 0,
        subnet_local: false,
        ack_timeout,
    }
}
