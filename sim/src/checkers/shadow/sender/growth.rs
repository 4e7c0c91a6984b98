//! How a congestion window grows and shrinks: NewReno's to the byte, CUBIC's at most.

use super::super::super::segment::before;
use super::State;

/// How much was on its way at a time, of late: as much of a window was used. What a sender takes for its last round trip lies within the last two of these.
#[derive(Debug, Default)]
pub(super) struct Used {
    /// The most of this round trip and of the one before, in bytes.
    most: [u32; 2],
    /// This round trip ends when everything before is acknowledged.
    to: Option<u32>,
}

impl Used {
    /// New bytes up to `end` were sent, while `una` was acknowledged for certain.
    pub(super) fn sent(&mut self, una: u32, end: u32) {
        let flight = end.wrapping_sub(una);
        if self.to.is_none_or(|to| !before(una, to)) {
            *self = Self { most: [flight, self.most[0]], to: Some(end) };
        } else if flight > self.most[0] {
            (self.most[0], self.to) = (flight, Some(end));
        }
    }

    pub(super) fn most(&self) -> u32 {
        self.most[0].max(self.most[1])
    }
}

impl State {
    /// RFC 5681 s3.1, with RFC 3465's count of bytes: `flight` was on its way in a round trip, at most, and `flight_least` at least. A window that was not used
    /// does not grow (RFC 7661 s1); so the one that grew more, by what is known of it, grows less later.
    pub(super) fn grow(&mut self, acked: u32, flight: u32, flight_least: u32) {
        let (acked, flight, mss) = (u64::from(acked), u64::from(flight), u64::from(self.mss));
        if !self.is_reno {
            return self.grow_at_most(acked, flight, mss);
        }
        let grows_surely = self.cwnd_least < self.ssthresh && 2 * u64::from(flight_least) > self.cwnd;
        if self.cwnd < self.ssthresh {
            if 2 * flight > self.cwnd_least {
                // "When cwnd and ssthresh are equal", either: no further than that.
                self.cwnd = (self.cwnd + acked).min(self.ssthresh);
            }
        } else if flight + mss > self.cwnd {
            self.counted += acked;
            if self.counted >= self.cwnd {
                self.counted -= self.cwnd;
                self.cwnd += mss;
            }
        }
        if grows_surely {
            self.cwnd_least = (self.cwnd_least + acked).min(self.ssthresh);
        }
    }

    /// The bounds of CUBIC: in slow start, which HyStart++ (RFC 9406) may slow down or end, as NewReno; then up to a target that is half as much more in a round
    /// trip (RFC 9438 s4.2), or in its Reno-friendly region by no more than NewReno (s4.3). A window of which less is used does not grow either.
    fn grow_at_most(&mut self, acked: u64, flight: u64, mss: u64) {
        let (grown, used) = match self.cwnd < self.ssthresh {
            true => (acked, 2 * flight + acked),
            false => (acked / 2 + mss.min(acked), flight + mss + acked),
        };
        self.cwnd = self.cwnd.max((self.cwnd + grown).min(used));
    }

    /// What a loss leaves of what was in flight: half (RFC 5681 s3.1), or seven tenths (RFC 9438 s4.6).
    pub(super) fn halve(&mut self, flight: u32) {
        let flight = u64::from(flight);
        let left = if self.is_reno { flight / 2 } else { flight * 7 / 10 };
        self.ssthresh = left.max(2 * u64::from(self.mss));
    }
}
