//! The program's buffers, as slices.

use core::ffi::c_int;
use core::slice;
use std::io::{IoSlice, IoSliceMut};

use libc::{iovec, size_t};

use crate::errno::{Errno, is_nowhere};

/// The kernel's limit on one call's bytes (MAX_RW_COUNT).
const BYTES_MAX: usize = 0x7fff_f000;

/// Linux's UIO_MAXIOV.
pub const VECTORS_MAX: usize = 1024;

/// One buffer to send from.
///
/// # Safety
/// `buffer` leads nowhere for certain, or `len` bytes can be read there.
///
/// # Errors
/// EFAULT: it leads nowhere, and is not empty.
#[inline]
pub unsafe fn readable<'a>(buffer: *const libc::c_void, len: size_t) -> Result<IoSlice<'a>, Errno> {
    if len == 0 {
        return Ok(IoSlice::new(&[]));
    }
    if is_nowhere(buffer) {
        return Err(Errno(libc::EFAULT));
    }
    // SAFETY: the caller's promise. (A program that changes the bytes meanwhile gets what it asked for: they are only copied.)
    Ok(IoSlice::new(unsafe { slice::from_raw_parts(buffer.cast(), len.min(BYTES_MAX)) }))
}

/// One buffer to receive into.
///
/// # Safety
/// `buffer` leads nowhere for certain, or `len` bytes can be written there.
///
/// # Errors
/// EFAULT: it leads nowhere, and is not empty.
#[inline]
pub unsafe fn writable<'a>(buffer: *mut libc::c_void, len: size_t) -> Result<IoSliceMut<'a>, Errno> {
    if len == 0 {
        return Ok(IoSliceMut::new(&mut []));
    }
    if is_nowhere(buffer) {
        return Err(Errno(libc::EFAULT));
    }
    // SAFETY: the caller's promise; nobody reads the bytes before they were written.
    Ok(IoSliceMut::new(unsafe { slice::from_raw_parts_mut(buffer.cast(), len.min(BYTES_MAX)) }))
}

/// Where a buffer is, before a call has used it up.
#[inline]
pub fn place(piece: &mut IoSliceMut<'_>) -> iovec {
    iovec { iov_base: piece.as_mut_ptr().cast(), iov_len: piece.len() }
}

/// readv's and sendmsg's vectors, checked as the kernel does.
///
/// # Errors
/// EINVAL: a bad count or length; EFAULT: a pointer that leads nowhere.
///
/// # Safety
/// `vectors` is null or points to `count` of them.
unsafe fn checked<'a>(vectors: *const iovec, count: usize) -> Result<&'a [iovec], Errno> {
    if count == 0 {
        return Ok(&[]);
    }
    if count > VECTORS_MAX {
        return Err(Errno(libc::EINVAL));
    }
    if is_nowhere(vectors) {
        return Err(Errno(libc::EFAULT));
    }
    // SAFETY: the caller's promise.
    let vectors = unsafe { slice::from_raw_parts(vectors, count) };
    let mut total = 0usize;
    for vector in vectors {
        total = total.checked_add(vector.iov_len).filter(|&t| isize::try_from(t).is_ok()).ok_or(Errno(libc::EINVAL))?;
        // `IoSlice` allows no null; a program's empty vector often has one.
        if vector.iov_len != 0 && is_nowhere(vector.iov_base) {
            return Err(Errno(libc::EFAULT));
        }
    }
    Ok(vectors)
}

/// The vectors' whole length in bytes.
#[inline]
pub fn total(data: &[IoSlice<'_>]) -> usize {
    data.iter().map(|s| s.len()).sum()
}

/// The vectors' whole length in bytes.
#[inline]
pub fn total_mut(data: &[IoSliceMut<'_>]) -> usize {
    data.iter().map(|s| s.len()).sum()
}

/// Calls `body` with the vectors to send.
///
/// # Errors
/// EINVAL, EFAULT; the body's.
///
/// # Safety
/// `vectors` is null or points to `count` of them, each naming readable bytes.
pub unsafe fn with_readable<T>(
    vectors: *const iovec,
    count: usize,
    body: impl FnOnce(&[IoSlice<'_>]) -> Result<T, Errno>,
) -> Result<T, Errno> {
    // SAFETY: the caller's promise.
    let raw = unsafe { checked(vectors, count)? };
    let mut few = [IoSlice::new(&[]); FEW];
    let mut many;
    let slices = if raw.len() <= FEW {
        &mut few[..raw.len()]
    } else {
        many = vec![IoSlice::new(&[]); raw.len()];
        &mut many[..]
    };
    for (slice, vector) in slices.iter_mut().zip(raw) {
        // SAFETY: the caller's promise.
        *slice = unsafe { readable(vector.iov_base, vector.iov_len)? };
    }
    body(slices)
}

/// Vectors that are turned into slices on the stack.
const FEW: usize = 16;

/// Calls `body` with the vectors to receive into.
///
/// # Errors
/// EINVAL, EFAULT; the body's.
///
/// # Safety
/// `vectors` is null or points to `count` of them, each naming writable bytes.
pub unsafe fn with_writable<T>(
    vectors: *const iovec,
    count: usize,
    body: impl FnOnce(&mut [IoSliceMut<'_>]) -> Result<T, Errno>,
) -> Result<T, Errno> {
    // SAFETY: the caller's promise.
    let raw = unsafe { checked(vectors, count)? };
    let mut few: [IoSliceMut<'_>; FEW] = core::array::from_fn(|_| IoSliceMut::new(&mut []));
    let mut many: Vec<IoSliceMut<'_>>;
    let slices = if raw.len() <= FEW {
        &mut few[..raw.len()]
    } else {
        many = (0..raw.len()).map(|_| IoSliceMut::new(&mut [])).collect();
        &mut many[..]
    };
    for (slice, vector) in slices.iter_mut().zip(raw) {
        // SAFETY: the caller's promise.
        *slice = unsafe { writable(vector.iov_base, vector.iov_len)? };
    }
    body(slices)
}

/// A count of vectors as readv and writev get it.
///
/// # Errors
/// EINVAL: negative.
#[inline]
pub fn count(count: c_int) -> Result<usize, Errno> {
    usize::try_from(count).map_err(|_| Errno(libc::EINVAL))
}

/// Copies of the vectors from `done` bytes on.
pub fn rest<'a>(data: &[IoSlice<'a>], done: usize) -> Vec<IoSlice<'a>> {
    let mut copies = data.to_vec();
    let mut slices = &mut copies[..];
    IoSlice::advance_slices(&mut slices, done);
    slices.to_vec()
}
