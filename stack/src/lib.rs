//! The Ringway stack: TCP and UDP sockets over any [`device::Device`].
//!
//! A [`ring::Ring`] owns one device's queues and every flow that is steered to them: a frame comes in by
//! [`ring::Ring::poll`], is demultiplexed to a flow, and leaves as bytes in a socket's receive queue; what a program
//! sends becomes segments that reference the device's own buffers. Time is an argument of every call that needs it
//! ([`time::Instant`]), randomness a seed handed in at the start, and what must happen later a deadline
//! ([`ring::Ring::next_deadline`]). So the code that runs in the simulator is the code that runs on the card.
//!
//! What this crate never does: read a clock, start a thread, make a system call, iterate over a default-hashed map,
//! or look at memory that a peer may write other than through a counted handle ([`device::RxBuffer`]).
//!
//! - [`device`]: the contract that a NIC, a shared-memory segment or the simulator fulfils
//! - [`wire`]: Ethernet, VLAN, ARP, IPv4, IPv6, ICMP, ICMPv6, UDP and TCP headers, parsed and emitted
//! - [`tcp`]: the connection as a state machine without I/O; [`tcp::congestion`]: how much may be in the network
//! - [`roce`]: RoCEv2: packets, queue pairs and connection management as state machines without I/O, and a message plane on any device's queues
//! - [`cm`]: RDMA-CM's identifiers, events and their order, above any device's message plane
//! - [`rsocket`]: sockets over queue pairs, which librdmacm's rsockets understand
//! - [`ndisc`], [`mld`]: neighbours and group memberships of IPv6 as state machines without I/O; rings use the second, and have neighbours of their own
//! - [`ring`]: queues, demultiplexing, timers, neighbours, and the sockets' calls that never block
//! - [`socket`]: sockets above several rings and devices, and the part of them that is the kernel's
//! - [`net`]: links, addresses, routes and neighbours as a snapshot, and which of them a destination is reached by
//! - [`cyclic`]: received packets as records of one length, in one piece of memory
//! - [`flow`]: what is told of every flow: what it is ready for, what it counted
//! - [`ud`]: Ethernet frames in UD datagrams, for verbs devices without raw packet queue pairs
//! - [`addr`]: addresses of the link layer
//! - [`raw`]: frames without a stack: the program supplies the headers
//! - [`offload`]: the names of the devices, and the reasons for not offloading
//!
//! Which of these may name which is a table that `cargo xtask tidy` holds (`xtask/src/tidy/arrows.rs`): `tcp` knows no ring, `device` and `wire`
//! know neither.
#![forbid(unsafe_code)]

pub mod addr;
#[cfg(test)]
mod capture;
pub mod cm;
pub mod cyclic;
pub mod device;
pub mod error;
pub mod flow;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
pub mod marks;
pub mod mld;
pub mod mutants;
pub mod ndisc;
pub mod net;
pub mod offload;
pub mod raw;
pub mod ring;
pub mod roce;
pub mod rsocket;
pub mod socket;
pub mod tcp;
pub mod time;
pub mod timer;
pub mod ud;
pub mod wire;

pub use error::Error;
pub use time::Instant;

/// Whether it was built with a feature that no product is to have: `marks` counts, `mutants` is wrong on purpose, `fuzzing` is for who looks for bugs.
pub const IS_FOR_TESTS: bool = cfg!(any(feature = "fuzzing", feature = "marks", feature = "mutants"));
