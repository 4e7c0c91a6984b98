//! Signs of life of a process that ends: it waits for its peers, and a thread of the program's in a signal handler for it.

use core::sync::atomic::{AtomicU32, Ordering};
use core::time::Duration;
use std::time::Instant;

/// Moves while [`super::finish`] is alive; [`FINISHED`] once another thread has run it for one that could not.
static PULSE: AtomicU32 = AtomicU32::new(0);
const FINISHED: u32 = u32::MAX;

/// Moves while peers take what the process waits for.
static BEATS: AtomicU32 = AtomicU32::new(0);

/// How often a wait without progress gives a sign of life.
const SIGN: Duration = Duration::from_millis(500);

/// Something went on that the end of the process may be waiting for.
pub(crate) fn pulse() {
    BEATS.fetch_add(1, Ordering::AcqRel);
    live();
}

fn live() {
    let next = |beat: u32| (beat != FINISHED).then(|| (beat + 1) % FINISHED);
    if PULSE.fetch_update(Ordering::AcqRel, Ordering::Relaxed, next).is_ok() {
        wake_the_waiting();
    }
}

/// Before another thread is asked to end the process.
pub(super) fn begin() {
    PULSE.store(0, Ordering::Relaxed);
}

/// It has done so.
pub(super) fn finished() {
    PULSE.store(FINISHED, Ordering::Release);
    wake_the_waiting();
}

/// Waits for that: for so long in all, and without a sign of life only for `still`.
pub(super) fn await_finished(in_all: Duration, still: Duration) {
    let started = Instant::now();
    while started.elapsed() < in_all {
        let seen = PULSE.load(Ordering::Acquire);
        if seen == FINISHED || !moves(seen, still) {
            return;
        }
    }
}

/// Sleeps until the pulse is no longer `seen`. `false`: it stood still for so long.
fn moves(seen: u32, still: Duration) -> bool {
    let timeout = libc::timespec { tv_sec: still.as_secs().cast_signed(), tv_nsec: still.subsec_nanos().into() };
    let op = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: the word is a static, and the time is valid.
    let result = unsafe { libc::syscall(libc::SYS_futex, PULSE.as_ptr(), op, seen, &raw const timeout) };
    result == 0 || crate::errno::current() != libc::ETIMEDOUT
}

fn wake_the_waiting() {
    // SAFETY: the word is a static; FUTEX_WAKE reads nothing else.
    unsafe { libc::syscall(libc::SYS_futex, PULSE.as_ptr(), libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG, i32::MAX) };
}

/// How long something waits for peers, whatever it waits for in turn: for so long in all, and less without progress.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    end: Instant,
    /// The last progress.
    last: Instant,
    beat: u32,
    /// The last sign of life.
    sign: Instant,
}

impl Patience {
    /// Until so much time has passed.
    pub(crate) fn of(in_all: Duration) -> Self {
        let now = Instant::now();
        Self { end: now + in_all, last: now, beat: BEATS.load(Ordering::Acquire), sign: now }
    }

    /// A wait of its own, that leaves so much time for what comes after it.
    pub(crate) fn less(&self, reserve: Duration) -> Self {
        let now = Instant::now();
        Self { end: self.end.checked_sub(reserve).unwrap_or(now), last: now, ..*self }
    }

    /// Whether it lasts. Without progress, it does only for `still`.
    pub(crate) fn lasts(&mut self, still: Duration) -> bool {
        let now = Instant::now();
        let beat = BEATS.load(Ordering::Acquire);
        if beat != self.beat {
            (self.beat, self.last) = (beat, now);
        }
        if now.duration_since(self.sign) > SIGN {
            self.sign = now;
            live();
        }
        now < self.end && now.duration_since(self.last) < still
    }

    /// How long there was no progress, when it was last looked at.
    pub(super) fn stood_still(&self) -> Duration {
        self.last.elapsed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patience_is_over_without_progress_and_in_all() {
        let (long, moment) = (Duration::from_secs(60), Duration::from_millis(5));
        let mut patience = Patience::of(long);
        assert!(patience.lasts(long));
        std::thread::sleep(moment);
        pulse();
        assert!(patience.lasts(moment), "something went on");
        assert!(!patience.less(long).lasts(long), "nothing is left beyond the reserve");
        let mut short = Patience::of(moment);
        std::thread::sleep(moment);
        pulse();
        assert!(!short.lasts(long), "however much goes on");
    }
}
