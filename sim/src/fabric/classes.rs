//! The fault classes that judge each frame of a lane by itself.

use core::time::Duration;

use super::corruption::{flip_detectably, flip_undetectably};
use super::lane::Passage;
use super::{Arrival, Direction, Marks, Strike, icmp};
use crate::faults::Faults;
use crate::random::{Purpose, RandomStream, scale};

const MILLION: u64 = 1_000_000;

/// One fault class's stream. While its strength isn't zero each frame takes the same two numbers from it, struck or not, so that other
/// classes, and how strong it is, never shift it. At zero it takes none: nobody else draws from it.
#[derive(Debug)]
struct Class(RandomStream);

impl Class {
    /// Whether this class strikes the next frame, and the bits that say how.
    fn strikes(&mut self, ppm: u32) -> Option<u64> {
        if ppm == 0 {
            return None;
        }
        let (hit, detail) = self.draw();
        (hit < u64::from(ppm)).then_some(detail)
    }

    /// A number below a million, and the bits.
    fn draw(&mut self) -> (u64, u64) {
        (self.0.below(MILLION), self.0.bits())
    }
}

/// Losses in bursts: a chain of two states, of which the bad one loses (Gilbert 1960, Elliott 1963).
#[derive(Debug)]
struct Bursts {
    class: Class,
    bad: bool,
}

impl Bursts {
    fn strikes(&mut self, faults: &Faults) -> bool {
        if faults.burst_ppm == 0 {
            self.bad = false;
            return false;
        }
        let (turn, detail) = self.class.draw();
        let ends = MILLION / u64::from(faults.burst_frames.max(1));
        self.bad = if self.bad { turn >= ends } else { turn < u64::from(faults.burst_ppm) };
        self.bad && scale(detail, MILLION) < u64::from(faults.burst_loss_ppm)
    }
}

/// The classes of one lane.
#[derive(Debug)]
pub(super) struct Classes {
    loss: Class,
    duplication: Class,
    reordering: Class,
    corruption: Class,
    bursts: Bursts,
    hidden: Class,
    icmp_delay: Class,
    mark: Class,
    jitter: Class,
}

impl Classes {
    pub(super) fn new(seed: u64, link: u32, direction: Direction) -> Self {
        let class = |purpose| Class(RandomStream::new(seed, purpose, link, direction as u8));
        Self {
            loss: class(Purpose::Loss),
            duplication: class(Purpose::Duplication),
            reordering: class(Purpose::Reordering),
            corruption: class(Purpose::Corruption),
            bursts: Bursts { class: class(Purpose::BurstLoss), bad: false },
            hidden: class(Purpose::HiddenCorruption),
            icmp_delay: class(Purpose::IcmpDelay),
            mark: class(Purpose::Mark),
            jitter: class(Purpose::Jitter),
        }
    }

    /// How much longer than its fellows a frame takes on a slower link.
    pub(super) fn jitter(&mut self, max: Duration) -> Duration {
        let (_, detail) = self.jitter.draw();
        within(detail, max)
    }

    /// Whether [`Classes::judge`] would let every frame pass and draw nothing.
    pub(super) fn are_calm(&self, faults: &Faults) -> bool {
        let Faults { loss_ppm, duplication_ppm, reordering_ppm, corruption_ppm, .. } = faults;
        let Faults { burst_ppm, hidden_corruption_ppm, icmp_delay_ppm, mark_ppm, .. } = faults;
        let any = loss_ppm | duplication_ppm | reordering_ppm | corruption_ppm | burst_ppm | hidden_corruption_ppm | icmp_delay_ppm;
        any | mark_ppm == 0 && !self.bursts.bad
    }

    /// Lets every class have its say on a frame that would arrive thus.
    pub(super) fn judge(&mut self, faults: &Faults, mut arrival: Arrival, passage: &mut Passage) {
        // All are drawn before any is obeyed: see `Class`.
        let loss = self.loss.strikes(faults.loss_ppm);
        let duplication = self.duplication.strikes(faults.duplication_ppm);
        let reordering = self.reordering.strikes(faults.reordering_ppm);
        let corruption = self.corruption.strikes(faults.corruption_ppm);
        let burst = self.bursts.strikes(faults);
        let hidden = self.hidden.strikes(faults.hidden_corruption_ppm);
        let icmp_delay = self.icmp_delay.strikes(faults.icmp_delay_ppm);
        let mark = self.mark.strikes(faults.mark_ppm);

        if loss.is_some() || burst {
            passage.strikes.push(if loss.is_some() { Strike::Lost } else { Strike::BurstLost });
            return;
        }
        if let Some(detail) = icmp_delay
            && icmp::is_error(&arrival.frame.bytes)
        {
            let by = within(detail, faults.icmp_delay_max);
            passage.strikes.push(Strike::IcmpDelayed { by });
            arrival.at += by;
            arrival.frame.marks |= Marks::DELAYED;
        }
        if mark.is_some()
            && let Some(marked) = super::ecn::marked(&arrival.frame.bytes)
        {
            // (Its checksums are still right.)
            passage.strikes.push(Strike::Marked);
            arrival.frame.bytes = marked;
        }
        if let Some(detail) = duplication {
            let after = within(detail, faults.duplication_delay_max);
            passage.strikes.push(Strike::Duplicated { after });
            let mut copy = arrival.clone();
            copy.at += after;
            copy.frame.marks |= Marks::DUPLICATE;
            // Its sender may have said that the frame can wait, but of a copy it knows nothing: three acknowledgments of the same are a loss.
            copy.frame.unsolicited = false;
            passage.arrivals.push(copy);
        }
        if let Some(detail) = reordering {
            let by = within(detail, faults.reordering_delay_max);
            passage.strikes.push(Strike::HeldBack { by });
            arrival.at += by;
            arrival.frame.marks |= Marks::HELD_BACK;
        }
        if let Some(detail) = corruption {
            let Some((bytes, bit, len)) = flip_detectably(&arrival.frame.bytes, detail) else {
                passage.strikes.push(Strike::FrameCheck);
                return;
            };
            passage.strikes.push(Strike::Corrupted { bit, len });
            arrival.frame.damage(bytes, Marks::CORRUPTED);
        } else if let Some(detail) = hidden
            && let Some((bytes, places)) = flip_undetectably(&arrival.frame.bytes, detail)
        {
            passage.strikes.push(Strike::HiddenCorruption { bytes: places });
            arrival.frame.damage(bytes, Marks::HIDDEN);
        }
        passage.arrivals.push(arrival);
    }
}

fn within(detail: u64, max: Duration) -> Duration {
    let max_ns = u64::try_from(max.as_nanos()).unwrap_or(u64::MAX);
    Duration::from_nanos(scale(detail, max_ns.saturating_add(1)))
}
