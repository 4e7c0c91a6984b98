//! Models of the protocols, explored by loom: `RUSTFLAGS="--cfg loom" cargo test -p ringway-shm --release loom`.

use std::collections::BTreeMap;
use std::sync::Arc as StdArc;

use loom::sync::Arc;
use loom::sync::atomic::AtomicU64;
use loom::thread;

use core::sync::atomic::Ordering;

use super::{Armer, Kicker, ReadWords, ReleaseReader, ReleaseWriter, SlotReader, SlotWord, SlotWriter, WriteWords};
use crate::layout::{ARMED_AT, CONSUMED_AT, FLIGHTS, SLOT_DATA, SLOTS, release_at, slot_at};
use crate::sync::fence;

/// One process's memory: only the words that a model uses.
#[derive(Clone)]
struct Memory(StdArc<BTreeMap<usize, AtomicU64>>);

impl Memory {
    fn new() -> Self {
        let slots = (0..SLOTS as u64).flat_map(|i| [slot_at(i), slot_at(i) + SLOT_DATA]);
        let releases = (0..FLIGHTS as u64).map(release_at);
        let words = [ARMED_AT, CONSUMED_AT].into_iter().chain(slots).chain(releases);
        Self(StdArc::new(words.map(|at| (at, AtomicU64::new(0))).collect()))
    }
}

impl ReadWords for Memory {
    fn load(&self, offset: usize, order: Ordering) -> u64 {
        self.0[&offset].load(order)
    }
}

impl WriteWords for Memory {
    fn store(&self, offset: usize, value: u64, order: Ordering) {
        self.0[&offset].store(value, order);
    }
}

const WORD: SlotWord = SlotWord { inline_len: 8, gather_count: 0, vlan: false, flight: 0 };

#[test]
fn loom_slots_are_seen_whole_and_reused_only_after_they_were_read() {
    const FRAMES: u64 = SLOTS as u64 + 1;
    loom::model(|| {
        let (sender, receiver) = (Memory::new(), Memory::new());
        let writing = {
            let (sender, receiver) = (sender.clone(), receiver.clone());
            thread::spawn(move || {
                let mut writer = SlotWriter::default();
                for i in 1..=FRAMES {
                    while !writer.has_room(&receiver).unwrap() {
                        thread::yield_now();
                    }
                    sender.store(writer.slot() + SLOT_DATA, i * 100, Ordering::Relaxed);
                    writer.publish(&sender, WORD);
                }
            })
        };
        let mut reader = SlotReader::default();
        for i in 1..=FRAMES {
            let at = loop {
                match reader.peek(&sender) {
                    Some(slot) => break slot.unwrap().0,
                    None => thread::yield_now(),
                }
            };
            assert_eq!(sender.load(at + SLOT_DATA, Ordering::Relaxed), i * 100);
            reader.advance();
            if reader.should_publish() {
                reader.publish_consumed(&receiver);
            }
        }
        writing.join().unwrap();
    });
}

#[test]
fn loom_releases_of_two_threads_are_all_seen_after_their_last_read() {
    loom::model(|| {
        let memory = Memory::new();
        let writer = Arc::new(ReleaseWriter::new());
        let threads: Vec<_> = (0..2u16)
            .map(|flight| {
                let (memory, writer) = (memory.clone(), writer.clone());
                thread::spawn(move || {
                    // Stands for the last read of the flight's bytes: it must come before the owner sees the release.
                    memory.store(slot_at(u64::from(flight)), 1, Ordering::Relaxed);
                    writer.push(&memory, flight);
                })
            })
            .collect();
        let mut reader = ReleaseReader::default();
        let mut seen = [false; 2];
        while seen != [true; 2] {
            match reader.pop(&memory) {
                Some(flight) => {
                    assert_eq!(memory.load(slot_at(u64::from(flight)), Ordering::Relaxed), 1);
                    assert!(!core::mem::replace(&mut seen[flight as usize], true));
                }
                None => thread::yield_now(),
            }
        }
        for thread in threads {
            thread.join().unwrap();
        }
    });
}

#[test]
fn loom_no_wake_up_is_lost() {
    loom::model(|| {
        let (sender, sleeper) = (Memory::new(), Memory::new());
        let sending = {
            let (sender, sleeper) = (sender.clone(), sleeper.clone());
            thread::spawn(move || {
                let mut writer = SlotWriter::default();
                writer.publish(&sender, WORD);
                fence(Ordering::SeqCst);
                Kicker::default().must_kick(&sleeper)
            })
        };
        let mut armer = Armer::default();
        armer.arm(&sleeper);
        let found = SlotReader::default().is_ready(&sender);
        let kicked = sending.join().unwrap();
        assert!(found || kicked, "slept beside a published slot");
    });
}
