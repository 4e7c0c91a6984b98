//! Services of datagrams: which UD queue pair serves one (IBTA spec, volume 1, s12.11).

use core::time::Duration;

use rand_core::Rng;

use super::receive::same_peer;
use super::{Cm, CmError, ConnectionId, Event, QUESTIONS_MAX, Question, State};
use crate::roce::mad::{Mad, Message, ServiceIdReply, ServiceIdRequest};
use crate::roce::packet::PKEY_DEFAULT;
use crate::roce::packet::datagram::Path;
use crate::time::Instant;

impl Cm {
    /// Asks for a service's queue pair. The answer, or [`Event::Unreachable`], comes with the number that this gives.
    ///
    /// # Errors
    /// [`CmError::Full`].
    pub fn ask_service(&mut self, now: Instant, path: Path, service_id: u64, private_data: [u8; 216]) -> Result<ConnectionId, CmError> {
        let transaction = self.random.next_u64();
        let key = self.insert(State::ServiceAsked, path, transaction, Duration::ZERO)?;
        let request = ServiceIdRequest { request_id: self.wire_id(key), pkey: PKEY_DEFAULT, service_id, private_data };
        self.send_for(now, key, Message::ServiceIdRequest(request), true);
        Ok(ConnectionId(key))
    }

    /// Answers a question. A question that comes again is to be answered again.
    pub fn answer_service(&mut self, question: &Question, reply: &ServiceIdReply) {
        let message = ServiceIdReply { request_id: question.request.request_id, service_id: question.request.service_id, ..*reply };
        self.send(question.path, &Mad { transaction: question.transaction, message: Message::ServiceIdReply(message) });
    }

    pub(super) fn on_service_request(&mut self, path: Path, transaction: u64, request: &ServiceIdRequest) {
        let question = Question { path, transaction, request: *request };
        // A copy of one that waits adds nothing.
        if self.questions.len() < QUESTIONS_MAX && !self.questions.contains(&question) {
            self.questions.push_back(question);
        }
    }

    pub(super) fn on_service_reply(&mut self, back: &Path, reply: &ServiceIdReply) {
        let key = reply.request_id ^ self.mask;
        let asked = self.connections.get(key).is_some_and(|c| c.state == State::ServiceAsked && same_peer(&c.path, back));
        if asked {
            self.tell(key, Event::ServiceAnswer(Box::new(*reply)));
            self.remove(key);
        }
    }
}
