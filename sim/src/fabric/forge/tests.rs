use std::net::{Ipv4Addr, SocketAddr};

use ringway_stack::device::ChecksumVerdict;

use super::*;
use crate::addresses::ipv4;
use crate::frames::{self, Tcp, mac};
use crate::random::Purpose;

const HOST: &str = "10.0.0.1:80";
const PEER: &str = "10.0.0.2:5000";
const OWN: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
/// What the host awaits; what it has sent, and what of that is acknowledged; the peer's timestamp.
const NEXT: u32 = 9100;
const NXT: u32 = 700;
const UNA: u32 = 500;
const STAMP: u32 = 123_456;
/// The room that [`frames::tcp`]'s segments announce.
const ROOM: u32 = 256;

fn tcp(from: &str, to: &str, (seq, ack): (u32, u32), flags: u8, payload: &[u8]) -> Rc<[u8]> {
    let address = |text: &str| text.parse::<SocketAddr>().unwrap();
    let mut frame = frames::tcp(address(from), address(to), Tcp { seq, flags, timestamp: Some(STAMP) }, payload);
    frame[42..46].copy_from_slice(&ack.to_be_bytes());
    checksum::fill(&mut frame);
    frame.into()
}

/// Somebody who has seen 100 bytes come, and 200 go of which nobody has acknowledged any.
fn witness() -> Attacker {
    let mut attacker = Attacker::new(RandomStream::new(1, Purpose::Forge, 0, 0), 1_000_000, true);
    attacker.said(&tcp(HOST, PEER, (UNA, NEXT - 100), ACK, &[2; 200]));
    attacker.heard(&tcp(PEER, HOST, (NEXT - 100, UNA), ACK, &[1; 100]), mac(0), OWN);
    attacker
}

/// What it forges by two hundred throws.
fn forged(attacker: &Attacker, kind: Forgery) -> Vec<Vec<u8>> {
    let all: Vec<_> = (0..200).filter_map(|n| attacker.forge(kind, &mut SplitMix(n), mac(0), OWN)).collect();
    assert!(!all.is_empty(), "{kind}");
    all
}

fn segments(kind: Forgery, lawful: impl Fn(&Segment<'_>) -> bool) {
    for frame in forged(&witness(), kind) {
        let segment = Segment::of(&frame).unwrap();
        assert_eq!(checksum::verify(&frame), ChecksumVerdict::Good, "{kind}");
        assert!(segment.answers(&Segment::of(&tcp(HOST, PEER, (0, 0), ACK, &[])).unwrap()), "{kind}");
        let (seq, ack, flags) = (segment.seq, segment.ack, segment.flags);
        assert!(lawful(&segment), "{kind}: {seq} {ack} {flags:#x} {:x?}", segment.options);
    }
}

fn in_window(segment: &Segment<'_>) -> bool {
    (NEXT..=NEXT + ROOM).contains(&segment.seq)
}

/// Nobody in the connection would say so (RFC 5961 s5.2).
fn acks_nothing(segment: &Segment<'_>) -> bool {
    let (sent, old) = (segment.ack.wrapping_sub(NXT).cast_signed(), UNA.wrapping_sub(segment.ack).cast_signed());
    sent >= 1 << 24 || old >= 1 << 30
}

fn stamp(segment: &Segment<'_>) -> u32 {
    be32(segment.options, 4).unwrap()
}

#[test]
fn resets_and_syns_are_inexact() {
    segments(Forgery::InexactReset, |s| s.flags & RST != 0 && s.seq != NEXT && (NEXT - 5000..=NEXT + ROOM).contains(&s.seq));
    segments(Forgery::InexactSyn, |s| s.flags & SYN != 0 && (NEXT - 5000..=NEXT + ROOM).contains(&s.seq));
    let within = |kind| forged(&witness(), kind).iter().filter(|frame| in_window(&Segment::of(frame).unwrap())).count();
    assert!(within(Forgery::InexactReset) > 100 && within(Forgery::InexactSyn) > 50);
}

#[test]
fn what_is_in_the_window_betrays_itself_by_another_number() {
    segments(Forgery::BlindData, |s| in_window(s) && acks_nothing(s) && s.span > 0);
    segments(Forgery::FutureTimestamp, |s| s.seq == NEXT && acks_nothing(s) && stamp(s) == STAMP + FAR / 2);
    segments(Forgery::OldTimestamp, |s| s.seq == NEXT && s.span > 0 && STAMP.wrapping_sub(stamp(s)) >= FAR);
    segments(Forgery::AncientAck, |s| s.seq == NEXT && acks_nothing(s) && s.ack.wrapping_sub(NXT).cast_signed() < 0);
    segments(Forgery::FutureAck, |s| s.seq == NEXT && acks_nothing(s) && s.ack.wrapping_sub(NXT).cast_signed() > 0);
    segments(Forgery::FarFin, |s| s.flags & FIN != 0 && s.seq.wrapping_sub(NEXT) >= FAR);
}

#[test]
fn what_came_before_comes_with_lies_beside_it() {
    let repeats = |s: &Segment<'_>| (s.seq, s.ack, s.span) == (NEXT, UNA, 0);
    segments(Forgery::LyingOptions, |s| repeats(s) && s.options.len() > 12);
    segments(Forgery::Urgent, |s| repeats(s) && s.flags & URG != 0);
    segments(Forgery::Padded, |s| repeats(s) && s.frame.len() > s.ip.end && s.frame.len() >= 60);
    for frame in forged(&witness(), Forgery::Truncated) {
        let whole = Segment::of(&frame).is_some_and(|s| s.ip.end <= frame.len() && s.span == 100);
        assert!(!whole && frame.len() >= dissect::ETHERNET_LEN);
    }
    let heard = tcp(PEER, HOST, (NEXT - 100, UNA), ACK, &[1; 100]);
    assert!(forged(&witness(), Forgery::Replay).iter().all(|frame| frame[..] == heard[..]));
}

#[test]
fn frames_of_earlier_connections_are_told_by_their_numbers() {
    let mut attacker = witness();
    assert!((0..200).all(|n| attacker.forge(Forgery::Incarnation, &mut SplitMix(n), mac(0), OWN).is_none()));
    // The same addresses once more, and then with more behind the handshake.
    attacker.heard(&tcp(PEER, HOST, (70_000, 0), SYN, &[]), mac(0), OWN);
    attacker.said(&tcp(HOST, PEER, (50_000, 70_001), SYN | ACK, &[]));
    assert!((0..200).all(|n| attacker.forge(Forgery::Incarnation, &mut SplitMix(n), mac(0), OWN).is_none()), "a handshake");
    attacker.said(&tcp(HOST, PEER, (50_001, 70_001), ACK, &[3]));
    let old = tcp(PEER, HOST, (NEXT - 100, UNA), ACK, &[1; 100]);
    assert!(forged(&attacker, Forgery::Incarnation).iter().all(|frame| frame[..] == old[..]));
}

#[test]
fn handshakes_are_left_alone() {
    let mut attacker = Attacker::new(RandomStream::new(1, Purpose::Forge, 0, 0), 1_000_000, true);
    attacker.said(&tcp(HOST, PEER, (UNA - 1, 0), SYN, &[]));
    attacker.heard(&tcp(PEER, HOST, (NEXT, UNA), SYN | ACK, &[]), mac(0), OWN);
    assert!(attacker.known().is_none());
    assert!((0..200).all(|n| attacker.forge(Forgery::Replay, &mut SplitMix(n), mac(0), OWN).is_none()));
}

#[test]
fn syns_come_from_ports_that_nobody_has() {
    for frame in forged(&witness(), Forgery::StrangeSyn) {
        let segment = Segment::of(&frame).unwrap();
        assert!(segment.flags == SYN && segment.span == 1 && checksum::verify(&frame) == ChecksumVerdict::Good);
        assert!((1..=60).contains(&be16(&frame, segment.ip.l4).unwrap()) && be16(&frame, segment.ip.l4 + 2) == Some(80));
    }
}

#[test]
fn errors_quote_what_the_host_sent() {
    for kind in [Forgery::HardError, Forgery::PathError, Forgery::SourceQuench] {
        let mut plausible = 0;
        for frame in forged(&witness(), kind) {
            let Payload::Ip(ip) = dissect::payload(&frame) else { panic!("no packet") };
            assert_eq!((checksum::verify(&frame), ip.dst, ip.protocol), (ChecksumVerdict::Good, OWN, dissect::ICMP));
            let (at, about) = (ip.l4 + 8, [frame[ip.l4], frame[ip.l4 + 1]]);
            assert_eq!(frame[at + 20..at + 24], [0, 80, 0x13, 0x88], "the ports");
            assert_eq!(about == [3, 4], kind == Forgery::PathError);
            assert_eq!(about == [4, 0], kind == Forgery::SourceQuench);
            assert!(kind != Forgery::PathError || be16(&frame, ip.l4 + 6).unwrap() <= 576);
            plausible += usize::from((UNA..NXT).contains(&be32(&frame, at + 24).unwrap()));
        }
        assert!(plausible > 50, "{kind}: {plausible}");
    }
}

#[test]
fn datagrams_lie_about_their_sums_lengths_and_senders() {
    let mut attacker = witness();
    let like = frames::udp("10.0.0.2:53".parse().unwrap(), HOST.parse().unwrap(), &[7; 30]);
    attacker.heard(&like.clone().into(), mac(0), OWN);
    for frame in forged(&attacker, Forgery::NoChecksum) {
        assert_eq!((&frame[..40], be16(&frame, 40), &frame[42..]), (&like[..40], Some(0), &like[42..]));
    }
    let wrong = |len: u16| !(8..=38).contains(&len);
    assert!(forged(&attacker, Forgery::WrongLength).iter().all(|frame| wrong(be16(frame, 38).unwrap()) && be16(frame, 40) == Some(0)));
    for frame in forged(&attacker, Forgery::ForeignPort) {
        assert!(checksum::verify(&frame) == ChecksumVerdict::Good && frame[36..] != like[36..] && frame[42..] == like[42..]);
        assert!((frame[26..30] == ipv4(NOBODY).octets()) != (frame[34..36] != like[34..36]), "another port or another address");
    }
}

#[test]
fn arp_says_that_everybody_is_the_attacker() {
    let about = [
        (Forgery::FalseNeighbour, [10, 0, 0, 2]),
        (Forgery::FalseSelf, ipv4(OWN).octets()),
        (Forgery::UnknownNeighbour, ipv4(NOBODY).octets()),
    ];
    for (kind, ip) in about {
        for frame in forged(&witness(), kind) {
            assert!(matches!(dissect::payload(&frame), Payload::Lookup(_)), "{kind}");
            assert_eq!((&frame[22..28], &frame[28..32]), (&ATTACKER_MAC.0[..], &ip[..]));
            assert!(frame[21] == 2 && frame[..6] == mac(0).0 || frame[21] == 1 && frame[38..42] == ip, "{kind}");
        }
    }
}

/// The point of a stream a class: whatever he does, a frame that the host hears costs him two numbers.
#[test]
fn every_frame_costs_two_numbers() {
    let heard = tcp(PEER, HOST, (NEXT - 100, UNA), ACK, &[1; 100]);
    let after = |ppm| {
        let mut attacker = Attacker::new(RandomStream::new(7, Purpose::Forge, 0, 0), ppm, true);
        (0..50).for_each(|_| drop(attacker.heard(&heard, mac(0), OWN)));
        attacker.stream.bits()
    };
    assert_eq!(after(0), after(1_000_000));
}

#[test]
fn he_lies_about_neighbours_only_where_he_may() {
    let drawn = |lies| {
        let mut attacker = Attacker { lies, ..witness() };
        let heard = tcp(PEER, HOST, (NEXT - 100, UNA), ACK, &[1; 100]);
        let kinds = (0..2000).filter_map(|_| attacker.heard(&heard, mac(0), OWN)).map(|(kind, _)| kind);
        kinds.collect::<std::collections::BTreeSet<_>>()
    };
    let lies = |kind: &Forgery| *kind >= Forgery::FalseNeighbour;
    assert!(!drawn(false).iter().any(lies) && drawn(true).iter().filter(|&kind| lies(kind)).count() == 3);
    // (No datagram came, and no connection anew.)
    assert_eq!(drawn(false).len(), Forgery::ALL.iter().filter(|&&kind| kind < Forgery::NoChecksum).count() - 1);
}
