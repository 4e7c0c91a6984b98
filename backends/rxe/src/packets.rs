//! The packet plane: Ethernet frames in UD datagrams (`ringway_stack::ud`), so that TCP, UDP and all that stands on them run on a verbs device without raw packet queue pairs.
//!
//! - [`RxeDevice`]: the device as a card, with its flow rules; [`RxeQueues`]: its ring
//! - `datagrams`: the queue pair of a ring, and the memory of its datagrams; `received`: what received frames lie in
//! - `peers`: which queue pair an address is at, and the way there; `services`: which ports are ours
//!
//! A datagram names a queue pair, and the device steers by nothing else. So a flow rule that anybody may send to is a *service*: a port of RDMA_PS_UDP that is listened at, by
//! which the peer's SIDR request finds the queue pair (IBTA spec, volume 1, s12.11). Its private data say which protocol is meant. A port of TCP and the same one of UDP have one
//! service, so both are one process's. A connection's own rule needs none: who speaks first is known by its datagrams, which say from which queue pair they came.
//!
//! `presences`: a connection of librdmacm's with each process that is asked for a port, by whose end it is known that the process has ended.
//!
//! A frame is believed to be from where its datagram came: the two addresses have to be the same.

mod card;
mod datagrams;
mod peers;
mod presences;
mod queues;
mod received;
mod services;

pub use self::card::{PacketSettings, Reach, RxeDevice, survey};
pub use self::queues::{Counters, RxeQueues};
pub use self::received::Received;
