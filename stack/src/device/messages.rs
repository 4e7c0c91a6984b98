//! The message plane: queue pairs as verbs has them (IBTA spec, volume 1, chapters 10 and 11), and the connection management of RDMA-CM above them.
//!
//! What a program deals with has its types here; who carries it out implements [`Messages`], and [`Connections`] where it finds peers as well:
//! [`crate::roce`] in software, a card by libibverbs and librdmacm. Numbers are verbs' own, so that nothing is translated twice.
//!
//! Nothing here blocks. Time comes in as an argument where sending may begin; a device with a clock of its own ignores it.

mod connections;
mod memory;
mod path;
pub mod psn;
mod qp;
mod services;
mod terms;
pub mod work;

pub use connections::{
    CmError, ConnectionEvent, ConnectionId, Connections, IncomingRequest, NoWay, PRIVATE_DATA_MAX, PortSpace, PrivateData,
};
pub use memory::{Access, AtomicOp, Memory, Pd, RegisterError};
pub use path::{Addresses, Path};
pub use psn::Psn;
pub use qp::{Modify, ModifyError, Mtu, Peer, QpConfig, QpEvents, Sending, State, Transport};
pub use services::{DatagramPeer, MULTICAST_QP};
pub use terms::{ConnectionParams, Endpoint, QpAttributes, Rejection};
pub use work::{Completion, Data, Opcode, PostError, SGES_MAX, SendOp, SendWr, Sge, Status};

use crate::time::Instant;

/// What wakes a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arm {
    /// The next completion.
    Next,
    /// The next one whose sender asked for an event, or that failed.
    Solicited,
}

/// Why something was not made or unmade. The program is at fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CreateError {
    /// A number is above the adapter's limits, or zero where that makes no sense.
    #[error("out of the adapter's limits")]
    Limit,
    /// There are as many as there can be.
    #[error("no room for one more")]
    Full,
    /// It names what does not exist.
    #[error("no such object")]
    Missing,
    /// Something still uses it.
    #[error("still in use")]
    InUse,
}

/// What a message plane can take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageLimits {
    /// Work requests in a queue.
    pub wrs: usize,
    /// Completions in a queue.
    pub cq_depth: usize,
    /// Inline bytes in a work request.
    pub inline: usize,
    /// Bytes in a datagram, without what comes before it in the receiver's memory.
    pub datagram: usize,
}

/// A piece of memory that was registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// Its first byte's address, as work requests name it.
    pub address: u64,
    /// Its key, local and remote.
    pub key: u32,
    /// Its length in bytes.
    pub len: u64,
}

/// A card's message plane. Protection domains and memory regions are the device's; completion queues and queue pairs live in a ring.
pub trait Messages {
    /// A piece of memory that can be registered.
    type Memory: Memory;

    /// What it can take; constant for its life.
    fn message_limits(&self) -> MessageLimits;

    /// A protection domain of its own.
    fn alloc_pd(&mut self) -> Pd;

    /// `len` bytes of memory, zeroed.
    ///
    /// # Errors
    /// [`RegisterError::Full`]: there is no memory.
    fn allocate(&mut self, len: usize) -> Result<Self::Memory, RegisterError>;

    /// Registers memory.
    ///
    /// # Errors
    /// [`RegisterError`].
    fn register(&mut self, pd: Pd, memory: Self::Memory, access: Access) -> Result<Region, RegisterError>;

    /// Takes a region's memory back. Requests that name it fail from now on.
    fn deregister(&mut self, key: u32) -> Option<Self::Memory>;

    /// A region's memory.
    fn memory(&self, key: u32) -> Option<&Self::Memory>;

    /// A region's memory, to write.
    fn memory_mut(&mut self, key: u32) -> Option<&mut Self::Memory>;

    /// Makes a completion queue for `depth` completions; gives its number.
    ///
    /// # Errors
    /// [`CreateError::Limit`], [`CreateError::Full`].
    fn create_cq(&mut self, depth: usize) -> Result<u32, CreateError>;

    /// Unmakes a completion queue.
    ///
    /// # Errors
    /// [`CreateError::Missing`]; [`CreateError::InUse`]: a queue pair completes there.
    fn destroy_cq(&mut self, cq: u32) -> Result<(), CreateError>;

    /// The next completion.
    fn poll_cq(&mut self, cq: u32) -> Option<Completion>;

    /// Asks for an event about a completion that is yet to come. Whoever arms polls once more before sleeping.
    fn arm_cq(&mut self, cq: u32, arm: Arm);

    /// Whether the event came that was asked for. Once.
    fn take_cq_event(&mut self, cq: u32) -> bool;

    /// Makes a queue pair in RESET; gives its number.
    ///
    /// # Errors
    /// [`CreateError`].
    fn create_qp(&mut self, config: QpConfig) -> Result<u32, CreateError>;

    /// Unmakes a queue pair. What it has not completed is never completed, and its completions are gone.
    ///
    /// # Errors
    /// [`CreateError::Missing`].
    fn destroy_qp(&mut self, qp: u32) -> Result<(), CreateError>;

    /// Changes a queue pair's state.
    ///
    /// # Errors
    /// [`ModifyError`]; nothing has changed.
    fn modify_qp(&mut self, now: Instant, qp: u32, modify: &Modify) -> Result<(), ModifyError>;

    /// A queue pair's state.
    fn qp_state(&self, qp: u32) -> Option<State>;

    /// Posts a request to send.
    ///
    /// # Errors
    /// [`PostError`]; it was not taken.
    fn post_send(&mut self, now: Instant, qp: u32, wr: &SendWr<'_>) -> Result<(), PostError>;

    /// Posts a receive, with the program's number for it.
    ///
    /// # Errors
    /// [`PostError`]; it was not taken.
    fn post_recv(&mut self, now: Instant, qp: u32, id: u64, sges: &[Sge]) -> Result<(), PostError>;

    /// Has the peer of a connected queue pair place bytes in a region by itself ([`Messages::place`]), where the device has memory that both reach: the region gets
    /// such memory, and loses what is in it. `false`: there is none, and the region stays as it is.
    fn share(&mut self, _qp: u32, _region: &Region) -> bool {
        false
    }

    /// Places bytes in memory that the peer of a connected queue pair shares, by key and address, at once: they are there before whatever is posted from now on, and may be there before what was
    /// posted. `false`: it shares nothing there, nothing was written, and a request is to carry them.
    fn place(&mut self, _qp: u32, _key: u32, _address: u64, _bytes: &[u8]) -> bool {
        false
    }
}
