//! Register pages, as the driver writes them and the card sees it.
//!
//! The card looks after each of the driver's calls, which writes one register of each queue at most: so nothing is overwritten before it was seen.

use ringway_sim::connectx::Violation;
use ringway_sim::connectx::constants as c;
use ringway_sim::connectx::queues::RegisterEvent;
use ringway_sim::connectx::wqe::Control;
use ringway_stack::Instant;

use super::Card;

const PAGE: usize = 4096;
/// Bytes of half of a register: as many as BlueFlame takes.
const HALF: usize = 256;
const WORDS: usize = HALF / 8;

/// A page.
pub(super) struct Page {
    /// Invariant: a page of the card's memory, which only the driver and this module use.
    pub(super) base: *mut u64,
}

/// A doorbell of a send queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bell {
    pub(super) qpn: u32,
    index: u16,
}

impl Page {
    /// What was written from an offset on, in so many words, since this was asked last; `None`: nothing was. (No doorbell is zero: it names a queue, or an opcode.)
    fn take(&mut self, offset: usize, words: usize) -> Option<Vec<u8>> {
        let at = self.base.wrapping_add(offset / 8);
        // SAFETY: within the page, aligned; the driver is not at work.
        if unsafe { at.read() } == 0 {
            return None;
        }
        // SAFETY: as above.
        let taken = (0..words).map(|word| unsafe { at.add(word).replace(0) });
        Some(taken.flat_map(u64::to_ne_bytes).collect())
    }
}

impl Card {
    /// Takes what was written to the registers since this was done last.
    pub(super) fn look(&mut self) {
        let mut written = Vec::new();
        for page in self.pages.values_mut() {
            written.extend(page.take(c::CQ_DOORBELL, 1).map(|bytes| (c::CQ_DOORBELL, bytes)));
            let halves = (c::BF_OFFSET..PAGE).step_by(HALF);
            written.extend(halves.filter_map(|offset| page.take(offset, WORDS).map(|bytes| (offset, bytes))));
        }
        for (offset, bytes) in written {
            match RegisterEvent::of(offset, &bytes[..8]) {
                Ok(RegisterEvent::Arm { cqn, request }) => {
                    let actions = self.queues.arm(&self.memory, cqn, request);
                    self.act(actions);
                }
                Ok(RegisterEvent::Send { qpn, index, .. }) => {
                    self.check_whole(qpn, index, &bytes);
                    self.hear(Bell { qpn, index });
                }
                Err(violation) => self.laws.breach("rule", violation),
            }
        }
        self.ring_late();
        self.check_forgotten();
    }

    /// What was written behind a doorbell is the entry that it rings for.
    fn check_whole(&mut self, qpn: u32, index: u16, bytes: &[u8]) {
        if bytes[8..].iter().all(|byte| *byte == 0) {
            return;
        }
        let Some(queue) = self.queues.send_queue(qpn) else { return };
        let mut entry = vec![0; c::DS_UNIT];
        let mut is_read = queue.blocks(&self.memory, index, &mut entry).is_ok();
        let ds = usize::from(Control::decode(entry.first_chunk().expect("a unit")).ds);
        entry.resize((ds * c::DS_UNIT).min(HALF), 0);
        is_read &= queue.blocks(&self.memory, index, &mut entry).is_ok();
        let blocks = entry.len().div_ceil(c::SEND_BLOCK) * c::SEND_BLOCK;
        if is_read && (bytes[..entry.len()] != entry[..] || bytes[blocks..].iter().any(|byte| *byte != 0)) {
            self.broken(qpn, Violation::BlueFlameDiffers);
        }
    }

    /// A doorbell comes, or is late, or is lost.
    fn hear(&mut self, bell: Bell) {
        let (now, queue) = (self.now, bell.qpn);
        if self.trouble.loses_bell(now) {
            self.trouble.unheard.insert(queue);
        } else if let Some(after) = self.trouble.delays_bell(now) {
            self.trouble.unheard.insert(queue);
            self.late.push((now + after, bell));
        } else {
            self.ring(bell);
        }
    }

    fn ring(&mut self, Bell { qpn, index }: Bell) {
        self.trouble.unheard.remove(&qpn);
        let actions = self.queues.ring(&self.memory, qpn, Some(index));
        self.act(actions);
    }

    fn ring_late(&mut self) {
        let now: Instant = self.now;
        let due: Vec<Bell> = self.late.iter().filter(|(at, _)| *at <= now).map(|(_, bell)| *bell).collect();
        self.late.retain(|(at, _)| *at > now);
        due.into_iter().for_each(|bell| self.ring(bell));
    }

    /// A queue has ended, and rings no more.
    pub(super) fn forget_bells(&mut self, qpn: u32) {
        self.late.retain(|(_, bell)| bell.qpn != qpn);
        self.trouble.unheard.remove(&qpn);
    }

    /// What a doorbell record says, a register was written for.
    fn check_forgotten(&mut self) {
        for (qpn, sender) in &self.senders {
            let unrung = self.queues.send_queue(*qpn).and_then(|queue| queue.unrung(&self.memory).ok()).unwrap_or(0);
            if unrung != 0 && sender.state == super::state::RTS && !self.trouble.unheard.contains(qpn) {
                self.laws.breach("rule", format_args!("queue {qpn:#x}: {}", Violation::RegisterForgotten { posted: unrung }));
            }
        }
        for cqn in self.completions.keys() {
            if let Some(request) = self.queues.unrung_arm(&self.memory, *cqn) {
                self.laws.breach("rule", format_args!("queue {cqn:#x}: {}", Violation::ArmForgotten { request }));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use ringway_stack::Instant;

    use super::super::super::plan::Plan;
    use super::super::{Card, Fault};
    use super::Bell;

    /// Time stood still in a world whose removed card had something to do at a time that had passed, so that no driver heard of the removal (seeds 24711, 61572, 76730 and 80387 of
    /// the worlds that were drawn then).
    #[test]
    fn a_card_that_is_removed_has_nothing_to_do_when_a_doorbell_would_have_come() {
        let mut card = Card::new(1_000_000, Plan::of_seed(0).trouble(0));
        card.late.push((Instant::from_nanos(5), Bell { qpn: 1, index: 1 }));
        assert_eq!(card.next_at(), Some(Instant::from_nanos(5)));
        card.strike(Fault::Gone);
        card.set_now(Instant::from_nanos(5));
        card.work(usize::MAX);
        assert!(card.next_at().is_none() && !card.has_work());
    }
}
