//! `librsocket.so`: the calls of rsocket(7), with `rdma/rsocket.h`, over a device's message plane: shared memory's, by Soft RoCE, for which
//! programs of one user on one machine need nothing else, an interface's (RINGWAY_DEVICE=xdp:NAME), or a verbs device's (RINGWAY_DEVICE=rxe:NAME).
//!
//! A process is one machine with an adapter ([`ringway_stack::roce::SoftRoce`]): its queue pairs, its connections and its sockets
//! ([`ringway_stack::rsocket::Sockets`]) are behind one lock (`library`). Calls poll the device themselves, and sleep on it (`wait`); while nobody calls, the
//! progress thread does (`progress`). `calls` has what each call does, `exports` the C symbols, where no panic passes.
//!
//! - [`Stream`], [`Listener`], [`Datagram`], [`IoMap`], [`Config`]: rsockets for programs in Rust
//! - `api`: the calls for a library that stands on this one
//! - `ports`: who has a port, of the device (`ringway_devices::messages`)
//! - `memory`: what is registered: memory of the library's own, and buffers of the program's
//! - `datagram`: datagram sockets, which have a UDP socket beside their queue pairs
//! - `table`: what a descriptor is; `address`: addresses in C's forms; `config`: the files of /etc/rdma/rsocket
//! - `report`: what `ringway stats`, `sockets` and `doctor` hear of the process; `capture`: what `ringway capture` sees
//! - `fork`, `exit`: a child has none of its parent's rsockets; a process that exits ends its connections as if it had closed them
//!
//! # In Rust
//!
//! ```
//! use std::io::{Read as _, Write as _};
//!
//! use rsocket::{Config, Listener, Stream};
//!
//! # fn main() -> std::io::Result<()> {
//! let listener = Listener::bind("127.0.0.1:0".parse().unwrap())?;
//! let at = listener.local_addr()?;
//! let server = std::thread::spawn(move || -> std::io::Result<()> {
//!     let (mut stream, _) = listener.accept()?;
//!     // A buffer into which the peer writes without this process's doing.
//!     let map = stream.map(4096, Some(0))?;
//!     stream.write_all(b"mapped")?;
//!     let mut ready = [0];
//!     stream.read_exact(&mut ready)?;
//!     let mut bytes = [0; 5];
//!     map.read(100, &mut bytes);
//!     assert_eq!(&bytes, b"hello");
//!     Ok(())
//! });
//! // The peer may map one buffer for us.
//! let mut stream = Config::new().mappings(1).connect(at)?;
//! let mut word = [0; 6];
//! stream.read_exact(&mut word)?;
//! assert_eq!(stream.write_at(b"hello", 100)?, 5);
//! // What is sent after a direct write comes after it.
//! stream.write_all(b"!")?;
//! server.join().unwrap()?;
//! # Ok(())
//! # }
//! ```
//!
//! # What it leaves out
//!
//! So far: RDMA_ROUTE's effect, and threads that are cancelled while they wait. Calls take a lock, and are not for
//! handlers of signals.

mod address;
pub mod api;
mod calls;
mod capture;
mod config;
mod datagram;
mod exit;
pub mod exports;
mod fork;
mod library;
mod memory;
mod net;
mod ports;
mod progress;
mod report;
mod table;
mod wait;

pub use net::{Config, Datagram, IoMap, Listener, Stream};
