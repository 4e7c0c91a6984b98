//! A ring's part of the card's memory, into which the payload of what is sent is copied, so that the card fetches nothing from the process's.
//!
//! Frames leave in the order in which they were posted, and so their bytes lie one behind the other and go around: what was copied last is at the end of what the
//! card reads, and what is let go of at its beginning.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use ringway_stack::device::{DEVICE_MEMORY_ALIGN, TxBuffer as _, TxSlice};

use crate::buffer::SendBuffer;
use crate::mutants::{self, Mutant};
use crate::verbs::{Dm, Pd, Region};

/// See the module's documentation. (Its region ends before the memory does.)
#[derive(Debug)]
pub(crate) struct Staging {
    region: Region,
    memory: Dm,
    room: Room,
    /// A frame's bytes, to be copied in whole words.
    words: Vec<u8>,
    pub(crate) counters: StagingCounters,
}

/// What was sent from there.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct StagingCounters {
    pub(crate) frames: u64,
    pub(crate) bytes: u64,
    /// Frames for which there was no room.
    pub(crate) too_full: u64,
}

impl Staging {
    /// Of so many bytes of the card's.
    pub(crate) fn new(pd: &Arc<Pd>, len: usize) -> io::Result<Self> {
        let len = len.next_multiple_of(DEVICE_MEMORY_ALIGN);
        let memory = Dm::new(pd, len)?;
        let region = Region::of_card(pd, &memory, len)?;
        tracing::info!("{len} bytes of the card's memory are for what a ring sends");
        Ok(Self { region, memory, room: Room::new(len), words: Vec::new(), counters: StagingCounters::default() })
    }

    /// Copies the payload of the frame whose entry begins at a block: where it is, as the card names it, and the key. `None`: there is no room for it now, or some of it is
    /// on the card already.
    pub(crate) fn stage(&mut self, block: u16, body: &[TxSlice<'_, SendBuffer>]) -> Option<(usize, u32)> {
        let len: usize = body.iter().map(|slice| slice.len).sum();
        if body.iter().any(|slice| slice.buffer.is_on_card()) {
            return None;
        }
        let Some(at) = self.room.place(len.next_multiple_of(DEVICE_MEMORY_ALIGN)) else {
            self.counters.too_full += 1;
            return None;
        };
        self.words.clear();
        for slice in body {
            let begin = self.words.len();
            self.words.resize(begin + slice.len, 0);
            slice.buffer.copy_to(slice.offset, &mut self.words[begin..]);
        }
        self.words.resize(len.next_multiple_of(DEVICE_MEMORY_ALIGN), 0);
        if let Err(error) = self.memory.copy_to(at, &self.words) {
            tracing::error!("memory on the card is not written: {error}");
            return None;
        }
        if !mutants::is(Mutant::StagedOver) {
            self.room.take(block, at, self.words.len());
        }
        self.counters.frames += 1;
        self.counters.bytes += len as u64;
        Some((at, self.region.lkey()))
    }

    /// The oldest frame is done, whose entry begins at that block: its bytes are free, if it has some here.
    pub(crate) fn let_go(&mut self, block: u16) {
        self.room.let_go(block);
    }
}

/// Which bytes are in use.
#[derive(Debug)]
struct Room {
    len: usize,
    /// By the block of each frame's entry: where its bytes begin and end. Invariant: each begins where the one before ends, or at zero.
    taken: VecDeque<(u16, usize, usize)>,
}

impl Room {
    fn new(len: usize) -> Self {
        Self { len, taken: VecDeque::new() }
    }

    /// Where so many bytes are free, in one piece.
    fn place(&self, len: usize) -> Option<usize> {
        let (Some((_, begin, _)), Some((_, last, end))) = (self.taken.front(), self.taken.back()) else {
            return (len <= self.len).then_some(0);
        };
        if last < begin {
            // (What is in use goes around the end.)
            return (end + len <= *begin).then_some(*end);
        }
        match end + len <= self.len {
            true => Some(*end),
            false => (len <= *begin).then_some(0),
        }
    }

    fn take(&mut self, block: u16, at: usize, len: usize) {
        self.taken.push_back((block, at, at + len));
    }

    fn let_go(&mut self, block: u16) {
        if self.taken.front().is_some_and(|(of, _, _)| *of == block) {
            self.taken.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_go_around_and_no_two_frames_share_one() {
        let mut room = Room::new(100);
        let take = |room: &mut Room, block, len| {
            let at = room.place(len)?;
            room.take(block, at, len);
            Some(at)
        };
        assert_eq!([take(&mut room, 0, 40), take(&mut room, 1, 40), take(&mut room, 2, 40)], [Some(0), Some(40), None]);
        assert_eq!((take(&mut room, 2, 20), take(&mut room, 3, 4)), (Some(80), None), "to the end, and not beyond");
        room.let_go(0);
        assert_eq!(
            [take(&mut room, 3, 36), take(&mut room, 4, 8), take(&mut room, 5, 4)],
            [Some(0), None, Some(36)],
            "from the beginning on"
        );
        assert_eq!(take(&mut room, 6, 4), None, "up to what is still in use");
        // (Another entry's end is none of these.)
        room.let_go(7);
        assert_eq!(room.place(4), None);
        room.let_go(1);
        assert_eq!(room.place(40), Some(40));
        [2, 3, 5].into_iter().for_each(|block| room.let_go(block));
        assert_eq!((room.place(100), room.place(101)), (Some(0), None), "nothing is in use");
    }

    #[test]
    fn any_order_of_lengths_keeps_frames_apart() {
        let mut room = Room::new(1000);
        let mut state = 12345_u32;
        for block in 0..20_000_u16 {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let len = (state >> 8) as usize % 400 + 4;
            while room.place(len).is_none() {
                let oldest = room.taken.front().expect("something is in use").0;
                room.let_go(oldest);
            }
            let at = room.place(len).expect("room");
            assert!(at + len <= 1000 && room.taken.iter().all(|(_, begin, end)| at + len <= *begin || *end <= at), "{at} {len} {room:?}");
            room.take(block, at, len);
        }
    }
}
