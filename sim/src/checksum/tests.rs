use super::*;
use crate::frames;

fn datagram(payload: &[u8]) -> Vec<u8> {
    frames::udp("10.0.0.1:4000".parse().unwrap(), "10.0.0.2:53".parse().unwrap(), payload)
}

/// The example of RFC 1071 s3.
#[test]
fn the_rfcs_example() {
    assert_eq!(sum(0, &[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]), 0xddf2);
    assert_eq!(sum(0, &[0x12]), 0x1200);
}

#[test]
fn filled_frames_verify() {
    for payload in [&b""[..], b"x", b"hello, world"] {
        assert_eq!(verify(&datagram(payload)), ChecksumVerdict::Good);
    }
}

#[test]
fn padding_is_not_summed() {
    let mut frame = datagram(b"short");
    frame.extend([0xff; 12]);
    assert_eq!(verify(&frame), ChecksumVerdict::Good);
}

#[test]
fn every_single_bit_behind_the_ethernet_header_is_caught() {
    let frame = datagram(b"odd");
    for bit in 14 * 8..frame.len() * 8 {
        let mut bad = frame.clone();
        bad[bit / 8] ^= 0x80 >> (bit % 8);
        assert_eq!(verify(&bad), ChecksumVerdict::Bad, "bit {bit}");
    }
}

#[test]
fn a_zero_udp_checksum_says_nothing() {
    let mut frame = datagram(b"unsummed");
    frame[40..42].fill(0);
    assert_eq!(verify(&frame), ChecksumVerdict::Unknown);
}

/// RFC 768: a computed checksum of zero is sent as all ones. With payload `!sum` the sum comes to 0xffff.
#[test]
fn a_computed_zero_is_sent_as_ones() {
    let frame = datagram(&[0, 0]);
    let checksum = u16::from_be_bytes([frame[40], frame[41]]);
    let frame = datagram(&checksum.to_be_bytes());
    assert_eq!(frame[40..42], [0xff, 0xff]);
    assert_eq!(verify(&frame), ChecksumVerdict::Good);
}
