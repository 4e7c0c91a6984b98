//! Which thread is calling, by a name that no other thread ever has: gettid(2)'s numbers, and pthread_self(3)'s, go to other threads later.

use core::cell::Cell;
use core::num::NonZeroU64;
use core::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

/// A thread of this process, or of one that it was forked from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Thread(NonZeroU64);

/// Whether a thread has ended: what it leaves behind. (In a child of fork(2), the threads that are not there have not.)
#[derive(Clone, Debug)]
pub(super) struct Life(Weak<()>);

impl Thread {
    /// The calling one.
    pub(super) fn current() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        thread_local! {
            // (Without a destructor, so that it is there until the end.)
            static NAME: Cell<Option<NonZeroU64>> = const { Cell::new(None) };
        }
        NAME.with(|name| {
            let known = name.get().unwrap_or_else(|| NonZeroU64::new(NEXT.fetch_add(1, Ordering::Relaxed)).unwrap_or(NonZeroU64::MIN));
            name.set(Some(known));
            Self(known)
        })
    }

    /// Its name as a number, which is not zero.
    pub(super) fn number(self) -> u64 {
        self.0.get()
    }
}

impl Life {
    /// The calling thread's.
    pub(super) fn of_current() -> Self {
        thread_local! {
            static LIFE: Arc<()> = Arc::default();
        }
        // (A thread whose thread-locals are gone has as good as ended.)
        Self(LIFE.try_with(Arc::downgrade).unwrap_or_default())
    }

    pub(super) fn goes_on(&self) -> bool {
        self.0.strong_count() > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_has_one_name_and_one_life() {
        let (here, life) = (Thread::current(), Life::of_current());
        assert_eq!(Thread::current(), here);
        let there = || std::thread::spawn(|| (Thread::current(), Life::of_current(), Life::of_current().goes_on())).join();
        let (one, ended, went_on) = there().expect("it does not panic");
        let (other, ..) = there().expect("it does not panic");
        assert!(one != here && other != here && one != other);
        assert_eq!((life.goes_on(), went_on, ended.goes_on()), (true, true, false));
    }
}
