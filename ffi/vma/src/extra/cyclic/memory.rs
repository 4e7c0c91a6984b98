//! The memory that records are written to, which the program reads.

use core::ptr::{self, NonNull};
use core::slice;

use ringway_stack::cyclic::RecordMemory;

/// Memory that the program set aside for records (SO_VMA_RING_USER_MEMORY).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::extra) struct UserMemory {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: an address, which is followed only under the ring's lock.
unsafe impl Send for UserMemory {}

impl UserMemory {
    /// `None`: there is none at NULL, and none of no bytes.
    pub(in crate::extra) fn new(base: *mut u8, len: usize) -> Option<Self> {
        (len > 0).then_some(Self { base: NonNull::new(base)?, len })
    }

    pub(in crate::extra) const fn len(self) -> usize {
        self.len
    }
}

/// Memory of a ring: the library's own, or the program's.
#[derive(Debug)]
pub(super) struct Memory {
    /// Invariant: `len` bytes can be read and written there as long as this lives; nothing of ours refers to any of them but in
    /// [`RecordMemory::fill`].
    base: NonNull<u8>,
    len: usize,
    is_ours: bool,
}

// SAFETY: it is used under the ring's lock, and only one has it.
unsafe impl Send for Memory {}

impl Memory {
    /// `len` bytes from the kernel, taken as they are used. `None`: it has none.
    pub(super) fn new(len: usize) -> Option<Self> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a mapping of its own, which nothing else knows of.
        let base = unsafe { libc::mmap(ptr::null_mut(), len, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
        if base == libc::MAP_FAILED {
            return None;
        }
        Some(Self { base: NonNull::new(base.cast())?, len, is_ours: true })
    }

    /// The program's: it promised that so many bytes can be written there for as long as it has a socket on the ring.
    pub(super) const fn of_the_program(memory: UserMemory) -> Self {
        Self { base: memory.base, len: memory.len, is_ours: false }
    }

    /// Where a byte of it is.
    pub(super) fn at(&self, offset: usize) -> *mut u8 {
        self.base.as_ptr().wrapping_add(offset)
    }
}

impl RecordMemory for Memory {
    fn len(&self) -> usize {
        self.len
    }

    fn fill(&mut self, at: usize, len: usize, fill: impl FnOnce(&mut [u8])) {
        assert!(at.checked_add(len).is_some_and(|end| end <= self.len), "records are written within their memory");
        // SAFETY: within it, by the invariant; and the program, which reads what it was given, was not given this yet, or not since the last rewind.
        fill(unsafe { slice::from_raw_parts_mut(self.at(at), len) });
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if self.is_ours {
            // SAFETY: mapped by `new`, with this length.
            unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_filled_in_is_there_and_what_is_the_programs_stays_its_own() {
        let mut ours = Memory::new(8192).expect("memory");
        ours.fill(8190, 2, |out| out.copy_from_slice(b"ab"));
        // SAFETY: within it, and nobody writes.
        assert_eq!(unsafe { slice::from_raw_parts(ours.at(8189), 3) }, b"\0ab");
        let mut theirs = vec![7u8; 4];
        let user = UserMemory::new(theirs.as_mut_ptr(), theirs.len()).expect("some");
        Memory::of_the_program(user).fill(1, 2, |out| out.fill(1));
        assert_eq!(theirs, [7, 1, 1, 7]);
        assert!(UserMemory::new(ptr::null_mut(), 4).is_none() && UserMemory::new(theirs.as_mut_ptr(), 0).is_none());
    }
}
