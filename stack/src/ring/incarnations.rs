//! Who follows a connection of the same addresses.

use core::time::Duration;
use std::collections::VecDeque;

use super::demux::FlowKey;
use crate::mutants::{Mutant, Mutation};
use crate::time::Instant;
use crate::wire::tcp::SeqNumber;

/// What is remembered of each kind; of more, the oldest is forgotten.
const REMEMBERED_MAX: usize = 64;
/// A SYN comes again after a second (RFC 6298 s2.1); a second copy of the same one comes sooner, or much later.
const RETRANSMITTED_AFTER: Duration = Duration::from_millis(500);
const RETRANSMITTED_WITHIN: Duration = Duration::from_secs(10);

/// SYNs without a number that would give them a right to the addresses, oldest first.
///
/// A reset does not end a TIME-WAIT (RFC 1337), though it is all that a peer has which crashed, forgot the connection and now opens another
/// one of the same addresses. But such a peer sends its SYN again, and an old duplicate comes alone: a SYN that comes again is a new one. (Two old
/// duplicates of a SYN that was itself sent twice, both delayed beyond the connection's whole life, would pass as well.)
#[derive(Debug, Default)]
pub(super) struct UnansweredSyns {
    heard: VecDeque<(FlowKey, SeqNumber, Instant)>,
    pub(super) mutation: Mutation,
}

impl UnansweredSyns {
    /// Whether this SYN was refused before, and its sender still wants it.
    pub(super) fn is_retransmission(&mut self, now: Instant, key: FlowKey, seq: SeqNumber) -> bool {
        self.heard.retain(|(.., at)| now.since(*at) < RETRANSMITTED_WITHIN);
        let any = self.mutation.is(Mutant::KnockOfAnyNumber);
        let Some(at) = self.heard.iter().position(|(known, its, _)| *known == key && (*its == seq || any)) else {
            remember(&mut self.heard, (key, seq, now));
            return false;
        };
        let is_retransmission = now.since(self.heard[at].2) >= RETRANSMITTED_AFTER;
        if is_retransmission {
            self.heard.remove(at);
        }
        is_retransmission
    }
}

/// Up to which number connections had sent that are no more: until a newcomer of the same addresses has its own number.
///
/// A connection that was closed by its peer first is gone at once, while the peer waits out its TIME-WAIT, which only a SYN beyond that number
/// ends (RFC 9293 s3.10.7.4). The clock of initial numbers (RFC 6528 s3) is there after 4 us for each byte that was sent: a connection that
/// sent more in its time, and is followed sooner, needs to be remembered. (After a millisecond timestamps tell the two apart, RFC 6191 s2.)
#[derive(Debug, Default)]
pub(super) struct EarlierIncarnations {
    known: VecDeque<(FlowKey, SeqNumber)>,
    pub(super) mutation: Mutation,
}

impl EarlierIncarnations {
    pub(super) fn add(&mut self, key: FlowKey, sent_up_to: SeqNumber) {
        if !self.mutation.is(Mutant::PredecessorOldestCounts) {
            self.take(key);
        }
        remember(&mut self.known, (key, sent_up_to));
    }

    pub(super) fn take(&mut self, key: FlowKey) -> Option<SeqNumber> {
        let at = self.known.iter().position(|(known, _)| *known == key)?;
        self.known.remove(at).map(|(_, sent_up_to)| sent_up_to)
    }
}

fn remember<T>(queue: &mut VecDeque<T>, item: T) {
    if queue.len() >= REMEMBERED_MAX {
        queue.pop_front();
    }
    queue.push_back(item);
}
