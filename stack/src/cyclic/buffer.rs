//! The buffer: records written behind each other, runs given out, and a rewind between the two.

use core::ops::Range;
use std::collections::VecDeque;

use super::{Geometry, GeometryError, Layout, Records};
use crate::device::{Capabilities, RxBuffer, Unsupported};
use crate::mutants::{Mutant, Mutation};
use crate::time::Instant;

/// Memory that records are written to. It may be the program's own, which reads it meanwhile: elsewhere than where is written.
pub trait RecordMemory {
    /// Its length in bytes.
    fn len(&self) -> usize;

    /// Whether it has none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Lets `fill` write `len` bytes from `at` on, which are within it.
    fn fill(&mut self, at: usize, len: usize, fill: impl FnOnce(&mut [u8]));
}

impl RecordMemory for Vec<u8> {
    fn len(&self) -> usize {
        Self::len(self)
    }

    fn fill(&mut self, at: usize, len: usize, fill: impl FnOnce(&mut [u8])) {
        fill(&mut self[at..at + len]);
    }
}

/// A received packet, as its parts lie.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a, B> {
    /// Its headers, from Ethernet to UDP.
    pub headers: &'a [u8],
    /// What of its payload was copied out of the device's buffers: two parts, one behind the other.
    pub copied: [&'a [u8]; 2],
    /// The rest, where the device put it.
    pub buffers: &'a [B],
    /// When it was received.
    pub received: Instant,
}

impl<B: RxBuffer> Packet<'_, B> {
    /// Bytes of its payload.
    pub fn payload_len(&self) -> usize {
        self.copied.iter().map(|part| part.len()).sum::<usize>() + self.buffers.iter().map(RxBuffer::len).sum::<usize>()
    }

    /// Copies its payload from byte `skip` on, as much as fits; how much that was.
    fn copy_payload(&self, mut skip: usize, out: &mut [u8]) -> usize {
        let mut copied = 0;
        for part in self.copied {
            let from = skip.min(part.len());
            let len = (part.len() - from).min(out.len() - copied);
            out[copied..copied + len].copy_from_slice(&part[from..from + len]);
            (skip, copied) = (skip - from, copied + len);
        }
        for buffer in self.buffers {
            let from = skip.min(buffer.len());
            let len = (buffer.len() - from).min(out.len() - copied);
            if len > 0 {
                buffer.copy_to(from, &mut out[copied..copied + len]);
            }
            (skip, copied) = (skip - from, copied + len);
        }
        copied
    }
}

/// Why a packet was not written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The buffer ends before it: it is to be offered again after the next read.
    #[error("the cyclic buffer's linear end")]
    End,
    /// It is longer than a record, or than the whole buffer: it never fits.
    #[error("a packet that is longer than a cyclic buffer's records")]
    Oversized,
}

/// Why a cyclic buffer was not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CyclicError {
    /// The caller: fewer packets at most than at least, or none at most.
    #[error("between {min} and {max} packets of a cyclic buffer")]
    Invalid {
        /// At least.
        min: usize,
        /// At most.
        max: usize,
    },
    /// A packet came that no record holds, and is gone: what follows is not what the program expects. The next call goes on behind it.
    #[error(transparent)]
    Oversized(Refused),
    /// A socket's own.
    #[error(transparent)]
    Socket(#[from] crate::error::Error),
}

impl CyclicError {
    /// Whether so many packets can be asked for.
    pub(crate) const fn check(min: usize, max: usize) -> Result<(), Self> {
        if min > max || max == 0 { Err(Self::Invalid { min, max }) } else { Ok(()) }
    }
}

/// Packets that lie one behind the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// How many.
    pub packets: usize,
    /// Where their records lie, in bytes from the memory's beginning.
    pub payload: Range<usize>,
    /// Where their headers do, if headers lie apart; empty if they don't.
    pub headers: Range<usize>,
    /// When the first was received.
    pub received: Instant,
    /// The same by the device's clock, if it says so: see [`super::Strides`].
    pub hardware_time: Option<Instant>,
}

/// A packet that was written and not given out.
#[derive(Clone, Copy, Debug)]
struct Written {
    records: usize,
    received: Instant,
}

/// A cyclic buffer. See the module's documentation.
#[derive(Debug)]
pub struct CyclicBuffer<M> {
    layout: Layout,
    memory: M,
    /// Invariant: `given <= end <= layout.count`, counted in records since the last rewind: what was given out, and what was written.
    given: usize,
    end: usize,
    /// A packet found no room before the linear end.
    is_full: bool,
    ready: VecDeque<Written>,
    rewinds: u64,
    oversized: u64,
    pub(crate) mutation: Mutation,
}

impl<M: RecordMemory> CyclicBuffer<M> {
    /// A buffer of this geometry, in memory for at least [`Layout::bytes`] bytes.
    ///
    /// # Errors
    /// [`GeometryError`].
    pub fn new(geometry: &Geometry, memory: M) -> Result<Self, GeometryError> {
        let layout = geometry.layout()?;
        if memory.len() < layout.bytes() {
            return Err(GeometryError::NoRoom(layout.bytes()));
        }
        let (ready, mutation) = (VecDeque::new(), Mutation::HEALTHY);
        Ok(Self { layout, memory, given: 0, end: 0, is_full: false, ready, rewinds: 0, oversized: 0, mutation })
    }

    /// What a device lacks, to do the same by itself: why this is done in software, to be told to whoever asks. `None`: it has striding receive
    /// queues.
    pub fn lacking(device: &Capabilities) -> Option<Unsupported> {
        (!device.striding).then(|| device.lacks("striding receive queue"))
    }

    /// Where its records lie.
    pub const fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The memory that they lie in.
    pub const fn memory(&self) -> &M {
        &self.memory
    }

    /// Packets that were written and not given out.
    pub fn waiting(&self) -> usize {
        self.ready.len()
    }

    /// How often it went back to its beginning.
    pub const fn rewinds(&self) -> u64 {
        self.rewinds
    }

    /// Packets that were longer than their record.
    pub const fn oversized(&self) -> u64 {
        self.oversized
    }

    /// Writes a packet behind the last one.
    ///
    /// # Errors
    /// [`Refused`]; nothing was written.
    pub fn write<B: RxBuffer>(&mut self, packet: &Packet<'_, B>) -> Result<(), Refused> {
        let records = self.offer(packet.headers.len(), packet.payload_len())?;
        let record = self.end..self.end + records;
        let skip = if self.layout.header_bytes > 0 { self.write_headers(&record, packet) } else { 0 };
        let payload = self.layout.payload(record);
        let headers = if self.is_whole() { packet.headers } else { &[] };
        self.memory.fill(payload.start, payload.len(), |out| {
            out[..headers.len()].copy_from_slice(headers);
            let end = headers.len() + packet.copy_payload(skip, &mut out[headers.len()..]);
            out[end..].fill(0);
        });
        self.end += records;
        self.ready.push_back(Written { records, received: packet.received });
        Ok(())
    }

    /// How many records a packet of these headers and this payload, in bytes, is going to take. To be asked for one that could not be
    /// offered a second time.
    ///
    /// # Errors
    /// [`Refused`], as if it had been written.
    pub fn offer(&mut self, headers: usize, payload: usize) -> Result<usize, Refused> {
        let Some(records) = self.records_of(headers, payload) else {
            self.oversized += 1;
            return Err(Refused::Oversized);
        };
        if self.end + records > self.layout.count {
            self.is_full = true;
            return Err(Refused::End);
        }
        Ok(records)
    }

    /// Gives out the next run: at least `min` packets (and one), at most `max`; fewer than `min` only where the buffer ends. `None`: not that many
    /// are there yet. What was given out is as it was until a call finds all of it given out and the buffer at its end, and rewinds.
    ///
    /// # Errors
    /// [`CyclicError::Invalid`].
    pub fn read(&mut self, min: usize, max: usize) -> Result<Option<Run>, CyclicError> {
        CyclicError::check(min, max)?;
        self.rewind_at_end();
        Ok(self.take(min, max))
    }

    /// Goes back to the beginning if everything up to the linear end was given out. The first thing that a call to read does; for who writes between two
    /// reads, and on behalf of the second.
    pub fn rewind_at_end(&mut self) {
        if self.ready.is_empty() && self.is_at_end() {
            (self.given, self.end, self.is_full) = (0, 0, self.is_full && self.mutation.is(Mutant::CyclicStaysFull));
            self.rewinds += 1;
        }
    }

    /// The next run, if there is one.
    pub(crate) fn take(&mut self, min: usize, max: usize) -> Option<Run> {
        let packets = self.ready.len().min(max);
        let received = self.ready.front()?.received;
        if packets < min && !self.is_at_end() {
            return None;
        }
        let records: usize = self.ready.drain(..packets).map(|written| written.records).sum();
        let range = self.given..self.given + records;
        self.given = range.end;
        Some(Run {
            packets,
            payload: self.layout.payload(range.clone()),
            headers: self.layout.headers(range),
            received,
            hardware_time: None,
        })
    }

    /// Nothing is written any more before a rewind.
    fn is_at_end(&self) -> bool {
        self.is_full || self.end == self.layout.count
    }

    fn is_whole(&self) -> bool {
        matches!(self.layout.records, Records::Raw | Records::Padded)
    }

    /// How many records a packet takes. `None`: it fits nowhere.
    fn records_of(&self, net: usize, payload: usize) -> Option<usize> {
        let Layout { records, record_bytes, header_bytes, net_bytes, count, .. } = self.layout;
        match records {
            Records::Raw => (net + payload <= record_bytes).then_some(1),
            Records::Padded => Some((net + payload).div_ceil(record_bytes)).filter(|&strides| strides <= count),
            Records::StripHeaders => (payload <= header_bytes + record_bytes).then_some(1),
            Records::SeparateHeaders => (net <= net_bytes && payload <= header_bytes - net_bytes + record_bytes).then_some(1),
        }
    }

    /// Writes a packet's entry of the array of headers; how many bytes of its payload are in there.
    fn write_headers<B: RxBuffer>(&mut self, record: &Range<usize>, packet: &Packet<'_, B>) -> usize {
        let Layout { header_bytes, net_bytes, .. } = self.layout;
        let entry = self.layout.headers(record.clone());
        let net = if net_bytes > 0 { packet.headers } else { &[] };
        self.memory.fill(entry.start, entry.len(), |out| {
            let (network, own) = out.split_at_mut(net_bytes);
            network[..net.len()].copy_from_slice(net);
            network[net.len()..].fill(0);
            let len = packet.copy_payload(0, own);
            own[len..].fill(0);
        });
        header_bytes - net_bytes
    }
}
