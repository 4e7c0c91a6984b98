//! What Ringway is faster than, side by side. `cargo xtask bench` builds the library and this, and runs it.
//!
//! A row compares one figure of ours with a peer's. Both are measured in turn, in the same run, several times; a row holds
//! medians, and goes as one line of JSON into a file and as a line of Markdown to the terminal.
//!
//! - [`apps`]: real programs, with `libvma.so` preloaded and without
//! - [`cacheline`]: how long a cache line takes from one core to another and back: the floor under any of this
//! - `engine`, a program of its own: the stack alone, beside smoltcp
//! - [`mlx5`]: a packet on a ConnectX's data path, beside libmlx5's own
//! - [`rsocket`]: rsockets on shared memory, beside TCP
//! - [`rxe`]: rsockets on the kernel's soft-RoCE, beside librdmacm's
//! - [`sim`]: the simulator's own speed
//! - [`stages`]: the instructions of a small message, by the parts of the library that execute them
//! - [`threads`]: what a thread gets done, beside a process
//! - [`xdp`]: real programs at the two ends of a veth pair
//! - [`vma`]: the ways of receiving that the VMA Extra API has beside the socket calls
#![forbid(unsafe_code)]

mod apps;
mod cacheline;
mod mlx5;
mod row;
mod rsocket;
mod rxe;
mod sim;
mod stages;
mod threads;
mod vma;
mod xdp;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Ringway's benches.
#[derive(Parser)]
#[command(bin_name = "cargo xtask bench")]
struct Arguments {
    /// The library to preload.
    #[arg(long, hide = true)]
    library: PathBuf,
    /// The folder for the rows.
    #[arg(long, hide = true)]
    output: PathBuf,
    #[command(subcommand)]
    bench: Bench,
}

#[derive(Subcommand)]
enum Bench {
    /// sockperf, iperf3, redis-benchmark, nginx, memcached, crowds, idle connections, idle servers.
    Apps(apps::Options),
    /// The round trip of a cache line between two cores.
    Cacheline,
    /// What a packet of 64 bytes takes on a ConnectX's data path, the card's work left out: instructions, time, doorbells.
    Mlx5(mlx5::Options),
    /// rsend, rrecv and riowrite on shared memory, beside TCP there and the kernel's.
    Rsocket(rsocket::Options),
    /// rstream on the kernel's soft-RoCE in a guest: rsockets of ours beside librdmacm's.
    Rxe(rxe::Options),
    /// The simulator: packets, virtual time, seeds.
    Sim(sim::Options),
    /// Where the instructions of a small message go (callgrind).
    Stages,
    /// What each of several threads gets done, beside as many processes.
    Threads(threads::Options),
    /// Small datagrams by recvfrom, recvmmsg, recvfrom_zcopy, SocketXtreme and cyclic buffers.
    Vma(vma::Options),
    /// sockperf, iperf3, redis and floods of datagrams between two network namespaces.
    Xdp(xdp::Options),
    /// An end of such a flood.
    #[command(subcommand, hide = true)]
    Datagrams(xdp::datagrams::End),
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let result = match arguments.bench {
        Bench::Apps(options) => apps::run(&arguments.library, &arguments.output, &options),
        Bench::Mlx5(options) => mlx5::run(&arguments.library, &arguments.output, &options),
        Bench::Rsocket(options) => rsocket::run(&arguments.library, &arguments.output, &options),
        Bench::Rxe(options) => rxe::run(&arguments.library, &options),
        Bench::Sim(options) => sim::run(&arguments.output, &options),
        Bench::Stages => stages::run(&arguments.library, &arguments.output),
        Bench::Threads(options) => threads::run(&arguments.library, &arguments.output, &options),
        Bench::Vma(options) => vma::run(&arguments.library, &arguments.output, &options),
        Bench::Xdp(options) => xdp::run(&arguments.library, &arguments.output, &options),
        Bench::Datagrams(end) => xdp::datagrams::play(end),
        Bench::Cacheline => cacheline::round_trip_ns().map(|ns| println!("{ns:.1} ns")),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}
