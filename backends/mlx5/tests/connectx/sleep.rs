//! Who sleeps on a ring is woken by what comes, and by nothing else.

use ringway_host::HostQueues as _;
use ringway_mlx5::Mlx5Queues;
use ringway_stack::device::{Queues as _, TxOffload, Wake};

use crate::frames::pair;
use crate::world::{HEAD, bytes, on_card, path_of, receive, send, udp_frame};

fn wait(ring: &Mlx5Queues, milliseconds: i32) -> bool {
    let mut poll = libc::pollfd { fd: ring.wait_fd().expect("a descriptor"), events: libc::POLLIN, revents: 0 };
    // SAFETY: one entry is readable and writable.
    let ready = unsafe { libc::poll(&raw mut poll, 1, milliseconds) };
    assert!(ready >= 0);
    ready > 0
}

#[test]
fn frames_wake_who_armed_and_nobody_else() {
    on_card(path_of!(frames_wake_who_armed_and_nobody_else), || {
        let [(_, mut from), (_, mut to)] = pair();
        let frame = udp_frame(0, 1, (5, 7), &bytes(100, 1));
        assert!(to.arm(Wake::Any) && !wait(&to, 20), "nothing has come");
        to.disarm();
        for _ in 0..20 {
            assert!(to.arm(Wake::Any), "nothing has come");
            send(&mut from, &frame, HEAD, 1, TxOffload::default()).expect("room");
            until_woken(&mut to);
            assert!(!to.arm(Wake::Any), "there is something to poll");
            to.disarm();
            assert!(!wait(&to, 0), "who is not armed is not woken");
            receive(&mut to, 1);
            // Armed and disarmed in vain; and what comes while nobody is armed wakes nobody.
            assert!(to.arm(Wake::Any));
            to.disarm();
            send(&mut from, &frame, HEAD, 1, TxOffload::default()).expect("room");
            receive(&mut to, 1);
            assert!(!wait(&to, 0));
            from.reap();
        }
    });
}

/// Sleeps until there is something to poll, on a ring that is armed. (The event of an earlier request, whose frame was polled already, may come late.)
fn until_woken(to: &mut Mlx5Queues) {
    for _ in 0..3 {
        assert!(wait(to, 5000), "a frame has come");
        to.disarm();
        if !to.arm(Wake::Any) {
            return;
        }
    }
    panic!("woken again and again, by nothing");
}

/// A frame comes right before a ring is armed, or right after: it is never slept through.
#[test]
fn nothing_is_slept_through() {
    on_card(path_of!(nothing_is_slept_through), || {
        let [(_, mut from), (_, mut to)] = pair();
        let frame = udp_frame(0, 1, (5, 7), &bytes(100, 1));
        for turn in 0..300 {
            send(&mut from, &frame, HEAD, 1, TxOffload::default()).expect("room");
            (0..turn * 100 % 30_000).for_each(|_| core::hint::spin_loop());
            if to.arm(Wake::Any) {
                until_woken(&mut to);
            }
            to.disarm();
            receive(&mut to, 1);
            from.reap();
        }
    });
}

#[test]
fn a_thread_of_the_process_wakes_the_sleeper() {
    on_card(path_of!(a_thread_of_the_process_wakes_the_sleeper), || {
        let [_, (_, mut to)] = pair();
        let waker = to.begin_sleep();
        assert!(to.arm(Wake::Any) && !wait(&to, 0));
        std::thread::spawn(move || ringway_host::sleep::signal(waker)).join().expect("it signals");
        assert!(wait(&to, 5000));
        to.clear_sleeper();
        to.end_sleep();
        assert!(!wait(&to, 0));
        to.disarm();
        assert_eq!((to.queue_frames(), to.tx_buffers()), (2048, (4096, 0)));
    });
}
