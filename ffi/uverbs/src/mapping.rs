//! mmap(2) of the character device: a register page's offset leads to its memory.

use core::ffi::{c_int, c_void};

use ringway_preload::{boundary, errno};

use crate::commands::PAGES_AT;
use crate::descriptors::{self, Kind};
use crate::process;

/// Maps the register page of an offset; `None`: it is not one's.
///
/// # Safety
/// As mmap(2).
unsafe fn map_registers(
    address: *mut c_void,
    len: usize,
    (protection, flags): (c_int, c_int),
    fd: c_int,
    offset: i64,
) -> Option<*mut c_void> {
    let Some(Kind::Context(_)) = descriptors::kind(fd) else { return None };
    let number = u32::try_from(u64::try_from(offset).ok()?.checked_sub(PAGES_AT)? / 4096).ok()?;
    let engine = process::lock();
    // SAFETY: the caller's promise.
    let mapped = engine.as_ref().and_then(|engine| unsafe { engine.registers.map(number, address, len, (protection, flags)) });
    Some(mapped.unwrap_or_else(|| {
        errno::set(libc::EINVAL);
        libc::MAP_FAILED
    }))
}

/// mmap(2).
///
/// # Safety
/// As mmap(2).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn mmap(
    address: *mut c_void,
    len: usize,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    offset: i64,
) -> *mut c_void {
    if descriptors::kind(fd).is_some() {
        // SAFETY: the program's promise.
        let mapped = boundary!(None, unsafe { map_registers(address, len, (protection, flags), fd, offset) });
        if let Some(mapped) = mapped {
            return mapped;
        }
    }
    // (By number, as libc's own does it: allocators call it before anything can be looked up.)
    let [protection, flags, fd] = [protection, flags, fd].map(libc::c_long::from);
    // SAFETY: the program's promise.
    let mapped = unsafe { libc::syscall(libc::SYS_mmap, address, len, protection, flags, fd, offset) };
    core::ptr::with_exposed_provenance_mut(mapped as usize)
}

/// mmap(2), as programs with 64-bit offsets call it.
///
/// # Safety
/// As mmap(2).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn mmap64(
    address: *mut c_void,
    len: usize,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    offset: i64,
) -> *mut c_void {
    // SAFETY: the program's promise.
    unsafe { mmap(address, len, protection, flags, fd, offset) }
}
