//! sendfile(2).

use core::ffi::c_int;

use libc::{off64_t, size_t, ssize_t};

use super::splice::on_ring;
use crate::errno::{self, Errno};
use crate::real;

/// Bytes read from the file at a time.
const CHUNK: usize = 64 << 10;

/// The kernel's limit on one call's bytes (MAX_RW_COUNT).
const BYTES_MAX: usize = 0x7fff_f000;

/// sendfile(2).
#[inline(always)]
pub(super) unsafe fn sendfile(out: c_int, input: c_int, offset: *mut off64_t, count: size_t) -> ssize_t {
    crate::cancellation_point!({
        if !on_ring(out) {
            // SAFETY: the program's promise to sendfile(2).
            return unsafe { real::sendfile(out, input, offset, count) };
        }
        // SAFETY: the program's promise to sendfile(2).
        crate::boundary!(-1, unsafe { copy(out, input, offset, count) })
    })
}

/// Reads the file by pieces and sends them. Only what was sent counts: the file's position, or the program's offset, ends
/// just behind it.
unsafe fn copy(out: c_int, input: c_int, offset: *mut off64_t, count: size_t) -> ssize_t {
    if !offset.is_null() && errno::is_nowhere(offset) {
        return errno::fail(libc::EFAULT) as ssize_t;
    }
    let mut buffer = vec![0u8; CHUNK.min(count.max(1))];
    // SAFETY: plain integers.
    let start = if offset.is_null() { unsafe { libc::lseek64(input, 0, libc::SEEK_CUR) } } else { unsafe { offset.read() } };
    if start < 0 {
        // What cannot seek is nothing to send from.
        return errno::fail(if Errno::last() == Errno(libc::EBADF) && offset.is_null() { libc::EBADF } else { libc::EINVAL }) as ssize_t;
    }
    let count = count.min(BYTES_MAX);
    let mut done = 0usize;
    let mut failure = None;
    while done < count {
        let wanted = buffer.len().min(count - done);
        // SAFETY: the pointer and length are the buffer's.
        let read = unsafe { real::pread(input, buffer.as_mut_ptr().cast(), wanted, start + done as off64_t) };
        let Ok(read) = usize::try_from(read) else {
            failure = Some(Errno::last());
            break;
        };
        if read == 0 {
            break;
        }
        // SAFETY: the bytes were just read.
        let sent = unsafe { super::write(out, buffer.as_ptr().cast(), read) };
        let Ok(sent) = usize::try_from(sent) else {
            failure = Some(Errno::last());
            break;
        };
        done += sent;
        if sent < read {
            break;
        }
    }
    let end = start + done as off64_t;
    if offset.is_null() {
        // SAFETY: plain integers.
        unsafe { libc::lseek64(input, end, libc::SEEK_SET) };
    } else {
        // SAFETY: the program's promise to sendfile(2).
        unsafe { offset.write(end) };
    }
    match failure {
        Some(Errno(code)) if done == 0 => errno::fail(code) as ssize_t,
        _ => done.cast_signed(),
    }
}
