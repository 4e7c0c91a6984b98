//! Each law, broken by a packet with one thing wrong.

use core::time::Duration;
use std::panic::{AssertUnwindSafe, catch_unwind};

use ringway_stack::Instant;

use super::*;
use crate::dissect::Payload;
use crate::frames;

const OWN: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));

fn moment() -> Moment {
    let at = Instant::ZERO + Duration::from_secs(1);
    Moment { ip: Some(OWN), at, ..Moment::after(0) }
}

/// What is said of a datagram after this change; the header's checksum is filled in anew.
fn breach(change: impl Fn(&mut Vec<u8>)) -> Option<String> {
    let mut frame = frames::udp("10.0.0.1:80".parse().unwrap(), "10.0.0.2:90".parse().unwrap(), b"seven bytes or more");
    change(&mut frame);
    let Payload::Ip(ip) = dissect::payload(&frame) else { panic!("a packet") };
    let verdict = catch_unwind(AssertUnwindSafe(|| sent(&moment(), &frame, &ip)));
    verdict.err().map(|law| *law.downcast::<String>().unwrap())
}

/// The same of a header with this byte.
fn with(at: usize, byte: u8) -> Option<String> {
    breach(|frame| {
        frame[14 + at] = byte;
        checksum::fill_ip_header(frame);
    })
}

fn says(breach: Option<String>, law: &str) {
    assert!(breach.as_ref().is_some_and(|breach| breach.contains(law)), "{law}: {breach:?}");
}

#[test]
fn a_packet_has_the_form_that_it_must_have() {
    assert_eq!(breach(|_| {}), None);
    says(with(15, 9), "an address that its host does not have");
    says(with(8, 0), "a time to live of zero");
    says(with(6, 0x20), "may be fragmented");
    says(breach(|frame| frame[14 + 10] ^= 1), "a wrong checksum");
    says(breach(|frame| *frame.last_mut().unwrap() ^= 1), "a wrong checksum");
    says(breach(|frame| frame[14 + 20 + 5] -= 1), "a datagram's length");
    says(breach(|frame| frame[14 + 20 + 6..][..2].fill(0)), "without a checksum");
    says(breach(|frame| frame.extend([0; 40])), "ends before its frame");
    says(breach(|frame| frame[..6].fill(0xff)), "for many hosts");
    says(with(16, 239), "not for the group's MAC address");
}

#[test]
#[should_panic(expected = "type of service 0 and time to live 64; asked for were [(16, 64, 1)]")]
fn a_datagram_is_sent_as_its_socket_was_told() {
    let frame = frames::udp("10.0.0.1:80".parse().unwrap(), "10.0.0.2:90".parse().unwrap(), b"bytes");
    let Payload::Ip(ip) = dissect::payload(&frame) else { panic!("a packet") };
    let (plain, other) = (UdpOptions::default(), UdpOptions { tos: 16, ..UdpOptions::default() });
    datagram(&moment(), &frame, &ip, [other, plain].into_iter());
    datagram(&moment(), &frame, &ip, core::iter::empty());
    datagram(&moment(), &frame, &ip, [other].into_iter());
}
