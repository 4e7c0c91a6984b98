//! Ringway's AF_XDP device: an ordinary Linux interface whose frames for some flows come to the process, while all others stay the kernel's.
//!
//! An XDP program in front of the interface looks each frame's addresses and ports up in a map of flow rules. What has a rule is passed to an AF_XDP socket
//! (Documentation/networking/af_xdp.rst), whose memory and queues are a ring's; what has none goes on to the kernel (XDP_PASS). The interface's
//! addresses, its ARP and its neighbour discovery stay the kernel's. Program, maps and link are the process's, and end with it.
//!
//! - [`XdpDevice`]: the interface, with its flow rules ([`card`])
//! - [`XdpQueues`]: a ring of it, on all of the interface's queues or some of them ([`queues`])
//! - `rules`: which ring has which flow; `rss`: which queue the interface has a flow come by; `strays`: frames that came to another ring than has their flow
//! - `program`: the program; `front`: it and its maps, which processes with other queues of the interface share; `bpf`: bpf(2), and an assembler; `key`: what the map is asked for
//! - [`broker`]: one process that does for others what takes privileges; `loan`: what their rings are made of
//! - `socket`, `queue`, `umem`: the socket, its four queues, and the memory that frames lie in
//! - `watch`: whether the program is in front of the interface still, and what is done where it is not
//! - `coalesce`: segments of a connection that go up as one
//! - [`roce`]: RoCE's packets, for as many processes as have them on one interface
//! - `send`: what connections have queued to send; `tso`: what the kernel cuts into segments; `partial`: checksums that a sender left to its device
//!
//! It takes CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF, and as much locked memory as frames are asked for ([`Settings`]).

mod bpf;
pub mod broker;
pub mod card;
mod coalesce;
mod error;
mod front;
mod interface;
mod key;
mod loan;
mod metadata;
mod partial;
mod program;
mod queue;
pub mod queues;
pub mod roce;
mod rss;
mod rules;
mod settings;
mod socket;
mod strays;
mod tso;
mod umem;
mod watch;

pub use card::{Landing, XdpDevice};
pub use error::AttachError;
pub use interface::{InFront, Runs, Survey};
pub use queues::{Counters, XdpQueues};
pub use ringway_host::SendBuffer;
pub use settings::Settings;
pub use umem::Received;
