//! When something is to be looked at next, and which entries of the agenda say so.

use ringway_stack::Instant;

/// An alarm clock whose every setting is an entry of the agenda, which cannot be taken back: those that don't count any more are
/// remembered, and used again. Else each packet would leave one behind for a timer that is far away.
#[derive(Debug, Default)]
pub(crate) struct Alarm {
    /// When it rings.
    at: Option<Instant>,
    /// The agenda's entries, sorted. Invariant: `at` is one of them.
    planned: Vec<Instant>,
}

impl Alarm {
    /// Lets it ring at `at`, unless it rings earlier. Whether the agenda needs another entry for that.
    pub(crate) fn ring_by(&mut self, at: Instant) -> bool {
        if self.at.is_some_and(|earlier| earlier <= at) {
            return false;
        }
        self.at = Some(at);
        let place = self.planned.binary_search(&at);
        if let Err(place) = place {
            self.planned.insert(place, at);
        }
        place.is_err()
    }

    /// An entry of the agenda has come. Whether it counts.
    pub(crate) fn rings(&mut self, now: Instant) -> bool {
        if let Ok(place) = self.planned.binary_search(&now) {
            self.planned.remove(place);
        }
        self.at.take_if(|at| *at == now).is_some()
    }

    /// Lets it not ring.
    pub(crate) fn switch_off(&mut self) {
        self.at = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_earliest_setting_counts_and_none_is_planned_twice() {
        let [soon, later] = [5, 9].map(Instant::from_nanos);
        let mut alarm = Alarm::default();
        assert!(alarm.ring_by(later));
        assert!(alarm.ring_by(soon));
        assert!(!alarm.ring_by(later), "it rings before");
        assert!(alarm.rings(soon));
        assert!(!alarm.ring_by(later), "the agenda has that one still");
        assert!(alarm.rings(later));
        assert!(alarm.ring_by(later), "it was used up");
        alarm.switch_off();
        assert!(!alarm.rings(later));
    }
}
