//! Doorbells: what was written to register pages is told to the card; and what a program posted and did not ring for is said.
//!
//! A card takes each store, and so does this one in trap mode (`crate::trap`). Else it looks at the pages every now and then (`registers`), and finds the last store of each word alone. One queue's doorbells lose
//! nothing by that, since a doorbell is for all that the record says. But of several queues that share a register, one may have overwritten another's: so all
//! that use the same register, as far as that is known, are believed to have rung, and all completion queues of a page to have armed.

use core::time::Duration;
use std::collections::BTreeMap;

use ringway_sim::connectx::Violation;
use ringway_sim::connectx::constants as c;
use ringway_sim::connectx::queues::RegisterEvent;
use ringway_sim::connectx::wqe::Control;
use ringway_stack::time::Instant;

use super::registers::{Store, register_of};
use super::{Engine, broken};
use crate::{process, trap};

/// In place of a request's highest bit, which none has: it was said that it was forgotten.
const SAID: u32 = 1 << 31;
/// How often it is looked at what was not rung for; what is so twice was forgotten.
const LOOK: Duration = Duration::from_millis(50);

/// What is known of queues' doorbells.
#[derive(Debug, Default)]
pub(crate) struct Rings {
    /// By numbers of queue pairs.
    senders: BTreeMap<u32, Sender>,
    /// Arm requests that no register was written for, when it was looked at last.
    unarmed: BTreeMap<u32, u32>,
    /// When it is looked at next; at once, at first.
    next: Option<Instant>,
}

/// A queue pair, as far as its doorbells go.
#[derive(Clone, Copy, Debug)]
struct Sender {
    /// The number of its register page; zero: the program gave it none.
    page: u32,
    /// Its register there, once it has rung.
    register: Option<usize>,
    /// Blocks that were posted and not rung for, when it was looked at last, and whether that was said.
    unrung: u16,
    is_said: bool,
}

impl Rings {
    /// A queue pair was made, with that register page.
    pub(crate) fn add(&mut self, qpn: u32, page: u32) {
        self.senders.insert(qpn, Sender { page, register: None, unrung: 0, is_said: false });
    }

    /// It is no more.
    pub(crate) fn remove(&mut self, qpn: u32) {
        self.senders.remove(&qpn);
    }

    /// A completion queue is no more.
    pub(crate) fn remove_completion(&mut self, cqn: u32) {
        self.unarmed.remove(&cqn);
    }

    /// A queue pair has rung at a register. Others that may have done so as well, and whose doorbell this one's may have overwritten.
    fn rang(&mut self, qpn: u32, page: u32, register: usize) -> Vec<u32> {
        if let Some(own) = self.senders.get_mut(&qpn) {
            own.register = Some(register);
        }
        let may_share = |of: &Sender| of.page == page && of.register.is_none_or(|own| own == register);
        self.senders.iter().filter(|(other, of)| **other != qpn && may_share(of)).map(|(other, _)| *other).collect()
    }
}

impl Engine {
    /// Takes doorbells. Whether there were any.
    pub(super) fn doorbells(&mut self) -> bool {
        let stores = self.registers.take();
        for store in &stores {
            match RegisterEvent::of(store.offset, &store.bytes) {
                Ok(RegisterEvent::Send { qpn, index, .. }) => self.rang(store, qpn, index),
                Ok(RegisterEvent::Arm { cqn, request }) => self.armed(cqn, request),
                Err(violation) => broken(0, violation),
            }
        }
        for qpn in self.registers.settle(self.origin.elapsed()) {
            broken(qpn, Violation::BlueFlameDiffers);
        }
        !stores.is_empty()
    }

    fn rang(&mut self, store: &Store, qpn: u32, index: u16) {
        let actions = self.card.ring(&self.memory, qpn, Some(index));
        self.act(actions);
        let (entry, at) = (self.entry(qpn, index), self.origin.elapsed());
        self.registers.note(store, qpn, entry, at);
        if trap::is_on() {
            return;
        }
        for other in self.rings.rang(qpn, store.page, register_of(store.offset)) {
            let actions = self.card.ring(&self.memory, other, None);
            self.act(actions);
        }
    }

    /// The blocks of the entry at that index, as far as BlueFlame takes them.
    fn entry(&self, qpn: u32, index: u16) -> Vec<u8> {
        let Some(queue) = self.card.send_queue(qpn) else { return Vec::new() };
        let mut first = [0; c::DS_UNIT];
        if queue.blocks(&self.memory, index, &mut first).is_err() {
            return Vec::new();
        }
        let blocks = usize::from(Control::decode(&first).blocks()).min(4);
        let mut bytes = vec![0; blocks * c::SEND_BLOCK];
        if queue.blocks(&self.memory, index, &mut bytes).is_err() { Vec::new() } else { bytes }
    }

    fn armed(&mut self, cqn: u32, request: u32) {
        let actions = self.card.arm(&self.memory, cqn, request);
        // (The record may have a newer request already, whose register is about to be written.)
        let is_race = |violation: &Violation| matches!(violation, Violation::ArmDiffers { .. });
        let actions = actions.into_iter().filter(|action| !matches!(action, super::Action::Broken { violation, .. } if is_race(violation)));
        let actions = actions.collect();
        self.act(actions);
        if trap::is_on() {
            return;
        }
        let of = self.cqs.get(&cqn).map(|cq| cq.told.context);
        let others = self.cqs.iter().filter(|(other, cq)| **other != cqn && cq.channel != 0 && Some(cq.told.context) == of);
        for other in others.map(|(other, _)| *other).collect::<Vec<_>>() {
            let actions = self.card.poll_arm(&self.memory, other);
            self.act(actions);
        }
    }

    /// Says what was posted, or armed, without its register.
    pub(super) fn forgotten(&mut self) {
        let now = self.now();
        if self.rings.next.is_some_and(|next| now < next) || process::is_ringing() {
            return;
        }
        self.rings.next = Some(now + LOOK);
        for (qpn, sender) in &mut self.rings.senders {
            let unrung = self.card.send_queue(*qpn).and_then(|queue| queue.unrung(&self.memory).ok()).unwrap_or(0);
            let is_old = unrung != 0 && unrung == sender.unrung;
            if is_old && !sender.is_said {
                broken(*qpn, Violation::RegisterForgotten { posted: unrung });
            }
            (sender.unrung, sender.is_said) = (unrung, is_old);
        }
        for cqn in self.cqs.keys() {
            let before = self.rings.unarmed.remove(cqn);
            let Some(request) = self.card.unrung_arm(&self.memory, *cqn) else { continue };
            let is_old = before.is_some_and(|before| before & !SAID == request);
            if before == Some(request) {
                broken(*cqn, Violation::ArmForgotten { request });
            }
            self.rings.unarmed.insert(*cqn, if is_old { request | SAID } else { request });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_shares_a_register_may_have_rung_too() {
        let mut rings = Rings::default();
        for (qpn, page) in [(1, 7), (2, 7), (3, 7), (4, 8)] {
            rings.add(qpn, page);
        }
        assert_eq!(rings.rang(1, 7, 4), [2, 3], "where they ring is not known yet");
        assert_eq!(rings.rang(2, 7, 5), [3]);
        assert_eq!(rings.rang(3, 7, 4), [1]);
        rings.remove(1);
        assert_eq!(rings.rang(3, 7, 4), <[u32; 0]>::default());
    }
}
