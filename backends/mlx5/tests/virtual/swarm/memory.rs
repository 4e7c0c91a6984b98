//! What a card reaches: the queues that the library made for it, and the memory that was registered. Anything else is not mapped.

use std::collections::BTreeMap;

use ringway_sim::connectx::{Memory, Unmapped};

/// A page of memory, aligned as one.
#[derive(Clone)]
#[repr(C, align(4096))]
struct Page([u8; 4096]);

/// A run of bytes.
struct Run {
    base: *mut u8,
    len: u64,
    /// Pages of its own; none: it is the driver's.
    own: Option<*mut [Page]>,
}

impl Drop for Run {
    fn drop(&mut self) {
        if let Some(pages) = self.own {
            // SAFETY: they were made by `Reach::add_own`, and this is their only owner.
            drop(unsafe { Box::from_raw(pages) });
        }
    }
}

/// All runs, by their first address.
#[derive(Default)]
pub(super) struct Reach(BTreeMap<u64, Run>);

impl Reach {
    /// New memory of at least so many bytes of zeroes, whole pages.
    pub(super) fn add_own(&mut self, len: usize) -> *mut u8 {
        let pages = Box::into_raw(vec![Page([0; 4096]); len.div_ceil(4096)].into_boxed_slice());
        let (base, len) = (pages.cast::<u8>(), len.next_multiple_of(4096) as u64);
        self.0.insert(base.addr() as u64, Run { base, len, own: Some(pages) });
        base
    }

    /// Memory of the driver's.
    ///
    /// # Safety
    /// It is there until it is removed, and nobody has a reference to it while the card works.
    pub(super) unsafe fn add(&mut self, base: *mut u8, len: usize) {
        self.0.insert(base.addr() as u64, Run { base, len: len as u64, own: None });
    }

    pub(super) fn remove(&mut self, base: *mut u8) {
        self.0.remove(&(base.addr() as u64));
    }

    /// Where so many bytes lie.
    fn place(&self, addr: u64, len: usize) -> Result<*mut u8, Unmapped> {
        let (start, run) = self.0.range(..=addr).next_back().ok_or(Unmapped { addr })?;
        let at = addr - start;
        match at.checked_add(len as u64).is_some_and(|end| end <= run.len) {
            true => Ok(run.base.wrapping_add(at as usize)),
            false => Err(Unmapped { addr }),
        }
    }
}

impl Memory for Reach {
    fn read(&self, addr: u64, out: &mut [u8]) -> Result<(), Unmapped> {
        let from = self.place(addr, out.len())?;
        // SAFETY: the bytes are there, and nobody refers to them: neither the driver, which is not at work, nor the caller's buffer, which is another one.
        unsafe { core::ptr::copy_nonoverlapping(from, out.as_mut_ptr(), out.len()) };
        Ok(())
    }

    fn write(&mut self, addr: u64, bytes: &[u8]) -> Result<(), Unmapped> {
        let to = self.place(addr, bytes.len())?;
        // SAFETY: as above.
        unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
        Ok(())
    }
}
