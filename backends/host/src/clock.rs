//! The clock of the data path: the processor's time stamp counter where it is invariant, else CLOCK_MONOTONIC.
//!
//! Both give nanoseconds on CLOCK_MONOTONIC's scale, so that an [`Instant`] means the same in every process.

use core::time::Duration;

use ringway_stack::Instant;

/// How long the counter is compared with the system's clock, once, at the start. The reading error of both ends
/// (tens of nanoseconds) over this span is the clock's rate error: some 20 parts in a million.
const CALIBRATION: Duration = Duration::from_millis(1);

/// A clock that costs about ten nanoseconds a reading. A plain value: copy it, inherit it across fork.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    /// `None`: the counter is not usable.
    counter: Option<Counter>,
}

/// Invariant: `ns_per_tick_q32` is not zero.
#[derive(Clone, Copy, Debug)]
struct Counter {
    base_ticks: u64,
    base_ns: u64,
    /// Nanoseconds a tick, as a 32.32 fixed-point number.
    ns_per_tick_q32: u64,
}

impl Clock {
    /// Calibrates the counter (takes a millisecond), if the processor promises that it runs at one rate in every
    /// power state.
    pub fn new() -> Self {
        Self { counter: counter_is_invariant().then(Counter::calibrate).flatten() }
    }

    /// CLOCK_MONOTONIC itself.
    pub const fn system() -> Self {
        Self { counter: None }
    }

    /// The time.
    #[inline]
    pub fn now(&self) -> Instant {
        match &self.counter {
            Some(counter) => Instant::from_nanos(counter.now_ns()),
            None => Instant::from_nanos(system_ns()),
        }
    }

    /// Whether the processor's counter is read.
    pub const fn is_counter(&self) -> bool {
        self.counter.is_some()
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::new()
    }
}

impl Counter {
    #[inline]
    fn now_ns(&self) -> u64 {
        // Counters of two cores may differ by a few ticks: time never runs before the base.
        let ticks = read_counter().saturating_sub(self.base_ticks);
        let ns = (u128::from(ticks) * u128::from(self.ns_per_tick_q32)) >> 32;
        #[expect(clippy::cast_possible_truncation, reason = "64 bits of nanoseconds are 584 years")]
        let ns = ns as u64;
        self.base_ns + ns
    }

    fn calibrate() -> Option<Self> {
        let (first_ticks, first_ns) = paired_reading();
        let end_ns = first_ns + u64::try_from(CALIBRATION.as_nanos()).unwrap_or(u64::MAX);
        while system_ns() < end_ns {
            core::hint::spin_loop();
        }
        let (last_ticks, last_ns) = paired_reading();
        let ticks = last_ticks.checked_sub(first_ticks).filter(|&ticks| ticks > 0)?;
        let q32 = (u128::from(last_ns - first_ns) << 32) / u128::from(ticks);
        let ns_per_tick_q32 = u64::try_from(q32).ok().filter(|&q32| q32 > 0)?;
        Some(Self { base_ticks: last_ticks, base_ns: last_ns, ns_per_tick_q32 })
    }
}

/// Both clocks at one moment: of several tries, the one that the scheduler disturbed least.
fn paired_reading() -> (u64, u64) {
    (0..8)
        .map(|_| {
            let before = read_counter();
            let ns = system_ns();
            let after = read_counter();
            let width = after.saturating_sub(before);
            (width, before + width / 2, ns)
        })
        .min_by_key(|&(width, ..)| width)
        .map_or((0, 0), |(_, ticks, ns)| (ticks, ns))
}

/// CLOCK_MONOTONIC in nanoseconds.
fn system_ns() -> u64 {
    let mut ts = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `ts` is valid for writing. CLOCK_MONOTONIC always exists, so that the call cannot fail.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut ts) };
    u64::try_from(ts.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(ts.tv_nsec).unwrap_or(0)
}

cfg_if::cfg_if! {
    if #[cfg(target_arch = "x86_64")] {
        /// CPUID 8000_0007h EDX bit 8: "the TSC runs at a constant rate in all ACPI P-, C- and T-states" (Intel SDM vol. 3
        /// s19.17.1, AMD APM vol. 2 s13.2).
        fn counter_is_invariant() -> bool {
            use core::arch::x86_64::__cpuid;
            let extended_max = __cpuid(0x8000_0000).eax;
            extended_max >= 0x8000_0007 && __cpuid(0x8000_0007).edx & (1 << 8) != 0
        }

        #[inline]
        fn read_counter() -> u64 {
            // SAFETY: RDTSC has no preconditions in user mode unless CR4.TSD is set, which Linux only does on a program's request
            // (PR_SET_TSC); then the program's own use of the vDSO clock would fault as well.
            unsafe { core::arch::x86_64::_rdtsc() }
        }
    } else {
        /// aarch64's counter is invariant, but often counts at 25 MHz or so: its steps are longer than a call of the vDSO's clock takes.
        fn counter_is_invariant() -> bool {
            false
        }

        #[inline]
        fn read_counter() -> u64 {
            0
        }
    }
}

#[cfg(test)]
mod tests;
