//! What can be registered: bytes that stay where they are, for a device reads and writes them by their addresses.

use core::ptr::{self, NonNull};
use std::io;

use ringway_stack::device::messages::Memory;

/// Memory that a device can reach by itself.
///
/// # Safety
/// Where [`CardMemory::start`] is `Some`, [`Memory::len`] bytes from there on can be read and written, and stay where they are, until the value is dropped, moved
/// or not. Nobody makes references to them: [`Memory::read`] and [`Memory::write`] copy by pointer.
pub unsafe trait CardMemory: Memory + From<Pages> {
    /// Its first byte; `None`: it cannot be registered.
    fn start(&self) -> Option<NonNull<u8>>;
}

/// Pages of zeros, for the device and this process. The child of a fork does not have them.
#[derive(Debug)]
pub struct Pages {
    /// Invariant: `len` bytes from here on are a mapping of this value's own, readable and writable, which only pointers lead to.
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: it owns its mapping; whatever thread has it may use it.
unsafe impl Send for Pages {}

impl Pages {
    /// Maps `len` bytes, one at least.
    ///
    /// # Errors
    /// ENOMEM.
    pub fn new(len: usize) -> io::Result<Self> {
        let len = len.max(1);
        let (prot, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a mapping at an address that the kernel chooses touches no memory of anybody's.
        let start = unsafe { libc::mmap(ptr::null_mut(), len, prot, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start: NonNull<u8> = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        // (A child that had them would take the pages that the device writes to from its parent, on kernels before 5.12: ibv_fork_init(3).)
        // SAFETY: the mapping is this value's own. If it is refused, nothing has changed.
        unsafe { libc::madvise(start.as_ptr().cast(), len, libc::MADV_DONTFORK) };
        Ok(Self { start, len })
    }

    /// The first byte.
    pub const fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Where bytes lie that are inside of it.
    fn at(&self, offset: u64, len: usize) -> *mut u8 {
        let offset = usize::try_from(offset).unwrap_or(usize::MAX);
        assert!(offset.checked_add(len).is_some_and(|end| end <= self.len), "the caller has checked the bounds");
        // SAFETY: just checked: it is in the mapping, or at its end.
        unsafe { self.start.as_ptr().add(offset) }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own, and nothing leads there any more.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
    }
}

impl Memory for Pages {
    fn len(&self) -> u64 {
        self.len as u64
    }

    fn read(&self, offset: u64, out: &mut [u8]) {
        // SAFETY: `at` has checked that so many bytes lie there; `out` is the caller's, and so somewhere else.
        unsafe { ptr::copy_nonoverlapping(self.at(offset, out.len()), out.as_mut_ptr(), out.len()) };
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) {
        // SAFETY: as above.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), self.at(offset, bytes.len()), bytes.len()) };
    }
}

// SAFETY: the mapping lasts as long as the value does, wherever that lies, and the two calls above copy by pointer.
unsafe impl CardMemory for Pages {
    fn start(&self) -> Option<NonNull<u8>> {
        Some(self.start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_zero_and_keep_what_is_written_wherever_they_are_moved() {
        let mut pages = Pages::new(5000).unwrap();
        let start = pages.start();
        pages.write(4990, &[7; 10]);
        let moved = Box::new(pages);
        let mut out = [1; 12];
        moved.read(4988, &mut out);
        assert_eq!((out, moved.len(), moved.start()), ([0, 0, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7], 5000, start));
    }

    #[test]
    #[should_panic(expected = "bounds")]
    fn what_is_beyond_is_not_read() {
        Pages::new(8).unwrap().read(1, &mut [0; 8]);
    }
}
