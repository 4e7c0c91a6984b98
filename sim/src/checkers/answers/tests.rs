//! Questions, what answers them, and what does not.

use std::net::Ipv4Addr;

use super::*;
use crate::addresses::ipv4;

const OWN: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
const ASKER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));
const MACS: [MacAddr; 2] = [MacAddr([2, 0, 0, 0, 0, 1]), MacAddr([2, 0, 0, 0, 0, 2])];

/// The checkers of a host.
fn checkers() -> Checkers {
    let mut checkers = Checkers::default();
    checkers.adopt((0, 0), OWN, Duration::from_secs(60));
    checkers
}

/// An ARP packet of one host for the other.
fn arp(operation: u8, [from, to]: [MacAddr; 2], sender: IpAddr, target: IpAddr) -> Vec<u8> {
    let head = [&to.0[..], &from.0, &[8, 6, 0, 1, 8, 0, 6, 4, 0, operation]].concat();
    [&head[..], &from.0, &ipv4(sender).octets(), &to.0, &ipv4(target).octets()].concat()
}

/// An ICMP message of one host for the other.
fn icmp(kind: u8, [from, to]: [MacAddr; 2], src: IpAddr, dst: IpAddr, data: &[u8]) -> Vec<u8> {
    let mut frame = [&to.0[..], &from.0, &[8, 0, 0x45, 0, 0, 28 + u8::try_from(data.len()).unwrap(), 0, 1, 0x40, 0, 64, 1, 0, 0]].concat();
    frame.extend([ipv4(src).octets(), ipv4(dst).octets()].concat());
    frame.extend([kind, 0, 0, 0, 1, 2, 3, 4]);
    frame.extend(data);
    let sum = !checksum::sum(0, &frame[34..]);
    frame[36..38].copy_from_slice(&sum.to_be_bytes());
    checksum::fill_ip_header(&mut frame);
    frame
}

fn arrives(checkers: &mut Checkers, bytes: Vec<u8>) {
    let frame = Frame { id: 0, bytes: bytes.into(), marks: Marks::default(), sound: false, unsolicited: false };
    let (moment, payload) = (checkers.at(Instant::ZERO, 0, None), dissect::payload(&frame.bytes));
    checkers.asks(&moment, &frame, &payload);
}

fn leaves(checkers: &mut Checkers, bytes: &[u8]) {
    let moment = checkers.at(Instant::ZERO, 0, None);
    checkers.answers(&moment, bytes, &dissect::payload(bytes));
}

const BACK: [MacAddr; 2] = MACS;
const FORTH: [MacAddr; 2] = [MACS[1], MACS[0]];

#[test]
fn who_asks_is_answered() {
    let mut checkers = checkers();
    arrives(&mut checkers, arp(1, FORTH, ASKER, OWN));
    arrives(&mut checkers, arp(1, FORTH, ASKER, ASKER));
    arrives(&mut checkers, icmp(8, FORTH, ASKER, OWN, b"bytes"));
    arrives(&mut checkers, icmp(0, FORTH, ASKER, OWN, b"an answer asks nothing"));
    leaves(&mut checkers, &arp(2, BACK, OWN, ASKER));
    leaves(&mut checkers, &icmp(0, BACK, OWN, ASKER, b"bytes"));
    checkers.settle_answers(0, true);
}

#[test]
#[should_panic(expected = "was owed, and not sent")]
fn who_asks_is_not_answered() {
    let mut checkers = checkers();
    arrives(&mut checkers, arp(1, FORTH, IpAddr::V4(Ipv4Addr::UNSPECIFIED), OWN));
    checkers.settle_answers(0, true);
}

/// What a host was asked goes with it when it crashes, before it has looked (as in the seed 68089670); and what it starts as knows nothing of that.
#[test]
fn who_asked_before_a_crash_is_not_answered() {
    let after_a_crash = || {
        let mut checkers = checkers();
        arrives(&mut checkers, arp(1, FORTH, ASKER, OWN));
        checkers.adopt((0, 0), OWN, Duration::from_secs(60));
        checkers
    };
    after_a_crash().settle_answers(0, true);
    let answered = std::panic::catch_unwind(|| leaves(&mut after_a_crash(), &arp(2, BACK, OWN, ASKER)));
    assert!(answered.is_err(), "nobody has asked since");
}

#[test]
#[should_panic(expected = "answers nothing that asked for it")]
fn a_ping_comes_back_with_other_bytes() {
    let mut checkers = checkers();
    arrives(&mut checkers, icmp(8, FORTH, ASKER, OWN, b"bytes"));
    leaves(&mut checkers, &icmp(0, BACK, OWN, ASKER, b"other"));
}

#[test]
#[should_panic(expected = "answers nothing that asked for it")]
fn what_was_for_every_host_is_refused() {
    let datagram = crate::frames::udp("10.0.0.2:90".parse().unwrap(), "10.0.0.1:80".parse().unwrap(), b"bytes");
    let mut refusal = icmp(3, BACK, OWN, ASKER, &datagram[14..42]);
    refusal[35] = PORT;
    let mut checkers = checkers();
    let to = |mac: MacAddr| [&mac.0[..], &MACS[1].0, &datagram[12..]].concat();
    arrives(&mut checkers, to(MACS[0]));
    leaves(&mut checkers, &refusal);
    arrives(&mut checkers, to(MacAddr::BROADCAST));
    leaves(&mut checkers, &refusal);
}

/// The refusal of a datagram whose header has options, with or without them.
fn refusal_of_options(keeps: bool) {
    let plain = crate::frames::udp("10.0.0.2:90".parse().unwrap(), "10.0.0.1:80".parse().unwrap(), b"bytes");
    let mut datagram = [&MACS[0].0[..], &MACS[1].0, &plain[12..34], &[0x94, 4, 0, 0], &plain[34..]].concat();
    datagram[14] = 0x46;
    datagram[17] += 4;
    checksum::fill(&mut datagram);
    let whole = &datagram[14..46];
    let quote = if keeps { whole.to_vec() } else { [&[0x45], &whole[1..20], &whole[24..]].concat() };
    let mut refusal = icmp(3, BACK, OWN, ASKER, &quote);
    refusal[35] = PORT;
    let mut checkers = checkers();
    arrives(&mut checkers, datagram);
    leaves(&mut checkers, &refusal);
    checkers.settle_answers(0, true);
}

#[test]
fn a_refusal_quotes_options() {
    refusal_of_options(true);
}

#[test]
#[should_panic(expected = "answers nothing that asked for it")]
fn a_refusal_quotes_no_options() {
    refusal_of_options(false);
}

/// A device that refuses frames may have an answer wait for longer than it takes to hear a lot of datagrams (as in the seeds 60101771 and 60244874).
#[test]
fn who_asked_is_remembered_whoever_else_is_heard() {
    let datagram = crate::frames::udp("10.0.0.2:90".parse().unwrap(), "10.0.0.1:80".parse().unwrap(), b"bytes");
    let datagram = [&MACS[0].0[..], &MACS[1].0, &datagram[12..]].concat();
    let mut checkers = checkers();
    arrives(&mut checkers, arp(1, FORTH, ASKER, OWN));
    for _ in 0..2 * REMEMBERED_MAX {
        arrives(&mut checkers, datagram.clone());
        let one = checkers.answers[0].asked.last_mut().unwrap();
        (one.heard, one.owed, one.seen) = (true, false, true);
    }
    assert!(checkers.answers[0].asked.len() <= REMEMBERED_MAX);
    leaves(&mut checkers, &arp(2, BACK, OWN, ASKER));
    // What nobody heard is not forgotten for it; if there is too much of that, the oldest is.
    for _ in 0..2 * REMEMBERED_MAX {
        arrives(&mut checkers, datagram.clone());
        checkers.settle_answers(0, false);
    }
    assert!(checkers.answers[0].asked.len() <= REMEMBERED_MAX);
}

/// A host that pauses finds more datagrams in its device than are remembered of those that it has looked at. Whoever was to hear the last ones leaves when the first
/// ones have come, and then they are refused (as in the seed 76132442).
#[test]
fn what_waits_for_a_paused_host_is_remembered() {
    let datagram = |port: u16| {
        let bytes = crate::frames::udp(([10, 0, 0, 2], port).into(), "10.0.0.1:80".parse().unwrap(), b"bytes");
        [&MACS[0].0[..], &MACS[1].0, &bytes[12..]].concat()
    };
    let mut checkers = checkers();
    for port in 0..2 * u16::try_from(REMEMBERED_MAX).unwrap() {
        arrives(&mut checkers, datagram(90 + port));
        let one = checkers.answers[0].asked.last_mut().unwrap();
        (one.heard, one.owed) = (true, false);
    }
    let mut refusal = icmp(3, BACK, OWN, ASKER, &datagram(90)[14..42]);
    refusal[35] = PORT;
    leaves(&mut checkers, &refusal);
    // Once the host has looked at them, there is no need to remember all.
    checkers.settle_answers(0, false);
    arrives(&mut checkers, datagram(90));
    assert!(checkers.answers[0].asked.len() < 2 * REMEMBERED_MAX);
}
