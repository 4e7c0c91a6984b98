//! Ringway's ConnectX device: raw packet queues by direct verbs.
//!
//! Control goes through libibverbs and libmlx5, which are opened at run time: a card, a protection domain, registered memory, completion and receive queues, a raw
//! packet queue pair, flow rules. Where the queues lie mlx5dv_init_obj(3) tells, and from there on the data path is here: entries are written where the card reads
//! them, the doorbell record and the register tell it of them, and completions are read where it writes them.
//!
//! - [`Mlx5Device`]: the card, with its flow rules and groups; `spec`: a rule in the library's form
//! - [`Mlx5Queues`]: a ring; `send`, `receive`: its queues; `cyclic`: striding queues beside them, whose buffer is read where it lies
//! - `wqe`: how a send entry is long and written; `cqe`: completions, their owner's bit, and how an event is asked for; `doorbell`: how the card is told; `barrier`: the order of it all
//! - `memory`: what frames lie in; `device_memory`: what they lie in on the card; `staging`: what is copied there to be sent; `buffer`: a handle on either; `clock`: the card's time
//! - `mailbox`: what happens to the card beside frames; `retry`: what has failed and is tried again
//! - `verbs`: the library's objects
//!
//! The crate's README says how it is tested without a card, and what only a card can show.

mod barrier;
mod buffer;
pub mod card;
mod clock;
mod cqe;
mod cyclic;
mod device_memory;
mod doorbell;
mod error;
mod mailbox;
mod memory;
#[cfg(feature = "mutants")]
pub mod mutants;
#[cfg(not(feature = "mutants"))]
mod mutants;
pub mod queues;
mod receive;
mod retry;
mod send;
mod settings;
mod spec;
mod staging;
mod verbs;
mod wqe;

pub use buffer::SendBuffer;
pub use card::{Candidate, Mlx5Device, survey};
pub use error::AttachError;
pub use memory::Received;
pub use queues::{Counters, Mlx5Queues};
pub use ringway_host::rdma_interface::interface_of;
pub use settings::Settings;
