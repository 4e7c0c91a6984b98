//! What the program wrote and the peer hasn't acknowledged, in the device's own buffers.

use std::collections::VecDeque;
use std::io::IoSlice;

use arrayvec::ArrayVec;

use crate::device::{GATHER_LIMIT, TxBuffer, TxSlice};
use crate::wire::tcp::SeqNumber;

/// Buffers are asked for in at least this size once a queue builds up, so that a segment gathers few of them.
const CHUNK_QUEUED: usize = 32 << 10;

struct Chunk<T> {
    buffer: T,
    /// The sequence number of the buffer's first byte, whether that is still needed or not.
    base: SeqNumber,
    /// Bytes written. Invariant: at most `room`; the next chunk's `base` is `base + written`.
    written: usize,
    /// Bytes that it takes: the buffer's capacity, or what was written before a record ended.
    room: usize,
    /// A record ends behind the last byte: no segment goes beyond it.
    ends_record: bool,
}

impl<T> Chunk<T> {
    #[inline]
    fn end(&self) -> SeqNumber {
        self.base + self.written
    }
}

/// The send queue: bytes `[una, end)` in sequence space.
pub(super) struct SendBuffer<T> {
    /// Invariant: covers `[una, end)` without gaps. A last chunk that is acknowledged but has room left stays for the next bytes.
    chunks: VecDeque<Chunk<T>>,
    una: SeqNumber,
    end: SeqNumber,
}

impl<T: TxBuffer> SendBuffer<T> {
    pub(super) fn new(start: SeqNumber) -> Self {
        Self { chunks: VecDeque::new(), una: start, end: start }
    }

    /// Bytes queued.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.end.since(self.una)
    }

    /// The sequence number behind the last byte.
    #[inline]
    pub(super) fn end(&self) -> SeqNumber {
        self.end
    }

    /// Whether buffers are held.
    #[cfg(test)]
    pub(super) fn holds_buffers(&self) -> bool {
        !self.chunks.is_empty()
    }

    /// Copies up to `room` bytes of `data` behind the queue, and gives how many there was a buffer for.
    #[inline(always)]
    pub(super) fn write(&mut self, data: &[IoSlice<'_>], room: usize, alloc: &mut impl FnMut(usize) -> Option<T>) -> usize {
        // One piece that finds room behind the last one: what small messages are.
        if let [only] = data
            && only.len() <= room
            && let Some(chunk) = self.chunks.back_mut()
            && only.len() <= chunk.room - chunk.written
        {
            chunk.buffer.write(chunk.written, only);
            chunk.written += only.len();
            self.end += only.len();
            return only.len();
        }
        self.write_pieces(data, room, alloc)
    }

    #[inline(never)]
    fn write_pieces(&mut self, data: &[IoSlice<'_>], mut room: usize, alloc: &mut impl FnMut(usize) -> Option<T>) -> usize {
        let mut total: usize = data.iter().map(|slice| slice.len()).sum();
        total = total.min(room);
        let mut copied = 0;
        for slice in data {
            let mut bytes = &slice[..slice.len().min(room)];
            room -= bytes.len();
            while !bytes.is_empty() {
                let took = self.append(bytes, total - copied, alloc);
                if took == 0 {
                    return copied;
                }
                copied += took;
                bytes = &bytes[took..];
            }
        }
        copied
    }

    /// Appends a part of `bytes` that fits into one buffer. `expected`: how many bytes will follow in all.
    #[inline]
    fn append(&mut self, bytes: &[u8], expected: usize, alloc: &mut impl FnMut(usize) -> Option<T>) -> usize {
        let full = self.chunks.back().is_none_or(|chunk| chunk.written >= chunk.room);
        if full {
            let wanted = expected.max(self.len().min(CHUNK_QUEUED));
            let Some(buffer) = alloc(wanted).filter(|buffer| buffer.capacity() > 0) else { return 0 };
            if self.len() == 0 {
                self.chunks.clear();
            }
            let room = buffer.capacity();
            self.chunks.push_back(Chunk { buffer, base: self.end, written: 0, room, ends_record: false });
        }
        let Some(chunk) = self.chunks.back_mut() else { return 0 };
        let len = bytes.len().min(chunk.room - chunk.written);
        chunk.buffer.write(chunk.written, &bytes[..len]);
        chunk.written += len;
        self.end += len;
        len
    }

    /// A record ends with the last byte: what follows goes into another buffer, and into other segments. (The rest of this one stays empty, as Linux has a new buffer for
    /// each record.)
    pub(super) fn end_record(&mut self) {
        if let Some(last) = self.chunks.back_mut() {
            (last.room, last.ends_record) = (last.written, true);
        }
    }

    /// Whether a record ends at `seq`.
    #[inline(never)]
    pub(super) fn ends_record_at(&self, seq: SeqNumber) -> bool {
        let index = self.chunks.partition_point(|chunk| chunk.end().lt(seq));
        self.chunks.get(index).is_some_and(|chunk| chunk.ends_record && chunk.end() == seq)
    }

    /// Everything before `una` is acknowledged. Keeps a last buffer that has room left.
    #[inline(always)]
    pub(super) fn acknowledge(&mut self, una: SeqNumber, hoards: bool) {
        self.una = una.min(self.end).max(self.una);
        let is_kept = |chunk: &Chunk<T>| chunk.written < chunk.room;
        // (Of few bytes, mostly the only one.)
        if self.chunks.len() == 1 && self.chunks.front().is_some_and(is_kept) || hoards && self.una != self.end {
            return;
        }
        self.drop_acknowledged();
    }

    #[inline(never)]
    fn drop_acknowledged(&mut self) {
        while let Some(front) = self.chunks.front() {
            let reusable = self.chunks.len() == 1 && front.written < front.room;
            if front.end().gt(self.una) || reusable {
                return;
            }
            self.chunks.pop_front();
        }
    }

    /// Lets go of everything that an idle connection need not hold.
    pub(super) fn release_idle(&mut self) {
        if self.len() == 0 {
            self.chunks = VecDeque::new();
        }
    }

    /// A copy of all bytes.
    pub(super) fn to_vec(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.len());
        for chunk in &self.chunks {
            let from = if self.una.gt(chunk.base) { self.una.since(chunk.base) } else { 0 };
            let at = bytes.len();
            bytes.resize(at + chunk.written.saturating_sub(from), 0);
            chunk.buffer.copy_to(from.min(chunk.written), &mut bytes[at..]);
        }
        bytes
    }

    /// Forgets all bytes: nobody will acknowledge them.
    pub(super) fn clear(&mut self) {
        self.una = self.end;
        self.chunks = VecDeque::new();
    }

    /// Never gives the buffers back: what a mutant does.
    pub(super) fn leak(&mut self) {
        core::mem::forget(core::mem::take(&mut self.chunks));
    }

    /// Adds the slices that hold `len` bytes from `seq` on, at most `gather_max` of them, and gives how many bytes they have.
    #[inline]
    pub(super) fn gather<'a>(
        &'a self,
        seq: SeqNumber,
        len: usize,
        gather_max: usize,
        slices: &mut ArrayVec<TxSlice<'a, T>, GATHER_LIMIT>,
    ) -> usize {
        // New bytes are nearly always in the last buffer.
        if let Some(last) = self.chunks.back()
            && last.base.le(seq)
        {
            let offset = seq.since(last.base);
            let len = last.written.saturating_sub(offset).min(len);
            slices.push(TxSlice { buffer: &last.buffer, offset, len });
            return len;
        }
        self.gather_from_several(seq, len, gather_max.clamp(1, GATHER_LIMIT), slices)
    }

    /// The `len` bytes from `seq` on, if they lie in the last buffer.
    #[inline(always)]
    pub(super) fn in_one_piece(&self, seq: SeqNumber, len: usize) -> Option<TxSlice<'_, T>> {
        let last = self.chunks.back().filter(|last| last.base.le(seq))?;
        let offset = seq.since(last.base);
        (offset + len <= last.written).then_some(TxSlice { buffer: &last.buffer, offset, len })
    }

    #[inline(never)]
    fn gather_from_several<'a>(
        &'a self,
        seq: SeqNumber,
        len: usize,
        gather_max: usize,
        slices: &mut ArrayVec<TxSlice<'a, T>, GATHER_LIMIT>,
    ) -> usize {
        let mut index = self.chunks.partition_point(|chunk| chunk.end().le(seq));
        let mut gathered = 0;
        while gathered < len && slices.len() < gather_max {
            let Some(chunk) = self.chunks.get(index) else { break };
            let offset = (seq + gathered).since(chunk.base);
            let part = chunk.written.saturating_sub(offset).min(len - gathered);
            if part == 0 {
                break;
            }
            slices.push(TxSlice { buffer: &chunk.buffer, offset, len: part });
            gathered += part;
            index += 1;
            if chunk.ends_record {
                break;
            }
        }
        gathered
    }
}
