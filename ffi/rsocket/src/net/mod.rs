//! rsockets as a program in Rust has sockets: what `std::net` is to the kernel's, this is to rsocket(7). The crate's front page has an example.
//!
//! Errors are [`std::io::Error`]s with the errno of rsocket(7)'s calls; each call's documentation names them. A call that blocks sleeps, and a handler of a
//! signal without SA_RESTART ends it ([`std::io::ErrorKind::Interrupted`]). The sockets are the process's: a fork's child has none of its parent's.

mod config;
mod datagram;
mod iomap;
mod listener;
mod socket;
mod stream;
#[cfg(test)]
mod tests;

pub use config::Config;
pub use datagram::Datagram;
pub use iomap::IoMap;
pub use listener::Listener;
pub use stream::Stream;
