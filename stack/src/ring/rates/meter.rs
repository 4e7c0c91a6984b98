//! How the ring keeps a connection to its rate where the device paces no flows: by a bucket of tokens, one a byte. Only bytes of the stream wait, with their headers;
//! what else there is to say (acknowledgments, SYNs, resets, probes) waits for nobody, as on Linux.

use core::time::Duration;

use crate::device::Pacing;
use crate::mutants::{Mutant, Mutation};
use crate::time::Instant;

/// What nobody has set a burst for may make up for being late by so much: who polls a ring sleeps now and then, and comes a little late.
const LATE_MAX: Duration = Duration::from_millis(1);

/// The bucket.
#[derive(Debug)]
pub(in crate::ring) struct Meter {
    rate_bps: u64,
    /// Bytes that may leave at once.
    burst: usize,
    /// When what was sent would have left, one byte behind the other. While that lies ahead, so much is missing in the bucket.
    until: Instant,
    /// When what it refused last may go.
    refused: Option<Instant>,
    /// Until when the connection waits in the ring's list.
    pub(super) turn: Option<Instant>,
}

impl Meter {
    pub(super) fn new(Pacing { rate_bps, burst_bytes, typical_packet_bytes }: Pacing) -> Self {
        let late = u128::from(rate_bps) * LATE_MAX.as_nanos() / 8_000_000_000;
        let burst = match (burst_bytes, typical_packet_bytes) {
            (0, 0) => usize::try_from(late).unwrap_or(usize::MAX),
            (0, typical) => usize::from(typical),
            (burst, _) => burst as usize,
        };
        Self { rate_bps, burst, until: Instant::ZERO, refused: None, turn: None }
    }

    /// The most bytes that leave at once. (A longer frame goes when the bucket is full.)
    pub(super) const fn burst(&self) -> usize {
        self.burst
    }

    /// How long so many bytes take.
    fn takes(&self, bytes: usize) -> Duration {
        let nanos = bytes as u128 * 8_000_000_000 / u128::from(self.rate_bps.max(1));
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// Whether a frame of so many bytes may go now.
    pub(in crate::ring) fn admits(&mut self, now: Instant, bytes: usize, mutation: Mutation) -> bool {
        let missing_at_most = self.takes(self.burst.saturating_sub(bytes));
        let goes = self.until.since(now) <= missing_at_most || mutation.is(Mutant::RateNotKept);
        if !goes {
            // (Not before zero: what lies ahead of now by more than this is later than it.)
            self.refused = Some(Instant::from_nanos(self.until.as_nanos() - missing_at_most.as_nanos() as u64));
        }
        goes
    }

    /// It went.
    pub(in crate::ring) fn sent(&mut self, now: Instant, bytes: usize) {
        self.until = self.until.max(now) + self.takes(bytes);
    }

    /// When what it refused last may go, if it refused something since this was asked.
    pub(super) fn take_refused(&mut self) -> Option<Instant> {
        self.refused.take()
    }
}
