//! Frames that wait for room at the interface, in their order.

use core::time::Duration;
use std::collections::VecDeque;

use ringway_stack::time::Instant;

/// Frames that wait at most: more are lost.
const WAITING_MAX: usize = 4096;
/// As many are enough: no more are to be taken from the card's queues until some have left.
const FULL_AT: usize = 128;

/// Who sends waits for so long: of an interface that takes nothing any more, what is sent later is lost, as on a link that is down.
const PATIENCE: Duration = Duration::from_millis(100);

#[derive(Debug, Default)]
pub(super) struct Waiting {
    frames: VecDeque<Vec<u8>>,
    /// Since when none has left.
    stuck: Option<Instant>,
}

impl Waiting {
    /// Sends a frame behind those that wait, which is one of them if `send` says that there is no room for it. Whether there was a place for it.
    pub(super) fn put(&mut self, frame: &[u8], send: impl FnOnce(&[u8]) -> bool) -> bool {
        if self.frames.is_empty() && send(frame) {
            return true;
        }
        let has_place = self.frames.len() < WAITING_MAX;
        if has_place {
            self.frames.push_back(frame.to_vec());
        }
        has_place
    }

    /// Sends those that wait until `send` says that there is no room.
    pub(super) fn flush(&mut self, now: Instant, mut send: impl FnMut(&[u8]) -> bool) {
        let before = self.frames.len();
        while self.frames.front().is_some_and(|frame| send(frame)) {
            self.frames.pop_front();
        }
        if self.frames.is_empty() || self.frames.len() < before {
            self.stuck = None;
        } else {
            self.stuck.get_or_insert(now);
        }
    }

    /// The interface is down: none of them leaves any more.
    pub(super) fn clear(&mut self) {
        (self.frames, self.stuck) = (VecDeque::new(), None);
    }

    /// Whether some are to leave soon.
    pub(super) fn is_moving(&self, now: Instant) -> bool {
        !self.frames.is_empty() && self.stuck.is_none_or(|since| now.since(since) < PATIENCE)
    }

    /// Whether who sends is to wait.
    pub(super) fn is_full(&self, now: Instant) -> bool {
        self.frames.len() >= FULL_AT && self.is_moving(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_leave_in_their_order_and_who_sends_waits_before_any_is_lost() {
        let (mut waiting, mut sent, mut room, now) = (Waiting::default(), Vec::new(), 2, Instant::ZERO);
        let mut send = |room: &mut usize, frame: &[u8]| {
            let has_room = *room > 0;
            if has_room {
                *room -= 1;
                sent.push(frame[0]);
            }
            has_room
        };
        for number in 0..5 {
            assert!(waiting.put(&[number], |frame| send(&mut room, frame)));
        }
        room = 1;
        // (None goes past those that wait.)
        assert!(waiting.put(&[5], |frame| send(&mut room, frame)) && !waiting.is_full(now));
        waiting.flush(now, |frame| send(&mut room, frame));
        assert!(!waiting.frames.is_empty());
        room = 9;
        waiting.flush(now, |frame| send(&mut room, frame));
        assert!(waiting.frames.is_empty());
        assert_eq!(sent, [0, 1, 2, 3, 4, 5]);
        let places = (0..WAITING_MAX + 3).filter(|at| {
            assert_eq!(waiting.is_full(now), *at >= FULL_AT);
            waiting.put(&[7], |_| false)
        });
        assert_eq!(places.count(), WAITING_MAX);
    }

    #[test]
    fn who_sends_does_not_wait_for_ever() {
        let (mut waiting, now) = (Waiting::default(), Instant::ZERO);
        (0..FULL_AT).for_each(|_| assert!(waiting.put(&[7], |_| false)));
        waiting.flush(now, |_| false);
        assert!(waiting.is_full(now) && waiting.is_moving(now));
        let later = now + PATIENCE;
        waiting.flush(later, |_| false);
        assert!(!waiting.is_full(later) && !waiting.is_moving(later), "nothing leaves");
        let mut room = 1;
        waiting.flush(later, |_| core::mem::replace(&mut room, 0) > 0);
        assert!(waiting.is_moving(later) && waiting.put(&[7], |_| false) && waiting.is_full(later), "one has left");
        waiting.clear();
        assert!(!waiting.is_moving(later));
    }
}
