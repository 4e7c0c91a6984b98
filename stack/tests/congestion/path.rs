//! One bottleneck: a queue of bounded length in front of a line of constant rate, and a constant delay behind it.

use core::time::Duration;

use ringway_stack::Instant;

/// A small generator, so that a run replays from its seed.
pub(crate) struct Dice(pub u64);

impl Dice {
    pub(crate) fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % sides
    }
}

/// What a path is like.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PathConfig {
    /// Bytes per second.
    pub(crate) rate: u64,
    /// The round trip without a queue.
    pub(crate) rtt: Duration,
    /// Bytes that wait at most.
    pub(crate) buffer: u64,
    /// Segments lost by chance, of a million.
    pub(crate) loss_ppm: u64,
    /// Segments that find this much waiting are marked instead of passed on as they are.
    pub(crate) mark_at: Option<u64>,
    /// Acknowledgments come in bursts, at multiples of this.
    pub(crate) burst: Option<Duration>,
}

impl PathConfig {
    /// `mbit` megabits per second and `rtt_ms`, with a buffer of one bandwidth-delay product, but at least 20 segments.
    pub(crate) fn new(mbit: u64, rtt_ms: u64) -> Self {
        let rate = mbit * 125_000;
        let bdp = rate * rtt_ms / 1000;
        Self { rate, rtt: Duration::from_millis(rtt_ms), buffer: bdp.max(30_000), loss_ppm: 0, mark_at: None, burst: None }
    }

    /// The bandwidth-delay product.
    pub(crate) fn bdp(&self) -> u64 {
        self.rate * self.rtt.as_micros() as u64 / 1_000_000
    }
}

pub(crate) struct Path {
    pub(crate) config: PathConfig,
    dice: Dice,
    /// When the line has sent all that waits.
    free_at: Instant,
    pub(crate) dropped: u64,
    pub(crate) queue_max: u64,
    /// Sum of what each segment found waiting, and how many there were.
    queue_sum: u64,
    arrivals: u64,
}

/// A segment that got through.
pub(crate) struct Passed {
    /// When its acknowledgment is back.
    pub(crate) back_at: Instant,
    pub(crate) marked: bool,
}

impl Path {
    pub(crate) fn new(config: PathConfig, seed: u64) -> Self {
        Self { config, dice: Dice(seed), free_at: Instant::ZERO, dropped: 0, queue_max: 0, queue_sum: 0, arrivals: 0 }
    }

    /// Bytes that wait.
    fn waiting(&self, now: Instant) -> u64 {
        (self.free_at.since(now).as_nanos() * u128::from(self.config.rate) / 1_000_000_000) as u64
    }

    pub(crate) fn carry(&mut self, now: Instant, bytes: u64) -> Option<Passed> {
        let waiting = self.waiting(now);
        self.arrivals += 1;
        self.queue_sum += waiting;
        self.queue_max = self.queue_max.max(waiting);
        if self.dice.roll(1_000_000) < self.config.loss_ppm {
            return None;
        }
        if waiting + bytes > self.config.buffer {
            self.dropped += 1;
            return None;
        }
        let marked = self.config.mark_at.is_some_and(|mark_at| waiting >= mark_at);
        let takes = Duration::from_nanos(bytes * 1_000_000_000 / self.config.rate);
        self.free_at = self.free_at.max(now) + takes;
        let mut back_at = self.free_at + self.config.rtt;
        if let Some(burst) = self.config.burst {
            let burst = burst.as_nanos() as u64;
            back_at = Instant::from_nanos(back_at.as_nanos().div_ceil(burst) * burst);
        }
        Some(Passed { back_at, marked })
    }

    /// What a segment finds waiting, on average.
    pub(crate) fn queue_mean(&self) -> u64 {
        self.queue_sum / self.arrivals.max(1)
    }

    /// Forgets what was measured.
    pub(crate) fn measure_anew(&mut self) {
        (self.dropped, self.queue_max, self.queue_sum, self.arrivals) = (0, 0, 0, 0);
    }
}
