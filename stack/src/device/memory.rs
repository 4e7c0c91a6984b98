//! Memory on the device itself: a payload that lies there needs no trip over the bus to be sent.

use super::Unsupported;

/// Copies to and from device memory begin at, and have, multiples of this many bytes.
pub const DEVICE_MEMORY_ALIGN: usize = 4;

/// Names an allocation of device memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceMemory(pub u64);

/// Why device memory was not allocated, copied, registered or freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeviceMemoryError {
    /// The caller: the device has none ([`super::Capabilities::device_memory`]).
    #[error(transparent)]
    Unsupported(#[from] Unsupported),
    /// The machine: not so much of it is free.
    #[error("no device memory left")]
    Full,
    /// The caller: no such allocation.
    #[error("no such device memory")]
    Unknown,
    /// The caller: an offset or length that is no multiple of [`DEVICE_MEMORY_ALIGN`].
    #[error("device memory is copied in multiples of 4 bytes")]
    Unaligned,
    /// The caller: a range past the allocation's end, or an empty one.
    #[error("past the end of the device memory")]
    OutOfRange,
    /// The caller: a registration of it is still held, or a frame that reads it still queued.
    #[error("device memory in use")]
    Busy,
}
