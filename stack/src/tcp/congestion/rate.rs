//! How fast the path delivers: a sample with each acknowledgment (draft-ietf-ccwg-bbr s4.1, before it
//! draft-cheng-iccrg-delivery-rate-estimation).
//!
//! The sender keeps a [`SendRecord`] for each segment, or for each burst that the device cuts ("it is RECOMMENDED that the per-packet state be
//! tracked for each packet aggregate", s4.1.3.1), and gives it back when the segment is reported as received. How the records are stored is the
//! sender's affair.

use core::time::Duration;

use super::control::RATE_MAX;
use crate::tcp::fields::{Fields, SnapshotError};
use crate::time::Instant;

const NS_PER_S: u128 = 1_000_000_000;

/// Bytes per second, of `bytes` in `interval`; zero if no time passed. At most [`RATE_MAX`].
#[inline]
pub(super) fn per_second(bytes: u64, interval: Duration) -> u64 {
    let rate = (u128::from(bytes) * NS_PER_S).checked_div(interval.as_nanos()).unwrap_or(0);
    u64::try_from(rate).unwrap_or(u64::MAX).min(RATE_MAX)
}

/// Bytes in `time` at `rate` bytes per second.
#[inline]
pub(super) fn bytes_in(rate: u64, time: Duration) -> u64 {
    let nanos = u128::from(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
    u64::try_from(u128::from(rate) * nanos / NS_PER_S).unwrap_or(u64::MAX)
}

/// What is noted of a segment when it is sent (s4.1.2.1.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SendRecord {
    /// When it leaves: with pacing, when it is scheduled to.
    pub sent_at: Instant,
    /// C.delivered by then.
    pub delivered: u64,
    /// When the last of those was delivered.
    pub delivered_at: Instant,
    /// When the first of the flight was sent that a sample with this segment covers.
    pub first_sent_at: Instant,
    /// C.lost by then.
    pub lost: u64,
    /// What was in the network, with it.
    pub tx_in_flight: u64,
    /// The sender had run out of data.
    pub app_limited: bool,
}

/// What an acknowledgment tells of the path (s4.1.2.1.3): the division is left to those who want it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RateSample {
    /// What was delivered in [`RateSample::interval`].
    pub delivered: u64,
    /// The longer one of the times in which that was sent, and acknowledged.
    pub interval: Duration,
    /// Too short an interval to be believed (see [`RateSampler::sample`]): there is no rate.
    pub implausible: bool,
    /// C.delivered when the newest of the reported segments was sent.
    pub prior_delivered: u64,
    /// What was counted as lost since then.
    pub lost: u64,
    /// What was in the network when it was sent, with it.
    pub tx_in_flight: u64,
    /// The sender had run out of data when it was sent: the path might have delivered more.
    pub app_limited: bool,
}

impl RateSample {
    /// The rate in bytes per second; zero: none.
    pub fn rate(&self) -> u64 {
        if self.implausible { 0 } else { per_second(self.delivered, self.interval) }
    }
}

/// The delivery rate that a connection tells of: the last one, unless the program limited that and it was less (as Linux's `tcpi_delivery_rate`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::tcp) struct Latest {
    delivered: u64,
    interval_ns: u64,
    app_limited: bool,
}

impl Latest {
    #[inline]
    pub(in crate::tcp) fn take(&mut self, sample: &RateSample) {
        let interval_ns = sample.interval.as_nanos() as u64;
        let is_less = || u128::from(sample.delivered) * u128::from(self.interval_ns) < u128::from(self.delivered) * u128::from(interval_ns);
        if sample.implausible || interval_ns == 0 || sample.app_limited && is_less() {
            return;
        }
        *self = Self { delivered: sample.delivered, interval_ns, app_limited: sample.app_limited };
    }

    /// In bytes per second; and whether the program limited it.
    pub(in crate::tcp) fn rate(&self) -> (u64, bool) {
        (per_second(self.delivered, Duration::from_nanos(self.interval_ns)), self.app_limited)
    }

    /// What it consists of, for a snapshot.
    pub(in crate::tcp) fn walk(&mut self, fields: &mut impl Fields) -> Result<(), SnapshotError> {
        let Self { delivered, interval_ns, app_limited } = self;
        fields.long(delivered)?;
        fields.long(interval_ns)?;
        fields.flag(app_limited)
    }
}

/// What says whether the sender has run out of data (s4.1.2.4).
#[derive(Clone, Copy, Debug, Default)]
pub struct Supply {
    /// Bytes that were never sent.
    pub unsent: u64,
    /// Bytes handed down that have not left the host.
    pub pending: u64,
    /// What is in the network.
    pub in_flight: u64,
    /// The congestion window.
    pub cwnd: u64,
    /// Bytes that count as lost and were not sent again since.
    pub to_resend: u64,
}

/// Of the segments that one acknowledgment reports, the one sent last.
#[derive(Clone, Copy, Debug)]
struct Newest {
    record: SendRecord,
    id: u64,
    ack_elapsed: Duration,
}

/// What one acknowledgment reports, segment by segment.
#[derive(Clone, Copy, Debug, Default)]
pub struct Report {
    newest: Option<Newest>,
}

/// The sampler of a connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RateSampler {
    delivered: u64,
    delivered_at: Instant,
    first_sent_at: Instant,
    lost: u64,
    /// Up to this C.delivered samples are limited by the program; zero: they are not.
    app_limited: u64,
}

impl RateSampler {
    /// A sampler of nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// C.delivered: all that was ever delivered.
    pub fn delivered(&self) -> u64 {
        self.delivered
    }

    /// C.lost: all that was ever counted as lost.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// What it consists of, for a snapshot.
    pub(in crate::tcp) fn walk(&mut self, fields: &mut impl Fields) -> Result<(), SnapshotError> {
        let Self { delivered, delivered_at, first_sent_at, lost, app_limited } = self;
        for count in [delivered, lost, app_limited] {
            fields.long(count)?;
        }
        fields.instant(delivered_at)?;
        fields.instant(first_sent_at)
    }

    /// A segment of `bytes` leaves at `departure`; `in_flight` is in the network without it. (OnPacketSent, s4.1.2.2.)
    #[inline]
    pub fn on_sent(&mut self, departure: Instant, bytes: u64, in_flight: u64) -> SendRecord {
        // With nothing in the network all that is to be acknowledged will have been delivered between now and then.
        if in_flight == 0 {
            (self.first_sent_at, self.delivered_at) = (departure, departure);
        }
        SendRecord {
            sent_at: departure,
            delivered: self.delivered,
            delivered_at: self.delivered_at,
            first_sent_at: self.first_sent_at,
            lost: self.lost,
            tx_in_flight: in_flight.saturating_add(bytes),
            app_limited: self.app_limited != 0,
        }
    }

    /// A segment of `bytes` is reported as received, in order or by SACK, for the first time. `id` orders segments that were sent at one time,
    /// such as its last byte's position. (UpdateRateSample, s4.1.2.3.)
    #[inline]
    pub fn on_delivered(&mut self, report: &mut Report, now: Instant, record: &SendRecord, bytes: u64, id: u64) {
        self.delivered = self.delivered.saturating_add(bytes);
        self.delivered_at = now;
        let is_newest = report.newest.is_none_or(|newest| (record.sent_at, id) > (newest.record.sent_at, newest.id));
        if is_newest {
            report.newest = Some(Newest { record: *record, id, ack_elapsed: now.since(record.delivered_at) });
            self.first_sent_at = record.sent_at;
        }
    }

    /// `bytes` are counted as lost.
    pub fn on_lost(&mut self, bytes: u64) {
        self.lost = self.lost.saturating_add(bytes);
    }

    /// What the acknowledgment tells, all of whose segments were given to [`RateSampler::on_delivered`] and whose losses to
    /// [`RateSampler::on_lost`]; `None`: it reported nothing. `min_rtt` is the shortest round trip ever seen. (GenerateRateSample, s4.1.2.3.)
    #[inline]
    pub fn sample(&mut self, report: &mut Report, min_rtt: Option<Duration>) -> Option<RateSample> {
        // The bubble has left the path.
        if self.app_limited != 0 && self.delivered > self.app_limited {
            self.app_limited = 0;
        }
        let Newest { record, ack_elapsed, .. } = report.newest.take()?;
        // Nothing is delivered faster than it was sent: the slower one of both rates counts.
        let interval = record.sent_at.since(record.first_sent_at).max(ack_elapsed);
        Some(RateSample {
            delivered: self.delivered.saturating_sub(record.delivered),
            interval,
            // s4.1.3.5: "the sender MAY choose to filter out implausible delivery rate samples", those of less than a round trip: they come from
            // acknowledgments of what was sent again although it had arrived.
            implausible: min_rtt.is_some_and(|min_rtt| interval < min_rtt),
            prior_delivered: record.delivered,
            lost: self.lost.saturating_sub(record.lost),
            tx_in_flight: record.tx_in_flight,
            app_limited: record.app_limited,
        })
    }

    /// Looks whether the sender has run out of data. To be called upon each write before it is queued, at the beginning of each acknowledgment, and
    /// of each timer that may send (s4.1.2.4).
    pub fn check(&mut self, supply: &Supply) {
        if supply.unsent == 0 && supply.pending == 0 && supply.in_flight < supply.cwnd && supply.to_resend == 0 {
            self.mark_app_limited(supply.in_flight);
        }
    }

    /// All that is sent before `in_flight` is delivered says less of the path than it could (MarkConnectionAppLimited).
    pub fn mark_app_limited(&mut self, in_flight: u64) {
        self.app_limited = self.delivered.saturating_add(in_flight).max(1);
    }

    /// Whether what is sent now is limited by the program.
    pub fn is_app_limited(&self) -> bool {
        self.app_limited != 0
    }
}
