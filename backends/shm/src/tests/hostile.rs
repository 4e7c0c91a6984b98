//! Peers that write what no member writes. Each loses its connection, and that is all that happens.

use core::sync::atomic::Ordering;
use std::sync::Arc;

use proptest::prelude::*;
use ringway_stack::device::{DeviceEvent, MacAddr, Queues, SendError, Wake};

use super::{Node, fresh_address, pair, pattern, tcp, until};
use crate::layout::{ARMED_AT, CONSUMED_AT, FLIGHTS, SLOT_DATA, SLOT_GATHER, SLOTS, release_at, slot_at};
use crate::link::Link;
use crate::protocol::WriteWords;

/// The memory that `of` writes for the peer that it knows as `mac`.
fn memory(of: &Node, mac: MacAddr) -> Arc<Link> {
    of.device.link(mac).expect("a channel")
}

fn slot_word(inline_len: u64, gather_count: u64, flight: u64) -> u64 {
    1 | inline_len << 32 | gather_count << 40 | flight << 48
}

/// The victim ends the attacker, who sees that, and goes on serving others.
fn expect_end(attacker: &mut Node, victim: &mut Node, to_victim: MacAddr) {
    assert!(matches!(victim.await_event(), DeviceEvent::PeerGone(_)));
    assert_eq!(attacker.await_event(), DeviceEvent::PeerGone(to_victim));
    assert_eq!(attacker.send(to_victim, b"again"), Err(SendError::NoPeer));
    let address = fresh_address();
    victim.device.steer(&tcp(address)).unwrap();
    let mut other = Node::new();
    let mac = other.find(address).unwrap().mac;
    other.send(mac, b"a friend").unwrap();
    let got = until("a frame", || victim.poll().into_iter().find(|got| !got.payload.is_empty()));
    assert_eq!(got.payload, b"a friend");
}

fn forge_slot(word: u64, gather: &[(u64, u64)]) {
    let (mut attacker, mut victim, to_victim) = pair();
    // The attacker's device takes up the channel.
    attacker.send(to_victim, b"honest").unwrap();
    victim.receive();
    let link = memory(&attacker, to_victim);
    let at = slot_at(1);
    for (i, (offset, len)) in gather.iter().enumerate() {
        link.own.store(at + SLOT_GATHER + i * 8, offset | len << 32, Ordering::Relaxed);
    }
    link.own.store(at, word + 1, Ordering::Release);
    drop(link);
    expect_end(&mut attacker, &mut victim, to_victim);
}

#[test]
fn a_frame_longer_than_its_slot() {
    forge_slot(slot_word(255, 0, 0), &[]);
}

#[test]
fn a_frame_shorter_than_an_ethernet_header() {
    forge_slot(slot_word(13, 0, 0), &[]);
}

#[test]
fn a_gather_list_past_the_pool() {
    forge_slot(slot_word(14, 1, 0), &[(8 << 20, 1000)]);
}

#[test]
fn a_gather_list_that_would_wrap() {
    forge_slot(slot_word(14, 1, 0), &[(0xffff_ffff, 0xffff_ffff)]);
}

#[test]
fn a_gather_list_longer_than_a_frame() {
    forge_slot(slot_word(14, 3, 0), &[(0, 32768), (0, 32768), (0, 32768)]);
}

#[test]
fn an_empty_gather_list_entry() {
    forge_slot(slot_word(14, 1, 0), &[(0, 0)]);
}

#[test]
fn a_flight_out_of_range() {
    forge_slot(slot_word(14, 1, FLIGHTS as u64), &[(0, 100)]);
}

#[test]
fn a_flight_that_is_held() {
    let (mut attacker, mut victim, to_victim) = pair();
    attacker.send(to_victim, &pattern(1000, 0)).unwrap();
    let held = victim.receive();
    let link = memory(&attacker, to_victim);
    link.own.store(slot_at(1) + SLOT_GATHER, 100 << 32, Ordering::Relaxed);
    link.own.store(slot_at(1), slot_word(14, 1, 0) + 1, Ordering::Release);
    drop(link);
    assert!(matches!(victim.await_event(), DeviceEvent::PeerGone(_)));
    let mut bytes = vec![0; 990];
    ringway_stack::device::RxBuffer::copy_to(held.body.as_ref().unwrap(), 0, &mut bytes);
    assert_eq!(bytes, held.payload[10..]);
    assert_eq!(attacker.await_event(), DeviceEvent::PeerGone(to_victim));
}

#[test]
fn a_count_of_consumed_slots_that_runs_ahead() {
    let (mut victim, mut attacker, to_attacker) = pair();
    victim.send(to_attacker, b"x").unwrap();
    let from = attacker.receive().source;
    memory(&attacker, from).own.store(CONSUMED_AT, 1 << 40, Ordering::Release);
    let end = until("an end", || victim.send(to_attacker, b"y").err());
    assert_eq!(end, SendError::NoPeer);
    assert_eq!(victim.await_event(), DeviceEvent::PeerGone(to_attacker));
    assert_eq!(attacker.await_event(), DeviceEvent::PeerGone(from));
}

#[test]
fn a_released_flight_that_was_never_sent() {
    // The first was handed back already; the others never were in flight.
    for flight in [0u64, 2, 4095, 0xffff_ffff] {
        let (mut victim, mut attacker, to_attacker) = pair();
        let other = Node::new();
        let address = fresh_address();
        other.rendezvous.publish(&tcp(address)).unwrap();
        let to_other = victim.find(address).unwrap().mac;
        // A third member holds flight 0 of its own channel, which nobody else can hand back.
        victim.send(to_other, &pattern(1000, 1)).unwrap();
        victim.send(to_attacker, &pattern(2000, 2)).unwrap();
        victim.send(to_attacker, &pattern(3000, 3)).unwrap();
        let got = until("both frames", || Some(attacker.poll()).filter(|got| got.len() == 2));
        let link = memory(&attacker, got[0].source);
        link.own.store(release_at(0), 1 << 32, Ordering::Release);
        link.own.store(release_at(1), 2 << 32 | flight, Ordering::Release);
        victim.device.reap();
        drop(link);
        assert_eq!(victim.await_event(), DeviceEvent::PeerGone(to_attacker), "{flight}");
        assert_eq!(victim.device.buffers_in_use(), 1, "the third member's");
        core::mem::forget(got);
    }
}

/// Whatever `attack` does to the descriptors of the attacker's that its victim wakes it by, the victim sends on, and receives.
fn wake_a_hostile_sleeper(attack: impl Fn(i32)) {
    const SLEEPS: usize = 2000;
    let (mut attacker, mut victim, to_victim) = pair();
    attacker.send(to_victim, b"hello").unwrap();
    let to_attacker = victim.receive().source;
    attack(attacker.device.wait_fd().unwrap());
    let connection = memory(&attacker, to_victim).connection.as_ref().map(|connection| connection.raw());
    connection.map(attack);
    let (done, is_done) = std::sync::mpsc::channel();
    let (go, is_armed) = std::sync::mpsc::sync_channel(0);
    // A thread that nobody waits for, if it never ends.
    std::thread::spawn(move || {
        for sent in 1..=SLEEPS {
            is_armed.recv().unwrap();
            victim.send(to_attacker, b"wake up").unwrap();
            victim.device.doorbell();
            done.send(sent).unwrap();
        }
        attacker_is_heard(&mut victim);
        done.send(0).unwrap();
    });
    for sleep in 1..=SLEEPS {
        // It sleeps again and again, without a look at what has woken it.
        memory(&attacker, to_victim).member.segment.store(ARMED_AT, sleep as u64 * 2 + 1, Ordering::Release);
        go.send(()).unwrap();
        assert_eq!(is_done.recv_timeout(core::time::Duration::from_secs(5)), Ok(sleep), "the victim is blocked");
        attacker.poll();
        attacker.device.reap();
    }
    attacker.send(to_victim, b"still there").unwrap();
    assert_eq!(is_done.recv_timeout(core::time::Duration::from_secs(5)), Ok(0), "the victim is blocked");
}

fn attacker_is_heard(victim: &mut Node) {
    assert_eq!(victim.receive().payload, b"still there");
}

#[test]
fn a_wake_up_that_is_never_taken_blocks_nobody() {
    wake_a_hostile_sleeper(|_| {});
}

#[test]
fn a_wake_up_that_cannot_be_taken_blocks_nobody() {
    wake_a_hostile_sleeper(|fd| {
        let most = (u64::MAX - 1).to_ne_bytes();
        // SAFETY: plain integers, and eight readable bytes.
        unsafe {
            libc::fcntl(fd, libc::F_SETFL, 0);
            libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_RCVBUF, (&raw const SMALLEST).cast(), 4);
            // The counter of an eventfd, if it is one.
            libc::write(fd, most.as_ptr().cast(), if is_socket(fd) { 0 } else { 8 });
        }
    });
}

#[test]
fn a_flood_of_wake_ups_fills_nothing() {
    let (mut attacker, mut victim, to_victim) = pair();
    attacker.send(to_victim, b"hello").unwrap();
    victim.receive();
    let link = memory(&attacker, to_victim);
    for _ in 0..200 {
        for _ in 0..500 {
            link.wake();
        }
        while !victim.device.arm(Wake::Any) {
            victim.poll();
        }
        victim.device.disarm();
    }
    drop(link);
    attacker.send(to_victim, b"again").unwrap();
    assert_eq!(victim.receive().payload, b"again");
}

static SMALLEST: i32 = 1;

fn is_socket(fd: i32) -> bool {
    let (mut kind, mut len) = (0i32, 4u32);
    // SAFETY: both are writable.
    unsafe { libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_TYPE, (&raw mut kind).cast(), &raw mut len) == 0 }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// Random words all over the channel: no panic, nothing read out of bounds, and the victim's buffers come back in the end.
    #[test]
    fn any_bytes_at_all(words in prop::collection::vec((0usize..crate::layout::CHANNEL_BYTES / 8, any::<u64>(), any::<bool>()), 1..200), sends in 0usize..300) {
        let (mut attacker, mut victim, to_victim) = pair();
        attacker.send(to_victim, b"x").unwrap();
        let to_attacker = victim.receive().source;
        let link = memory(&attacker, to_victim);
        let mut held = Vec::new();
        for (i, (at, word, is_published)) in words.iter().enumerate() {
            // Half of them look like the next slot.
            let (at, word) = if *is_published { (slot_at(1 + i as u64), word & !0xffff_ffff | (2 + i as u64)) } else { (at * 8, *word) };
            link.own.store(at, word, Ordering::Release);
            held.extend(victim.device.poll_rx(ringway_stack::Instant::ZERO, &mut victim.batch).checked_sub(1));
            for frame in victim.batch.frames_mut() {
                let _ = frame.to_vec();
            }
            victim.batch.clear();
            victim.device.reap();
        }
        for i in 0..sends.min(SLOTS * 2) {
            let _ = victim.send(to_attacker, &pattern(i * 20, i));
            victim.device.reap();
        }
        let _ = SLOT_DATA;
        drop(link);
        drop(attacker);
        until("the end", || {
            victim.poll_raw();
            victim.device.poll_event()
        });
        prop_assert_eq!(victim.device.buffers_in_use(), 0);
    }
}

impl Node {
    /// Polls without a look at what comes.
    fn poll_raw(&mut self) {
        self.batch.clear();
        self.device.poll_rx(ringway_stack::Instant::ZERO, &mut self.batch);
    }
}
