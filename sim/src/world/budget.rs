//! How much may happen: a run that goes on for ever must fail, not hang whoever waits for it.

use core::fmt;

use ringway_stack::Instant;

/// Events at one instant of virtual time, after which time counts as standing still. A burst of every host of the largest world at
/// once is three orders of magnitude smaller.
const AT_ONCE_MAX: u64 = 2_000_000;

/// Characters of an event in a message.
const EVENT_CHARS_MAX: usize = 60;

/// What is left of a world's events.
#[derive(Debug)]
pub(crate) struct Budget {
    max: u64,
    spent: u64,
    now: Instant,
    at_once: u64,
}

impl Budget {
    /// Time may not stand still; otherwise there is no limit.
    pub(crate) fn unlimited() -> Self {
        Self { max: u64::MAX, spent: 0, now: Instant::ZERO, at_once: 0 }
    }

    /// At most `events`, counted from the world's beginning.
    pub(crate) fn limit(&mut self, events: u64) {
        self.max = events;
    }

    /// How many events there were.
    pub(crate) fn spent(&self) -> u64 {
        self.spent
    }

    /// Counts an event.
    ///
    /// # Panics
    /// It is one too many.
    pub(crate) fn spend(&mut self, now: Instant, event: &dyn fmt::Debug) {
        self.at_once = if now == self.now { self.at_once + 1 } else { 1 };
        self.now = now;
        self.spent += 1;
        assert!(
            self.at_once <= AT_ONCE_MAX,
            "time stands still: {AT_ONCE_MAX} events at {} ns of virtual time, the last of them {}",
            now.as_nanos(),
            brief(event)
        );
        assert!(
            self.spent <= self.max,
            "no end in sight: {} events by {} ms of virtual time, the last of them {}",
            self.max,
            now.as_millis(),
            brief(event)
        );
    }
}

/// What an event is, without all of a frame's bytes.
fn brief(event: &dyn fmt::Debug) -> String {
    format!("{event:?}").chars().take(EVENT_CHARS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use super::*;
    use crate::{App, Context, HostConfig, Step, World, WorldConfig};

    /// A program that always has something to do a nanosecond later.
    struct Restless;

    impl App for Restless {
        fn step(&mut self, cx: &mut Context<'_>) -> Step {
            Step::Until(cx.now + Duration::from_nanos(1))
        }
    }

    #[test]
    #[should_panic(expected = "no end in sight: 10000 events by 0 ms of virtual time")]
    fn a_world_without_end_fails() {
        let mut world = World::new(WorldConfig::seeded(1));
        world.limit_events(10_000);
        let host = world.add_host(HostConfig::named("a"));
        world.add_app(host, Restless);
        world.run_for(Duration::from_secs(3600));
    }

    #[test]
    #[should_panic(expected = "no end in sight: 3 events by 4 ms")]
    fn a_run_without_end_fails() {
        let mut budget = Budget::unlimited();
        budget.limit(3);
        (1..9).for_each(|ms| budget.spend(Instant::from_nanos(ms * 1_000_000), &"tick"));
    }

    #[test]
    #[should_panic(expected = "time stands still")]
    fn a_run_without_time_fails() {
        let mut budget = Budget::unlimited();
        (0..=AT_ONCE_MAX).for_each(|_| budget.spend(Instant::from_nanos(7), &"tick"));
    }
}
