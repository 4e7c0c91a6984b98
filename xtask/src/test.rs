//! `cargo xtask test`: everything that must hold, step by step, each with its duration, and a summary at the end.

pub(crate) mod again;
mod beside;

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, ensure};
use clap::ValueEnum;

use self::beside::Beside;
use crate::conformance;
use crate::install::{self, Package, Privilege};
use crate::workspace::{Workspace, cargo, run_command};
use crate::{arm, installed, tidy, vm};

/// Which steps, and how strictly.
#[derive(clap::Args, Default)]
pub(crate) struct Options {
    /// Run only this step (may be repeated).
    #[arg(long, value_enum)]
    pub(crate) only: Vec<Step>,
    /// Only real programs' cases whose name contains this.
    #[arg(long)]
    pub(crate) programs: Vec<String>,
    /// As under CI=true: a case that cannot run here is a failure.
    #[arg(long, env = "CI", value_parser = clap::builder::FalseyValueParser::new())]
    pub(crate) ci: bool,
}

/// A step. The order is that of running: cheap and common failures first. (Those that compute run beside those that come after them, if all run: see
/// [`beside`].)
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum Step {
    /// cargo fmt --check.
    Fmt,
    /// `cargo xtask tidy`, and documentation without a warning.
    Tidy,
    /// clippy on every target, warnings are errors.
    Clippy,
    /// cargo deny: licences, sources and banned crates.
    Deny,
    /// What the step `unit` runs, built.
    Compile,
    /// libvma.so, librspreload.so and ringway, as users get them.
    Build,
    /// The simulator's checkers against stacks with one thing wrong each, and the stack's marked code paths.
    Mutants,
    /// Libraries and programs compile for aarch64, and the stack's unit tests run under QEMU's user emulation.
    ArmStack,
    /// The shared-memory rings under loom.
    Loom,
    /// A thousand fixed seeds in the simulator, which must come upon all that there is to come upon, and some fresh ones.
    Sim,
    /// Unit tests, the simulator's properties, documentation tests.
    Unit,
    /// Everything installed outside of the checkout, and the examples compiled and run against that.
    Install,
    /// Rsockets of the stack's RoCE against librdmacm's on the kernel's soft-RoCE, in a virtual machine, and rping against its connection management and verbs; and TCP and UDP of libvma.so
    /// over it, and over AF_XDP on virtio_net, between two virtual machines.
    Rxe,
    /// For aarch64, under QEMU's user emulation: unit tests of what asks the kernel, and a ping-pong.
    Arm,
    /// C programs of the Extra API under valgrind, and what is left of them.
    Memory,
    /// Real programs on Ringway.
    Programs,
}

/// Seeds of every run of the simulator's step: enough for it to insist that every fault class, workload, marked code path and state comes up.
const FIXED_SEEDS: u64 = 2000;
/// Seeds that no earlier run had.
const FRESH_SEEDS: u64 = 200;

/// Features that no other step has: what is built with them is no stack to be used. (Of all packages, but for the one that has a test of the same name:
/// the dependencies are those of the step `unit`.)
const MUTANTS: [&str; 14] = [
    "test",
    "--quiet",
    "--no-fail-fast",
    "--workspace",
    "--exclude",
    "ringway-mlx5",
    "--features",
    "ringway-sim/mutants,ringway-sim/marks",
    "--test",
    "mutants",
    "--test",
    "marks",
    "--test",
    "moves",
];

/// The same of the mlx5 driver.
const MUTANTS_OF_MLX5: [&str; 9] =
    ["test", "--quiet", "--workspace", "--exclude", "ringway-sim", "--features", "ringway-mlx5/mutants", "--test", "mutants"];

/// What unit and integration tests compile with, run, and read by.
const UNIT: [Package; 14] = [
    Package::CC,
    Package::IPROUTE,
    Package::TSHARK,
    Package::PYTHON,
    Package::SOCKPERF,
    Package::CURL,
    Package::SOCAT,
    Package::LIBIBVERBS,
    Package::LIBRDMACM,
    Package::IBVERBS_PROVIDERS,
    Package::IBVERBS_UTILS,
    Package::PERFTEST,
    Package::RDMACM_UTILS,
    Package::PYVERBS,
];

const PROGRAMS: [Package; 32] = [
    Package::CC,
    Package::SOCKPERF,
    Package::IPERF3,
    Package::REDIS_SERVER,
    Package::REDIS_TOOLS,
    Package::MEMCACHED,
    Package::LIBMEMCACHED,
    Package::CURL,
    Package::PYTHON,
    Package::IPROUTE,
    Package::UNSHARE,
    Package::NGINX,
    Package::WRK,
    Package::SOCAT,
    Package::SSH,
    Package::SSHD,
    Package::RSYNC,
    Package::GIT,
    Package::INETD,
    Package::LIBUV,
    Package::PYTHON_TESTS,
    Package::POSTGRES,
    Package::TCPDUMP,
    Package::TSHARK,
    Package::DNSMASQ,
    Package::DIG,
    Package::ETHTOOL,
    Package::JAVA,
    Package::NODE,
    Package::GO,
    Package::LIBIBVERBS,
    Package::IBVERBS_PROVIDERS,
];

/// Cases of programs that become another user, or insist that they could.
const NEED_ROOT: [&str; 6] =
    ["cable::", "capture::another_user", "isolation::another_user_is_refused", "nginx::workers_of_another_user", "rsockets::ssh", "ssh::"];

/// How a step went.
struct Outcome {
    step: Step,
    result: Result<()>,
    took: Duration,
    /// Tests that failed, and passed when they ran again, alone.
    again: Vec<String>,
}

/// Runs the steps; all of them, even if one fails.
pub(crate) fn run(options: &Options) -> Result<()> {
    let workspace = Workspace::find()?;
    let steps: Vec<_> = Step::value_variants().iter().copied().filter(|s| options.only.is_empty() || options.only.contains(s)).collect();
    let mut outcomes = if options.only.is_empty() {
        with_some_beside(&workspace, options, &steps)
    } else {
        steps.iter().map(|step| step.play(&workspace, options)).collect()
    };
    outcomes.sort_by_key(|outcome| outcome.step);
    if outcomes.len() > 1 {
        println!("\nsummary");
    }
    for Outcome { step, result, took, .. } in outcomes.iter().filter(|_| outcomes.len() > 1) {
        println!("  {:10} {:7} {:>9}", step.name(), verdict(result), seconds(*took));
    }
    for test in outcomes.iter().flat_map(|outcome| &outcome.again) {
        println!("  passed only when it ran again, alone: {test}");
    }
    let failed = outcomes.iter().filter(|outcome| outcome.result.is_err()).count();
    ensure!(failed == 0, "{failed} of {} steps failed", outcomes.len());
    Ok(())
}

/// Those that compute run beside those that wait.
fn with_some_beside(workspace: &Workspace, options: &Options, steps: &[Step]) -> Vec<Outcome> {
    let compute: Vec<_> = steps.iter().copied().filter(|step| step.computes()).collect();
    let mut outcomes = Vec::new();
    std::thread::scope(|scope| {
        let mut beside = None;
        for &step in steps {
            if step.computes() {
                beside.get_or_insert_with(|| Beside::start(scope, workspace, options, &compute));
                continue;
            }
            if let Some(beside) = beside.as_mut().filter(|_| step.needs_build()) {
                outcomes.extend(beside.until(Step::Build));
            }
            outcomes.push(step.play(workspace, options));
            outcomes.extend(beside.iter_mut().flat_map(Beside::ended));
        }
        outcomes.extend(beside.into_iter().flat_map(Beside::rest));
    });
    outcomes
}

impl Step {
    /// Whether it computes all the time, and no clock decides how it ends, as long as it does.
    fn computes(self) -> bool {
        matches!(self, Self::Build | Self::Mutants | Self::ArmStack | Self::Loom | Self::Sim)
    }

    /// Whether it wants what [`Step::Build`] builds. (So does `sim`, which builds it if it has to.)
    fn needs_build(self) -> bool {
        matches!(self, Self::Memory | Self::Programs)
    }

    /// Runs it, and says so.
    fn play(self, workspace: &Workspace, options: &Options) -> Outcome {
        println!("\n=== {}", self.name());
        let start = Instant::now();
        let mut again = Vec::new();
        let result = self.run(workspace, options, &mut again);
        if let Err(error) = &result {
            println!("{error:#}");
        }
        let took = start.elapsed();
        println!("=== {} {} in {}", self.name(), verdict(&result), seconds(took));
        Outcome { step: self, result, took, again }
    }

    fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |v| v.get_name().to_owned())
    }

    fn run(self, workspace: &Workspace, options: &Options, again: &mut Vec<String>) -> Result<()> {
        match self {
            Self::Fmt => {
                install::rust_components()?;
                run_command(cargo().args(["fmt", "--all", "--check"]))
            }
            Self::Tidy => tidy::run().and_then(|()| documentation()),
            Self::Clippy => clippy(),
            Self::Deny => {
                install::cargo_tool("deny")?;
                run_command(cargo().args(["deny", "--log-level", "error", "check", "bans", "licenses", "sources"]))
            }
            Self::Compile => {
                run_command(cargo().args(["test", "--workspace", "--quiet", "--no-run"])).and_then(|()| workspace.build_debug())
            }
            Self::Unit => {
                install::packages(&UNIT)?;
                again.extend(unit(workspace, options)?);
                conformance::run(&conformance::Options { list: true, device: None })
            }
            Self::ArmStack => arm::stack(workspace),
            Self::Arm => arm::run(workspace).map(|tests| again.extend(tests)),
            Self::Install => installed::run(workspace),
            Self::Mutants => {
                run_command(cargo().args(MUTANTS))?;
                run_command(cargo().args(MUTANTS_OF_MLX5))
            }
            Self::Loom => loom(workspace),
            Self::Build => workspace.build_tested(),
            Self::Memory => memory(workspace),
            Self::Rxe => rxe(workspace).map(|tests| again.extend(tests)),
            Self::Sim => sim(workspace),
            Self::Programs => programs(workspace, options).map(|tests| again.extend(tests)),
        }
    }
}

/// Returns what passed only when it ran again. (What needs network namespaces leaves itself out where there are none, but where CI is set.)
fn unit(workspace: &Workspace, options: &Options) -> Result<Vec<String>> {
    let mut test = cargo();
    test.args(["test", "--workspace", "--quiet", "--no-fail-fast"]);
    if options.ci {
        test.env("CI", "true");
    } else if Privilege::of_this_user() != Privilege::Root {
        println!("not run, for they need root: tests in network namespaces (of ringway-host, ringway-xdp, ringway-vma and ringway-cli)");
    }
    again::twice_by_cargo(workspace, &mut test)
}

/// Links in the documentation that lead nowhere, and the like.
fn documentation() -> Result<()> {
    run_command(cargo().args(["doc", "--workspace", "--no-deps", "--quiet"]).env("RUSTDOCFLAGS", "--deny warnings"))
}

fn clippy() -> Result<()> {
    install::rust_components()?;
    let deny = ["--", "--deny", "warnings"];
    run_command(cargo().args(["clippy", "--workspace", "--all-targets", "--quiet"]).args(deny))?;
    // Not among "all targets", since `cargo test` must not run them by itself.
    run_command(cargo().args(["clippy", "--workspace", "--test", "programs", "--test", "memory", "--quiet"]).args(deny))
}

/// With the library as built for release: the other is too slow under valgrind.
fn memory(workspace: &Workspace) -> Result<()> {
    install::packages(&[Package::CC, Package::VALGRIND])?;
    let library = workspace.release("libvma.so");
    ensure!(library.exists(), "libvma.so is not built: run the step `build` first");
    run_command(workspace.test_command("ffi/vma", "memory")?.arg("--quiet").env("RINGWAY_LIBVMA", library))
}

/// loom replaces the atomics, so everything is built again, beside the ordinary build.
fn loom(workspace: &Workspace) -> Result<()> {
    let mut test = cargo();
    test.args(["test", "--quiet", "--no-fail-fast", "--package", "ringway-shm", "--lib", "--target-dir"])
        .arg(workspace.target.join("loom"));
    // Exploring all interleavings is what takes the time: optimise.
    run_command(test.env("RUSTFLAGS", "--cfg loom").env("CARGO_PROFILE_DEV_OPT_LEVEL", "3").arg("loom"))
}

/// Returns the guests that passed only when they were started again.
fn rxe(workspace: &Workspace) -> Result<Vec<String>> {
    install::packages(&[Package::PYTHON, Package::PERFTEST])?;
    workspace.build_debug()?;
    let built = |name: &str| Ok::<_, anyhow::Error>(workspace.target.join(name).to_str().context("a path that is not UTF-8")?.to_owned());
    let words = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>();
    let (library, ringway) = (built("debug/libvma.so")?, built("debug/ringway")?);
    let rsocket = words(&["sh", "ffi/rsocket/tests/rxe.sh", &built("debug/examples/interop")?, &built("debug/librsocket.so")?]);
    let connectx = words(&["sh", "ffi/uverbs/tests/rxe.sh", &built("debug/libringway_connectx.so")?]);
    let ask = words(&["sh", "ffi/vma/tests/rxe/ask.sh", &library]);
    let leave = words(&["sh", "ffi/vma/tests/rxe/leave-ask.sh", &library]);
    let virtio = words(&["sh", "ffi/vma/tests/virtio/ask.sh", &library, &ringway]);
    let mut passed = Vec::new();
    let mut guest = |name: &str, run: &dyn Fn() -> Result<()>| again::guest(name, run).map(|again| passed.extend(again));
    guest("rsockets against librdmacm's", &|| vm::in_guest(rsocket.clone()))?;
    guest("the software ConnectX against rxe", &|| vm::in_guest(connectx.clone()))?;
    guest("conformance", &|| conformance::guest::run(workspace))?;
    guest("sockets on rxe", &|| vm::in_two_guests(None, ask.clone(), format!("sh ffi/vma/tests/rxe/serve.sh '{library}'")))?;
    guest("connections that leave", &|| {
        vm::in_two_guests_for(vm::MUCH_PATIENCE_S, None, leave.clone(), format!("sh ffi/vma/tests/rxe/leave-serve.sh '{library}'"))
    })?;
    // (A kernel that says what its drivers have for XDP: since Linux 6.3.)
    guest("sockets on virtio_net", &|| {
        vm::in_two_guests(Some("6.12"), virtio.clone(), format!("sh ffi/vma/tests/virtio/serve.sh '{library}'"))
    })?;
    Ok(passed)
}

/// The fixed seeds are the same for everyone; the fresh ones begin where the clock says, so that no two runs are for nothing. Each is run
/// twice and compared.
fn sim(workspace: &Workspace) -> Result<()> {
    workspace.build_simulator()?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).context("a clock before 1970")?.as_secs();
    // Beyond any range that a person would type.
    let fresh = now << 16;
    for (first, count) in [(0, FIXED_SEEDS), (fresh, FRESH_SEEDS)] {
        let seeds = format!("{first}..{}", first + count);
        println!("seeds {seeds}");
        let state = workspace.target.join("sim").join("test.jsonl");
        _ = std::fs::remove_file(&state);
        let mut campaign = workspace.command(workspace.release("ringway"));
        run_command(campaign.args(["sim", "--seeds", &seeds, "--twice", "--resume"]).arg(&state))?;
    }
    Ok(())
}

/// The cases run as root in a network namespace of their own where that may be, so that the kernel's counters tell about
/// them alone, and a second user and a second namespace can be had. Returns those that passed only when they ran again.
fn programs(workspace: &Workspace, options: &Options) -> Result<Vec<String>> {
    install::packages(&PROGRAMS)?;
    let libraries =
        [("RINGWAY_LIBVMA", "libvma.so"), ("RINGWAY_LIBRSPRELOAD", "librspreload.so"), ("RINGWAY_LIBCONNECTX", "libringway_connectx.so")];
    for (_, library) in libraries {
        ensure!(workspace.release(library).exists(), "{library} is not built: run the step `build` first");
    }
    // (Some cases run examples.)
    workspace.build_debug()?;
    let binary = workspace.test_binary("conformance", "programs")?;
    let privilege = Privilege::of_this_user();
    if privilege == Privilege::None {
        ensure!(!options.ci, "the case of two users needs root or sudo, which this account has not");
        println!("not run, for they need root: {}", NEED_ROOT.join(" "));
    }
    let command = |cases: &[&str]| {
        let mut command = cases_in_a_namespace(privilege, &binary);
        command.args(&options.programs).args(cases);
        command.envs(libraries.map(|(variable, library)| (variable, workspace.release(library))));
        command.current_dir(workspace.root.join("conformance"));
        command
    };
    if !options.programs.is_empty() {
        return run_command(&mut command(&[])).map(|()| Vec::new());
    }
    // Much of their time, cases wait. Those with cables go beside the others.
    let said = workspace.target.join("test").join("cable.log");
    std::fs::create_dir_all(said.parent().context("a file without a folder")?)?;
    let output = std::fs::File::create(&said)?;
    println!("what cases with cables say comes behind the others' (until then: {})", said.display());
    let mut cables = command(&["cable::"]);
    cables.stdout(output.try_clone()?).stderr(output);
    let (cables, others) = std::thread::scope(|scope| {
        let cables = scope.spawn(|| run_command(&mut cables));
        let others = again::watched(&mut command(&["--skip", "cable::"]));
        (cables.join(), others)
    });
    // (Bytes of a program that is tested may be anything.)
    let cables_said = String::from_utf8_lossy(&std::fs::read(&said)?).into_owned();
    print!("{cables_said}");
    let cables = cables.unwrap_or_else(|_| Err(anyhow::anyhow!("they were not waited for")));
    if let Err(error) = &cables {
        println!("cases with cables: {error:#}");
    }
    // (Nothing is beside those that run again.)
    let (status, others_said) = others?;
    let mut passed = Vec::new();
    for (is_well, said) in [(status.success(), others_said), (cables.is_ok(), cables_said)] {
        if !is_well {
            passed.extend(again::alone(again::failures(&said), || command(&[]))?);
        }
    }
    Ok(passed)
}

/// The cases, one after the other.
fn cases_in_a_namespace(privilege: Privilege, binary: &Path) -> Command {
    let mut command = privilege.command("unshare").unwrap_or_else(|| {
        let mut command = Command::new("unshare");
        command.arg("--map-root-user");
        command
    });
    // Whoever starts this in the background may have had SIGINT ignored, which programs inherit: those that end by it never would.
    command.args(["--net", "sh", "-c", "ip link set lo up && exec env --default-signal=INT,QUIT \"$@\"", "sh"]).arg(binary);
    command.args(["--test-threads", "1"]);
    if privilege == Privilege::None {
        command.args(NEED_ROOT.iter().flat_map(|case| ["--skip", case]));
    }
    command
}

fn verdict(result: &Result<()>) -> &'static str {
    if result.is_ok() { "ok" } else { "FAILED" }
}

fn seconds(duration: Duration) -> String {
    format!("{:.1} s", duration.as_secs_f64())
}
