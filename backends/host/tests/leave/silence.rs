//! Connections that the kernel has for a while before it speaks: until the other end's host knows of that, or has refused.

use core::time::Duration;

use ringway_stack::tcp::State;

use crate::pair::{PEER, Pair, US};
use crate::world::in_worlds;

const MOMENT: Duration = Duration::from_millis(20);

#[test]
fn one_that_is_taken_back_goes_on_as_if_nothing_had_been() {
    in_worlds(|world| {
        let mut pair = Pair::connect(world);
        pair.talk();
        for _ in 0..3 {
            pair.write(US, 3000);
            pair.write_all(PEER, 3000);
            pair.enter_kernel(MOMENT, false);
            for whose in [US, PEER] {
                pair.drain(whose);
            }
            pair.talk();
        }
        // The socket was what it was before each time: the next one finds the address free.
        pair.move_to_kernel();
        pair.talk();
        pair.finish(&[US, PEER]);
    });
}

/// Longer than the kernel waits before it repeats what nobody has acknowledged.
#[test]
fn one_that_speaks_late_has_lost_nothing() {
    in_worlds(|world| {
        let mut pair = Pair::connect(world);
        pair.talk();
        pair.write(US, 3000);
        pair.write_all(PEER, 3000);
        pair.enter_kernel(Duration::from_millis(1500), true);
        for whose in [US, PEER] {
            pair.drain(whose);
        }
        pair.talk();
        pair.finish(&[US, PEER]);
    });
}

#[test]
fn what_no_option_says_it_is_told_before_it_speaks() {
    in_worlds(|world| {
        let mut pair = Pair::connect(world);
        pair.write_all(PEER, 3000);
        pair.shut(US);
        pair.until(State::FinWait2);
        pair.enter_kernel(MOMENT, false);
        pair.enter_kernel(MOMENT, true);
        pair.write_all(PEER, 5000);
        pair.finish(&[PEER]);
    });
    in_worlds(|world| {
        let mut pair = Pair::connect(world);
        pair.write_all(PEER, 5000);
        pair.shut(PEER);
        pair.until(State::CloseWait);
        pair.enter_kernel(MOMENT, false);
        pair.enter_kernel(MOMENT, true);
        pair.write_all(US, 3000);
        pair.finish(&[US]);
    });
}
