//! Ringway's message plane and packet plane on a verbs device: the kernel's soft-RoCE (rxe), or any card that libibverbs has a driver for.
//!
//! An [`Adapter`] is one opened device. It carries out the stack's `Messages` by libibverbs (queue pairs of RC and UD, memory regions, completion queues), and its
//! `Connections` by librdmacm. Both libraries are opened at run time: nothing of RDMA is needed to build, and where they or the device are missing,
//! [`Adapter::open`] says so.
//!
//! - `adapter`: what is there, looked after and slept on; `async_events`: what happens to the device beside completions
//! - `plane`: `Messages`; `requests`, `completions`, `transitions`: work requests, their ends and the states of queue pairs, in verbs' own form; `paths`: address
//!   vectors
//! - `connections`: `Connections`; `connection_events`: what librdmacm tells; `listeners`: ports
//! - `verbs`, `cm`: the libraries' objects, each of which ends when it is dropped; `address`: addresses in C's form
//! - `memory`: what can be registered; `numbered`: things by their numbers
//! - `packets`: Ethernet frames in UD datagrams: [`RxeDevice`] and its ring, [`RxeQueues`]
//!
//! Queue pairs are the caller's before anybody knows to whom they go, so librdmacm's identifiers have none: their state is changed here, with the attributes that
//! rdma_init_qp_attr(3) gives, and connections are completed by rdma_establish(3).
//!
//! Nothing blocks. There is one epoll instance to sleep on, with the completion channel, the event channel and the device's asynchronous events behind it. A port that
//! goes down and a device that is removed end the connections at once, so that no call waits for an adapter that is no more.
//!
//! What verbs cannot tell is not told: which operation it was that failed (a failed completion has [`Opcode::Send`] or [`Opcode::Receive`], by what the library
//! says), and whether the sender asked for a solicited event.
//!
//! What it leaves out: devices of iWARP, which are refused; and multicast.
//!
//! [`Opcode::Send`]: ringway_stack::device::messages::Opcode::Send
//! [`Opcode::Receive`]: ringway_stack::device::messages::Opcode::Receive

mod adapter;
mod address;
mod async_events;
mod cm;
mod completions;
mod connection_events;
mod connections;
mod error;
mod listeners;
mod memory;
mod numbered;
mod packets;
mod paths;
mod plane;
mod requests;
mod transitions;
mod verbs;

pub use adapter::{Adapter, Settings};
pub use error::OpenError;
pub use memory::{CardMemory, Pages};
pub use packets::{Counters, PacketSettings, Reach, Received, RxeDevice, RxeQueues, survey};
pub use verbs::device_names;
