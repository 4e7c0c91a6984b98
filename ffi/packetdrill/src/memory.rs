//! The caller's memory. Scripts hand in pointers that lead nowhere, to see EFAULT: so the kernel copies, and says which do.

use core::ffi::c_void;
use core::mem::MaybeUninit;

use libc::iovec;

use crate::errno::Errno;

/// The most bytes that one call moves: more than any script's, and less than would exhaust memory.
const BYTES_MAX: usize = 1 << 30;
/// The most parts of a vector (IOV_MAX).
const PARTS_MAX: usize = 1024;

/// A copy of `len` bytes of the caller's.
///
/// # Errors
/// EFAULT: not all of them can be read.
pub(crate) fn read(from: *const c_void, len: usize) -> Result<Vec<u8>, Errno> {
    let mut bytes = vec![0; checked(len)?];
    if len == 0 {
        return Ok(bytes);
    }
    let local = iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: len };
    let remote = iovec { iov_base: from.cast_mut(), iov_len: len };
    // SAFETY: `local` is `bytes`, which are ours; what `remote` names the kernel checks.
    let copied = unsafe { libc::process_vm_readv(libc::getpid(), &raw const local, 1, &raw const remote, 1, 0) };
    if copied == len as isize { Ok(bytes) } else { Err(Errno::FAULT) }
}

/// Copies bytes to the caller.
///
/// # Errors
/// EFAULT: not all of them can be written.
pub(crate) fn write(to: *mut c_void, bytes: &[u8]) -> Result<(), Errno> {
    if bytes.is_empty() {
        return Ok(());
    }
    let local = iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    let remote = iovec { iov_base: to, iov_len: bytes.len() };
    // SAFETY: `local` is `bytes`, of which the kernel only reads; what `remote` names it checks.
    let copied = unsafe { libc::process_vm_writev(libc::getpid(), &raw const local, 1, &raw const remote, 1, 0) };
    if copied == bytes.len() as isize { Ok(()) } else { Err(Errno::FAULT) }
}

/// Types of C for which any bytes are a value.
///
/// # Safety
/// Whoever implements it says so of the type.
pub(crate) unsafe trait Plain: Copy {}

macro_rules! plain {
    ($($of:ty),* $(,)?) => {
        // SAFETY: each is made of integers and raw pointers alone.
        $(unsafe impl Plain for $of {})*
    };
}

plain!(i32, u32, i64, libc::linger, libc::timeval, libc::msghdr, libc::iovec, libc::pollfd, libc::epoll_event, usize);

/// A copy of the caller's value.
///
/// # Errors
/// EFAULT.
pub(crate) fn get<T: Plain>(from: *const T) -> Result<T, Errno> {
    let bytes = read(from.cast(), size_of::<T>())?;
    Ok(of_bytes(&bytes))
}

/// A value from its bytes, which may be fewer: the rest is zero.
pub(crate) fn of_bytes<T: Plain>(bytes: &[u8]) -> T {
    let mut value = MaybeUninit::<T>::zeroed();
    let len = bytes.len().min(size_of::<T>());
    // SAFETY: `len` bytes lie in both, and any bytes are a value of T.
    unsafe {
        core::ptr::copy_nonoverlapping(bytes.as_ptr(), value.as_mut_ptr().cast(), len);
        value.assume_init()
    }
}

/// A value's bytes.
pub(crate) fn bytes_of<T: Plain>(value: &T) -> Vec<u8> {
    let mut bytes = vec![0; size_of::<T>()];
    // SAFETY: both are as long; padding, if the type has any, was written when the value was made of zeroes or came from the caller's bytes.
    unsafe { core::ptr::copy_nonoverlapping((&raw const *value).cast::<u8>(), bytes.as_mut_ptr(), bytes.len()) };
    bytes
}

/// Stores a value at the caller's.
///
/// # Errors
/// EFAULT.
pub(crate) fn put<T: Plain>(to: *mut T, value: &T) -> Result<(), Errno> {
    write(to.cast(), &bytes_of(value))
}

/// A caller's vector of buffers: where each is, and how long.
///
/// # Errors
/// EFAULT; EINVAL: too many parts, or too long.
pub(crate) fn vector(from: *const iovec, count: usize) -> Result<Vec<(*mut c_void, usize)>, Errno> {
    if count > PARTS_MAX {
        return Err(Errno::INVALID);
    }
    let bytes = read(from.cast(), count * size_of::<iovec>())?;
    let parts: Vec<_> = bytes.chunks(size_of::<iovec>()).map(of_bytes::<iovec>).map(|part| (part.iov_base, part.iov_len)).collect();
    checked(parts.iter().fold(0, |sum: usize, (_, len)| sum.saturating_add(*len)))?;
    Ok(parts)
}

fn checked(len: usize) -> Result<usize, Errno> {
    if len <= BYTES_MAX { Ok(len) } else { Err(Errno::INVALID) }
}
