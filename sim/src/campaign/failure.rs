//! A run that a check ended.

use serde::{Deserialize, Serialize};

/// The longest [`Failure::kind`], in characters.
const KIND_MAX: usize = 100;

/// Why and where a run ended before its end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// The source file and line whose check failed.
    pub place: String,
    /// What the check said.
    pub message: String,
    /// Who called it, the innermost first; empty if nobody asked.
    pub backtrace: Vec<String>,
}

impl Failure {
    /// Which check it was: the first words of its message, numbers aside, since they differ from run to run.
    pub fn kind(&self) -> String {
        let line = self.message.lines().next().unwrap_or_default();
        // `assert_eq!(…)` says its own words first, then the check's.
        let line = line.rsplit_once(" failed: ").map_or(line, |(_, own)| own);
        let words = line.split(": ").next().unwrap_or(line).split(' ');
        let without: Vec<_> = words.map(|word| if word.starts_with(|c: char| c.is_ascii_digit()) { "#" } else { word }).collect();
        without.join(" ").chars().filter(|c| !c.is_ascii_digit()).take(KIND_MAX).collect()
    }

    /// A failure of which no more is known than what was said.
    pub(crate) fn said(message: String) -> Self {
        Self { place: String::new(), message, backtrace: Vec::new() }
    }

    /// Whether `other` is the same failure: the same check at the same place.
    pub fn is_like(&self, other: &Self) -> bool {
        self.place == other.place && self.kind() == other.kind()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(place: &str, message: &str) -> Failure {
        Failure { place: place.to_owned(), message: message.to_owned(), backtrace: Vec::new() }
    }

    #[test]
    fn numbers_make_no_other_failure() {
        let one = failure("run.rs:3", "a byte too many, 212 of 4: stream 5\nhost 1");
        assert!(one.is_like(&failure("run.rs:3", "a byte too many, 7 of 99: stream 1\nhost 2")));
        assert!(!one.is_like(&failure("run.rs:4", "a byte too many, 212 of 4: stream 5")));
        assert!(!one.is_like(&failure("run.rs:3", "not at rest: 3")));
        let silence = failure("run.rs:3", "a silence of 212.5ms, though nothing went wrong");
        assert!(silence.is_like(&failure("run.rs:3", "a silence of 1.123s, though nothing went wrong")));
    }

    #[test]
    fn a_check_is_known_by_its_first_words() {
        assert_eq!(failure("", "liveness: Err(Unfinished { until: Instant(7) })\nand more").kind(), "liveness");
        assert_eq!(failure("", "assertion `left == right` failed: window: 3 retreats\n left: 1").kind(), "window");
        assert_eq!(failure("", "index out of bounds: the len is 3").kind(), "index out of bounds");
    }
}
