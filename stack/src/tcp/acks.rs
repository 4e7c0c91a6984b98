//! When to acknowledge: at once, or later in the hope of something to ride on (RFC 9293 s3.8.6.3, Linux's quick-ACK and
//! interactive modes).

use super::fields::{Fields, SnapshotError};
use crate::time::Instant;

/// Acknowledgments sent at once at a connection's start, at most: the peer's slow start needs them (Linux's TCP_MAX_QUICKACKS).
const QUICK_MAX: u8 = 16;
/// The segment size assumed of a peer until it sends larger ones.
const MSS_ASSUMED: usize = 536;

/// What the program does with what it reads, as far as the delayed acknowledgments tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pattern {
    Unknown,
    /// It answers, so that acknowledgments ride on the answers.
    Interactive,
    /// It does not: an acknowledgment found nothing to ride on, and nothing has since.
    OneWay,
}

/// The acknowledgment policy of one connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AckPolicy {
    /// One must be sent now.
    pub(super) now: bool,
    /// It asks for an answer (RFC 5961 s3.2 and s4.2: who has reset the connection resets it again, with the right number).
    pub(super) asks: bool,
    /// So many more are sent at once.
    quick: u8,
    pattern: Pattern,
    /// The largest segment that the peer sent.
    pub(super) peer_mss: usize,
    /// How many of the peer's segments the one that is being received was: the device may have merged some.
    pub(super) segments: u16,
    /// Since the last acknowledgment, a segment had PSH: the end of something that the peer wrote.
    pub(super) pushed: bool,
    /// When bytes last arrived.
    data_at: Instant,
}

impl AckPolicy {
    pub(super) const fn new() -> Self {
        Self {
            now: false,
            asks: false,
            quick: QUICK_MAX,
            pattern: Pattern::Unknown,
            peer_mss: MSS_ASSUMED,
            segments: 1,
            pushed: false,
            data_at: Instant::ZERO,
        }
    }

    /// Whether nothing has been received yet.
    pub(super) fn is_new(&self) -> bool {
        *self == Self { segments: self.segments, ..Self::new() }
    }

    /// What it is for who receives no more: without what was learned of how the peer sends, but for the size of its segments.
    pub(super) fn without_habits(&self) -> Self {
        Self { now: self.now, asks: self.asks, peer_mss: self.peer_mss, ..Self::new() }
    }

    /// What it consists of, for a snapshot. (How many segments a frame was is of that frame.)
    pub(super) fn walk(&mut self, fields: &mut impl Fields) -> Result<(), SnapshotError> {
        let Self { now, asks, quick, pattern, peer_mss, segments: _, pushed, data_at } = self;
        for flag in [now, asks, pushed] {
            fields.flag(flag)?;
        }
        fields.byte(quick)?;
        fields.one_of(pattern, &[Pattern::Unknown, Pattern::Interactive, Pattern::OneWay])?;
        fields.size(peer_mss)?;
        fields.instant(data_at)
    }

    /// `len` bytes arrived in order; `unacknowledged` bytes have now. Whether to acknowledge at once.
    #[inline(always)]
    pub(super) fn on_data(&mut self, now: Instant, len: usize, unacknowledged: usize, quickack: bool) -> bool {
        self.data_at = now;
        let segment_len = if self.segments > 1 { len.div_ceil(usize::from(self.segments)) } else { len };
        if segment_len > self.peer_mss {
            self.peer_mss = segment_len;
        }
        // RFC 9293 s3.8.6.3: at least every second full-sized segment, however many of them came as one.
        if unacknowledged > self.peer_mss || quickack {
            return true;
        }
        if self.quick > 0 && self.pattern != Pattern::Interactive {
            self.quick -= 1;
            return true;
        }
        false
    }

    /// We send bytes, `within` so many nanoseconds of the peer's: an answer.
    #[inline]
    pub(super) fn on_answer(&mut self, now: Instant, within_ns: u64) {
        if self.pattern != Pattern::Interactive && now.as_nanos().saturating_sub(self.data_at.as_nanos()) < within_ns {
            self.pattern = Pattern::Interactive;
        }
    }

    /// A delayed acknowledgment found nothing to ride on.
    pub(super) fn on_delayed(&mut self) {
        self.now = true;
        self.pattern = Pattern::OneWay;
    }

    /// The program has read all that is there. Whether to acknowledge it at once (Linux's `__tcp_cleanup_rbuf`): a peer whose send
    /// buffer holds less than two of its segments sends no second one, and would get no further than a buffer in each
    /// delayed acknowledgment's time; and what a peer writes behind the end of something, Nagle's algorithm holds until then.
    #[inline]
    pub(super) fn on_drained(&self) -> bool {
        match self.pattern {
            Pattern::OneWay => true,
            Pattern::Unknown => self.pushed,
            Pattern::Interactive => false,
        }
    }
}
