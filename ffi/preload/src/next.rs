//! The next definitions: libc's own functions, or those of another library that is preloaded behind this one.
//!
//! Each is found by `dlsym(RTLD_NEXT, …)` on its first call and remembered; `resolve_all` does it for all of them when the library is
//! loaded, so that no lookup happens in a signal handler or between fork and exec. Within a preloaded library, `libc::close` and its like
//! name the interposed functions: whoever means the kernel's says `next::close`.

use core::ffi::CStr;
use core::mem::MaybeUninit;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use crate::types::*;

#[cold]
pub(crate) fn resolve(place: &AtomicPtr<c_void>, name: &CStr) -> *mut c_void {
    // SAFETY: the name is a C string; RTLD_NEXT asks for the definition after that of the library which this code is linked into.
    let found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
    place.store(found, Ordering::Relaxed);
    found
}

/// The program's calls of sigaction come to this library, which is preloaded or linked. They go past a library that was opened by dlopen(3).
static HANDLERS_ARE_SEEN: AtomicBool = AtomicBool::new(true);

/// Whether the program's signal handlers are installed by way of this library.
#[inline]
pub fn handlers_are_seen() -> bool {
    HANDLERS_ARE_SEEN.load(Ordering::Relaxed)
}

/// Finds out whose `sigaction` the program calls. (This library's own name for its function would be bound to the same one.)
pub(crate) fn look_at_handlers() {
    // SAFETY: the name is a C string.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"sigaction".as_ptr()) };
    HANDLERS_ARE_SEEN.store(object_of(found) == object_of((&raw const HANDLERS_ARE_SEEN).cast()), Ordering::Relaxed);
}

/// Where the object is loaded in which the address lies. Null: in none.
fn object_of(address: *const c_void) -> *mut c_void {
    let mut info = MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: dladdr writes to the place that it is given, which is valid as it is: null pointers.
    unsafe {
        libc::dladdr(address, info.as_mut_ptr());
        info.assume_init().dli_fbase
    }
}

/// One definition: a place for its address, and the function that calls it.
macro_rules! next_definition {
    ($($name:ident = $symbol:literal($($arg:ident: $type:ty),*) -> $ret:ty;)*) => {$(
        mod $name {
            use super::{AtomicPtr, c_void, ptr};

            pub(super) static PLACE: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

            #[cold]
            pub(super) fn resolve() -> *mut c_void {
                super::resolve(&PLACE, const { super::cstr(concat!($symbol, "\0")) })
            }
        }

        #[doc = concat!("The next definition of `", $symbol, "`.")]
        ///
        /// # Safety
        /// As libc's function of that name.
        #[inline]
        #[allow(clippy::too_many_arguments, reason = "libc's signature")]
        pub unsafe fn $name($($arg: $type),*) -> $ret {
            let mut found = $name::PLACE.load(Ordering::Relaxed);
            if found.is_null() {
                found = $name::resolve();
                if found.is_null() {
                    return missing();
                }
            }
            // SAFETY: the symbol has this signature in libc's headers. Variadic ones are called with their argument in the register where
            // va_arg looks for it on every ABI that Linux has for 64 bits. It may unwind: a cancellation point of libc's ends the thread so.
            let function: unsafe extern "C-unwind" fn($($type),*) -> $ret = unsafe { core::mem::transmute(found) };
            // SAFETY: the caller keeps the function's contract.
            unsafe { function($($arg),*) }
        }
    )*};
}
pub(crate) use next_definition;

const fn cstr(name: &'static str) -> &'static CStr {
    match CStr::from_bytes_with_nul(name.as_bytes()) {
        Ok(name) => name,
        Err(_) => panic!("a symbol's name has one NUL, at its end"),
    }
}

/// A libc that lacks the function: as a kernel that lacks the system call.
#[cold]
fn missing<T: Failure>() -> T {
    crate::errno::set(libc::ENOSYS);
    T::FAILURE
}

/// What a function returns that failed.
trait Failure {
    const FAILURE: Self;
}

impl Failure for c_int {
    const FAILURE: Self = -1;
}

impl Failure for isize {
    const FAILURE: Self = -1;
}

impl Failure for c_long {
    const FAILURE: Self = -1;
}

impl Failure for *mut c_void {
    const FAILURE: Self = ptr::null_mut();
}

impl Failure for () {
    const FAILURE: Self = ();
}

crate::functions!(next []);

// Those that no row names, or that several do, by the name that has 64-bit offsets.
next_definition! {
    pread = "pread64"(fd: c_int, buffer: *mut c_void, len: size_t, offset: off64_t) -> ssize_t;
    preadv2 = "preadv64v2"(fd: c_int, vectors: *const iovec, count: c_int, offset: off64_t, flags: c_int) -> ssize_t;
    pwritev2 = "pwritev64v2"(fd: c_int, vectors: *const iovec, count: c_int, offset: off64_t, flags: c_int) -> ssize_t;

    open = "open64"(path: *const c_char, flags: c_int, mode: c_uint) -> c_int;
    openat = "openat64"(directory: c_int, path: *const c_char, flags: c_int, mode: c_uint) -> c_int;
    creat = "creat64"(path: *const c_char, mode: c_uint) -> c_int;
    open_2 = "__open64_2"(path: *const c_char, flags: c_int) -> c_int;
    openat_2 = "__openat64_2"(directory: c_int, path: *const c_char, flags: c_int) -> c_int;

    vasprintf_chk = "__vasprintf_chk"(out: *mut *mut c_char, flag: c_int, format: *const c_char, arguments: *mut c_void) -> c_int;
    vasprintf = "vasprintf"(out: *mut *mut c_char, format: *const c_char, arguments: *mut c_void) -> c_int;

    longjmp = "longjmp"(environment: *mut c_void, value: c_int) -> c_int;
    longjmp_bsd = "_longjmp"(environment: *mut c_void, value: c_int) -> c_int;
    siglongjmp = "siglongjmp"(environment: *mut c_void, value: c_int) -> c_int;
    longjmp_checked = "__longjmp_chk"(environment: *mut c_void, value: c_int) -> c_int;
    _exit = "_exit"(status: c_int) -> c_int;
    quick_exit = "quick_exit"(status: c_int) -> c_int;
}

/// Looks all of them up.
pub(crate) fn resolve_all() {
    crate::functions!(resolve []);
    pread::resolve();
    preadv2::resolve();
    pwritev2::resolve();
    open::resolve();
    openat::resolve();
    creat::resolve();
    open_2::resolve();
    openat_2::resolve();
    vasprintf_chk::resolve();
    vasprintf::resolve();
    longjmp::resolve();
    longjmp_bsd::resolve();
    siglongjmp::resolve();
    longjmp_checked::resolve();
    _exit::resolve();
    quick_exit::resolve();
}
