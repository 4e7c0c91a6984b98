//! RoCE's packets beside other processes' ([`ringway_xdp::roce`]).

use core::time::Duration;
use std::os::fd::BorrowedFd;

use ringway_host::Clock;
use ringway_stack::device::{Queues as _, RxBatch, Wake};
use ringway_xdp::Settings;
use ringway_xdp::roce::{RoceQueues, Seat};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::link::Cable;
use crate::namespaces::ip;
use crate::world::on_link;

/// How often a ring that sleeps is woken within a quarter of a second, at most ten times.
fn wakes(queues: &mut RoceQueues) -> usize {
    let clock = Clock::system();
    let mut batch = RxBatch::new(16);
    let end = clock.now() + Duration::from_millis(250);
    let mut count = 0;
    while count < 10 && clock.now() < end {
        queues.poll_rx(clock.now(), &mut batch);
        assert!(batch.is_empty(), "nobody sends RoCE's packets");
        if queues.arm(Wake::Any) {
            // SAFETY: it is the ring's as long as this is used.
            let fd = unsafe { BorrowedFd::borrow_raw(queues.wait_fd().expect("a descriptor")) };
            let rest = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
            count += poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::IN)], Some(&rest)).expect("it is waited for");
        }
        queues.disarm();
    }
    count
}

/// (A packet socket says once that its interface was down, and is readable until somebody has asked.)
#[test]
fn who_sleeps_is_not_woken_for_ever_by_an_interface_that_was_down() {
    on_link(Cable::default(), |_link| {
        let seat = Seat::take("a0", 1).expect("a seat");
        let (mut queues, why_not) = RoceQueues::beside_others(&Settings::new("a0"), &seat).expect("a packet socket");
        assert!(why_not.is_none(), "{why_not:?}");
        for _ in 0..2 {
            ip("link set a0 down");
            assert!(wakes(&mut queues) < 10, "while it is down");
            ip("link set a0 up");
            assert!(wakes(&mut queues) < 10, "when it is up again");
        }
    });
}
