//! Each law, broken by hand-made frames, and kept by others.

use super::super::shadow::tests::{IRS, ISS, MSS, OWN, PEER, Side, address, segment};
use super::super::window;
use super::*;
use crate::checksum;
use crate::frames::{self, Tcp};

/// What a segment of the peer's can do, with zeros for its bytes.
fn judged(side: &mut Side, segment: &Segment) -> Forged {
    let (own, peer) = side.both();
    judge(&[0; 2000], segment, own, peer)
}

fn harmless(side: &mut Side, segment: &Segment) -> bool {
    judged(side, segment) == Forged::Harmless
}

/// A frame for `to`, as [`sent`] looks at it.
fn frame(to: MacAddr) -> Vec<u8> {
    let mut frame = frames::tcp(address(OWN), address(PEER), Tcp { seq: ISS + 1, flags: ACK, timestamp: None }, &[0; 10]);
    frame[..6].copy_from_slice(&to.0);
    frame
}

/// It sends so many bytes from the first one on.
fn sends(side: &mut Side, to: MacAddr, len: usize, lied_to: bool) {
    sends_with(side, ACK, to, len, lied_to);
}

fn sends_with(side: &mut Side, flags: u8, to: MacAddr, len: usize, lied_to: bool) {
    sends_reporting(side, &[], flags, to, len, Sender { lied_to, ..Sender::default() });
}

fn sends_reporting(side: &mut Side, blocks: &[(u32, u32)], flags: u8, to: MacAddr, len: usize, sender: Sender) {
    let (moment, mut segment) = (side.moment(), side.out(ISS + 1, IRS + 1, flags, len));
    segment.options = segment.options.reporting(blocks);
    let (own, peer) = side.both();
    sent(&moment, &frame(to), &segment, own, peer, sender);
}

#[test]
fn what_must_be_seen_through_is_told_by_its_numbers() {
    let mut side = Side::new();
    side.fills_window();
    let last = ISS + 1 + 10 * MSS;
    let data = |seq: u32, ack: u32| Side::of_peer(2, seq, ack, ACK, 10);
    assert!(!harmless(&mut side, &data(IRS + 1, ISS + 1)), "what the peer may say");
    assert!(!harmless(&mut side, &data(IRS + 1, last + FAR)) && harmless(&mut side, &data(IRS + 1, last + FAR + 1)), "never sent");
    let ancient = ISS.wrapping_add(1).wrapping_sub(WINDOW_MAX);
    assert!(!harmless(&mut side, &data(IRS + 1, ancient + 1)) && harmless(&mut side, &data(IRS + 1, ancient)), "long ago");
    let (moment, announced) = (side.moment(), side.out(last, IRS + 1, ACK, 0));
    let (own, peer) = side.both();
    window::sent(&moment, &announced, own, peer);
    assert!(
        harmless(&mut side, &data(IRS + (1 << 30), ISS + 1)) && !harmless(&mut side, &data(IRS + 1 + FAR, ISS + 1)),
        "beyond the window"
    );
    assert!(harmless(&mut side, &Segment { flags: FIN, ..data(IRS + 1, ISS + 1) }), "no acknowledgment");
    let reset = |seq| segment(PEER, OWN, seq, 0, RST, 0);
    assert!(harmless(&mut side, &reset(IRS + 2)) && !harmless(&mut side, &reset(IRS + 1)));
    // Behind what was received no reset counts either, once that is known for certain.
    assert!(harmless(&mut side, &reset(IRS)) && !harmless(&mut side, &reset(IRS + 1)));
    side.own().calm = false;
    assert!(!harmless(&mut side, &reset(IRS)));
    side.own().calm = true;
    assert!(harmless(&mut side, &segment(PEER, OWN, IRS + 1, 0, SYN, 0)));
    // In TIME-WAIT, a SYN may begin a connection (RFC 9293 s3.6.1).
    side.sends(side.out(last, IRS + 1, ACK | FIN, 0));
    assert!(!harmless(&mut side, &segment(PEER, OWN, IRS + 1, 0, SYN, 0)));
}

/// Whatever the peer said already it may have said once more: laws for that are those for duplicates.
#[test]
fn a_copy_is_told_by_its_bytes() {
    let mut side = Side::new();
    let said = Side::of_peer(2, IRS + 1, ISS + 1, ACK, 10);
    assert_eq!(judged(&mut side, &said), Forged::Doubtful, "the peer never said that");
    side.peer_says(&said);
    let judged = |side: &mut Side, change: &dyn Fn(&mut Segment)| {
        let mut segment = said.clone();
        change(&mut segment);
        judged(side, &segment)
    };
    assert_eq!(judged(&mut side, &|_| ()), Forged::Copy);
    assert_eq!(judged(&mut side, &|s| (s.seq, s.payload) = (IRS + 6, 0..5)), Forged::Copy);
    assert_eq!(judged(&mut side, &|s| s.payload = 0..11), Forged::Doubtful, "longer");
    assert_eq!(judged(&mut side, &|s| s.flags |= FIN), Forged::Doubtful, "the end");
    assert_eq!(judged(&mut side, &|s| s.ack += 1), Forged::Doubtful, "it acknowledges more");
    side.peer().stream.watch();
    side.peer().stream.write(&[std::io::IoSlice::new(&[1; 10])], 10);
    assert_eq!(judged(&mut side, &|_| ()), Forged::Doubtful, "other bytes");
}

#[test]
fn an_inexact_reset_explains_no_error() {
    let after = |seq: u32| {
        let mut side = Side::new();
        side.service();
        side.comes(&segment(PEER, OWN, seq, 0, RST, 0));
        side.own().forged.reset
    };
    assert_eq!([after(IRS + 2), after(IRS), after(IRS + 1)], [false, false, true]);
}

#[test]
fn a_program_hears_of_what_counted() {
    let told = |side: &Side, error| told(&side.moment(), side.flows.at(side.id()), error);
    Side::new().breaks("RFC 5961 s3.2, s4.2", |side| told(side, Error::Reset));
    let mut side = Side::new();
    side.comes(&segment(PEER, OWN, IRS + 1, 0, RST, 0));
    told(&side, Error::Reset);
    Side::new().breaks("RFC 5927 s5.2", |side| told(side, Error::Refused));
    let mut side = Side::new();
    side.passes(1000);
    told(&side, Error::Refused);
}

#[test]
fn nobody_speaks_to_an_attackers_mac_address() {
    Side::new().breaks("checker forged: host 0 at 1000000000 ns: RFC 826", |side| sends(side, ATTACKER_MAC, 10, false));
    let mut side = Side::new();
    sends(&mut side, ATTACKER_MAC, 10, true);
    sends(&mut side, frames::mac(1), 10, false);
}

/// An error about the segment that begins with `seq`, from an attacker.
fn path_error(seq: u32, mtu: u16) -> (Vec<u8>, Ip) {
    let mut like = frames::tcp(address(OWN), address(PEER), Tcp { seq, flags: ACK, timestamp: None }, &[0; 1400]);
    checksum::fill(&mut like);
    let quote = icmp::quote_of(&like).unwrap();
    let error = icmp::lie(&like[..14], frames::mac(0), quote, 1440, (3, 4), mtu);
    let dissect::Payload::Ip(ip) = dissect::payload(&error) else { panic!("no packet") };
    assert_eq!(quoted(&error, &ip), Some(((address(OWN), address(PEER)), seq)));
    (error, ip)
}

#[test]
fn an_error_makes_no_segment_tiny() {
    let told_after = |longest: u32, seq: u32, mtu: u16| {
        let mut side = Side::new();
        sends_with(&mut side, ACK | PSH, frames::mac(1), longest as usize, false);
        side.fills_window();
        let (frame, ip) = path_error(seq, mtu);
        let believable = error(&frame, &ip, seq, side.own());
        (side, believable)
    };
    let told = |seq: u32, mtu: u16| told_after(SEGMENT_MIN, seq, mtu);
    let again = |len: u32| move |side: &mut Side| sends(side, frames::mac(1), len as usize, false);
    let (side, believable) = told(ISS + 1, 68);
    assert!(believable);
    side.breaks("RFC 5927 s7.3", again(SEGMENT_MIN - 1));
    again(SEGMENT_MIN)(&mut told(ISS + 1, 68).0);
    // Of writes of 25 bytes, the device gathers 334.
    again(334)(&mut told_after(25, ISS + 1, 68).0);
    // Where no segment has more than 200 bytes, each block of SACK leaves 8 fewer, and the option another 4 (as in the seed 71106759).
    let reports = |len: u32| {
        let report = [(IRS + 101, IRS + 201), (IRS + 301, IRS + 401)];
        move |side: &mut Side| sends_reporting(side, &report, ACK, frames::mac(1), len as usize, Sender::default())
    };
    reports(180)(&mut told_after(200, ISS + 1, 68).0);
    told_after(200, ISS + 1, 68).0.breaks("RFC 5927 s7.3: 179 of", reports(179));
    told_after(200, ISS + 1, 68).0.breaks("RFC 5927 s7.3: 199 of", again(199));
    // Three pieces of 144 bytes are no more than 432, and 289 where the first is the end of one (as in the seed 80072265).
    let gathered = |len: u32| {
        let sender = Sender { gathers: (3, 144), ..Sender::default() };
        move |side: &mut Side| sends_reporting(side, &[], ACK, frames::mac(1), len as usize, sender)
    };
    gathered(289)(&mut told_after(432, ISS + 1, 68).0);
    told_after(432, ISS + 1, 68).0.breaks("RFC 5927 s7.3: 288 of", gathered(288));
    // Of one that nobody may believe, and of a path that there may be, nothing follows here.
    let (mut side, believable) = told(ISS + 1 + (1 << 30), 68);
    again(20)(&mut side);
    assert!(!believable);
    again(20)(&mut told(ISS + 1, 576).0);
}

#[test]
fn syns_in_the_peers_name() {
    let mut state = State::default();
    state.syn(5, false);
    assert!(!state.is_impersonated());
    state.syn(5, true);
    assert!(!state.is_impersonated(), "a copy of the peer's own");
    state.syn(9, true);
    assert!(state.is_impersonated() && state.answers_forged(10) && !state.answers_forged(6));
    let [first, again] = [3, 4].map(Instant::from_nanos);
    state.answered(first, 77);
    state.answered(again, 77);
    assert_eq!([state.answered_since(77), state.answered_since(78)], [Some(first), None]);
    state.syn(9, false);
    assert!(!state.is_impersonated() && !state.answers_forged(10), "it was the peer's, after all");
}

#[test]
fn what_has_no_checksum_is_heard() {
    let side = Side::new();
    let datagram = Datagram::new(address(PEER), address(OWN), &[1, 2, 3]);
    let at = |at| vec![(at, datagram, 1)];
    let hampered = Moment { hampered: side.moment().at, ..side.moment() };
    unheard(&side.moment(), &mut at(side.moment().at), true, false);
    unheard(&side.moment(), &mut at(side.moment().at), false, true);
    unheard(&hampered, &mut at(hampered.at), false, false);
    side.breaks("RFC 768", |side| unheard(&side.moment(), &mut at(side.moment().at), false, false));
}
