//! Sleeping and being woken.

use std::time::{Duration, Instant};

use ringway_host::HostQueues;
use ringway_stack::device::{Queues, SendError, Wake};

use super::{Node, fresh_address, pair, tcp, until};
use crate::layout::SLOTS;

/// For what must come, however busy the machine is.
const PATIENCE: Duration = Duration::from_secs(20);

/// Whether the device's descriptor becomes readable within the time.
fn wakes(node: &Node, within: Duration) -> bool {
    let mut entry = libc::pollfd { fd: node.device.wait_fd().unwrap(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one entry.
    unsafe { libc::poll(&raw mut entry, 1, within.as_millis() as i32) == 1 }
}

/// Joining wakes once; after this the device is asleep.
fn settle(node: &mut Node) {
    node.poll();
    until("a sleep", || node.device.arm(Wake::Any).then_some(()));
    node.device.disarm();
}

#[test]
fn a_frame_wakes_a_sleeper_once_and_nobody_else() {
    let (mut a, mut b, to_b) = pair();
    settle(&mut b);
    a.send(to_b, b"for one who is awake").unwrap();
    a.device.doorbell();
    assert!(!wakes(&b, Duration::ZERO), "nobody sleeps, nobody is woken");
    assert!(!b.device.arm(Wake::Any), "there is a frame");
    b.receive();

    assert!(b.device.arm(Wake::Any));
    assert!(!wakes(&b, Duration::from_millis(20)));
    a.send(to_b, b"1").unwrap();
    assert!(!wakes(&b, Duration::ZERO), "only the doorbell wakes");
    a.device.doorbell();
    assert!(wakes(&b, PATIENCE));
    b.device.clear_wake_ups();
    a.send(to_b, b"2").unwrap();
    a.device.doorbell();
    assert!(!wakes(&b, Duration::from_millis(20)), "one kick a sleep");
    b.device.disarm();
    assert_eq!(b.poll().len(), 2);
}

#[test]
fn a_frame_that_may_wait_wakes_only_who_waits_for_it() {
    let (mut a, mut b, to_b) = pair();
    settle(&mut b);
    assert!(b.device.arm(Wake::Solicited));
    a.send_unsolicited(to_b, b"1").unwrap();
    a.device.doorbell();
    assert!(!wakes(&b, Duration::from_millis(20)), "it may wait, and nobody waits for it");
    // Whoever begins to wait for it finds it there already, and is woken for the next.
    assert!(!b.device.arm(Wake::Any), "there is a frame");
    assert_eq!(b.poll().len(), 1);
    assert!(b.device.arm(Wake::Solicited));
    assert!(b.device.arm(Wake::Any), "armed for more than before");
    a.send_unsolicited(to_b, b"2").unwrap();
    a.device.doorbell();
    assert!(wakes(&b, PATIENCE), "somebody waits for it");
    b.device.disarm();
    assert_eq!(b.poll().len(), 1);

    // The same doorbell hands over what may not wait, before it or behind it.
    for unsolicited_first in [true, false] {
        assert!(b.device.arm(Wake::Solicited));
        for unsolicited in [unsolicited_first, !unsolicited_first] {
            if unsolicited { a.send_unsolicited(to_b, b"3") } else { a.send(to_b, b"4") }.unwrap();
        }
        a.device.doorbell();
        assert!(wakes(&b, PATIENCE), "one of the two may not wait");
        b.device.disarm();
        assert_eq!(b.poll().len(), 2);
    }
}

#[test]
fn frames_that_may_wait_leave_half_of_a_channel_to_those_that_may_not() {
    let (mut a, mut b, to_b) = pair();
    settle(&mut b);
    for round in 0..3 {
        assert!(b.device.arm(Wake::Solicited));
        for _ in 1..SLOTS / 2 {
            a.send_unsolicited(to_b, b"unsolicited").unwrap();
            a.device.doorbell();
        }
        assert!(!wakes(&b, Duration::from_millis(20)), "round {round}: there is room for half a channel more");
        a.send_unsolicited(to_b, b"unsolicited").unwrap();
        a.device.doorbell();
        assert!(wakes(&b, PATIENCE), "round {round}: half of the channel is full");
        b.device.disarm();
        let mut polled = 0;
        while polled < SLOTS / 2 {
            polled += b.poll().len();
        }
        assert_eq!(polled, SLOTS / 2);
    }
}

/// Whoever asks the descriptor on which another thread sleeps does not take its wake-up away; what nobody sleeps for any more does not keep the
/// descriptor readable.
#[test]
fn a_sleepers_wake_up_is_its_own() {
    let (_a, mut b, _) = pair();
    settle(&mut b);
    let signal = |fd: i32| {
        // SAFETY: eight bytes, to an eventfd that lives as long as the device.
        unsafe { libc::write(fd, core::ptr::from_ref(&1u64).cast(), 8) }
    };
    let sleeper = b.device.begin_sleep();
    assert!(b.device.arm(Wake::Any));
    assert_eq!(signal(sleeper), 8);
    b.device.disarm();
    assert!(wakes(&b, Duration::ZERO), "another thread has looked, and the sleeper is woken all the same");
    b.device.clear_sleeper();
    b.device.end_sleep();
    assert!(!wakes(&b, Duration::ZERO));

    assert_eq!(signal(sleeper), 8);
    assert!(b.device.arm(Wake::Any));
    assert!(wakes(&b, Duration::ZERO));
    b.device.disarm();
    assert!(!wakes(&b, Duration::ZERO), "it came too late");
}

#[test]
fn ping_pong_between_sleepers_loses_no_wake_up() {
    const ROUNDS: u32 = 3000;
    let (mut a, mut b, to_b) = pair();
    let begin = Instant::now();
    let sleep = |node: &mut Node| loop {
        let got = node.poll();
        if let Some(got) = got.into_iter().next() {
            return got;
        }
        if node.device.arm(Wake::Any) {
            assert!(wakes(node, PATIENCE), "slept for ever");
            node.device.disarm();
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for _ in 0..ROUNDS {
                let got = sleep(&mut b);
                b.send(got.source, &got.payload).unwrap();
                b.device.doorbell();
            }
        });
        for round in 0..ROUNDS {
            a.send(to_b, &round.to_le_bytes()).unwrap();
            a.device.doorbell();
            assert_eq!(sleep(&mut a).payload, round.to_le_bytes());
        }
    });
    assert!(begin.elapsed() < Duration::from_secs(60));
}

#[test]
fn a_sender_that_sleeps_for_room_is_woken_when_there_is_some() {
    let (mut a, mut b, to_b) = pair();
    settle(&mut a);
    for _ in 0..SLOTS {
        a.send(to_b, b"fill").unwrap();
    }
    assert_eq!(a.send(to_b, b"one more"), Err(SendError::Full));
    assert!(a.device.arm(Wake::Any), "nothing to receive, and no room");
    assert!(!wakes(&a, Duration::from_millis(20)));
    b.poll();
    assert!(wakes(&a, PATIENCE));
    a.device.disarm();
    a.send(to_b, b"one more").unwrap();

    // And without a sleep in between, the sender doesn't begin one.
    while a.send(to_b, b"fill").is_ok() {}
    while !b.poll().is_empty() {}
    assert!(!a.device.arm(Wake::Any));
}

#[test]
fn a_joining_peer_wakes_a_sleeper() {
    let mut b = Node::new();
    let address = fresh_address();
    b.device.steer(&tcp(address)).unwrap();
    assert!(b.device.arm(Wake::Any));
    let mut a = Node::new();
    let to_b = a.find(address).unwrap().mac;
    assert!(wakes(&b, PATIENCE));
    a.send(to_b, b"hello").unwrap();
    b.device.disarm();
    assert_eq!(b.receive().payload, b"hello");
}

#[test]
fn a_pause_ends_where_a_channel_is_half_full_and_not_before() {
    let (mut a, mut b, to_b) = pair();
    settle(&mut b);
    let send = |a: &mut Node, what: &[u8]| {
        a.send(to_b, what).unwrap();
        a.device.doorbell();
    };
    let half = SLOTS / 2;
    for _ in 0..2 {
        while !b.poll().is_empty() {}
        b.device.pause();
        for _ in 1..half {
            send(&mut a, b"few");
        }
        assert!(!wakes(&b, Duration::ZERO), "less than half of a channel ends no pause");
        send(&mut a, b"the one that fills half of it");
        assert!(wakes(&b, Duration::ZERO));
        assert!(b.device.resume());
        assert!(!wakes(&b, Duration::ZERO));
        send(&mut a, b"more, while nobody pauses");
        assert!(!wakes(&b, Duration::ZERO));
        assert!(!b.device.resume(), "it has ended");
    }
    // What was there before the pause counts as well; and who reads in between is left alone.
    while !b.poll().is_empty() {}
    b.device.pause();
    for _ in 0..4 * half {
        send(&mut a, b"one");
        while !b.poll().is_empty() {}
    }
    assert!(!wakes(&b, Duration::ZERO));
}

#[test]
fn who_waits_for_room_gives_up_once_until_the_receiver_moves() {
    let (mut a, mut b, to_b) = pair();
    while a.send(to_b, b"fill").is_ok() {}
    assert!(a.device.is_worth_waiting(to_b));
    a.device.give_up(to_b);
    assert_eq!(a.send(to_b, b"x"), Err(SendError::Full));
    assert!(!a.device.is_worth_waiting(to_b), "it has not moved");
    while !b.poll().is_empty() {}
    while a.send(to_b, b"fill").is_ok() {}
    assert!(a.device.is_worth_waiting(to_b), "it has moved since");
}
