//! The bytes of a socket's datagrams, copied out of what the device received them in.

/// A byte queue that has grown beyond this is given back when it runs empty.
use crate::mutants::{Mutant, Mutation};

const QUEUE_KEPT: usize = 16 * 1024;

/// The bytes of small datagrams, one behind the other.
#[derive(Default)]
pub(super) struct Bytes {
    bytes: Vec<u8>,
    /// Where those begin that were not read yet.
    start: usize,
}

impl Bytes {
    #[inline(always)]
    pub(super) fn push(&mut self, bytes: &[u8], mutation: Mutation) {
        // A reader that never catches up must not make the vector grow without end; moving at most as many bytes as were read since
        // the last time costs each byte one move.
        if self.start > QUEUE_KEPT / 4 && self.start >= self.bytes.len() / 2 {
            self.bytes.drain(..self.start - usize::from(mutation.is(Mutant::CompactionShiftsQueue)));
            self.start = 0;
        }
        self.bytes.extend_from_slice(bytes);
    }

    #[inline(always)]
    pub(super) fn first(&self, len: usize) -> &[u8] {
        &self.bytes[self.start..self.start + len]
    }

    #[inline(always)]
    pub(super) fn consume(&mut self, len: usize) {
        self.start += len;
    }

    /// Begins anew; everything was read. Whether so much had come that its memory was given back.
    #[inline(always)]
    pub(super) fn reset(&mut self) -> bool {
        self.start = 0;
        self.bytes.clear();
        let is_large = self.bytes.capacity() > QUEUE_KEPT;
        if is_large {
            self.bytes = Vec::new();
        }
        is_large
    }
}
