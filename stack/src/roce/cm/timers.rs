//! Repetitions, and the wait after the end.

use std::net::IpAddr;

use super::{Cm, Connection, ConnectionId, Event, State};
use crate::roce::mad::{Reject, RejectReason, Responded};
use crate::time::Instant;

impl Cm {
    /// When [`Cm::on_timer`] has something to do.
    pub fn deadline(&self) -> Option<Instant> {
        self.timers.first().map(|(at, _)| *at)
    }

    /// Does what is due.
    pub fn on_timer(&mut self, now: Instant) {
        while let Some((_, key)) = self.timers.first().copied().filter(|(at, _)| *at <= now) {
            self.set_deadline(key, None);
            self.on_deadline(now, key);
        }
    }

    fn on_deadline(&mut self, now: Instant, key: u32) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        if connection.state == State::Timewait {
            self.tell(key, Event::TimewaitExit);
            self.remove(key);
            return;
        }
        let Some(mad) = connection.unanswered else { return };
        if let Some(left) = connection.tries_left.checked_sub(1) {
            connection.tries_left = left;
            let (path, deadline) = (connection.path, now + connection.patience);
            self.set_deadline(key, Some(deadline));
            self.send(path, &mad);
            return;
        }
        self.give_up(now, key);
    }

    /// The adapter at this address is no more, and answers nothing: what there is with it ends, and nothing need be told or repeated.
    pub fn on_peer_gone(&mut self, peer: IpAddr) {
        let is_with = |key: &u32| self.connections.get(*key).is_some_and(|c| c.path.addresses.dst() == peer);
        let keys: Vec<u32> = self.connections.keys().filter(is_with).collect();
        for key in keys {
            match self.state(key) {
                Some(State::Established | State::ReplySent | State::ReplyReceived | State::DisconnectSent) => {
                    self.tell(key, Event::Disconnected);
                }
                Some(State::RequestSent | State::RequestReceived | State::ServiceAsked | State::QuestionReceived) => {
                    self.tell(key, Event::Unreachable);
                }
                Some(State::Timewait | State::Closed) | None => {}
            }
            self.close(key);
        }
    }

    /// The process that had these queue pairs has ended, as its machine knows, which lives on and parts its connections: what there is with them ends as by a message of that machine's.
    pub fn on_queue_pairs_gone(&mut self, now: Instant, is_gone: &dyn Fn(IpAddr, u32) -> bool) {
        let is_with =
            |key: &u32| self.connections.get(*key).is_some_and(|c| c.remote_qpn != 0 && is_gone(c.path.addresses.dst(), c.remote_qpn));
        let keys: Vec<u32> = self.connections.keys().filter(is_with).collect();
        for key in keys {
            match self.state(key) {
                Some(State::Established | State::ReplySent | State::DisconnectSent) => {
                    self.tell(key, Event::Disconnected);
                    self.enter_timewait(now, key);
                }
                Some(State::RequestReceived | State::ReplyReceived) => {
                    let (info, private_data) = ([0; Reject::INFO_LEN], [0; Reject::PRIVATE_LEN]);
                    let reason = RejectReason::TIMEOUT;
                    let said = Reject { local_id: 0, remote_id: 0, responded: Responded::Other, reason, info_len: 0, info, private_data };
                    self.tell(key, Event::Rejected(Box::new(said)));
                    self.close(key);
                }
                _ => {}
            }
        }
    }

    /// The peers' queue pairs of connections, where they are known.
    pub fn remote_queue_pairs(&self) -> impl Iterator<Item = (IpAddr, u32)> {
        let connections = self.connections.keys().filter_map(|key| self.connections.get(key).map(|c| &**c));
        let stands = |c: &&Connection| c.remote_qpn != 0 && !matches!(c.state, State::Timewait | State::Closed);
        connections.filter(stands).map(|c| (c.path.addresses.dst(), c.remote_qpn))
    }

    /// Nobody is reached any more: all connections are over, or come to nothing, and nobody is told. Those that a program still has.
    pub fn on_down(&mut self) -> Vec<ConnectionId> {
        let keys: Vec<u32> = self.connections.keys().collect();
        let mut ended = Vec::new();
        for key in keys {
            let is_over = matches!(self.state(key), Some(State::Timewait | State::Closed) | None);
            if !is_over && self.connections.get(key).is_some_and(|c| !c.orphan) {
                ended.push(ConnectionId(key));
            }
            self.close(key);
        }
        ended
    }

    /// There was no answer, however often it was asked for (s12.9.8.5).
    fn give_up(&mut self, now: Instant, key: u32) {
        match self.state(key) {
            Some(state @ (State::RequestSent | State::ReplySent)) => {
                // The peer may have the connection, and not us: it is told.
                let responded = if state == State::ReplySent { Responded::Reply } else { Responded::Other };
                let rejection = self.rejection(key, responded, RejectReason::TIMEOUT, [0; Reject::PRIVATE_LEN]);
                self.tell(key, Event::Unreachable);
                self.send_for(now, key, rejection, false);
                self.close(key);
            }
            Some(State::DisconnectSent) => {
                self.tell(key, Event::Disconnected);
                self.enter_timewait(now, key);
            }
            Some(State::ServiceAsked) => {
                self.tell(key, Event::Unreachable);
                self.close(key);
            }
            _ => {}
        }
    }
}
