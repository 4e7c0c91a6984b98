//! Connections with something to send that waits for the peer, whose program has left the library: Nagle's algorithm, a window, a handshake.
//!
//! On the kernel, the peer's acknowledgment sends what was held, whatever the program does meanwhile. Here it is the progress thread that does
//! so: at its tick, which is late, or as soon as the frame comes, for which it must sleep on the armed ring. A call that leaves something held
//! therefore calls the thread, once; from then on the thread watches the ring until nothing is held any more. A program that makes
//! so many calls of this kind that the thread would do nothing else is served by the clock instead: often, but not for each frame.

use core::sync::atomic::{AtomicU8, Ordering};
use core::time::Duration;

use ringway_stack::ring::FlowId;
use ringway_stack::time::Instant;

use super::sleepers::DOZE;
use crate::process::Offload;

/// So many connections are looked after; of more, the oldest wait for the tick.
const WATCHED_MAX: usize = 64;

/// So many calls in a [`DOZE`] leave what is held to the ones after them, and to the clock: a program that writes as fast as it can has more of its
/// bytes in each segment so.
const CALLS_MAX: u32 = 16;

/// So many turns on behalf of what is held, and the thread goes by the clock for the rest of the [`PERIOD`].
const TURNS_MAX: u32 = 32;
const PERIOD: Duration = Duration::from_millis(10);

/// When the progress thread comes again that found the lock taken, or a frame just come.
pub(super) const AGAIN: Duration = Duration::from_micros(50);

/// The progress thread was called, and something is held still; and what it is to go by: a [`Watch`], or zero. (Outside the lock, which whoever
/// calls the thread holds when it comes.)
static CALLED: AtomicU8 = AtomicU8::new(0);

/// What the progress thread is to go by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Watch {
    /// The next frame.
    Ring = 1,
    /// A millisecond.
    Clock,
}

impl Watch {
    /// When the thread comes again that found the lock taken.
    pub(super) const fn again(self) -> Duration {
        match self {
            Self::Ring => AGAIN,
            Self::Clock => DOZE,
        }
    }
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct Held {
    connections: Vec<FlowId>,
    calls: Count,
    turns: Count,
}

/// How often something happened in a while.
#[derive(Debug, Default)]
struct Count {
    /// When the while began.
    since: Instant,
    count: u32,
}

impl Count {
    /// Counts one more, and says how many there have been.
    fn one(&mut self, now: Instant, period: Duration) -> u32 {
        if now.since(self.since) > period {
            *self = Self { since: now, count: 0 };
        }
        self.count += 1;
        self.count
    }

    /// How many there have been.
    fn so_far(&self, now: Instant, period: Duration) -> u32 {
        if now.since(self.since) > period { 0 } else { self.count }
    }
}

/// Whether the progress thread was called, and something is held still; and what it is to go by then.
pub(super) fn called() -> Option<Watch> {
    match CALLED.load(Ordering::Acquire) {
        0 => None,
        by if by == Watch::Clock as u8 => Some(Watch::Clock),
        _ => Some(Watch::Ring),
    }
}

impl Offload {
    /// A call is about to return that may have left a connection with something held. What has come from the peer by now is looked at
    /// first: mostly it is what was waited for.
    #[cold]
    pub(crate) fn watch_held(&mut self, now: Instant, id: FlowId) {
        let calls = self.mux.held.calls.one(now, DOZE);
        if calls > CALLS_MAX && self.mux.held.connections.contains(&id) {
            if calls == CALLS_MAX + 1 {
                // The thread, which finds the lock taken by these calls as often as not, is not to come again and again.
                CALLED.store(Watch::Clock as u8, Ordering::Release);
            }
            return;
        }
        self.catch_up(now);
        if !self.rings.of(id).is_held(id) {
            return;
        }
        let held = &mut self.mux.held;
        if !held.connections.contains(&id) {
            if held.connections.len() >= WATCHED_MAX {
                held.connections.remove(0);
            }
            held.connections.push(id);
        }
        // A thread that was called comes by itself until nothing is held any more.
        let called = CALLED.fetch_max(Watch::Ring as u8, Ordering::AcqRel) != 0;
        if self.rings.at(id.ring).watch.is_deep() {
            self.attend(now);
        } else if !called {
            self.rouse_progress(id.ring);
        }
    }

    /// What the progress thread is to go by on behalf of what is held, if anything is.
    pub(super) fn still_held(&mut self, now: Instant) -> Option<Watch> {
        let Self { mux, rings, .. } = self;
        let held = &mut mux.held;
        let rushes = held.calls.so_far(now, DOZE) > CALLS_MAX;
        // (What a program that writes as fast as it can has sent just now is followed by more, which would call the thread again.)
        held.connections.retain(|&id| rushes || rings.of(id).is_held(id));
        let by = match held.connections.is_empty() {
            true => None,
            false if held.turns.one(now, PERIOD) > TURNS_MAX || rushes => Some(Watch::Clock),
            false => Some(Watch::Ring),
        };
        CALLED.store(by.map_or(0, |by| by as u8), Ordering::Release);
        by
    }
}
