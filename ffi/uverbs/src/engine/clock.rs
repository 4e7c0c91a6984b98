//! The card's clock, as programs read it: a page with the counter itself (a card's own register), and a page with the kernel's conversion of it to the time of day
//! (rdma/mlx5-abi.h, `mlx5_ib_clock_info`).
//!
//! The counter counts nanoseconds from when the card began, so that the conversion never changes: no daemon adjusts this clock (as PTP's would), and the time of day is that of when it began and
//! what it has counted since.

use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use ringway_host::Fd;
use ringway_preload::Errno;
use rustix::fs::MemfdFlags;

use super::registers::{PAGE, map};
use crate::paths::from_rustix;

/// What a program may map of it: where that is in the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// The counter, most significant half first, each in big endian.
    Counter = 0,
    /// The conversion.
    Conversion = PAGE as isize,
}

/// How often a program is to take the conversion anew (`overflow_period`), nanoseconds: it is right for much longer.
const UPDATE_NS: u64 = 3_600_000_000_000;

/// The pages. Invariant: two are mapped, as long as the value is there.
#[derive(Debug)]
pub(crate) struct ClockPages {
    file: Fd,
    counter: NonNull<AtomicU64>,
}

// SAFETY: the mapping is the value's own, of memory that is shared with the program, and it is used by atomic accesses alone.
unsafe impl Send for ClockPages {}

impl ClockPages {
    /// Of a clock that begins now.
    ///
    /// # Errors
    /// What the kernel says of the memory.
    pub(super) fn new() -> Result<Self, Errno> {
        let file = Fd::of(|| rustix::fs::memfd_create("connectx-clock", MemfdFlags::CLOEXEC)).map_err(from_rustix)?;
        rustix::fs::ftruncate(&file, 2 * PAGE as u64).map_err(from_rustix)?;
        let began = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let conversion = conversion(u64::try_from(began.as_nanos()).unwrap_or(u64::MAX));
        rustix::io::pwrite(&file, &conversion, Part::Conversion as u64).map_err(from_rustix)?;
        // SAFETY: a new mapping, where the kernel likes.
        let mapped = unsafe { map(core::ptr::null_mut(), 2 * PAGE, (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED), (&file, 0)) };
        let counter = NonNull::new(mapped).filter(|_| mapped != libc::MAP_FAILED).ok_or(Errno(libc::ENOMEM))?.cast();
        Ok(Self { file, counter })
    }

    /// The counter is there now.
    pub(crate) fn set(&self, nanos: u64) {
        // SAFETY: the mapping's first word.
        unsafe { self.counter.as_ref() }.store(u64::from_ne_bytes(nanos.to_be_bytes()), Ordering::Release);
    }

    /// Maps a part for the program, as mmap(2) does.
    ///
    /// # Safety
    /// As mmap(2), of the address and flags.
    pub(crate) unsafe fn map(&self, part: Part, address: *mut libc::c_void, access: (i32, i32)) -> *mut libc::c_void {
        // SAFETY: the caller's promise.
        unsafe { map(address, PAGE, access, (&self.file, part as usize)) }
    }
}

impl Drop for ClockPages {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's, and nobody has a reference into it.
        unsafe { libc::munmap(self.counter.as_ptr().cast(), 2 * PAGE) };
    }
}

/// `mlx5_ib_clock_info` {sign 0, nsec 8, cycles 16, frac 24, mult 32, shift 36, mask 40, overflow_period 48}: at no cycles it was `nsec`, and a cycle is a nanosecond. (The sign is odd while the kernel is
/// in the middle of it.)
fn conversion(nsec: u64) -> [u8; 56] {
    let mut bytes = [0; 56];
    let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
    put(8, &nsec.to_ne_bytes());
    put(32, &1_u32.to_ne_bytes());
    put(40, &u64::MAX.to_ne_bytes());
    put(48, &UPDATE_NS.to_ne_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_sees_the_counter_and_what_time_it_is_by_it() {
        let clock = ClockPages::new().unwrap();
        let access = (libc::PROT_READ, libc::MAP_SHARED);
        // SAFETY: new mappings, where the kernel likes, which are as long as what is read.
        let [counter, conversion] =
            [Part::Counter, Part::Conversion].map(|part| unsafe { clock.map(part, core::ptr::null_mut(), access) }.cast::<u32>());
        clock.set(0x0102_0304_0506_0708);
        // SAFETY: as above.
        let (halves, conversion) =
            unsafe { ([counter.read_volatile(), counter.add(1).read_volatile()], conversion.cast::<[u64; 7]>().read()) };
        assert_eq!(halves.map(u32::from_be), [0x0102_0304, 0x0506_0708]);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64;
        assert!(conversion[0] == 0 && now - conversion[1] < 60_000_000_000, "{conversion:?}");
        assert_eq!(conversion[2..], [0, 0, u64::from_ne_bytes([1, 0, 0, 0, 0, 0, 0, 0]), u64::MAX, UPDATE_NS]);
    }
}
