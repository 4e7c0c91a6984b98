//! Episodes of a link: it is slower for a while, narrower, carries shorter packets only, or none.

use core::time::Duration;

use super::LinkConfig;
use crate::faults::{FaultSet, Mishap};
use crate::random::{SplitMix, scale};

/// The classes whose episodes are a link's own: they change its [`Conditions`], and nothing else.
pub(crate) const WEATHER: FaultSet = FaultSet::DELAY.union(FaultSet::BANDWIDTH).union(FaultSet::MTU).union(FaultSet::FLAP);

/// What an episode makes of a link while it lasts. The default: nothing.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Conditions {
    /// In place of the configured one, if less.
    pub(crate) bandwidth_bps: Option<u64>,
    /// In place of the configured one, if less.
    pub(crate) queue_bytes_max: Option<usize>,
    /// On top of the configured latency, and the jitter on top of that.
    pub(crate) delay: Option<(Duration, Duration)>,
    /// In place of the configured one, if less.
    pub(crate) mtu: Option<u16>,
    /// There is no carrier.
    pub(crate) down: bool,
}

impl Conditions {
    /// An episode begins.
    pub(crate) fn begin(&mut self, mishap: Mishap) {
        match mishap {
            Mishap::Delayed { by, jitter } => self.delay = Some((by, jitter)),
            Mishap::Squeezed { bps, queue } => (self.bandwidth_bps, self.queue_bytes_max) = (Some(bps), Some(queue)),
            Mishap::PathShrank { mtu } => self.mtu = Some(mtu),
            Mishap::CarrierLost => self.down = true,
            _ => {}
        }
    }

    /// An episode of `class` ends.
    pub(crate) fn end(&mut self, class: FaultSet) {
        match class {
            FaultSet::DELAY => self.delay = None,
            FaultSet::BANDWIDTH => (self.bandwidth_bps, self.queue_bytes_max) = (None, None),
            FaultSet::MTU => self.mtu = None,
            FaultSet::FLAP => self.down = false,
            _ => {}
        }
    }
}

impl LinkConfig {
    /// What an episode of `class`, one of [`WEATHER`], makes of such a link, as `detail` has it.
    pub(crate) fn episode(&self, class: FaultSet, detail: u64) -> Mishap {
        let mut dice = SplitMix(detail);
        let mut part = |of: Duration| of.mul_f64(scale(dice.next(), 1 << 20) as f64 / f64::from(1 << 20));
        match class {
            FaultSet::DELAY => Mishap::Delayed { by: part(self.faults.delay_max), jitter: self.faults.jitter_max },
            FaultSet::BANDWIDTH => {
                let (bps, queue) = (self.bandwidth_bps.unwrap_or(10_000_000_000), self.queue_bytes_max);
                let queue_min = self.faults.queue_bytes_min.min(queue);
                Mishap::Squeezed {
                    bps: magnitude(dice.next(), self.faults.bandwidth_bps_min.min(bps), bps),
                    queue: queue_min + usize::try_from(scale(dice.next(), (queue - queue_min) as u64)).unwrap_or(0),
                }
            }
            FaultSet::MTU => {
                let least = self.faults.mtu_min.max(576);
                Mishap::PathShrank { mtu: least + u16::try_from(scale(dice.next(), u64::from(1500u16.saturating_sub(least)))).unwrap_or(0) }
            }
            _ => Mishap::CarrierLost,
        }
    }
}

/// A number from `low` to `high`, each order of magnitude as likely as any other.
fn magnitude(bits: u64, low: u64, high: u64) -> u64 {
    let (low_log, high_log) = (low.max(1).ilog2(), high.max(1).ilog2());
    let mut dice = SplitMix(bits);
    let base = 1u64 << (low_log + u32::try_from(scale(dice.next(), u64::from(high_log - low_log + 1))).unwrap_or(0));
    (base + scale(dice.next(), base)).clamp(low, high)
}
