//! Who has a name and did not answer: so that nobody waits for the same stopped process again and again.

use core::sync::atomic::{AtomicBool, Ordering};
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long a first silence is believed; each further one is believed for twice as long as the last.
const SPELL_MIN: Duration = Duration::from_secs(1);
const SPELL_MAX: Duration = Duration::from_secs(16);
/// Which part of the spell before it a further question may take.
const PATIENCE_SHARE: u32 = 20;
/// Names that are remembered. Beyond that, those whose time is over go, and then all of them.
const NAMES_MAX: usize = 256;

/// Names whose holders did not answer: what the members of a process know together.
#[derive(Debug, Default)]
pub(crate) struct Silences {
    /// Whether there are any: most processes never meet one, and take no lock to learn that.
    any: AtomicBool,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    by_name: HashMap<String, Silence>,
}

/// What is known of a holder that did not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Silence {
    /// Its process as the kernel names it; `None` where it did not even accept.
    pub(super) pid: Option<i32>,
    until: Instant,
    spell: Duration,
}

impl Silence {
    /// Whether it is not worth while to ask again yet.
    pub(super) fn is_believed(&self, now: Instant) -> bool {
        now < self.until
    }

    /// Whether another process than this one was silent: that says nothing about this one.
    pub(super) fn is_of_another(&self, pid: i32) -> bool {
        self.pid.is_some_and(|silent| silent != pid)
    }

    /// How long its holder is waited for when it is asked again: the longer, the longer nobody has asked. A process that is stopped takes
    /// the same small part of everybody's time at every age, and one that is only slow, on a busy machine, is found in the end.
    pub(super) fn patience(&self) -> Duration {
        self.spell / PATIENCE_SHARE
    }
}

impl Silences {
    pub(super) fn find(&self, name: &str) -> Option<Silence> {
        if self.any.load(Ordering::Relaxed) { self.lock().find(name) } else { None }
    }

    /// Who has that name did not answer.
    pub(super) fn note(&self, name: &str, pid: Option<i32>, now: Instant) {
        self.lock().note(name, pid, now);
        self.any.store(true, Ordering::Relaxed);
    }

    /// Who has that name answered, or is somebody else now.
    pub(super) fn forget(&self, name: &str) {
        self.change(|known| {
            known.by_name.remove(name);
        });
    }

    /// That process has come to us: whatever it holds, it answers now.
    pub(super) fn heard_of(&self, pid: i32) {
        self.change(|known| known.by_name.retain(|_, silence| silence.pid != Some(pid)));
    }

    fn change(&self, change: impl FnOnce(&mut Known)) {
        if self.any.load(Ordering::Relaxed) {
            let mut known = self.lock();
            change(&mut known);
            self.any.store(!known.by_name.is_empty(), Ordering::Relaxed);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    fn find(&self, name: &str) -> Option<Silence> {
        self.by_name.get(name).copied()
    }

    fn note(&mut self, name: &str, pid: Option<i32>, now: Instant) {
        let before = self.find(name).filter(|before| pid.is_none_or(|pid| !before.is_of_another(pid)));
        let spell = before.map_or(SPELL_MIN, |before| (before.spell * 2).min(SPELL_MAX));
        if self.by_name.len() >= NAMES_MAX && !self.by_name.contains_key(name) {
            self.by_name.retain(|_, silence| silence.is_believed(now));
            if self.by_name.len() >= NAMES_MAX {
                self.by_name.clear();
            }
        }
        self.by_name.insert(name.to_owned(), Silence { pid, until: now + spell, spell });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_is_believed_for_longer_each_time_until_there_is_life() {
        let silences = Silences::default();
        let start = Instant::now();
        let believed = |silences: &Silences, after| silences.find("a").is_some_and(|silence| silence.is_believed(start + after));
        let ms = Duration::from_millis;
        silences.note("a", Some(7), start);
        assert!(believed(&silences, ms(999)) && !believed(&silences, ms(1000)));
        silences.note("a", Some(7), start);
        assert!(believed(&silences, ms(1999)) && !believed(&silences, ms(2000)));
        (0..10).for_each(|_| silences.note("a", Some(7), start));
        assert!(believed(&silences, ms(15_999)) && !believed(&silences, ms(16_000)));
        silences.note("b", Some(8), start);
        silences.heard_of(7);
        assert_eq!((silences.find("a"), silences.find("b").is_some()), (None, true));
        silences.note("a", Some(7), start);
        assert!(!believed(&silences, ms(1000)), "it begins anew");
    }

    #[test]
    fn a_silence_is_one_processs_and_is_asked_about_for_longer_each_time() {
        let silences = Silences::default();
        let start = Instant::now();
        let patience = |silences: &Silences| silences.find("a").unwrap().patience();
        let ms = Duration::from_millis;
        let expected = [50, 100, 200, 400, 800, 800];
        for expected in expected {
            silences.note("a", Some(7), start);
            assert_eq!(patience(&silences), ms(expected));
        }
        // Whose backlog is full may be the same.
        silences.note("a", None, start);
        assert_eq!(patience(&silences), ms(800));
        silences.note("a", Some(7), start);
        silences.note("a", Some(8), start);
        assert_eq!(patience(&silences), ms(50), "another process has done nothing yet");
        let silence = silences.find("a").unwrap();
        assert!(silence.is_of_another(7) && !silence.is_of_another(8));
    }

    #[test]
    fn no_more_than_so_many_names_are_remembered() {
        let silences = Silences::default();
        (0..10_000).for_each(|n| silences.note(&n.to_string(), None, Instant::now()));
        assert!(silences.lock().by_name.len() <= NAMES_MAX && silences.find("9999").is_some());
    }
}
