//! What may be chosen when a process joins.

use std::time::Duration;

use ringway_host::HeadMemory;

use crate::layout;

/// Whose ports a member's rules are about: members of either kind do not find each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ports {
    /// Sockets'.
    #[default]
    Sockets,
    /// RDMA-CM's port spaces, which are others than TCP's and UDP's (RDMA_PS_TCP's rules are [`ringway_stack::device::Protocol::Tcp`]'s).
    RdmaCm,
}

/// Limits of one member. The defaults cost address space; memory is touched as it is used.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Bytes of send buffers. A quarter goes to small buffers (2 KiB), the rest to large ones (32 KiB). Rounded to whole
    /// buffers, at least one of each; at most [`Settings::POOL_BYTES_MAX`].
    pub pool_bytes: usize,
    /// Members that this one can be connected to at a time, itself included. At most [`Settings::PEERS_LIMIT`].
    pub peers_max: usize,
    /// How long [`crate::Rendezvous::resolve`] waits for a member that has the address but does not answer (stopped, or
    /// without processor time) and is asked for the first time.
    pub resolve_timeout: Duration,
    /// A TCP address is a member's only where the kernel has a socket of its user's that listens there: who listens over the ring listens in the
    /// kernel too, and the kernel is asked. (Members that use the device without the kernel's sockets beside it are not found then.)
    pub listeners_are_bound: bool,
    /// Whose ports its rules are about.
    pub ports: Ports,
    /// It is listed among the members of its user (`ringway_host::members`), and answers questions there. Of a process's members, one is enough.
    pub is_listed: bool,
    /// Send buffers lie in huge pages where the system gives some. (Whole ones are taken then, as they are used.)
    pub huge_pages: bool,
    /// Small frames that are kept at a time, at most, while the ring lends them: what comes beyond is copied by whoever takes it. At most
    /// [`Settings::HEADS_LIMIT`].
    pub heads_max: usize,
    /// Bytes of memory for each peer to write to by itself ([`crate::Rendezvous::share`]): address space, until it is used. Zero: none.
    pub area_bytes: usize,
    /// Memory of the program's for the small frames that are kept while the ring lends them. (Everything else lies in memory that other
    /// processes see too.)
    pub head_memory: Option<HeadMemory>,
}

impl Settings {
    /// An area's length at most: whoever maps it has to have so much address space.
    pub(crate) const AREA_BYTES_MAX: usize = 1 << 30;
    /// Buffer offsets travel as 32 bits.
    pub const POOL_BYTES_MAX: usize = 2 << 30;
    /// A peer's slot is two bytes of its Ethernet address.
    pub const PEERS_LIMIT: usize = 1 << 14;

    /// (4 GiB of them.)
    pub const HEADS_LIMIT: usize = 1 << 24;

    /// How many small and large buffers that makes.
    pub(crate) fn pool_shape(&self) -> (u32, u32) {
        let bytes = self.pool_bytes.min(Self::POOL_BYTES_MAX);
        let small = (bytes / 4 / layout::SMALL_BYTES).max(1);
        let large = (bytes.saturating_sub(small * layout::SMALL_BYTES) / layout::LARGE_BYTES).max(1);
        (small as u32, large as u32)
    }

    pub(crate) fn slots(&self) -> usize {
        self.peers_max.clamp(1, Self::PEERS_LIMIT)
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            pool_bytes: 256 << 20,
            peers_max: 1024,
            resolve_timeout: Duration::from_millis(500),
            listeners_are_bound: false,
            ports: Ports::Sockets,
            is_listed: true,
            huge_pages: false,
            heads_max: 200_000,
            area_bytes: 0,
            head_memory: None,
        }
    }
}
