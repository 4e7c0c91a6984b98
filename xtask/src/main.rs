//! Every command of the README: `cargo xtask {demo,test,fuzz,bench,conformance,install,tidy,vm,ci}`. One file a subcommand.
//!
//! - [`deploy`]: `install` and `uninstall`; [`deb`]: a package of the same; [`installed`]: the step of `test` that tries what it installed
//! - [`install`]: the packages that a subcommand needs, installed where that is allowed
//! - [`workspace`]: where things are, how they are built, and how other programs are run
#![forbid(unsafe_code)]

mod arm;
mod bench;
mod ci;
mod conformance;
mod deb;
mod demo;
mod deploy;
mod fuzz;
mod install;
mod installed;
mod packetdrill;
mod test;
mod tidy;
mod vm;
mod workspace;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Ringway's tasks.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// A plain ping-pong program, on the kernel's loopback and on Ringway in turn.
    Demo(demo::Options),
    /// Everything that must hold: format, lints, licences, unit tests, loom, simulated seeds, real programs.
    Test(test::Options),
    /// libFuzzer on the stack's parsers and state machines; fails if it finds something.
    Fuzz(fuzz::Options),
    /// Ringway and the kernel side by side; writes target/bench/*.jsonl and prints tables.
    Bench(bench::Options),
    /// What the documents promise, as a matrix by device; fails if it has a hole.
    Conformance(conformance::Options),
    /// Library, header, rules, manual pages, completions, commands and examples, under a prefix.
    Install(deploy::Options),
    /// Removes what `install` with the same options has installed.
    Uninstall(deploy::Options),
    /// A Debian package of what `install` installs, by dpkg-deb: target/ringway_VERSION_ARCHITECTURE.deb.
    Deb,
    /// The user's packetdrill on the user's scripts, against Ringway's stack; prints a table, and fails if a script does.
    Packetdrill(packetdrill::Options),
    /// A command in a virtual machine whose kernel has soft-RoCE.
    Vm(vm::Options),
    /// What lints cannot check: file length, forbidden APIs, dead files, paths of one machine, what the pages for readers name.
    Tidy,
    /// What continuous integration runs.
    Ci,
}

fn main() -> ExitCode {
    let result = match Arguments::parse().task {
        Task::Demo(options) => demo::run(&options),
        Task::Test(options) => test::run(&options),
        Task::Fuzz(options) => fuzz::run(&options),
        Task::Bench(options) => bench::run(&options),
        Task::Conformance(options) => conformance::run(&options),
        Task::Install(options) => deploy::run(&options),
        Task::Uninstall(options) => deploy::remove(&options),
        Task::Deb => deb::run(),
        Task::Packetdrill(options) => packetdrill::run(&options),
        Task::Vm(options) => vm::run(&options),
        Task::Tidy => tidy::run(),
        Task::Ci => ci::run(),
    };
    // Not by returning the error from main: that would print a backtrace to whoever has RUST_BACKTRACE set.
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}
