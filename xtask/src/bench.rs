//! `cargo xtask bench`: builds what is measured, and hands over to `ringway-benches`.

use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::{Result, anyhow};

use crate::install::{self, Package};
use crate::vm;
use crate::workspace::{self, Workspace, run_command};

/// What to measure.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// The bench, and its options: `apps`, `cacheline`, `engine`, `mlx5`, `rsocket`, `rxe`, `sim`, `stages`, `threads`, `vma`, `xdp`; `apps --help` tells more.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
    arguments: Vec<OsString>,
}

/// Runs one bench.
pub(crate) fn run(options: &Options) -> Result<()> {
    let workspace = Workspace::find()?;
    if options.arguments.first().is_some_and(|bench| bench == "engine") {
        return engine(&workspace, &options.arguments[1..]);
    }
    // The simulator needs neither the library nor anybody's programs.
    if options.arguments.first().is_none_or(|bench| bench != "sim") {
        install::packages(&[
            Package::CC,
            Package::SOCKPERF,
            Package::IPERF3,
            Package::REDIS_SERVER,
            Package::REDIS_TOOLS,
            Package::PYTHON,
            Package::MEMCACHED,
            Package::LIBMEMCACHED,
            Package::NGINX,
            Package::WRK,
            Package::APACHE_UTILS,
            Package::VALGRIND,
            Package::ETHTOOL,
            Package::IPROUTE,
            Package::STRACE,
            Package::UNSHARE,
            Package::IBVERBS_PROVIDERS,
        ])?;
        workspace.build_release()?;
    }
    let mut packages = vec!["--package", "ringway-benches"];
    let is_in_guest = options.arguments.first().is_some_and(|bench| bench == "rxe");
    if is_in_guest || options.arguments.first().is_some_and(|bench| bench == "rsocket") {
        packages.extend(["--package", "ringway-rsocket"]);
    }
    if options.arguments.first().is_some_and(|bench| bench == "mlx5") {
        let card = ["--package", "ringway-mlx5", "--example", "packets"];
        run_command(workspace::cargo().args(["build", "--release", "--quiet"]).args(card))?;
        packages.extend(["--package", "ringway-uverbs"]);
    }
    run_command(workspace::cargo().args(["build", "--release", "--quiet"]).args(packages))?;
    if is_in_guest {
        return in_guest(&workspace, &options.arguments);
    }
    let mut bench = workspace.command(workspace.release("ringway-benches"));
    bench.arg("--library").arg(workspace.release("libvma.so")).arg("--output").arg(workspace.target.join("bench"));
    run_command(bench.args(&options.arguments))
}

/// The stack alone: a program of its own, whose allocator counts, and which needs nothing else built.
fn engine(workspace: &Workspace, arguments: &[OsString]) -> Result<()> {
    run_command(workspace::cargo().args(["build", "--release", "--quiet", "--package", "ringway-engine-bench"]))?;
    let mut bench = workspace.command(workspace.release("ringway-engine-bench"));
    run_command(bench.arg("--output").arg(workspace.target.join("bench")).args(arguments))
}

/// What guests alone have the device for. The second one has the servers of what goes between two.
fn in_guest(workspace: &Workspace, arguments: &[OsString]) -> Result<()> {
    let own = [workspace.release("ringway-benches"), "--library".into(), workspace.release("libvma.so"), "--output".into(), "/tmp".into()];
    let words = own.into_iter().map(PathBuf::into_os_string).chain(arguments.iter().cloned());
    let words = words.map(|word| word.into_string().map_err(|word| anyhow!("{}: a path that is not UTF-8", word.display())));
    let library = workspace.release("libvma.so");
    vm::in_two_guests(None, words.collect::<Result<_>>()?, format!("sh benches/src/rxe/serve.sh '{}'", library.display()))
}
