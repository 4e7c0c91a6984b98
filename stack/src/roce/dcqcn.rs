//! DCQCN: congestion control of connections by ECN (Zhu and others, "Congestion Control for Large-Scale RDMA Deployments", SIGCOMM 2015; its sections are cited). A
//! switch marks packets as its queue grows; a receiver of marked packets tells their sender, by a congestion notification each so often (annex A17.9.3 of the
//! IBTA spec); and a sender that is told slows down, and becomes faster again by and by.
//!
//! It is off unless [`super::Tuning::dcqcn`] says otherwise. Then connections' requests and read responses are capable of ECN, and are sent at the connection's rate, by
//! the time that the adapter is given. Datagrams are neither marked nor paced.

use core::time::Duration;

use crate::time::Instant;

/// Differentiated services of notifications: class selector 6, as cards have it by default (`cnp_dscp` 48), without ECN.
pub(super) const NOTIFICATION_TRAFFIC_CLASS: u8 = 48 << 2;
/// Bytes of a notification's payload, which mean nothing.
pub(super) const NOTIFICATION_LEN: usize = 16;
/// The two bits of ECN in the traffic class (RFC 3168 s5).
const ECN_MASK: u8 = 3;
/// ECT(0), and that congestion was experienced.
const ECN_CAPABLE: u8 = 2;
const ECN_EXPERIENCED: u8 = 3;

/// One, as a fraction.
const ONE: u32 = 1 << 20;
/// Steps of a timer that are made up for at most, and how often it runs at most where that was not so.
const STEPS_MAX: u32 = 64;
const EVERY_MIN: Duration = Duration::from_micros(1);

/// The parameters. Those of [`Dcqcn::new`] are the paper's (s5, figure 14), for links of 40 Gb/s, but for the least rate, which is what ConnectX cards have by default
/// (`rpg_min_rate`). Cards' other defaults differ from the paper's, and between firmwares: NVIDIA's page "DCQCN CC Parameters" names them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dcqcn {
    /// The link's rate, at which connections begin, in bits per second.
    pub line_rate_bps: u64,
    /// No connection is made slower than this: 1 Mb/s.
    pub min_rate_bps: u64,
    /// The least time between two notifications to one connection (N; cards: `min_time_between_cnps`): 50 us.
    pub notify_every: Duration,
    /// How soon alpha falls without a notification (K; cards: `dce_tcp_rtt`): 55 us. More than `notify_every`.
    pub alpha_every: Duration,
    /// How much of alpha the last period makes up is 2^-v (g; cards: `dce_tcp_g`, as 1024 - 1024 g): 8, which is 1/256.
    pub gain_shift: u8,
    /// How soon the rate rises (T; cards: `rpg_time_reset`): 55 us.
    pub increase_every: Duration,
    /// After how many bytes it does, too (B; cards: `rpg_byte_reset`): 10 MB.
    pub increase_bytes: u64,
    /// How many rises of either kind only go back to where the rate was (F; cards: `rpg_threshold`): 5.
    pub recovery_steps: u32,
    /// By how much the rate aimed at rises then (R_AI; cards: `rpg_ai_rate`): 40 Mb/s.
    pub additive_bps: u64,
    /// By how much, times the number of such rises, once both kinds are beyond that (R_HAI; cards: `rpg_hai_rate`): 400 Mb/s. (The paper leaves it to QCN, which has ten
    /// times the other's.)
    pub hyper_bps: u64,
}

impl Dcqcn {
    /// The paper's parameters.
    pub const fn new(line_rate_bps: u64) -> Self {
        Self {
            line_rate_bps,
            min_rate_bps: 1_000_000,
            notify_every: Duration::from_micros(50),
            alpha_every: Duration::from_micros(55),
            gain_shift: 8,
            increase_every: Duration::from_micros(55),
            increase_bytes: 10_000_000,
            recovery_steps: 5,
            additive_bps: 40_000_000,
            hyper_bps: 400_000_000,
        }
    }

    /// The least rate that is in force: a rate of nothing would never send.
    const fn least(&self) -> u64 {
        if self.min_rate_bps == 0 { 1 } else { self.min_rate_bps }
    }
}

/// The traffic class of a packet that is capable of ECN.
pub(super) const fn capable(traffic_class: u8) -> u8 {
    traffic_class & !ECN_MASK | ECN_CAPABLE
}

/// Whether a packet was marked on its way.
pub(super) const fn is_marked(traffic_class: u8) -> bool {
    traffic_class & ECN_MASK == ECN_EXPERIENCED
}

/// The receiver's part (s3.1, notification point): one notification for all marks within a while.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Notifier {
    last: Option<Instant>,
    /// One is to be sent.
    pub(super) is_due: bool,
}

impl Notifier {
    pub(super) fn on_mark(&mut self, now: Instant, parameters: &Dcqcn) {
        if self.last.is_none_or(|last| now.since(last) >= parameters.notify_every) {
            (self.last, self.is_due) = (Some(now), true);
        }
    }
}

/// The sender's part (s3.1, reaction point): a connection that was told of congestion, until it has the link's rate again.
#[derive(Debug)]
pub(super) struct Rate {
    parameters: Dcqcn,
    /// R_C, in bits per second.
    current: u64,
    /// R_T, which it aims at.
    target: u64,
    /// How much congestion there is, of [`ONE`].
    alpha: u32,
    alpha_at: Instant,
    increase_at: Instant,
    bytes_left: u64,
    /// Rises since the last notification: by time, and by bytes.
    by_time: u32,
    by_bytes: u32,
    /// Nothing is sent before.
    next_at: Instant,
    /// Something waits for that.
    waits: bool,
}

impl Rate {
    /// Of a connection that is told for the first time.
    pub(super) fn new(now: Instant, parameters: &Dcqcn) -> Self {
        let line = parameters.line_rate_bps.max(parameters.least());
        let mut rate = Self {
            parameters: *parameters,
            current: line,
            target: line,
            alpha: ONE,
            alpha_at: now,
            increase_at: now,
            bytes_left: 0,
            by_time: 0,
            by_bytes: 0,
            next_at: now,
            waits: false,
        };
        rate.on_notification(now);
        rate
    }

    /// Slows down (equation 1), and begins to count anew.
    pub(super) fn on_notification(&mut self, now: Instant) {
        self.target = self.current;
        let cut = u128::from(self.current) * u128::from(self.alpha) / u128::from(2 * ONE);
        self.current = (self.current - cut as u64).max(self.parameters.least());
        self.alpha = self.alpha - (self.alpha >> self.parameters.gain_shift) + (ONE >> self.parameters.gain_shift);
        (self.by_time, self.by_bytes) = (0, 0);
        self.bytes_left = self.parameters.increase_bytes;
        self.alpha_at = now + self.parameters.alpha_every;
        self.increase_at = now + self.parameters.increase_every;
    }

    /// Whether nothing may be sent now. Then [`Rate::deadline`] says when.
    pub(super) fn is_held_back(&mut self, now: Instant) -> bool {
        self.waits = self.next_at > now;
        self.waits
    }

    /// So many bytes are sent now.
    pub(super) fn on_sent(&mut self, now: Instant, bytes: usize) {
        let ns = bytes as u64 * 8 * 1_000_000_000 / self.current.max(1);
        self.next_at = self.next_at.max(now) + Duration::from_nanos(ns);
        match self.bytes_left.checked_sub(bytes as u64).filter(|left| *left > 0) {
            Some(left) => self.bytes_left = left,
            None => {
                self.bytes_left = self.parameters.increase_bytes;
                self.by_bytes += 1;
                self.increase();
            }
        }
    }

    /// When [`Rate::on_timer`] has something to do.
    pub(super) fn deadline(&self) -> Instant {
        let timers = self.alpha_at.min(self.increase_at);
        if self.waits { timers.min(self.next_at) } else { timers }
    }

    /// Does what is due. Whether the link's rate is reached, and nothing is to be held back any more.
    pub(super) fn on_timer(&mut self, now: Instant) -> bool {
        // (However late it is, as many steps as there were: a process may have stood still.)
        for _ in 0..STEPS_MAX {
            if self.alpha_at > now {
                break;
            }
            self.alpha -= self.alpha >> self.parameters.gain_shift;
            self.alpha_at += self.parameters.alpha_every;
        }
        for _ in 0..STEPS_MAX {
            if self.increase_at > now {
                break;
            }
            self.by_time += 1;
            self.increase();
            self.increase_at += self.parameters.increase_every;
        }
        for (at, every) in [(&mut self.alpha_at, self.parameters.alpha_every), (&mut self.increase_at, self.parameters.increase_every)] {
            if *at <= now {
                *at = now + every.max(EVERY_MIN);
            }
        }
        self.waits &= self.next_at > now;
        self.current >= self.parameters.line_rate_bps
    }

    /// Becomes faster (figure 7): back to where it was, then beyond it, then by more each time.
    fn increase(&mut self) {
        let (few, many) = (self.by_time.min(self.by_bytes), self.by_time.max(self.by_bytes));
        let steps = self.parameters.recovery_steps;
        if few > steps {
            self.target = self.target.saturating_add(self.parameters.hyper_bps.saturating_mul(u64::from(few - steps)));
        } else if many >= steps {
            self.target = self.target.saturating_add(self.parameters.additive_bps);
        }
        self.target = self.target.min(self.parameters.line_rate_bps);
        // Rounded up, so that the target is reached.
        self.current = (self.target / 2 + self.current / 2 + 1).min(self.target).max(self.parameters.least());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GBPS: u64 = 1_000_000_000;
    const US: Duration = Duration::from_micros(1);

    fn rate() -> Rate {
        Rate::new(Instant::ZERO, &Dcqcn::new(10 * GBPS))
    }

    #[test]
    fn the_first_notification_halves_and_others_as_alpha_says() {
        let mut rate = rate();
        assert_eq!((rate.current, rate.target), (5 * GBPS, 10 * GBPS));
        // Alpha falls by 1/256 every 55 us, and the next notification cuts by half of it.
        for period in 1..=256 {
            rate.on_timer(Instant::ZERO + US * 55 * period);
        }
        let (before, alpha) = (rate.current, f64::from(rate.alpha) / f64::from(ONE));
        assert!((alpha - (255.0_f64 / 256.0).powi(256)).abs() < 0.01, "{alpha}");
        rate.on_notification(Instant::ZERO + US * 20_000);
        let cut = 1.0 - rate.current as f64 / before as f64;
        assert!((cut - alpha / 2.0).abs() < 0.001 && rate.target == before, "{cut}");
    }

    #[test]
    fn it_goes_back_to_where_it_was_then_beyond_then_faster() {
        let mut rate = rate();
        rate.on_notification(Instant::ZERO);
        rate.on_notification(Instant::ZERO);
        let target = rate.target;
        for step in 1..=4 {
            rate.on_timer(Instant::ZERO + US * 55 * step);
            assert_eq!(rate.target, target, "recovery");
        }
        // Half of what is missing each time.
        assert!(rate.current > target - target / 16 && rate.current < target);
        rate.on_timer(Instant::ZERO + US * 55 * 5);
        assert_eq!(rate.target, target + 40_000_000, "additive");
        for _ in 0..6 {
            rate.bytes_left = 1;
            rate.on_sent(Instant::ZERO, 1000);
        }
        let before = rate.target;
        rate.on_timer(Instant::ZERO + US * 55 * 6);
        assert_eq!(rate.target, before + 400_000_000, "hyper");
        let end = (7..10_000).find(|step| rate.on_timer(Instant::ZERO + US * 55 * *step));
        assert!(end.is_some() && rate.current == 10 * GBPS, "the link's rate is reached");
    }

    #[test]
    fn it_is_never_slower_than_the_least_rate_nor_stopped() {
        let mut rate = rate();
        (0..10_000).for_each(|_| rate.on_notification(Instant::ZERO));
        assert_eq!(rate.current, 1_000_000);
        let mut nothing = Rate::new(Instant::ZERO, &Dcqcn { line_rate_bps: 0, min_rate_bps: 0, ..Dcqcn::new(0) });
        nothing.on_sent(Instant::ZERO, 1);
        assert!(nothing.is_held_back(Instant::ZERO) && nothing.deadline() > Instant::ZERO);
        // A long rest is made up for in a bounded number of steps.
        rate.on_timer(Instant::ZERO + Duration::from_secs(1 << 20));
    }

    #[test]
    fn packets_go_at_their_rate() {
        let mut rate = rate();
        let (mut now, mut bytes) = (Instant::ZERO, 0);
        while now < Instant::ZERO + US * 50 {
            if rate.is_held_back(now) {
                now = rate.deadline();
                rate.on_timer(now);
                continue;
            }
            rate.on_sent(now, 1000);
            bytes += 1000;
        }
        // 5 Gb/s for 50 us.
        assert!((31_000..=33_000).contains(&bytes), "{bytes}");
    }

    #[test]
    fn marks_within_a_while_are_told_of_once() {
        let parameters = Dcqcn::new(GBPS);
        let mut notifier = Notifier::default();
        let told: Vec<u32> = (0..200)
            .filter(|us| {
                notifier.on_mark(Instant::ZERO + US * *us, &parameters);
                core::mem::take(&mut notifier.is_due)
            })
            .collect();
        assert_eq!(told, [0, 50, 100, 150]);
    }
}
