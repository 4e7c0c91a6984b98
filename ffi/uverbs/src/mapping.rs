//! mmap(2) of the character device: the offset of a register page, or of memory on the card, leads to what stands for it.

use core::ffi::{c_int, c_void};

use ringway_preload::{boundary, errno};

use crate::commands::PAGES_AT;
use crate::descriptors::{self, Kind};
use crate::engine::{PAGE, Registers};
use crate::{process, trap};

/// What libmlx5 maps by a page's number and a command (rdma/mlx5-abi.h, `MLX5_IB_MMAP_DEVICE_MEM`): the number's low byte, the command, the number's high byte.
const DEVICE_MEMORY: u64 = 8;

/// The page on the card of an offset in pages.
fn card_page(pages: u64) -> Option<usize> {
    let is_it = pages >> 8 & 0xff == DEVICE_MEMORY && pages >> 24 == 0;
    is_it.then_some((pages & 0xff | pages >> 8 & 0xff00) as usize)
}

/// Maps the card's page of an offset; `None`: it is not one's.
///
/// # Safety
/// As mmap(2).
unsafe fn map_page(address: *mut c_void, len: usize, (protection, flags): (c_int, c_int), fd: c_int, offset: i64) -> Option<*mut c_void> {
    let Some(Kind::Context(_)) = descriptors::kind(fd) else { return None };
    let offset = u64::try_from(offset).ok()?;
    let engine = process::lock();
    let (engine, access) = (engine.as_ref(), (protection, flags));
    let mapped = match (card_page(offset / 4096), offset.checked_sub(PAGES_AT)) {
        // SAFETY: the caller's promise.
        (Some(page), _) => engine.and_then(|engine| unsafe { engine.device_memory.map(page, address, len, access) }),
        (None, Some(offset)) => {
            let number = u32::try_from(offset / 4096).ok()?;
            // SAFETY: the caller's promise.
            engine.and_then(|engine| unsafe { map_registers(&engine.registers, number, address, len, access) })
        }
        (None, None) => return None,
    };
    Some(mapped.unwrap_or_else(|| {
        errno::set(libc::EINVAL);
        libc::MAP_FAILED
    }))
}

/// Maps a register page; in trap mode, so that writing faults.
///
/// # Safety
/// As mmap(2).
unsafe fn map_registers(
    registers: &Registers,
    number: u32,
    address: *mut c_void,
    len: usize,
    (protection, flags): (c_int, c_int),
) -> Option<*mut c_void> {
    let is_trapped = trap::is_on() && len == PAGE && protection & libc::PROT_WRITE != 0;
    let given = if is_trapped { protection & !libc::PROT_WRITE | libc::PROT_READ } else { protection };
    // SAFETY: the caller's promise.
    let mapped = unsafe { registers.map(number, address, len, (given, flags)) }?;
    if is_trapped && mapped != libc::MAP_FAILED && !trap::watch(mapped, number) {
        // SAFETY: what was just mapped, and nobody knows yet.
        unsafe { libc::mprotect(mapped, len, protection) };
    }
    Some(mapped)
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
        let mapped = boundary!(None, unsafe { map_page(address, len, (protection, flags), fd, offset) });
        if let Some(mapped) = mapped {
            return mapped;
        }
    }
    if flags & libc::MAP_FIXED != 0 {
        trap::forget(address, len);
    }
    // (By number, as libc's own does it: allocators call it before anything can be looked up.)
    let [protection, flags, fd] = [protection, flags, fd].map(libc::c_long::from);
    // SAFETY: the program's promise.
    let mapped = unsafe { libc::syscall(libc::SYS_mmap, address, len, protection, flags, fd, offset) };
    core::ptr::with_exposed_provenance_mut(mapped as usize)
}

/// munmap(2).
///
/// # Safety
/// As munmap(2).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn munmap(address: *mut c_void, len: usize) -> c_int {
    trap::forget(address, len);
    // SAFETY: the program's promise.
    unsafe { libc::syscall(libc::SYS_munmap, address, len) as c_int }
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
