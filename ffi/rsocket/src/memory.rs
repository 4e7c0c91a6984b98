//! What queue pairs may read and write: memory of the library's own, some of which peers write to by themselves, and buffers of the program's (riomap).

use core::ptr::NonNull;
use core::sync::atomic::{Ordering, fence};

use ringway_devices::messages::{AreaPart, CardMemory, Pages};
use ringway_stack::device::messages::Memory;

/// The message plane that this library runs on.
pub(crate) type Plane = ringway_devices::messages::Plane<Bytes>;

/// A program's buffer.
///
/// Invariant: the program has promised, by riomap, that `len` bytes at `start` are its own, readable and writable, until riounmap or rclose. It may read and
/// write them at any time, as with any memory that an adapter writes: so they are only copied, by pointer, and no reference to them is ever made.
#[derive(Debug)]
pub(crate) struct Buffer {
    start: *mut u8,
    len: usize,
}

// SAFETY: the program's promise is one of the whole process, whatever thread copies.
unsafe impl Send for Buffer {}

impl Buffer {
    /// # Safety
    /// The invariant.
    pub(crate) const unsafe fn new(start: *mut u8, len: usize) -> Self {
        Self { start, len }
    }

    /// Copies bytes in, the last one last: a program that looks at that one alone, as with what a card writes, finds all of them.
    fn write(&self, offset: u64, bytes: &[u8]) {
        let to = self.at(offset, bytes.len());
        let Some((last, others)) = bytes.split_last() else { return };
        // SAFETY: `at` has checked that so many bytes lie there, which the program has promised; `bytes` are a packet's, in memory of ours.
        unsafe {
            core::ptr::copy_nonoverlapping(others.as_ptr(), to, others.len());
            fence(Ordering::Release);
            to.add(others.len()).write_volatile(*last);
        }
    }

    /// Where bytes lie that are inside of it.
    fn at(&self, offset: u64, len: usize) -> *mut u8 {
        let offset = usize::try_from(offset).unwrap_or(usize::MAX);
        assert!(offset.checked_add(len).is_some_and(|end| end <= self.len), "the adapter has checked the bounds");
        // SAFETY: just checked: it is in the buffer, or at its end.
        unsafe { self.start.add(offset) }
    }
}

/// Registered memory.
#[derive(Debug)]
pub(crate) enum Bytes {
    /// The library's own.
    Own(Vec<u8>),
    /// The library's own, which a peer writes to as well: a stream's receive buffer.
    Shared(AreaPart),
    /// The library's own, which a device reads and writes by itself.
    Pages(Pages),
    /// The program's.
    Program(Buffer),
}

impl From<Vec<u8>> for Bytes {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Own(bytes)
    }
}

impl From<AreaPart> for Bytes {
    fn from(part: AreaPart) -> Self {
        Self::Shared(part)
    }
}

impl From<Pages> for Bytes {
    fn from(pages: Pages) -> Self {
        Self::Pages(pages)
    }
}

// SAFETY: pages are what they say, and a program's buffer is by its invariant: it stays where it is while it is mapped, and is copied by pointer. Others cannot be
// registered.
unsafe impl CardMemory for Bytes {
    fn start(&self) -> Option<NonNull<u8>> {
        match self {
            Self::Pages(pages) => Some(pages.start()),
            Self::Program(buffer) => NonNull::new(buffer.start),
            Self::Own(_) | Self::Shared(_) => None,
        }
    }
}

impl Memory for Bytes {
    fn len(&self) -> u64 {
        match self {
            Self::Own(bytes) => Memory::len(bytes),
            Self::Shared(part) => part.len() as u64,
            Self::Pages(pages) => pages.len(),
            Self::Program(buffer) => buffer.len as u64,
        }
    }

    fn read(&self, offset: u64, out: &mut [u8]) {
        match self {
            Self::Own(bytes) => bytes.read(offset, out),
            Self::Shared(part) => part.read(offset as usize, out),
            Self::Pages(pages) => pages.read(offset, out),
            // SAFETY: `at` has checked that so many bytes lie there, which the program has promised; `out` is ours, and so somewhere else.
            Self::Program(buffer) => unsafe { core::ptr::copy_nonoverlapping(buffer.at(offset, out.len()), out.as_mut_ptr(), out.len()) },
        }
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) {
        match self {
            Self::Own(own) => own.write(offset, bytes),
            Self::Shared(part) => part.write(offset as usize, bytes),
            Self::Pages(pages) => pages.write(offset, bytes),
            Self::Program(buffer) => buffer.write(offset, bytes),
        }
    }

    fn slice_mut(&mut self, offset: u64, len: usize) -> Option<&mut [u8]> {
        match self {
            Self::Own(own) => own.slice_mut(offset, len),
            Self::Shared(_) | Self::Pages(_) | Self::Program(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_programs_buffer_is_read_and_written_within_its_bounds() {
        let mut program = [0_u8; 16];
        // SAFETY: the middle of an array that outlives it, and that is looked at by pointer alone meanwhile.
        let mut bytes = Bytes::Program(unsafe { Buffer::new(program.as_mut_ptr().add(4), 8) });
        assert_eq!(bytes.len(), 8);
        bytes.write(0, &[1; 8]);
        bytes.write(6, &[2; 2]);
        bytes.write(8, &[]);
        let mut out = [0; 3];
        bytes.read(5, &mut out);
        assert_eq!((out, program), ([1, 2, 2], [0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 2, 2, 0, 0, 0, 0]));
    }

    #[test]
    #[should_panic(expected = "bounds")]
    fn what_is_beyond_is_not_written() {
        let mut program = [0_u8; 8];
        // SAFETY: an array that outlives it.
        let mut bytes = Bytes::Program(unsafe { Buffer::new(program.as_mut_ptr(), 8) });
        bytes.write(7, &[1; 2]);
    }
}
