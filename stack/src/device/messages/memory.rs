//! Memory that an adapter reads and writes for others (IBTA spec, volume 1, s10.6).
//!
//! The bytes stand behind [`Memory`], so that nothing here ever holds a slice of memory that a program, or a peer, may write meanwhile.

use bitflags::bitflags;

bitflags! {
    /// What is allowed, with the numbers of verbs (`enum ibv_access_flags`). Reading locally always is.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Access: u32 {
        /// Received data may be put there.
        const LOCAL_WRITE = 1;
        /// Peers may write. Needs `LOCAL_WRITE`.
        const REMOTE_WRITE = 2;
        /// Peers may read.
        const REMOTE_READ = 4;
        /// Peers may do atomic operations. Needs `LOCAL_WRITE`.
        const REMOTE_ATOMIC = 8;
    }
}

/// A protection domain: queue pairs only reach regions of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Pd(pub u32);

/// What an atomic operation does to eight bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtomicOp {
    /// Stores `swap` if the value is `compare`.
    CompareSwap {
        /// What it must be.
        compare: u64,
        /// What it becomes.
        swap: u64,
    },
    /// Adds, and wraps.
    FetchAdd(u64),
}

impl AtomicOp {
    /// The value after it, if it was `before`.
    pub const fn apply(self, before: u64) -> u64 {
        match self {
            Self::CompareSwap { compare, swap } if before == compare => swap,
            Self::CompareSwap { .. } => before,
            Self::FetchAdd(add) => before.wrapping_add(add),
        }
    }
}

/// Bytes that an adapter reads and writes. Offsets and lengths were held against [`Memory::len`] before.
pub trait Memory {
    /// How many bytes it has. Never changes.
    fn len(&self) -> u64;

    /// Whether it has none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies bytes from `offset` on out.
    fn read(&self, offset: u64, out: &mut [u8]);

    /// Copies bytes in, from `offset` on.
    fn write(&mut self, offset: u64, bytes: &[u8]);

    /// The bytes themselves, where neither a program nor a peer reads or writes them meanwhile: `None` if that is not so.
    fn slice_mut(&mut self, _offset: u64, _len: usize) -> Option<&mut [u8]> {
        None
    }

    /// Changes the eight bytes at `offset`, which is a multiple of eight, a number in the host's byte order; gives the number from before.
    /// Where others write the memory, too, this is atomic towards them or not, as the adapter's capabilities say.
    fn atomic(&mut self, offset: u64, op: AtomicOp) -> u64 {
        let mut bytes = [0; 8];
        self.read(offset, &mut bytes);
        let before = u64::from_ne_bytes(bytes);
        self.write(offset, &op.apply(before).to_ne_bytes());
        before
    }
}

impl Memory for Vec<u8> {
    fn len(&self) -> u64 {
        self.as_slice().len() as u64
    }

    fn read(&self, offset: u64, out: &mut [u8]) {
        let at = offset as usize;
        out.copy_from_slice(&self[at..at + out.len()]);
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) {
        let at = offset as usize;
        self[at..at + bytes.len()].copy_from_slice(bytes);
    }

    fn slice_mut(&mut self, offset: u64, len: usize) -> Option<&mut [u8]> {
        self.get_mut(offset as usize..)?.get_mut(..len)
    }
}

/// Why memory was not registered. The program is at fault, except for the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegisterError {
    /// Remote writes or atomics without local writes.
    #[error("remote write access needs local write access")]
    Flags,
    /// The last address is beyond 2^64.
    #[error("the region's addresses wrap")]
    Wraps,
    /// There are as many regions as there can be.
    #[error("no memory region left")]
    Full,
}
