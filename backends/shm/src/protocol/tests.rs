use core::cell::RefCell;
use std::collections::HashMap;

use core::sync::atomic::Ordering;

use ringway_stack::device::Wake;

use super::{Armer, Kicker, ReadWords, ReleaseReader, ReleaseWriter, SlotReader, SlotWord, SlotWriter, WriteWords};
use crate::layout::{CONSUMED_AT, FLIGHTS, GATHER_HEAD_MAX, INLINE_MAX, SLOTS, release_at, slot_at};

/// Memory of one thread: the protocols' arithmetic, without their orderings.
#[derive(Default)]
struct Memory(RefCell<HashMap<usize, u64>>);

impl ReadWords for Memory {
    fn load(&self, offset: usize, _: Ordering) -> u64 {
        self.0.borrow().get(&offset).copied().unwrap_or(0)
    }
}

impl WriteWords for Memory {
    fn store(&self, offset: usize, value: u64, _: Ordering) {
        self.0.borrow_mut().insert(offset, value);
    }
}

fn word(flight: u16) -> SlotWord {
    SlotWord { inline_len: usize::from(flight) % INLINE_MAX, gather_count: 0, vlan: flight % 2 == 1, flight }
}

#[test]
fn a_full_ring_takes_no_more_until_the_reader_says_so() {
    let (ours, theirs) = (Memory::default(), Memory::default());
    let (mut writer, mut reader) = (SlotWriter::default(), SlotReader::default());
    for i in 0..SLOTS {
        assert_eq!(writer.has_room(&theirs), Ok(true));
        writer.publish(&ours, word(i as u16));
    }
    assert_eq!(writer.has_room(&theirs), Ok(false));
    for i in 0..SLOTS {
        assert_eq!(reader.peek(&ours), Some(Ok((slot_at(i as u64), word(i as u16)))));
        reader.advance();
    }
    assert_eq!(reader.peek(&ours), None);
    assert_eq!(writer.has_room(&theirs), Ok(false), "not told yet");
    assert!(reader.should_publish() && reader.has_unpublished());
    reader.publish_consumed(&theirs);
    assert!(!reader.has_unpublished());
    assert_eq!(writer.has_room(&theirs), Ok(true));
}

#[test]
fn positions_survive_thirty_two_bits() {
    let ours = Memory::default();
    let start = u64::from(u32::MAX) - 3;
    let first = start - SLOTS as u64;
    let mut writer = SlotWriter { tail: first, consumed: first };
    for i in 0..SLOTS {
        writer.publish(&ours, word(i as u16));
    }
    let mut reader = SlotReader { head: start, published: start };
    for i in 0..8 {
        assert_eq!(reader.peek(&ours), None);
        writer.publish(&ours, word(i));
        assert_eq!(reader.peek(&ours), Some(Ok((slot_at(start + u64::from(i)), word(i)))));
        reader.advance();
    }
}

#[test]
fn forged_words_are_refused() {
    let (ours, theirs) = (Memory::default(), Memory::default());
    let mut writer = SlotWriter { tail: 300, consumed: 300 - SLOTS as u64 };
    for lie in [301, 300 - SLOTS as u64 - 1, u64::MAX] {
        theirs.store(CONSUMED_AT, lie, Ordering::Relaxed);
        assert!(writer.has_room(&theirs).is_err(), "{lie}");
    }
    let reader = SlotReader::default();
    for (inline_len, gather_count) in [(INLINE_MAX as u64 + 1, 0), (GATHER_HEAD_MAX as u64 + 1, 1), (10, 9), (10, 15)] {
        ours.store(slot_at(0), 1 | inline_len << 32 | gather_count << 40, Ordering::Relaxed);
        assert!(matches!(reader.peek(&ours), Some(Err(_))), "{inline_len} {gather_count}");
    }
}

#[test]
fn releases_come_back_in_order_round_after_round() {
    let memory = Memory::default();
    let (writer, mut reader) = (ReleaseWriter::new(), ReleaseReader::default());
    for i in 0..FLIGHTS * 2 + 5 {
        assert_eq!(reader.pop(&memory), None);
        writer.push(&memory, i as u16);
        assert_eq!(reader.pop(&memory), Some(u32::from(i as u16)));
    }
    assert_eq!(writer.count(), FLIGHTS as u64 * 2 + 5);
    memory.store(release_at(5), 77, Ordering::Relaxed);
    assert_eq!(reader.pop(&memory), None);
}

#[test]
fn one_kick_a_sleep() {
    let memory = Memory::default();
    let (mut armer, mut kicker) = (Armer::default(), Kicker::default());
    assert!(!kicker.must_kick(&memory, false));
    for _ in 0..3 {
        armer.arm(&memory, Wake::Any);
        assert!(armer.is_armed());
        assert!(kicker.must_kick(&memory, false));
        assert!(!kicker.must_kick(&memory, false));
        armer.disarm(&memory);
        assert!(!armer.is_armed());
        assert!(!kicker.must_kick(&memory, false));
    }
    armer.arm(&memory, Wake::Any);
    armer.arm(&memory, Wake::Any);
    assert!(kicker.must_kick(&memory, false), "armed twice is a new sleep");
}

#[test]
fn a_quiet_frame_ends_no_sleep_but_one_that_is_for_it() {
    let memory = Memory::default();
    let (mut armer, mut kicker) = (Armer::default(), Kicker::default());
    armer.arm(&memory, Wake::Solicited);
    assert!(armer.is_armed());
    assert!(!kicker.must_kick(&memory, true));
    assert!(kicker.must_kick(&memory, false), "the unsolicited one before has not used the sleep up");
    assert!(!kicker.must_kick(&memory, false));
    armer.arm(&memory, Wake::Any);
    assert!(kicker.must_kick(&memory, true), "it is a new sleep, for all frames");
    armer.disarm(&memory);
    assert!(!kicker.must_kick(&memory, true));
}
