//! Models of the protocols, explored by loom: `RUSTFLAGS="--cfg loom" cargo test -p ringway-shm --release loom`.

use std::collections::BTreeMap;
use std::sync::Arc as StdArc;

use loom::sync::Arc;
use loom::sync::atomic::AtomicU64;
use loom::thread;

use core::sync::atomic::Ordering;

use ringway_stack::device::Wake;

use super::{
    Armer, CoreClaims, Kicker, Place, ReadWords, Region, ReleaseReader, ReleaseWriter, Returned, SlotReader, SlotWord, SlotWriter, Write,
    WriteWords,
};
use crate::layout::{ARMED_AT, CONSUMED_AT, CORE_CLAIMS_AT, FLIGHTS, REGIONS_AT, SLOT_DATA, SLOTS, WRITING_AT, release_at, slot_at};
use crate::sync::fence;

/// One process's memory: only the words that a model uses.
#[derive(Clone)]
struct Memory(StdArc<BTreeMap<usize, AtomicU64>>);

impl Memory {
    fn new() -> Self {
        let slots = (0..SLOTS as u64).flat_map(|i| [slot_at(i), slot_at(i) + SLOT_DATA]);
        let releases = (0..FLIGHTS as u64).map(release_at);
        let region = (0..6).map(|word| REGIONS_AT + 8 * word);
        let words = [ARMED_AT, CONSUMED_AT, CORE_CLAIMS_AT, WRITING_AT].into_iter().chain(slots).chain(releases).chain(region);
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
                Kicker::default().must_kick(&sleeper, false)
            })
        };
        let mut armer = Armer::default();
        armer.arm(&sleeper, Wake::Any);
        let found = SlotReader::default().is_ready(&sender);
        let kicked = sending.join().unwrap();
        assert!(found || kicked, "slept beside a published slot");
    });
}

#[test]
fn loom_who_begins_to_wait_for_quiet_frames_misses_none() {
    loom::model(|| {
        let (sender, sleeper) = (Memory::new(), Memory::new());
        let sending = {
            let (sender, sleeper) = (sender.clone(), sleeper.clone());
            thread::spawn(move || {
                let mut writer = SlotWriter::default();
                writer.publish(&sender, WORD);
                fence(Ordering::SeqCst);
                Kicker::default().must_kick(&sleeper, true)
            })
        };
        let mut armer = Armer::default();
        armer.arm(&sleeper, Wake::Solicited);
        // (The sleeper sleeps, when another thread begins to wait.)
        armer.arm(&sleeper, Wake::Any);
        let found = SlotReader::default().is_ready(&sender);
        let kicked = sending.join().unwrap();
        assert!(found || kicked, "slept beside an unsolicited frame that somebody waits for");
    });
}

#[test]
fn loom_no_wake_up_for_what_may_not_wait_is_lost_behind_a_quiet_frame() {
    loom::model(|| {
        let (sender, sleeper) = (Memory::new(), Memory::new());
        let sending = {
            let (sender, sleeper) = (sender.clone(), sleeper.clone());
            thread::spawn(move || {
                let (mut writer, mut kicker) = (SlotWriter::default(), Kicker::default());
                let mut kicked = false;
                for is_unsolicited in [true, false] {
                    writer.publish(&sender, WORD);
                    fence(Ordering::SeqCst);
                    kicked |= kicker.must_kick(&sleeper, is_unsolicited);
                }
                kicked
            })
        };
        let mut armer = Armer::default();
        armer.arm(&sleeper, Wake::Solicited);
        let found = SlotReader::default().is_ready(&sender);
        let kicked = sending.join().unwrap();
        assert!(found || kicked, "slept beside a frame that may not wait");
    });
}

/// A member with that memory and id claims core 0 in the face of the others, and, if it gets it, checks that it is the only
/// one before it gives it up. Whether it got it.
fn spin_once(memories: &[Memory], id: usize, inside: &AtomicU64, looks: Option<u32>) -> bool {
    let mut claims = CoreClaims::default();
    let peers = memories.iter().enumerate().filter(|(peer, _)| *peer != id).map(|(peer, memory)| (memory, peer as u64));
    let got = match looks {
        None => claims.take(&memories[id], id as u64, 0, peers),
        Some(looks) => claims.take_patiently(&memories[id], id as u64, 0, peers, looks),
    };
    if got {
        assert_eq!(inside.fetch_add(1, Ordering::Relaxed), 0, "two spin on one core");
        inside.fetch_sub(1, Ordering::Relaxed);
        claims.leave(&memories[id], 0);
    }
    got
}

#[test]
fn loom_two_members_never_both_keep_a_core() {
    loom::model(|| {
        let (memories, inside) = ([Memory::new(), Memory::new()], Arc::new(AtomicU64::new(0)));
        let other = {
            let (memories, inside) = (memories.clone(), inside.clone());
            thread::spawn(move || {
                for _ in 0..2 {
                    spin_once(&memories, 1, &inside, None);
                }
            })
        };
        for _ in 0..2 {
            spin_once(&memories, 0, &inside, None);
        }
        other.join().unwrap();
        assert!(spin_once(&memories, 1, &inside, None), "what was refused or given up stayed claimed");
    });
}

#[test]
fn loom_three_members_never_share_a_core() {
    let mut model = loom::model::Builder::new();
    // Three threads have too many interleavings to try them all.
    model.preemption_bound = Some(3);
    model.check(|| {
        let (memories, inside) = ([Memory::new(), Memory::new(), Memory::new()], Arc::new(AtomicU64::new(0)));
        let others: Vec<_> = (1..3)
            .map(|id| {
                let (memories, inside) = (memories.clone(), inside.clone());
                thread::spawn(move || spin_once(&memories, id, &inside, None))
            })
            .collect();
        spin_once(&memories, 0, &inside, None);
        for other in others {
            other.join().unwrap();
        }
    });
}

#[test]
fn loom_of_two_that_claim_at_once_the_lower_gets_the_core_if_it_is_patient() {
    loom::model(|| {
        let (memories, inside) = ([Memory::new(), Memory::new()], Arc::new(AtomicU64::new(0)));
        let other = {
            let (memories, inside) = (memories.clone(), inside.clone());
            thread::spawn(move || spin_once(&memories, 1, &inside, None))
        };
        assert!(spin_once(&memories, 0, &inside, Some(u32::MAX)), "it gave way although the other did or left");
        other.join().unwrap();
    });
}

#[test]
fn loom_what_is_returned_is_found_once_and_only_where_it_was_announced() {
    // Two members of a stack, one of them given back twice; and a stack of one stack, by which the taker is told.
    loom::model(|| {
        let both = Arc::new((Returned::new(2), Returned::new(1), [loom::cell::UnsafeCell::new(0), loom::cell::UnsafeCell::new(0)]));
        let give = |both: &(Returned, Returned, [loom::cell::UnsafeCell<u32>; 2]), member: u32| {
            both.2[member as usize].with_mut(|uses| {
                // SAFETY: the member is the giver's, which is what loom checks.
                unsafe { *uses += 1 }
            });
            if both.0.push(member, || ()).unwrap().is_some() {
                both.1.push(0, || ()).unwrap();
            }
        };
        let giving = {
            let both = both.clone();
            thread::spawn(move || give(&both, 1))
        };
        give(&both, 0);
        let mut found = Vec::new();
        let mut look = |found: &mut Vec<u32>| both.1.take(|_| both.0.take(|member| found.push(member)));
        look(&mut found);
        // What was found is used, and given back, again.
        if found.first() == Some(&0) {
            give(&both, 0);
        }
        let again = u32::from(found.first() == Some(&0));
        giving.join().unwrap();
        look(&mut found);
        look(&mut found);
        let count = |member| found.iter().filter(|&&other| other == member).count();
        assert_eq!((count(0), count(1)), (1 + again as usize, 1));
        both.2[1].with(|uses| {
            // SAFETY: as above.
            assert_eq!(unsafe { *uses }, 1);
        });
    });
}

#[test]
fn loom_nobody_writes_to_a_region_once_its_owner_has_found_nobody() {
    const WRITER: u64 = 7;
    const OWNER: u64 = 8;
    loom::model(|| {
        let (writer, owner) = (Memory::new(), Memory::new());
        let region = Region { key: 0, peer: WRITER, qp: 1, address: 0, len: 8, place: Place::Area(0) };
        region.publish(&owner);
        let memory = Arc::new(loom::cell::UnsafeCell::new(0));
        let writing = {
            let (writer, owner, memory) = (writer.clone(), owner.clone(), memory.clone());
            thread::spawn(move || {
                let write = Write { writer: WRITER, owner: OWNER, qp: 1, key: 0, address: 0, len: 8 };
                if write.begin(&writer, &owner).is_some() {
                    memory.with_mut(|memory| {
                        // SAFETY: nobody else has it now, which is what loom checks.
                        unsafe { *memory = 1 }
                    });
                }
                Write::end(&writer);
            })
        };
        Region::revoke(0, &owner);
        while Write::is_under_way(OWNER, 0, &writer) {
            thread::yield_now();
        }
        memory.with_mut(|memory| {
            // SAFETY: as above.
            unsafe { *memory = 2 }
        });
        writing.join().unwrap();
    });
}
