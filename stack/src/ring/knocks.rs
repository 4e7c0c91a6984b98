//! Who asks for the addresses of a connection in TIME-WAIT without a sequence number that would give them a right to.
//!
//! A reset does not end that wait (RFC 1337), though it is all that a peer has which crashed, forgot the connection and now opens another one
//! of the same addresses. But such a peer sends its SYN again, and an old duplicate does not: a SYN that insists is a new one.

use core::time::Duration;
use std::collections::VecDeque;

use super::demux::FlowKey;
use crate::time::Instant;
use crate::wire::tcp::SeqNumber;

/// SYNs remembered; more than that, and the oldest must insist once more.
const REMEMBERED_MAX: usize = 64;
/// A SYN comes again after a second (RFC 6298 s2.1), a retransmission that was on its way already does not count.
const INSISTS_AFTER: Duration = Duration::from_millis(500);

/// The SYNs that were refused so, oldest first.
#[derive(Debug, Default)]
pub(super) struct Knocks(VecDeque<(FlowKey, SeqNumber, Instant)>);

impl Knocks {
    /// Whether this SYN was refused before, and its sender still wants it.
    pub(super) fn insists(&mut self, now: Instant, key: FlowKey, seq: SeqNumber) -> bool {
        let Some(at) = self.0.iter().position(|(known, its, _)| (*known, *its) == (key, seq)) else {
            if self.0.len() >= REMEMBERED_MAX {
                self.0.pop_front();
            }
            self.0.push_back((key, seq, now));
            return false;
        };
        let insists = now.since(self.0[at].2) >= INSISTS_AFTER;
        if insists {
            self.0.remove(at);
        }
        insists
    }
}
