//! Established connections, with whatever is in their queues and on the way.

use core::time::Duration;
use std::io::{Read as _, Write as _};

use ringway_host::leave::{Leave as _, LeaveError, ToProcess, ToRing, Written};
use ringway_stack::ring::RingConfig;
use ringway_stack::tcp::Config;

use crate::pair::{Ours, PEER, Pair, US, total_retransmissions};
use crate::world::{in_world, in_worlds};

#[test]
fn an_idle_connection_goes_there_and_back() {
    in_worlds(|world| {
        let mut pair = Pair::connect(world);
        pair.talk();
        for _ in 0..10 {
            pair.move_to_kernel();
            assert_eq!(pair.world.card().rules(), 0, "its frames are the kernel's");
            pair.talk();
            pair.move_to_ring();
            assert_eq!(pair.world.card().rules(), 1);
            pair.talk();
        }
        assert_eq!(total_retransmissions(&pair.peers), 0);
        println!("frozen for {:?}", pair.frozen);
        pair.finish(&[US, PEER]);
    });
}

/// A child that was forked at the wrong moment has the kernel's socket yet when the connection comes again.
#[test]
fn a_socket_that_somebody_else_has_too_is_no_obstacle() {
    in_worlds(|world| {
        let mut pair = Pair::connect(world);
        pair.move_to_kernel();
        let Ours::Kernel(socket, _) = &pair.ours else { panic!("the kernel has it") };
        let of_a_child = socket.try_clone().expect("another descriptor");
        pair.talk();
        pair.move_to_ring();
        pair.talk();
        pair.move_to_kernel();
        pair.talk();
        drop(of_a_child);
        pair.talk();
        pair.finish(&[US, PEER]);
    });
}

#[test]
fn one_without_options_does_so_too() {
    in_worlds(|world| {
        let config = Config { timestamps: false, sack: false, window_scaling: false, ..Config::default() };
        let mut pair = Pair::connect_with(world, &config);
        for _ in 0..2 {
            pair.write_all(PEER, 20_000);
            pair.move_to_kernel();
            pair.drain(US);
            pair.write_all(US, 20_000);
            pair.move_to_ring();
            pair.drain(PEER);
            pair.talk();
        }
        pair.finish(&[PEER, US]);
    });
}

#[test]
fn queues_and_what_is_on_the_way_go_with_it() {
    in_worlds(|world| {
        let mut pair = Pair::connect(world);
        pair.talk();
        for _ in 0..3 {
            // Unread, received and not looked at, on the way, and unsent.
            pair.write_all(PEER, 30_000);
            pair.pass(Duration::from_millis(5));
            pair.write(PEER, 10_000);
            assert!(pair.write(US, 80_000) > 20_000);
            pair.move_to_kernel();
            for whose in [US, PEER] {
                pair.drain(whose);
            }
            pair.write_all(PEER, 30_000);
            pair.write(US, 200_000);
            pair.write(PEER, 10_000);
            pair.move_to_ring();
            for whose in [PEER, US] {
                pair.drain(whose);
            }
            pair.talk();
        }
        pair.finish(&[US, PEER]);
    });
}

#[test]
fn bytes_out_of_order_are_not_sent_again() {
    in_worlds(|world| {
        let mut pair = Pair::connect(world);
        pair.talk();
        for whose_acknowledgments in [0, 1] {
            let before = total_retransmissions(&pair.peers);
            pair.world.ring.queues_mut().lose = 1 + whose_acknowledgments;
            pair.write_all(PEER, 12_000);
            pair.world.ring.poll(pair.world.now());
            pair.move_to_kernel();
            pair.drain(US);
            let again = total_retransmissions(&pair.peers) - before;
            // (What was lost, and perhaps a probe for the end of what was sent.)
            assert!(again <= 3, "{again} segments of 9 were sent again");
            pair.talk();
            pair.move_to_ring();
            pair.talk();
        }
        pair.finish(&[US, PEER]);
    });
}

#[test]
fn a_closed_window_of_ours_stays_closed_until_the_program_reads() {
    in_worlds(|world| {
        let mut pair = Pair::connect(world);
        let fill = |pair: &mut Pair<'_>| {
            let mut idle = 0;
            while idle < 50 {
                idle = if pair.write(PEER, 1 << 16) > 0 { 0 } else { idle + 1 };
                pair.pass(Duration::from_millis(1));
            }
        };
        fill(&mut pair);
        pair.move_to_kernel();
        pair.pass(Duration::from_millis(300));
        pair.move_to_ring();
        pair.pass(Duration::from_millis(300));
        pair.move_to_kernel();
        pair.drain(US);
        fill(&mut pair);
        pair.move_to_ring();
        pair.drain(US);
        pair.talk();
        pair.finish(&[US, PEER]);
    });
}

#[test]
fn a_closed_window_of_the_peers_is_probed_and_all_arrives_once_it_reads() {
    in_worlds(|world| {
        let mut pair = Pair::connect(world);
        for _ in 0..2 {
            let mut idle = 0;
            while idle < 50 {
                idle = if pair.write(US, 1 << 16) > 0 { 0 } else { idle + 1 };
                pair.pass(Duration::from_millis(1));
            }
            pair.move_to_kernel();
            pair.pass(Duration::from_millis(700));
            let (asked, waits) = (pair.world.now(), pair.written[US] - pair.read[PEER]);
            pair.drain(PEER);
            let took = pair.world.now() - asked;
            // The first round has a few hundred kilobytes, later ones have what buffers have grown to. (The probe that would come next is 700 ms away.)
            let most = Duration::from_millis(300) + Duration::from_nanos(200 * waits);
            assert!(took < most, "{waits} bytes took {took:?}");
            // And back, while the peer does not read again.
            while pair.write(US, 1 << 16) > 0 {
                pair.turn();
            }
            pair.move_to_ring();
            pair.pass(Duration::from_millis(300));
            pair.drain(PEER);
            pair.talk();
        }
        pair.finish(&[US, PEER]);
    });
}

/// From ring to ring, as it is and as bytes. (The ring is the same: what is tried is the way.)
#[test]
fn rings_hand_it_to_each_other() {
    in_worlds(|world| {
        let mut pair = Pair::connect(world);
        pair.write_all(PEER, 3000);
        let mut nothing = || Vec::new();
        let (now, handover) = pair.detach();
        let left = ToRing { ring: &mut pair.world.ring, now }.leave(handover, &mut nothing);
        pair.ours = Ours::Ring(left.expect("there is room"));
        pair.talk();
        let (now, handover) = pair.detach();
        let mut refuse = ToProcess { offer: |_: Written| Err(std::io::ErrorKind::ConnectionRefused.into()) };
        let refused = refuse.leave(handover, &mut nothing).expect_err("nobody is there");
        assert!(matches!(refused.error, LeaveError::Process(_)), "{}", refused.error);
        pair.ours = Ours::Ring(pair.world.ring.adopt(now, refused.handover).map_err(|(error, _)| error).expect("it goes back"));
        pair.talk();
        let (now, handover) = pair.detach();
        let mut offered = None;
        let offer = |written: Written| {
            offered = Some(written);
            Ok(())
        };
        ToProcess { offer }.leave(handover, &mut nothing).expect("it was offered");
        let Written { local, remote, hop, snapshot } = offered.expect("it was offered");
        let ring = &mut pair.world.ring;
        let id = ring.adopt_snapshot(now, (local, remote), hop, &Config::default(), &snapshot).expect("there is room");
        ring.tcp_go_on(now, id).expect("it is there");
        pair.ours = Ours::Ring(id);
        pair.talk();
        pair.finish(&[US, PEER]);
    });
}

const LOAD_BYTES: u64 = 24 << 20;
const BYTES_A_MOVE: u64 = 1 << 20;

#[test]
fn under_load_both_streams_arrive_to_the_byte() {
    in_worlds(|world| under_load(Pair::connect(world)));
}

#[test]
fn without_injection_what_arrives_meanwhile_is_sent_again() {
    in_world(false, RingConfig::default(), |world| {
        let mut pair = Pair::connect(world);
        pair.kernel = ringway_host::leave::Kernel::open(pair.world.clock).expect("as before").without_injection();
        under_load(pair);
    });
}

#[test]
fn on_a_lossy_link_both_streams_arrive_to_the_byte() {
    in_worlds(|world| {
        world.ring.queues_mut().lose_one_of = 200;
        under_load(Pair::connect(world));
    });
}

/// Both write as much as they can, the peer in a thread of its own; we move each so many bytes.
fn under_load(mut pair: Pair<'_>) {
    let mut peers = pair.peers.try_clone().expect("a descriptor");
    let clock = pair.world.clock;
    let end = clock.now() + Duration::from_secs(120);
    std::thread::scope(|scope| {
        let peer = scope.spawn(move || {
            let (mut written, mut read, mut into) = (0, 0, vec![0; 1 << 16]);
            let idle = |error: &std::io::Error| assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock, "the peer: {error}");
            while written < LOAD_BYTES || read < LOAD_BYTES {
                assert!(clock.now() < end, "the peer wrote {written} and read {read}");
                let before = written + read;
                let left = (LOAD_BYTES - written).min(1 << 16) as usize;
                if left > 0 {
                    match peers.write(&crate::pair::bytes(PEER, written, left)) {
                        Ok(count) => written += count as u64,
                        Err(error) => idle(&error),
                    }
                }
                match peers.read(&mut into) {
                    Ok(0) => assert_eq!(read, LOAD_BYTES, "the peer sees the end early"),
                    Ok(count) => {
                        assert!(crate::pair::bytes(US, read, count) == into[..count], "wrong bytes from {read} on");
                        read += count as u64;
                    }
                    Err(error) => idle(&error),
                }
                if written + read == before {
                    std::thread::sleep(Duration::from_micros(100));
                }
            }
            (written, read)
        });
        let mut next = BYTES_A_MOVE;
        while pair.read[US] < LOAD_BYTES || !peer.is_finished() {
            let left = LOAD_BYTES - pair.written[US];
            if left > 0 {
                pair.write(US, left.min(1 << 16) as usize);
            }
            pair.turn();
            // (A slow reader: its window closes now and then.)
            pair.written[PEER] = LOAD_BYTES;
            let read = pair.read(US, 24 << 10);
            assert!(read.is_some(), "the stream ended early");
            if pair.written[US] + pair.read[US] >= next && left > 0 {
                next += BYTES_A_MOVE;
                match pair.ours {
                    Ours::Ring(_) => pair.move_to_kernel(),
                    _ if pair.is_settled() => pair.move_to_ring(),
                    _ => {}
                }
            }
            let (read, written, moves) = (pair.read[US], pair.written[US], pair.moves);
            assert!(pair.world.now() < end, "{read} read and {written} written after {moves} moves");
        }
        assert_eq!(peer.join().expect("the peer"), (LOAD_BYTES, LOAD_BYTES));
    });
    assert!(pair.moves >= 10, "{} moves are few", pair.moves);
    println!("{} moves, the peer sent {} segments again", pair.moves, total_retransmissions(&pair.peers));
    pair.read[PEER] = LOAD_BYTES;
    pair.finish(&[US, PEER]);
}
