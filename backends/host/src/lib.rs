//! The operating system as the Ringway stack sees it, safe to its callers and shared by all of `ffi`.
//!
//! The stack neither reads a clock nor sleeps. Whoever drives it takes the time from [`Clock`], spins by the rules of
//! [`spin`], and sleeps by [`sleep`]; a [`Progress`] thread serves the rings while the program computes; [`Addresses`]
//! says which destinations are on this machine, and [`members`] which processes of it are on Ringway, whose frames [`capture`] shows; a [`Monitor`] keeps the kernel's links, addresses, routes and neighbours, and
//! [`Neighbours`] are what a ring beside it knows of them. A [`KernelSocket`] is the
//! kernel's part of a socket above rings. Connections leave their rings for other owners, the kernel among them, by the ways of [`leave`]. Rings of cards and interfaces
//! sleep, and answer the host, as [`card`] has it. What takes privileges that
//! the process lacks, a [`Lender`] does for it.
//!
//! Nothing here goes through a libc function that a preloaded library interposes (`read`, `close`, `poll`…): `libvma.so`
//! contains this crate, and would call itself. System calls are made by number.

pub mod addresses;
pub mod capabilities;
pub mod capture;
pub mod card;
pub mod clock;
pub mod fd;
pub mod kernel_socket;
pub mod leave;
pub mod lender;
pub mod members;
pub mod neighbours;
pub mod netlink;
pub mod numbers;
pub mod progress;
pub mod queues;
pub mod rdma_interface;
mod refused;
pub mod send_memory;
mod signals;
pub mod sleep;
mod solicitation;
pub mod spin;
mod syscall;

pub use addresses::Addresses;
pub use card::{CardQueues, CardSleep};
pub use clock::Clock;
pub use fd::{Adopted, Fd};
pub use kernel_socket::KernelSocket;
pub use lender::Lender;
pub use neighbours::Neighbours;
pub use netlink::Monitor;
pub use progress::{Plan, Progress, Work};
pub use queues::{HeadMemory, HostQueues};
pub use refused::Refused;
pub use send_memory::{SendBuffer, SendMemory};
pub use signals::{Blocked, all_but_faults};
pub use sleep::{EventFd, Pidfd, is_internal};
