//! Sockets, above rings and devices: a descriptor's state, its options, and the flows that it has in one ring or in several.
//!
//! A connected stream is one flow. A listener has one in each ring that new connections may come to, and a datagram socket one in each ring that datagrams
//! may come to; both may have a part that is the kernel's beside that. What came first, wherever it came to, is taken first: flows
//! tell when what they have came ([`FlowRing::arrived`]), and the kernel's part counts from when it was found readable, so that neither starves.
//!
//! It is pure state, as the rest of the stack: time comes in, nothing blocks, and no call holds one ring while it asks another ([`Rings::at`] lends one at a
//! time). What a call needs beside its socket is in [`Env`]: the rings, the routing tables, which ring is whose, and who calls.
//!
//! - [`Socket`] and [`State`]: what a socket is, in one enum (`state.rs`)
//! - [`FlowRing`], [`Rings`]: what a socket asks of a ring, and how it comes to one (`rings.rs`)
//! - `listen.rs`, `stream.rs`, `datagram.rs`: the calls
//! - [`Choice`]: which ring a flow is on (VMA_RING_ALLOCATION_LOGIC_*); `migrate.rs`: when it goes to another (VMA_RING_MIGRATION_RATIO_*); `homes.rs`: the same of
//!   datagram sockets
//! - [`Routes`]: which link, source address and neighbour a destination is reached by, remembered for as long as the tables are the same
//! - [`Kernel`]: the part of a socket that is the kernel's

mod choice;
mod datagram;
mod homes;
mod kernel;
mod listen;
mod merge;
mod migrate;
mod rings;
mod routes;
mod state;
mod stream;

pub use choice::{Allocation, Caller, Choice, Direction, Half, Logic, Place, Spread};
pub use datagram::Datagrams;
pub use kernel::Kernel;
pub use listen::Listener;
pub use merge::first_of;
pub use migrate::Stranger;
pub use rings::{FlowRing, Parcel, Rings};
pub use routes::{Routes, Way, way};
pub use state::{Bound, Setup, Socket, SocketId, State};
pub use stream::Stream;

use crate::net::Tables;
use crate::time::Instant;

/// What a call on a socket needs beside the socket.
pub struct Env<'a> {
    /// The time.
    pub now: Instant,
    /// The owner's rings.
    pub rings: &'a mut dyn Rings,
    /// Links, addresses, routes and neighbours as they are.
    pub tables: &'a Tables,
    /// Which ring is whose.
    pub choice: &'a mut Choice,
    /// Who calls.
    pub caller: Caller,
}

#[cfg(test)]
mod tests;
