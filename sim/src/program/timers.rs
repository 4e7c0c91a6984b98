//! Virtual time for tasks.

use core::cell::RefCell;
use core::fmt;
use core::pin::Pin;
use core::task::{Context, Poll, Waker};
use std::collections::BTreeMap;
use std::rc::Rc;

use ringway_stack::Instant;

/// The time of one program, and who waits for which. Timers of one instant fire in the order in which they were set.
#[derive(Clone, Default)]
pub(super) struct Timers(Rc<RefCell<Inner>>);

#[derive(Default)]
struct Inner {
    now: Instant,
    made: u64,
    waiting: BTreeMap<(Instant, u64), Waker>,
}

impl Timers {
    pub(super) fn now(&self) -> Instant {
        self.0.borrow().now
    }

    /// When the next timer is due.
    pub(super) fn next(&self) -> Option<Instant> {
        self.0.borrow().waiting.first_key_value().map(|(&(at, _), _)| at)
    }

    /// Lets it be `now`, and wakes whoever waited for that.
    pub(super) fn advance(&self, now: Instant) {
        let mut inner = self.0.borrow_mut();
        inner.now = now;
        let later = inner.waiting.split_off(&(now, u64::MAX));
        let due = core::mem::replace(&mut inner.waiting, later);
        drop(inner);
        due.into_values().for_each(Waker::wake);
    }

    pub(super) fn sleep_until(&self, at: Instant) -> Sleep {
        let mut inner = self.0.borrow_mut();
        inner.made += 1;
        Sleep { timers: self.clone(), key: (at, inner.made) }
    }
}

/// Resolves at a point in virtual time. It begins when it is made, not when it is first polled.
pub struct Sleep {
    timers: Timers,
    key: (Instant, u64),
}

impl Sleep {
    /// When it ends.
    pub fn deadline(&self) -> Instant {
        self.key.0
    }
}

impl fmt::Debug for Sleep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sleep").field("deadline", &self.key.0).finish_non_exhaustive()
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut inner = self.timers.0.borrow_mut();
        if inner.now >= self.key.0 {
            return Poll::Ready(());
        }
        let displaced = inner.waiting.insert(self.key, cx.waker().clone());
        drop(inner);
        drop(displaced);
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        let waker = self.timers.0.borrow_mut().waiting.remove(&self.key);
        drop(waker);
    }
}
