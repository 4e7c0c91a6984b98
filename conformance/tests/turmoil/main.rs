//! A second simulator, which we did not write: tokio programs over Ringway's sockets, under turmoil's faults.
//!
//! Each turmoil host runs tokio's own runtime on virtual time, and in it a Ringway stack of its own (`host.rs`). Its device
//! (`device.rs`) is a turmoil UDP socket: an Ethernet frame is a datagram, a broadcast frame is a broadcast. So whatever turmoil does to messages
//! (delay at random, and so reorder; lose; hold; cut) and to hosts (crash, bounce) it does to frames and stacks. Every case
//! runs twice for each of its seeds, and must log the same, frame by frame (`run_log.rs`).
#![forbid(unsafe_code)]

mod cases;
mod device;
mod host;
mod run_log;
