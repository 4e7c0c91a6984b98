//! Each state in which a connection may leave, with data, both ways.

use core::time::Duration;

use ringway_stack::ring::RingConfig;
use ringway_stack::tcp::State;

use crate::pair::{PEER, Pair, US};
use crate::world::{in_world, in_worlds};

/// Each poll takes one frame: what comes behind it has not been heard of yet.
fn one_by_one(test: impl Fn(&mut crate::world::World) + Sync) {
    for is_v6 in [false, true] {
        in_world(is_v6, RingConfig { batch: 1, ..RingConfig::default() }, &test);
    }
}

#[test]
fn fin_wait_1_to_the_kernel() {
    in_worlds(|world| {
        let mut pair = Pair::connect(world);
        pair.talk();
        pair.write(US, 5000);
        pair.shut(US);
        assert_eq!(pair.state(), Some(State::FinWait1));
        pair.move_to_kernel();
        pair.write_all(PEER, 5000);
        pair.finish(&[PEER]);
    });
}

#[test]
fn fin_wait_1_whose_fin_waits_behind_unsent_bytes_to_the_kernel() {
    in_worlds(|world| {
        let mut pair = Pair::connect(world);
        while pair.write(US, 1 << 16) > 0 {
            pair.pass(Duration::from_millis(2));
        }
        pair.shut(US);
        pair.move_to_kernel();
        pair.write_all(PEER, 5000);
        pair.finish(&[PEER]);
    });
}

#[test]
fn fin_wait_2_to_the_kernel() {
    in_worlds(|world| {
        let mut pair = Pair::connect(world);
        pair.write(US, 5000);
        pair.write_all(PEER, 3000);
        pair.shut(US);
        pair.until(State::FinWait2);
        pair.move_to_kernel();
        pair.write_all(PEER, 5000);
        pair.finish(&[PEER]);
    });
}

#[test]
fn close_wait_to_the_kernel() {
    in_worlds(|world| {
        let mut pair = Pair::connect(world);
        pair.write_all(PEER, 5000);
        pair.shut(PEER);
        pair.until(State::CloseWait);
        pair.write(US, 3000);
        pair.move_to_kernel();
        pair.write_all(US, 3000);
        pair.finish(&[US]);
    });
}

#[test]
fn closing_to_the_kernel() {
    one_by_one(|world| {
        let mut pair = Pair::connect(world);
        pair.talk();
        pair.write_all(PEER, 1000);
        pair.drain(US);
        pair.pass(Duration::from_millis(100));
        pair.shut(PEER);
        pair.write(US, 1000);
        pair.shut(US);
        pair.world.ring.poll(pair.world.now());
        assert_eq!(pair.state(), Some(State::Closing));
        pair.move_to_kernel();
        pair.finish(&[]);
    });
}

#[test]
fn last_ack_to_the_kernel() {
    in_worlds(|world| {
        let mut pair = Pair::connect(world);
        pair.write_all(PEER, 5000);
        pair.shut(PEER);
        pair.until(State::CloseWait);
        pair.write(US, 3000);
        pair.shut(US);
        assert_eq!(pair.state(), Some(State::LastAck));
        pair.move_to_kernel();
        pair.finish(&[]);
    });
}

#[test]
fn fin_wait_1_to_the_ring() {
    in_worlds(|world| {
        let mut pair = Pair::connect(world);
        pair.move_to_kernel();
        pair.talk();
        pair.write_all(PEER, 2000);
        pair.expect();
        // What the peer says to that comes to the ring.
        pair.write(US, 3000);
        pair.shut(US);
        pair.take();
        assert_eq!(pair.state_taken, Some(State::FinWait1));
        pair.write_all(PEER, 5000);
        pair.finish(&[PEER]);
    });
}

#[test]
fn fin_wait_2_to_the_ring() {
    in_worlds(|world| {
        let mut pair = Pair::connect(world);
        pair.move_to_kernel();
        pair.write_all(PEER, 2000);
        pair.write_all(US, 3000);
        pair.shut(US);
        pair.pass(Duration::from_millis(50));
        pair.move_to_ring();
        assert_eq!(pair.state_taken, Some(State::FinWait2));
        pair.write_all(PEER, 5000);
        pair.finish(&[PEER]);
    });
}

#[test]
fn close_wait_to_the_ring() {
    in_worlds(|world| {
        let mut pair = Pair::connect(world);
        pair.move_to_kernel();
        pair.write_all(PEER, 2000);
        pair.shut(PEER);
        pair.pass(Duration::from_millis(50));
        pair.move_to_ring();
        assert_eq!(pair.state_taken, Some(State::CloseWait));
        pair.write_all(US, 5000);
        pair.finish(&[US]);
    });
}

#[test]
fn last_ack_to_the_ring() {
    in_worlds(|world| {
        let mut pair = Pair::connect(world);
        pair.move_to_kernel();
        pair.write_all(PEER, 2000);
        pair.shut(PEER);
        pair.pass(Duration::from_millis(50));
        pair.expect();
        pair.write(US, 3000);
        pair.shut(US);
        pair.take();
        assert_eq!(pair.state_taken, Some(State::LastAck));
        pair.finish(&[]);
    });
}

/// LAST-ACK is CLOSING in the kernel, and its FIN is sent again where the peer's last acknowledgment was lost.
#[test]
fn closing_to_the_ring() {
    in_worlds(|world| {
        let mut pair = Pair::connect(world);
        pair.write_all(PEER, 5000);
        pair.shut(PEER);
        pair.until(State::CloseWait);
        pair.write(US, 3000);
        pair.shut(US);
        pair.world.ring.queues_mut().lose = 100;
        pair.move_to_kernel();
        pair.world.ring.queues_mut().lose = 0;
        pair.move_to_ring();
        assert_eq!(pair.state_taken, Some(State::Closing));
        pair.finish(&[]);
    });
}
