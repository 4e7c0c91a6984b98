//! Shared memory as a NIC: processes of one user, in one network namespace, exchange frames without the kernel.
//!
//! Every process that [`attach`]es is a *member*. It writes only memory of its own, sealed memfds that its peers map
//! read-only: one *member segment* (its wake-up word, the table of its flow rules, and its send buffers) and, for each peer,
//! one *channel* (a ring of slots, what it consumed of the peer's ring, and the buffers that it hands back). So a
//! member that is killed at any instruction, or that lies, spoils nothing but its own memory; what is read of it is
//! copied once, checked, and costs it the connection when it is wrong. (Where a message plane asks for it, there is an *area* for each peer as well: bytes that this
//! peer alone writes, for us alone to read.)
//!
//! Members find each other without a broker: the kernel's abstract Unix names are the table of flow rules
//! ([`Rendezvous`]). They belong to the network namespace, and vanish with their owner.
//!
//! - [`ShmDevice`]: the [`ringway_stack::device::Device`], and [`ShmQueues`] its queues, which live in a ring, behind its lock
//! - [`Rendezvous`]: finding, greeting and losing peers; has its own locks, is served by a progress thread
//! - `stores`: the only module that writes shared memory. `reads`: the only one that reads a peer's
//! - `window`: a peer's payload as the program sees it, copied when it writes there
//! - `area`: receive buffers that a peer writes to by itself
//! - `protocol`: the orderings of ring, release ring and wake-up, over an interface that loom can drive
//!
//! - `closing`: how what strangers passed is closed without waiting for them
//!
//! What this crate never does: start a thread (but that of `closing`), read a clock on a frame's path, enter the kernel for a frame unless a
//! peer sleeps, or form a Rust reference to memory that another process may write.

mod area;
mod channel;
mod closing;
mod copy;
mod device;
mod error;
mod fd;
mod heads;
mod identity;
mod layout;
mod limit;
mod link;
mod member;
mod memfd;
mod pool;
mod protocol;
mod queues;
mod reads;
mod rendezvous;
mod rules;
mod rx_buf;
mod settings;
#[cfg(test)]
mod store_hook;
mod stores;
mod sync;
mod sys;
#[cfg(all(test, not(loom)))]
mod tests;
mod user;
mod wakeups;
mod window;

pub use area::AreaPart;
pub use device::ShmDevice;
pub use error::{AttachError, ResolveError, WriteError};
pub use fd::{Fd, is_internal};
pub use pool::TxBuf;
pub use queues::{ShmQueues, attach, attach_beside};
pub use rendezvous::{
    ControlHandler, Dialogue, DialogueHandler, MemberRef, PeerInfo, PublishedRegion, RegionWrite, Rendezvous, Resolved, Search, WORDS_MAX,
};
pub use rx_buf::RxBuf;
pub use settings::{Ports, Settings};
