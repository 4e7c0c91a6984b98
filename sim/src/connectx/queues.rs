//! Queues: rings of entries in the driver's memory, with the counters that the driver writes.
//!
//! Each queue is the card's side alone: where it is, what it has taken, and what it does about an entry. What it would do outside of
//! itself, it says as [`Action`]s. [`Card`] puts queues together, and writes completions where they belong.

mod card;
mod completion;
mod receive;
mod register;
mod send;
mod shared;

#[cfg(test)]
mod tests;

pub use card::{Card, Receiver};
pub use completion::{CompletionQueue, CqConfig, NEVER_ARMED, Written};
pub use receive::{Posted, ReceiveConfig, ReceiveLayout, ReceiveQueue};
pub use register::RegisterEvent;
pub use send::{Outcome, SendConfig, SendQueue};
pub use shared::{SharedConfig, SharedQueue};

use super::cqe::Cqe;
use super::memory::{Memory, Unmapped};
use super::violation::Violation;
use super::wqe::{Body, Control, Ethernet, Piece};

/// What the card does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Sends frames, all with the same offloads.
    Transmit(Transmit),
    /// Begins a request of a connection or a datagram; see [`Card::finish`].
    Request {
        /// The queue pair.
        qpn: u32,
        /// Its control segment.
        control: Control,
        /// What is asked for.
        body: Body,
    },
    /// Writes a completion.
    Complete {
        /// Into which queue.
        cqn: u32,
        /// What it says.
        cqe: Cqe,
    },
    /// Raises a completion event.
    Event {
        /// Of which queue.
        cqn: u32,
    },
    /// Loses a packet, since no receive is posted; a reliable peer is told to wait.
    NoReceive {
        /// The queue pair.
        qpn: u32,
    },
    /// Loses a packet, since the queue has failed or there is none.
    Lost {
        /// The queue pair.
        qpn: u32,
    },
    /// Notes a broken rule, where hardware would keep silent about which.
    Broken {
        /// The queue pair, or the queue.
        number: u32,
        /// Which rule.
        violation: Violation,
    },
    /// A queue fails: an asynchronous event, and no completion.
    QueueFailed {
        /// The queue pair, or the queue.
        number: u32,
    },
}

/// Frames of one entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// The queue pair.
    pub qpn: u32,
    /// First block of the entry.
    pub wqe_counter: u16,
    /// Offloads, and the headers in line, with which each frame begins.
    pub ethernet: Ethernet,
    /// The bytes of each frame with its headers in line, before any offload: read before the entry is completed, since its buffers are the
    /// driver's again then.
    pub frames: Vec<Vec<u8>>,
    /// The only frame is cut into segments of `ethernet.mss` bytes.
    pub segmented: bool,
}

/// `head`, and then the bytes of all pieces.
fn gather<M: Memory + ?Sized>(memory: &M, head: &[u8], pieces: &[Piece]) -> Result<Vec<u8>, Violation> {
    let mut bytes = head.to_vec();
    for piece in pieces {
        match piece {
            Piece::Inline(inline) => bytes.extend(inline),
            Piece::Memory(segment) => {
                let start = bytes.len();
                bytes.resize(start + segment.len() as usize, 0);
                memory.read(segment.addr, &mut bytes[start..]).map_err(Violation::PayloadUnmapped)?;
            }
        }
    }
    Ok(bytes)
}

/// Where a queue's entries are.
#[derive(Clone, Copy, Debug)]
pub struct QueueBuffer {
    /// Address of its first entry.
    pub addr: u64,
    /// An entry has 2^this bytes.
    pub log_stride: u8,
    /// It has 2^this entries: up to 2^15 where they are counted in 16 bits, up to 2^22 for completions.
    pub log_entries: u8,
}

impl QueueBuffer {
    /// Entries; a larger exponent than a queue can have counts as the largest.
    pub fn entries(&self) -> u32 {
        1 << self.log_entries.min(22)
    }

    /// Bytes of an entry.
    pub fn stride(&self) -> u64 {
        1 << self.log_stride.min(16)
    }

    /// Address of the entry of a running counter.
    pub fn entry(&self, counter: u32) -> u64 {
        self.addr.wrapping_add(u64::from(counter & (self.entries() - 1)) * self.stride())
    }

    /// `out.len()` bytes from the entry of `counter` on, going on at the first entry where the ring ends.
    ///
    /// # Errors
    /// Some of it is not mapped.
    pub fn read<M: Memory + ?Sized>(&self, memory: &M, counter: u32, out: &mut [u8]) -> Result<(), Unmapped> {
        let stride = self.stride() as usize;
        out.chunks_mut(stride).zip(0..).try_for_each(|(bytes, index)| memory.read(self.entry(counter.wrapping_add(index)), bytes))
    }
}
