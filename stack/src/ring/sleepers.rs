//! Who sleeps on the ring, and does not wait for acknowledgments ([`Wake::Solicited`]).

use super::Ring;
use super::slots::Flow;
use crate::device::{Queues, Wake};
use crate::mutants::Mutant;
use crate::time::Instant;

/// Batches of frames that are looked at before timers that are due: more than a channel of shared memory holds.
const BATCHES_BEFORE_TIMERS: u32 = 64;

impl<Q: Queues> Ring<Q> {
    /// What is to end the sleep of whoever arms the device now. It holds until a call is made: after each, whoever armed the device for less than
    /// every frame asks again, if [`Ring::may_await_acknowledgment`] says so.
    pub fn wake(&mut self) -> Wake {
        while let Some(&index) = self.awaiting.last() {
            let slot = self.slots.slot(index);
            let awaits = match &slot.flow {
                Some(Flow::Stream(stream)) => stream.awaits_acknowledgment(),
                Some(Flow::Resting(resting)) => resting.awaits_acknowledgment(),
                _ => false,
            };
            if awaits {
                return Wake::Any;
            }
            slot.awaiting = false;
            self.awaiting.pop();
            if self.config.is(Mutant::WakeAsksOne) {
                break;
            }
        }
        Wake::Solicited
    }

    /// Whether [`Ring::wake`] may say that every frame is waited for.
    #[inline]
    pub fn may_await_acknowledgment(&self) -> bool {
        !self.awaiting.is_empty()
    }

    /// Timers are due, and more has come than one batch: frames are looked at before timers, which the acknowledgments among them may stop. (A process that
    /// slept through acknowledgments has one for each of its connections.)
    #[cold]
    #[inline(never)]
    pub(super) fn receive_rest(&mut self, now: Instant) -> usize {
        let mut frames = 0;
        for _ in 0..BATCHES_BEFORE_TIMERS {
            match self.receive(now) {
                0 => break,
                more => frames += more,
            }
        }
        frames
    }
}
