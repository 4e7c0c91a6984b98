//! What frames are made of: buffers in the process's memory, and registered parts of the card's own.

use ringway_stack::device::TxBuffer;

use crate::device_memory::CardBuffer;
use crate::memory::{HostBuffer, SEND_BUFFER};

/// A handle on a send buffer.
#[derive(Clone, Debug)]
pub struct SendBuffer(pub(crate) Place);

/// Where it lies.
#[derive(Clone, Debug)]
pub(crate) enum Place {
    /// In the process's memory.
    Host(HostBuffer),
    /// On the card.
    Card(CardBuffer),
}

impl SendBuffer {
    /// A part of it as the card names it, and the key. Past the end: panics.
    #[inline(always)]
    pub(crate) fn part(&self, offset: usize, len: usize) -> (*mut u8, u32) {
        match &self.0 {
            Place::Host(buffer) => (buffer.part(offset, len), buffer.lkey()),
            Place::Card(buffer) => buffer.part(offset, len),
        }
    }

    /// Where a part of it lies in the process's memory; `None`: on the card. Past the end: panics.
    #[inline(always)]
    pub(crate) fn in_process(&self, offset: usize, len: usize) -> Option<*mut u8> {
        match &self.0 {
            Place::Host(buffer) => Some(buffer.part(offset, len)),
            Place::Card(_) => None,
        }
    }

    /// Whether it lies on the card.
    #[inline(always)]
    pub(crate) fn is_on_card(&self) -> bool {
        matches!(self.0, Place::Card(_))
    }
}

impl TxBuffer for SendBuffer {
    fn capacity(&self) -> usize {
        match &self.0 {
            Place::Host(_) => SEND_BUFFER,
            Place::Card(buffer) => buffer.len(),
        }
    }

    /// (What is on the card is written by [`ringway_stack::device::Queues::dm_copy_to`] only: nothing is done here, and that is said.)
    fn write(&mut self, offset: usize, bytes: &[u8]) {
        match &mut self.0 {
            Place::Host(buffer) => buffer.write(offset, bytes),
            Place::Card(_) => {
                debug_assert!(false, "device contract: memory on the card is written by dm_copy_to");
                tracing::error!("memory on the card is written by dm_copy_to only");
            }
        }
    }

    fn copy_to(&self, offset: usize, out: &mut [u8]) {
        match &self.0 {
            Place::Host(buffer) => buffer.copy_to(offset, out),
            Place::Card(buffer) => buffer.copy_to(offset, out),
        }
    }

    fn checksum(&self, offset: usize, len: usize) -> u16 {
        match &self.0 {
            Place::Host(buffer) => buffer.checksum(offset, len),
            Place::Card(buffer) => buffer.checksum(offset, len),
        }
    }
}
