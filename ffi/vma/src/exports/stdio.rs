//! stdio on sockets. libc's streams read and write by internal calls that nothing can stand in front of, so a stream on a socket of
//! ours is one of fopencookie(3), whose functions are our own read, write and close. Its number is put where libc keeps it: fileno(3)
//! tells the truth, and so does everything that looks there. dprintf(3), by vdprintf, formats into memory, and writes that.

use core::ffi::{c_char, c_int, c_void};
use core::ptr;

use libc::{off64_t, size_t, ssize_t};

use crate::errno;
use crate::fdtable::{self, Entry};
use crate::lock::{Lock, Protected};
use crate::real;
use crate::socket::lifecycle;

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
    fn fflush(stream: *mut c_void) -> c_int;
}

/// Where a FILE has its descriptor, in glibc's ABI for 64 bits: behind the flags, eleven pointers into buffers, and two more.
const FILENO_AT: usize = 112;
/// What is there in a stream without a descriptor (glibc's `_IO_cookie_init`).
const NO_FILENO: c_int = -2;

impl Protected for Vec<usize> {
    type Left = ();
}

/// The streams that were made here, by their addresses.
static STREAMS: Lock<Vec<usize>> = Lock::new(Vec::new());

fn is_ours(fd: c_int) -> bool {
    matches!(fdtable::lookup(fd), Entry::Socket(_) | Entry::Kernel(_))
}

/// fdopen(3).
#[inline(always)]
pub(super) unsafe fn fdopen(fd: c_int, mode: *const c_char) -> *mut c_void {
    if !is_ours(fd) {
        // SAFETY: the program's promise to fdopen(3).
        return unsafe { real::fdopen(fd, mode) };
    }
    let functions = Functions { read: read_cookie, write: write_cookie, seek: seek_cookie, close: close_cookie };
    // SAFETY: the program's promise about the mode; the functions take the cookie for what it is, a number.
    let stream = unsafe { fopencookie(ptr::without_provenance_mut(fd as usize), mode, functions) };
    if stream.is_null() {
        return stream;
    }
    // SAFETY: a FILE of libc's, which is longer than that; nobody else knows of it yet.
    unsafe {
        let number = stream.cast::<u8>().add(FILENO_AT).cast::<c_int>();
        if number.read() == NO_FILENO {
            number.write(fd);
        }
    }
    crate::boundary!((), STREAMS.lock().push(stream as usize));
    stream
}

/// fclose(3). A stream of libc's own, on a number that was put under it (dup2), closes that number by a call that nobody sees.
#[inline(always)]
pub(super) unsafe fn fclose(stream: *mut c_void) -> c_int {
    if !stream.is_null() {
        // SAFETY: a stream, by the program's promise.
        let fd = unsafe { libc::fileno(stream.cast()) };
        crate::boundary!((), {
            let mut streams = STREAMS.lock();
            let before = streams.len();
            streams.retain(|&known| known != stream as usize);
            if streams.len() == before && fd >= 0 && is_ours(fd) {
                drop(streams);
                lifecycle::closing(fd);
            }
        });
    }
    // SAFETY: the program's promise to fclose(3).
    unsafe { real::fclose(stream) }
}

/// The process ends: what the streams hold is written while there are sockets to write it to.
pub(crate) fn flush() {
    // In the child of a fork, a thread that is no more may have it.
    let Some(streams) = STREAMS.try_lock().map(|streams| streams.clone()) else { return };
    for stream in streams {
        // SAFETY: a stream that is not closed. (libc itself flushes all of them, but later.)
        unsafe { fflush(ptr::with_exposed_provenance_mut(stream)) };
    }
}

unsafe extern "C-unwind" fn read_cookie(cookie: *mut c_void, buffer: *mut c_char, len: size_t) -> ssize_t {
    // SAFETY: libc gives a buffer of that length.
    unsafe { super::read(cookie.addr() as c_int, buffer.cast(), len) }
}

/// As a stream of libc's writes: on and on, until all is written or something fails.
unsafe extern "C-unwind" fn write_cookie(cookie: *mut c_void, buffer: *const c_char, len: size_t) -> ssize_t {
    let mut done = 0;
    while done < len {
        // SAFETY: libc gives that many bytes.
        let written = unsafe { super::write(cookie.addr() as c_int, buffer.add(done).cast(), len - done) };
        let Ok(written) = size_t::try_from(written) else { break };
        done += written;
    }
    done.cast_signed()
}

unsafe extern "C-unwind" fn seek_cookie(_: *mut c_void, _: *mut off64_t, _: c_int) -> c_int {
    errno::fail(libc::ESPIPE)
}

unsafe extern "C-unwind" fn close_cookie(cookie: *mut c_void) -> c_int {
    // SAFETY: plain integers.
    unsafe { super::close(cookie.addr() as c_int) }
}

/// vdprintf(3). (A va_list is passed by its address on 64-bit machines.)
#[inline(always)]
pub(super) unsafe fn vdprintf(fd: c_int, format: *const c_char, arguments: *mut c_void) -> c_int {
    if !is_ours(fd) {
        // SAFETY: the program's promise to vdprintf(3).
        return unsafe { real::vdprintf(fd, format, arguments) };
    }
    let mut text = ptr::null_mut();
    // SAFETY: the program's promise, which vasprintf(3) asks for as well.
    let len = unsafe { real::vasprintf(&raw mut text, format, arguments) };
    // SAFETY: what vasprintf made.
    unsafe { write_text(fd, text, len) }
}

/// vdprintf(3), fortified.
#[inline(always)]
pub(super) unsafe fn vdprintf_chk(fd: c_int, flag: c_int, format: *const c_char, arguments: *mut c_void) -> c_int {
    if !is_ours(fd) {
        // SAFETY: the program's promise to vdprintf(3).
        return unsafe { real::vdprintf_chk(fd, flag, format, arguments) };
    }
    let mut text = ptr::null_mut();
    // SAFETY: as in `vdprintf`.
    let len = unsafe { real::vasprintf_chk(&raw mut text, flag, format, arguments) };
    // SAFETY: what vasprintf made.
    unsafe { write_text(fd, text, len) }
}

/// Writes and frees it; the result of dprintf(3).
unsafe fn write_text(fd: c_int, text: *mut c_char, len: c_int) -> c_int {
    let Ok(bytes) = size_t::try_from(len) else { return len };
    // SAFETY: so many bytes, from malloc.
    unsafe {
        let written = write_cookie(ptr::without_provenance_mut(fd as usize), text, bytes);
        let saved = errno::current();
        libc::free(text.cast());
        errno::set(saved);
        if written == bytes.cast_signed() { len } else { -1 }
    }
}
