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

/// The same of a segment that is alone in the network, for as long as nothing is delivered or lost: the rest of its [`SendRecord`] follows from that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::tcp) struct Alone {
    pub(in crate::tcp) sent_at: Instant,
    app_limited: bool,
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
    #[inline(always)]
    pub(in crate::tcp) fn take(&mut self, sample: &Judged) {
        let &Judged { delivered, interval_ns, implausible, app_limited, .. } = sample;
        if implausible || interval_ns == 0 || app_limited && self.is_more_than(delivered, interval_ns) {
            return;
        }
        *self = Self { delivered, interval_ns, app_limited };
    }

    #[inline(never)]
    fn is_more_than(&self, delivered: u64, interval_ns: u64) -> bool {
        u128::from(delivered) * u128::from(self.interval_ns) < u128::from(self.delivered) * u128::from(interval_ns)
    }

    /// The rate alone.
    pub(in crate::tcp) fn summary(&self) -> Summary {
        Summary(per_second(self.delivered, Duration::from_nanos(self.interval_ns)) << 1 | u64::from(self.app_limited))
    }

    /// What it consists of, for a snapshot.
    pub(in crate::tcp) fn walk(&mut self, fields: &mut impl Fields) -> Result<(), SnapshotError> {
        let Self { delivered, interval_ns, app_limited } = self;
        fields.long(delivered)?;
        fields.long(interval_ns)?;
        fields.flag(app_limited)
    }
}

/// The same in few bytes: twice as many bytes per second, and one more if the program limited them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::tcp) struct Summary(u64);

impl Summary {
    /// In bytes per second; and whether the program limited it.
    pub(in crate::tcp) fn rate(self) -> (u64, bool) {
        (self.0 >> 1, self.0 & 1 == 1)
    }
}

impl From<Summary> for Latest {
    fn from(summary: Summary) -> Self {
        let (delivered, app_limited) = summary.rate();
        let interval_ns = if delivered > 0 { NS_PER_S as u64 } else { 0 };
        Self { delivered, interval_ns, app_limited }
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

/// Of the segments that one acknowledgment reports, the one sent last: when that was, and what had been delivered and lost by then.
#[derive(Clone, Copy, Debug)]
struct Newest {
    sent_at: Instant,
    id: u64,
    /// See [`RateSample::interval`].
    interval_ns: u64,
    delivered: u64,
    lost: u64,
    tx_in_flight: u64,
    app_limited: bool,
}

/// A [`RateSample`] whose time is in nanoseconds: it is looked at far more often than anybody asks for it in seconds.
#[derive(Clone, Copy, Debug)]
pub(in crate::tcp) struct Judged {
    delivered: u64,
    interval_ns: u64,
    implausible: bool,
    prior_delivered: u64,
    lost: u64,
    tx_in_flight: u64,
    app_limited: bool,
}

impl From<Judged> for RateSample {
    #[inline(always)]
    fn from(judged: Judged) -> Self {
        let Judged { delivered, interval_ns, implausible, prior_delivered, lost, tx_in_flight, app_limited } = judged;
        let interval = Duration::from_nanos(interval_ns);
        Self { delivered, interval, implausible, prior_delivered, lost, tx_in_flight, app_limited }
    }
}

/// What one acknowledgment reports, segment by segment.
#[derive(Clone, Copy, Debug, Default)]
pub struct Report {
    newest: Option<Newest>,
}

impl Report {
    /// Whether there is nothing in it.
    #[inline(always)]
    pub(in crate::tcp) fn is_empty(&self) -> bool {
        self.newest.is_none()
    }
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

    /// One that goes on with nothing in flight, after so much was delivered, and with nothing to send so far. (How much was lost before no sample covers.)
    pub(in crate::tcp) fn after_a_rest(delivered: u64) -> Self {
        Self { delivered, app_limited: delivered.max(1), ..Self::default() }
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
        // (Places in the stream go on from here after a rest.)
        fields.count_of(delivered)?;
        fields.long(lost)?;
        fields.long(app_limited)?;
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

    /// [`RateSampler::on_sent`], with nothing in the network without it.
    #[inline(always)]
    pub(in crate::tcp) fn on_sent_alone(&mut self, departure: Instant) -> Alone {
        (self.first_sent_at, self.delivered_at) = (departure, departure);
        Alone { sent_at: departure, app_limited: self.app_limited != 0 }
    }

    /// What [`RateSampler::on_sent`] would have given.
    pub(in crate::tcp) fn record_of(&self, alone: &Alone, bytes: u64) -> SendRecord {
        let &Alone { sent_at, app_limited } = alone;
        let (delivered, lost) = (self.delivered, self.lost);
        SendRecord { sent_at, delivered, delivered_at: sent_at, first_sent_at: sent_at, lost, tx_in_flight: bytes, app_limited }
    }

    /// All `bytes` of it are delivered, and with a round trip that is measured already. What [`RateSampler::judge`] would give.
    #[inline(always)]
    pub(in crate::tcp) fn on_delivered_alone(&mut self, now: Instant, alone: &Alone, bytes: u64, shortest_ns: u64) -> Judged {
        let (prior_delivered, interval_ns) = (self.delivered, now.as_nanos().saturating_sub(alone.sent_at.as_nanos()));
        self.on_older_delivered(bytes);
        (self.delivered_at, self.first_sent_at) = (now, alone.sent_at);
        self.pass_bubble();
        let implausible = shortest_ns != u64::MAX && interval_ns < shortest_ns;
        let (delivered, app_limited) = (self.delivered - prior_delivered, alone.app_limited);
        Judged { delivered, interval_ns, implausible, prior_delivered, lost: 0, tx_in_flight: bytes, app_limited }
    }

    /// Whether what has been delivered ends that samples are limited by the program.
    #[inline(always)]
    fn pass_bubble(&mut self) {
        if self.app_limited != 0 && self.delivered > self.app_limited {
            self.app_limited = 0;
        }
    }

    /// A segment of `bytes` is reported as received, in order or by SACK, for the first time. `id` orders segments that were sent at one time,
    /// such as its last byte's position. (UpdateRateSample, s4.1.2.3.)
    #[inline]
    pub fn on_delivered(&mut self, report: &mut Report, now: Instant, record: &SendRecord, bytes: u64, id: u64) {
        if report.newest.is_none_or(|newest| (record.sent_at, id) > (newest.sent_at, newest.id)) {
            self.on_newest_delivered(report, now, record, bytes, id);
        } else {
            self.on_older_delivered(bytes);
            self.delivered_at = now;
        }
    }

    /// The same, of a segment that was sent after all that `report` has.
    #[inline(always)]
    pub(in crate::tcp) fn on_newest_delivered(&mut self, report: &mut Report, now: Instant, record: &SendRecord, bytes: u64, id: u64) {
        self.on_older_delivered(bytes);
        self.delivered_at = now;
        self.first_sent_at = record.sent_at;
        let &SendRecord { sent_at, delivered, delivered_at, first_sent_at, lost, tx_in_flight, app_limited } = record;
        // Nothing is delivered faster than it was sent: the slower one of both rates counts.
        let elapsed = |from: Instant, to: Instant| to.as_nanos().saturating_sub(from.as_nanos());
        let interval_ns = elapsed(first_sent_at, sent_at).max(elapsed(delivered_at, now));
        report.newest = Some(Newest { sent_at, id, interval_ns, delivered, lost, tx_in_flight, app_limited });
    }

    /// The same, of one that was sent before another one that is reported now.
    #[inline(always)]
    pub(in crate::tcp) fn on_older_delivered(&mut self, bytes: u64) {
        self.delivered = self.delivered.saturating_add(bytes);
    }

    /// `bytes` are counted as lost.
    pub fn on_lost(&mut self, bytes: u64) {
        self.lost = self.lost.saturating_add(bytes);
    }

    /// What the acknowledgment tells, all of whose segments were given to [`RateSampler::on_delivered`] and whose losses to
    /// [`RateSampler::on_lost`]; `None`: it reported nothing. `min_rtt` is the shortest round trip ever seen. (GenerateRateSample, s4.1.2.3.)
    pub fn sample(&mut self, report: &mut Report, min_rtt: Option<Duration>) -> Option<RateSample> {
        let shortest_ns = min_rtt.map_or(u64::MAX, |min_rtt| u64::try_from(min_rtt.as_nanos()).unwrap_or(u64::MAX));
        self.judge(report, shortest_ns).map(RateSample::from)
    }

    /// [`RateSampler::sample`], with the largest number for a round trip that is not known.
    #[inline(always)]
    pub(in crate::tcp) fn judge(&mut self, report: &mut Report, shortest_ns: u64) -> Option<Judged> {
        self.pass_bubble();
        let newest = report.newest.take()?;
        Some(Judged {
            delivered: self.delivered.saturating_sub(newest.delivered),
            interval_ns: newest.interval_ns,
            // s4.1.3.5: "the sender MAY choose to filter out implausible delivery rate samples", those of less than a round trip: they come from
            // acknowledgments of what was sent again although it had arrived.
            implausible: shortest_ns != u64::MAX && newest.interval_ns < shortest_ns,
            prior_delivered: newest.delivered,
            lost: self.lost.saturating_sub(newest.lost),
            tx_in_flight: newest.tx_in_flight,
            app_limited: newest.app_limited,
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
