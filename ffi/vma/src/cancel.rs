//! Thread cancellation (pthreads(7)): the calls that are cancellation points in libc are so here.
//!
//! libc cancels a thread by unwinding its stack from within a blocking call of libc's own. Nothing of ours may be unwound like that:
//! a lock would stay locked, and what Rust catches is not what libc throws. So
//!
//! - a call acts on a request where it begins and where it ends ([`enter`], [`again`]), with nothing of ours on the stack;
//! - in between, cancellation is disabled ([`Masked`]) around whatever may call libc's cancellation points;
//! - [`pthread_cancel`](crate::exports::thread) also ends the wait of a thread that waits in here ([`note_request`]), as a signal would.
//!
//! A process in which nobody ever cancelled a thread pays a load for each call.

use core::cell::{Cell, UnsafeCell};
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, Ordering};

use crate::errno;
use crate::mux::thread::{self, Thread};
use crate::process::fork_generation;

/// Requests made in this process.
static REQUESTS: AtomicU32 = AtomicU32::new(0);

const ENABLE: libc::c_int = 0;
const DISABLE: libc::c_int = 1;

unsafe extern "C-unwind" {
    /// It unwinds the stack if the thread is to end.
    fn pthread_testcancel();
}

unsafe extern "C" {
    fn pthread_setcancelstate(state: libc::c_int, old: *mut libc::c_int) -> libc::c_int;
}

/// The beginning of a call that is a cancellation point: the thread may end here. Nothing that needs dropping may be on the stack.
#[inline]
pub(crate) fn enter() {
    if REQUESTS.load(Ordering::SeqCst) != 0 {
        act();
    }
}

// (Inlined, it would have every call look its thread's state up.)
#[cold]
#[inline(never)]
fn act() {
    // Whoever cancels this thread from now on finds it; whoever did before is seen by libc.
    thread::register();
    // SAFETY: it unwinds nothing but frames without destructors: this one, and the exported function's.
    unsafe { pthread_testcancel() };
}

/// The end of such a call, which failed: was that for a request's sake? If so the thread ends here; `true`: it only looked like it, and
/// the call is to be made again.
#[inline]
pub(crate) fn again() -> bool {
    REQUESTS.load(Ordering::Relaxed) != 0 && errno::current() == libc::EINTR && ended_in_vain()
}

#[cold]
#[inline(never)]
fn ended_in_vain() -> bool {
    act();
    thread::take_unsure()
}

/// Whether the process ever cancelled a thread.
pub(crate) fn is_in_use() -> bool {
    REQUESTS.load(Ordering::SeqCst) != 0
}

thread_local! {
    /// The thread would let itself be cancelled, were it not for a [`Masked`].
    static MASKED: Cell<bool> = const { Cell::new(false) };
}

/// Whether the calling thread lets itself be cancelled, [`Masked`] apart.
pub(crate) fn is_enabled() -> bool {
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
pub(crate) struct Masked(libc::c_int);

impl Masked {
    #[inline]
    pub(crate) fn new() -> Self {
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

/// Somebody has cancelled that thread: if it waits in here, the wait ends.
pub(crate) fn note_request(target: libc::pthread_t) {
    REQUESTS.fetch_add(1, Ordering::SeqCst);
    REGISTRY.with(|threads| {
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
pub(crate) fn register(state: &Thread) {
    // SAFETY: no preconditions.
    let me = unsafe { libc::pthread_self() };
    REGISTRY.with(|threads| threads.push((me, NonNull::from(state))));
}

/// The calling thread ends.
pub(crate) fn deregister(state: &Thread) {
    REGISTRY.with(|threads| threads.retain(|&(_, other)| other != NonNull::from(state)));
}

/// Threads by their names, and what is kept of them.
type Threads = Vec<(libc::pthread_t, NonNull<Thread>)>;

/// The threads that wait in here now and then.
struct Registry {
    /// The holder's [`fork_generation`], plus one. Zero: nobody.
    holder: AtomicU32,
    /// The generation that the list is of, and the list.
    threads: UnsafeCell<(u32, Threads)>,
}

// SAFETY: the list is only touched by the holder.
unsafe impl Sync for Registry {}

static REGISTRY: Registry = Registry { holder: AtomicU32::new(0), threads: UnsafeCell::new((0, Vec::new())) };

impl Registry {
    /// A lock that a parent's other thread held at the fork is free in the child, which begins an empty list.
    fn with<T>(&self, body: impl FnOnce(&mut Threads) -> T) -> T {
        let generation = fork_generation();
        loop {
            let holder = self.holder.load(Ordering::Relaxed);
            let is_free = holder != generation + 1;
            if is_free && self.holder.compare_exchange(holder, generation + 1, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                break;
            }
            ringway_host::sleep::yield_core();
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

/// Makes a call that is a cancellation point: `-1` with EINTR may mean that the thread is to end.
#[macro_export]
#[doc(hidden)]
macro_rules! cancellation_point {
    ($call:expr) => {{
        $crate::cancel::enter();
        loop {
            let result = $call;
            if result != -1 || !$crate::cancel::again() {
                break result;
            }
        }
    }};
}
