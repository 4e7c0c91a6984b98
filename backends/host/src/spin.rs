//! How long a wait spins before it sleeps: a policy, not a loop.
//!
//! Spinning saves the microseconds of a sleep and a wake-up, and burns a core meanwhile; it pays where waits are short. So a
//! [`History`] keeps, for each place that waits, a budget that recent waits have earned: it begins small, grows while
//! waits end within it, and falls to nothing when they do not. The limits that a user sets (VMA_RX_POLL, VMA_SELECT_POLL)
//! are obeyed to the letter instead ([`Limit::Exact`]). One wait's spinning is a [`Spin`]: told the time, it says
//! what to do next. Where it spins is counted by [`Cores`]. Nothing here reads a clock; only [`current_core`] asks the kernel.

mod cores;

pub use cores::{CoreClaim, Cores, current_core};

use core::time::Duration;

use ringway_stack::Instant;

/// What a history begins with, and what a place that had stopped spinning begins with again.
const FIRST_NS: u64 = 50_000;

/// Waits that end within the budget may double it up to here, however short they are: a peer that answers within
/// microseconds may take a millisecond now and then without losing its partner's attention.
const COMFORT_NS: u64 = 2_000_000;

/// A wait that outlasted its budget by this little still earns one that would have caught it.
const NEAR_NS: u64 = 1_000_000;

/// Below this, spinning catches nothing that the first look did not.
const LEAST_NS: u64 = 5_000;

/// How often a spin that drags on lets others have the core: what the call costs is one part in a hundred.
const YIELD_EVERY_NS: u64 = 50_000;

/// The same where spinning goes on although a yield was found to have run somebody else.
const YIELD_EVERY_CONTENDED_NS: u64 = 3_000;

/// On a shared core, one wait spins no longer than this: what two cores exchange in that time is still caught.
const CONTENDED_NS: u64 = 2_000;

/// So many waits later, it is tried whether the core is still shared.
const CONTENDED_WAITS: u8 = 32;

/// After so many such spins that caught nothing, one after the other, waits sleep at once for as long as the core is taken to be shared; and of
/// those that come then, one more is tried each time that the core is found to be shared again.
const CONTENDED_IN_VAIN: u8 = 8;

/// A yield that took longer than this ran somebody else.
const YIELD_LONG_NS: u64 = 10_000;

/// The bound that applies to one kind of wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// Spin as the history suggests, never longer than this.
    Ceiling(Duration),
    /// Spin this long in every wait, whatever it brings. [`Duration::MAX`]: for ever.
    Exact(Duration),
}

impl Limit {
    /// From VMA's parameter, in microseconds (-1: for ever): `set` if the user gave it, else it is only a ceiling.
    pub fn from_vma(usec: i64, set: bool) -> Self {
        let duration = u64::try_from(usec).map_or(Duration::MAX, Duration::from_micros);
        if set { Self::Exact(duration) } else { Self::Ceiling(duration) }
    }
}

/// How a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// What it waited for came.
    Satisfied,
    /// It gave up: a timeout, or a signal.
    InVain,
}

/// What recent waits at one place have earned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct History {
    budget_ns: u64,
    /// Waits during which the core is taken to be shared.
    contended: u8,
    /// Spins on a shared core that caught nothing, since the last that did.
    in_vain: u8,
}

impl History {
    /// No waits yet: optimistic, but not by much.
    pub const fn new() -> Self {
        Self { budget_ns: FIRST_NS, contended: 0, in_vain: 0 }
    }

    /// How long the next wait may spin; zero: it sleeps at once.
    pub fn budget(&self, limit: Limit) -> Duration {
        match limit {
            Limit::Exact(duration) => duration,
            Limit::Ceiling(_) if self.contended > 0 && self.in_vain >= CONTENDED_IN_VAIN => Duration::ZERO,
            Limit::Ceiling(ceiling) if self.contended > 0 => Duration::from_nanos(self.budget_ns.min(CONTENDED_NS)).min(ceiling),
            Limit::Ceiling(ceiling) => Duration::from_nanos(self.budget_ns).min(ceiling),
        }
    }

    /// Whether [`History::ended`] would learn nothing from a wait that got, after `waited_ns`, what it waited for: so it is where one short
    /// wait follows another.
    #[inline]
    pub fn is_content(&self, waited_ns: u64, spin: &Spin) -> bool {
        let is_comfortable = self.budget_ns == COMFORT_NS && waited_ns <= COMFORT_NS / 4;
        is_comfortable && self.contended == 0 && !spin.contended && (self.in_vain == 0 || waited_ns > CONTENDED_NS)
    }

    /// Learns from a wait that took `waited` in all, spinning (as `spin` has it) and sleeping.
    pub fn ended(&mut self, limit: Limit, waited: Duration, outcome: Outcome, spin: &Spin) {
        let Limit::Ceiling(ceiling) = limit else { return };
        let waited_ns = nanos(waited);
        let is_caught = outcome == Outcome::Satisfied && waited_ns <= CONTENDED_NS;
        self.in_vain = match self.contended {
            _ if is_caught => 0,
            // A new contention: one more try.
            0 if spin.contended => self.in_vain.min(CONTENDED_IN_VAIN - 1),
            0 => self.in_vain,
            _ => (self.in_vain + 1).min(CONTENDED_IN_VAIN),
        };
        self.contended = if spin.contended { CONTENDED_WAITS } else { self.contended.saturating_sub(1) };
        let within = waited_ns <= self.budget_ns;
        self.budget_ns = match outcome {
            Outcome::Satisfied if within => {
                let generous = (self.budget_ns * 2).min(COMFORT_NS);
                // A budget beyond comfort is kept only by waits that need it.
                let faded = if self.budget_ns > COMFORT_NS { self.budget_ns - self.budget_ns / 16 } else { generous };
                faded.max(waited_ns.saturating_mul(4))
            }
            Outcome::Satisfied if waited_ns <= NEAR_NS => self.budget_ns.max(waited_ns * 2).max(FIRST_NS),
            // A poll with a timeout shorter than the budget says nothing about how long the answer takes: fall slowly.
            Outcome::InVain if within => self.budget_ns - self.budget_ns / 4,
            _ => self.budget_ns / 4,
        };
        if self.budget_ns < LEAST_NS {
            self.budget_ns = 0;
        }
        self.budget_ns = self.budget_ns.min(nanos(ceiling));
    }
}

impl Default for History {
    fn default() -> Self {
        Self::new()
    }
}

/// What a spinning wait does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Look again.
    Poll,
    /// Let others have the core, report it by [`Spin::yielded`], and look again.
    Yield,
    /// The budget is spent: sleep.
    Stop,
}

/// The spinning of one wait.
#[derive(Clone, Copy, Debug)]
pub struct Spin {
    end: Instant,
    next_yield: Instant,
    /// The user said how long: nothing else ends it.
    exact: bool,
    contended: bool,
}

impl Spin {
    /// Begins at `now`, as long as history and limit allow.
    pub fn new(now: Instant, history: &History, limit: Limit) -> Self {
        Self {
            end: now + history.budget(limit),
            next_yield: now + Duration::from_nanos(YIELD_EVERY_NS),
            exact: matches!(limit, Limit::Exact(_)),
            contended: false,
        }
    }

    /// What to do at `now`, having found nothing.
    #[inline]
    pub fn step(&self, now: Instant) -> Step {
        if now >= self.end {
            Step::Stop
        } else if now >= self.next_yield {
            Step::Yield
        } else {
            Step::Poll
        }
    }

    /// Somebody else spins on this core: it is shared, and the spin ends here. As after a yield that ran somebody else, the waits that follow
    /// sleep soon: each of them would spin in vain for as long as it takes to claim the core.
    pub fn refused(&mut self, now: Instant) {
        self.contended = true;
        if !self.exact {
            self.end = now;
        }
    }

    /// Learns what a yield found out: between `before` and `after`, did another thread run here? If so (perhaps the
    /// very peer that is waited for), the core is shared. Then sleeping is the faster way, too: a sleeper is woken ahead
    /// of those that computed meanwhile, and on an idle core if there is one, while a spinner is only moved slowly.
    pub fn yielded(&mut self, before: Instant, after: Instant) {
        self.contended = nanos(after.since(before)) > YIELD_LONG_NS;
        if self.contended && !self.exact {
            self.end = after;
        }
        let pause = if self.contended { YIELD_EVERY_CONTENDED_NS } else { YIELD_EVERY_NS };
        self.next_yield = after + Duration::from_nanos(pause);
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
