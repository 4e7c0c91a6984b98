//! mmap(2) of the character device: the offset of a register page, of memory on the card, or of its clock leads to what stands for it.

use core::ffi::{c_int, c_void};

use ringway_preload::{Errno, errno};

use crate::commands::PAGES_AT;
use crate::descriptors::{self, Kind};
use crate::engine::clock::Part;
use crate::engine::{Engine, PAGE, Registers};
use crate::process::{self, undisturbed};
use crate::trap;

/// What libmlx5 maps by a command (rdma/mlx5-abi.h, `mlx5_ib_mmap_cmd`): the low byte of a number, the command, the number's high byte.
const CORE_CLOCK: u64 = 5;
const CLOCK_INFO: u64 = 7;
const DEVICE_MEMORY: u64 = 8;

/// What there is to map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Memory on the card, from a page on.
    Memory(usize),
    Clock(Part),
    /// A register page, by its number.
    Registers(u32),
}

/// What is at an offset of the device.
fn place(offset: u64) -> Option<Place> {
    if let Some(offset) = offset.checked_sub(PAGES_AT) {
        return u32::try_from(offset / 4096).ok().map(Place::Registers);
    }
    let pages = offset / 4096;
    let (command, number) = (pages >> 8 & 0xff, pages & 0xff | pages >> 8 & 0xff00);
    match (command, number) {
        _ if pages >> 24 != 0 => None,
        (DEVICE_MEMORY, page) => Some(Place::Memory(page as usize)),
        (CORE_CLOCK, 0) => Some(Place::Clock(Part::Counter)),
        // (By the number of its version, `MLX5_IB_CLOCK_INFO_V1`.)
        (CLOCK_INFO, 0) => Some(Place::Clock(Part::Conversion)),
        _ => None,
    }
}

/// Maps what the card has at an offset; `None`: it has nothing there.
///
/// # Safety
/// As mmap(2).
unsafe fn map_page(address: *mut c_void, len: usize, access: (c_int, c_int), fd: c_int, offset: i64) -> Option<*mut c_void> {
    let Some(Kind::Context(_)) = descriptors::kind(fd) else { return None };
    let place = place(u64::try_from(offset).ok()?)?;
    let engine = process::lock();
    let mapped = engine.as_ref().ok_or(Errno(libc::EINVAL)).and_then(|engine| {
        let none = Errno(libc::EINVAL);
        match place {
            // SAFETY: the caller's promise.
            Place::Memory(page) => unsafe { engine.device_memory.map(page, address, len, access) }.ok_or(none),
            // SAFETY: the caller's promise.
            Place::Clock(part) => unsafe { map_clock(engine, part, address, len, access) },
            // SAFETY: the caller's promise.
            Place::Registers(number) => unsafe { map_registers(&engine.registers, number, address, len, access) }.ok_or(none),
        }
    });
    Some(mapped.unwrap_or_else(|error| {
        errno::set(error.0);
        libc::MAP_FAILED
    }))
}

/// Maps a part of the clock; of the counter, in trap mode, so that reading faults.
///
/// # Safety
/// As mmap(2).
unsafe fn map_clock(
    engine: &Engine,
    part: Part,
    address: *mut c_void,
    len: usize,
    (protection, flags): (c_int, c_int),
) -> Result<*mut c_void, Errno> {
    // (The kernel's mlx5_ib_mmap refuses both.)
    if len != PAGE {
        return Err(Errno(libc::EINVAL));
    }
    if protection & libc::PROT_WRITE != 0 {
        return Err(Errno(libc::EPERM));
    }
    engine.set_clock();
    let is_trapped = trap::is_on() && part == Part::Counter;
    let given = if is_trapped { libc::PROT_NONE } else { protection };
    // SAFETY: the caller's promise.
    let mapped = unsafe { engine.clock.map(part, address, (given, flags)) };
    if is_trapped && mapped != libc::MAP_FAILED && !watch(mapped, trap::CLOCK) {
        // SAFETY: what was just mapped, and nobody knows yet.
        unsafe { libc::mprotect(mapped, len, protection) };
    }
    Ok(mapped)
}

/// Has faults at a page that was just mapped be looked at. (It may have taken another one's place: MAP_FIXED.)
fn watch(page: *mut c_void, number: u32) -> bool {
    trap::forget(page, PAGE);
    trap::watch(page, number)
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
    if is_trapped && mapped != libc::MAP_FAILED && !watch(mapped, number) {
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
        let mapped = undisturbed!(None, unsafe { map_page(address, len, (protection, flags), fd, offset) });
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

/// mremap(2): register pages that are moved are the card's at their new place. (The last argument is there with some flags alone.)
///
/// # Safety
/// As mremap(2).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn mremap(
    old: *mut c_void,
    old_len: usize,
    new_len: usize,
    flags: c_int,
    address: *mut c_void,
) -> *mut c_void {
    let address = if flags & (libc::MREMAP_FIXED | libc::MREMAP_DONTUNMAP) == 0 { core::ptr::null_mut() } else { address };
    // SAFETY: the program's promise.
    let remap = || unsafe { libc::syscall(libc::SYS_mremap, old, old_len, new_len, libc::c_long::from(flags), address) } as usize;
    // (Allocators call it for what has no such pages.)
    if !trap::has_pages(old, old_len.max(1)) {
        if flags & libc::MREMAP_FIXED != 0 {
            trap::forget(address, new_len);
        }
        return core::ptr::with_exposed_provenance_mut(remap());
    }
    undisturbed!(libc::MAP_FAILED, {
        // (By it, nobody else adds pages.)
        let _engine = process::lock();
        if flags & libc::MREMAP_FIXED != 0 {
            trap::forget(address, new_len);
        }
        let new = core::ptr::with_exposed_provenance_mut(remap());
        if new != libc::MAP_FAILED {
            // (Of none of it, there is one more of all.)
            let stays = flags & libc::MREMAP_DONTUNMAP != 0 || old_len == 0;
            trap::moved((old, if old_len == 0 { new_len } else { old_len }), (new, new_len), stays);
        }
        new
    })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_say_what_is_mapped() {
        assert_eq!(place(PAGES_AT + 7 * 4096), Some(Place::Registers(7)));
        assert_eq!((place(8 << 20 | 3 << 12), place(8 << 20 | 1 << 28 | 2 << 12)), (Some(Place::Memory(3)), Some(Place::Memory(0x102))));
        assert_eq!((place(5 << 20), place(7 << 20)), (Some(Place::Clock(Part::Counter)), Some(Place::Clock(Part::Conversion))));
        // (A page and a version that there are none of, other commands, and no command.)
        for offset in [5 << 20 | 1 << 12, 7 << 20 | 1 << 12, 6 << 20, 0, 1 << 36] {
            assert_eq!(place(offset), None, "{offset:#x}");
        }
    }
}
