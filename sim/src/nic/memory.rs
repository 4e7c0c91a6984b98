//! Memory on the NIC.

use core::cell::RefCell;
use core::ops::Range;
use std::collections::BTreeMap;
use std::rc::Rc;

use ringway_stack::device::{DEVICE_MEMORY_ALIGN, DeviceMemory, DeviceMemoryError};

use super::buffer::SimTx;

/// Allocations of device memory.
#[derive(Debug, Default)]
pub(super) struct OnDevice {
    capacity: usize,
    blocks: BTreeMap<u64, Rc<Block>>,
    made: u64,
}

/// One allocation.
#[derive(Debug)]
pub(super) struct Block {
    bytes: RefCell<Box<[u8]>>,
    len: usize,
}

impl Block {
    /// Looks at the bytes.
    pub(super) fn with<R>(&self, look: impl FnOnce(&[u8]) -> R) -> R {
        look(&self.bytes.borrow())
    }
}

impl OnDevice {
    pub(super) fn new(capacity: usize) -> Self {
        Self { capacity, ..Self::default() }
    }

    /// Bytes allocated.
    pub(super) fn used(&self) -> usize {
        self.blocks.values().map(|block| block.len).sum()
    }

    pub(super) fn alloc(&mut self, len: usize) -> Result<DeviceMemory, DeviceMemoryError> {
        if len == 0 {
            return Err(DeviceMemoryError::OutOfRange);
        }
        if len > self.capacity - self.used() {
            return Err(DeviceMemoryError::Full);
        }
        self.made += 1;
        self.blocks.insert(self.made, Rc::new(Block { bytes: RefCell::new(vec![0; len].into()), len }));
        Ok(DeviceMemory(self.made))
    }

    /// Copies `bytes` in, unless `is_read` says of the block and range that a frame is about to be made of it.
    pub(super) fn copy_to(
        &self,
        memory: DeviceMemory,
        offset: usize,
        bytes: &[u8],
        is_read: impl FnOnce(&Rc<Block>, Range<usize>) -> bool,
    ) -> Result<(), DeviceMemoryError> {
        let (block, range) = self.aligned(memory, offset, bytes.len())?;
        if is_read(block, range.clone()) {
            return Err(DeviceMemoryError::Busy);
        }
        block.bytes.borrow_mut()[range].copy_from_slice(bytes);
        Ok(())
    }

    pub(super) fn copy_from(&self, memory: DeviceMemory, offset: usize, out: &mut [u8]) -> Result<(), DeviceMemoryError> {
        let (block, range) = self.aligned(memory, offset, out.len())?;
        block.with(|bytes| out.copy_from_slice(&bytes[range]));
        Ok(())
    }

    pub(super) fn register(&self, memory: DeviceMemory, offset: usize, len: usize) -> Result<SimTx, DeviceMemoryError> {
        let (block, range) = self.range(memory, offset, len)?;
        Ok(SimTx::on_device(Rc::clone(block), range))
    }

    pub(super) fn free(&mut self, memory: DeviceMemory) -> Result<(), DeviceMemoryError> {
        let block = self.blocks.get(&memory.0).ok_or(DeviceMemoryError::Unknown)?;
        if Rc::strong_count(block) > 1 {
            return Err(DeviceMemoryError::Busy);
        }
        self.blocks.remove(&memory.0);
        Ok(())
    }

    fn aligned(&self, memory: DeviceMemory, offset: usize, len: usize) -> Result<(&Rc<Block>, Range<usize>), DeviceMemoryError> {
        if !offset.is_multiple_of(DEVICE_MEMORY_ALIGN) || !len.is_multiple_of(DEVICE_MEMORY_ALIGN) {
            return Err(DeviceMemoryError::Unaligned);
        }
        self.range(memory, offset, len)
    }

    fn range(&self, memory: DeviceMemory, offset: usize, len: usize) -> Result<(&Rc<Block>, Range<usize>), DeviceMemoryError> {
        let block = self.blocks.get(&memory.0).ok_or(DeviceMemoryError::Unknown)?;
        let end = offset.checked_add(len).filter(|&end| len > 0 && end <= block.len).ok_or(DeviceMemoryError::OutOfRange)?;
        Ok((block, offset..end))
    }
}
