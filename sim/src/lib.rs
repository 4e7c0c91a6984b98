//! Deterministic simulation for Ringway: the stack that runs on the card, on hosts, links and a clock that are made up.
//!
//! A [`World`] holds virtual time and hosts. Each [`Host`] runs the real `ringway_stack` [`Ring`](ringway_stack::ring::Ring)
//! on a simulated NIC ([`SimDevice`]), and programs ([`App`]) that call its sockets. A switch joins the hosts' links, whose latency, bandwidth
//! and [`Faults`] are yours to set. Time jumps from event to event: an hour of retransmission timeouts takes milliseconds.
//!
//! Everything follows from the seed. Each fault class on each link and direction, each host and each option draws from a
//! ChaCha8 stream of its own ([`random`]), so that adding a fault or an option leaves old seeds' stories as they were. The [`Trace`]
//! hashes every frame with its time; [`assert_deterministic`] runs a seed twice and compares. Keep the frames
//! ([`Capture::Frames`]) and write them as pcapng for Wireshark, or [`trace::render`] them as text.
//!
//! ```
//! use ringway_sim::{Faults, HostConfig, LinkConfig, World, WorldConfig};
//!
//! let mut world = World::new(WorldConfig::seeded(42));
//! let lossy = LinkConfig { faults: Faults { loss_ppm: 20_000, ..Faults::default() }, ..LinkConfig::default() };
//! let client = world.add_host(HostConfig::named("client").link(lossy));
//! let server = world.add_host(HostConfig::named("server"));
//! assert_ne!(world.host(client).ip(), world.host(server).ip());
//! ```
//!
//! What this crate never does: read a clock, start a thread, iterate over a default-hashed map, or parse frames with the code that
//! it tests.
//!
//! - [`World`], [`Host`], [`App`]: who takes part, and what they do
//! - [`LinkConfig`], [`Faults`]: what lies between them
//! - [`NicConfig`], [`SimDevice`]: what they do it with; each buffer, queue slot and rule is counted
//! - [`checkers`]: what must hold for every frame, call and service; [`Sockets`] lets them see the calls
//! - [`apps`]: workloads that check what they get
//! - [`scenario`]: everything above, drawn from a seed, run in a safety and a liveness phase
//! - [`trace`]: hash, pcapng and text
#![forbid(unsafe_code)]

pub mod apps;
pub mod checkers;
mod checksum;
mod device;
mod dissect;
mod fabric;
mod faults;
#[cfg(test)]
mod frames;
mod host;
mod network;
mod queue;
pub mod random;
mod report;
pub mod scenario;
mod sockets;
pub mod trace;
mod world;

pub use device::{NicConfig, Outstanding, RxDrop, SimDevice, SimRx, SimTx};
pub use fabric::{Direction, LinkConfig, Marks, Strike};
pub use faults::{FaultCounts, FaultSet, Faults, UnknownFault};
pub use host::{App, Context, Host, HostConfig, Step};
pub use report::{Report, assert_deterministic};
pub use sockets::Sockets;
pub use trace::{Trace, TraceHash};
pub use world::{Capture, HostId, Unfinished, World, WorldConfig};

/// Most hosts in a world.
pub const HOSTS_MAX: usize = 256;
