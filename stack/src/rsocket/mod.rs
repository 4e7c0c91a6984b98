//! rsockets: sockets over a device's message plane, which librdmacm's rsockets understand (rsocket(7)).
//!
//! A [`Stream`] is a reliable connection into whose receive buffer the peer writes by RDMA, told by 32 bits of immediate data what it wrote. Who may write
//! how much, the receiver says by credits and by pieces of its buffer, which it writes into a table of the sender's. [`Datagrams`] are unreliable ones.
//! [`Sockets`] is the table of both, with what stands around them: names, listening, accepting, closing. All are state machines: the device is an argument
//! of every call, time comes in, and what must happen later is a deadline. Nothing blocks; what a caller may wait for is a [`crate::flow::Readiness`].
//!
//! - [`wire`]: what peers say to each other, as bytes
//! - [`config`]: sizes, their defaults and limits; [`options`]: what programs set and get
//! - `stream`, `datagrams`, `sockets`: see above
//!
//! A peer is a stranger: it can say anything, and write anything into the memory that it was given the keys of. Everything that comes from it is held
//! against what it was granted, and what does not fit ends the connection.
//!
//! What it leaves out: urgent data, which rsockets have none of, and paths that a program chooses (RDMA_ROUTE is kept, and not used).

pub mod config;
mod datagrams;
pub mod options;
mod sockets;
mod stream;
#[cfg(test)]
mod tests;
pub mod wire;

pub use config::{Host, Settings, Sizes};
pub use datagrams::{Datagrams, UdpDatagram};
pub use options::{OptionName, OptionValue, Options};
pub use sockets::{SocketId, Sockets};
pub use stream::{DirectTarget, Mapping, OpenError, Shutdown, Stream, StreamInfo, StreamStage};
