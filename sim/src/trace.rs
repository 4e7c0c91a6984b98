//! What happened on the wire: a hash of it always, and the frames themselves if asked for.

mod pcapng;
mod render;

pub use pcapng::TraceError;
pub use render::render;

use core::fmt;
use core::time::Duration;
use std::sync::Arc;

use ringway_stack::Instant;
use ringway_stack::device::MacAddr;

use crate::device::RxDrop;
use crate::fabric::{Direction, Frame, Marks, Strike};
use crate::faults::FaultCounts;

/// The hash of everything that happened: equal for equal runs, byte for byte and nanosecond for nanosecond.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TraceHash(u64);

impl fmt::Display for TraceHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Debug for TraceHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// What happened to a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// The NIC of a host put it on the wire.
    Sent,
    /// The NIC of a host received it.
    Delivered,
    /// The NIC of a host had no room for it.
    Refused(RxDrop),
    /// The switch knows no such station.
    NoStation,
    /// A link did something to it.
    Struck(Direction, Strike),
}

/// One line of a trace.
#[derive(Clone, Debug)]
pub struct Record {
    /// When.
    pub at: Instant,
    /// At which host, or at which host's link.
    pub host: usize,
    /// What.
    pub what: What,
    /// Which transmission it was; copies share it.
    pub frame: u64,
    /// What had befallen this copy before.
    pub marks: Marks,
    /// The frame's bytes at this point.
    pub bytes: Arc<[u8]>,
}

/// A host's place in a trace.
#[derive(Clone, Debug)]
pub(crate) struct Interface {
    pub(crate) name: String,
    pub(crate) mac: MacAddr,
    pub(crate) bandwidth_bps: Option<u64>,
}

/// The trace of a world.
#[derive(Debug)]
pub struct Trace {
    seed: u64,
    hash: u64,
    events: u64,
    counts: FaultCounts,
    last_at: Instant,
    silence_max: Duration,
    keep: bool,
    records: Vec<Record>,
    interfaces: Vec<Interface>,
}

impl Trace {
    pub(crate) fn new(seed: u64, keep: bool) -> Self {
        Self {
            seed,
            hash: seed,
            events: 0,
            counts: FaultCounts::default(),
            last_at: Instant::ZERO,
            silence_max: Duration::ZERO,
            keep,
            records: Vec::new(),
            interfaces: Vec::new(),
        }
    }

    /// The hash of everything so far.
    pub fn hash(&self) -> TraceHash {
        TraceHash(mix(self.hash, self.events))
    }

    /// How many things happened so far.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// How often each fault struck so far.
    pub fn faults(&self) -> FaultCounts {
        self.counts
    }

    /// When something happened last.
    pub fn last_at(&self) -> Instant {
        self.last_at
    }

    /// The longest time in which nothing happened, between two things that did.
    pub fn silence_max(&self) -> Duration {
        self.silence_max
    }

    /// What happened, in order; empty unless the world was told to keep it.
    pub fn records(&self) -> &[Record] {
        &self.records
    }

    /// The name of a host.
    pub fn host_name(&self, host: usize) -> &str {
        self.interfaces.get(host).map_or("?", |i| i.name.as_str())
    }

    pub(crate) fn add_interface(&mut self, interface: Interface) {
        self.interfaces.push(interface);
    }

    pub(crate) fn record(&mut self, at: Instant, host: usize, what: What, frame: &Frame) {
        self.count(what);
        self.events += 1;
        self.silence_max = self.silence_max.max(at.since(self.last_at));
        self.last_at = at;
        let (tag, detail) = digest(what);
        for word in [at.as_nanos(), host as u64, frame.id, tag, detail, frame.bytes.len() as u64] {
            self.hash = mix(self.hash, word);
        }
        if matches!(what, What::Sent | What::Delivered) {
            self.hash = mix_bytes(self.hash, &frame.bytes);
        }
        if self.keep {
            let (marks, bytes) = (frame.marks, Arc::clone(&frame.bytes));
            self.records.push(Record { at, host, what, frame: frame.id, marks, bytes });
        }
    }

    fn count(&mut self, what: What) {
        let counts = &mut self.counts;
        let counter = match what {
            What::Sent | What::Delivered | What::NoStation => return,
            What::Refused(_) | What::Struck(_, Strike::QueueFull) => &mut counts.queue_full,
            What::Struck(_, Strike::Lost) => &mut counts.lost,
            What::Struck(_, Strike::FrameCheck) => &mut counts.frame_check,
            What::Struck(_, Strike::Corrupted { .. }) => &mut counts.corrupted,
            What::Struck(_, Strike::HeldBack { .. }) => &mut counts.held_back,
            What::Struck(_, Strike::Duplicated { .. }) => &mut counts.duplicated,
        };
        *counter += 1;
    }
}

/// `what` as two numbers. The tags are part of the hash, which is only ever compared between runs of the same build.
fn digest(what: What) -> (u64, u64) {
    match what {
        What::Sent => (1, 0),
        What::Delivered => (2, 0),
        What::Refused(RxDrop::QueueFull) => (3, 0),
        What::Refused(RxDrop::NoBuffer) => (3, 1),
        What::NoStation => (4, 0),
        What::Struck(direction, strike) => {
            let (kind, detail) = match strike {
                Strike::Lost => (16, 0),
                Strike::QueueFull => (18, 0),
                Strike::FrameCheck => (20, 0),
                Strike::Corrupted { bit, len } => (22, (bit as u64) << 4 | len as u64),
                Strike::HeldBack { by } => (24, nanos(by)),
                Strike::Duplicated { after } => (26, nanos(after)),
            };
            (kind + direction as u64, detail)
        }
    }
}

fn nanos(d: Duration) -> u64 {
    u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)
}

/// One step of a 64-bit multiply-rotate hash (the multiplier is 2^64 over the golden ratio): every bit of every word reaches the
/// result. Nobody chooses frames to collide here.
fn mix(hash: u64, word: u64) -> u64 {
    let h = (hash.rotate_left(23) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    h ^ (h >> 29)
}

/// A hash of some bytes.
pub(crate) fn hash_bytes(bytes: &[u8]) -> u64 {
    mix_bytes(0, bytes)
}

fn mix_bytes(mut hash: u64, bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    for word in words {
        hash = mix(hash, u64::from_le_bytes(*word));
    }
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    mix(hash, u64::from_le_bytes(last))
}

#[cfg(test)]
mod tests;
