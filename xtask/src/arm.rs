//! The step `arm`: everything compiles for aarch64, and the unit tests of the stack and of the host run under QEMU's user emulation.
//!
//! QEMU translates one process, and passes its system calls on to the kernel of this machine. The tests of shared memory, which start processes and
//! share memory with them, are not run: some of them fail under emulation, and it is not known yet of which it is the emulator's doing. What the
//! memory model of aarch64 allows and x86-64 does not is loom's part (the step `loom`): an emulator on x86-64 never shows it.

use std::process::Command;

use anyhow::Result;

use crate::install::{self, Package};
use crate::workspace::{cargo, run_command};

const TARGET: &str = "aarch64-unknown-linux-gnu";

/// Where Debian has the libraries of that architecture.
const SYSROOT: &str = "/usr/aarch64-linux-gnu";

/// Seconds for all unit tests of a crate.
const PATIENCE_S: &str = "1200";

/// Crates whose unit tests are run.
const CRATES: [&str; 2] = ["ringway-stack", "ringway-host"];

/// Checks and tests.
pub(crate) fn run() -> Result<()> {
    install::rust_target(TARGET)?;
    install::packages(&[Package::ARM_CC, Package::ARM_LIBC, Package::QEMU_USER])?;
    run_command(for_arm("check").args(["--workspace", "--all-targets"]))?;
    for package in CRATES {
        run_command(for_arm("test").args(["--package", package, "--lib", "--no-fail-fast"]))?;
    }
    Ok(())
}

/// A subcommand of cargo for that architecture. Warnings are errors: clippy sees this machine's code only.
fn for_arm(subcommand: &str) -> Command {
    let mut command = cargo();
    command.args([subcommand, "--quiet", "--target", TARGET]).env("RUSTFLAGS", "-D warnings");
    command.env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", "aarch64-linux-gnu-gcc");
    command.env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER", format!("timeout {PATIENCE_S} qemu-aarch64 -L {SYSROOT}"));
    command
}
