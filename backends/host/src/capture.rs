//! How one process sees the frames of another's rings: through memory that the one which is seen writes, and the other one maps read-only.
//!
//! Whoever captures asks a process by a dialogue ([`Watched`]), which answers with a descriptor for each ring, and begins to write what passes there
//! ([`Writer`]). The memory is a ring: what is new takes the place of what is oldest, whether anybody has read that or not, so that the writer never waits,
//! and asks nobody. A reader that was overtaken ([`Reader`]) knows it by the frames' numbers, and by how far the writer had got when it had read. When the dialogue
//! ends, which it does with the process that began it, however that ends, the writer is taken away.
//!
//! The memory's first page has words: a magic number, how many bytes there are for frames, up to where the writer is writing, up to where it has written, and
//! how many frames that were. A frame is four words and its bytes, padded to whole words.

mod ask;
mod memory;

pub use ask::{Answer, Watched};

use core::sync::atomic::{Ordering, fence};
use std::io;
use std::os::fd::OwnedFd;

use ringway_stack::ring::{Seen, Tap};

use self::memory::{Memory, PAGE};
use crate::{Clock, Fd};

/// The longest frame that is kept whole, and the most that is kept of one.
pub const SNAPLEN_MAX: usize = 0x1_0100;
/// Bytes for the frames of a ring.
pub const BYTES_MIN: usize = 256 << 10;
/// The most of them.
pub const BYTES_MAX: usize = 64 << 20;
/// A process has so many rings at most.
pub const RINGS_MAX: u16 = 64;

const MAGIC: u64 = u64::from_le_bytes(*b"RINGCAP1");

/// The words of the first page.
const MAGIC_AT: usize = 0;
const BYTES_AT: usize = 1;
const WRITING_AT: usize = 2;
const WRITTEN_AT: usize = 3;
const FRAMES_AT: usize = 4;

/// A frame's own words: its length in the memory and how many bytes are kept; its real length, flags and VLAN tag; its time; its number.
const HEADER: usize = 32;
const IS_SENT: u64 = 1;
const HAS_TAG: u64 = 2;
const CHECKSUMS_LEFT: u64 = 4;

/// The writing side.
#[derive(Debug)]
pub struct Writer {
    memory: Memory,
    clock: Clock,
    /// For frames, a power of two.
    bytes: u64,
    snaplen: usize,
    at: u64,
    frames: u64,
    /// The frame that is being put together. Invariant: it has room for the longest.
    frame: Vec<u8>,
}

impl Writer {
    /// Makes the memory, and a descriptor of it that others can only read.
    ///
    /// # Errors
    /// The system's; EINVAL: fewer or more bytes than there may be.
    pub fn new(bytes: usize, snaplen: usize, clock: Clock) -> io::Result<(Self, Fd)> {
        if !(BYTES_MIN..=BYTES_MAX).contains(&bytes) || !bytes.is_power_of_two() {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        let (memory, fd) = Memory::make(PAGE + bytes)?;
        let snaplen = snaplen.min(SNAPLEN_MAX);
        memory.word(BYTES_AT).store(bytes as u64, Ordering::Relaxed);
        memory.word(MAGIC_AT).store(MAGIC, Ordering::Release);
        let frame = Vec::with_capacity(HEADER + SNAPLEN_MAX + 8);
        Ok((Self { memory, clock, bytes: bytes as u64, snaplen, at: 0, frames: 0, frame }, fd))
    }

    /// Puts the frame together.
    fn assemble(&mut self, seen: &Seen<'_>, time_ns: u64) {
        let kept = seen.len.min(self.snaplen);
        let head = &seen.head[..seen.head.len().min(kept)];
        let len = (HEADER + kept).next_multiple_of(8);
        let flag = |is_set, flag| if is_set { flag } else { 0 };
        let flags = flag(seen.is_sent, IS_SENT) | flag(seen.vlan.is_some(), HAS_TAG) | flag(seen.checksums_left, CHECKSUMS_LEFT);
        self.frame.clear();
        for word in [
            (len as u64) << 32 | kept as u64,
            (seen.len as u64) << 32 | u64::from(seen.vlan.unwrap_or(0)) << 16 | flags,
            time_ns,
            self.frames,
        ] {
            self.frame.extend_from_slice(&word.to_le_bytes());
        }
        self.frame.extend_from_slice(head);
        self.frame.resize(len, 0);
        if kept > head.len() {
            (seen.rest)(&mut self.frame[HEADER + head.len()..HEADER + kept]);
        }
    }
}

impl Tap for Writer {
    fn frame(&mut self, seen: &Seen<'_>) {
        let time_ns = self.clock.now().as_nanos();
        self.assemble(seen, time_ns);
        let end = self.at + self.frame.len() as u64;
        self.memory.word(WRITING_AT).store(end, Ordering::Relaxed);
        // Who has read any of what follows sees that it was being written.
        fence(Ordering::Release);
        for (number, word) in self.frame.as_chunks::<8>().0.iter().enumerate() {
            let offset = (self.at + number as u64 * 8) & (self.bytes - 1);
            self.memory.data(offset as usize).store(u64::from_le_bytes(*word), Ordering::Relaxed);
        }
        self.at = end;
        self.frames += 1;
        self.memory.word(FRAMES_AT).store(self.frames, Ordering::Relaxed);
        self.memory.word(WRITTEN_AT).store(end, Ordering::Release);
    }
}

/// A frame as it was seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Frame {
    /// Nanoseconds on CLOCK_MONOTONIC's scale.
    pub time_ns: u64,
    /// It left; else it came.
    pub is_sent: bool,
    /// The VLAN tag that the device adds to these bytes, or has taken out of them.
    pub vlan: Option<u16>,
    /// Its checksums were left to the device.
    pub checksums_left: bool,
    /// How long it is.
    pub len: usize,
    /// Its first bytes.
    pub bytes: Vec<u8>,
    /// Frames that were lost between the one before and this one.
    pub lost: u64,
}

/// The reading side. Nothing that is in the memory is trusted.
#[derive(Debug)]
pub struct Reader {
    memory: Memory,
    bytes: u64,
    at: u64,
    /// The number of the next frame.
    next: u64,
}

impl Reader {
    /// Maps what a process has answered with.
    ///
    /// # Errors
    /// The system's; [`io::ErrorKind::InvalidData`]: it is no such memory.
    pub fn new(fd: &OwnedFd) -> io::Result<Self> {
        let memory = Memory::open(fd, BYTES_MIN..=BYTES_MAX)?;
        let bytes = (memory.len() - PAGE) as u64;
        if memory.word(MAGIC_AT).load(Ordering::Acquire) != MAGIC || memory.word(BYTES_AT).load(Ordering::Relaxed) != bytes {
            return Err(io::ErrorKind::InvalidData.into());
        }
        Ok(Self { memory, bytes, at: 0, next: 0 })
    }

    /// How many frames were seen so far, by what the writer says.
    pub fn seen(&self) -> u64 {
        self.memory.word(FRAMES_AT).load(Ordering::Relaxed)
    }

    /// The next frame; `None`: there is none yet. Who was overtaken goes on with what comes from now on.
    pub fn next_frame(&mut self) -> Option<Frame> {
        let written = self.memory.word(WRITTEN_AT).load(Ordering::Acquire);
        let there = written.wrapping_sub(self.at);
        if there == 0 {
            return None;
        }
        let frame = (there <= self.bytes).then(|| self.read(there)).flatten();
        fence(Ordering::Acquire);
        let writing = self.memory.word(WRITING_AT).load(Ordering::Relaxed);
        let Some((mut frame, number, len)) = frame.filter(|_| writing.wrapping_sub(self.at) <= self.bytes) else {
            self.at = self.memory.word(WRITTEN_AT).load(Ordering::Acquire);
            return None;
        };
        self.at = self.at.wrapping_add(len);
        frame.lost = number.saturating_sub(self.next);
        self.next = number.wrapping_add(1);
        Some(frame)
    }

    /// Reads what may be a frame. `None`: it is none, whether it was overwritten meanwhile, or never was one.
    fn read(&self, there: u64) -> Option<(Frame, u64, u64)> {
        let word = |number: u64| {
            let offset = self.at.wrapping_add(number * 8) & (self.bytes - 1) & !7;
            self.memory.data(offset as usize).load(Ordering::Relaxed)
        };
        let [lengths, facts, time_ns, number] = [word(0), word(1), word(2), word(3)];
        let (len, kept) = (lengths >> 32, (lengths & u64::from(u32::MAX)) as usize);
        if kept > SNAPLEN_MAX || len != (HEADER + kept).next_multiple_of(8) as u64 || len > there {
            return None;
        }
        let mut bytes = Vec::with_capacity(len as usize);
        (HEADER as u64 / 8..len / 8).for_each(|number| bytes.extend_from_slice(&word(number).to_le_bytes()));
        bytes.truncate(kept);
        let frame = Frame {
            time_ns,
            is_sent: facts & IS_SENT != 0,
            vlan: (facts & HAS_TAG != 0).then_some((facts >> 16) as u16),
            checksums_left: facts & CHECKSUMS_LEFT != 0,
            len: ((facts >> 32) as usize).max(kept),
            bytes,
            lost: 0,
        };
        Some((frame, number, len))
    }
}

#[cfg(test)]
mod tests;
