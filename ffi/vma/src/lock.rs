//! The lock around a process's offloaded state: a short spin, then a futex.
//!
//! `std::sync::Mutex` would do but for fork: the prepare handler must leave it locked and the parent's handler unlock it
//! without a guard in between ([`Lock::unlock_after_fork`]), and for signals: a handler may leave by longjmp, or call us, so
//! none may run while its thread holds the lock. The word names the holder; the trampoline of
//! [`crate::exports::signal`] looks ([`Lock::is_mine`]), and leaves the signal to be raised again when the lock is released.

use core::cell::UnsafeCell;
use core::hint::spin_loop;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

const FREE: u32 = 0;
/// Beside the holder: others wait.
const CONTENDED: u32 = 1 << 31;

/// Tries before a thread that waits for the lock sleeps: sections under the lock are well below a microsecond.
const SPINS: u32 = 200;

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

/// What a lock protects.
pub(crate) trait Protected {
    /// Its holder is about to let go of it.
    #[inline(always)]
    fn let_go(&mut self) {}
}

impl Protected for () {}

/// See the module's documentation.
pub(crate) struct Lock<T> {
    word: AtomicU32,
    /// Threads that wait for it.
    waiters: AtomicU32,
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
        Self { word: AtomicU32::new(FREE), waiters: AtomicU32::new(0), contended: AtomicU64::new(0), value: UnsafeCell::new(value) }
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
        loop {
            let word = self.word.load(Ordering::Relaxed);
            let wanted = if word == FREE { me() | CONTENDED } else { word | CONTENDED };
            if word != wanted && self.word.compare_exchange(word, wanted, Ordering::Acquire, Ordering::Relaxed).is_err() {
                continue;
            }
            if word == FREE {
                return;
            }
            futex(&self.word, libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG, wanted);
        }
    }

    /// Whether the calling thread holds it. Async-signal-safe.
    pub(crate) fn is_mine(&self) -> bool {
        self.word.load(Ordering::Relaxed) & !CONTENDED == me()
    }

    /// Whether nobody holds it.
    pub(crate) fn is_free(&self) -> bool {
        self.word.load(Ordering::Acquire) == FREE
    }

    /// Takes it from a holder that is not there, nor any of those who waited: in the child of a fork.
    ///
    /// # Safety
    /// No other thread of this address space can use the lock any more, and what it protects is whole.
    pub(crate) unsafe fn free_of_the_dead(&self) {
        self.waiters.store(0, Ordering::Relaxed);
        self.word.store(FREE, Ordering::Release);
    }

    /// Takes it, until [`Lock::release`] is called. Whoever does so is to see to that.
    #[inline]
    pub(crate) fn take(&self) {
        core::mem::forget(self.lock());
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
            futex(&self.word, libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG, 1);
        }
    }

    /// # Safety
    /// The caller holds it, and uses nothing of what it protects any more.
    #[inline]
    unsafe fn unlock(&self) {
        // SAFETY: the caller's promise.
        unsafe { &mut *self.value.get() }.let_go();
        self.release();
        if DEFERRED.load(Ordering::Relaxed) != 0 {
            crate::exports::signal::raise_deferred();
        }
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

fn futex(word: &AtomicU32, op: libc::c_int, value: u32) {
    let saved = crate::errno::current();
    // SAFETY: the word outlives the call; FUTEX_WAIT without a timeout and FUTEX_WAKE read nothing else.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), op, value, core::ptr::null::<libc::timespec>()) };
    crate::errno::set(saved);
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Protected for u64 {}

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
}
