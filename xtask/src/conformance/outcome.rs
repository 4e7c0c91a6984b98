//! What a test binary's run came to.

use std::collections::BTreeMap;

/// What its tests came to, by name; and what went wrong with the run itself.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Outcome {
    /// Whether it passed.
    tests: BTreeMap<String, bool>,
    /// It failed, and no test of it did: it did not build, or died.
    pub(super) trouble: Option<String>,
}

/// What a test came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Passed,
    Failed,
    /// There is no such test, or the run never came to its end.
    NotRun,
}

impl Outcome {
    /// Reads what cargo said.
    pub(super) fn read(success: bool, stdout: &str, stderr: &str) -> Self {
        let verdict = |line: &str| {
            let (name, verdict) = line.strip_prefix("test ")?.rsplit_once(" ... ")?;
            // (A test that is to panic has that behind its name.)
            let name = name.split(' ').next()?;
            matches!(verdict, "ok" | "FAILED").then(|| (name.to_owned(), verdict == "ok"))
        };
        let tests: BTreeMap<_, _> = stdout.lines().filter_map(verdict).collect();
        let blames_a_test = tests.values().any(|passed| !passed);
        let trouble = (!success && !blames_a_test).then(|| {
            let mut errors = stderr.lines().filter(|line| line.starts_with("error"));
            errors.next_back().unwrap_or("cargo test failed, and no test did").to_owned()
        });
        Self { tests, trouble }
    }

    pub(super) fn of(&self, test: &str) -> Verdict {
        match self.tests.get(test) {
            Some(true) => Verdict::Passed,
            Some(false) => Verdict::Failed,
            None => Verdict::NotRun,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_is_found_by_its_whole_name() {
        let said = "\nrunning 3 tests\ntest sim::same ... ok\ntest shm::same ... FAILED\ntest shm::panics - should panic ... ok\n\n\
            failures:\n    shm::same\n\ntest result: FAILED. 2 passed; 1 failed; 0 ignored\n";
        let outcome = Outcome::read(false, said, "error: test failed, to rerun pass `--test extra`\n");
        let verdicts = ["sim::same", "shm::same", "same", "shm::panics"].map(|test| outcome.of(test));
        assert_eq!(verdicts, [Verdict::Passed, Verdict::Failed, Verdict::NotRun, Verdict::Passed]);
        assert_eq!(outcome.trouble, None);
    }

    #[test]
    fn what_does_not_build_is_trouble() {
        let errors = "   Compiling x v0.1.0\nerror[E0425]: cannot find value `y`\nerror: could not compile `x` (lib test)\n";
        let outcome = Outcome::read(false, "", errors);
        assert_eq!(outcome.trouble.as_deref(), Some("error: could not compile `x` (lib test)"));
        assert_eq!(outcome.of("any"), Verdict::NotRun);
    }

    #[test]
    fn a_binary_that_dies_is_trouble_even_behind_tests_that_passed() {
        let said = "\nrunning 2 tests\ntest one ... ok\n";
        let outcome =
            Outcome::read(false, said, "error: test failed, to rerun pass `--lib`\n\nCaused by:\n  process didn't exit (signal: 6)\n");
        assert_eq!((outcome.of("one"), outcome.of("two")), (Verdict::Passed, Verdict::NotRun));
        assert!(outcome.trouble.is_some());
    }

    #[test]
    fn a_run_of_no_test_is_none_of_its_own_making() {
        let outcome = Outcome::read(true, "\nrunning 0 tests\n\ntest result: ok. 0 passed; 0 failed\n", "");
        assert_eq!((outcome.of("gone"), outcome.trouble), (Verdict::NotRun, None));
    }
}
