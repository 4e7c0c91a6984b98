//! Memory on the card (ibv_alloc_dm(3)): allocations of a ring's, each registered once and whole, and parts of them that frames are made of.
//!
//! The card knows an allocation from zero on, by a key of its own. The process reaches it past its caches, in words of 4 bytes: that is what libmlx5 copies by.

use core::ops::Range;
use std::collections::BTreeMap;
use std::sync::Arc;

use ringway_stack::device::{DEVICE_MEMORY_ALIGN, DeviceMemory, DeviceMemoryError};
use ringway_stack::wire::checksum;

use crate::mutants::{self, Mutant};
use crate::verbs::{Dm, Pd, Region};

/// A ring's allocations.
#[derive(Debug)]
pub(crate) struct OnCard {
    pd: Arc<Pd>,
    blocks: BTreeMap<u64, Arc<Block>>,
    made: u64,
}

/// One allocation. (Its region ends before it does.)
#[derive(Debug)]
struct Block {
    region: Region,
    memory: Dm,
    len: usize,
}

/// A handle on a part of an allocation.
#[derive(Clone, Debug)]
pub(crate) struct CardBuffer {
    block: Arc<Block>,
    /// Invariant: within the block.
    range: Range<usize>,
}

impl CardBuffer {
    pub(crate) fn len(&self) -> usize {
        self.range.len()
    }

    /// A part of it, as the card names it, and the key. Past the end: panics.
    pub(crate) fn part(&self, offset: usize, len: usize) -> (*mut u8, u32) {
        let range = self.within(offset, len);
        (core::ptr::without_provenance_mut(range.start), self.block.region.lkey())
    }

    /// A part of it, by itself.
    pub(crate) fn slice(&self, offset: usize, len: usize) -> Self {
        Self { block: Arc::clone(&self.block), range: self.within(offset, len) }
    }

    fn within(&self, offset: usize, len: usize) -> Range<usize> {
        assert!(offset.checked_add(len).is_some_and(|end| end <= self.range.len()), "a part of the registration");
        self.range.start + offset..self.range.start + offset + len
    }

    pub(crate) fn copy_to(&self, offset: usize, out: &mut [u8]) {
        self.block.read(self.within(offset, out.len()), out);
    }

    pub(crate) fn checksum(&self, offset: usize, len: usize) -> u16 {
        let mut bytes = vec![0; len];
        self.copy_to(offset, &mut bytes);
        checksum::sum(&bytes)
    }

    /// Whether any of `range` of an allocation is in it.
    fn overlaps(&self, block: &Arc<Block>, range: &Range<usize>) -> bool {
        Arc::ptr_eq(&self.block, block) && self.range.start < range.end && range.start < self.range.end
    }
}

impl Block {
    /// Reads any range, by the words that it lies in.
    fn read(&self, range: Range<usize>, out: &mut [u8]) {
        let from = range.start / DEVICE_MEMORY_ALIGN * DEVICE_MEMORY_ALIGN;
        let mut words = vec![0; (range.end - from).next_multiple_of(DEVICE_MEMORY_ALIGN)];
        if let Err(error) = self.memory.copy_from(from, &mut words) {
            tracing::error!("memory on the card is not read: {error}");
        }
        out.copy_from_slice(&words[range.start - from..range.end - from]);
    }
}

impl OnCard {
    pub(crate) fn new(pd: &Arc<Pd>) -> Self {
        Self { pd: Arc::clone(pd), blocks: BTreeMap::new(), made: 0 }
    }

    pub(crate) fn alloc(&mut self, len: usize) -> Result<DeviceMemory, DeviceMemoryError> {
        if len == 0 {
            return Err(DeviceMemoryError::OutOfRange);
        }
        // (Of whole words, so that the last bytes of a registration can be read.)
        let memory = Dm::new(&self.pd, len.next_multiple_of(DEVICE_MEMORY_ALIGN)).and_then(|memory| {
            let region = Region::of_card(&self.pd, &memory, len)?;
            Ok(Block { region, memory, len })
        });
        let block = memory.map_err(|error| {
            tracing::debug!("{len} bytes on the card are refused: {error}");
            DeviceMemoryError::Full
        })?;
        self.made += 1;
        self.blocks.insert(self.made, Arc::new(block));
        Ok(DeviceMemory(self.made))
    }

    /// Copies in, unless one of the frames on their way, which are made of these parts, reads what is there.
    pub(crate) fn copy_to<'a>(
        &self,
        memory: DeviceMemory,
        offset: usize,
        bytes: &[u8],
        mut in_flight: impl Iterator<Item = &'a CardBuffer>,
    ) -> Result<(), DeviceMemoryError> {
        let (block, range) = self.aligned(memory, offset, bytes.len())?;
        if in_flight.any(|part| part.overlaps(block, &range)) && !mutants::is(Mutant::CardMemoryBusy) {
            return Err(DeviceMemoryError::Busy);
        }
        block.memory.copy_to(offset, bytes).map_err(|error| {
            tracing::warn!("memory on the card is not written: {error}");
            DeviceMemoryError::OutOfRange
        })
    }

    pub(crate) fn copy_from(&self, memory: DeviceMemory, offset: usize, out: &mut [u8]) -> Result<(), DeviceMemoryError> {
        let (block, range) = self.aligned(memory, offset, out.len())?;
        block.read(range, out);
        Ok(())
    }

    pub(crate) fn register(&self, memory: DeviceMemory, offset: usize, len: usize) -> Result<CardBuffer, DeviceMemoryError> {
        let (block, range) = self.range(memory, offset, len)?;
        Ok(CardBuffer { block: Arc::clone(block), range })
    }

    pub(crate) fn free(&mut self, memory: DeviceMemory) -> Result<(), DeviceMemoryError> {
        let block = self.blocks.get(&memory.0).ok_or(DeviceMemoryError::Unknown)?;
        if Arc::strong_count(block) > 1 {
            return Err(DeviceMemoryError::Busy);
        }
        self.blocks.remove(&memory.0);
        Ok(())
    }

    fn aligned(&self, memory: DeviceMemory, offset: usize, len: usize) -> Result<(&Arc<Block>, Range<usize>), DeviceMemoryError> {
        if !offset.is_multiple_of(DEVICE_MEMORY_ALIGN) || !len.is_multiple_of(DEVICE_MEMORY_ALIGN) {
            return Err(DeviceMemoryError::Unaligned);
        }
        self.range(memory, offset, len)
    }

    fn range(&self, memory: DeviceMemory, offset: usize, len: usize) -> Result<(&Arc<Block>, Range<usize>), DeviceMemoryError> {
        let block = self.blocks.get(&memory.0).ok_or(DeviceMemoryError::Unknown)?;
        let end = offset.checked_add(len).filter(|&end| len > 0 && end <= block.len).ok_or(DeviceMemoryError::OutOfRange)?;
        Ok((block, offset..end))
    }
}
