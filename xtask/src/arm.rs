//! The steps `arm-stack` and `arm`: libraries and programs compile for aarch64, unit tests run under QEMU's user emulation, and two preloaded programs talk.
//!
//! QEMU translates a process, and passes its system calls on to the kernel of this machine. Tests of shared memory start processes of their own: so
//! they run where the kernel starts QEMU for a program of that architecture, in namespaces that end with them (binfmt_misc is a namespace's own since
//! Linux 6.7). What the memory model of aarch64 allows and x86-64 does not is loom's part (the step `loom`): an emulator on x86-64 never shows it.

use std::ffi::OsString;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail, ensure};

use crate::demo::proof::{Carried, REPORTS};
use crate::demo::{Guard, free_port};
use crate::install::{self, Package};
use crate::test::again;
use crate::workspace::{Workspace, cargo, run_command};

const TARGET: &str = "aarch64-unknown-linux-gnu";

/// Where Debian has the libraries of that architecture.
const SYSROOT: &str = "/usr/aarch64-linux-gnu";

/// Seconds for all unit tests of the stack (which run beside others, when those wait), for those of another crate, and for each program of the ping-pong.
const PATIENCE_S: [&str; 3] = ["2400", "600", "60"];

/// How often the tests of a crate are begun anew when the emulator itself ends, or stands still (which it does, now and then, where there are many threads and processes).
const ATTEMPTS: usize = 3;

/// Round trips of each protocol.
const ROUND_TRIPS: u64 = 200;

/// A crate whose unit tests are run, and those of them that are not, each with the reason.
type Tests = (&'static str, &'static [(&'static str, &'static str)]);

/// The one that asks the kernel for nothing: the step `arm-stack`.
const STACK: Tests = ("ringway-stack", &[]);

/// The others.
const CRATES: [Tests; 2] = [
    (
        "ringway-host",
        &[
            ("netlink::diag", "the emulator has no NETLINK_SOCK_DIAG"),
            ("netlink::xdp::tests::the_kernel_is_asked", "the emulator has no NETLINK_GENERIC"),
            ("netlink::tests::route::sockets_agree", "the emulator knows no IP_MTU"),
        ],
    ),
    (
        "ringway-shm",
        &[
            ("rendezvous::receivers::tests::the_kernel_tells", "the emulator has no NETLINK_SOCK_DIAG"),
            ("rendezvous::tests::datagrams_go_to_the_member", "the emulator has no NETLINK_SOCK_DIAG"),
            ("rendezvous::tests::who_publishes_what_it_has_not_bound", "the emulator has no NETLINK_SOCK_DIAG"),
            ("rendezvous::tests::a_socket_that_goes_over_to_another_member", "the emulator knows no SO_COOKIE"),
            ("rendezvous::tests::other_users_are_refused", "it needs several users, and the namespace has one"),
            ("tests::rights::a_strangers_descriptors", "it needs several users, and the namespace has one"),
            ("user::tests::a_user_without_a_number", "it needs several users, and the namespace has one"),
            ("tests::crash::limits::a_greeting_that_runs_out_of_descriptors", "it counts descriptors, of which the emulator has some"),
            ("tests::leave::nothing_is_left_behind", "it counts descriptors, of which the emulator has some"),
            ("tests::memory::huge_pages_are_asked_for", "the emulator keeps that advice to itself"),
            ("tests::crash::death_at_any_point", "it starts some thousand processes, which takes the emulator too long"),
            ("tests::regions::a_peer_writes_within_bounds", "the emulator has no process_vm_writev"),
            ("tests::regions::nobody_else_writes_there", "the emulator has no process_vm_writev"),
            ("tests::regions::what_is_not_mapped_is_a_fault", "the emulator has no process_vm_writev"),
            ("tests::regions::who_writes_to_two_peers_in_turn", "the emulator has no process_vm_writev"),
        ],
    ),
];

/// Mounts a namespace's own binfmt_misc, names QEMU in it for programs of that architecture (by the first bytes of their ELF headers), and runs what
/// follows.
const RUNNER: &str = r#"mount -t binfmt_misc none /proc/sys/fs/binfmt_misc || exit 1
magic='\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00'
mask='\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff'
printf '%s' ":aarch64:M::$magic:$mask:$(command -v qemu-aarch64):" > /proc/sys/fs/binfmt_misc/register || exit 1
exec "$@"
"#;

/// Tests of shared memory that start processes, and so need [`RUNNER`].
const STARTS_PROCESSES: [(&str, &str); 2] = [
    ("tests::death", "this kernel gives namespaces no binfmt_misc (Linux 6.7)"),
    ("tests::crash", "this kernel gives namespaces no binfmt_misc (Linux 6.7)"),
];

/// Installs what both steps need.
///
/// # Errors
/// It cannot be had.
pub(crate) fn tools() -> Result<()> {
    install::rust_target(TARGET)?;
    install::packages(&[Package::ARM_CC, Package::ARM_LIBC, Package::QEMU_USER])
}

/// The step `arm-stack`: everything compiles, the stack's tests run, and what the step `arm` runs is built.
///
/// # Errors
/// One of these does not.
pub(crate) fn stack(workspace: &Workspace) -> Result<()> {
    let runner = Runner::find(&workspace.target.join("arm-stack"))?;
    run_command(for_arm("check", &runner).args(["--workspace"]))?;
    test(&runner, STACK)?;
    for (package, _) in CRATES {
        run_command(for_arm("test", &runner).args(["--package", package, "--lib", "--no-run"]))?;
    }
    run_command(for_arm("build", &runner).args(["--package", "ringway-vma"]))
}

/// The step `arm`: the others' tests, and a ping-pong. Returns what passed only when it ran again.
///
/// # Errors
/// A test fails, or the programs do not talk.
pub(crate) fn run(workspace: &Workspace) -> Result<Vec<String>> {
    let scratch = workspace.target.join("arm");
    let runner = Runner { patience_s: PATIENCE_S[1], ..Runner::find(&scratch)? };
    let mut again = Vec::new();
    for tests in CRATES {
        again.extend(test(&runner, tests)?);
    }
    run_command(for_arm("build", &runner).args(["--package", "ringway-vma"]))?;
    ping_pong(workspace, &scratch)?;
    Ok(again)
}

/// Runs a crate's tests, and says which it does not run. Returns what passed only when it ran again.
fn test(runner: &Runner, (package, left_out): Tests) -> Result<Vec<String>> {
    let left_out: Vec<_> =
        left_out.iter().chain(STARTS_PROCESSES.iter().filter(|_| !runner.starts_processes && package == "ringway-shm")).collect();
    for (test, reason) in &left_out {
        println!("  {package}: {test} is not run under emulation: {reason}");
    }
    let tests = || {
        let mut test = for_arm("test", runner);
        test.args(["--package", package, "--lib", "--no-fail-fast", "--"]);
        test
    };
    let mut again = Vec::new();
    for attempt in 1..=ATTEMPTS {
        let (status, said) = again::watched(tests().args(left_out.iter().flat_map(|(test, _)| ["--skip", test])))?;
        if status.success() {
            return Ok(again);
        }
        let failed = again::failures(&said);
        if !failed.is_empty() {
            ensure!(package != STACK.0, "what repeats gets no second chance: {}", failed.join(" "));
            return again::alone(failed, tests);
        }
        println!("{package}: the emulator ended, or stood still ({status}), and no test has failed: attempt {attempt} of {ATTEMPTS}");
        again.push(format!("{package} under emulation, all tests"));
    }
    bail!("{package}: the emulator ended, or stood still, {ATTEMPTS} times")
}

/// What starts a program of that architecture.
struct Runner {
    words: String,
    patience_s: &'static str,
    /// Whether those that it starts may be of that architecture, too.
    starts_processes: bool,
}

impl Runner {
    /// Its script is put into the folder.
    fn find(scratch: &Path) -> Result<Self> {
        tools()?;
        std::fs::create_dir_all(scratch)?;
        let script = scratch.join("runner.sh");
        std::fs::write(&script, RUNNER)?;
        let namespaces = format!("unshare --user --map-root-user --mount sh {}", script.display());
        let starts_processes = Command::new("sh").args(["-c", &format!("{namespaces} true")]).stderr(Stdio::null()).status()?.success();
        let words = if starts_processes { namespaces } else { format!("qemu-aarch64 -L {SYSROOT}") };
        Ok(Self { words, patience_s: PATIENCE_S[0], starts_processes })
    }
}

/// A subcommand of cargo for that architecture. Warnings are errors: clippy sees this machine's code only.
fn for_arm(subcommand: &str, runner: &Runner) -> Command {
    let mut command = cargo();
    command.args([subcommand, "--quiet", "--target", TARGET]).env("RUSTFLAGS", "-D warnings").env("QEMU_LD_PREFIX", SYSROOT);
    command.env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", "aarch64-linux-gnu-gcc");
    command.env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER", format!("timeout {} {}", runner.patience_s, runner.words));
    command
}

/// The demo's program, as two preloaded processes; it must be offloaded.
fn ping_pong(workspace: &Workspace, scratch: &Path) -> Result<()> {
    let program = scratch.join("pingpong");
    let source = "ffi/vma/demo/pingpong.c";
    run_command(workspace.command("aarch64-linux-gnu-gcc").args(["-O2", "-std=c11", "-Wall", "-Wextra", source, "-o"]).arg(&program))?;
    let library = workspace.target.join(TARGET).join("debug/libvma.so");
    let _ = std::fs::remove_file(scratch.join(REPORTS));
    for protocol in ["TCP", "UDP"] {
        play(&program, &library, scratch, protocol).with_context(|| format!("a ping-pong over {protocol}, emulated"))?;
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
        command.args([PATIENCE_S[2], "qemu-aarch64", "-L", SYSROOT, "-E"]).arg(set("LD_PRELOAD", library));
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
