//! RoCEv2 as state machines without I/O (IBTA spec, volume 1, and its annex A17).
//!
//! - [`psn`]: packet sequence numbers
//! - [`packet`]: the transport headers, their IP packets, their frames
//! - [`mad`]: management datagrams of connection management, and RDMA-CM's private data

mod bytes;
#[cfg(test)]
mod capture;
pub mod mad;
pub mod packet;
pub mod psn;
