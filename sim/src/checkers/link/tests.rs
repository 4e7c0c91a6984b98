//! Each law, broken by hand-made frames, and kept by others.

use std::net::Ipv4Addr;

use super::*;
use crate::addresses::ipv4;

const HOST: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
const OTHER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));
const MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);

fn at(millis: u64) -> Moment {
    Moment { ip: Some(HOST), ..Moment::after(millis) }
}

#[test]
fn a_neighbour_may_be_asked_for_once_a_second_and_again_once_it_was_heard_of() {
    let mut neighbour = Neighbour::default();
    (1..5).for_each(|second| neighbour.asked(&at(1000 * second), OTHER, MacAddr::BROADCAST));
    neighbour.heard(at(4001).at);
    neighbour.asked(&at(4002), OTHER, MacAddr::BROADCAST);
    (5..8).for_each(|second| neighbour.asked(&at(1000 * second), OTHER, MAC));
    neighbour.asked(&at(8000), OTHER, MacAddr::BROADCAST);
    neighbour.asked(&at(9000), OTHER, MAC);
    neighbour.used(&at(9000 + 35_000), OTHER, || false);
}

#[test]
#[should_panic(expected = "checker arp: host 0 (10.0.0.1) at 1100000000 ns: RFC 1122 s2.3.2.1: 10.0.0.2 is asked for again after 100ms")]
fn a_neighbour_is_asked_for_too_soon() {
    let mut neighbour = Neighbour::default();
    neighbour.asked(&at(1000), OTHER, MacAddr::BROADCAST);
    neighbour.asked(&at(1100), OTHER, MacAddr::BROADCAST);
}

#[test]
#[should_panic(expected = "RFC 1122 s2.3.2.1: 10.0.0.2 was polled 4 times, and did not answer")]
fn a_neighbour_is_polled_for_ever() {
    let mut neighbour = Neighbour::default();
    (1..5).for_each(|second| neighbour.asked(&at(1000 * second), OTHER, MAC));
}

/// What was heard of it lies in the NIC, while the last poll of the row before goes out (as in the seed 220012902).
#[test]
fn a_poll_of_an_earlier_row_does_not_count() {
    let mut neighbour = Neighbour::default();
    neighbour.heard(at(1000).at);
    neighbour.asked(&at(1100), OTHER, MAC);
    [1300, 2300, 3300].iter().for_each(|&millis| neighbour.asked(&at(millis), OTHER, MAC));
    assert!(std::panic::catch_unwind(move || neighbour.asked(&at(4300), OTHER, MAC)).is_err());
}

/// The same where what was heard ended that row, and the next one begins much later (as in the seed 235127495).
#[test]
fn a_poll_of_an_earlier_row_does_not_count_however_long_ago_it_was() {
    let mut neighbour = Neighbour::default();
    neighbour.heard(at(1000).at);
    neighbour.asked(&at(1000), OTHER, MAC);
    [31_000, 32_000, 33_000].iter().for_each(|&millis| neighbour.asked(&at(millis), OTHER, MAC));
    assert!(std::panic::catch_unwind(move || neighbour.asked(&at(34_000), OTHER, MAC)).is_err());
}

#[test]
#[should_panic(expected = "RFC 1122 s2.3.2.1: 10.0.0.2 was last heard of, or asked for, 36s ago")]
fn a_neighbour_is_believed_for_ever() {
    let mut neighbour = Neighbour::default();
    neighbour.heard(at(1000).at);
    neighbour.used(&at(37_000), OTHER, || false);
}

/// A question that the device refused is made up for, and other frames may get the room before it (as in the seed 75025106).
#[test]
fn a_neighbour_is_believed_while_the_device_refuses_the_question() {
    let mut neighbour = Neighbour::default();
    neighbour.heard(at(1000).at);
    neighbour.used(&at(41_000), OTHER, || true);
    neighbour.asked(&at(41_005), OTHER, MAC);
    neighbour.used(&at(41_006), OTHER, || false);
}

/// As soon as the device takes frames again, there is no excuse.
#[test]
#[should_panic(expected = "RFC 1122 s2.3.2.1: 10.0.0.2 was last heard of, or asked for, 40.006s ago")]
fn a_neighbour_is_believed_though_the_device_takes_the_question() {
    let mut neighbour = Neighbour::default();
    neighbour.heard(at(1000).at);
    neighbour.used(&at(41_000), OTHER, || true);
    neighbour.used(&at(41_006), OTHER, || false);
}

#[test]
#[should_panic(expected = "RFC 826: a claim to 10.0.0.2")]
fn a_host_claims_another_ones_address() {
    claims(&at(1), HOST);
    claims(&at(1), OTHER);
}

/// An error from [`HOST`] to [`OTHER`] that quotes a packet between these two.
fn error(src: IpAddr, dst: IpAddr) {
    let mut frame = vec![0; 14 + 20 + 8 + 28];
    frame[14 + 20 + 8] = 0x45;
    frame[14 + 20 + 8 + 12..][..4].copy_from_slice(&ipv4(src).octets());
    frame[14 + 20 + 8 + 16..][..4].copy_from_slice(&ipv4(dst).octets());
    let end = frame.len();
    let ip = Ip { offset: 14, protocol: dissect::ICMP, src: HOST, dst: OTHER, l4: 34, end, fragment: false };
    error_sent(&at(1), &frame, &ip);
}

#[test]
#[should_panic(expected = "RFC 792: an error to 10.0.0.2 quotes a packet from 10.0.0.1 to 10.0.0.2")]
fn an_error_quotes_what_never_came() {
    error(OTHER, HOST);
    error(HOST, OTHER);
}
