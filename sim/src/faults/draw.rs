//! Strengths drawn at random: every class at once, for [`Faults::only`] and [`HostFaults::only`] to choose from. Most are such that
//! ordinary programs still get done; magnitudes are uniform, so that rare and frequent faults are equally common.

use core::time::Duration;

use super::{Episodes, Faults, HostFaults};
use crate::random::RandomStream;

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;

impl Faults {
    /// Draws all strengths of a link. Always takes the same number of values from `stream`.
    #[must_use]
    pub fn draw(stream: &mut RandomStream) -> Self {
        Self {
            loss_ppm: ppm(stream, 1_000, 250_000),
            duplication_ppm: ppm(stream, 1_000, 250_000),
            duplication_delay_max: time(stream, 1_000, 300 * MS),
            reordering_ppm: ppm(stream, 1_000, 250_000),
            reordering_delay_max: time(stream, 1_000, 300 * MS),
            corruption_ppm: ppm(stream, 1_000, 250_000),
            burst_ppm: ppm(stream, 200, 50_000),
            burst_frames: ppm(stream, 2, 64),
            burst_loss_ppm: ppm(stream, 250_000, 1_000_000),
            hidden_corruption_ppm: ppm(stream, 200, 100_000),
            delay: episodes(stream, 100 * MS, 10 * SECOND, 2 * SECOND),
            delay_max: time(stream, 10_000, 300 * MS),
            jitter_max: time(stream, 1_000, 100 * MS),
            bandwidth: episodes(stream, 100 * MS, 10 * SECOND, 2 * SECOND),
            bandwidth_bps_min: stream.magnitude(1_000_000, 100_000_000),
            queue_bytes_min: usize::try_from(stream.magnitude(4 << 10, 64 << 10)).unwrap_or(4 << 10),
            mtu: episodes(stream, 100 * MS, 10 * SECOND, 5 * SECOND),
            mtu_min: u16::try_from(stream.between(576, 1400)).unwrap_or(576),
            mtu_silence_ppm: stream.pick(&[0, 100_000, 500_000, 1_000_000]),
            partition: episodes(stream, 200 * MS, 20 * SECOND, 2 * SECOND),
            one_way: episodes(stream, 200 * MS, 20 * SECOND, 2 * SECOND),
            flap: episodes(stream, 200 * MS, 20 * SECOND, 2 * SECOND),
            icmp_delay_ppm: ppm(stream, 10_000, 1_000_000),
            icmp_delay_max: time(stream, MS, 5 * SECOND),
            mark_ppm: ppm(stream, 2_000, 500_000),
        }
    }
}

impl HostFaults {
    /// Draws all strengths of a host. Always takes the same number of values from `stream`.
    #[must_use]
    pub fn draw(stream: &mut RandomStream) -> Self {
        Self {
            clock: clock(stream),
            pause: episodes(stream, 100 * MS, 20 * SECOND, 3 * SECOND),
            crash: episodes(stream, 500 * MS, 20 * SECOND, 2 * SECOND),
            neighbour: episodes(stream, 200 * MS, 20 * SECOND, SECOND),
            icmp: episodes(stream, 10 * MS, SECOND, SECOND),
            forge_ppm: ppm(stream, 2_000, 250_000),
            forge_lies: stream.chance_ppm(250_000),
        }
    }
}

/// A clock that jumps now and then, or one that drifts: it gains up to a few thousandths, in steps that nobody could tell from that.
fn clock(stream: &mut RandomStream) -> Episodes {
    let jumps = episodes(stream, 200 * MS, 20 * SECOND, 5 * SECOND);
    let drift = Episodes { every: time(stream, 20 * MS, 200 * MS), length_max: time(stream, 1_000, 200_000) };
    if stream.chance_ppm(333_333) { drift } else { jumps }
}

fn ppm(stream: &mut RandomStream, low: u64, high: u64) -> u32 {
    u32::try_from(stream.magnitude(low, high)).unwrap_or(0)
}

fn time(stream: &mut RandomStream, low_ns: u64, high_ns: u64) -> Duration {
    Duration::from_nanos(stream.magnitude(low_ns, high_ns))
}

/// Episodes between `every_min` and `every_max` nanoseconds apart, of at most `length_max`.
fn episodes(stream: &mut RandomStream, every_min: u64, every_max: u64, length_max: u64) -> Episodes {
    Episodes { every: time(stream, every_min, every_max), length_max: time(stream, MS, length_max) }
}
