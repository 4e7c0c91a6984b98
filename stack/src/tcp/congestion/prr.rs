//! Proportional Rate Reduction (RFC 9937, which obsoletes RFC 6937): how a window-based controller gets from the flight that it had to the one
//! that it wants, in the course of a recovery, by sending for what arrives.

use super::control::WINDOW_MAX;
use crate::tcp::fields::{Fields, SnapshotError};

/// The state of one recovery.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Prr {
    /// The flight wanted at the end.
    ssthresh: u64,
    /// RecoverFS: what was in flight when recovery began, of which deliveries will be reported.
    recover_fs: u64,
    /// What was delivered since.
    delivered: u64,
    /// What was sent since, new or again.
    out: u64,
    mss: u64,
    cwnd: u64,
}

/// What an acknowledgment tells of a recovery.
#[derive(Clone, Copy, Debug, Default)]
pub struct Progress {
    /// DeliveredData: what it reports as received for the first time.
    pub delivered: u64,
    /// What is in the network after it.
    pub in_flight: u64,
    /// SND.UNA advanced.
    pub advanced: bool,
    /// It tells of a further loss.
    pub lost: bool,
}

impl Prr {
    /// Recovery begins with `flight` bytes between SND.UNA and SND.NXT, of which `sacked` are reported by SACK; the acknowledgment that began it
    /// reported `delivered` bytes for the first time. `cwnd` is the window that holds until it is worked in by [`Prr::on_ack`].
    ///
    /// RFC 9937 s6.1: RecoverFS leaves out what was reported before, since none of that will be delivered during recovery, and has in it what this
    /// acknowledgment reports, in order or by SACK.
    pub fn new(ssthresh: u64, cwnd: u64, flight: u64, sacked: u64, delivered: u64, mss: u64) -> Self {
        let recover_fs = flight.saturating_sub(sacked).saturating_add(delivered).max(1);
        Self { ssthresh, recover_fs, delivered: 0, out: 0, mss: mss.max(1), cwnd }
    }

    /// What it consists of, for a snapshot. (The segments' size follows from what both ends and the path take.)
    pub(super) fn walk(&mut self, fields: &mut impl Fields) -> Result<(), SnapshotError> {
        let Self { ssthresh, recover_fs, delivered, out, mss: _, cwnd } = self;
        for bytes in [ssthresh, recover_fs, cwnd] {
            fields.at_most(bytes, WINDOW_MAX)?;
        }
        *recover_fs = (*recover_fs).max(1);
        fields.long(delivered)?;
        fields.long(out)
    }

    /// The congestion window right now.
    #[inline]
    pub fn cwnd(&self) -> u64 {
        self.cwnd
    }

    /// RFC 9937 s6.3: whatever is sent during recovery counts, new or again.
    pub fn on_sent(&mut self, bytes: u64) {
        self.out = self.out.saturating_add(bytes);
    }

    /// RFC 9937 s6.2: on each acknowledgment that begins a recovery or comes during one.
    pub fn on_ack(&mut self, progress: &Progress) {
        if progress.delivered == 0 {
            return;
        }
        self.delivered = self.delivered.saturating_add(progress.delivered);
        let mut count = if progress.in_flight > self.ssthresh {
            // Proportional: for what arrives, so much of it as the flight is to become of what it was. Rounded up.
            let wanted = (u128::from(self.delivered) * u128::from(self.ssthresh)).div_ceil(u128::from(self.recover_fs));
            u64::try_from(wanted).unwrap_or(u64::MAX).saturating_sub(self.out)
        } else {
            // What was lost took more out of the flight than was wanted. Conservatively (PRR-CRB), for each byte that arrives one may go; where
            // recovery makes progress ("SafeACK"), it grows as in slow start (PRR-SSRB), and in neither case beyond what is wanted.
            let mut bound = self.delivered.saturating_sub(self.out).max(progress.delivered);
            if progress.advanced && !progress.lost {
                bound = bound.saturating_add(self.mss);
            }
            bound.min(self.ssthresh - progress.in_flight)
        };
        // The fast retransmission itself always goes.
        if self.out == 0 && count == 0 {
            count = self.mss;
        }
        self.cwnd = progress.in_flight.saturating_add(count).min(WINDOW_MAX);
    }

    /// The segment size changed.
    pub fn set_mss(&mut self, mss: u64) {
        self.mss = mss.max(1);
    }
}
