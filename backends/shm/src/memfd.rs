//! Sealed memory: made, checked, mapped.

use core::ffi::CStr;
use core::ptr::NonNull;
use std::io;

use crate::fd::Fd;
use crate::layout::SEGMENT_MIN;
use crate::reads::View;
use crate::stores::SharedMemory;
use crate::sys;

/// What a segment must promise before it is mapped: it neither shrinks (a read would raise SIGBUS) nor grows, and
/// nobody but its maker can write it. The last seal also forbids punching holes (memfd_create(2), fcntl(2)).
const SEALS: i32 = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_FUTURE_WRITE;

/// A mapping of a whole segment; unmapped on drop. A fork's child doesn't have it (MADV_DONTFORK).
#[derive(Debug)]
pub(crate) struct Mapping {
    base: NonNull<u8>,
    /// Invariant: at least [`SEGMENT_MIN`].
    len: usize,
    /// The process that mapped it: in a child, the address may be something else's.
    pid: i32,
}

// SAFETY: a mapping is plain memory; all accesses go through atomics or opaque copies.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    fn new(fd: &Fd, len: usize, protection: i32) -> io::Result<Self> {
        if len < SEGMENT_MIN {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        // SAFETY: a fresh mapping at an address of the kernel's choice touches no existing memory.
        let base = unsafe { libc::mmap(core::ptr::null_mut(), len, protection, libc::MAP_SHARED | libc::MAP_NORESERVE, fd.raw(), 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let mapping = Self { base: NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?, len, pid: sys::pid() };
        // SAFETY: our own fresh mapping.
        if unsafe { libc::madvise(base, len, libc::MADV_DONTFORK) } != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(mapping)
    }

    /// Asks for huge pages, which there may be or not (shmem_enabled in /sys/kernel/mm/transparent_hugepage).
    pub(crate) fn prefer_huge_pages(&self) {
        // SAFETY: our own mapping, whose content that does not change.
        unsafe { libc::madvise(self.base.as_ptr().cast(), self.len, libc::MADV_HUGEPAGE) };
    }

    /// Bytes mapped.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The address of `len` bytes from `offset` on.
    #[inline]
    pub(crate) fn at(&self, offset: usize, len: usize) -> NonNull<u8> {
        // (Most of what is looked at has its place in what every segment has, as is known when this is compiled.)
        let is_in = |end: usize| offset <= end && len <= end - offset;
        assert!(is_in(SEGMENT_MIN) || is_in(self.len));
        // SAFETY: in range of the mapping.
        unsafe { self.base.add(offset) }
    }

    /// The same, of what most likely lies behind what every segment has: in the pool of send buffers.
    #[inline(always)]
    pub(crate) fn at_far(&self, offset: usize, len: usize) -> NonNull<u8> {
        assert!(offset <= self.len && len <= self.len - offset);
        // SAFETY: in range of the mapping.
        unsafe { self.base.add(offset) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if self.pid == sys::pid() {
            // SAFETY: mapped by `new` in this process, and nothing refers to it any more.
            unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
        }
    }
}

/// What an area must promise, which both its maker and one peer write: it neither shrinks nor grows.
const AREA_SEALS: i32 = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW;

/// Makes a sealed segment of `len` bytes, zeroed: our writable mapping, and the descriptor to pass to peers.
///
/// # Errors
/// The system's; EFBIG, where growing it would raise SIGXFSZ (setrlimit(2): the program may have lowered RLIMIT_FSIZE at any time).
pub(crate) fn create(name: &CStr, len: usize) -> io::Result<(SharedMemory, Fd)> {
    create_sealed(name, len, SEALS)
}

/// Makes an area, which the peer to whom the descriptor is passed can write, too.
///
/// # Errors
/// As [`create`].
pub(crate) fn create_area(len: usize) -> io::Result<(SharedMemory, Fd)> {
    create_sealed(c"ringway-area", len, AREA_SEALS)
}

fn create_sealed(name: &CStr, len: usize, seals: i32) -> io::Result<(SharedMemory, Fd)> {
    if sys::file_size_limit() < len as u64 {
        return Err(io::Error::from_raw_os_error(libc::EFBIG));
    }
    let fd = sys::memfd_create(name)?;
    sys::ftruncate(&fd, len)?;
    let mapping = Mapping::new(&fd, len, libc::PROT_READ | libc::PROT_WRITE)?;
    sys::add_seals(&fd, seals | libc::F_SEAL_SEAL)?;
    Ok((SharedMemory::new(mapping), fd))
}

/// Checks and maps a peer's segment. `expected_len`: the exact size where it is known.
pub(crate) fn open(fd: &Fd, expected_len: Option<usize>, len_max: usize) -> io::Result<View> {
    let len = check(fd, SEALS, len_max)?;
    if expected_len.is_some_and(|expected| expected != len) {
        return Err(io::ErrorKind::InvalidData.into());
    }
    Ok(View::new(Mapping::new(fd, len, libc::PROT_READ)?))
}

/// Checks and maps a peer's area, to write there.
pub(crate) fn open_area(fd: &Fd, len_max: usize) -> io::Result<SharedMemory> {
    let len = check(fd, AREA_SEALS, len_max)?;
    Ok(SharedMemory::new(Mapping::new(fd, len, libc::PROT_READ | libc::PROT_WRITE)?))
}

/// How long it is, if it can be mapped.
fn check(fd: &Fd, seals: i32, len_max: usize) -> io::Result<usize> {
    // Huge pages can run out at the time of a read, which is SIGBUS again; only plain shared memory will do.
    // (Only memory files have seals, and fstatfs(2) of another one may ask whoever passed it, as FUSE does.)
    if sys::seals(fd)? & seals != seals || !sys::is_tmpfs(fd)? {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let len = sys::file_len(fd)?;
    if len < SEGMENT_MIN || len > len_max { Err(io::ErrorKind::InvalidData.into()) } else { Ok(len) }
}

/// Maps a peer's segment once more, of which `view` is the first mapping.
pub(crate) fn open_again(fd: &Fd, view: &View) -> io::Result<Mapping> {
    Mapping::new(fd, view.len(), libc::PROT_READ)
}
