//! A plain socket of which poll(2) or select(2) asks whether it is ready, by its ring's lock alone.

use std::os::fd::RawFd;

use ringway_stack::ring::FlowId;

use super::{Plain, table};
use crate::mux;
use crate::process::Process;
use crate::rings::ProcessRing;
use crate::slab::Key;

/// A socket that is plain, as far as is known without a lock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    key: Key,
    plain: Plain,
}

impl Asked {
    /// `None`: it is not plain, or callbacks are to run first.
    pub(crate) fn find(key: Key) -> Option<Self> {
        Plain::find(key).filter(|plain| plain.is_without_callbacks()).map(|plain| Self { key, plain })
    }

    /// Its flow. Whoever has the ring's lock, and has found the socket since, finds it there.
    pub(crate) const fn flow(&self) -> FlowId {
        self.plain.flow
    }

    /// In epoll's bits, but for the kernel's half of it. For who has found it under its ring's lock.
    pub(crate) fn readiness(&self, own: &ProcessRing) -> u32 {
        mux::expand(own.ring.readiness(self.plain.flow).bits())
    }

    /// Whether the kernel has a half of it.
    pub(crate) const fn is_of_datagrams(&self) -> bool {
        self.plain.is_of_datagrams()
    }

    /// Whether nobody else waits for it.
    pub(crate) const fn is_unwatched(&self) -> bool {
        self.plain.is_unwatched()
    }

    /// A thread with that eventfd is about to sleep for it. `false`: it may be plain no more.
    pub(crate) fn begin_sleep(&self, waker: RawFd) -> bool {
        self.plain.begin_sleep(self.key, waker)
    }

    /// The thread with that eventfd sleeps no more for the socket of this name. Whether it did.
    pub(crate) fn end_sleep(key: Key, waker: RawFd) -> bool {
        table::end_sleep(key.index, waker)
    }

    /// The kernel's half of a socket was found readable: the next receive asks it.
    pub(crate) fn hint(process: &Process, key: Key) {
        let found = Self::find(key).and_then(|asked| process.ring(asked.flow().ring));
        if let Some(mut own) = found.map(crate::lock::Lock::lock)
            && let Some(asked) = Self::find(key)
        {
            own.datagrams.hint(asked.flow());
        }
    }
}
