//! One spinner a core, of all connected members.

use core::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use ringway_host::HostQueues;
use ringway_stack::device::{DeviceEvent, Queues};

use super::{Node, fresh_address, pair, tcp};
use crate::layout::{CORE_CLAIM_WORDS, CORE_CLAIMS_AT};
use crate::protocol::WriteWords;

const CORE: usize = 0;

#[test]
fn a_core_is_claimed_by_one_of_two_members_until_it_gives_it_up() {
    let (mut a, mut b, _) = pair();
    assert!(a.device.claim_core(CORE));
    assert!(!b.device.claim_core(CORE) && !b.device.claim_core(CORE));
    assert!(!a.device.claim_core(CORE), "another thread of the same process is another spinner");
    assert!(b.device.claim_core(CORE + 1), "another core");
    assert!(b.device.claim_core(CORE + 64), "the same bit of another word");
    assert!(!a.device.claim_core(CORE + 1) && !a.device.claim_core(CORE + 64));
    a.device.release_core(CORE);
    assert!(b.device.claim_core(CORE));
    assert!(!a.device.claim_core(CORE));
}

#[test]
fn cores_beyond_the_table_share_claims() {
    let (mut a, mut b, _) = pair();
    let far = CORE + CORE_CLAIM_WORDS * 64;
    assert!(a.device.claim_core(CORE));
    assert!(!a.device.claim_core(far) && !b.device.claim_core(far), "one who comes second sleeps");
    assert!(b.device.claim_core(far + 1));
}

#[test]
fn a_members_channel_to_itself_is_not_another_member() {
    let mut node = Node::new();
    let address = fresh_address();
    node.device.steer(&tcp(address)).unwrap();
    node.find(address).expect("itself");
    assert!(node.device.claim_core(CORE));
    node.device.release_core(CORE);
    assert!(node.device.claim_core(CORE));
}

#[test]
fn a_member_that_leaves_frees_its_cores() {
    let (mut a, mut b, to_b) = pair();
    assert!(b.device.claim_core(CORE));
    assert!(!a.device.claim_core(CORE));
    drop(b);
    assert_eq!(a.await_event(), DeviceEvent::PeerGone(to_b));
    assert!(a.device.claim_core(CORE));
}

#[test]
fn a_peer_that_claims_every_core_keeps_spinners_away_and_nothing_else() {
    let (mut attacker, mut victim, to_victim) = pair();
    attacker.send(to_victim, b"honest").unwrap();
    victim.receive();
    let link = attacker.device.link(to_victim).unwrap();
    for word in 0..CORE_CLAIM_WORDS {
        link.member.segment.store(CORE_CLAIMS_AT + word * 8, u64::MAX, Ordering::Relaxed);
    }
    for core in 0..2 * CORE_CLAIM_WORDS * 64 {
        assert!(!victim.device.claim_core(core));
    }
    attacker.send(to_victim, b"still served").unwrap();
    assert_eq!(victim.receive().payload, b"still served");
    // Refused claims were taken back: an honest third member is not kept away by the victim.
    let mut third = Node::new();
    let address = fresh_address();
    victim.device.steer(&tcp(address)).unwrap();
    third.find(address).expect("the victim");
    assert!(third.device.claim_core(CORE));
}

/// Never do two members have a core at once, on real processors. They begin every round together, and play as many as there is time for: where
/// each has to wait for a processor first, a round takes as long as that.
#[test]
fn members_that_claim_at_the_same_time_never_both_get_it() {
    const ROUNDS: u32 = 50_000;
    const TIME: Duration = Duration::from_secs(10);
    let (mut a, mut b, _) = pair();
    let (arrived, inside, last) = (AtomicU32::new(0), AtomicU32::new(0), AtomicU32::new(ROUNDS));
    let begin = Instant::now();
    let claim = |node: &mut Node, says_when: bool| {
        let (mut got, mut shared) = (0, 0);
        for round in 1..=ROUNDS {
            // Said before the round begins, which both play then.
            if says_when && begin.elapsed() > TIME {
                last.store(round, Ordering::SeqCst);
            }
            arrived.fetch_add(1, Ordering::SeqCst);
            while arrived.load(Ordering::Relaxed) < 2 * round {
                std::thread::yield_now();
            }
            if node.device.claim_core(CORE) {
                // Counted rather than asserted: the other one waits for this one to go on.
                shared += inside.fetch_add(1, Ordering::Relaxed);
                (0..20).for_each(|_| core::hint::spin_loop());
                got += 1;
                inside.fetch_sub(1, Ordering::Relaxed);
                node.device.release_core(CORE);
            }
            if round >= last.load(Ordering::SeqCst) {
                break;
            }
        }
        (got, shared)
    };
    let (one, other): ((u32, u32), _) = std::thread::scope(|scope| {
        let other = scope.spawn(|| claim(&mut b, false));
        (claim(&mut a, true), other.join().unwrap())
    });
    assert_eq!((one.1, other.1), (0, 0), "two had it at once");
    assert!(one.0 + other.0 > 0, "nobody ever got it");
    assert!(a.device.claim_core(CORE), "something is left claimed");
}
