//! The lock around a process's offloaded state: a short spin, then a futex.
//!
//! Whoever comes while it is free is first, for that is fastest; but where one has waited for long ([`LONG`]), it is handed over to those who wait: a
//! thread that takes the lock again and again would keep it from them for as long as it has the core which they are to be woken on.
//!
//! `std::sync::Mutex` would do but for fork: the prepare handler must leave it locked and the parent's handler unlock it
//! without a guard in between ([`Lock::unlock_after_fork`]), and for signals: a handler may leave by longjmp, or call us, so
//! none may run while its thread holds the lock. The word names the holder; the trampoline of
//! [`crate::exports::signal`] looks ([`Lock::is_mine`]), and leaves the signal to be raised again when the lock is released.

use core::cell::{Cell, UnsafeCell};
use core::hint::spin_loop;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use core::time::Duration;
use std::time::Instant;

const FREE: u32 = 0;
/// Nobody holds it, and it is for one who has slept for it. (No thread's name is even.)
const HANDED_OVER: u32 = 2;
/// Beside the holder: others wait.
const CONTENDED: u32 = 1 << 31;

/// Tries before a thread that waits for the lock sleeps: sections under the lock are well below a microsecond.
const SPINS: u32 = 200;

/// Who has waited longer than this is not to be overtaken any more.
const LONG: Duration = Duration::from_millis(2);

/// A thread that waits looks again after this. (A handler may leave a wait by longjmp when it has just been woken, or the lock was handed over to it: then
/// nobody else would be, and nobody would take it.)
const AGAIN: Duration = Duration::from_millis(10);

/// Places (see [`crate::exports::signal`]) of signals that came while their thread held a lock.
pub(crate) static DEFERRED: AtomicU64 = AtomicU64::new(0);

/// The calling thread, as the word names it: never zero. Two threads have one name only if their control blocks are a
/// multiple of 128 GiB apart; then a signal may be deferred without need.
#[inline]
fn me() -> u32 {
    (thread_pointer() >> 6) as u32 & !CONTENDED | 1
}

cfg_if::cfg_if! {
    if #[cfg(target_arch = "x86_64")] {
        /// The calling thread's control block.
        #[inline]
        pub(crate) fn thread_pointer() -> usize {
            let pointer: usize;
            // SAFETY: the x86-64 ABI keeps the address of a thread's control block in its own first word.
            unsafe { core::arch::asm!("mov {}, fs:0", out(reg) pointer, options(nostack, preserves_flags, readonly, pure)) };
            pointer
        }
    } else if #[cfg(target_arch = "aarch64")] {
        /// The calling thread's control block.
        #[inline]
        pub(crate) fn thread_pointer() -> usize {
            let pointer: usize;
            // SAFETY: the register that the AArch64 ABI keeps the address of a thread's control block in may be read by all.
            unsafe { core::arch::asm!("mrs {}, tpidr_el0", out(reg) pointer, options(nostack, preserves_flags, nomem, pure)) };
            pointer
        }
    } else {
        compile_error!("the library is written for x86-64 and aarch64");
    }
}

thread_local! {
    /// The thread has released a lock, and does what it left to be done ([`Protected::done`]).
    static IS_FINISHING: Cell<bool> = const { Cell::new(false) };
}

/// Whether the calling thread has released a lock, and not yet done what was left to be done then. Async-signal-safe.
pub(crate) fn is_finishing() -> bool {
    IS_FINISHING.with(Cell::get)
}

/// What a lock protects.
pub(crate) trait Protected {
    /// What its holder leaves to be done when it has released the lock.
    type Left;

    /// Its holder is about to let go of it.
    #[inline(always)]
    fn let_go(&mut self) -> Option<Self::Left> {
        None
    }

    /// Does what was left to be done. No handler runs meanwhile.
    fn done(_: Self::Left) {}
}

impl Protected for () {
    type Left = ();
}

/// See the module's documentation.
pub(crate) struct Lock<T> {
    word: AtomicU32,
    /// Threads that wait for it.
    waiters: AtomicU32,
    /// One of them has waited for long. (One that a handler has left by longjmp says it once.)
    is_overtaken: AtomicBool,
    /// How often one had to.
    contended: AtomicU64,
    value: UnsafeCell<T>,
}

// SAFETY: `value` is only reached through a `Guard`, or by who has taken the lock without one, and there is one such at a time.
unsafe impl<T: Send> Sync for Lock<T> {}
// SAFETY: as `Mutex`: moving the lock moves the value.
unsafe impl<T: Send> Send for Lock<T> {}

impl<T> core::fmt::Debug for Lock<T> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Lock").finish_non_exhaustive()
    }
}

impl<T: Protected> Lock<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self {
            word: AtomicU32::new(FREE),
            waiters: AtomicU32::new(0),
            is_overtaken: AtomicBool::new(false),
            contended: AtomicU64::new(0),
            value: UnsafeCell::new(value),
        }
    }

    #[inline]
    pub(crate) fn lock(&self) -> Guard<'_, T> {
        if self.word.compare_exchange(FREE, me(), Ordering::Acquire, Ordering::Relaxed).is_err() {
            self.lock_contended();
        }
        Guard { lock: self }
    }

    #[inline]
    pub(crate) fn try_lock(&self) -> Option<Guard<'_, T>> {
        self.word.compare_exchange(FREE, me(), Ordering::Acquire, Ordering::Relaxed).ok().map(|_| Guard { lock: self })
    }

    /// Whether another thread waits for it: for holders that could let go for a moment.
    #[inline]
    pub(crate) fn has_waiters(&self) -> bool {
        self.waiters.load(Ordering::Relaxed) != 0
    }

    /// How often a thread found it taken.
    pub(crate) fn contended(&self) -> u64 {
        self.contended.load(Ordering::Relaxed)
    }

    #[cold]
    fn lock_contended(&self) {
        self.contended.fetch_add(1, Ordering::Relaxed);
        self.waiters.fetch_add(1, Ordering::Relaxed);
        self.lock_by_waiting();
        self.waiters.fetch_sub(1, Ordering::Relaxed);
    }

    fn lock_by_waiting(&self) {
        for _ in 0..SPINS {
            if self.word.load(Ordering::Relaxed) == FREE
                && self.word.compare_exchange(FREE, me(), Ordering::Acquire, Ordering::Relaxed).is_ok()
            {
                return;
            }
            spin_loop();
        }
        let mut since = None;
        loop {
            let word = self.word.load(Ordering::Relaxed);
            let is_there = word == FREE || word == HANDED_OVER | CONTENDED && since.is_some();
            let wanted = if is_there { me() | CONTENDED } else { word | CONTENDED };
            if word != wanted && self.word.compare_exchange(word, wanted, Ordering::Acquire, Ordering::Relaxed).is_err() {
                continue;
            }
            if is_there {
                // (If another one waits for long, it says so when it looks next.)
                self.is_overtaken.store(false, Ordering::Relaxed);
                return;
            }
            let began = *since.get_or_insert_with(Instant::now);
            wait(&self.word, wanted);
            if began.elapsed() > LONG {
                self.is_overtaken.store(true, Ordering::Relaxed);
            }
        }
    }

    /// Whether the calling thread holds it. Async-signal-safe.
    pub(crate) fn is_mine(&self) -> bool {
        self.word.load(Ordering::Relaxed) & !CONTENDED == me()
    }

    /// Whether nobody holds it.
    pub(crate) fn is_free(&self) -> bool {
        matches!(self.word.load(Ordering::Acquire) & !CONTENDED, FREE | HANDED_OVER)
    }

    /// Takes it from a holder that is not there, nor any of those who waited: in the child of a fork.
    ///
    /// # Safety
    /// No other thread of this address space can use the lock any more, and what it protects is whole.
    pub(crate) unsafe fn free_of_the_dead(&self) {
        self.forget_waiters();
        self.word.store(FREE, Ordering::Release);
    }

    /// In the child of a fork: its parent's threads wait for nothing of its own.
    pub(crate) fn forget_waiters(&self) {
        self.waiters.store(0, Ordering::Relaxed);
        self.is_overtaken.store(false, Ordering::Relaxed);
    }

    /// Takes it, until [`Lock::release`] is called. Whoever does so is to see to that.
    #[inline]
    pub(crate) fn take(&self) {
        core::mem::forget(self.lock());
    }

    /// As [`Lock::take`], if nobody has it.
    pub(crate) fn try_take(&self) -> bool {
        self.try_lock().map(core::mem::forget).is_some()
    }

    /// What it protects, for whoever has [taken](Lock::take) it.
    ///
    /// # Safety
    /// The caller's thread has taken it, does not release it as long as it has the reference, and has no exclusive one meanwhile.
    #[inline(always)]
    pub(crate) unsafe fn taken(&self) -> &T {
        // SAFETY: the caller's promise.
        unsafe { &*self.value.get() }
    }

    /// As [`Lock::taken`].
    ///
    /// # Safety
    /// As there, and the caller has no other reference.
    #[inline(always)]
    #[expect(clippy::mut_from_ref, reason = "the caller promises that it is the only user")]
    pub(crate) unsafe fn taken_mut(&self) -> &mut T {
        // SAFETY: the caller's promise.
        unsafe { &mut *self.value.get() }
    }

    /// Ends what [`Lock::take`] began. Signals stay put off, for the thread has another lock.
    #[inline]
    pub(crate) fn release(&self) {
        if self.word.swap(FREE, Ordering::Release) & CONTENDED != 0 {
            self.pass_on();
        }
    }

    /// Somebody waits for the lock, which was released: wakes one, for whom it is where one was overtaken for long.
    #[cold]
    fn pass_on(&self) {
        if self.has_waiters() && self.is_overtaken.swap(false, Ordering::Relaxed) {
            // (Where it is taken by now, its holder does the same.)
            let _ = self.word.compare_exchange(FREE, HANDED_OVER | CONTENDED, Ordering::Relaxed, Ordering::Relaxed);
        }
        futex(&self.word, libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG, 1, None);
    }

    /// # Safety
    /// The caller holds it, and uses nothing of what it protects any more.
    #[inline]
    unsafe fn unlock(&self) {
        // SAFETY: the caller's promise.
        match unsafe { &mut *self.value.get() }.let_go() {
            None => self.release(),
            Some(left) => self.release_and_do(left),
        }
        if DEFERRED.load(Ordering::Relaxed) != 0 {
            crate::exports::signal::raise_deferred();
        }
    }

    #[cold]
    fn release_and_do(&self, left: T::Left) {
        IS_FINISHING.with(|is| is.set(true));
        self.release();
        T::done(left);
        IS_FINISHING.with(|is| is.set(false));
    }

    /// The value, for the child of a fork: its only thread is the one whose prepare handler holds the lock.
    ///
    /// # Safety
    /// No other thread of this address space can use the lock any more.
    #[expect(clippy::mut_from_ref, reason = "the caller promises that it is the only user")]
    pub(crate) unsafe fn value_of_the_dead(&self) -> &mut T {
        // SAFETY: the caller's promise.
        unsafe { &mut *self.value.get() }
    }

    /// Releases a lock whose guard was forgotten by the prepare handler of a fork.
    ///
    /// # Safety
    /// The lock is held, by a guard that was forgotten.
    pub(crate) unsafe fn unlock_after_fork(&self) {
        // SAFETY: the caller's promise.
        unsafe { self.unlock() };
    }
}

/// Whoever has it has the value.
pub(crate) struct Guard<'a, T: Protected> {
    lock: &'a Lock<T>,
}

impl<T: Protected> Guard<'_, T> {
    /// Ends it where it is. (A guard that goes out of scope calls a function for that, which many share: this is for the calls that are to be short.)
    #[inline(always)]
    pub(crate) fn release(self) {
        let lock = self.lock;
        core::mem::forget(self);
        // SAFETY: the guard's existence meant that the lock is held by its owner, and this is its end.
        unsafe { lock.unlock() };
    }
}

impl<T: Protected> Deref for Guard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the guard's existence means that the lock is held by its owner.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T: Protected> DerefMut for Guard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as in `deref`, and `self` is borrowed exclusively.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T: Protected> Drop for Guard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the guard's existence means that the lock is held by its owner, and this is its end.
        unsafe { self.lock.unlock() };
    }
}

/// Sleeps while the word is as it was, or until it is time to look again.
fn wait(word: &AtomicU32, value: u32) {
    let again = libc::timespec { tv_sec: 0, tv_nsec: libc::c_long::from(AGAIN.subsec_nanos().cast_signed()) };
    futex(word, libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG, value, Some(&again));
}

fn futex(word: &AtomicU32, op: libc::c_int, value: u32, timeout: Option<&libc::timespec>) {
    let saved = crate::errno::current();
    let timeout = timeout.map_or(core::ptr::null(), core::ptr::from_ref);
    // SAFETY: the word outlives the call, and so does the timeout; FUTEX_WAIT and FUTEX_WAKE read nothing else.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), op, value, timeout) };
    crate::errno::set(saved);
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Protected for u64 {
        type Left = ();
    }

    #[test]
    fn many_threads_count_right() {
        static LOCK: Lock<u64> = Lock::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..20_000).for_each(|_| *LOCK.lock() += 1));
            }
        });
        assert_eq!(*LOCK.lock(), 80_000);
    }

    #[test]
    fn a_held_lock_is_not_given_twice() {
        let lock = Lock::new(());
        let guard = lock.lock();
        assert!(lock.try_lock().is_none());
        drop(guard);
        assert!(lock.try_lock().is_some());
    }

    #[test]
    fn who_was_overtaken_for_long_is_next() {
        let lock = Lock::new(());
        lock.waiters.store(1, Ordering::Relaxed);
        lock.is_overtaken.store(true, Ordering::Relaxed);
        lock.word.store(me() | CONTENDED, Ordering::Relaxed);
        lock.release();
        assert!(lock.is_free() && lock.try_lock().is_none(), "it is for one who has slept for it");
        // (That one never comes: whoever comes now sleeps for a moment, once.)
        drop(lock.lock());
        assert!(lock.word.load(Ordering::Relaxed) == FREE && lock.try_lock().is_some());
    }

    #[test]
    fn a_thread_that_takes_it_all_the_time_keeps_it_from_nobody() {
        static LOCK: Lock<u64> = Lock::new(0);
        let is_over = core::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    while !is_over.load(Ordering::Relaxed) {
                        let _taken = LOCK.lock();
                    }
                });
            }
            for _ in 0..50 {
                *LOCK.lock() += 1;
            }
            is_over.store(true, Ordering::Relaxed);
        });
        assert_eq!(*LOCK.lock(), 50);
        assert!(LOCK.is_free() && !LOCK.has_waiters());
    }

    #[test]
    fn what_is_left_to_be_done_is_done_without_the_lock() {
        struct Leaves(&'static core::sync::atomic::AtomicU32);
        impl Protected for Leaves {
            type Left = &'static core::sync::atomic::AtomicU32;
            fn let_go(&mut self) -> Option<Self::Left> {
                Some(self.0)
            }
            fn done(left: Self::Left) {
                assert!(is_finishing());
                left.fetch_add(1, Ordering::Relaxed);
            }
        }
        static DONE: core::sync::atomic::AtomicU32 = core::sync::atomic::AtomicU32::new(0);
        let lock = Lock::new(Leaves(&DONE));
        drop(lock.lock());
        assert!(DONE.load(Ordering::Relaxed) == 1 && !is_finishing() && lock.is_free());
    }
}
