//! Memory that the driver writes and the card reads, by address.

/// What the card reaches by DMA: queues, doorbell records and payload.
///
/// Addresses are the driver's own. Each call is one access: a card may see another's store between two.
pub trait Memory {
    /// Fills `out` with the bytes from `addr` on.
    ///
    /// # Errors
    /// Some of it is not mapped; `out` may be filled in part.
    fn read(&self, addr: u64, out: &mut [u8]) -> Result<(), Unmapped>;

    /// Stores `bytes` from `addr` on.
    ///
    /// # Errors
    /// Some of it is not mapped; nothing is stored.
    fn write(&mut self, addr: u64, bytes: &[u8]) -> Result<(), Unmapped>;
}

/// The driver's fault: an address that it gave is not mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("address {addr:#x} is not mapped")]
pub struct Unmapped {
    /// Where the access began.
    pub addr: u64,
}

/// One run of bytes, for tests and for drivers in the simulator.
#[derive(Clone, Debug)]
pub struct HostMemory {
    base: u64,
    bytes: Vec<u8>,
}

impl HostMemory {
    /// `len` bytes of zeroes from address `base` on.
    pub fn new(base: u64, len: usize) -> Self {
        Self { base, bytes: vec![0; len] }
    }

    fn range(&self, addr: u64, len: usize) -> Result<core::ops::Range<usize>, Unmapped> {
        let start = addr.checked_sub(self.base).and_then(|at| usize::try_from(at).ok());
        let end = start.and_then(|start| start.checked_add(len));
        match (start, end) {
            (Some(start), Some(end)) if end <= self.bytes.len() => Ok(start..end),
            _ => Err(Unmapped { addr }),
        }
    }
}

impl Memory for HostMemory {
    fn read(&self, addr: u64, out: &mut [u8]) -> Result<(), Unmapped> {
        let range = self.range(addr, out.len())?;
        out.copy_from_slice(&self.bytes[range]);
        Ok(())
    }

    fn write(&mut self, addr: u64, bytes: &[u8]) -> Result<(), Unmapped> {
        let range = self.range(addr, bytes.len())?;
        self.bytes[range].copy_from_slice(bytes);
        Ok(())
    }
}

/// A big-endian word of a doorbell record.
pub(super) fn word<M: Memory + ?Sized>(memory: &M, record: u64, index: usize) -> Result<u32, Unmapped> {
    let mut bytes = [0; 4];
    memory.read(record.wrapping_add(4 * index as u64), &mut bytes)?;
    Ok(u32::from_be_bytes(bytes))
}
