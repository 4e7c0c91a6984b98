//! `libvma.so`: unmodified socket programs on Ringway.
//!
//! Preloaded, this library puts its own functions in front of libc's socket calls. TCP and UDP sockets whose peers can be
//! reached by shared memory are carried by a [`ringway_stack::ring::Ring`] over it; every other socket, and
//! every descriptor that is no socket at all, goes straight to libc. Each offloaded socket keeps a kernel descriptor as its
//! placeholder: numbers, `dup`, close-on-exec and falling back to the kernel stay true, and listeners and UDP sockets
//! receive from both worlds.
//!
//! - `exports`: what the C symbols do that `ringway_preload` makes, a line or two each (`real`: libc's own functions, below them)
//! - `fdtable`: which descriptors are ours
//! - `interfaces`: rings on interfaces, beside shared memory's; `process`: the state behind its lock; `socket`: what the calls mean; `mux`: waiting (poll, select, epoll, blocking calls)
//! - `extra`: the VMA Extra API
//! - `fork`, `unseen`, `descendants`, `exit`: the process's turning points; `moving`: connections that several processes use; `cancel`: threads that
//!   are cancelled; `params`, `rules`, `log`, `report`, `fd_counters`, `crash`: what people set
//!   and see
//!
//! What this library never does: let a panic cross into C, block or enter the kernel for a byte that is there, or touch
//! a descriptor that is not a socket of the kinds above.

mod byfd;
mod cancel;
mod capture;
mod card_time;
mod crash;
mod descendants;
mod exit;
pub mod exports;
mod extra;
mod fd_counters;
mod fdtable;
mod fork;
mod interfaces;
mod lock;
mod log;
mod memory;
mod moving;
mod mux;
mod params;
mod process;
mod report;
mod rings;
mod rules;
mod slab;
mod socket;
mod unseen;

use ringway_preload::{bare_boundary, boundary, cmsg, errno, next as real};

const _: () = assert!(
    !ringway_stack::IS_FOR_TESTS,
    "libvma.so is not built with the features `marks` or `mutants` of ringway-stack, which another package of this cargo call asks for: \
     build ringway-vma in a call of its own"
);
