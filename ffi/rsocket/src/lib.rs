//! `librsocket.so`: the calls of rsocket(7), with `rdma/rsocket.h`, over a device's message plane: shared memory's, by Soft RoCE, for which
//! programs of one user on one machine need nothing else, or a verbs device's (RINGWAY_DEVICE=rxe:NAME).
//!
//! A process is one machine with an adapter ([`ringway_stack::roce::SoftRoce`]): its queue pairs, its connections and its sockets
//! ([`ringway_stack::rsocket::Sockets`]) are behind one lock (`library`). Calls poll the device themselves, and sleep on it (`wait`); while nobody calls, the
//! progress thread does (`progress`). `calls` has what each call does, `exports` the C symbols, where no panic passes.
//!
//! - `api`: the calls for a library that stands on this one
//! - `ports`: who has a port, of the device (`ringway_devices::messages`)
//! - `memory`: what is registered: memory of the library's own, and buffers of the program's
//! - `datagram`: datagram sockets, which have a UDP socket beside their queue pairs
//! - `table`: what a descriptor is; `address`: addresses in C's forms; `config`: the files of /etc/rdma/rsocket
//! - `fork`, `exit`: a child has none of its parent's rsockets; a process that exits ends its connections as if it had closed them
//!
//! What it leaves out so far: RDMA_ROUTE's effect, and threads that are cancelled while they wait. Calls take a lock, and are not for
//! handlers of signals.

mod address;
pub mod api;
mod calls;
mod config;
mod datagram;
mod exit;
pub mod exports;
mod fork;
mod library;
mod memory;
mod ports;
mod progress;
mod table;
mod wait;
