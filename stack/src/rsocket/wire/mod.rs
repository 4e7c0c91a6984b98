//! What rsockets peers say to each other, as bytes.
//!
//! - `connection`: private data of connection management
//! - `message`: the 32 bits that come with a write
//! - `tables`: what a peer writes into our tables, and we into its
//! - `datagram`: the headers of datagrams

mod connection;
mod datagram;
mod message;
mod tables;
#[cfg(test)]
mod tests;

pub use connection::{ConnectionData, ConnectionDataError, from_scale, to_scale};
pub use datagram::{DatagramHeader, ServiceHeader, ServiceOp};
pub use message::{Control, Message};
pub use tables::{ByteOrder, IomapEntry, TargetSge};
