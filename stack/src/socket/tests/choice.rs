//! Which ring is whose.

use super::*;
use crate::socket::{Allocation, Direction, Logic, Place};

const LINK: LinkId = LinkId(2);

fn rings(count: u16) -> Choice {
    let mut choice = Choice::default();
    (0..count).for_each(|number| choice.add(LINK, number));
    choice
}

#[test]
fn flows_share_a_ring_by_the_logic() {
    let caller = |thread, core| Caller { thread, core };
    let place =
        |rx, socket, host, caller| Allocation { rx, ..Allocation::default() }.place(Direction::Rx, SocketId(socket), ip(2, host), caller);
    for (logic, with_another_socket, with_another_address, with_another_thread, with_another_core) in [
        (Logic::Interface, true, true, true, true),
        (Logic::Address, true, false, true, true),
        (Logic::Socket, false, true, true, true),
        (Logic::UserId, true, true, true, true),
        (Logic::Thread, true, true, false, true),
        (Logic::Core, true, true, true, false),
        (Logic::CoreAttached, true, true, true, false),
    ] {
        let first = place(logic, 1, 1, caller(1, 1));
        let same = [
            place(logic, 2, 1, caller(1, 1)),
            place(logic, 1, 2, caller(1, 1)),
            place(logic, 1, 1, caller(2, 1)),
            place(logic, 1, 1, caller(1, 2)),
        ];
        let expected = [with_another_socket, with_another_address, with_another_thread, with_another_core];
        assert_eq!(same.map(|other| other == first), expected, "{logic:?}");
    }
    let user = |user_id| {
        Allocation { rx: Logic::UserId, user_id, ..Allocation::default() }.place(Direction::Rx, SocketId(1), ip(2, 1), caller(1, 1))
    };
    assert_ne!(user(1), user(2));
    // vma_extra.h: ring_logic_t.
    let numbers = [0, 1, 10, 11, 20, 30, 31].map(|number| Logic::from_number(number).is_some());
    assert!(numbers.into_iter().all(|known| known) && Logic::from_number(2).is_none() && Logic::from_number(32).is_none());
}

/// A send queue is shared by whom the logic of sending puts together, and a receive queue by whom that of receiving does.
#[test]
fn flows_share_a_ring_only_where_both_logics_say_so() {
    let home = |rx, tx, thread, host, socket| {
        let allocation = Allocation { rx, tx, user_id: 0 };
        allocation.home(SocketId(socket), ip(2, host), Caller { thread, core: thread as u32 % 2 })
    };
    let (by_all, thread, address) = (Logic::Interface, Logic::Thread, Logic::Address);
    // By another thread, at another address, or by another socket.
    for (rx, tx, shared) in [
        (by_all, by_all, [true, true, true]),
        (by_all, thread, [false, true, true]),
        (thread, by_all, [false, true, true]),
        (thread, thread, [false, true, true]),
        (address, thread, [false, false, true]),
        (thread, address, [false, false, true]),
        (address, Logic::Socket, [true, true, false]),
        (Logic::Socket, thread, [true, true, false]),
        (thread, Logic::Core, [false, true, true]),
        (Logic::UserId, Logic::Core, [false, true, true]),
    ] {
        let one = home(rx, tx, 1, 1, 1);
        let others = [home(rx, tx, 2, 1, 1), home(rx, tx, 1, 2, 1), home(rx, tx, 1, 1, 2)];
        assert_eq!(others.map(|other| other == one), shared, "{rx:?} {tx:?}");
        assert_eq!(one, home(rx, tx, 1, 1, 1));
    }
    let by = |rx, tx| home(rx, tx, 1, 1, 1);
    assert!(by(address, thread).is_threads() && by(by_all, thread).is_threads() && !by(Logic::Socket, thread).is_threads());
    assert!(by(address, Logic::Core).is_cores() && !by(address, thread).is_cores() && !by(by_all, by_all).is_threads());
}

#[test]
fn calls_count_in_the_direction_that_goes_by_the_caller() {
    let counts = |rx, tx| [Direction::Rx, Direction::Tx].map(|direction| Allocation { rx, tx, user_id: 0 }.counts(direction));
    assert_eq!(counts(Logic::Thread, Logic::Thread), [true, true]);
    assert_eq!(counts(Logic::Thread, Logic::Interface), [true, true], "nothing is said of sending");
    assert_eq!(counts(Logic::Thread, Logic::Address), [true, false]);
    assert_eq!(counts(Logic::Interface, Logic::Core), [false, true]);
    assert_eq!(counts(Logic::Interface, Logic::Interface), [false, false]);
}

#[test]
fn a_place_keeps_its_ring_and_the_next_one_takes_another() {
    let mut choice = rings(2);
    let mut ring = |thread| choice.ring(LINK, Place::Thread(thread));
    assert_eq!([ring(7), ring(8), ring(7), ring(9), ring(8)], [Some(0), Some(1), Some(0), Some(0), Some(1)]);
    assert_eq!(choice.ring(LinkId(3), Place::Thread(7)), None, "that link has no ring");
    choice.release(Place::Thread(8));
    assert_eq!(choice.known(LINK, Place::Thread(8)), None);
    assert_eq!(choice.ring(LINK, Place::Thread(10)), Some(1), "it is free again");
}

#[test]
fn rings_are_wanted_up_to_the_limit() {
    let mut choice = Choice::new(2);
    assert!(choice.wants_ring(LINK, Place::Thread(1)));
    choice.add(LINK, 0);
    assert!(!choice.wants_ring(LINK, Place::Thread(1)), "one is free");
    choice.ring(LINK, Place::Thread(1));
    assert!(!choice.wants_ring(LINK, Place::Thread(1)) && choice.wants_ring(LINK, Place::Thread(2)));
    choice.add(LINK, 1);
    choice.ring(LINK, Place::Thread(2));
    assert!(!choice.wants_ring(LINK, Place::Thread(3)), "that would be the third");
    assert!(choice.wants_ring(LinkId(3), Place::Thread(3)), "each link has its own limit");
}

#[test]
fn more_places_than_are_remembered_are_spread_over_the_rings() {
    let mut choice = rings(3);
    let mut counts = [0; 3];
    for thread in 0..5000 {
        counts[usize::from(choice.ring(LINK, Place::Thread(thread)).expect("there are rings"))] += 1;
    }
    assert!(counts.into_iter().all(|count| count > 1600), "{counts:?}");
    assert!(!choice.wants_ring(LINK, Place::Thread(9999)), "and ask for none of their own");
}
