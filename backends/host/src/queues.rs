//! What the host's threads ask of one ring's queues beside frames: how they sleep on them, on which cores they spin, and who drains
//! them while nobody does.

use core::ffi::c_void;
use std::os::fd::RawFd;

use ringway_stack::device::Queues;

/// Room for the events that a thread which sleeps in epoll_wait on [`Queues::wait_fd`] is to have.
pub const SLEPT_MAX: usize = 16;

/// The data of the event of [`HostQueues::begin_sleep`]'s descriptor, on every device.
pub const SLEEPER: u64 = u64::MAX - 1;

/// The data of a descriptor that the owner of a ring adds to its wait descriptor: the device leaves its events to whoever sleeps there.
pub const BESIDE: u64 = u64::MAX - 2;

/// Queues that a process's threads wait on. [`Queues::wait_fd`] is an epoll instance.
pub trait HostQueues: Queues {
    /// A thread is about to sleep in epoll_wait on [`Queues::wait_fd`]: the eventfd by which others of this process wake it. There is one such thread
    /// at a time, until [`HostQueues::end_sleep`].
    fn begin_sleep(&mut self) -> RawFd;

    /// Whether the data of an event says that the descriptor of [`HostQueues::begin_sleep`] was signalled.
    fn is_of_sleeper(event: u64) -> bool;

    /// A thread slept in epoll_wait on [`Queues::wait_fd`], and this is the data of the events that ended the sleep, at most [`SLEPT_MAX`]: what the
    /// device would ask for once more when it is disarmed. None: the thread has found that the descriptor is not readable.
    fn slept(&mut self, events: impl ExactSizeIterator<Item = u64>);

    /// That thread has seen that it was woken. Nobody else takes its wake-up back.
    fn clear_sleeper(&mut self);

    /// That thread is awake. (Who wakes it too late, without a lock, wakes the next one in vain, or nobody.)
    fn end_sleep(&mut self);

    /// Announces that a thread of this process spins on `core` (its number in the system), unless one does already, of this
    /// process or of one that it exchanges frames with: then `false`, and nothing stays announced. Where processes do not see each other: as if
    /// there were no others.
    fn claim_core(&mut self, core: usize) -> bool;

    /// Takes back what [`HostQueues::claim_core`] announced.
    fn release_core(&mut self, core: usize);

    /// Nobody polls the ring from now on, nor is it armed: who fills half of what it can receive signals [`Queues::wait_fd`].
    fn pause(&mut self);

    /// The pause is over. Whether there is anything to poll for.
    fn resume(&mut self) -> bool;

    /// Frames that one of its queues holds, at most.
    fn queue_frames(&self) -> usize;

    /// Its send buffers: how many there are, and how many are handed out, queued, or held by who reads them.
    fn tx_buffers(&mut self) -> (usize, usize);

    /// Bytes that the device has copied in large copies.
    fn copied_bytes(&self) -> u64;
}

/// A program's allocator for what it receives.
#[derive(Clone, Copy, Debug)]
pub struct HeadMemory {
    /// Gives so many bytes, aligned or not, or null. It is called with the ring locked: it must not use sockets.
    pub allocate: unsafe extern "C" fn(usize) -> *mut c_void,
    /// Takes back what `allocate` gave; from any thread.
    pub free: unsafe extern "C" fn(*mut c_void),
}
