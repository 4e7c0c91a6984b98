//! The step `arm`: everything compiles for aarch64, and what can be run under QEMU's user emulation is run.
//!
//! QEMU translates one process, and passes its system calls on to the kernel of this machine. So shared memory, Unix sockets and threads work; what
//! asks the kernel about instructions, or needs the stronger promises of a real processor, does not: each test that cannot run is named below, with
//! the reason. What the memory model of aarch64 allows and x86-64 does not is loom's part (the step `loom`): an emulator on x86-64 never shows it.

use std::ffi::OsString;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};

use crate::demo::proof::{Carried, REPORTS};
use crate::demo::{Guard, free_port};
use crate::install::{self, Package};
use crate::workspace::{Workspace, cargo, run_command};

const TARGET: &str = "aarch64-unknown-linux-gnu";

/// Where Debian has the libraries of that architecture.
const SYSROOT: &str = "/usr/aarch64-linux-gnu";

/// Seconds for all unit tests of a crate, and for each program of the ping-pong.
const PATIENCE_S: [&str; 2] = ["300", "60"];

/// Round trips of each protocol.
const ROUND_TRIPS: u64 = 200;

/// A crate whose unit tests are run, and those of them that cannot, each with the reason.
type Tests = (&'static str, &'static [(&'static str, &'static str)]);

const CRATES: [Tests; 4] = [("ringway-stack", &[]), ("ringway-host", &[]), ("ringway-shm", &[]), ("ringway-vma", &[])];

/// Checks, tests, plays.
pub(crate) fn run(workspace: &Workspace) -> Result<()> {
    install::rust_target(TARGET)?;
    install::packages(&[Package::ARM_CC, Package::ARM_LIBC, Package::QEMU_USER])?;
    run_command(for_arm("check").args(["--workspace", "--all-targets"]))?;
    for (package, cannot) in CRATES {
        for (test, reason) in cannot {
            println!("  {package}: {test} is not run under emulation: {reason}");
        }
        let mut test = for_arm("test");
        test.args(["--package", package, "--lib", "--no-fail-fast", "--"]);
        run_command(test.args(cannot.iter().flat_map(|(test, _)| ["--skip", test])))?;
    }
    run_command(for_arm("build").args(["--package", "ringway-vma"]))?;
    ping_pong(workspace)
}

/// A subcommand of cargo for that architecture. Warnings are errors: clippy sees this machine's code only.
fn for_arm(subcommand: &str) -> Command {
    let mut command = cargo();
    command.args([subcommand, "--quiet", "--target", TARGET]).env("RUSTFLAGS", "-D warnings");
    command.env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", "aarch64-linux-gnu-gcc");
    command.env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER", format!("timeout {} qemu-aarch64 -L {SYSROOT}", PATIENCE_S[0]));
    command
}

/// The demo's program, as two preloaded processes; it must be offloaded.
fn ping_pong(workspace: &Workspace) -> Result<()> {
    let scratch = workspace.target.join("arm");
    std::fs::create_dir_all(&scratch)?;
    let program = scratch.join("pingpong");
    let source = "ffi/vma/demo/pingpong.c";
    run_command(workspace.command("aarch64-linux-gnu-gcc").args(["-O2", "-std=c11", "-Wall", "-Wextra", source, "-o"]).arg(&program))?;
    let library = workspace.target.join(TARGET).join("debug/libvma.so");
    let _ = std::fs::remove_file(scratch.join(REPORTS));
    for protocol in ["TCP", "UDP"] {
        play(&program, &library, &scratch, protocol).with_context(|| format!("a ping-pong over {protocol}, emulated"))?;
    }
    Ok(())
}

fn play(program: &Path, library: &Path, scratch: &Path, protocol: &str) -> Result<()> {
    let port = free_port()?.to_string();
    let emulated = |role: &str| {
        let set = |name: &str, value: &Path| {
            let mut words = OsString::from(name);
            words.push("=");
            words.push(value);
            words
        };
        let mut command = Command::new("timeout");
        command.args([PATIENCE_S[1], "qemu-aarch64", "-L", SYSROOT, "-E"]).arg(set("LD_PRELOAD", library));
        command.arg("-E").arg(set("RINGWAY_STATS_FILE", &scratch.join(REPORTS))).arg(program).arg(role);
        command.args((protocol == "UDP").then_some("--udp"));
        command
    };
    let mut server = Guard(emulated("server").arg(&port).stdout(Stdio::piped()).spawn()?);
    let mut line = String::new();
    BufReader::new(server.0.stdout.take().context("the server's output")?).read_line(&mut line)?;
    ensure!(line == "ready\n", "the server said {line:?}");
    run_command(emulated("client").args(["--json", "--warmup", "10", "--count", &ROUND_TRIPS.to_string(), "127.0.0.1", &port]))?;
    let status = server.0.wait()?;
    ensure!(status.success(), "the server failed ({status})");
    let mut carried = Carried::default();
    carried.add(scratch)?;
    carried.check(ROUND_TRIPS)
}
