//! What a datagram does (IBTA spec, volume 1, s12.9.7 and s12.9.8).

use super::{Cm, Event, State, time};
use crate::roce::gsi::Management;
use crate::roce::mad::{
    DisconnectReply, DisconnectRequest, Mad, Message, ReadyToUse, ReceiptAcknowledgment, Reject, RejectReason, Reply, Request, Responded,
};
use crate::roce::packet::datagram::Path;
use crate::time::Instant;

impl Cm {
    /// Takes a datagram that came to queue pair 1. What is no connection management is ignored.
    pub fn on_management(&mut self, now: Instant, management: &Management) {
        let Ok(mad) = Mad::parse(&management.bytes) else { return };
        // The way back has the same source port: the peer chose it for the flow.
        let back = Path { addresses: management.path.addresses.reversed(), hop_limit: 64, ..management.path };
        match mad.message {
            Message::Request(request) => self.on_request(now, back, mad.transaction, &request),
            Message::Reply(reply) => self.on_reply(back, mad.transaction, &reply),
            Message::ReadyToUse(ready) => {
                if let Some(key) =
                    self.find(&back, ready.remote_id, ready.local_id).filter(|key| self.state(*key) == Some(State::ReplySent))
                {
                    self.become_established(key);
                }
            }
            Message::Reject(reject) => self.on_reject(now, &back, &reject),
            Message::ReceiptAcknowledgment(mra) => self.on_mra(now, &back, &mra),
            Message::DisconnectRequest(request) => self.on_disconnect_request(now, back, mad.transaction, &request),
            Message::DisconnectReply(reply) => {
                let key = self.find(&back, reply.remote_id, reply.local_id);
                if let Some(key) = key.filter(|key| self.state(*key) == Some(State::DisconnectSent)) {
                    self.tell(key, Event::Disconnected);
                    self.enter_timewait(now, key);
                }
            }
            Message::ServiceIdRequest(request) => self.on_service_request(back, mad.transaction, &request),
            Message::ServiceIdReply(reply) => self.on_service_reply(&back, mad.transaction, &reply),
        }
    }

    /// Whether a datagram is about a service that is listened at, or a connection that there is. (Repetitions of what is over are nobody's.)
    pub(in crate::roce) fn concerns(&self, mad: &Mad) -> bool {
        let has = |local: u32| self.connections.get(local ^ self.mask).is_some();
        match &mad.message {
            Message::Request(request) => self.listeners.contains_key(&request.service_id),
            Message::ServiceIdRequest(request) => self.listeners.contains_key(&request.service_id),
            Message::Reply(reply) => has(reply.remote_id),
            Message::ReadyToUse(ready) => has(ready.remote_id),
            // Who gives up before there was an answer knows no number of ours.
            Message::Reject(reject) if reject.remote_id == 0 => self.by_remote_id.keys().any(|(_, id)| *id == reject.local_id),
            Message::Reject(reject) => has(reject.remote_id),
            Message::ReceiptAcknowledgment(mra) => has(mra.remote_id),
            Message::DisconnectRequest(request) => has(request.remote_id),
            Message::DisconnectReply(reply) => has(reply.remote_id),
            Message::ServiceIdReply(reply) => has(reply.request_id),
        }
    }

    pub(super) fn state(&self, key: u32) -> Option<State> {
        self.connections.get(key).map(|c| c.state)
    }

    /// The connection that a message names by both numbers, if it comes from where the connection leads.
    fn find(&self, back: &Path, local: u32, remote: u32) -> Option<u32> {
        let key = local ^ self.mask;
        let connection = self.connections.get(key).filter(|c| c.remote_id == remote && same_peer(&c.path, back))?;
        // A question for a service has no peer's number, and is none of these.
        (connection.state != State::ServiceAsked && connection.question.is_none()).then_some(key)
    }

    fn on_request(&mut self, now: Instant, back: Path, transaction: u64, request: &Request) {
        let peer = back.addresses.dst();
        if let Some(&key) = self.by_remote_id.get(&(peer, request.local_id)) {
            return self.on_request_again(key, request, &back, transaction);
        }
        // A queue pair that is connected here already: the peer began anew, and forgot the old connection (s12.9.8.3.1).
        if let Some(&old) = self.by_remote_qpn.get(&(peer, request.qpn)).filter(|_| request.qpn != 0) {
            if self.state(old) == Some(State::Established) {
                self.begin_disconnect(now, old);
            }
            return self.refuse(&back, transaction, request.local_id, Responded::Request, RejectReason::STALE_CONNECTION);
        }
        let reason = match self.listeners.get(&request.service_id) {
            None => RejectReason::INVALID_SERVICE_ID,
            Some(_) if request.transport != 0 => RejectReason::INVALID_TRANSPORT,
            Some(_) if crate::roce::qp::Mtu::from_request(request.path_mtu).is_none() => RejectReason::INVALID_MTU,
            Some(listener) if listener.waiting >= listener.backlog => RejectReason::NO_RESOURCES,
            Some(_) => match self.insert(State::RequestReceived, back, transaction, time(request.primary.ack_timeout) * 2) {
                Ok(key) => return self.take_request(key, back, request),
                Err(_) => RejectReason::NO_RESOURCES,
            },
        };
        self.refuse(&back, transaction, request.local_id, Responded::Request, reason);
    }

    fn take_request(&mut self, key: u32, back: Path, request: &Request) {
        self.bind(key, request.local_id, request.qpn);
        if let Some(listener) = self.listeners.get_mut(&request.service_id) {
            listener.waiting += 1;
        }
        if let Some(connection) = self.connections.get_mut(key) {
            connection.service = Some(request.service_id);
            // How long the peer may take for its answer to the reply.
            connection.patience = time(request.local_response_timeout);
        }
        self.tell(key, Event::Request { path: back, request: Box::new(*request) });
    }

    /// A request that came before: its answer, if there was one, was lost.
    fn on_request_again(&mut self, key: u32, request: &Request, back: &Path, transaction: u64) {
        let Some(connection) = self.connections.get(key) else { return };
        match connection.state {
            State::RequestReceived | State::ReplySent | State::Timewait if connection.transaction == transaction => {
                if let Some(mad) = connection.last_sent {
                    self.send(*back, &mad);
                }
            }
            State::Established if connection.transaction == transaction => {}
            _ => self.refuse(back, transaction, request.local_id, Responded::Request, RejectReason::STALE_CONNECTION),
        }
    }

    /// Refuses what belongs to no connection.
    fn refuse(&mut self, back: &Path, transaction: u64, remote_id: u32, responded: Responded, reason: RejectReason) {
        let (info, private_data) = ([0; Reject::INFO_LEN], [0; Reject::PRIVATE_LEN]);
        let message = Message::Reject(Reject { local_id: 0, remote_id, responded, reason, info_len: 0, info, private_data });
        self.send(*back, &Mad { transaction, message });
    }

    fn on_reply(&mut self, back: Path, transaction: u64, reply: &Reply) {
        let key = reply.remote_id ^ self.mask;
        let known = self.connections.get(key).filter(|c| same_peer(&c.path, &back) && c.transaction == transaction);
        match known.map(|c| (c.state, c.remote_id == reply.local_id)) {
            Some((State::RequestSent, _)) => {
                self.bind(key, reply.local_id, reply.qpn);
                self.set_deadline(key, None);
                self.set_state(key, State::ReplyReceived);
                if let Some(connection) = self.connections.get_mut(key) {
                    (connection.unanswered, connection.last_sent) = (None, None);
                }
                self.tell(key, Event::Reply(Box::new(*reply)));
            }
            // It came before: what answered it was lost.
            Some((State::ReplyReceived, true)) => {
                if let Some(mad) = known.and_then(|c| c.last_sent) {
                    self.send(back, &mad);
                }
            }
            Some((State::Established, true)) => {
                let message = ReadyToUse { local_id: reply.remote_id, remote_id: reply.local_id, private_data: [0; 224] };
                self.send(back, &Mad { transaction, message: Message::ReadyToUse(message) });
            }
            Some((State::DisconnectSent, true)) => {}
            _ => self.refuse(&back, transaction, reply.local_id, Responded::Reply, RejectReason::INVALID_COMM_ID),
        }
    }

    pub(super) fn become_established(&mut self, key: u32) {
        self.set_deadline(key, None);
        if let Some(connection) = self.connections.get_mut(key) {
            connection.unanswered = None;
        }
        self.set_state(key, State::Established);
        self.tell(key, Event::Established);
    }

    fn on_reject(&mut self, now: Instant, back: &Path, reject: &Reject) {
        // Of a request that never was a connection there, the peer has no number; of one that we gave up, the peer knows ours or not.
        let by_local = Some(reject.remote_id ^ self.mask).filter(|_| reject.remote_id != 0);
        let key = match by_local {
            Some(key) => self.connections.get(key).filter(|c| same_peer(&c.path, back)).map(|_| key),
            None => self.by_remote_id.get(&(back.addresses.dst(), reject.local_id)).copied(),
        };
        let Some(key) = key else { return };
        let Some(connection) = self.connections.get(key) else { return };
        let named = reject.local_id == 0 || connection.remote_id == 0 || connection.remote_id == reject.local_id;
        match connection.state {
            State::RequestSent | State::RequestReceived | State::ReplySent | State::ReplyReceived if named => {
                self.tell(key, Event::Rejected(Box::new(*reject)));
                self.close(key);
            }
            // The peer gave up before our RTU came.
            State::Established if named && reject.local_id != 0 => {
                self.tell(key, Event::Disconnected);
                self.enter_timewait(now, key);
            }
            _ => {}
        }
    }

    fn on_mra(&mut self, now: Instant, back: &Path, mra: &ReceiptAcknowledgment) {
        let key = mra.remote_id ^ self.mask;
        let Some(connection) = self.connections.get_mut(key).filter(|c| same_peer(&c.path, back)) else { return };
        let fits =
            matches!((connection.state, mra.responded), (State::RequestSent, Responded::Request) | (State::ReplySent, Responded::Reply));
        if fits {
            // Only as often as it would have been sent again: a peer cannot prolong for ever.
            if let Some(left) = connection.tries_left.checked_sub(1) {
                connection.tries_left = left;
                let deadline = now + time(mra.service_timeout) + connection.patience;
                self.set_deadline(key, Some(deadline));
            }
        }
    }

    fn on_disconnect_request(&mut self, now: Instant, back: Path, transaction: u64, request: &DisconnectRequest) {
        let key = self.find(&back, request.remote_id, request.local_id);
        match key.and_then(|key| Some((key, self.state(key)?))) {
            Some((key, State::Established | State::ReplySent | State::DisconnectSent)) => {
                self.tell(key, Event::Disconnected);
                self.enter_timewait(now, key);
            }
            Some((_, State::Timewait | State::Closed)) | None => {}
            Some(_) => return,
        }
        // Whoever asks for the end gets it, even of what is unknown here: its answer may have been lost long ago.
        let message = DisconnectReply { local_id: request.remote_id, remote_id: request.local_id, private_data: [0; 224] };
        self.send(back, &Mad { transaction, message: Message::DisconnectReply(message) });
    }
}

pub(super) fn same_peer(path: &Path, back: &Path) -> bool {
    path.addresses == back.addresses
}
