//! Frames that wait for room at the interface, in their order.

use std::collections::VecDeque;

/// Frames that wait at most: more are lost.
const WAITING_MAX: usize = 4096;
/// As many are enough: no more are to be taken from the card's queues until some have left.
const FULL_AT: usize = 128;

#[derive(Debug, Default)]
pub(super) struct Line(VecDeque<Vec<u8>>);

impl Line {
    /// Sends a frame behind those that wait, which is one of them if `send` says that there is no room for it. Whether there was a place for it.
    pub(super) fn put(&mut self, frame: &[u8], send: impl FnOnce(&[u8]) -> bool) -> bool {
        if self.0.is_empty() && send(frame) {
            return true;
        }
        let has_place = self.0.len() < WAITING_MAX;
        if has_place {
            self.0.push_back(frame.to_vec());
        }
        has_place
    }

    /// Sends those that wait until `send` says that there is no room.
    pub(super) fn flush(&mut self, mut send: impl FnMut(&[u8]) -> bool) {
        while self.0.front().is_some_and(|frame| send(frame)) {
            self.0.pop_front();
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether who sends is to wait.
    pub(super) fn is_full(&self) -> bool {
        self.0.len() >= FULL_AT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_leave_in_their_order_and_who_sends_waits_before_any_is_lost() {
        let (mut line, mut sent, mut room) = (Line::default(), Vec::new(), 2);
        let mut send = |room: &mut usize, frame: &[u8]| {
            let has_room = *room > 0;
            if has_room {
                *room -= 1;
                sent.push(frame[0]);
            }
            has_room
        };
        for number in 0..5 {
            assert!(line.put(&[number], |frame| send(&mut room, frame)));
        }
        room = 1;
        // (None goes past those that wait.)
        assert!(line.put(&[5], |frame| send(&mut room, frame)) && !line.is_full());
        line.flush(|frame| send(&mut room, frame));
        assert!(!line.is_empty());
        room = 9;
        line.flush(|frame| send(&mut room, frame));
        assert!(line.is_empty());
        assert_eq!(sent, [0, 1, 2, 3, 4, 5]);
        let places = (0..WAITING_MAX + 3).filter(|at| {
            assert_eq!(line.is_full(), *at >= FULL_AT);
            line.put(&[7], |_| false)
        });
        assert_eq!(places.count(), WAITING_MAX);
    }
}
