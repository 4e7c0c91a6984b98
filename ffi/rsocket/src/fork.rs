//! Forks. A child has none of its parent's rsockets (its calls on them fail with EBADF), and can make its own.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU32, Ordering};
use std::sync::{MutexGuard, Once};

use crate::library::{self, Library};

/// How many forks there are between this process and the one that loaded the library.
static GENERATION: AtomicU32 = AtomicU32::new(0);

/// See there.
pub(crate) fn generation() -> u32 {
    GENERATION.load(Ordering::Relaxed)
}

/// The lock, from before a fork until after it.
struct Held(UnsafeCell<Option<MutexGuard<'static, Option<Box<Library>>>>>);

// SAFETY: it is only touched by the thread that forks, between `prepare`, which has locked what the guard is of, and the handler that takes it out again: no
// other thread can be there meanwhile.
unsafe impl Sync for Held {}

static HELD: Held = Held(UnsafeCell::new(None));

/// Registers the handlers, once.
pub(crate) fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: functions of this library, which is never unloaded. What can fail is memory, and then a child is like one of vfork.
        unsafe { libc::pthread_atfork(Some(prepare), Some(parent), Some(child)) };
    });
}

extern "C" fn prepare() {
    let guard = library::lock();
    // SAFETY: the lock is held.
    unsafe { *HELD.0.get() = Some(guard) };
}

extern "C" fn parent() {
    // SAFETY: the lock is held, by `prepare`.
    drop(unsafe { (*HELD.0.get()).take() });
}

extern "C" fn child() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
    library::forget_parents();
    // SAFETY: as above.
    let Some(mut guard) = (unsafe { (*HELD.0.get()).take() }) else { return };
    if let Some(library) = guard.take() {
        library.fabric.after_fork_in_child();
        // It has neither the mappings nor the thread.
        core::mem::forget(library);
    }
}
