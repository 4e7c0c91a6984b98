//! Drills: a ring alone on a bench, and TCP made by hand for it, as packetdrill does: each segment that the stack sends has its cause in the drill, and
//! comes when it must. What a network hides (by whatever it may have lost, delayed or merged) shows here: answers to single segments in each
//! state, to a number; timeouts to a tick; windows to a byte; and how many segments there are.
//!
//! Each seed of a campaign runs some of them, with what it draws, before its scenario. A breach is the checker `drills`'s, and says what went before.

mod acks;
mod arrivals;
mod bench;
mod calls;
mod card;
mod clocks;
mod congestion;
mod datagrams;
mod ecn;
mod ends;
mod fast_open;
mod handshakes;
mod link;
mod moves;
mod options;
mod paths;
mod pieces;
mod queues;
mod recovery;
mod ring;
mod sending;
mod tail;
mod timeouts;
mod windows;

use ringway_stack::device::Queues;
use ringway_stack::mutants::Mutant;
use ringway_stack::raw::RawQueue;
use ringway_stack::ring::Ring;

use bench::Bench;

type Drill = (&'static str, fn(&mut Bench));

const DRILLS: &[&[Drill]] = &[
    acks::DRILLS,
    arrivals::DRILLS,
    calls::DRILLS,
    clocks::DRILLS,
    congestion::DRILLS,
    datagrams::DRILLS,
    ends::DRILLS,
    handshakes::DRILLS,
    link::DRILLS,
    options::DRILLS,
    paths::DRILLS,
    queues::DRILLS,
    sending::DRILLS,
    timeouts::DRILLS,
    windows::DRILLS,
    // (At the end: those before keep their numbers, by which seeds draw.)
    ring::DRILLS,
    pieces::DRILLS,
    &[
        ("a challenge that acknowledges", acks::challenge_is_heard),
        ("an acknowledgment behind many frames", acks::before_timers),
        ("a slow reader", windows::slow),
        ("a device that is full again", sending::refused_again),
        ("a listener's rate", handshakes::rate),
        ("a datagram with options for nobody", datagrams::options_for_nobody),
        ("a window of small pieces", congestion::small_pieces),
    ],
    moves::DRILLS,
    &[("bytes that are lent and given back", windows::given_back)],
    ring::LATER,
    &[("a window that comes down in proportion", recovery::proportional)],
    ecn::DRILLS,
    &[("a retransmission that is lost", sending::lost_again)],
    fast_open::DRILLS,
    tail::DRILLS,
];

/// A seed runs one drill of so many; and one of so many of those that take long.
const SHARE: u64 = 24;
const LONG_SHARE: u64 = 96;

/// Drills that take long, most of them to fill buffers: a sixth of all, and two thirds of the time of all.
const LONG: &[&str] = &[
    "a buffer that several queues are read into",
    "a change of options in mid-flight",
    "a queue of datagrams",
    "a queue that is lent from",
    "a queue whose reader never catches up",
    "a reader who makes room",
    "a receive buffer that grows",
    "a receive filter before a queue",
    "a shift beyond fourteen",
    "a slow reader",
    "a steady round trip",
    "a table of sockets that is full",
    "a window that a reader earns",
    "an acknowledgment behind many frames",
    "datagrams of every size",
    "datagrams that are cut",
    "frames with datagrams",
    "one peer after another",
    "round trips after timeouts",
    "send buffers that are acknowledged",
    "several neighbours that are unknown",
    "slow start",
    "sockets that share an address",
];

/// Runs a seed's drills.
///
/// # Panics
/// The stack broke a law.
pub fn run(seed: u64, mutant: Mutant) {
    for (number, &drill) in all().enumerate() {
        let turn = number as u64 + seed;
        if turn.is_multiple_of(SHARE) && (turn.is_multiple_of(LONG_SHARE) || !LONG.contains(&drill.0)) {
            perform(number, drill, seed, mutant);
        }
    }
}

fn all() -> impl Iterator<Item = &'static Drill> {
    DRILLS.iter().copied().flatten()
}

/// How many drills there are.
pub fn count() -> usize {
    all().count()
}

/// Runs one of them.
///
/// # Panics
/// The stack broke a law.
pub fn play(number: usize, seed: u64, mutant: Mutant) {
    let &drill = all().nth(number).expect("there are as many");
    perform(number, drill, seed, mutant);
}

fn perform(number: usize, (name, drill): Drill, seed: u64, mutant: Mutant) {
    drill(&mut Bench::new(name, seed ^ (number as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15), mutant));
}

#[cfg(feature = "mutants")]
fn infected<Q: Queues>(mut ring: Ring<Q>, mutant: Mutant) -> Ring<Q> {
    ring.mutate(mutant);
    ring
}

#[cfg(not(feature = "mutants"))]
fn infected<Q: Queues>(ring: Ring<Q>, _mutant: Mutant) -> Ring<Q> {
    ring
}

#[cfg(feature = "mutants")]
fn infected_raw<Q: Queues>(mut queue: RawQueue<Q>, mutant: Mutant) -> RawQueue<Q> {
    queue.mutate(mutant);
    queue
}

#[cfg(not(feature = "mutants"))]
fn infected_raw<Q: Queues>(queue: RawQueue<Q>, _mutant: Mutant) -> RawQueue<Q> {
    queue
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_that_take_long_are_drills() {
        let names: Vec<_> = all().map(|drill| drill.0).collect();
        assert!(LONG.iter().all(|name| names.contains(name)));
        assert!(count() as u64 > LONG_SHARE, "each seed runs some");
    }

    #[test]
    fn a_lawful_stack_breaks_no_law() {
        for seed in 0..if cfg!(debug_assertions) { 100 } else { 3000 } {
            (0..count()).for_each(|number| play(number, seed, Mutant::Healthy));
        }
    }
}
