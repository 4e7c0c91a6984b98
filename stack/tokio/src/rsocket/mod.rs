//! rsockets for async programs: what this crate's TCP is to a ring, this is to a device's message plane
//! ([`Connections`](ringway_stack::device::messages::Connections)) and the stack's [`Sockets`](ringway_stack::rsocket::Sockets) above it.
//!
//! A [`Net`] shares both between the tasks of one thread; who drives the device drives it: after the device has taken packets in, [`Net::poll`] wakes the tasks
//! whose sockets changed, and what they did goes out by the device.
//!
//! ```
//! # use ringway_stack::device::messages::Connections;
//! # use ringway_stack::Instant;
//! # use ringway_tokio::rsocket::Net;
//! # async fn arrived() {}
//! # async fn sleep_until(_: Option<Instant>) {}
//! # async fn drive<D: Connections>(net: &Net<D>, carry: impl Fn(&mut D) -> Option<Instant>) {
//! loop {
//!     // Packets come and go; the device says when it has something to do at the latest.
//!     let device = net.with_device(&carry);
//!     net.poll();
//!     let next = [device, net.next_deadline()].into_iter().flatten().min();
//!     tokio::select! {
//!         () = arrived() => {}
//!         () = net.touched() => {}
//!         () = sleep_until(next) => {}
//!     }
//! #   break;
//! }
//! # }
//! ```
//!
//! Errors have the [`ErrorKind`](std::io::ErrorKind) that rsocket(7)'s calls would have. A future that is dropped loses nothing.

mod listener;
mod net;
mod stream;
#[cfg(test)]
mod tests;

pub use listener::RsocketListener;
pub use net::Net;
pub use stream::RsocketStream;
