//! The cases of soft-RoCE, all in one guest: a part of `cargo xtask test --only rxe`.

use anyhow::{Result, ensure};

use super::case::Target;
use crate::vm;
use crate::workspace::{Workspace, run_command};

/// Files of test binaries that have some.
const BINARIES: [&str; 3] = ["conformance/tests/extra/main.rs", "conformance/tests/sentences/main.rs", "ffi/rsocket/tests/c/main.rs"];
/// What their names have.
const NAMES: [&str; 2] = ["rxe::", "soft_roce"];

/// What they run is compiled here: in the guest it would take ten times as long.
pub(super) fn compile_programs(workspace: &Workspace) -> Result<()> {
    run_command(workspace.test_command("ffi/rsocket", "c")?.args(["--quiet", "--exact", "rxe::programs_are_compiled"]))
}

/// Builds the binaries and runs those cases.
///
/// # Errors
/// A case fails, or none is there; no guest is to be had.
pub(crate) fn run(workspace: &Workspace) -> Result<()> {
    let binaries = BINARIES.map(|path| Target::of(path)?.0.binary(workspace)).into_iter().collect::<Result<Vec<_>>>()?;
    compile_programs(workspace)?;
    let (status, said) = vm::tests_in_guest(workspace, &binaries, &NAMES)?;
    ensure!(status == 0, "cases of soft-RoCE failed in the guest: {status}");
    let ran = said.lines().filter(|line| line.starts_with("test result: ok. ") && !line.starts_with("test result: ok. 0 ")).count();
    ensure!(ran == binaries.len(), "of {} binaries, {ran} had cases of soft-RoCE", binaries.len());
    Ok(())
}
