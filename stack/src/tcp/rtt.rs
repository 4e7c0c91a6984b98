//! Round-trip time and the retransmission timeout (RFC 6298, with Linux's bounds).

use core::time::Duration;

use super::fields::{Fields, SnapshotError};
use super::records::Timed;
use crate::mutants::{Mutant, Mutation};
use crate::time::Instant;

/// Linux's TCP_RTO_MIN (RFC 6298 s2.4 would have a second).
const RTO_MIN_NS: u64 = 200_000_000;
/// Linux's TCP_RTO_MAX.
const RTO_MAX_NS: u64 = 120_000_000_000;
/// RFC 6298 s2.1.
const RTO_INITIAL_NS: u64 = 1_000_000_000;
/// RFC 6298 s5.7.
const RTO_AFTER_LOST_SYN_NS: u64 = 3_000_000_000;

/// The estimator. What it is told of round trips comes from the records of what was sent ([`super::records`]); of a handshake, of which there is none, it keeps the
/// time itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Rtt {
    /// Smoothed; zero: no sample yet.
    srtt_ns: u64,
    var_ns: u64,
    rto_ns: u64,
    /// The shortest round trip that was ever measured; the largest number: none was.
    shortest_ns: u64,
    /// How often the timeout was doubled.
    backoff: u32,
    timing: bool,
    timed_at: Instant,
    mutation: Mutation,
}

impl Rtt {
    pub(super) const fn new() -> Self {
        Self {
            srtt_ns: 0,
            var_ns: 0,
            rto_ns: RTO_INITIAL_NS,
            shortest_ns: u64::MAX,
            backoff: 0,
            timing: false,
            timed_at: Instant::ZERO,
            mutation: Mutation::HEALTHY,
        }
    }

    /// One that another implementation has measured: round-trip time and mean deviation; zero: it has not.
    pub(super) fn known((srtt, var): (Duration, Duration)) -> Self {
        let ns = |duration: Duration| u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX).min(RTO_MAX_NS);
        let (srtt_ns, var_ns) = (ns(srtt), ns(var));
        if srtt_ns == 0 {
            return Self::new();
        }
        let rto_ns = (srtt_ns + (4 * var_ns).max(RTO_MIN_NS)).min(RTO_MAX_NS);
        Self { srtt_ns, var_ns, rto_ns, shortest_ns: srtt_ns, ..Self::new() }
    }

    /// The same as a mutant.
    pub(super) const fn of(self, mutation: Mutation) -> Self {
        Self { mutation, ..self }
    }

    /// Of a handshake under way, in which nothing was measured yet: whether the round trip of its segment is timed, which was sent at `at`
    /// (also if it is timed no more), and how often the timeout was doubled.
    pub(super) const fn of_handshake(timing: bool, at: Instant, backoff: u32) -> Self {
        Self { timing, timed_at: at, backoff, ..Self::new() }
    }

    /// What [`Rtt::of_handshake`] makes it of again.
    pub(super) const fn handshake(&self) -> (bool, Instant, u32) {
        (self.timing, self.timed_at, self.backoff)
    }

    /// What it consists of, for a snapshot.
    pub(super) fn walk(&mut self, fields: &mut impl Fields) -> Result<(), SnapshotError> {
        let Self { srtt_ns, var_ns, rto_ns, shortest_ns, backoff, timing, timed_at, mutation: _ } = self;
        fields.at_most(srtt_ns, RTO_MAX_NS)?;
        fields.at_most(var_ns, RTO_MAX_NS)?;
        fields.at_most(rto_ns, 5 * RTO_MAX_NS)?;
        fields.long(shortest_ns)?;
        fields.word(backoff)?;
        fields.flag(timing)?;
        fields.instant(timed_at)
    }

    /// The timeout was never doubled: what a mutant forgets.
    pub(super) fn without_backoff(self) -> Self {
        Self { backoff: 0, ..self }
    }

    /// The smoothed round-trip time; zero if unknown.
    #[inline]
    pub(super) const fn srtt(&self) -> Duration {
        Duration::from_nanos(self.srtt_ns)
    }

    /// The smoothed round-trip time in nanoseconds; zero if unknown.
    #[inline(always)]
    pub(super) const fn srtt_ns(&self) -> u64 {
        self.srtt_ns
    }

    /// [`Rtt::shortest`] in nanoseconds; the largest number: none was measured.
    #[inline(always)]
    pub(super) fn shortest_ns(&self) -> u64 {
        self.shortest_ns
    }

    /// The shortest round trip that was ever measured.
    pub(super) fn shortest(&self) -> Option<Duration> {
        (self.shortest_ns != u64::MAX).then_some(Duration::from_nanos(self.shortest_ns))
    }

    /// The mean deviation; zero if unknown.
    pub(super) const fn var(&self) -> Duration {
        Duration::from_nanos(self.var_ns)
    }

    /// The timeout in nanoseconds, doubled as often as it ran out.
    #[inline]
    pub(super) fn rto_ns(&self) -> u64 {
        let most = if self.mutation.is(Mutant::BackoffUncapped) { RTO_MAX_NS * 30 } else { RTO_MAX_NS };
        let most = if self.mutation.is(Mutant::BackoffCappedEarly) { RTO_MAX_NS / 60 } else { most };
        self.rto_ns.saturating_mul(1 << self.backoff.min(16)).min(most)
    }

    /// [`Rtt::rto_ns`] as a duration.
    pub(super) fn rto(&self) -> Duration {
        Duration::from_nanos(self.rto_ns())
    }

    /// When something sent now times out. (In whole nanoseconds: a `Duration` would be taken apart and put together again.)
    #[inline]
    pub(super) fn timeout_at(&self, now: Instant) -> Instant {
        Instant::from_nanos(now.as_nanos().saturating_add(self.rto_ns()))
    }

    /// A SYN is sent for the first time.
    pub(super) fn sent_syn(&mut self, now: Instant) {
        (self.timing, self.timed_at) = (true, now);
    }

    /// The SYN was sent again: its acknowledgment would be ambiguous (Karn; RFC 6298 s3).
    pub(super) fn sent_syn_again(&mut self) {
        self.timing &= self.mutation.is(Mutant::KarnIgnored);
    }

    /// Something new is acknowledged, of which the records show a round trip. `echoed`: the age of the timestamp that came with it, which isn't ambiguous.
    #[inline(always)]
    pub(super) fn acknowledged(&mut self, now: Instant, timed: Timed, echoed: impl FnOnce() -> Option<Duration>) {
        if !self.mutation.is(Mutant::BackoffKept) {
            self.backoff = 0;
        }
        let since = |at: Instant| now.as_nanos().saturating_sub(at.as_nanos());
        let sample = match timed {
            Timed::Since(at) => Some(since(at)),
            Timed::Later => None,
            // (The handshake's end is the first thing that is acknowledged.)
            Timed::Ambiguous if self.timing => Some(since(self.timed_at)),
            Timed::Ambiguous => echoed().map(|age| age.as_nanos() as u64),
        };
        self.timing = false;
        if let Some(rtt_ns) = sample {
            self.sample(rtt_ns);
        }
    }

    /// The timeout ran out (RFC 6298 s5.5).
    pub(super) fn timed_out(&mut self) {
        self.backoff = self.backoff.saturating_add(1);
        self.timing &= self.mutation.is(Mutant::KarnIgnored);
    }

    /// The handshake is over, in which a SYN timed out. RFC 6298 s5.7: "the RTO MUST be re-initialized to 3 seconds when data transmission begins"; as
    /// Linux, not where a timestamp has told the round trip.
    pub(super) fn lost_syn(&mut self) {
        if self.srtt_ns == 0 {
            self.rto_ns = RTO_AFTER_LOST_SYN_NS;
        }
    }

    #[inline(always)]
    fn sample(&mut self, rtt_ns: u64) {
        let rtt = rtt_ns.clamp(1, RTO_MAX_NS);
        self.shortest_ns = self.shortest_ns.min(rtt);
        if self.srtt_ns == 0 {
            self.srtt_ns = rtt;
            self.var_ns = if self.mutation.is(Mutant::FirstSampleIsCertain) { 0 } else { rtt / 2 };
        } else {
            if self.mutation.is(Mutant::VarianceAfterMean) {
                self.srtt_ns = rtt;
            }
            let before = self.srtt_ns;
            self.srtt_ns = self.srtt_ns - self.srtt_ns / 8 + rtt / 8;
            let mean = if self.mutation.is(Mutant::RttvarAfterSrtt) { self.srtt_ns } else { before };
            self.var_ns = self.var_ns - self.var_ns / 4 + mean.abs_diff(rtt) / 4;
        }
        self.srtt_ns = self.srtt_ns.max(1);
        let least = if self.mutation.is(Mutant::NoLeastTimeout) { 1_000_000 } else { RTO_MIN_NS };
        self.rto_ns = self.srtt_ns + (4 * self.var_ns).max(least);
        if self.mutation.is(Mutant::TimeoutIgnoresVariance) {
            self.rto_ns = self.srtt_ns + RTO_MIN_NS;
        }
    }
}
