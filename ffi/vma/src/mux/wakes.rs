//! Who is to be woken: told once the process's lock is released.
//!
//! A thread that is woken runs at once, often in place of the one that wakes it; and the first that it wants is the lock. Woken by who has it, it
//! would sleep again, until that one has the core back.
//!
//! So an eventfd may be written to a little after its thread has ended: it is kept, and goes to the next thread ([`State::keep_waker`]).

use std::os::fd::RawFd;

use arrayvec::ArrayVec;
use ringway_host::EventFd;

use super::State;

/// Threads that one hold of the lock wakes without an allocation; those beyond are woken at once.
const FEW: usize = 14;

/// Eventfds of threads that are to be woken.
#[derive(Debug, Default)]
pub(crate) struct Wakes(ArrayVec<RawFd, FEW>);

impl Wakes {
    /// Wakes them.
    pub(crate) fn signal(self) {
        self.0.into_iter().for_each(ringway_host::sleep::signal);
    }
}

impl State {
    /// A thread that sleeps with this eventfd is to be woken.
    pub(super) fn wake_by(&mut self, waker: RawFd) {
        if self.wakes.0.try_push(waker).is_err() {
            ringway_host::sleep::signal(waker);
        }
    }

    /// Those that are to be woken now that the lock is released.
    #[inline]
    pub(crate) fn take_wakes(&mut self) -> Option<Wakes> {
        (!self.wakes.0.is_empty()).then(|| core::mem::take(&mut self.wakes))
    }

    /// A thread has ended: its eventfd is another one's.
    pub(super) fn keep_waker(&mut self, waker: EventFd) {
        self.spare_wakers.push(waker);
    }

    /// The eventfd of a thread that has ended.
    pub(super) fn spare_waker(&mut self) -> Option<EventFd> {
        self.spare_wakers.pop()
    }
}
