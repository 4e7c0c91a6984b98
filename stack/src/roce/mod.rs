//! RoCEv2 as state machines without I/O (IBTA spec, volume 1, and its annex A17).
//!
//! An [`Hca`] is an adapter as verbs has it: memory regions, completion queues, queue pairs. An IP packet comes in by [`Hca::on_packet`],
//! IP packets go out by [`Hca::poll_transmit`], and what must happen later does by [`Hca::deadline`] and [`Hca::on_timer`]. The bytes of
//! memory regions stand behind [`memory::Memory`]. Everything is bounded, by [`Limits`] or by what a queue pair was made with, whatever a
//! peer sends. Queues are allocated when they are made, and packets do not allocate, but for a node of the list of timers now and then.
//!
//! - [`packet`]: the transport headers, their IP packets, their frames; [`psn`]: packet sequence numbers
//! - [`mad`]: management datagrams of connection management, and RDMA-CM's private data
//! - [`cm`]: connection management
//! - [`memory`], [`work`], [`qp`]: what a program deals with
//! - [`Node`]: adapter and connection management in one, as a program of RDMA-CM sees them; `messages`: the adapter as the contract has it
//! - [`SoftRoce`]: such a program's machine on the queues of any device that carries frames; [`Ways`]: to whom they go there; [`Network`]: an ordinary network
//! - [`Dcqcn`]: congestion control of connections, where it is asked for
//! - [`rc`]: reliable connections; `uc`: unreliable ones; `ud`: datagrams; `gsi`: queue pair 1
//!
//! What it leaves out: shared receive queues, memory windows, and path migration.

mod bytes;
#[cfg(test)]
pub(crate) mod capture;
pub mod cm;
mod cq;
mod dcqcn;
mod flaws;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing;
mod gsi;
mod hca;
pub mod mad;
pub mod memory;
mod message;
mod messages;
mod network;
mod node;
pub mod packet;
mod payload;
pub mod qp;
pub mod rc;
mod slab;
mod soft;
#[cfg(test)]
pub(crate) mod tests;
mod uc;
mod ud;

pub use crate::device::messages::{psn, work};
pub use cq::Arm;
pub use dcqcn::Dcqcn;
pub(crate) use flaws::Flaw;
pub use gsi::{BACKLOG_MAX as MANAGEMENT_MAX, Management};
pub use hca::{CreateError, Dropped, Hca, Limits, MEMBERS_MAX, Predicted, Tuning};
pub use network::{Network, group_mac};
pub use node::{Node, NodeConfig, Sharing};
pub use soft::{Elsewhere, Neighbours, Routed, SoftRoce, Tap, Traffic, Vouched, WAITING_BYTES_MAX, WAITING_MAX, Way, Ways};
pub use ud::GRH_LEN;
