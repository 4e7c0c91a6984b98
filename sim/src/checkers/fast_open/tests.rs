//! Each law, broken by hand-made frames, and kept by others.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::super::flow::Flows;
use super::super::shadow::tests::{IRS, ISS, segment};
use super::*;

const SERVER: &str = "10.0.0.2:80";

/// A client and a server, and frames that all arrive.
#[derive(Default)]
struct Wire {
    flows: Flows,
    cookies: Cookies,
}

impl Wire {
    /// One of them sends a segment. What law that breaks.
    fn sends(&mut self, said: Option<&[u8]>, segment: Segment) -> Option<String> {
        let segment = Segment { fast_open: said.map(FastOpen::of), ..segment };
        let moment = Moment { host: usize::from(segment.src.port() == 80), ..Moment::after(1000) };
        let current = self.flows.id((segment.src, segment.dst));
        let id = self.flows.sender(current, moment.host, moment.at, &segment).unwrap();
        self.flows.answers_syn(id, &segment);
        self.flows.pair(id);
        let (own, peer) = self.flows.both(id);
        let outcome = catch_unwind(AssertUnwindSafe(|| sent(&moment, &segment, own, peer.as_deref(), &mut self.cookies)));
        self.flows.sent(id, moment.at, &segment);
        self.cookies.delivered(&segment);
        outcome.err().map(|breach| breach.downcast_ref::<String>().unwrap().clone())
    }

    /// A SYN from that port, with so many bytes.
    fn syn(&mut self, port: u16, said: Option<&[u8]>, len: usize) -> Option<String> {
        self.sends(said, segment(&format!("10.0.0.1:{port}"), SERVER, ISS, 0, SYN, len))
    }

    /// The answer, which takes so many bytes.
    fn syn_ack(&mut self, port: u16, said: Option<&[u8]>, took: u32) -> Option<String> {
        self.sends(said, segment(SERVER, &format!("10.0.0.1:{port}"), IRS, ISS + 1 + took, SYN | ACK, 0))
    }

    /// With a cookie that was asked for, and given.
    fn acquainted() -> Self {
        let mut wire = Self::default();
        assert_eq!((wire.syn(1, Some(&[]), 0), wire.syn_ack(1, Some(&[7; 8]), 0)), (None, None));
        wire
    }
}

fn breaks(outcome: Option<String>, law: &str) {
    assert!(outcome.as_ref().is_some_and(|told| told.contains("checker fast_open") && told.contains(law)), "{outcome:?}");
}

#[test]
fn a_cookie_that_was_given_is_shown_and_bytes_are_taken() {
    let mut wire = Wire::acquainted();
    assert_eq!((wire.syn(2, Some(&[7; 8]), 100), wire.syn_ack(2, None, 100)), (None, None));
    let early = segment(SERVER, "10.0.0.1:2", IRS + 1, ISS + 101, ACK, 50);
    assert_eq!(wire.sends(None, early), None, "and are answered");
    // It goes again without both.
    assert_eq!((wire.syn(2, None, 0), wire.syn_ack(2, None, 100)), (None, None));
}

#[test]
fn bytes_go_with_a_cookie_of_that_host_alone() {
    breaks(Wire::default().syn(1, None, 10), "RFC 7413 s4.1.3: a SYN without a cookie");
    breaks(Wire::acquainted().syn(2, Some(&[]), 10), "RFC 7413 s4.1.3: a SYN without a cookie");
    breaks(Wire::acquainted().syn(2, Some(&[8; 8]), 10), "RFC 7413 s4.1.3: a cookie is shown");
    breaks(Wire::default().syn(2, Some(&[7; 8]), 10), "RFC 7413 s4.1.3: a cookie is shown");
}

#[test]
fn what_goes_again_goes_without() {
    for (said, len) in [(Some(&[7; 8][..]), 10), (Some(&[7; 8]), 0), (Some(&[]), 0), (None, 10)] {
        let mut wire = Wire::acquainted();
        assert_eq!(wire.syn(2, Some(&[7; 8]), 10), None);
        breaks(wire.syn(2, said, len), "RFC 7413 s4.1.3.1");
    }
}

#[test]
fn a_cookie_is_for_who_asked() {
    let mut wire = Wire::default();
    assert_eq!(wire.syn(1, None, 0), None);
    breaks(wire.syn_ack(1, Some(&[7; 8]), 0), "RFC 7413 s4.2.2: a cookie for who did not ask");
    let mut wire = Wire::default();
    assert_eq!(wire.syn(1, Some(&[]), 0), None);
    breaks(wire.syn_ack(1, Some(&[]), 0), "RFC 7413 s4.2.2: a SYN-ACK asks");
    let late = segment(SERVER, "10.0.0.1:1", IRS + 1, ISS + 1, ACK, 0);
    breaks(Wire::acquainted().sends(Some(&[7; 8]), late), "RFC 7413 s4.1.1");
}

#[test]
fn bytes_are_taken_from_who_shows_what_it_was_given() {
    let mut wire = Wire::acquainted();
    // (It was damaged on its way.)
    wire.cookies
        .delivered(&Segment { fast_open: Some(FastOpen::of(&[8; 8])), ..segment(SERVER, "10.0.0.1:1", IRS, ISS + 1, SYN | ACK, 0) });
    assert_eq!(wire.syn(2, Some(&[8; 8]), 10), None);
    breaks(wire.syn_ack(2, None, 10), "RFC 7413 s4.2.2: bytes are taken");
    assert_eq!(wire.syn(3, Some(&[8; 8]), 10), None);
    assert_eq!(wire.syn_ack(3, Some(&[7; 8]), 0), None, "it is told the right one");
}

#[test]
fn nothing_is_sent_early_to_who_shows_none() {
    let mut wire = Wire::acquainted();
    assert_eq!((wire.syn(2, None, 0), wire.syn_ack(2, None, 0)), (None, None));
    breaks(wire.sends(None, segment(SERVER, "10.0.0.1:2", IRS + 1, ISS + 1, ACK, 50)), "RFC 9293 s3.10.7.4");
}

#[test]
fn so_many_are_under_way() {
    let mut wire = Wire::acquainted();
    for port in 2..5 {
        assert_eq!((wire.syn(port, Some(&[7; 8]), 10), wire.syn_ack(port, None, 10)), (None, None));
    }
    let check = |millis, most| {
        let moment = Moment { host: 1, ..Moment::after(millis) };
        let outcome = catch_unwind(AssertUnwindSafe(|| bounded(&moment, wire.flows.all(), 80, most)));
        outcome.err().map(|breach| breach.downcast_ref::<String>().unwrap().clone())
    };
    assert_eq!(check(1000, 3), None);
    breaks(check(1000, 2), "RFC 7413 s5.1: 3 connections");
    assert_eq!(check(60_000, 2), None, "they may have been given up by then");
}
