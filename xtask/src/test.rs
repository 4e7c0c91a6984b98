//! `cargo xtask test`: everything that must hold, step by step, each with its duration, and a summary at the end.

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, bail, ensure};
use clap::ValueEnum;

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

/// A step. The order is that of running: cheap and common failures first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Step {
    /// cargo fmt --check.
    Fmt,
    /// `cargo xtask tidy`, and documentation without a warning.
    Tidy,
    /// clippy on every target, warnings are errors.
    Clippy,
    /// cargo deny: licences, sources and banned crates.
    Deny,
    /// Unit tests, the simulator's properties, documentation tests.
    Unit,
    /// Libraries and programs compile for aarch64; unit tests and a ping-pong under QEMU's user emulation.
    Arm,
    /// Everything installed outside of the checkout, and the examples compiled and run against that.
    Install,
    /// The simulator's checkers against stacks with one thing wrong each, and the stack's marked code paths.
    Mutants,
    /// The shared-memory rings under loom.
    Loom,
    /// libvma.so, librspreload.so and ringway, as users get them.
    Build,
    /// C programs of the Extra API under valgrind, and what is left of them.
    Memory,
    /// Rsockets of the stack's RoCE against librdmacm's on the kernel's soft-RoCE, in a virtual machine, and rping against its connection management and verbs; and TCP and UDP of libvma.so
    /// over it, and over AF_XDP on virtio_net, between two virtual machines.
    Rxe,
    /// A thousand fixed seeds in the simulator, which must come upon all that there is to come upon, and some fresh ones.
    Sim,
    /// Real programs on Ringway.
    Programs,
}

/// Seeds of every run of the simulator's step: enough for it to insist that every fault class, workload, marked code path and state comes up.
const FIXED_SEEDS: u64 = 1000;
/// Seeds that no earlier run had.
const FRESH_SEEDS: u64 = 200;

/// Features that no other step has: what is built with them is no stack to be used.
const MUTANTS: [&str; 13] = [
    "test",
    "--quiet",
    "--no-fail-fast",
    "--package",
    "ringway-sim",
    "--features",
    "mutants,marks",
    "--test",
    "mutants",
    "--test",
    "marks",
    "--test",
    "moves",
];

/// The same of the mlx5 driver.
const MUTANTS_OF_MLX5: [&str; 8] = ["test", "--quiet", "--package", "ringway-mlx5", "--features", "mutants", "--test", "mutants"];

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
}

/// Runs the steps; all of them, even if one fails.
pub(crate) fn run(options: &Options) -> Result<()> {
    let workspace = Workspace::find()?;
    let steps: Vec<_> = Step::value_variants().iter().copied().filter(|s| options.only.is_empty() || options.only.contains(s)).collect();
    let outcomes = std::thread::scope(|scope| {
        let play = |step: Step| step.play(&workspace, options);
        let mut build = None;
        let mut outcomes = Vec::new();
        for &step in &steps {
            // Link-time optimisation keeps one processor busy for minutes. The steps before it, which no clock decides, have the other meanwhile.
            if step == Step::BESIDE_BUILD && steps.contains(&Step::Build) {
                build = Some(scope.spawn(move || play(Step::Build)));
            }
            let outcome = match build.take_if(|_| step == Step::Build) {
                Some(build) => build.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
                None => play(step),
            };
            outcomes.push(outcome);
        }
        outcomes
    });
    println!("\nsummary");
    for Outcome { step, result, took } in &outcomes {
        println!("  {:10} {:7} {:>9}", step.name(), verdict(result), seconds(*took));
    }
    let failed = outcomes.iter().filter(|outcome| outcome.result.is_err()).count();
    ensure!(failed == 0, "{failed} of {} steps failed", outcomes.len());
    Ok(())
}

impl Step {
    /// The step with which [`Step::Build`] begins.
    const BESIDE_BUILD: Self = Self::Mutants;

    /// Runs it, and says so.
    fn play(self, workspace: &Workspace, options: &Options) -> Outcome {
        println!("\n=== {}", self.name());
        let start = Instant::now();
        let result = self.run(workspace, options);
        if let Err(error) = &result {
            println!("{error:#}");
        }
        let took = start.elapsed();
        println!("=== {} {} in {}", self.name(), verdict(&result), seconds(took));
        Outcome { step: self, result, took }
    }

    fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |v| v.get_name().to_owned())
    }

    fn run(self, workspace: &Workspace, options: &Options) -> Result<()> {
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
            Self::Unit => {
                let verbs = [
                    Package::LIBIBVERBS,
                    Package::LIBRDMACM,
                    Package::IBVERBS_PROVIDERS,
                    Package::IBVERBS_UTILS,
                    Package::PERFTEST,
                    Package::RDMACM_UTILS,
                    Package::PYVERBS,
                ];
                install::packages(&[Package::CC, Package::IPROUTE, Package::TSHARK])?;
                install::packages(&verbs)?;
                unit(options)?;
                conformance::run(&conformance::Options { list: true, device: None })
            }
            Self::Arm => arm::run(workspace),
            Self::Install => installed::run(workspace),
            Self::Mutants => {
                run_command(cargo().args(MUTANTS))?;
                run_command(cargo().args(MUTANTS_OF_MLX5))
            }
            Self::Loom => loom(workspace),
            Self::Build => workspace.build_tested(),
            Self::Memory => memory(workspace),
            Self::Rxe => rxe(workspace),
            Self::Sim => sim(workspace),
            Self::Programs => programs(workspace, options),
        }
    }
}

/// (What needs network namespaces leaves itself out where there are none, but where CI is set.)
fn unit(options: &Options) -> Result<()> {
    let mut test = cargo();
    test.args(["test", "--workspace", "--quiet", "--no-fail-fast"]);
    if options.ci {
        test.env("CI", "true");
    } else if Privilege::of_this_user() != Privilege::Root {
        println!("not run, for they need root: tests in network namespaces (of ringway-host, ringway-xdp, ringway-vma and ringway-cli)");
    }
    run_command(&mut test)
}

/// Links in the documentation that lead nowhere, and the like.
fn documentation() -> Result<()> {
    run_command(cargo().args(["doc", "--workspace", "--no-deps", "--quiet"]).env("RUSTDOCFLAGS", "--deny warnings"))
}

fn clippy() -> Result<()> {
    install::rust_components()?;
    let deny = ["--", "--deny", "warnings"];
    run_command(cargo().args(["clippy", "--workspace", "--all-targets", "--quiet"]).args(deny))?;
    // Not among "all targets", since `cargo test` must not run it by itself.
    run_command(cargo().args(["clippy", "--package", "ringway-conformance", "--test", "programs", "--quiet"]).args(deny))?;
    run_command(cargo().args(["clippy", "--package", "ringway-vma", "--test", "memory", "--quiet"]).args(deny))
}

/// With the library as built for release: the other is too slow under valgrind.
fn memory(workspace: &Workspace) -> Result<()> {
    install::packages(&[Package::CC, Package::VALGRIND])?;
    let library = workspace.release("libvma.so");
    ensure!(library.exists(), "libvma.so is not built: run the step `build` first");
    run_command(
        cargo().args(["test", "--quiet", "--no-fail-fast", "--package", "ringway-vma", "--test", "memory"]).env("RINGWAY_LIBVMA", library),
    )
}

/// loom replaces the atomics, so everything is built again, beside the ordinary build.
fn loom(workspace: &Workspace) -> Result<()> {
    let mut test = cargo();
    test.args(["test", "--quiet", "--no-fail-fast", "--package", "ringway-shm", "--lib", "--target-dir"])
        .arg(workspace.target.join("loom"));
    // Exploring all interleavings is what takes the time: optimise.
    run_command(test.env("RUSTFLAGS", "--cfg loom").env("CARGO_PROFILE_DEV_OPT_LEVEL", "3").arg("loom"))
}

fn rxe(workspace: &Workspace) -> Result<()> {
    install::packages(&[Package::PYTHON, Package::PERFTEST])?;
    run_command(cargo().args(["build", "--quiet", "--package", "ringway-rsocket", "--lib", "--example", "interop"]))?;
    run_command(cargo().args(["build", "--quiet", "--package", "ringway-vma", "--lib"]))?;
    run_command(cargo().args(["build", "--quiet", "--package", "ringway-uverbs", "--lib"]))?;
    run_command(cargo().args(["build", "--quiet", "--package", "ringway-cli", "--bin", "ringway"]))?;
    let built = |name: &str| Ok::<_, anyhow::Error>(workspace.target.join(name).to_str().context("a path that is not UTF-8")?.to_owned());
    let (example, library) = (built("debug/examples/interop")?, built("debug/librsocket.so")?);
    let words = ["sh", "ffi/rsocket/tests/rxe.sh", &example, &library];
    vm::in_guest(words.map(str::to_owned).to_vec())?;
    let words = ["sh", "ffi/uverbs/tests/rxe.sh", &built("debug/libringway_connectx.so")?];
    vm::in_guest(words.map(str::to_owned).to_vec())?;
    conformance::guest::run(workspace)?;
    let (library, ringway) = (built("debug/libvma.so")?, built("debug/ringway")?);
    let words = ["sh", "ffi/vma/tests/rxe/ask.sh", &library];
    vm::in_two_guests(None, words.map(str::to_owned).to_vec(), format!("sh ffi/vma/tests/rxe/serve.sh '{library}'"))?;
    // (A kernel that says what its drivers have for XDP: since Linux 6.3.)
    let words = ["sh", "ffi/vma/tests/virtio/ask.sh", &library, &ringway];
    vm::in_two_guests(Some("6.12"), words.map(str::to_owned).to_vec(), format!("sh ffi/vma/tests/virtio/serve.sh '{library}'"))
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
/// them alone, and a second user and a second namespace can be had.
fn programs(workspace: &Workspace, options: &Options) -> Result<()> {
    install::packages(&PROGRAMS)?;
    let libraries =
        [("RINGWAY_LIBVMA", "libvma.so"), ("RINGWAY_LIBRSPRELOAD", "librspreload.so"), ("RINGWAY_LIBCONNECTX", "libringway_connectx.so")];
    for (_, library) in libraries {
        ensure!(workspace.release(library).exists(), "{library} is not built: run the step `build` first");
    }
    let binary = build_programs()?;
    let privilege = Privilege::of_this_user();
    let mut command = match privilege.command("unshare") {
        Some(mut command) => {
            command.arg("--net");
            command
        }
        None if options.ci => bail!("the case of two users needs root or sudo, which this account has not"),
        None => {
            println!("not run, for they need root: {}", NEED_ROOT.join(" "));
            let mut command = Command::new("unshare");
            command.args(["--map-root-user", "--net"]);
            command
        }
    };
    // Whoever starts this in the background may have had SIGINT ignored, which programs inherit: those that end by it never would.
    command.args(["sh", "-c", "ip link set lo up && exec env --default-signal=INT,QUIT \"$@\"", "sh"]).arg(binary);
    command.args(["--test-threads", "1"]).args(&options.programs);
    if privilege == Privilege::None {
        command.args(NEED_ROOT.iter().flat_map(|case| ["--skip", case]));
    }
    command.envs(libraries.map(|(variable, library)| (variable, workspace.release(library))));
    run_command(command.current_dir(workspace.root.join("conformance")))
}

/// Builds the cases, and the examples that some of them run; the path of the program that runs them.
fn build_programs() -> Result<PathBuf> {
    run_command(cargo().args(["build", "--quiet", "--package", "ringway-conformance", "--examples"]))?;
    let mut build = cargo();
    build.args([
        "test",
        "--package",
        "ringway-conformance",
        "--test",
        "programs",
        "--no-run",
        "--message-format",
        "json-render-diagnostics",
    ]);
    let output = build.stderr(std::process::Stdio::inherit()).output()?;
    ensure!(output.status.success(), "the cases do not build");
    let messages = String::from_utf8(output.stdout)?;
    let artifacts = messages.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let programs = artifacts.filter(|a| a["target"]["name"] == "programs");
    programs.filter_map(|a| a["executable"].as_str().map(PathBuf::from)).next_back().context("cargo names no program")
}

fn verdict(result: &Result<()>) -> &'static str {
    if result.is_ok() { "ok" } else { "FAILED" }
}

fn seconds(duration: Duration) -> String {
    format!("{:.1} s", duration.as_secs_f64())
}
