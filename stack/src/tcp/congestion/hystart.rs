//! HyStart++ (RFC 9406): a slow start that ends when round trips grow longer, before anything is lost; and a slower one behind it, in case that
//! was for another reason.

use core::time::Duration;

use super::control::Ack;
use crate::tcp::fields::{Fields, SnapshotError};

// RFC 9406 s4.3: "It is RECOMMENDED that a HyStart++ implementation use the following constants".
const MIN_RTT_THRESH: Duration = Duration::from_millis(4);
const MAX_RTT_THRESH: Duration = Duration::from_millis(16);
const MIN_RTT_DIVISOR: u32 = 8;
const N_RTT_SAMPLE: u32 = 8;
const CSS_GROWTH_DIVISOR: u64 = 4;
const CSS_ROUNDS: u32 = 5;
/// Segments that one acknowledgment may add. "A paced TCP implementation SHOULD use L = infinity" (s4.3); this is for others.
const L: u64 = 8;

const INFINITY: Duration = Duration::MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    SlowStart,
    /// Conservative slow start. What the shortest round trip was when it began.
    Conservative {
        baseline: Duration,
        rounds: u32,
    },
    Done,
}

/// What an acknowledgment does to the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Growth {
    /// By how much it grows, in bytes.
    pub bytes: u64,
    /// Slow start is over: congestion avoidance begins at the window that is reached.
    pub over: bool,
}

/// The state of a connection's first slow start.
///
/// s4.2: "An implementation SHOULD use HyStart++ only for the initial slow start (when the ssthresh is at its initial value of arbitrarily high [...])
/// and fall back to using standard slow start for the remainder of the connection lifetime." That is for its owner to see to: [`super::Cubic`] drops
/// it with the first threshold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HyStart {
    stage: Stage,
    last_round: Duration,
    this_round: Duration,
    samples: u32,
    /// The round ends when this is acknowledged.
    window_end: u64,
    paced: bool,
}

impl HyStart {
    /// At the beginning of a connection; `paced`: segments leave evenly spaced.
    pub fn new(paced: bool) -> Self {
        Self { stage: Stage::SlowStart, last_round: INFINITY, this_round: INFINITY, samples: 0, window_end: 0, paced }
    }

    /// What it consists of, for a snapshot.
    pub(super) fn walk(&mut self, fields: &mut impl Fields) -> Result<(), SnapshotError> {
        let Self { stage, last_round, this_round, samples, window_end, paced } = self;
        let (mut which, mut baseline, mut rounds) = match *stage {
            Stage::SlowStart => (0, None, 0),
            Stage::Conservative { baseline, rounds } => (1, Some(baseline), rounds),
            Stage::Done => (2, None, 0),
        };
        fields.word_at_most(&mut which, 2)?;
        fields.option(&mut baseline, |fields, baseline| fields.duration(baseline))?;
        fields.word_at_most(&mut rounds, CSS_ROUNDS)?;
        *stage = match (which, baseline) {
            (1, Some(baseline)) => Stage::Conservative { baseline, rounds },
            (2, _) => Stage::Done,
            _ => Stage::SlowStart,
        };
        for rtt in [last_round, this_round] {
            let mut known = Some(*rtt).filter(|rtt| *rtt != INFINITY);
            fields.option(&mut known, |fields, rtt| fields.duration(rtt))?;
            *rtt = known.unwrap_or(INFINITY);
        }
        fields.word(samples)?;
        fields.long(window_end)?;
        fields.flag(paced)
    }

    /// Whether the window grows more slowly than in slow start.
    pub fn is_conservative(&self) -> bool {
        matches!(self.stage, Stage::Conservative { .. })
    }

    /// An acknowledgment that is good for `acked` bytes of a window that is used.
    pub fn on_ack(&mut self, ack: &Ack, acked: u64, mss: u64) -> Growth {
        let most = if self.paced { u64::MAX } else { L.saturating_mul(mss) };
        let acked = acked.min(most);
        // s4.2: in conservative slow start, the same by CSS_GROWTH_DIVISOR.
        let bytes = if self.is_conservative() { acked / CSS_GROWTH_DIVISOR } else { acked };
        if let Some(rtt) = ack.rtt {
            self.this_round = self.this_round.min(rtt);
            self.samples = self.samples.saturating_add(1);
            self.judge();
        }
        // s4.2: rounds are about a round trip long; one ends when what was to be sent next as it began is acknowledged.
        if ack.una >= self.window_end {
            self.next_round(ack.nxt);
        }
        Growth { bytes, over: self.stage == Stage::Done }
    }

    /// s4.2: with enough samples, is this round's shortest round trip longer than the last one's?
    fn judge(&mut self) {
        if self.samples < N_RTT_SAMPLE || self.this_round == INFINITY {
            return;
        }
        match self.stage {
            Stage::SlowStart if self.last_round != INFINITY => {
                let threshold = (self.last_round / MIN_RTT_DIVISOR).min(MAX_RTT_THRESH).max(MIN_RTT_THRESH);
                if self.this_round >= self.last_round.saturating_add(threshold) {
                    self.stage = Stage::Conservative { baseline: self.this_round, rounds: 0 };
                }
            }
            // It was no queue: slow start goes on.
            Stage::Conservative { baseline, .. } if self.this_round < baseline => self.stage = Stage::SlowStart,
            _ => {}
        }
    }

    fn next_round(&mut self, nxt: u64) {
        self.window_end = nxt;
        self.last_round = self.this_round;
        (self.this_round, self.samples) = (INFINITY, 0);
        // s4.2: "CSS lasts at most CSS_ROUNDS rounds. If the transition into CSS happens in the middle of a round, that partial round counts".
        if let Stage::Conservative { rounds, .. } = &mut self.stage {
            *rounds += 1;
            if *rounds >= CSS_ROUNDS {
                self.stage = Stage::Done;
            }
        }
    }
}
