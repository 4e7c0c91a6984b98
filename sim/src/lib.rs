//! Deterministic simulation for Ringway: the stack that runs on the card, on hosts, links and a clock that are made up.
//!
//! A [`World`] holds virtual time and hosts. Each [`Host`] runs the real `ringway_stack` [`Ring`](ringway_stack::ring::Ring)
//! on a simulated NIC ([`SimQueues`]), and programs ([`App`]) that call its sockets. A switch joins the hosts' links, whose latency, bandwidth
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
//! Programs of your own run on hosts too: as an [`App`], which is called when there is something to do, or written with `async`, on
//! sockets like tokio's. Their hosts pause, crash and start again, and their network breaks, as a [`Case`] draws it. [`check`] runs them
//! over many seeds and hands back the smallest failing case. `GUIDE.md`, beside this
//! crate's manifest, goes from an empty file to a bug found, made small and replayed.
//!
//! ```
//! use ringway_sim::program::{TcpListener, TcpStream};
//! use ringway_sim::{Capture, Case, HostConfig, check};
//! use ringway_stack::Instant;
//! use tokio::io::{AsyncReadExt, AsyncWriteExt};
//!
//! fn greeting_arrives(case: &Case) -> Result<(), ringway_sim::Unfinished> {
//!     let mut world = case.world(Capture::Hash);
//!     let server = world.add_host(HostConfig::named("server"));
//!     let client = world.add_host(HostConfig::named("client").link(case.link(0)));
//!     let address = (world.host(server).ip(), 80);
//!
//!     world.spawn(server, |env| async move {
//!         let listener = TcpListener::bind(env.net(), (env.ip(), 80)).await?;
//!         let (mut stream, _) = listener.accept().await?;
//!         stream.write_all(b"hello").await
//!     });
//!     world.spawn(client, move |env| async move {
//!         let mut stream = TcpStream::connect(env.net(), address).await?;
//!         let mut text = String::new();
//!         stream.read_to_string(&mut text).await?;
//!         assert_eq!(text, "hello");
//!         std::io::Result::Ok(())
//!     });
//!     // Ten seconds with faults; then they stop, and everything must come to its end.
//!     world.run_until(Instant::from_nanos(10_000_000_000));
//!     world.set_faults(false);
//!     world.run_until_finished(Instant::from_nanos(300_000_000_000)).map(drop)
//! }
//! check(0..20, greeting_arrives);
//! ```
//!
//! What this crate never does: read a clock, start a thread, iterate over a default-hashed map, or parse frames with the code that
//! it tests.
//!
//! - [`World`], [`Host`], [`App`]: who takes part, and what they do; [`Report`] says what it came to
//! - [`LinkConfig`], [`Faults`]: what lies between them, and what goes wrong with it
//! - [`HostFaults`]: what goes wrong with them; [`FaultSet`] names every class, [`FaultCounts`] says how often each struck
//! - [`Nic`], [`NicConfig`], [`SimQueues`], [`NicFaults`]: what they do it with; each buffer, queue slot and rule is counted
//! - [`checkers`]: what must hold for every frame, call and service; [`Sockets`] lets them see the calls
//! - [`apps`]: programs that check what they get, and [`workloads`] made of them
//! - [`program`]: your own programs, written with `async`, and their disks; [`Case`] and [`check`], which find the seed that breaks
//!   programs of either kind
//! - [`scenario`]: everything above, drawn from a seed, run in a safety and a liveness phase
//! - [`campaign`]: many seeds: what a failure is, its minimisation, and what it all came to
//! - [`machine`]: hosts with several NICs, whose programs call [`ringway_stack::socket`]; [`machines`]: what two of them go through, and its laws
//! - [`migrations`]: connections that go over to other MAC addresses while data flow, as those of `libvma.so` do, and how their peers follow
//! - [`deaths`]: a world of its own, whose device tells of a host's death, and how connections must end then
//! - [`Relay`]: a link with these faults alone, for frames and a clock of your own
//! - [`connectx`]: a ConnectX as a driver meets it, bytes in queues; it stands alone, beside the simulated NIC
//! - [`trace`]: hash, pcapng and text
//! - [`timeline`]: a trace as a page for a browser
#![forbid(unsafe_code)]

mod addresses;
mod alarm;
pub mod apps;
pub mod campaign;
pub mod checkers;
mod checksum;
pub mod connectx;
pub mod deaths;
mod dissect;
pub mod drills;
mod fabric;
mod faults;
#[cfg(test)]
mod frames;
mod heap;
mod host;
pub mod machine;
pub mod machines;
pub mod migrations;
mod network;
mod nic;
pub mod program;
mod queue;
pub mod random;
mod reached;
pub mod relay;
mod report;
pub mod scenario;
mod segment;
mod sockets;
pub mod timeline;
pub mod trace;
pub mod workloads;
mod world;

pub use addresses::Family;
pub use fabric::{Direction, LinkConfig, Marks, Strike};
pub use faults::{Episodes, FaultCounts, FaultSet, Faults, Forgery, HostFaults, Mishap, UnknownFault};
pub use host::{App, Context, Host, HostConfig, Step};
pub use nic::{Bucket, Nic, NicConfig, NicFault, NicFaults, NicStrike, Outstanding, Reception, RxDrop, SimQueues, SimRx, SimTx, Strength};
pub use program::{Case, check};
pub use reached::{Reached, State};
pub use relay::Relay;
pub use report::{Report, assert_deterministic};
pub use sockets::{Lending, Sockets};
pub use trace::{Trace, TraceHash};
pub use world::{Capture, HostId, Unfinished, World, WorldConfig};

/// Compiles and runs what the guide says that a synchronous program is.
#[cfg(doctest)]
#[doc = include_str!("../GUIDE.md")]
pub struct Guide;

/// Most hosts in a world.
pub const HOSTS_MAX: usize = 256;
