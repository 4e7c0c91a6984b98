//! Packet pacing: a token bucket for a send queue, and for each of its flows that has a rate.

use ringway_stack::Instant;
use ringway_stack::device::Pacing;

/// A bucket of `burst` bytes that fills at `rate`. It is kept as the time at which it will be full, in picoseconds: nothing is lost to
/// rounding at any rate.
#[derive(Clone, Debug)]
pub struct Bucket {
    /// Picoseconds that a byte takes.
    byte_ps: u128,
    burst_bytes: u128,
    full_at_ps: u128,
}

impl Bucket {
    /// The bucket, full; none if the rate is not limited. A burst of zero is one packet: the typical one, or of `frame_max` bytes.
    pub fn new(pacing: Pacing, frame_max: usize) -> Option<Self> {
        // A bit a second is a byte in 8 * 10^12 ps.
        let byte_ps = 8_000_000_000_000u128.div_ceil(u128::from(pacing.rate_bps).max(1));
        let one_packet = match pacing.typical_packet_bytes {
            0 => frame_max as u128,
            typical => u128::from(typical),
        };
        let burst_bytes = if pacing.burst_bytes == 0 { one_packet } else { u128::from(pacing.burst_bytes) };
        (pacing.rate_bps > 0).then_some(Self { byte_ps, burst_bytes, full_at_ps: 0 })
    }

    /// When a frame of `len` bytes may leave. One longer than the bucket waits until that is full.
    pub fn ready_at(&self, len: usize) -> Instant {
        let spare = self.burst_bytes.saturating_sub(len as u128) * self.byte_ps;
        let at_ps = self.full_at_ps.saturating_sub(spare);
        Instant::from_nanos(u64::try_from(at_ps.div_ceil(1000)).unwrap_or(u64::MAX))
    }

    /// A frame of `len` bytes leaves.
    pub fn take(&mut self, now: Instant, len: usize) {
        self.full_at_ps = self.full_at_ps.max(u128::from(now.as_nanos()) * 1000) + len as u128 * self.byte_ps;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// When each of `frames` leaves, all of them waiting from the start.
    fn departures(pacing: Pacing, frames: &[usize]) -> Vec<u64> {
        let mut bucket = Bucket::new(pacing, 1514).unwrap();
        let mut now = Instant::from_nanos(1_000_000);
        let mut leave = |&len: &usize| {
            now = now.max(bucket.ready_at(len));
            bucket.take(now, len);
            now.as_nanos() - 1_000_000
        };
        frames.iter().map(&mut leave).collect()
    }

    #[test]
    fn a_burst_goes_at_once_and_the_rest_at_the_rate() {
        // 8 Mbit/s: a byte a microsecond.
        let pacing = Pacing { rate_bps: 8_000_000, burst_bytes: 3_000, typical_packet_bytes: 0 };
        assert_eq!(departures(pacing, &[1_000; 6]), [0, 0, 0, 1_000_000, 2_000_000, 3_000_000]);
    }

    #[test]
    fn without_a_burst_the_typical_packet_is_one() {
        let pacing = Pacing { rate_bps: 8_000_000, burst_bytes: 0, typical_packet_bytes: 500 };
        assert_eq!(departures(pacing, &[500, 500, 250, 250]), [0, 500_000, 750_000, 1_000_000]);
        // Longer than the bucket: whenever that is full, and the debt is paid off.
        assert_eq!(departures(pacing, &[1_000, 500]), [0, 1_000_000]);
    }

    #[test]
    fn high_rates_lose_nothing_to_rounding() {
        // 100 Gbit/s: a 125-byte frame each 10 ns.
        let pacing = Pacing { rate_bps: 100_000_000_000, burst_bytes: 125, typical_packet_bytes: 0 };
        assert_eq!(departures(pacing, &[125; 1001])[1000], 10_000);
    }

    #[test]
    fn no_rate_is_no_limit() {
        assert!(Bucket::new(Pacing { rate_bps: 0, burst_bytes: 1, typical_packet_bytes: 1 }, 1514).is_none());
    }
}
