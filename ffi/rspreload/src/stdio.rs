//! stdio on sockets. libc's streams read and write by internal calls that nothing can stand in front of, so a stream on a socket of ours is one of
//! fopencookie(3), whose functions are our own read, write and close. Its number is put where libc keeps it, so that fileno(3) tells the truth.

use core::ffi::{c_char, c_int, c_void};
use core::ptr;

use libc::{off64_t, size_t, ssize_t};
use ringway_preload::{Exports, errno, next};

use crate::{Rspreload, table};

/// libc's `cookie_io_functions_t`.
#[repr(C)]
struct Functions {
    read: unsafe extern "C-unwind" fn(*mut c_void, *mut c_char, size_t) -> ssize_t,
    write: unsafe extern "C-unwind" fn(*mut c_void, *const c_char, size_t) -> ssize_t,
    seek: unsafe extern "C-unwind" fn(*mut c_void, *mut off64_t, c_int) -> c_int,
    close: unsafe extern "C-unwind" fn(*mut c_void) -> c_int,
}

unsafe extern "C-unwind" {
    fn fopencookie(cookie: *mut c_void, mode: *const c_char, functions: Functions) -> *mut c_void;
}

/// Where a FILE has its descriptor, in glibc's ABI for 64 bits: behind the flags, eleven pointers into buffers, and two more.
const FILENO_AT: usize = 112;
/// What is there in a stream without a descriptor (glibc's `_IO_cookie_init`).
const NO_FILENO: c_int = -2;

/// fdopen(3).
///
/// # Safety
/// As fdopen(3).
pub(crate) unsafe fn fdopen(fd: c_int, mode: *const c_char) -> *mut c_void {
    if table::socket(fd).is_none() {
        // SAFETY: the program's promise to fdopen(3).
        return unsafe { next::fdopen(fd, mode) };
    }
    let functions = Functions { read, write, seek, close };
    // SAFETY: the program's promise about the mode; the functions take the cookie for what it is, a number.
    let stream = unsafe { fopencookie(ptr::without_provenance_mut(fd as usize), mode, functions) };
    if !stream.is_null() {
        // SAFETY: a FILE of libc's, which is longer than that; nobody else knows of it yet.
        unsafe {
            let number = stream.cast::<u8>().add(FILENO_AT).cast::<c_int>();
            if number.read() == NO_FILENO {
                number.write(fd);
            }
        }
    }
    stream
}

unsafe extern "C-unwind" fn read(cookie: *mut c_void, buffer: *mut c_char, len: size_t) -> ssize_t {
    // SAFETY: libc gives a buffer of that length.
    unsafe { <Rspreload as Exports>::read(cookie.addr() as c_int, buffer.cast(), len) }
}

/// As a stream of libc's writes: on and on, until all is written or something fails.
unsafe extern "C-unwind" fn write(cookie: *mut c_void, buffer: *const c_char, len: size_t) -> ssize_t {
    let mut done = 0;
    while done < len {
        // SAFETY: libc gives that many bytes.
        let written = unsafe { <Rspreload as Exports>::write(cookie.addr() as c_int, buffer.add(done).cast(), len - done) };
        let Ok(written) = size_t::try_from(written) else { break };
        done += written;
    }
    done.cast_signed()
}

unsafe extern "C-unwind" fn seek(_: *mut c_void, _: *mut off64_t, _: c_int) -> c_int {
    errno::fail(libc::ESPIPE)
}

unsafe extern "C-unwind" fn close(cookie: *mut c_void) -> c_int {
    // SAFETY: plain integers.
    unsafe { <Rspreload as Exports>::close(cookie.addr() as c_int) }
}

/// vdprintf(3): the text is made in memory, and written.
///
/// # Safety
/// As vdprintf(3).
pub(crate) unsafe fn vdprintf(fd: c_int, format: *const c_char, arguments: *mut c_void) -> c_int {
    let mut text = ptr::null_mut();
    // SAFETY: the program's promise, which vasprintf(3) asks for as well.
    let len = unsafe { next::vasprintf(&raw mut text, format, arguments) };
    let Ok(bytes) = size_t::try_from(len) else { return len };
    // SAFETY: so many bytes, from malloc.
    unsafe {
        let written = write(ptr::without_provenance_mut(fd as usize), text, bytes);
        let saved = errno::current();
        libc::free(text.cast());
        errno::set(saved);
        if written == bytes.cast_signed() { len } else { -1 }
    }
}
