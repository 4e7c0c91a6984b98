//! Our receive window: how far it reaches, when it moves, and how large its buffer grows (Linux's dynamic right-sizing).

use core::time::Duration;

use super::fields::{Fields, SnapshotError};
use crate::mutants::{Mutant, Mutation};
use crate::time::Instant;
use crate::wire::tcp::SeqNumber;

/// Between two looks at how fast the reader is, at least.
const MEASURE_NS_MIN: u64 = 1_000_000;

/// The receive side's sequence numbers and buffer limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ReceiveWindow {
    /// `RCV.NXT`.
    pub(super) nxt: SeqNumber,
    /// The right edge that the peer was told. Invariant: never moves left.
    pub(super) adv: SeqNumber,
    /// What the last segment that we sent acknowledged.
    pub(super) wup: SeqNumber,
    /// Our shift count.
    pub(super) scale: u8,
    /// Bytes that may wait for the reader.
    limit: usize,
    limit_max: usize,
    /// Bytes that the reader took since `measured_at`.
    copied: usize,
    /// The most it took in one measurement.
    space: usize,
    measured_at: Instant,
    pub(super) mutation: Mutation,
}

impl ReceiveWindow {
    pub(super) fn new(now: Instant, (limit, limit_max): (usize, usize)) -> Self {
        let zero = SeqNumber(0);
        let mutation = Mutation::HEALTHY;
        Self { nxt: zero, adv: zero, wup: zero, scale: 0, limit, limit_max, copied: 0, space: limit / 2, measured_at: now, mutation }
    }

    /// The peer's first sequence number became known.
    pub(super) fn start(&mut self, nxt: SeqNumber) {
        self.nxt = nxt;
        self.wup = nxt;
        self.adv = nxt;
    }

    /// Whether nothing has been received yet since `begun`, and nobody has read.
    pub(super) fn is_new(&self, begun: Instant, limits: (usize, usize)) -> bool {
        let Self { nxt, adv, wup, scale, mutation, .. } = *self;
        *self == Self { nxt, adv, wup, scale, mutation, ..Self::new(begun, limits) }
    }

    /// Bytes that may wait for the reader.
    pub(super) fn limit(&self) -> usize {
        self.limit
    }

    /// The limit is what it was before.
    pub(super) fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
    }

    /// What it is for who reads no more: without how much was read lately.
    pub(super) fn without_measurement(&self) -> Self {
        Self { copied: 0, space: 0, measured_at: Instant::ZERO, ..*self }
    }

    /// What it consists of, for a snapshot. (The largest limit is the configuration's.)
    pub(super) fn walk(&mut self, fields: &mut impl Fields) -> Result<(), SnapshotError> {
        let Self { nxt, adv, wup, scale, limit, limit_max: _, copied, space, measured_at, mutation: _ } = self;
        for number in [nxt, adv, wup] {
            fields.number(number)?;
        }
        fields.byte(scale)?;
        for size in [limit, copied, space] {
            fields.size(size)?;
        }
        fields.instant(measured_at)
    }

    /// As it was elsewhere: what was expected next, offered and acknowledged, and how far its buffer had grown.
    pub(super) fn resume(&mut self, from: &Self) {
        let Self { nxt, adv, wup, scale, limit, limit_max: _, copied, space, measured_at, mutation: _ } = from;
        (self.nxt, self.adv, self.wup, self.scale) = (*nxt, *adv, *wup, *scale);
        (self.copied, self.space, self.measured_at) = (*copied, *space, *measured_at);
        if self.limit < self.limit_max {
            self.limit = (*limit).clamp(self.limit, self.limit_max);
        }
    }

    /// The program changed its limits. What was offered stays offered.
    pub(super) fn set_limits(&mut self, (limit, limit_max): (usize, usize)) {
        self.limit = if limit == limit_max { limit } else { self.limit.clamp(limit, limit_max.max(limit)) };
        self.limit_max = limit_max;
    }

    /// Bytes that the peer may send.
    #[inline]
    pub(super) fn offered(&self) -> usize {
        self.adv.since(self.nxt)
    }

    /// What to say in the next segment while `queued` bytes wait: the window field, and the right edge that it means.
    #[inline(always)]
    pub(super) fn select(&self, queued: usize, mss: usize) -> (u16, SeqNumber) {
        let unit = 1usize << self.scale;
        let offered = self.offered();
        let free = self.limit.saturating_sub(queued);
        // RFC 9293 s3.8.6.2.2: the edge moves by a segment or half the buffer, or not at all.
        let worthwhile = free >= mss.min(self.limit / 2) || self.mutation.is(Mutant::SillyWindowOffered);
        if self.mutation.is(Mutant::WindowOfWholeBuffer) {
            let open = self.limit.min(65_535 << self.scale) & !(unit - 1);
            return ((open >> self.scale) as u16, self.nxt + open);
        }
        let open = (free & !(unit - 1)).min(65_535 << self.scale);
        if worthwhile && (open >= offered || self.mutation.is(Mutant::SmallerBufferShrinksWindow)) {
            return ((open >> self.scale) as u16, self.nxt + open);
        }
        // What was offered stays so: rounded up, unless that would let a peer creep past the limit unit by unit. Then what is
        // said is less by a fraction of a unit (RFC 7323 s2.4), what is accepted isn't.
        let up = offered.div_ceil(unit) * unit;
        if queued + up <= self.limit + unit {
            (((up >> self.scale).min(65_535)) as u16, self.nxt + up)
        } else {
            ((offered >> self.scale).min(65_535) as u16, self.adv)
        }
    }

    /// As [`ReceiveWindow::select`], for a SYN, whose window is never scaled (RFC 7323 s2.2). (Bytes may wait that came with the peer's, and more may have been
    /// offered with the answer to them: RFC 7413.)
    pub(super) fn select_syn(&self, queued: usize) -> (u16, SeqNumber) {
        let scale = if self.mutation.is(Mutant::OwnSynWindowScaled) { self.scale } else { 0 };
        let open = self.limit.saturating_sub(queued).max(self.offered()).min(65_535);
        if scale > 0 {
            return ((open >> scale) as u16, self.nxt + open);
        }
        (open as u16, self.nxt + open)
    }

    /// Whether the reader made so much room that the peer should hear of it: at least twice what is left of the window,
    /// once that is at most half (Linux's `__tcp_cleanup_rbuf`), and worth a segment (RFC 9293 s3.8.6.2.2).
    #[inline(always)]
    pub(super) fn deserves_update(&self, queued: usize, mss: usize) -> bool {
        let offered = self.offered();
        // What is said is rounded to units, up or down. A sender that waits for half of the largest window it saw must not wait for
        // the fraction of a unit.
        let slack = 2usize << self.scale;
        if self.mutation.is(Mutant::WindowUpdatesTooOften) {
            return self.select(queued, mss).1.since(self.adv) > 0;
        }
        if self.mutation.is(Mutant::WindowUpdateOnlyWhenEmpty) && queued > 0 {
            return false;
        }
        2 * offered <= self.limit + slack && self.deserves_update_of(offered, slack, queued, mss)
    }

    /// At most half of the window is left.
    #[inline(never)]
    fn deserves_update_of(&self, offered: usize, slack: usize, queued: usize, mss: usize) -> bool {
        let (_, edge) = self.select(queued, mss);
        edge.since(self.nxt) + slack >= 2 * offered && edge.since(self.adv) + slack >= mss.min(self.limit / 2)
    }

    /// The reader took `n` bytes. Lets the buffer grow to twice what it takes in a round trip, and more while that grows
    /// (Linux's `tcp_rcv_space_adjust`). Whether it did.
    #[inline]
    pub(super) fn on_read(&mut self, now: Instant, n: usize, rtt: Duration, mss: usize) -> bool {
        self.copied += n;
        if self.limit >= self.limit_max || self.mutation.is(Mutant::BufferNeverGrows) {
            return false;
        }
        let elapsed = now.as_nanos().saturating_sub(self.measured_at.as_nanos());
        if elapsed < MEASURE_NS_MIN || elapsed < rtt.as_nanos() as u64 {
            return false;
        }
        let before = self.limit;
        self.adjust(mss);
        if !self.mutation.is(Mutant::ReadRateAccumulates) {
            self.copied = 0;
        }
        self.measured_at = now;
        self.limit > before
    }

    fn adjust(&mut self, mss: usize) {
        let (copied, space) = (self.copied, self.space.max(1));
        if copied <= space {
            return;
        }
        let window = 2 * copied + 16 * mss;
        let growth = (window as u64).saturating_mul((copied - space) as u64) / space as u64;
        let wanted = window.saturating_add(usize::try_from(growth).unwrap_or(usize::MAX).saturating_mul(2));
        let most = if self.mutation.is(Mutant::BufferGrowsPastMax) { usize::MAX } else { self.limit_max };
        self.limit = self.limit.max(wanted.min(most));
        self.space = copied;
    }
}
