//! Ringway's sockets for async programs: what `tokio::net` is to the kernel, this is to a [`Ring`](ringway_stack::ring::Ring).
//!
//! A [`Net`] shares one ring between the tasks of one thread. [`TcpListener`], [`TcpStream`] and [`UdpSocket`] have the methods,
//! and keep the promises, of their namesakes in tokio: a future that is dropped before it is done loses nothing (a connect
//! closes its socket), errors have the [`ErrorKind`](std::io::ErrorKind) that the kernel's would have, a dropped stream
//! closes in the background, and resets its peer if it had unread bytes. Streams are [`AsyncRead`](tokio::io::AsyncRead) and
//! [`AsyncWrite`](tokio::io::AsyncWrite), so that whatever is written against those traits runs on them.
//!
//! What this crate never does: read a clock, start a thread or a task, need a runtime. Somebody drives it: either the ring's
//! owner *lends* it for each step ([`Net::lend`]; the simulator does), or the [`Net`] owns it, and a *driver* task
//! polls it whenever a frame has arrived, a socket was used ([`Net::touched`]) or time has come ([`Net::next_deadline`]):
//!
//! ```
//! # use core::time::Duration;
//! # use ringway_stack::{Instant, device::Queues};
//! # use ringway_tokio::Net;
//! # async fn arrived() {}
//! # async fn sleep_until(_: Option<Instant>) {}
//! # async fn drive<Q: Queues>(net: &Net<Q>) {
//! loop {
//!     while net.poll() > 0 {}
//!     tokio::select! {
//!         () = arrived() => {}
//!         () = net.touched() => {}
//!         () = sleep_until(net.next_deadline()) => {}
//!     }
//! #   break;
//! }
//! # }
//! ```
//!
//! - [`Net`], [`NetConfig`]: the ring, its tasks and its driver
//! - [`TcpListener`], [`TcpStream`], and a stream's halves [`OwnedReadHalf`] and [`OwnedWriteHalf`]
//! - [`UdpSocket`]
//! - [`rsocket`]: streams over a device's queue pairs, in the same way
//! - [`io_error`]: how the stack's errors become `std::io`'s
#![forbid(unsafe_code)]

mod address;
mod error;
mod net;
pub mod rsocket;
mod tcp;
mod udp;
mod waiters;

pub use error::io_error;
pub use net::{Net, NetConfig};
pub use tcp::{OwnedReadHalf, OwnedWriteHalf, ReuniteError, TcpListener, TcpStream};
pub use udp::UdpSocket;

#[cfg(test)]
mod tests;
