//! Memory regions: bytes that an adapter may read and write for others, by key, within bounds, as access flags allow (IBTA spec, volume 1,
//! s10.6).

use super::payload::Payload;
use super::slab::Slab;
use super::work::Sge;
pub use crate::device::messages::{Access, AtomicOp, Memory, Pd, RegisterError};

/// Why bytes may not be touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AccessError {
    /// No region has this key, or it belongs to another protection domain.
    #[error("no such memory region")]
    Key,
    /// They are not all inside of the region.
    #[error("outside of the memory region")]
    Bounds,
    /// The region's flags do not allow it.
    #[error("access is not allowed")]
    Denied,
}

/// What is copied at a time to memory that others see: it stays in the processor's nearest cache.
const PIECE: usize = 4096;

#[derive(Debug)]
struct Region<M> {
    pd: Pd,
    address: u64,
    access: Access,
    memory: M,
}

impl<M: Memory> Region<M> {
    /// Where `len` bytes at `address` begin in it, if they may be touched.
    #[inline]
    fn check(&self, pd: Pd, address: u64, len: u64, access: Access) -> Result<u64, AccessError> {
        if self.pd != pd {
            return Err(AccessError::Key);
        }
        let offset = address.checked_sub(self.address).ok_or(AccessError::Bounds)?;
        let end = offset.checked_add(len).ok_or(AccessError::Bounds)?;
        if end > self.memory.len() {
            return Err(AccessError::Bounds);
        }
        if !self.access.contains(access) {
            return Err(AccessError::Denied);
        }
        Ok(offset)
    }
}

/// An adapter's regions.
#[derive(Debug)]
pub(super) struct Regions<M> {
    regions: Slab<Region<M>>,
}

impl<M: Memory> Regions<M> {
    pub(super) fn new(max: usize) -> Self {
        Self { regions: Slab::new(max) }
    }

    /// Registers `memory` whose first byte has `address`; gives its key, which is both local and remote.
    pub(super) fn register(&mut self, pd: Pd, address: u64, memory: M, access: Access) -> Result<u32, RegisterError> {
        if access.intersects(Access::REMOTE_WRITE | Access::REMOTE_ATOMIC) && !access.contains(Access::LOCAL_WRITE) {
            return Err(RegisterError::Flags);
        }
        address.checked_add(memory.len().saturating_sub(1)).ok_or(RegisterError::Wraps)?;
        self.regions.insert_with(|_| Region { pd, address, access, memory }).ok_or(RegisterError::Full)
    }

    /// Takes a region away; its bytes go back.
    pub(super) fn deregister(&mut self, key: u32) -> Option<M> {
        self.regions.remove(key).map(|region| region.memory)
    }

    pub(super) fn memory(&self, key: u32) -> Option<&M> {
        self.regions.get(key).map(|region| &region.memory)
    }

    pub(super) fn memory_mut(&mut self, key: u32) -> Option<&mut M> {
        self.regions.get_mut(key).map(|region| &mut region.memory)
    }

    /// Gives a region other memory, as long as what it has. Whether there is such a region.
    pub(super) fn replace(&mut self, key: u32, memory: M) -> bool {
        let region = self.regions.get_mut(key).filter(|region| region.memory.len() == memory.len());
        region.map(|region| region.memory = memory).is_some()
    }

    /// Holds `len` bytes at `address` against the region of `key`: where they begin in it.
    pub(super) fn check(&self, pd: Pd, key: u32, address: u64, len: u64, access: Access) -> Result<u64, AccessError> {
        self.regions.get(key).ok_or(AccessError::Key)?.check(pd, address, len, access)
    }

    /// Reads bytes for a peer or a program.
    pub(super) fn read(&self, pd: Pd, key: u32, address: u64, access: Access, out: &mut [u8]) -> Result<(), AccessError> {
        if out.is_empty() {
            return Ok(());
        }
        let offset = self.check(pd, key, address, out.len() as u64, access)?;
        self.memory(key).ok_or(AccessError::Key)?.read(offset, out);
        Ok(())
    }

    /// Writes bytes for a peer or a program.
    pub(super) fn write(&mut self, pd: Pd, key: u32, address: u64, access: Access, bytes: &[u8]) -> Result<(), AccessError> {
        if bytes.is_empty() {
            return Ok(());
        }
        let region = self.regions.get_mut(key).ok_or(AccessError::Key)?;
        let offset = region.check(pd, address, bytes.len() as u64, access)?;
        region.memory.write(offset, bytes);
        Ok(())
    }

    /// Writes a packet's payload for a peer.
    pub(super) fn place(&mut self, pd: Pd, key: u32, address: u64, access: Access, payload: Payload<'_>) -> Result<(), AccessError> {
        let (source, at, len) = match payload {
            Payload::Bytes(bytes) => return self.write(pd, key, address, access, bytes),
            Payload::Source { source, at, len } => (source, at, len),
        };
        if len == 0 {
            return Ok(());
        }
        let offset = self.check(pd, key, address, len as u64, access)?;
        let memory = self.memory_mut(key).ok_or(AccessError::Key)?;
        if let Some(to) = memory.slice_mut(offset, len) {
            source.copy_to(at, to);
            return Ok(());
        }
        let mut piece = [0; PIECE];
        for done in (0..len).step_by(PIECE) {
            let piece = &mut piece[..PIECE.min(len - done)];
            source.copy_to(at + done, piece);
            memory.write(offset + done as u64, piece);
        }
        Ok(())
    }

    /// Does an atomic operation for a peer.
    pub(super) fn atomic(&mut self, pd: Pd, key: u32, address: u64, op: AtomicOp) -> Result<u64, AccessError> {
        let offset = self.check(pd, key, address, 8, Access::REMOTE_ATOMIC)?;
        Ok(self.memory_mut(key).ok_or(AccessError::Key)?.atomic(offset, op))
    }

    /// Whether all of `sges` may be touched.
    pub(super) fn check_list(&self, pd: Pd, sges: &[Sge], access: Access) -> Result<(), AccessError> {
        let mut used = sges.iter().filter(|sge| sge.len > 0);
        used.try_for_each(|sge| self.check(pd, sge.lkey, sge.address, u64::from(sge.len), access).map(|_| ()))
    }

    /// Reads from the bytes of `sges`, one after another, from `offset` on. They have as many.
    pub(super) fn gather(&self, pd: Pd, sges: &[Sge], offset: u32, out: &mut [u8]) -> Result<(), AccessError> {
        let mut done = 0;
        for (sge, at, len) in pieces(sges, offset, out.len()) {
            self.read(pd, sge.lkey, sge.address.wrapping_add(at), Access::empty(), &mut out[done..done + len])?;
            done += len;
        }
        if done == out.len() { Ok(()) } else { Err(AccessError::Bounds) }
    }

    /// Writes into the bytes of `sges`, one after another, from `offset` on. They have as many.
    pub(super) fn scatter(&mut self, pd: Pd, sges: &[Sge], offset: u32, bytes: &[u8]) -> Result<(), AccessError> {
        let mut done = 0;
        for (sge, at, len) in pieces(sges, offset, bytes.len()) {
            self.write(pd, sge.lkey, sge.address.wrapping_add(at), Access::LOCAL_WRITE, &bytes[done..done + len])?;
            done += len;
        }
        if done == bytes.len() { Ok(()) } else { Err(AccessError::Bounds) }
    }
}

/// The parts of `sges` that hold `len` bytes from `offset` on: where in each, and how many.
fn pieces(sges: &[Sge], offset: u32, len: usize) -> impl Iterator<Item = (Sge, u64, usize)> {
    let (mut skip, mut left) = (offset as usize, len);
    sges.iter().filter_map(move |sge| {
        let at = skip.min(sge.len as usize);
        skip -= at;
        let len = left.min(sge.len as usize - at);
        left -= len;
        (len > 0).then_some((*sge, at as u64, len))
    })
}
