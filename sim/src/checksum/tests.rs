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

/// RFC 1071 as it is written: one 16-bit word after the other.
#[test]
fn wide_words_sum_as_narrow_ones() {
    let bytes: Vec<u8> = (0..2000u32).map(|i| u8::try_from(i * 31 % 251).unwrap()).collect();
    for len in (0..70).chain([1499, 1500, 2000]) {
        for seed in [0, 1, 0xfffe, 0xffff] {
            let pairs = bytes[..len].chunks(2).map(|w| u32::from(u16::from_be_bytes([w[0], *w.get(1).unwrap_or(&0)])));
            let mut total = u32::from(seed) + pairs.sum::<u32>();
            while total > 0xffff {
                total = (total & 0xffff) + (total >> 16);
            }
            assert_eq!(u32::from(sum(seed, &bytes[..len])), total, "{len} bytes on top of {seed}");
        }
    }
}
