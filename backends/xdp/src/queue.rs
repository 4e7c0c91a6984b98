//! The four queues that a socket shares with the kernel: rings in memory, each with one producer and one consumer (Documentation/networking/af_xdp.rst).

use core::marker::PhantomData;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, Ordering};
use std::io;
use std::os::fd::RawFd;

/// A queue's memory, with entries of that type.
#[derive(Debug)]
struct Shared<T> {
    base: NonNull<u8>,
    len: usize,
    producer: usize,
    consumer: usize,
    flags: usize,
    entries: usize,
    size: u32,
    of: PhantomData<T>,
}

// SAFETY: the mapping is the value's alone, and who has the value has this side of the queue.
unsafe impl<T: Send> Send for Shared<T> {}

/// XDP_RING_NEED_WAKEUP: the kernel looks at the queue only when it is told to.
const NEED_WAKEUP: u32 = 1;

impl<T: Copy> Shared<T> {
    fn map(socket: RawFd, at: i64, offsets: &libc::xdp_ring_offset, size: u32) -> io::Result<Self> {
        assert!(size.is_power_of_two(), "the kernel takes nothing else");
        let len = offsets.desc as usize + size as usize * size_of::<T>();
        let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_POPULATE);
        // SAFETY: a new mapping, where the kernel likes.
        let base = unsafe { libc::mmap(core::ptr::null_mut(), len, protection, flags, socket, at) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the range is the mapping. A child that had it would have the socket as well, and the interface's queue with it, when its parent has ended.
        unsafe { libc::madvise(base, len, libc::MADV_DONTFORK) };
        let Some(base) = NonNull::new(base.cast()) else { return Err(io::ErrorKind::OutOfMemory.into()) };
        let [producer, consumer, flags, entries] =
            [offsets.producer, offsets.consumer, offsets.flags, offsets.desc].map(|offset| offset as usize);
        Ok(Self { base, len, producer, consumer, flags, entries, size, of: PhantomData })
    }

    fn word(&self, offset: usize) -> &AtomicU32 {
        debug_assert!(offset + 4 <= self.len);
        // SAFETY: the kernel says that an aligned word of the queue is there, which both sides read and write whole.
        unsafe { &*self.base.as_ptr().add(offset).cast::<AtomicU32>() }
    }

    fn entry(&self, index: u32) -> *mut T {
        let slot = (index & (self.size - 1)) as usize;
        // SAFETY: within the mapping, by `map`.
        unsafe { self.base.as_ptr().add(self.entries).cast::<T>().add(slot) }
    }

    fn needs_wakeup(&self) -> bool {
        self.word(self.flags).load(Ordering::Relaxed) & NEED_WAKEUP != 0
    }
}

impl<T> Drop for Shared<T> {
    fn drop(&mut self) {
        // SAFETY: nobody has a reference into the mapping any more.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

/// The side that fills a queue: of chunks to receive into, or of frames to send.
#[derive(Debug)]
pub(crate) struct Producer<T> {
    shared: Shared<T>,
    /// Where the next entry goes.
    next: u32,
    /// The consumer's index as it was last seen.
    seen: u32,
    /// What the kernel was told.
    told: u32,
}

impl<T: Copy> Producer<T> {
    pub(crate) fn map(socket: RawFd, at: i64, offsets: &libc::xdp_ring_offset, size: u32) -> io::Result<Self> {
        Shared::map(socket, at, offsets, size).map(|shared| Self { shared, next: 0, seen: 0, told: 0 })
    }

    /// Queues an entry, of which the kernel learns by [`Producer::publish`]. `false`: there is no room.
    pub(crate) fn push(&mut self, entry: T) -> bool {
        if self.next.wrapping_sub(self.seen) >= self.shared.size {
            self.seen = self.shared.word(self.shared.consumer).load(Ordering::Acquire);
            if self.next.wrapping_sub(self.seen) >= self.shared.size {
                return false;
            }
        }
        // SAFETY: the consumer has read the entry that was there before, and reads this one when it is told of it.
        unsafe { self.shared.entry(self.next).write(entry) };
        self.next = self.next.wrapping_add(1);
        true
    }

    /// Whether there is room for so many entries more.
    pub(crate) fn has_room(&mut self, entries: u32) -> bool {
        let fits = |this: &Self| this.next.wrapping_sub(this.seen) + entries <= this.shared.size;
        if !fits(self) {
            self.seen = self.shared.word(self.shared.consumer).load(Ordering::Acquire);
        }
        fits(self)
    }

    /// Tells the kernel of what was queued. How much that is.
    pub(crate) fn publish(&mut self) -> u32 {
        let count = self.next.wrapping_sub(core::mem::replace(&mut self.told, self.next));
        if count > 0 {
            self.shared.word(self.shared.producer).store(self.next, Ordering::Release);
        }
        count
    }

    /// How many entries the kernel has not taken.
    pub(crate) fn waiting(&self) -> u32 {
        self.told.wrapping_sub(self.shared.word(self.shared.consumer).load(Ordering::Acquire))
    }

    /// Whether the kernel looks at it only when it is told to.
    pub(crate) fn needs_wakeup(&self) -> bool {
        self.shared.needs_wakeup()
    }
}

/// The side that empties a queue: of frames that came, or of chunks that were sent.
#[derive(Debug)]
pub(crate) struct Consumer<T> {
    shared: Shared<T>,
    next: u32,
    /// The producer's index as it was last seen.
    seen: u32,
}

impl<T: Copy> Consumer<T> {
    pub(crate) fn map(socket: RawFd, at: i64, offsets: &libc::xdp_ring_offset, size: u32) -> io::Result<Self> {
        Shared::map(socket, at, offsets, size).map(|shared| Self { shared, next: 0, seen: 0 })
    }

    /// The next entry. Its place is the kernel's again after [`Consumer::release`].
    pub(crate) fn pop(&mut self) -> Option<T> {
        if self.next == self.seen {
            self.seen = self.shared.word(self.shared.producer).load(Ordering::Acquire);
            if self.next == self.seen {
                return None;
            }
        }
        // SAFETY: the producer has written it, and leaves it until it is released.
        let entry = unsafe { self.shared.entry(self.next).read() };
        self.next = self.next.wrapping_add(1);
        Some(entry)
    }

    /// The places of what was taken are free.
    pub(crate) fn release(&self) {
        self.shared.word(self.shared.consumer).store(self.next, Ordering::Release);
    }

    /// How many were taken.
    pub(crate) fn taken(&self) -> u32 {
        self.next
    }

    /// Whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.next == self.shared.word(self.shared.producer).load(Ordering::Acquire)
    }
}
