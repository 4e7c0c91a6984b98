//! What takes privileges, done by one process for others: a broker has the interfaces, and programs without a capability ask it for a ring there.
//!
//! What can be handed over was tried out: an AF_XDP socket whose memory is registered and which is bound is its holder's to map, to fill and to have sent from (sendto(2)),
//! without any capability and without locked memory of its holder's: the pages are accounted to whoever registers them (XDP_UMEM_REG), which is the
//! broker, and the program maps the same file (memfd). It cannot be bound elsewhere. A socket in repair mode (TCP_REPAIR) takes all of its state from an
//! unprivileged holder; only beginning and ending are the broker's.
//!
//! - [`Broker`]: the broker (`server`), its programs (`guest`), and what it allows them (`allowed`, `holders`, `repair`, [`Users`])
//! - `client`: a program's end, by which its device is attached ([`crate::XdpDevice::attach_by`])
//! - `house`: what all programs have a part in; `threads`: what may take as long as a program likes; `descriptors`: how many there may be
//! - `listener`: where it listens; `events`: what it has to tell
//! - `message`: the protocol, and `wire`: how messages and descriptors are passed
//!
//! One connection (SOCK_SEQPACKET) is one program's ring on one interface. Each message is a question, and has one answer; when the connection ends, whichever way,
//! the ring's rules end, and its place is free. Descriptors of what the ring is made of are the program's alone, so that they end with it.

mod allowed;
pub(crate) mod client;
mod descriptors;
mod events;
mod guest;
mod holders;
mod house;
mod listener;
mod message;
mod repair;
mod server;
mod threads;
mod users;
mod wire;

pub use client::{BrokerError, interfaces_served};
pub use events::{Event, StartError};
pub use message::Refusal;
pub use server::{Broker, BrokerSettings};
pub use users::{UnknownUser, Users};

/// Where a broker listens by default.
pub const SOCKET: &str = "/run/ringway/broker";
