//! `cargo xtask ci`: the README's test command, as continuous integration runs it (`.ci/run`).

use anyhow::Result;

use crate::test;

/// Runs all of `cargo xtask test` with `CI=true`, so that nothing passes by being skipped.
pub(crate) fn run() -> Result<()> {
    test::run(&test::Options { ci: true, ..Default::default() })
}
