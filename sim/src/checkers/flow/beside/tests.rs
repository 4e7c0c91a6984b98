//! Two connections between the same addresses, on two rings of a host.

use core::time::Duration;

use ringway_stack::Instant;
use ringway_stack::ring::FlowId;

use super::super::super::segment::PSH;
use super::super::super::shadow::tests::{IRS, ISS, OWN, PEER, address, segment};
use super::*;

/// The host that has both.
const HOST: usize = 1;
/// Where the second one begins, and its peer then.
const LATER: u32 = 1 << 31;

/// A connection, and the one that began beside it; the first's peer has acknowledged its SYN. `unsteered`: the device failed its rule.
struct Both {
    flows: Flows,
    first: usize,
    second: usize,
}

impl Both {
    fn new(unsteered: bool) -> Self {
        let mut flows = Flows::default();
        let first = begins(&mut flows, ISS, IRS);
        if unsteered {
            flows.unsteered(HOST, vec![tuple()]);
        }
        flows.at_mut(first).delivered(&now(), &segment(PEER, OWN, IRS + 1, ISS + 1, ACK, 0), 0);
        let second = begins(&mut flows, ISS.wrapping_add(LATER), IRS.wrapping_add(LATER));
        Self { flows, first, second }
    }

    /// The second one's peer acknowledges its SYN.
    fn second_opens(&mut self) {
        let number = |first: u32| first.wrapping_add(LATER + 1);
        self.flows.at_mut(self.second).delivered(&now(), &segment(PEER, OWN, number(IRS), number(ISS), ACK, 0), 0);
    }
}

fn now() -> Moment {
    Moment { at: Instant::ZERO + Duration::from_secs(1), ..Moment::after(0) }
}

fn tuple() -> Tuple {
    (address(OWN), address(PEER))
}

/// The host answers a SYN.
fn begins(flows: &mut Flows, iss: u32, irs: u32) -> usize {
    let answer = segment(OWN, PEER, iss, irs.wrapping_add(1), SYN | ACK, 0);
    let id = flows.sender(flows.id(tuple()), HOST, now().at, &answer).unwrap();
    flows.sent(id, now().at, &answer);
    id
}

/// A connection whose rule failed late sends on beside the one that another ring of its group began (as in the seed 79062798).
#[test]
fn what_an_earlier_connection_sends_is_its_own() {
    let Both { flows, first, second } = Both::new(true);
    assert_eq!(flows.id(tuple()), Some(second));
    let whose = |seq: u32, flags: u8, len: usize| flows.sender_beside(second, &segment(OWN, PEER, seq, IRS + 1, flags, len));
    assert_eq!(whose(ISS + 1, ACK | PSH, 12), Some(first));
    assert_eq!(whose(ISS, ACK | SYN, 0), Some(first), "its answer to the SYN once more");
    assert_eq!(whose(ISS + 1, ACK | RST, 0), Some(first), "it ends");
    assert_eq!(whose(ISS + 1, RST, 0), None, "an answer to what came");
    assert_eq!(whose(ISS.wrapping_add(LATER + 1), ACK | PSH, 12), None, "the second one's");
    // The law of numbers stays: of what neither has, the second is asked.
    assert_eq!(whose(ISS + 2, ACK | PSH, 12), None, "behind a gap");
    assert_eq!(whose(ISS - 1, ACK | PSH, 12), None, "before its first");
    assert_eq!(whose(ISS, ACK | PSH, 12), None, "bytes where its SYN was");
}

/// Where its rule steers, its peer's frames come to it, and nothing begins beside it.
#[test]
fn an_earlier_connection_that_is_steered_is_over() {
    let Both { flows, second, .. } = Both::new(false);
    assert_eq!(flows.sender_beside(second, &segment(OWN, PEER, ISS + 1, IRS + 1, ACK | PSH, 12)), None);
    let mut both = Both::new(true);
    both.flows.forget(HOST);
    assert_eq!(both.flows.sender_beside(both.second, &segment(OWN, PEER, ISS + 1, IRS + 1, ACK | PSH, 12)), None, "its host has crashed");
}

/// What arrives may have come to either ring: the earlier connection may go by what it may heed.
#[test]
fn what_arrives_may_be_for_an_earlier_connection() {
    let Both { mut flows, first, second } = Both::new(true);
    let sent = segment(OWN, PEER, ISS + 1, IRS + 1, ACK | PSH, 12);
    flows.sent(first, now().at, &sent);
    let mut comes = |ack: u32, len: usize| {
        flows.delivered_beside(&now(), second, &segment(PEER, OWN, IRS + 1, ack, ACK, len), Marks::default());
        (flows.at(first).una, flows.at(first).rx.next)
    };
    assert_eq!(comes(ISS.wrapping_add(LATER + 1), 5), (ISS + 1, IRS + 1), "the second one's");
    assert_eq!(comes(ISS + 13, 5), (ISS + 13, IRS + 6));
}

/// A third one leaves the first alone.
#[test]
fn several_earlier_connections_go_on() {
    let Both { mut flows, first, second } = Both::new(true);
    let third = begins(&mut flows, ISS.wrapping_add(LATER / 2), IRS.wrapping_add(LATER / 2));
    assert_eq!(flows.sender_beside(third, &segment(OWN, PEER, ISS + 1, IRS + 1, ACK | PSH, 12)), Some(first));
    assert_eq!(flows.sender_beside(third, &segment(OWN, PEER, ISS.wrapping_add(LATER + 1), IRS, ACK | PSH, 12)), Some(second));
}

/// Which of them a program accepts is known where only one has been opened by its peer, and was not accepted before.
#[test]
fn a_program_accepts_the_one_that_waits() {
    let Both { mut flows, first, .. } = Both::new(true);
    assert_eq!(flows.accepted(tuple(), HOST), Some(first));
    flows.at_mut(first).stream.watch();
    assert!(flows.at(first).stream.is_watched());

    let mut both = Both::new(true);
    both.second_opens();
    both.flows.at_mut(both.first).owner = Some((0, FlowId { ring: 0, index: 0, generation: 0 }));
    assert_eq!(both.flows.accepted(tuple(), HOST), Some(both.second));

    let mut both = Both::new(true);
    both.second_opens();
    assert_eq!(both.flows.accepted(tuple(), HOST), Some(both.first), "or the other one");
    for id in [both.first, both.second] {
        both.flows.at_mut(id).stream.watch();
        assert!(!both.flows.at(id).stream.is_watched());
    }
}

/// What leaves its ring before anybody accepted it is known by what it says of itself.
#[test]
fn an_earlier_connection_leaves_its_ring() {
    let Both { flows, first, second } = Both::new(true);
    assert_eq!(flows.left(tuple(), HOST, ISS + 1), Some(first));
    assert_eq!(flows.left(tuple(), HOST, ISS.wrapping_add(LATER + 1)), Some(second));
    assert_eq!(flows.left(tuple(), HOST + 1, ISS + 1), None);
}
