//! Each law, broken by frames and calls in a wrong order, and kept in the right one.

use std::net::Ipv4Addr;

use super::*;
use crate::fabric::{Frame, Marks};
use crate::frames::{self, Tcp};

const OTHER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));
const MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);
const ANOTHER: MacAddr = MacAddr([2, 0, 0, 0, 0, 3]);

fn at(millis: u64) -> Moment {
    Moment::after(millis)
}

fn datagram() -> Datagram {
    Datagram::new("10.0.0.1:80".parse().unwrap(), "10.0.0.2:90".parse().unwrap(), b"bytes")
}

/// Something was said to somebody, who was asked for at one second.
fn asking() -> State {
    let mut state = State::default();
    state.asked(&at(1000), OTHER, true);
    state.said(at(1000).at, OTHER, datagram());
    state.settle(&at(1000), true);
    assert!(state.busy);
    state
}

#[test]
fn what_waits_is_sent_to_who_answers_and_goes_where_that_moves() {
    let mut state = asking();
    state.asked(&at(2000), OTHER, true);
    state.claimed(at(2500).at, OTHER, MAC, true, false);
    state.sent(&at(2500), OTHER, MAC, false);
    state.left(&at(2500), OTHER, &datagram());
    state.settle(&at(9000), true);
    assert!(!state.busy);
    state.claimed(at(9000).at, OTHER, ANOTHER, true, false);
    state.sent(&at(9001), OTHER, MAC, false);
    state.sent(&at(9001), OTHER, ANOTHER, false);
}

/// A device that refuses the second question for long: it is the second all the same, and two more make three.
#[test]
fn a_question_that_the_device_refuses_for_long() {
    let ends = |second: u64| {
        let mut state = State::default();
        [0, second, second + 1000].iter().for_each(|millis| state.asked(&at(1000 + millis), OTHER, true));
        state.settle(&at(1000 + second + 3000), true);
    };
    ends(1105);
    assert!(std::panic::catch_unwind(|| ends(3000)).is_err(), "another question, asked twice");
}

#[test]
#[should_panic(expected = "10.0.0.2 was asked for 1 times, and is not asked for again")]
fn a_neighbour_is_asked_for_once() {
    asking().settle(&at(2200), true);
}

#[test]
#[should_panic(expected = "10.0.0.2 is asked for 5 times, and nobody wants anything of it")]
fn a_neighbour_is_asked_for_without_end() {
    let mut state = asking();
    (2..8).for_each(|second| state.asked(&at(1000 * second), OTHER, true));
}

#[test]
#[should_panic(expected = "is neither sent nor waits for 10.0.0.2")]
fn what_waits_is_lost_when_there_is_an_answer() {
    let mut state = asking();
    state.claimed(at(1500).at, OTHER, MAC, true, false);
    state.settle(&at(1500), true);
    state.settle(&at(2200), true);
}

#[test]
#[should_panic(expected = "is sent 8s after it was said, when 10.0.0.2 was given up")]
fn what_waits_is_sent_when_it_was_given_up() {
    let mut state = asking();
    (2..4).for_each(|second| state.asked(&at(1000 * second), OTHER, true));
    state.settle(&at(4200), true);
    state.claimed(at(9000).at, OTHER, MAC, true, true);
    state.left(&at(9000), OTHER, &datagram());
}

/// Three questions and a pause, in which nobody looked, and the same again: what had waited for the first three's answer is not what the next one's sets free.
#[test]
fn what_was_given_up_does_not_wait_for_the_next_question() {
    let given_up = || {
        let mut state = asking();
        (2..4).for_each(|second| state.asked(&at(1000 * second), OTHER, true));
        let later = Datagram::new("10.0.0.1:80".parse().unwrap(), "10.0.0.2:90".parse().unwrap(), b"more");
        state.asked(&at(4101), OTHER, true);
        state.said(at(4101).at, OTHER, later);
        state.claimed(at(4200).at, OTHER, MAC, true, false);
        state.left(&at(4200), OTHER, &later);
        state
    };
    let mut state = given_up();
    state.settle(&at(4200), true);
    state.settle(&at(9000), true);
    let sent = std::panic::catch_unwind(|| given_up().left(&at(4200), OTHER, &datagram()));
    assert!(sent.expect_err("it was").downcast_ref::<String>().unwrap().contains("when 10.0.0.2 was given up"));
}

#[test]
#[should_panic(expected = "a packet to 10.0.0.2, which nobody asked for and which did not ask")]
fn an_unasked_claim_is_believed() {
    let mut state = State::default();
    state.claimed(at(1000).at, OTHER, MAC, true, false);
    state.sent(&at(2200), OTHER, MAC, false);
}

#[test]
fn what_came_just_before_a_packet_may_have_been_an_answer_and_stays_one() {
    let mut state = State::default();
    state.claimed(at(1000).at, OTHER, MAC, true, false);
    state.sent(&at(1100), OTHER, MAC, false);
    state.sent(&at(2200), OTHER, MAC, false);
}

#[test]
#[should_panic(expected = "a packet to 10.0.0.2 goes to MacAddr([2, 0, 0, 0, 0, 2]), and it is at Some(MacAddr([2, 0, 0, 0, 0, 3]))")]
fn a_neighbour_that_moved_is_spoken_to_where_it_was() {
    let mut state = State::default();
    state.claimed(at(1000).at, OTHER, MAC, true, true);
    state.claimed(at(2000).at, OTHER, ANOTHER, true, false);
    state.sent(&at(4100), OTHER, MAC, false);
}

#[test]
#[should_panic(expected = "10.0.0.2 is asked for, and has said 100ms ago where it is, when it asked itself")]
fn who_asked_is_asked_for() {
    let mut state = State::default();
    state.claimed(at(1000).at, OTHER, MAC, true, true);
    state.asked(&at(1100), OTHER, false);
}

/// RFC 4861 s7.2.3: who asks for another host by IPv6 tells nobody else where he is; by ARP, everybody.
#[test]
fn a_question_for_another_host() {
    let about = |sender: &str, target: &str| dissect::Lookup {
        asks: true,
        sender: sender.parse().unwrap(),
        mac: Some(MAC),
        target: target.parse().unwrap(),
        target_mac: None,
    };
    let (v4, v6) = ("10.0.0.1".parse().ok(), "fd00::1".parse().ok());
    assert!(about("10.0.0.2", "10.0.0.3").tells(v4));
    assert!(about("fd00::2", "fd00::1").tells(v6) && !about("fd00::2", "fd00::3").tells(v6));
    assert!(dissect::Lookup { asks: false, ..about("fd00::2", "fd00::3") }.tells(v6));
}

#[test]
fn a_damaged_syn_claims_nothing() {
    let claims = |marks| {
        let mut checkers = Checkers::default();
        checkers.adopt((0, 0), Ipv4Addr::new(10, 0, 0, 1).into(), Duration::from_secs(60));
        let (from, to) = ("10.0.0.2:80".parse().unwrap(), "10.0.0.1:90".parse().unwrap());
        let bytes = frames::tcp(from, to, Tcp { seq: 1, flags: crate::segment::SYN, timestamp: None }, &[]).into();
        checkers.delivered(Instant::ZERO, 0, &Frame { id: 0, bytes, marks, sound: false, unsolicited: false });
        checkers.neighbour_tables[0].known.get(&OTHER).map_or(0, |neighbour| neighbour.claims.len())
    };
    assert_eq!([claims(Marks::default()), claims(Marks::CORRUPTED)], [1, 0]);
}

/// Where a SYN came from it is answered, and nothing else is sent there once ARP has said where its sender is.
#[test]
fn a_syn_is_answered_where_it_came_from() {
    let state = || {
        let mut state = State::default();
        state.claimed(at(1000).at, OTHER, MAC, false, false);
        state.claimed(at(1100).at, OTHER, ANOTHER, false, false);
        state.sent(&at(1100), OTHER, ANOTHER, true);
        state.sent(&at(1200), OTHER, MAC, false);
        state.claimed(at(1300).at, OTHER, MAC, true, true);
        state.sent(&at(60_000), OTHER, ANOTHER, true);
        state
    };
    state().sent(&at(60_000), OTHER, MAC, false);
    assert!(std::panic::catch_unwind(|| state().sent(&at(60_000), OTHER, ANOTHER, false)).is_err());
    assert!(std::panic::catch_unwind(|| state().sent(&at(60_000), OTHER, MacAddr([2; 6]), true)).is_err());
}
