//! A shared receive queue, as the card sees it: a linked list of entries, from which many queue pairs take.

use super::receive::{Posted, list, scatter};
use super::{Action, QueueBuffer};
use crate::connectx::constants as c;
use crate::connectx::cqe::{Cqe, Failed, Received};
use crate::connectx::keys::KeyTable;
use crate::connectx::memory::{Memory, word};
use crate::connectx::violation::{Verdict, Violation};

/// Bytes of the link with which an entry begins.
const LINK: u64 = 16;

/// A shared receive queue that was made.
#[derive(Clone, Copy, Debug)]
pub struct SharedConfig {
    /// Its number.
    pub srqn: u32,
    /// Its entries: a link of 16 bytes, then a list.
    pub ring: QueueBuffer,
    /// Address of its doorbell record, one word.
    pub record: u64,
    /// Its protection domain.
    pub pd: u32,
}

/// A shared receive queue.
#[derive(Clone, Debug)]
pub struct SharedQueue {
    config: SharedConfig,
    /// Index of the next entry. Invariant: the ring has it. The first is 0 (spec/uverbs.md s6: order follows the links).
    head: u16,
    /// Entries taken, a running counter.
    consumer: u16,
    failed: bool,
}

impl SharedQueue {
    /// A queue that has taken nothing.
    pub fn new(config: SharedConfig) -> Self {
        Self { config, head: 0, consumer: 0, failed: false }
    }

    /// Puts a packet for the queue pair `qpn` into the next entry, and completes it to `cqn`.
    pub fn receive<M: Memory + ?Sized>(
        &mut self,
        memory: &mut M,
        keys: &KeyTable,
        (qpn, cqn): (u32, u32),
        packet: &[u8],
        facts: Received,
    ) -> Vec<Action> {
        if self.failed {
            return vec![Action::Lost { qpn }];
        }
        match self.take(memory, keys, packet) {
            Ok(Some(wqe_counter)) => {
                let byte_count = packet.len() as u32;
                let received = Received { srqn_uidx: self.config.srqn, wqe_counter, byte_count, ..facts };
                vec![Action::Complete { cqn, cqe: Cqe::Received(received) }]
            }
            Ok(None) => vec![Action::NoReceive { qpn }],
            Err(violation) => self.fail(violation, qpn, cqn),
        }
    }

    /// Takes the next posted entry, for a transport that puts a message into it itself: its index and its list.
    ///
    /// # Errors
    /// The rule that is broken; the queue has failed, and nothing more is taken.
    pub fn fetch<M: Memory + ?Sized>(&mut self, memory: &M) -> Result<Option<Posted>, Violation> {
        if self.failed {
            return Ok(None);
        }
        let fetched = self.next(memory).and_then(|next| match next {
            Some((entry, next)) => {
                let room = self.config.ring.stride().saturating_sub(LINK);
                Ok(Some((list(memory, entry.wrapping_add(LINK), room)?, next)))
            }
            None => Ok(None),
        });
        self.failed = fetched.is_err();
        Ok(fetched?.map(|(list, next)| Posted { index: self.advance(next), list }))
    }

    /// Goes on to the entry `next`; the index of the one that was taken.
    fn advance(&mut self, next: u16) -> u16 {
        let taken = self.head;
        (self.head, self.consumer) = (next, self.consumer.wrapping_add(1));
        taken
    }

    /// Where the next posted entry is, and the index of the one behind it.
    fn next<M: Memory + ?Sized>(&self, memory: &M) -> Result<Option<(u64, u16)>, Violation> {
        let SharedConfig { ring, record, .. } = self.config;
        let producer = word(memory, record, c::RCV_DBR).map_err(Violation::QueueUnmapped)?;
        let posted = (producer as u16).wrapping_sub(self.consumer);
        if posted == 0 {
            return Ok(None);
        }
        if u32::from(posted) > ring.entries() {
            return Err(Violation::Overrun { posted, capacity: ring.entries() });
        }
        let entry = ring.entry(self.head.into());
        let mut link = [0; 16];
        memory.read(entry, &mut link).map_err(Violation::QueueUnmapped)?;
        let next = u16::from_be_bytes([link[2], link[3]]);
        // The last posted entry's link leads to one that is posted later, and counts as well.
        if u32::from(next) >= ring.entries() {
            return Err(Violation::BadLink { index: next, entries: ring.entries() });
        }
        Ok(Some((entry, next)))
    }

    /// The index of the entry that was taken, if there was one.
    fn take<M: Memory + ?Sized>(&mut self, memory: &mut M, keys: &KeyTable, packet: &[u8]) -> Result<Option<u16>, Violation> {
        let SharedConfig { ring, pd, .. } = self.config;
        let Some((entry, next)) = self.next(memory)? else { return Ok(None) };
        scatter(memory, keys, pd, entry.wrapping_add(LINK), ring.stride().saturating_sub(LINK), packet)?;
        Ok(Some(self.advance(next)))
    }

    /// Fails as a whole, whichever rule was broken (`guessed`: the card may fail the queue pair alone for its packet's sake).
    fn fail(&mut self, violation: Violation, qpn: u32, cqn: u32) -> Vec<Action> {
        let number = self.config.srqn;
        let mut actions = vec![Action::Broken { number, violation }];
        if let Verdict::Completion { syndrome, vendor } = violation.verdict() {
            let (srqn_uidx, wqe_counter) = (number, self.head);
            let cqe = Cqe::Failed(Failed { receive: true, srqn_uidx, vendor, syndrome, opcode: 0, qpn, wqe_counter });
            actions.push(Action::Complete { cqn, cqe });
        }
        self.failed = true;
        actions.push(Action::QueueFailed { number });
        actions
    }
}
