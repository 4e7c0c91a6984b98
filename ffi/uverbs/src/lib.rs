//! `libringway_connectx.so`: a ConnectX in software under unmodified libibverbs and libmlx5, preloaded in front of libc.
//!
//! The kernel's side of an RDMA device is three things to a program: files below /sys/class, a character device that answers one ioctl, and
//! a card that reads and writes the program's queues. The first two are here; the card is `ringway_sim::connectx` (work queue entries,
//! completions, doorbell records, in bytes) on `ringway_stack::roce` (RC, UC and UD). Processes of one user on one machine are the network.
//!
//! - [`sysfs`]: the device's files, which are in memory alone; `paths`, `mapping`, `intercept`: libc's calls that find them
//! - `descriptors`: which descriptor is what; `process`: the one lock, the thread; `forks`: whose handlers of forks come first; `heap`: the library's own memory
//! - [`abi`]: the ioctl's bytes; `commands`: what each command does
//! - `engine`: the card, its queue pairs, and the way between both; `rdma_cm`: the other character device, for librdmacm; `bus`: packets between processes; `wire`: an interface in its stead
//!
//! Doorbells are seen by a thread that looks at register pages, which are memory that the program shares with the card, or by faults (`trap`). What is not known to the
//! device gives the errno that the kernel gives, and with `RINGWAY_CONNECTX_LOG=1` a line on standard error.
//!
//! What it never does: write a file, keep anything beyond its process, or reach beyond this machine, unless it is plugged into one of its interfaces.

#![cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "doorbells are trapped on x86-64 alone"))]

pub mod abi;
mod bus;
mod commands;
mod descriptors;
mod engine;
#[cfg_attr(test, allow(dead_code, reason = "unit tests have no C symbols"))]
mod forks;
#[cfg_attr(test, allow(dead_code, reason = "unit tests have libc's"))]
mod heap;
mod intercept;
mod log;
#[cfg_attr(test, allow(dead_code, reason = "unit tests have no C symbols"))]
mod mapping;
#[cfg_attr(test, allow(dead_code, reason = "unit tests have no C symbols"))]
mod paths;
mod process;
mod rdma_cm;
pub mod sysfs;
mod trap;
mod wire;

use intercept::Uverbs;

ringway_preload::interpose!(Uverbs);
