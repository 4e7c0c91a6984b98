//! Noticing that a thread leaves a callback by another way than by returning.
//!
//! C++ exceptions, pthread_exit and cancellation unwind the stack, and so drop the [`Guard`]. longjmp does not: but glibc runs the
//! handlers of pthread_cleanup_push whose frames it leaves, of those that are kept as every Linux libc's headers once had it
//! (`_pthread_cleanup_push`: a list in the frames themselves).

use core::cell::{Cell, UnsafeCell};
use core::ffi::{c_int, c_void};
use core::marker::PhantomPinned;
use core::pin::Pin;
use core::ptr;

use super::callback;

/// `struct _pthread_cleanup_buffer`.
#[repr(C)]
struct Buffer {
    routine: Option<unsafe extern "C" fn(*mut c_void)>,
    argument: *mut c_void,
    cancel_type: c_int,
    previous: *mut Self,
}

unsafe extern "C" {
    fn _pthread_cleanup_push(buffer: *mut Buffer, routine: unsafe extern "C" fn(*mut c_void), argument: *mut c_void);
    fn _pthread_cleanup_pop(buffer: *mut Buffer, execute: c_int);
}

/// See the module's documentation. Between [`Guard::arm`] and [`Guard::disarm`] it is in libc's list.
pub(super) struct Guard {
    /// 0: no callback's yet.
    serial: Cell<u64>,
    buffer: UnsafeCell<Buffer>,
    is_armed: Cell<bool>,
    _pinned: PhantomPinned,
}

impl Guard {
    /// For a callback that is to be [`Guard::watch`]ed.
    pub(super) const fn new() -> Self {
        let buffer = Buffer { routine: None, argument: ptr::null_mut(), cancel_type: 0, previous: ptr::null_mut() };
        Self { serial: Cell::new(0), buffer: UnsafeCell::new(buffer), is_armed: Cell::new(false), _pinned: PhantomPinned }
    }

    /// From now on, it is for the callback of that number.
    pub(super) fn watch(&self, serial: u64) {
        self.serial.set(serial);
    }

    pub(super) fn arm(self: Pin<&Self>) {
        self.is_armed.set(true);
        let argument = self.serial.as_ptr().cast();
        // SAFETY: the buffer stays where it is (it is pinned) until it is taken out, which dropping it does at the latest; a frame that is left
        // without that is left by longjmp, which takes it out.
        unsafe { _pthread_cleanup_push(self.buffer.get(), left, argument) };
    }

    pub(super) fn disarm(self: Pin<&Self>) {
        if self.is_armed.replace(false) {
            // SAFETY: it is the list's latest: callbacks nest.
            unsafe { _pthread_cleanup_pop(self.buffer.get(), 0) };
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if self.is_armed.replace(false) {
            // SAFETY: as above.
            unsafe { _pthread_cleanup_pop(self.buffer.get(), 0) };
            callback::forsake(self.serial.get());
        }
    }
}

/// # Safety
/// `serial` points to a callback's number.
unsafe extern "C" fn left(serial: *mut c_void) {
    // SAFETY: the frame is left, but not gone yet.
    callback::forsake(unsafe { *serial.cast::<u64>() });
}
