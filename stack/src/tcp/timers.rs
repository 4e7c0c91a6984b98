//! A connection's timers: plain deadlines, so that setting one is a store.

use super::fields::{Fields, SnapshotError};
use crate::time::Instant;

/// What a timer is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Timer {
    /// Something sent wasn't acknowledged (RFC 6298).
    Retransmit,
    /// The peer's window is shut (RFC 9293 s3.8.6.1).
    Persist,
    /// An acknowledgment waits for something to ride on.
    DelayedAck,
    /// The peer is silent.
    Keepalive,
    /// TIME-WAIT, or an orphan's FIN-WAIT-2, ends.
    Linger,
    /// A corked partial segment waited long enough.
    Cork,
    /// An idle connection lets go of buffers; a writer that found none may try again.
    Release,
    /// A smaller path MTU was believed long enough (RFC 1191 s6.3).
    PathMtu,
    /// The congestion controller's pace lets the next segment go.
    Pace,
}

const COUNT: usize = Timer::Pace as usize + 1;
const NEVER: u64 = u64::MAX;

/// The deadlines in nanoseconds, one for each [`Timer`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Timers {
    at: [u64; COUNT],
    /// The earliest deadline set since [`Timers::take_sooner`], whether or not it was stopped again.
    sooner: u64,
}

impl Timers {
    pub(super) const ALL: [Timer; COUNT] = [
        Timer::Retransmit,
        Timer::Persist,
        Timer::DelayedAck,
        Timer::Keepalive,
        Timer::Linger,
        Timer::Cork,
        Timer::Release,
        Timer::PathMtu,
        Timer::Pace,
    ];

    pub(super) const fn new() -> Self {
        Self { at: [NEVER; COUNT], sooner: NEVER }
    }

    /// Those with their deadlines ([`Instant::MAX`]: not set), as if they had been set long ago.
    pub(super) fn only(set: &[(Timer, Instant)]) -> Self {
        let mut timers = Self::new();
        set.iter().for_each(|&(timer, at)| timers.at[timer as usize] = at.as_nanos());
        timers
    }

    /// A timer's deadline; [`Instant::MAX`]: it is not set.
    pub(super) fn at(&self, timer: Timer) -> Instant {
        Instant::from_nanos(self.at[timer as usize])
    }

    /// What they consist of, for a snapshot.
    pub(super) fn walk(&mut self, fields: &mut impl Fields) -> Result<(), SnapshotError> {
        // (What was set lately is news to the ring that takes them: see [`Timers::resume`].)
        let Self { at, sooner: _ } = self;
        at.iter_mut().try_for_each(|at| fields.long(at))
    }

    /// As they were elsewhere, and all of them set just now.
    pub(super) fn resume(&mut self, from: &Self) {
        *self = from.clone();
        self.sooner = self.at.iter().copied().min().unwrap_or(NEVER);
    }

    #[inline]
    pub(super) fn set(&mut self, timer: Timer, at: Instant) {
        self.at[timer as usize] = at.as_nanos();
        self.sooner = self.sooner.min(at.as_nanos());
    }

    /// Sets a timer that isn't set.
    #[inline]
    pub(super) fn start(&mut self, timer: Timer, at: Instant) {
        if !self.is_set(timer) {
            self.set(timer, at);
        }
    }

    #[inline]
    pub(super) fn stop(&mut self, timer: Timer) {
        self.at[timer as usize] = NEVER;
    }

    #[inline]
    pub(super) fn is_set(&self, timer: Timer) -> bool {
        self.at[timer as usize] != NEVER
    }

    /// Stops `timer` if it is due, and tells whether it was.
    pub(super) fn expired(&mut self, timer: Timer, now: Instant) -> bool {
        let due = self.at[timer as usize] <= now.as_nanos();
        if due {
            self.stop(timer);
        }
        due
    }

    /// The earliest deadline that was set since the last call.
    #[inline]
    pub(super) fn take_sooner(&mut self) -> Option<Instant> {
        let sooner = core::mem::replace(&mut self.sooner, NEVER);
        (sooner != NEVER).then_some(Instant::from_nanos(sooner))
    }

    /// The ring has yet to hear of this deadline.
    #[cfg(feature = "mutants")]
    pub(super) fn hasten(&mut self, at: Instant) {
        self.sooner = self.sooner.min(at.as_nanos());
    }

    /// The earliest deadline.
    pub(super) fn next(&self) -> Option<Instant> {
        let mut next = NEVER;
        for &at in &self.at {
            next = next.min(at);
        }
        (next != NEVER).then_some(Instant::from_nanos(next))
    }
}
