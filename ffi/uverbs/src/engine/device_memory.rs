//! Memory on the card, which programs map (ibv_alloc_dm(3)): what a ConnectX calls MEMIC.
//!
//! The kernel allocates whole pages, so that nobody maps what is another's.

use core::ptr::NonNull;
use std::collections::BTreeMap;

use ringway_host::Fd;
use ringway_preload::Errno;
use rustix::fs::MemfdFlags;

use super::registers::map;
use crate::paths::from_rustix;

/// All of it, as a ConnectX-5 has.
pub(crate) const BYTES: usize = 128 << 10;
/// Bytes of a page: what is allocated at the least, and the highest alignment that can be asked for.
pub(crate) const PAGE: usize = 4096;

/// The memory, once some of it was asked for.
#[derive(Debug, Default)]
pub(crate) struct DeviceMemory {
    pages: Option<Pages>,
    /// Lengths, by where they begin. Invariant: none overlaps another, rounded up to pages.
    allocations: BTreeMap<usize, usize>,
}

/// What the card has mapped itself. Invariant: [`BYTES`], as long as the value is there.
#[derive(Debug)]
struct Pages {
    file: Fd,
    base: NonNull<u8>,
}

// SAFETY: the mapping is the value's own; the card reads and writes it as it does the program's memory, through the kernel.
unsafe impl Send for Pages {}

impl Pages {
    fn new() -> Result<Self, Errno> {
        let file = Fd::of(|| rustix::fs::memfd_create("connectx-memory", MemfdFlags::CLOEXEC)).map_err(from_rustix)?;
        rustix::fs::ftruncate(&file, BYTES as u64).map_err(from_rustix)?;
        // SAFETY: a new mapping, where the kernel likes.
        let mapped = unsafe { map(core::ptr::null_mut(), BYTES, (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED), (&file, 0)) };
        let base = NonNull::new(mapped).filter(|_| mapped != libc::MAP_FAILED).ok_or(Errno(libc::ENOMEM))?.cast();
        Ok(Self { file, base })
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's, and nobody has a reference into it.
        unsafe { libc::munmap(self.base.as_ptr().cast(), BYTES) };
    }
}

impl DeviceMemory {
    /// The first page from which on so many bytes are free. What was there is left there, as a card may.
    ///
    /// # Errors
    /// ENOMEM.
    pub(crate) fn alloc(&mut self, len: usize) -> Result<usize, Errno> {
        if self.pages.is_none() {
            self.pages = Some(Pages::new()?);
        }
        let mut start = 0;
        for (&taken, &its) in &self.allocations {
            if start + len <= taken {
                break;
            }
            start = (taken + its).next_multiple_of(PAGE);
        }
        if start + len > BYTES {
            return Err(Errno(libc::ENOMEM));
        }
        self.allocations.insert(start, len);
        Ok(start)
    }

    /// What begins there is free again.
    pub(crate) fn free(&mut self, start: usize) {
        self.allocations.remove(&start);
    }

    /// How long it is; nothing, if nothing begins there.
    pub(crate) fn len(&self, start: usize) -> usize {
        self.allocations.get(&start).copied().unwrap_or(0)
    }

    /// Where the card reaches it.
    pub(crate) fn address(&self, start: usize) -> u64 {
        self.pages.as_ref().map_or(0, |pages| (pages.base.as_ptr().expose_provenance() + start) as u64)
    }

    /// Maps pages from one on for the program, as mmap(2) does; `None`: there are no such.
    ///
    /// # Safety
    /// As mmap(2), of the address and flags.
    pub(crate) unsafe fn map(&self, page: usize, address: *mut libc::c_void, len: usize, access: (i32, i32)) -> Option<*mut libc::c_void> {
        let pages = self.pages.as_ref()?;
        let offset = page.checked_mul(PAGE).filter(|offset| offset.checked_add(len).is_some_and(|end| end <= BYTES))?;
        // SAFETY: the caller's promise.
        Some(unsafe { map(address, len, access, (&pages.file, offset)) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_free_is_given_once() {
        let mut memory = DeviceMemory::default();
        let [first, second, third] = [100, 64, 4097].map(|len| memory.alloc(len).unwrap());
        assert_eq!((first, second, third), (0, PAGE, 2 * PAGE));
        memory.free(second);
        assert_eq!((memory.len(second), memory.alloc(PAGE + 1), memory.alloc(PAGE)), (0, Ok(4 * PAGE), Ok(PAGE)));
        assert_eq!(memory.alloc(BYTES), Err(Errno(libc::ENOMEM)));
        assert_eq!(memory.alloc(BYTES - 6 * PAGE), Ok(6 * PAGE), "up to the end");
    }

    #[test]
    fn a_program_maps_what_the_card_reaches() {
        let mut memory = DeviceMemory::default();
        let start = memory.alloc(PAGE).and_then(|_| memory.alloc(8)).unwrap();
        let access = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
        // SAFETY: a new mapping, where the kernel likes, which is as long as what is written.
        unsafe {
            let mapped = memory.map(start / PAGE, core::ptr::null_mut(), PAGE, access).unwrap();
            mapped.cast::<u64>().write(0x1234);
            assert_eq!(core::ptr::with_exposed_provenance::<u64>(memory.address(start) as usize).read(), 0x1234);
            assert!(memory.map(BYTES / PAGE, core::ptr::null_mut(), PAGE, access).is_none());
        }
    }
}
