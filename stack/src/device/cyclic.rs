//! Cyclic (striding, multi-packet) receive queues: one contiguous buffer, cut into strides, that packets fill one after the other.

use super::{RxMeta, Unsupported};

/// A cyclic queue's shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CyclicConfig {
    /// Bytes in a stride: a power of two. Every packet begins on a stride of its own, and takes as many as it needs.
    pub stride_bytes: usize,
    /// Strides in the buffer: a power of two.
    pub strides: usize,
}

/// Names a cyclic queue of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CyclicId(pub u64);

/// One packet of a run that [`super::Queues::cyclic_read`] gave out.
#[derive(Clone, Copy, Debug)]
pub struct CyclicPacket {
    /// Where it begins, in bytes from the run's beginning: a multiple of the stride.
    pub offset: usize,
    /// Where it begins, in bytes from the buffer's beginning.
    pub place: usize,
    /// Its length in bytes, from the Ethernet header on.
    pub len: usize,
    /// What came with it.
    pub meta: RxMeta,
}

/// Why a cyclic queue was not created, read or destroyed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CyclicError {
    /// The caller: the device has none ([`super::Capabilities::striding`]).
    #[error(transparent)]
    Unsupported(#[from] Unsupported),
    /// The caller: a stride or count that is zero or no power of two, or too small for the device.
    #[error("a cyclic queue has a power of two strides of a power of two bytes")]
    Invalid,
    /// The machine: no memory for it.
    #[error("no room for another cyclic queue")]
    Full,
    /// The caller: no such queue.
    #[error("no such cyclic queue")]
    Unknown,
    /// The caller: a rule still steers to it, or a run of it is still being read.
    #[error("cyclic queue in use")]
    Busy,
}
