//! `ringway`: runs a program on Ringway, shows what its sockets do, and says why something is not offloaded.
//!
//! - [`run`]: finds `libvma.so`, preloads it, and becomes the program
//! - [`stats`]: a live table of processes, rings and sockets
//! - [`sockets`]: the sockets of all processes, as `ss` shows the kernel's
//! - [`capture`]: what rings send and receive, as pcapng
//! - [`doctor`]: the machine, device by device; processes, socket by socket; parameters and rules
//! - [`broker`]: has interfaces for programs without privileges
//! - [`route`]: which link, source address and next hop a destination has
//! - [`sim`]: replays a seed in the simulator, or runs a campaign of many (feature `sim`)
//! - [`binary`]: programs that no library can be preloaded into
//! - [`pages`]: manual pages and completions
//! - [`library`]: where `libvma.so` is
//!
//! What it shares with `vma_stats` is the library `ringway_cli`.
#![deny(unsafe_code)]

mod binary;
mod broker;
mod capture;
mod doctor;
mod library;
mod pages;
mod route;
mod run;
#[cfg(feature = "sim")]
mod sim;
mod sockets;
mod stats;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use ringway_cli::{members, pipe, table};

/// (A campaign allocates and frees all the time: with the C library's allocator it takes a twenty-fifth longer.)
#[cfg(feature = "sim")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Runs unmodified socket programs in user space.
#[derive(Parser)]
#[command(name = "ringway", version = VERSION)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

/// The version, and the commit that it was built from.
const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " (", env!("RINGWAY_COMMIT"), ")");

#[derive(Subcommand)]
enum Command {
    /// Run a program on Ringway. The same as LD_PRELOAD=…/libvma.so PROGRAM.
    Run(run::Options),
    /// What processes, rings and sockets carry: a live table, or JSON.
    Stats(stats::Options),
    /// The sockets of all processes on Ringway, as ss(8) shows the kernel's.
    Sockets(sockets::Options),
    /// What rings send and receive, on any device, as pcapng: live into Wireshark or tcpdump, or into a file.
    Capture(capture::Options),
    /// Is this offloaded? If not, why? The machine device by device, processes socket by socket.
    Doctor(doctor::Options),
    /// Attach to interfaces, and give their rings to programs of certain users, which need no privileges then.
    ///
    /// It needs CAP_NET_ADMIN, CAP_NET_RAW and CAP_BPF (or root), and Linux 6.4. A program asks it where it may not attach to an interface itself (ringway run
    /// --device shm,xdp:INTERFACE). One program at a time has an interface's ring, and flow rules for the interface's own addresses, ports that its user may
    /// have, and no socket of another user's. What it has ends with it. Whoever is listed may send any frame there: list whom you would give CAP_NET_RAW.
    Broker(broker::Options),
    /// Which link, source address and next hop a destination has, and whether a device of Ringway's carries it.
    Route(route::Options),
    /// Replay a seed in the simulator, or run a campaign of many.
    ///
    /// Hosts with the real stack, their NICs, links and faults are made up from a seed, and so is what the programs on them do. Virtual time
    /// passes as fast as it can be computed. A seed first runs under faults, then without: readers must get what was written, everything
    /// must end within a bound, and every buffer must be given back. The same seed runs the same way, byte for byte, on every machine.
    #[cfg(feature = "sim")]
    Sim(sim::Options),
    /// Print completions for a shell.
    Completions(pages::Completions),
    /// Print the manual page of a command.
    Man(pages::Manual),
}

fn main() -> ExitCode {
    pipe::end_with_the_reader();
    let result = match Arguments::parse().command {
        Command::Run(options) => run::run(&options),
        Command::Stats(options) => stats::run(&options),
        Command::Sockets(options) => sockets::run(&options),
        Command::Capture(options) => capture::run(&options),
        Command::Doctor(options) => doctor::run(&options),
        Command::Broker(options) => broker::run(&options),
        Command::Route(options) => route::run(&options),
        #[cfg(feature = "sim")]
        Command::Sim(options) => sim::run(&options),
        Command::Completions(options) => pages::complete(&options),
        Command::Man(options) => pages::manual(&options),
    };
    // Not by returning the error from main: that would print a backtrace to whoever has RUST_BACKTRACE set.
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("ringway: {error:#}");
            error.downcast_ref::<run::NotExecuted>().map_or(ExitCode::FAILURE, |error| ExitCode::from(error.status()))
        }
    }
}

#[cfg(test)]
mod tests;
