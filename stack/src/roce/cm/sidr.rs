//! Services of datagrams: which UD queue pair serves one (IBTA spec, volume 1, s12.11).
//!
//! Whoever asks does so again until it is answered. The program that is asked hears of it once: a question that comes again before the answer is a copy, and one
//! that comes again after it gets the same answer, which may have been lost.

use core::time::Duration;

use rand_core::Rng;

use super::receive::same_peer;
use super::{ANSWERS_MAX, Cm, CmError, ConnectionId, Event, State};
use crate::roce::Flaw;
use crate::roce::mad::{Mad, Message, ServiceIdReply, ServiceIdRequest, SidrStatus};
use crate::roce::packet::PKEY_DEFAULT;
use crate::roce::packet::datagram::Path;
use crate::time::Instant;

impl Cm {
    /// Asks for a service's queue pair. The answer, or [`Event::Unreachable`], comes with the number that this gives.
    ///
    /// # Errors
    /// [`CmError::Full`].
    pub fn ask_service(
        &mut self,
        now: Instant,
        path: Path,
        service_id: u64,
        private_data: [u8; ServiceIdRequest::PRIVATE_LEN],
    ) -> Result<ConnectionId, CmError> {
        let transaction = self.random.next_u64();
        let key = self.insert(State::ServiceAsked, path, transaction, Duration::ZERO)?;
        let request = ServiceIdRequest { request_id: self.wire_id(key), pkey: PKEY_DEFAULT, service_id, private_data };
        self.send_for(now, key, Message::ServiceIdRequest(request), true);
        Ok(ConnectionId(key))
    }

    /// Answers a question ([`Event::Question`]), which is gone with that for the program. Its number and its service go into the reply.
    ///
    /// # Errors
    /// [`CmError::Missing`]; [`CmError::State`]: it is no question that waits.
    pub fn answer_service(&mut self, now: Instant, id: ConnectionId, reply: &ServiceIdReply) -> Result<(), CmError> {
        let connection = self.connection(id)?;
        let (State::QuestionReceived, Some(request_id)) = (connection.state, connection.question) else { return Err(CmError::State) };
        let service_id = connection.service.unwrap_or_default();
        self.send_for(now, id.0, Message::ServiceIdReply(ServiceIdReply { request_id, service_id, ..*reply }), false);
        if let Some(connection) = self.connections.get_mut(id.0) {
            connection.orphan = true;
        }
        self.enter_timewait(now, id.0);
        // Nobody makes us remember more than so many answers: of the oldest, the question would come once more.
        self.answered.push_back(id.0);
        while self.answered.len() > ANSWERS_MAX {
            let oldest = self
                .answered
                .pop_front()
                .filter(|key| self.connections.get(*key).is_some_and(|c| c.question.is_some() && c.state == State::Timewait));
            oldest.into_iter().for_each(|key| self.remove(key));
        }
        Ok(())
    }

    pub(super) fn on_service_request(&mut self, back: Path, transaction: u64, request: &ServiceIdRequest) {
        let name = (back.addresses.dst(), request.request_id);
        if let Some(&key) = self.by_question.get(&name).filter(|_| !self.config.has(Flaw::AsksProgramsTwice)) {
            let Some(known) = self.connections.get(key).filter(|c| c.transaction == transaction) else {
                // The peer began anew, and its number is for something else now. What is yet to be answered is left to be.
                if self.state(key) == Some(State::Timewait) {
                    self.remove(key);
                    self.on_new_question(back, transaction, request);
                }
                return;
            };
            if let Some(mad) = known.last_sent.filter(|_| !self.config.has(Flaw::AnswersOnce)) {
                self.send(back, &mad);
            }
            return;
        }
        self.on_new_question(back, transaction, request);
    }

    fn on_new_question(&mut self, back: Path, transaction: u64, request: &ServiceIdRequest) {
        let status = match self.listeners.get(&request.service_id) {
            None => SidrStatus::Unsupported,
            Some(listener) if listener.waiting >= listener.backlog => SidrStatus::NoQp,
            Some(_) => {
                // An answer is remembered for as long as the peer may ask: no longer than we would ourselves.
                let asks_for = super::time(self.config.response_timeout) * (u32::from(self.config.retries) + 1);
                match self.insert(State::QuestionReceived, back, transaction, asks_for) {
                    Ok(key) => return self.take_question(key, back, request),
                    Err(_) => SidrStatus::NoQp,
                }
            }
        };
        let (request_id, service_id) = (request.request_id, request.service_id);
        let message = Message::ServiceIdReply(ServiceIdReply { request_id, service_id, ..ServiceIdReply::refusal(status) });
        self.send(back, &Mad { transaction, message });
    }

    fn take_question(&mut self, key: u32, back: Path, request: &ServiceIdRequest) {
        self.by_question.insert((back.addresses.dst(), request.request_id), key);
        if let Some(listener) = self.listeners.get_mut(&request.service_id) {
            listener.waiting += 1;
        }
        if let Some(connection) = self.connections.get_mut(key) {
            (connection.service, connection.question) = (Some(request.service_id), Some(request.request_id));
        }
        self.tell(key, Event::Question { path: back, request: Box::new(*request) });
    }

    pub(super) fn on_service_reply(&mut self, back: &Path, transaction: u64, reply: &ServiceIdReply) {
        let key = reply.request_id ^ self.mask;
        let is_answer = |c: &super::Connection| c.transaction == transaction && same_peer(&c.path, back);
        let Some(connection) = self.connections.get(key).filter(|c| is_answer(c)) else { return };
        if connection.state == State::ServiceAsked {
            self.tell(key, Event::ServiceAnswer(Box::new(*reply)));
            self.close(key);
        }
    }
}
