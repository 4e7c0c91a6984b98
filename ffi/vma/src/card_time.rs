//! Times that a card has taken of what it received, as programs are told them (VMA_HW_TS_CONVERSION).

use core::time::Duration;

use ringway_stack::Instant;

use crate::exports::control::wall_time;
use crate::params;
use crate::process::Offload;

/// How long the least difference between two clocks is believed: cards' clocks drift.
const WINDOW: Duration = Duration::from_secs(1);

/// By which clock they are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Conversion {
    /// By none.
    Off,
    /// By the card's own, from when it began to count.
    Raw,
    /// By the system's.
    System,
}

impl Conversion {
    /// As VMA_HW_TS_CONVERSION has it. (The best there is, is the system's; and no card's PTP clock is asked.)
    pub(crate) const fn of(number: i64) -> Self {
        match number {
            0 => Self::Off,
            1 => Self::Raw,
            _ => Self::System,
        }
    }
}

impl Offload {
    /// When something arrived, as the program is told, of which the card of a ring says when; it was seen at `seen`. `None`: nothing is to be told.
    pub(crate) fn card_time(&mut self, ring: u16, by_card: Instant, seen: Instant) -> Option<Duration> {
        match params::read().hw_ts_conversion {
            Conversion::Off => None,
            Conversion::Raw => Some(Duration::from_nanos(by_card.as_nanos())),
            Conversion::System => Some(wall_time(Some(self.rings.at_mut(ring).card_time.told(by_card, seen)))),
        }
    }

    /// Whether there is a card that says when something arrives.
    pub(crate) fn has_card_time(&self) -> bool {
        self.rings.iter().any(|own| own.ring.capabilities().hardware_time)
    }
}

/// What a card's clock says, by the process's. They are apart by what they differ in the least when a packet is seen: it was seen at once then.
#[derive(Debug, Default)]
pub(crate) struct CardTime {
    /// The least differences, in nanoseconds: of this window, and of the one before; and when this one began.
    least: [Option<i64>; 2],
    began: Instant,
}

impl CardTime {
    /// When it was, by the process's clock, that a packet came of which the card says when; it was seen at `seen`.
    pub(crate) fn told(&mut self, by_card: Instant, seen: Instant) -> Instant {
        if seen.since(self.began) >= WINDOW {
            (self.least, self.began) = ([None, self.least[0]], seen);
        }
        let apart = seen.as_nanos().wrapping_sub(by_card.as_nanos()).cast_signed();
        let least = self.least[0].map_or(apart, |least| least.min(apart));
        self.least[0] = Some(least);
        let least = self.least[1].map_or(least, |before| before.min(least));
        Instant::from_nanos(by_card.as_nanos().wrapping_add_signed(least)).min(seen)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_card_s_time_is_as_far_from_ours_as_the_packet_that_was_seen_soonest() {
        let mut clock = CardTime::default();
        let mut told = |by_card, seen| clock.told(Instant::from_nanos(by_card), Instant::from_nanos(seen)).as_nanos();
        // Seen at once; 300 and 50 ns late, the latter by a clock that is not 1000 but 950 ns ahead.
        assert_eq!([told(5000, 6000), told(5100, 6400), told(5200, 6150)], [6000, 6100, 6150]);
        // The card's clock has become slow: that is known when the window before is over.
        let second = 1_000_000_000;
        assert_eq!(
            [told(second, second + 2000), told(2 * second, 2 * second + 2000), told(2 * second + 1, 2 * second + 2500)],
            [second + 950, 2 * second + 2000, 2 * second + 2001]
        );
    }
}
