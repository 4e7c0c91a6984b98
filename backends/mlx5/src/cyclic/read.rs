//! Reading a cyclic queue: completions become packets of a run, as long as they follow one another in the buffer.

use core::mem::{self, MaybeUninit};

use ringway_stack::device::{CyclicPacket, RxMeta};

use super::Cyclic;
use crate::clock::CardClock;
use crate::memory::Received;
use crate::mutants::{self, Mutant};

/// In a completion's word: its strides are filler.
const FILLER: u32 = 1 << 31;

/// Packets of a run at most.
const PACKETS_MAX: usize = 1024;

/// Where the next frame is expected: an entry, as the card counts them, in its order of bytes; a stride of it; and how many strides from that on are the card's. (There are none
/// of an entry that is full, or was not posted.)
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Place {
    entry: u16,
    stride: u16,
    left: u32,
}

/// A frame that was not read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Filled {
    pub(super) start: u64,
    end: u64,
    len: usize,
    meta: RxMeta,
}

/// A run that is being read.
struct Reading<'a> {
    /// Where its next packets go.
    room: &'a mut [MaybeUninit<CyclicPacket>],
    /// Where in the buffer it begins, and how long it is, in bytes.
    place: usize,
    len: usize,
}

/// What became of a completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// It was read.
    Taken,
    /// It is for the next run, or there is none.
    Over,
    /// It is not of strides that follow those before.
    Other,
}

impl Cyclic {
    /// The next run: see [`ringway_stack::device::Queues::cyclic_read`].
    ///
    /// Completions that a run has no use for stay where they are: there is an entry for each stride, and a frame takes one at least.
    pub(crate) fn read(&mut self, packets_max: usize, packets: &mut Vec<CyclicPacket>) -> Option<Received> {
        if self.written >= self.free_at {
            self.recycle();
        }
        let packets_max = packets_max.min(PACKETS_MAX);
        packets.reserve(packets_max);
        let (before, place) = (packets.len(), self.bytes_at(self.written));
        let mut reading = Reading { room: &mut packets.spare_capacity_mut()[..packets_max], place, len: 0 };
        let last = if self.free_at > 0 {
            let last = self.read_completions(&mut reading);
            self.cq.release();
            last
        } else {
            self.read_left(&mut reading)
        };
        let Reading { room, place, len } = reading;
        let count = packets_max - room.len();
        if len == 0 {
            if last == Step::Other {
                self.fail();
            }
            return None;
        }
        // SAFETY: as many were written behind those that there were.
        unsafe { packets.set_len(before + count) };
        let at = place & ((1 << self.log_piece) - 1);
        // SAFETY: the buffer ends with the last piece.
        Some(unsafe { self.memory.hold_run((place >> self.log_piece) as u32, at as u32, len as u32) })
    }

    /// Reads by completions, as long as there are some that belong to one run.
    #[inline(always)]
    fn read_completions(&mut self, reading: &mut Reading<'_>) -> Step {
        loop {
            if !self.cq.is_in_run() {
                let step = self.read_plain(reading);
                if step == Step::Over {
                    return step;
                }
            }
            let step = self.read_run(reading);
            if step != Step::Taken {
                return step;
            }
        }
    }

    /// Reads frames that have a completion each.
    #[inline(always)]
    fn read_plain(&mut self, reading: &mut Reading<'_>) -> Step {
        loop {
            let cqe = match self.cq.peek_frame(0) {
                Ok(cqe) => cqe,
                Err(is_other) => return if is_other { Step::Other } else { Step::Over },
            };
            let (entry, stride, word) = (cqe.striding_entry(), cqe.counter(), cqe.byte_count());
            match self.step(reading, entry, stride, word, |clock| cqe.meta(clock)) {
                Step::Taken => self.cq.advance(),
                step => return step,
            }
        }
    }

    /// Reads frames of the compressed run that is open, or that begins.
    #[inline(never)]
    fn read_run(&mut self, reading: &mut Reading<'_>) -> Step {
        let Some(run) = self.cq.open_run() else { return Step::Other };
        let title = run.title();
        if !title.is_frame() {
            return Step::Other;
        }
        let (entry, meta) = (title.striding_entry(), title.meta(self.clock.as_ref()));
        let (mut count, mut last) = (0, Step::Taken);
        while last == Step::Taken
            && let Some(words) = self.cq.run_words(count)
        {
            last = self.step(reading, entry, words.stride(), words.byte_count(), |_| meta);
            count += usize::from(last == Step::Taken);
        }
        self.cq.advance_run(count as u32);
        last
    }

    /// Goes on by what a completion says: the queue's entry, the first stride in it, and a word of how many there are and how long the frame in them is.
    #[inline(always)]
    fn step(
        &mut self,
        reading: &mut Reading<'_>,
        entry: u16,
        stride: u16,
        word: u32,
        meta: impl FnOnce(Option<&CardClock>) -> RxMeta,
    ) -> Step {
        let word = if mutants::is(Mutant::FillerIsFrame) { word & !FILLER } else { word };
        let (strides, len) = (word >> 16, (word & 0xffff) as usize);
        let bytes = (strides as usize) << self.strides.log_bytes;
        // (None, too many, and filler, which has the highest bit, all at once.)
        let fits = strides.wrapping_sub(1) < self.next.left && len <= bytes;
        if !fits || !self.is_next(entry, stride) {
            return self.step_aside(reading, entry, stride, word, meta);
        }
        if reading.room.is_empty() {
            return Step::Over;
        }
        let (packet, room) = mem::take(&mut reading.room).split_first_mut().expect("there is room");
        reading.room = room;
        let offset = reading.len;
        let before = if mutants::is(Mutant::StrideMisplaced) && offset > 0 { 1 << self.strides.log_bytes } else { 0 };
        packet.write(CyclicPacket { offset: offset - before, place: reading.place + offset, len, meta: meta(self.clock.as_ref()) });
        reading.len = offset + bytes;
        self.advance(strides, bytes);
        Step::Taken
    }

    /// The same, of what is no frame that has its place behind the one before: it is in the next entry, filler, or makes no sense.
    #[cold]
    #[inline(never)]
    fn step_aside(
        &mut self,
        reading: &mut Reading<'_>,
        entry: u16,
        stride: u16,
        word: u32,
        meta: impl FnOnce(Option<&CardClock>) -> RxMeta,
    ) -> Step {
        let left = self.next.left;
        if left == 0 {
            // Behind the linear end, the next frame begins before the run's.
            if reading.len > 0 && self.bytes_at(self.written) == 0 {
                return Step::Over;
            }
            return if self.open_entry() { self.step(reading, entry, stride, word, meta) } else { Step::Other };
        }
        let strides = word >> 16 & 0x3fff;
        if word & FILLER == 0 || !(1..=left).contains(&strides) || !self.is_next(entry, stride) {
            return Step::Other;
        }
        // (Filler lies between two runs.)
        if reading.len > 0 {
            return Step::Over;
        }
        self.advance(strides, (strides as usize) << self.strides.log_bytes);
        reading.place = self.bytes_at(self.written);
        Step::Taken
    }

    /// Whether a completion is of what is expected next.
    #[inline(always)]
    fn is_next(&self, entry: u16, stride: u16) -> bool {
        stride == self.next.stride && (entry ^ self.next.entry) & self.entries == 0
    }

    /// So many strides more are filled, within an entry.
    #[inline(always)]
    fn advance(&mut self, strides: u32, bytes: usize) {
        self.written += bytes as u64;
        self.next.stride = self.next.stride.wrapping_add(strides as u16);
        self.next.left -= strides;
    }

    /// The entry before is full: the next one's turn has come. `false`: it is not posted.
    fn open_entry(&mut self) -> bool {
        let entry = self.written >> self.log_piece;
        let left = if entry < self.told { 1 << self.strides.log_count } else { 0 };
        self.next = Place { entry: ((entry - self.origin) as u16).to_be(), stride: 0, left };
        left > 0
    }

    /// Reads what was left when the queue failed.
    #[cold]
    fn read_left(&mut self, reading: &mut Reading<'_>) -> Step {
        let mut end = self.left.front().map_or(self.written, |first| first.start);
        reading.place = self.bytes_at(end);
        while let Some(&Filled { start, end: behind, len, meta }) = self.left.front()
            && start == end
            && (reading.len == 0 || self.bytes_at(start) > reading.place)
            && let Some((packet, room)) = mem::take(&mut reading.room).split_first_mut()
        {
            reading.room = room;
            packet.write(CyclicPacket { offset: reading.len, place: reading.place + reading.len, len, meta });
            reading.len += (behind - start) as usize;
            end = behind;
            self.left.pop_front();
        }
        Step::Over
    }

    /// Where in the buffer something lies, by how many bytes were filled before.
    #[inline(always)]
    fn bytes_at(&self, written: u64) -> usize {
        written as usize & self.buffer_mask
    }

    /// A completion is of a failure, or makes no sense.
    #[cold]
    fn fail(&mut self) {
        if let Some(cqe) = self.cq.take() {
            let (syndrome, vendor) = cqe.syndromes();
            tracing::warn!("a receive into strides has failed: {syndrome:#x}, {vendor:#x}");
            self.restart();
        }
    }

    /// Keeps the frames that have come, up to what is none or makes no sense: they can be read when the queue has begun anew.
    pub(super) fn keep_all(&mut self) {
        while let Some(cqe) = self.cq.take().filter(|cqe| cqe.is_frame()) {
            // (Each is a run of its own, so that the buffer's end and filler are no matter.)
            let (start, mut packet) = (self.written, [MaybeUninit::uninit()]);
            let mut reading = Reading { room: &mut packet, place: 0, len: 0 };
            let (entry, stride, word) = (cqe.striding_entry(), cqe.counter(), cqe.byte_count());
            if self.step(&mut reading, entry, stride, word, |clock| cqe.meta(clock)) != Step::Taken {
                break;
            }
            if reading.len > 0 {
                self.free_at = 0;
                self.left.push_back(Filled {
                    start,
                    end: self.written,
                    len: (word & 0xffff) as usize,
                    meta: cqe.meta(self.clock.as_ref()),
                });
            }
        }
    }
}
