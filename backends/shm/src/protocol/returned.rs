//! What threads give back to one taker: a stack of numbers, linked through a table. It is taken whole, so that no member's successor can change
//! under a pop.
//!
//! Whose push finds the stack empty is told so, to tell the taker, by another such stack of stacks: then the taker looks only at those that have
//! something. A stack is announced once for each time that it is taken.

use crate::sync::{AtomicU32, Ordering};

/// No member; the first one's link is 1.
const NONE: u32 = 0;
/// In place of members: nobody takes them any more.
const CLOSED: u32 = u32::MAX;

/// The stack.
#[derive(Debug)]
pub(crate) struct Returned {
    top: AtomicU32,
    next: Box<[AtomicU32]>,
}

/// Nobody takes it any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Closed;

impl Returned {
    /// An empty one, whose members are numbered below that.
    pub(crate) fn new(members: usize) -> Self {
        Self { top: AtomicU32::new(NONE), next: (0..members).map(|_| AtomicU32::new(NONE)).collect() }
    }

    /// Gives a member back, which is the caller's; any thread. What `first` gave, if it was the only one there: that is called before, because
    /// with what was given back the stack itself may go.
    ///
    /// # Errors
    /// [`Closed`]: it is the caller's still.
    #[inline]
    pub(crate) fn push<T>(&self, member: u32, first: impl Fn() -> T) -> Result<Option<T>, Closed> {
        let mut top = self.top.load(Ordering::Relaxed);
        while top != CLOSED {
            self.next[member as usize].store(top, Ordering::Relaxed);
            let made = (top == NONE).then(&first);
            // Release: all uses of the member come before. Acquire: the taker has read what its announcement was linked to before the next one's is.
            match self.top.compare_exchange_weak(top, member + 1, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return Ok(made),
                Err(now) => top = now,
            }
        }
        Err(Closed)
    }

    /// Takes all of them. There is one taker.
    #[inline]
    pub(crate) fn take(&self, each: impl FnMut(u32)) {
        if self.top.load(Ordering::Relaxed) == NONE {
            return;
        }
        // Acquire: all uses of a member come before its next life. Release: see `push`.
        self.walk(self.top.swap(NONE, Ordering::AcqRel), each);
    }

    /// The same, for the last time.
    pub(crate) fn close(&self, each: impl FnMut(u32)) {
        self.walk(self.top.swap(CLOSED, Ordering::AcqRel), each);
    }

    fn walk(&self, mut top: u32, mut each: impl FnMut(u32)) {
        while top != NONE {
            // (Before it is handed on: then it may be given back, and linked anew.)
            let next = self.next[(top - 1) as usize].load(Ordering::Relaxed);
            each(top - 1);
            top = next;
        }
    }
}
