//! The devices that a process may have rings on.

use ringway_stack::device::Queues;
use ringway_stack::ring;

/// One ring's queues.
pub(crate) type RingQueues = ringway_shm::ShmQueues;

/// A ring.
pub(crate) type Ring = ring::Ring<RingQueues>;

/// A handle on received bytes.
pub(crate) type RxBuf = <RingQueues as Queues>::Rx;
