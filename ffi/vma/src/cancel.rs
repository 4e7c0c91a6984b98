//! Thread cancellation (pthreads(7)), as `ringway_preload::cancel` has it, of threads that wait in here ([`Thread`]).

use core::ptr::NonNull;

use ringway_preload::cancel::{self, Waiter};
pub(crate) use ringway_preload::cancel::{Masked, is_enabled, is_in_use};

use crate::exports::Vma;
use crate::mux::thread::Thread;

impl Waiter for Thread {
    fn cancel(&self) {
        Self::cancel(self);
    }
}

/// Enters the calling thread among those that wait in here now and then.
pub(crate) fn register(state: &Thread) {
    // SAFETY: a thread's own state, which takes itself out when the thread ends.
    unsafe { cancel::register::<Vma>(NonNull::from(state)) };
}

/// The calling thread ends.
pub(crate) fn deregister(state: &Thread) {
    cancel::deregister::<Vma>(NonNull::from(state));
}

/// The beginning of a call that is a cancellation point.
#[inline(always)]
pub(crate) fn enter() {
    cancel::enter::<Vma>();
}

/// The end of such a call, which failed; `true`: it is to be made again.
#[inline(always)]
pub(crate) fn again() -> bool {
    cancel::again::<Vma>()
}

/// Makes a call that is a cancellation point.
#[macro_export]
#[doc(hidden)]
macro_rules! cancellation_point {
    ($call:expr) => {
        ringway_preload::cancellation_point!($crate::exports::Vma, $call)
    };
}
