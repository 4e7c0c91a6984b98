//! Real programs, unmodified, on Ringway: right answers, offloaded, clean exits, nothing left behind.
//!
//! `cargo xtask test` builds `libvma.so`, installs the programs and runs this in a network namespace of its own, one case
//! at a time, so that the kernel's counters tell about the case alone. By hand: `cargo xtask test --only programs`.
//! `RINGWAY_PROGRAMS=kernel` runs the same cases without the library, which proves the expectations themselves.
#![forbid(unsafe_code)]
#![allow(clippy::disallowed_methods, reason = "real programs take real time")]

mod asyncio;
mod cable;
mod capture;
mod command;
mod cpython;
mod fallback;
mod git;
mod harness;
mod http;
mod idle;
mod inetd;
mod iperf3;
mod ipv6;
mod isolation;
mod kills;
mod memcached;
mod mixed;
mod multiprocessing;
mod nginx;
mod postgres;
mod processes;
mod redis;
mod rsockets;
mod runtimes;
mod socat;
mod sockperf;
mod sockperf_vma;
mod ssh;
