//! Looking again and again, before a wait sleeps.

use core::time::Duration;

use ringway_host::sleep::yield_core;
use ringway_host::spin::{Limit, Spin, Step};
use ringway_stack::time::Instant;

use super::super::activity;
use super::super::thread::Thread;
use super::{Asked, SpinClass, Waited, Waiter, Waiting, ask_kernel, limit};
use crate::lock::Guard;
use crate::process::{Offload, Process};
use crate::rings::RingSet;

/// Looks at the rings in one hold of the lock, unless another thread asks for it. (Without pauses in between: on
/// recent processors a pause costs as much as a line's way from core to core.)
const LOOKS: u32 = 64;

/// A spin shorter than this needs no claim on its core.
const UNCLAIMED: Duration = Duration::from_micros(20);

/// A spin that has a signal mask of its own asks the kernel for signals so often.
const SIGNALS_EVERY: Duration = Duration::from_micros(100);

/// Looks at the ring again and again, and gives the time of the last look. `None`: the budget is spent.
pub(super) fn spin<'a, T>(
    waiter: &Waiter<'a>,
    held: Option<Guard<'a, Offload>>,
    w: &mut Waiting<'_>,
    spin: &mut Spin,
    check: &mut impl FnMut(&mut Offload, Instant) -> Option<T>,
) -> (Option<Waited<T>>, Instant) {
    let &Waiter { thread, process, marks, started } = waiter;
    if spin.step(started) == Step::Stop {
        return (None, started);
    }
    let ratio = match w.spin {
        SpinClass::Rx => process.params.rx_udp_poll_os_ratio,
        SpinClass::Select => process.params.select_poll_os_ratio,
    };
    let mut yields = Yields::new(process, w.spin);
    // What the user set is spun to the letter, on a taken core as well; but others give way to it.
    let exact = matches!(limit(process, w.spin), Limit::Exact(_));
    let mut claimed = false;
    let _spinning = Spinning { process, thread };
    // What happened since the first look, if that was in another hold of the lock, is looked at in the first round.
    let mut seen = activity().wrapping_sub(u64::from(held.is_none()));
    let mut offload = held.unwrap_or_else(|| process.lock());
    let rings = offload.rings_of(w);
    offload.begin_spin(thread, rings);
    let mut held = Some(offload).filter(|_| w.polls && !process.has_several_rings());
    // A signal that the mask lets through while the thread's own mask blocks it can only be noticed by the kernel.
    let mut next_ask = w.sigmask.map(|_| started);
    let ended = loop {
        let now = process.now();
        if let Some(found) = look(waiter, held.take(), w, now, &mut seen, check) {
            return (Some(found), now);
        }
        if thread.interrupted(marks, w.restart) {
            break Some(Waited::Interrupted);
        }
        if w.deadline.is_some_and(|deadline| deadline <= now) {
            // What the kernel has by now counts, however seldom it is asked.
            break Some(match ask_kernel(w) {
                Asked::Nothing => Waited::TimedOut,
                Asked::Ready => Waited::Kernel,
                Asked::Signal => Waited::Interrupted,
            });
        }
        let signals_are_due = next_ask.is_some_and(|next| next <= now);
        if signals_are_due || !w.kernel.is_empty() && thread.kernel_is_due(ratio) {
            next_ask = next_ask.map(|_| now + SIGNALS_EVERY);
            match ask_kernel(w) {
                Asked::Nothing => {}
                Asked::Ready => break Some(Waited::Kernel),
                Asked::Signal => break Some(Waited::Interrupted),
            }
        }
        if !claimed && now.since(started) > UNCLAIMED {
            claimed = true;
            if !process.lock().sit(thread) && !exact {
                spin.refused(now);
                break None;
            }
        }
        match yields.apply(spin.step(now)) {
            Step::Poll if process.state().has_waiters() => (0..16).for_each(|_| core::hint::spin_loop()),
            Step::Poll => {}
            Step::Yield => {
                yield_core();
                spin.yielded(now, process.now());
                if thread.has_moved() && !process.lock().sit(thread) && !exact {
                    spin.refused(now);
                    break None;
                }
            }
            Step::Stop => break None,
        }
    };
    let now = process.now();
    process.lock().end_spin(thread, now);
    (ended, now)
}

/// VMA_RX_POLL_YIELD: a receive lets others have the core after so many rounds, as well as from time to time.
struct Yields {
    every: u32,
    rounds: u32,
}

impl Yields {
    fn new(process: &Process, class: SpinClass) -> Self {
        Self { every: if class == SpinClass::Rx { process.params.rx_poll_yield } else { 0 }, rounds: 0 }
    }

    #[inline]
    fn apply(&mut self, step: Step) -> Step {
        if self.every == 0 || step != Step::Poll {
            return step;
        }
        self.rounds += 1;
        if self.rounds < self.every {
            return step;
        }
        self.rounds = 0;
        Step::Yield
    }
}

/// Ends a thread's spinning where a panic would leave it entered.
struct Spinning<'a> {
    process: &'a Process,
    thread: &'a Thread,
}

impl Drop for Spinning<'_> {
    #[inline]
    fn drop(&mut self) {
        if !self.thread.spinning.get().is_empty() {
            crate::boundary!((), self.process.lock().end_spin(self.thread, self.process.now()));
        }
    }
}

/// A few looks in one hold of the lock.
#[inline]
fn look<'a, T>(
    waiter: &Waiter<'a>,
    held: Option<Guard<'a, Offload>>,
    w: &Waiting<'_>,
    now: Instant,
    seen: &mut u64,
    check: &mut impl FnMut(&mut Offload, Instant) -> Option<T>,
) -> Option<Waited<T>> {
    let &Waiter { thread, process, .. } = waiter;
    if w.polls && !process.has_several_rings() {
        return look_by_polling(waiter, held, w, now, seen, check);
    }
    drop(held);
    let rings = thread.spinning.get();
    let by_rings = process.has_several_rings() && !rings.is_empty();
    if by_rings && activity() == *seen && !has_something(process, rings, now) {
        return None;
    }
    let mut offload = process.lock();
    let mut rings = rings;
    if process.has_several_rings() && activity() != *seen {
        // What the wait is for may have come onto another ring. (Unless a handler waited meanwhile, and took this wait for one that was left.)
        let wanted = offload.rings_of(w);
        if !rings.is_empty() && wanted != rings {
            offload.spin_elsewhere(thread, wanted, now);
        }
        rings = wanted;
    }
    let rings = if rings.is_empty() { offload.rings_of(w) } else { rings };
    for _ in 0..LOOKS {
        offload.poll_these(rings, now);
        let activity = activity();
        if activity != *seen {
            *seen = activity;
            if let Some(found) = w.look(&mut offload, now, check) {
                offload.end_spin(thread, now);
                return Some(found);
            }
        }
        if process.state().has_waiters() {
            break;
        }
    }
    None
}

/// The same where the check polls the process's one ring itself: what comes for it goes to it at once, and is no event for anybody.
#[inline]
fn look_by_polling<'a, T>(
    waiter: &Waiter<'a>,
    held: Option<Guard<'a, Offload>>,
    w: &Waiting<'_>,
    now: Instant,
    seen: &mut u64,
    check: &mut impl FnMut(&mut Offload, Instant) -> Option<T>,
) -> Option<Waited<T>> {
    let &Waiter { thread, process, .. } = waiter;
    let mut offload = held.unwrap_or_else(|| process.lock());
    for _ in 0..LOOKS {
        let activity = activity();
        if activity != *seen || offload.rings.first().ring.is_due(now) {
            *seen = activity;
            if let Some(found) = w.look(&mut offload, now, check) {
                offload.end_spin(thread, now);
                return Some(found);
            }
        }
        if process.state().has_waiters() {
            break;
        }
    }
    None
}

/// A few looks at the rings, by their own locks alone. Whether they have something to tell, which takes the process's lock.
fn has_something(process: &Process, rings: RingSet, now: Instant) -> bool {
    for _ in 0..LOOKS {
        for ring in rings.iter().filter_map(|ring| process.ring(ring)) {
            {
                let mut own = ring.lock();
                if own.ring.is_due(now) {
                    own.poll(now);
                }
                if own.has_events() {
                    return true;
                }
            }
            if ring.has_waiters() {
                // Whoever wants it may have the process's lock, which others wait for.
                (0..16).for_each(|_| core::hint::spin_loop());
                return false;
            }
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_receive_yields_as_often_as_it_is_told() {
        let steps = |every, step| {
            let mut yields = Yields { every, rounds: 0 };
            (0..100).filter(|_| yields.apply(step) == Step::Yield).count()
        };
        assert_eq!((steps(0, Step::Poll), steps(1, Step::Poll), steps(10, Step::Poll)), (0, 100, 10));
        assert_eq!((steps(1, Step::Stop), steps(10, Step::Yield)), (0, 100), "what is over is over");
    }
}
