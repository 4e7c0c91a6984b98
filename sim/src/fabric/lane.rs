//! One way along a link: a queue, a serialiser, a delay, and whatever goes wrong in between.

use core::fmt;
use core::time::Duration;
use std::sync::Arc;

use arrayvec::ArrayVec;
use ringway_stack::Instant;
use ringway_stack::device::ChecksumVerdict;

use super::{Arrival, Direction, Frame, LinkConfig, Marks};
use crate::checksum;
use crate::dissect::ETHERNET_LEN;
use crate::random::{Purpose, Stream, scale};

/// Preamble, start delimiter, frame check sequence and inter-frame gap (IEEE 802.3): they take time on the wire.
const ETHERNET_OVERHEAD: u64 = 24;
/// The longest burst of flipped bits that a 16-bit ones'-complement sum always catches.
const BURST_BITS_MAX: u64 = 15;
/// Bursts drawn before a frame is given up as one that no checksum protects.
const BURST_TRIES: u32 = 8;

/// What befell a frame on a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strike {
    /// It vanished.
    Lost,
    /// The switch's queue was full.
    QueueFull,
    /// It was corrupted where no checksum would tell: dropped, as its frame check sequence demands.
    FrameCheck,
    /// Bits flipped.
    Corrupted {
        /// The first one, counted from the frame's beginning.
        bit: usize,
        /// How far the last one is from the first, plus one.
        len: usize,
    },
    /// It was held back.
    HeldBack {
        /// By how much.
        by: Duration,
    },
    /// A second copy arrives.
    Duplicated {
        /// How much later.
        after: Duration,
    },
}

impl Strike {
    /// Whether the frame (rather than a copy of it) ends here.
    pub fn is_drop(&self) -> bool {
        matches!(self, Self::Lost | Self::QueueFull | Self::FrameCheck)
    }
}

impl fmt::Display for Strike {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lost => f.write_str("lost"),
            Self::QueueFull => f.write_str("dropped: queue full"),
            Self::FrameCheck => f.write_str("dropped: bad frame check sequence"),
            Self::Corrupted { bit, len } => write!(f, "corrupted: {len} bits from byte {} bit {}", bit / 8, bit % 8),
            Self::HeldBack { by } => write!(f, "held back by {by:?}"),
            Self::Duplicated { after } => write!(f, "duplicated {after:?} later"),
        }
    }
}

/// A frame's way along a lane.
#[derive(Debug, Default)]
pub(crate) struct Passage {
    /// When its last bit left the sender.
    pub(crate) departs: Instant,
    /// None, one, or two copies.
    pub(crate) arrivals: ArrayVec<Arrival, 2>,
    /// What befell it.
    pub(crate) strikes: ArrayVec<Strike, 4>,
}

/// One fault class's stream. Each frame takes the same two numbers from it, struck or not, so that strengths and other classes
/// never shift it.
#[derive(Debug)]
struct Class(Stream);

impl Class {
    /// Whether this class strikes the next frame, and the bits that say how.
    fn strikes(&mut self, ppm: u32) -> Option<u64> {
        let (hit, detail) = (self.0.below(1_000_000), self.0.bits());
        (hit < u64::from(ppm)).then_some(detail)
    }
}

/// One way along a link.
#[derive(Debug)]
pub(crate) struct Lane {
    config: LinkConfig,
    direction: Direction,
    busy_until: Instant,
    loss: Class,
    duplication: Class,
    reordering: Class,
    corruption: Class,
}

impl Lane {
    pub(crate) fn new(seed: u64, link: usize, direction: Direction, config: LinkConfig) -> Self {
        let index = u32::try_from(link).unwrap_or(u32::MAX);
        let class = |purpose| Class(Stream::new(seed, purpose, index, direction as u8));
        Self {
            config,
            direction,
            busy_until: Instant::ZERO,
            loss: class(Purpose::Loss),
            duplication: class(Purpose::Duplication),
            reordering: class(Purpose::Reordering),
            corruption: class(Purpose::Corruption),
        }
    }

    pub(crate) fn config_mut(&mut self) -> &mut LinkConfig {
        &mut self.config
    }

    /// Sends `frame` at `now`.
    pub(crate) fn offer(&mut self, now: Instant, frame: Frame, faults_on: bool) -> Passage {
        let mut passage = Passage { departs: now, ..Passage::default() };
        if self.direction == Direction::Down && self.backlog_bytes(now) + frame.bytes.len() as u64 > self.config.queue_bytes_max as u64 {
            passage.strikes.push(Strike::QueueFull);
            return passage;
        }
        let departs = now.max(self.busy_until) + self.serialisation(frame.bytes.len());
        self.busy_until = departs;
        passage.departs = departs;
        let arrival = Arrival { at: departs + self.config.latency, frame };
        if faults_on {
            self.strike(arrival, &mut passage);
        } else {
            passage.arrivals.push(arrival);
        }
        passage
    }

    fn strike(&mut self, mut arrival: Arrival, passage: &mut Passage) {
        let faults = self.config.faults;
        // All four are drawn before any is obeyed: see `Class`.
        let loss = self.loss.strikes(faults.loss_ppm);
        let duplication = self.duplication.strikes(faults.duplication_ppm);
        let reordering = self.reordering.strikes(faults.reordering_ppm);
        let corruption = self.corruption.strikes(faults.corruption_ppm);

        if loss.is_some() {
            passage.strikes.push(Strike::Lost);
            return;
        }
        if let Some(detail) = duplication {
            let after = within(detail, faults.duplication_delay_max);
            passage.strikes.push(Strike::Duplicated { after });
            let mut copy = arrival.clone();
            copy.at += after;
            copy.frame.marks |= Marks::DUPLICATE;
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
            arrival.frame.bytes = bytes;
            arrival.frame.marks |= Marks::CORRUPTED;
        }
        passage.arrivals.push(arrival);
    }

    fn backlog_bytes(&self, now: Instant) -> u64 {
        self.config.bandwidth_bps.map_or(0, |bps| bits(self.busy_until.since(now), bps) / 8)
    }

    fn serialisation(&self, len: usize) -> Duration {
        let Some(bps) = self.config.bandwidth_bps else { return Duration::ZERO };
        let wire_bits = (len as u64 + ETHERNET_OVERHEAD) * 8;
        Duration::from_nanos((wire_bits * 1_000_000_000).div_ceil(bps.max(1)))
    }
}

fn bits(time: Duration, bps: u64) -> u64 {
    u64::try_from(time.as_nanos() * u128::from(bps) / 1_000_000_000).unwrap_or(u64::MAX)
}

fn within(detail: u64, max: Duration) -> Duration {
    let max_ns = u64::try_from(max.as_nanos()).unwrap_or(u64::MAX);
    Duration::from_nanos(scale(detail, max_ns.saturating_add(1)))
}

/// Flips one burst of bits behind the Ethernet header, such that a strict receiver must notice. The verdict is taken rather than argued:
/// a burst can hit UDP's length or zero its checksum, where the sum's guarantee ends.
fn flip_detectably(frame: &[u8], detail: u64) -> Option<(Arc<[u8]>, usize, usize)> {
    let first_bit = ETHERNET_LEN * 8;
    let span = (frame.len() * 8).checked_sub(first_bit)?;
    let mut dice = SplitMix(detail);
    for _ in 0..BURST_TRIES {
        let len = usize::try_from(1 + scale(dice.next(), BURST_BITS_MAX)).unwrap_or(1).min(span);
        let bit = first_bit + usize::try_from(scale(dice.next(), (span - len + 1) as u64)).unwrap_or(0);
        // The burst's ends always flip: that is what makes it a burst of this length.
        let inner = dice.next();
        let mut bytes = frame.to_vec();
        for i in (0..len).filter(|&i| i == 0 || i + 1 == len || inner >> i & 1 == 1) {
            bytes[(bit + i) / 8] ^= 0x80 >> ((bit + i) % 8);
        }
        if checksum::verify(&bytes) == ChecksumVerdict::Bad {
            return Some((bytes.into(), bit, len));
        }
    }
    None
}

/// Expands one drawn number, without touching the stream it came from (Steele, Lea and Flood, OOPSLA 2014).
struct SplitMix(u64);

impl SplitMix {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}
