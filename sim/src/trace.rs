//! What happened on the wire: a hash of it always, and the frames themselves if asked for.

mod notes;
mod pcapng;
mod render;
pub(crate) mod segment;

pub(crate) use notes::Watch;
pub use notes::{Note, NoteKind};
pub use pcapng::{Seen, TraceError};
pub(crate) use pcapng::{befallen, refusal};
pub use render::render;

use core::fmt;
use core::time::Duration;
use std::rc::Rc;

use ringway_stack::Instant;
use ringway_stack::device::MacAddr;

use crate::fabric::{Direction, Frame, Marks, Strike};
use crate::faults::{FaultCounts, Mishap};
use crate::nic::{NicFault, NicStrike, RxDrop};

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
    /// No host has this MAC address, as the switch knows.
    NoReceiver,
    /// A link did something to it.
    Struck(Direction, Strike),
    /// It came from no host: its marks say from whom ([`Marks::FORGED`], [`Marks::ROUTER`]). The host is the one that it is meant for.
    Injected,
    /// No frame: something befell a host or its link.
    Befell(Mishap),
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
    pub bytes: Rc<[u8]>,
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
    notes: Vec<Note>,
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
            notes: Vec::new(),
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

    /// What else is worth knowing, in order: phases, timers, sockets' states. Empty unless the world was told to keep frames; never
    /// part of the hash.
    pub fn notes(&self) -> &[Note] {
        &self.notes
    }

    /// The seed of the world.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    pub(crate) fn interfaces(&self) -> &[Interface] {
        &self.interfaces
    }

    /// Whether frames and notes are kept.
    pub fn keeps_frames(&self) -> bool {
        self.keep
    }

    /// The name of a host.
    pub fn host_name(&self, host: usize) -> &str {
        self.interfaces.get(host).map_or("?", |i| i.name.as_str())
    }

    pub(crate) fn add_interface(&mut self, interface: Interface) {
        self.interfaces.push(interface);
    }

    pub(crate) fn record(&mut self, at: Instant, host: usize, what: What, frame: &Frame) {
        // These two are nearly all, and no faults.
        let (tag, detail) = match what {
            What::Sent => (1, 0),
            What::Delivered => (2, 0),
            _ => {
                self.count(what);
                self.counts.fragmentation_needed += u64::from(what == What::Injected && frame.marks.contains(Marks::ROUTER));
                digest(what)
            }
        };
        self.events += 1;
        self.silence_max = self.silence_max.max(at.since(self.last_at));
        self.last_at = at;
        // Hosts are fewer than 2^16, tags than 2^8, and no frame is as long as 2^32.
        let place = (host as u64) << 48 | tag << 40 | frame.bytes.len() as u64;
        self.hash = fold(fold(self.hash ^ at.as_nanos(), frame.id ^ KEYS[0]) ^ place, detail ^ KEYS[1]);
        // What arrives as it was sent was hashed when it was sent: the frame's number stands for it.
        if matches!(what, What::Sent | What::Injected) || matches!(what, What::Delivered) && !frame.marks.is_empty() {
            self.hash = mix_bytes(self.hash, &frame.bytes);
        }
        if self.keep {
            let (marks, bytes) = (frame.marks, Rc::clone(&frame.bytes));
            self.records.push(Record { at, host, what, frame: frame.id, marks, bytes });
        }
    }

    /// Notes a fault of a host's NIC.
    pub(crate) fn strike(&mut self, at: Instant, host: usize, strike: NicStrike) {
        *self.nic_count(strike.fault) += 1;
        self.events += 1;
        for word in [at.as_nanos(), host as u64, 32 + strike.fault as u64, strike.ring as u64, nanos(strike.lasts)] {
            self.hash = mix(self.hash, word);
        }
        self.note(at, Some(host), NoteKind::Mishap, || format!("NIC, ring {}: {:?} for {:?}", strike.ring, strike.fault, strike.lasts));
    }

    /// Something befell a host or its link as a whole.
    pub(crate) fn befell(&mut self, at: Instant, host: usize, mishap: Mishap) {
        // No frame has this number, nor these bytes.
        let none = Frame { id: u64::MAX, bytes: Rc::new([]), marks: Marks::default(), sound: false, unsolicited: false };
        let (last_at, silence_max) = (self.last_at, self.silence_max);
        self.record(at, host, What::Befell(mishap), &none);
        // The wire was silent all the same.
        (self.last_at, self.silence_max) = (last_at, silence_max);
        self.note(at, Some(host), NoteKind::Mishap, || mishap.to_string());
    }

    fn nic_count(&mut self, fault: NicFault) -> &mut u64 {
        let counts = &mut self.counts;
        match fault {
            NicFault::Reset => &mut counts.nic_resets,
            NicFault::SendError => &mut counts.send_errors,
            NicFault::CqOverrun => &mut counts.cq_overruns,
            NicFault::RxExhausted => &mut counts.rx_exhausted,
            NicFault::SendFull => &mut counts.send_full,
            NicFault::Registration => &mut counts.registration_failures,
            NicFault::Doorbell => &mut counts.delayed_doorbells,
            NicFault::Completion => &mut counts.late_completions,
        }
    }

    fn count(&mut self, what: What) {
        let counter = match what {
            What::Sent | What::Delivered | What::NoReceiver | What::Injected | What::Refused(RxDrop::Down) => return,
            What::Befell(mishap) => {
                self.counts.lied += u64::from(matches!(mishap, Mishap::Forged { believed: true, .. }));
                let Some(counter) = self.counts.of_mishap(mishap) else { return };
                counter
            }
            What::Refused(_) => &mut self.counts.queue_full,
            What::Struck(_, strike) => self.counts.of_strike(strike),
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
        What::Refused(RxDrop::Down) => (3, 2),
        What::NoReceiver => (4, 0),
        What::Injected => (5, 0),
        What::Befell(mishap) => mishap.digest(),
        What::Struck(direction, strike) => {
            let (kind, detail) = match strike {
                Strike::Lost => (16, 0),
                Strike::QueueFull => (18, 0),
                Strike::FrameCheck => (20, 0),
                Strike::Corrupted { bit, len } => (22, (bit as u64) << 4 | len as u64),
                Strike::HeldBack { by } => (24, nanos(by)),
                Strike::Duplicated { after } => (26, nanos(after)),
                Strike::BurstLost => (28, 0),
                Strike::HiddenCorruption { bytes: [a, b] } => (30, (a as u64) << 16 | b as u64),
                Strike::Delayed { by } => (32, nanos(by)),
                Strike::TooLong { mtu } => (34, mtu.into()),
                Strike::Partitioned => (36, 0),
                Strike::OneWay => (38, 0),
                Strike::LinkDown => (40, 0),
                Strike::HostDown => (42, 0),
                Strike::IcmpDelayed { by } => (44, nanos(by)),
                Strike::Marked => (46, 0),
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

/// Multiplies, and folds the product's upper half in: each bit of either factor reaches many of the result.
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    (product as u64) ^ (product >> 64) as u64
}

/// What the second words of pairs are multiplied as, so that a zero stands for something: the digits of pi.
const KEYS: [u64; 4] = [0x243f_6a88_85a3_08d3, 0x1319_8a2e_0370_7344, 0xa409_3822_299f_31d0, 0x082e_fa98_ec4e_6c89];

/// Eight words at a time, two of them in each of four lanes: one multiplication needn't wait for the other three.
fn mix_bytes(hash: u64, bytes: &[u8]) -> u64 {
    let mut lanes = KEYS.map(|key| hash ^ key);
    let (blocks, rest) = bytes.as_chunks::<64>();
    for block in blocks {
        mix_block(&mut lanes, block);
    }
    let mut last = [0; 64];
    last[..rest.len()].copy_from_slice(rest);
    mix_block(&mut lanes, &last);
    lanes.into_iter().fold(hash, mix)
}

#[inline]
fn mix_block(lanes: &mut [u64; 4], block: &[u8; 64]) {
    let (pairs, _) = block.as_chunks::<16>();
    for ((lane, key), pair) in lanes.iter_mut().zip(KEYS).zip(pairs) {
        let (words, _) = pair.as_chunks::<8>();
        let [first, second] = [words[0], words[1]].map(u64::from_le_bytes);
        *lane = fold(*lane ^ first, key ^ second);
    }
}

#[cfg(test)]
mod tests;
