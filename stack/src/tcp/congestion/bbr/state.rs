//! What a flow keeps of its path and of where it is.

use core::time::Duration;

use crate::time::Instant;

/// Where in its state machine a flow is (s5.1.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The rate doubles with each round trip, until the path is full.
    Startup,
    /// The queue that this built drains.
    Drain,
    /// Slower than the path, to leave room.
    ProbeBwDown,
    /// As fast as the path.
    ProbeBwCruise,
    /// As fast as the path, with what was learnt of losses since the last probe forgotten.
    ProbeBwRefill,
    /// Faster than the path, to see whether there is more.
    ProbeBwUp,
    /// Half as much in flight, to see the round trip without a queue.
    ProbeRtt,
}

impl State {
    pub(super) fn is_probe_bw(self) -> bool {
        matches!(self, Self::ProbeBwDown | Self::ProbeBwCruise | Self::ProbeBwRefill | Self::ProbeBwUp)
    }

    /// IsProbingBW (s5.3.3.9).
    pub(super) fn is_probing_bw(self) -> bool {
        matches!(self, Self::Startup | Self::ProbeBwRefill | Self::ProbeBwUp)
    }
}

/// What acknowledgments mean for the probing of bandwidth (s2.14).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AckPhase {
    Init,
    Refilling,
    ProbeStarting,
    ProbeFeedback,
    ProbeStopping,
}

/// What the model says, for those who look on (as TCP_CC_INFO).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Info {
    /// Where in the state machine.
    pub state: State,
    /// BBR.max_bw, in bytes per second.
    pub max_bw: u64,
    /// BBR.bw: that, or less after losses.
    pub bw: u64,
    /// The shortest round trip, if any is known.
    pub min_rtt: Option<Duration>,
    /// Volume of data that is thought to be safe, by losses while bandwidth was probed.
    pub inflight_longterm: Option<u64>,
    /// The same by losses since the last probe.
    pub inflight_shortterm: Option<u64>,
    /// What aggregation on the path adds to the window.
    pub extra_acked: u64,
    /// In percent.
    pub pacing_gain: u64,
    /// In percent.
    pub cwnd_gain: u64,
    /// Whether the path was ever full.
    pub full_bw_reached: bool,
}

/// BBR.full_bw and its like (s2.13).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct FullPipe {
    pub(super) reached: bool,
    pub(super) now: bool,
    pub(super) bw: u64,
    pub(super) count: u32,
}

/// The state of the cycle in ProbeBW (s2.14).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cycle {
    pub(super) ack_phase: AckPhase,
    pub(super) is_bw_probe_sample: bool,
    pub(super) up_acked: u64,
    pub(super) up_acked_per_inc: u64,
    pub(super) up_rounds: u32,
    pub(super) rounds_since_up: u64,
    pub(super) wait: Duration,
    pub(super) stamp: Instant,
    pub(super) prev_too_high: bool,
    pub(super) prev_precautionary: bool,
}

/// What was, before a loss (s2.15).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Saved {
    pub(super) state: Option<State>,
    pub(super) bw_shortterm: u64,
    pub(super) inflight_shortterm: u64,
    pub(super) inflight_longterm: u64,
}

/// The shortest round trips, and ProbeRTT (s2.16).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RttProbe {
    pub(super) min_rtt: Duration,
    pub(super) min_rtt_at: Instant,
    pub(super) min_delay: Duration,
    pub(super) min_delay_at: Instant,
    pub(super) expired: bool,
    pub(super) done_at: Option<Instant>,
    pub(super) round_done: bool,
}

/// Counting of round trips by segments (s5.5.1), and of those that began with a loss (s5.5.10.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Rounds {
    pub(super) next_delivered: u64,
    pub(super) start: bool,
    pub(super) count: u64,
    pub(super) loss_delivered: u64,
    pub(super) loss_start: bool,
    pub(super) loss_in_round: bool,
    /// Ranges that were lost in the round and do not touch (s5.3.1.3), and where the last of them ends.
    pub(super) loss_ranges: u32,
    pub(super) loss_end: u64,
}
