//! Thread cancellation (pthreads(7)): the calls that are cancellation points in libc are so here.
//!
//! libc cancels a thread by unwinding its stack from within a blocking call of libc's own. Nothing of ours may be unwound like that:
//! a lock would stay locked, and what Rust catches is not what libc throws. So
//!
//! - a call acts on a request where it begins and where it ends ([`enter`], [`again`]), with nothing of ours on the stack;
//! - in between, cancellation is disabled ([`Masked`]) around whatever may call libc's cancellation points;
//! - pthread_cancel(3) also ends the wait of a thread that waits in here ([`Waiter`]), as a signal would.
//!
//! A process in which nobody ever cancelled a thread pays a load for each call.

use core::cell::{Cell, UnsafeCell};
use core::ffi::c_int;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, Ordering};

use libc::pthread_t;

use crate::{Intercept, boundary, errno, next};

/// A thread that waits in the library now and then.
pub trait Waiter {
    /// Somebody has cancelled it: if it waits, the wait ends. Called by any thread.
    fn cancel(&self);
}

/// Requests made in this process.
static REQUESTS: AtomicU32 = AtomicU32::new(0);

const ENABLE: c_int = 0;
const DISABLE: c_int = 1;

unsafe extern "C-unwind" {
    /// It unwinds the stack if the thread is to end.
    fn pthread_testcancel();
}

unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, old: *mut c_int) -> c_int;
}

/// The beginning of a call that is a cancellation point: the thread may end here. Nothing that needs dropping may be on the stack.
#[inline]
pub fn enter<L: Intercept>() {
    if REQUESTS.load(Ordering::SeqCst) != 0 {
        act::<L>();
    }
}

// (Inlined, it would have every call look its thread's state up.)
#[cold]
#[inline(never)]
fn act<L: Intercept>() {
    // Whoever cancels this thread from now on finds it; whoever did before is seen by libc.
    L::may_be_cancelled();
    // SAFETY: it unwinds nothing but frames without destructors: this one, and the exported function's.
    unsafe { pthread_testcancel() };
}

/// The end of such a call, which failed: was that for a request's sake? If so the thread ends here; `true`: it only looked like it, and
/// the call is to be made again.
#[inline]
pub fn again<L: Intercept>() -> bool {
    REQUESTS.load(Ordering::Relaxed) != 0 && errno::current() == libc::EINTR && ended_in_vain::<L>()
}

#[cold]
#[inline(never)]
fn ended_in_vain<L: Intercept>() -> bool {
    act::<L>();
    L::ended_unsure()
}

/// Whether the process ever cancelled a thread.
#[inline]
pub fn is_in_use() -> bool {
    REQUESTS.load(Ordering::SeqCst) != 0
}

thread_local! {
    /// The thread would let itself be cancelled, were it not for a [`Masked`].
    static MASKED: Cell<bool> = const { Cell::new(false) };
}

/// Whether the calling thread lets itself be cancelled, [`Masked`] apart.
pub fn is_enabled() -> bool {
    if MASKED.get() {
        return true;
    }
    let mut state = DISABLE;
    // SAFETY: the pointer is valid; the state is put back at once.
    unsafe {
        pthread_setcancelstate(DISABLE, &raw mut state);
        pthread_setcancelstate(state, core::ptr::null_mut());
    }
    state == ENABLE
}

/// As long as it lives, the calling thread is not cancelled.
#[must_use]
pub struct Masked(c_int);

impl Masked {
    /// From now on.
    #[allow(clippy::new_without_default, reason = "it changes the thread")]
    #[inline]
    pub fn new() -> Self {
        let mut old = ENABLE;
        // SAFETY: the pointer is valid.
        unsafe { pthread_setcancelstate(DISABLE, &raw mut old) };
        if old == ENABLE {
            MASKED.set(true);
        }
        Self(old)
    }
}

impl Drop for Masked {
    #[inline]
    fn drop(&mut self) {
        if self.0 == ENABLE {
            MASKED.set(false);
        }
        // SAFETY: a state that the call above gave.
        unsafe { pthread_setcancelstate(self.0, core::ptr::null_mut()) };
    }
}

/// pthread_cancel(3).
///
/// # Safety
/// As pthread_cancel(3).
pub(crate) unsafe fn request<L: Intercept>(thread: pthread_t) -> c_int {
    // SAFETY: the program's promise to pthread_cancel(3).
    let result = unsafe { next::pthread_cancel(thread) };
    if result == 0 {
        boundary!((), note_request::<L>(thread));
    }
    result
}

/// Somebody has cancelled that thread: if it waits in here, the wait ends.
fn note_request<L: Intercept>(target: pthread_t) {
    REQUESTS.fetch_add(1, Ordering::SeqCst);
    REGISTRY.with(L::fork_generation(), |threads| {
        for &(thread, state) in threads.iter() {
            // SAFETY: both are names of live threads: one that ends takes itself out first.
            if unsafe { libc::pthread_equal(thread, target) } != 0 {
                // SAFETY: a thread's state lives until it has taken itself out, which needs this lock.
                unsafe { state.as_ref() }.cancel();
            }
        }
    });
}

/// Enters the calling thread among those that wait in here now and then.
///
/// # Safety
/// The state stays where it is until the thread has called [`deregister`], or another fork's child is all that is left of it.
pub unsafe fn register<L: Intercept>(state: NonNull<dyn Waiter>) {
    // SAFETY: no preconditions.
    let me = unsafe { libc::pthread_self() };
    REGISTRY.with(L::fork_generation(), |threads| threads.push((me, state)));
}

/// The calling thread ends.
pub fn deregister<L: Intercept>(state: NonNull<dyn Waiter>) {
    REGISTRY.with(L::fork_generation(), |threads| threads.retain(|&(_, other)| other.cast::<u8>() != state.cast::<u8>()));
}

/// Threads by their names, and what is kept of them.
type Threads = Vec<(pthread_t, NonNull<dyn Waiter>)>;

/// The threads that wait in here now and then.
struct Registry {
    /// The holder's [`Intercept::fork_generation`], plus one. Zero: nobody.
    holder: AtomicU32,
    /// The generation that the list is of, and the list.
    threads: UnsafeCell<(u32, Threads)>,
}

// SAFETY: the list is only touched by the holder.
unsafe impl Sync for Registry {}

static REGISTRY: Registry = Registry { holder: AtomicU32::new(0), threads: UnsafeCell::new((0, Vec::new())) };

impl Registry {
    /// A lock that a parent's other thread held at the fork is free in the child, which begins an empty list.
    fn with<T>(&self, generation: u32, body: impl FnOnce(&mut Threads) -> T) -> T {
        loop {
            let holder = self.holder.load(Ordering::Relaxed);
            let is_free = holder != generation + 1;
            if is_free && self.holder.compare_exchange(holder, generation + 1, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                break;
            }
            std::thread::yield_now();
        }
        // SAFETY: this thread is the holder.
        let (of, threads) = unsafe { &mut *self.threads.get() };
        if *of != generation {
            *of = generation;
            // The parent may have been changing it: it is left as it is.
            core::mem::forget(core::mem::take(threads));
        }
        let result = body(threads);
        self.holder.store(0, Ordering::Release);
        result
    }
}

/// Makes a call of `$library`'s that is a cancellation point: `-1` with EINTR may mean that the thread is to end.
#[macro_export]
macro_rules! cancellation_point {
    ($library:ty, $call:expr) => {{
        $crate::cancel::enter::<$library>();
        loop {
            let result = $call;
            if result != -1 || !$crate::cancel::again::<$library>() {
                break result;
            }
        }
    }};
}
