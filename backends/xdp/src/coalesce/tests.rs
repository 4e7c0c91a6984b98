use std::sync::Arc;

use ringway_stack::device::RxFrame;

use super::*;
use crate::umem::{CHUNK, Umem};

const TIMESTAMPS: [u8; 12] = [1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2];

/// A frame of TCP from port 1 to port 2, with checksums that are right.
fn frame(is_v6: bool, sequence: u32, control: tcp::Flags, payload: &[u8]) -> Vec<u8> {
    let transport_len = tcp::LEN + TIMESTAMPS.len() + payload.len();
    let mut frame = vec![0; 12];
    if is_v6 {
        frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
        frame.extend((transport_len as u16).to_be_bytes());
        frame.extend([ipv4::PROTOCOL_TCP, 64]);
        frame.extend([[0xfd; 16], [0xfe; 16]].concat());
    } else {
        frame.extend([0x08, 0x00, 0x45, 0]);
        frame.extend((ipv4::LEN as u16 + transport_len as u16).to_be_bytes());
        // (Its identification differs from frame to frame.)
        frame.extend([sequence.to_be_bytes()[2], 7, 0x40, 0, 64, ipv4::PROTOCOL_TCP, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        let sum = !checksum::sum(&frame[ethernet::LEN..]);
        frame[ethernet::LEN + V4_CHECKSUM..][..2].copy_from_slice(&sum.to_be_bytes());
    }
    let transport = frame.len();
    frame.extend([0, 1, 0, 2]);
    frame.extend(sequence.to_be_bytes());
    frame.extend([0, 0, 0, 9, 8 << 4, control.bits(), 1, 0, 0, 0, 0, 0]);
    frame.extend(TIMESTAMPS);
    frame.extend(payload);
    let addresses = if is_v6 { ethernet::LEN + 8..ethernet::LEN + 40 } else { ethernet::LEN + 12..ethernet::LEN + 20 };
    let mut sum = Checksum::pseudo_header([0; 4].into(), [0; 4].into(), ipv4::PROTOCOL_TCP, transport_len);
    sum.add(&frame[addresses]);
    sum.add(&frame[transport..]);
    frame[transport + tcp::CHECKSUM_OFFSET..][..2].copy_from_slice(&sum.finish().to_be_bytes());
    frame
}

fn bytes(len: usize, salt: u8) -> Vec<u8> {
    (0..len).map(|at| (at as u8).wrapping_mul(31).wrapping_add(salt)).collect()
}

/// What frames go up as: each with how many segments it was.
fn merged(frames: &[Vec<u8>]) -> Vec<(Vec<u8>, u16)> {
    let umem = Arc::new(Umem::map(64, 2, 0).unwrap());
    let (mut coalescing, mut batch) = (Coalescing::default(), RxBatch::new(64));
    for (chunk, frame) in (0..).zip(frames) {
        umem.receive(chunk, 256, frame);
        let place = Piece::new(chunk, 256, frame.len() as u32);
        let segment = Segment::parse(frame).filter(|segment| segment.is_sound(frame));
        if let Some(segment) = &segment
            && let Some(found) = coalescing.find(&mut batch, segment, frame)
        {
            coalescing.merge(&mut batch, found, segment, place.without(segment.payload()));
            continue;
        }
        batch.push_slot().unwrap().fill(frame, Some(umem.hold(place)));
        if let Some(segment) = &segment {
            coalescing.open(&batch, segment, chunk);
        }
    }
    let whole = |frame: &RxFrame<Received>| {
        let mut bytes = frame.to_vec();
        // (TCP's checksum is left as it was: whoever looks is told that it was right.)
        if let Some(Segment { transport, .. }) = Segment::parse(&bytes) {
            bytes[transport + tcp::CHECKSUM_OFFSET..][..2].fill(0);
        }
        (bytes, frame.meta.coalesced.max(1))
    };
    batch.frames_mut().iter().map(whole).collect()
}

/// The same of frames that stay as they are.
fn alone(frames: &[Vec<u8>]) -> Vec<(Vec<u8>, u16)> {
    frames.iter().flat_map(|frame| merged(core::slice::from_ref(frame))).collect()
}

const ACK: tcp::Flags = tcp::Flags::ACK;
const PUSHED: tcp::Flags = tcp::Flags::ACK.union(tcp::Flags::PSH);

#[test]
fn segments_that_follow_each_other_go_up_as_the_one_that_they_could_have_been() {
    for is_v6 in [false, true] {
        let parts = [bytes(1448, 1), bytes(1448, 2), bytes(700, 3)];
        // (Numbers that wrap.)
        let first = u32::MAX - 2000;
        let frames = [(0, ACK), (1448, ACK), (2896, PUSHED)];
        let frames: Vec<_> =
            frames.iter().zip(&parts).map(|(&(at, control), part)| frame(is_v6, first.wrapping_add(at), control, part)).collect();
        let mut as_one = frame(is_v6, first, PUSHED, &parts.concat());
        let transport = Segment::parse(&as_one).unwrap().transport;
        as_one[transport + tcp::CHECKSUM_OFFSET..][..2].fill(0);
        assert_eq!(merged(&frames), [(as_one, 3)]);
    }
}

#[test]
fn a_gap_an_end_or_another_header_keeps_them_apart() {
    let (a, b) = (bytes(1000, 1), bytes(1000, 2));
    let first = frame(false, 0, ACK, &a);
    let next = frame(false, 1000, ACK, &b);
    assert_eq!(merged(&[first.clone(), next.clone()]).len(), 1);
    let with = |at: usize, value: u8| {
        // A byte that differs, and what makes the checksum right again behind it.
        let mut other = next.clone();
        other[at] = value;
        other
    };
    let transport = ethernet::LEN + ipv4::LEN;
    let others = [
        // What is missing before it; what was there.
        frame(false, 1001, ACK, &b),
        frame(false, 0, ACK, &a),
        // It is longer than the first.
        frame(false, 1000, ACK, &bytes(1001, 2)),
        frame(false, 1000, ACK | tcp::Flags::FIN, &b),
        frame(false, 1000, ACK | tcp::Flags::URG, &b),
        frame(true, 1000, ACK, &b),
        // Another sender, type of service, time to live; a fragment.
        with(6, 9),
        with(ethernet::LEN + 1, 3),
        with(ethernet::LEN + 8, 63),
        with(ethernet::LEN + V4_FRAGMENT, 0x20),
        // Another port, acknowledgment, window, timestamp.
        with(transport, 1),
        with(transport + 8, 1),
        with(transport + 14, 2),
        with(transport + 24, 1),
        // A byte that was damaged on the way.
        with(transport + 500, b[500 - 32] ^ 1),
    ];
    for other in others {
        let both = [first.clone(), other];
        assert_eq!(merged(&both), alone(&both));
    }
    // The end of what was written, and a short one, are the last.
    for last in [frame(false, 1000, PUSHED, &b), frame(false, 1000, ACK, &b[..999])] {
        let after = frame(false, if last.len() == next.len() { 2000 } else { 1999 }, ACK, &a);
        let counts: Vec<_> = merged(&[first.clone(), last, after]).into_iter().map(|(_, count)| count).collect();
        assert_eq!(counts, [2, 1]);
    }
    let pushed = [frame(false, 0, PUSHED, &a), next];
    assert_eq!(merged(&pushed), alone(&pushed));
}

#[test]
fn as_many_are_merged_as_a_packet_and_a_program_have_room_for() {
    let frames =
        |len: u32, count: u32| (0..count).map(|at| frame(false, at * len, ACK, &bytes(len as usize, at as u8))).collect::<Vec<_>>();
    let counts = |frames: &[Vec<u8>]| merged(frames).into_iter().map(|(_, count)| count).collect::<Vec<_>>();
    assert_eq!(counts(&frames(400, 40)), [SEGMENTS_MAX, 8]);
    // (66 bytes of headers and 18 of these are 66666.)
    assert_eq!(counts(&frames(3700, 20)), [17, 3]);
}

#[test]
fn two_connections_do_not_part_each_others_segments() {
    let one = |sequence, salt| frame(false, sequence, ACK, &bytes(1000, salt));
    let other = |sequence, salt| frame(true, sequence, ACK, &bytes(1000, salt));
    let counts: Vec<_> =
        merged(&[one(0, 1), other(5, 2), one(1000, 3), other(1005, 4), one(2000, 5)]).into_iter().map(|(_, count)| count).collect();
    assert_eq!(counts, [3, 2]);
}

#[test]
fn what_is_no_frame_is_no_segment() {
    let whole = frame(false, 0, ACK, &bytes(300, 1));
    for len in 0..whole.len() {
        assert_eq!(Segment::parse(&whole[..len]), None, "{len} bytes");
    }
    assert!(whole.len() < CHUNK && Segment::parse(&whole).is_some());
    for at in 0..whole.len() {
        for value in [0, 0xff] {
            let mut damaged = whole.clone();
            damaged[at] = value;
            if let Some(segment) = Segment::parse(&damaged) {
                assert!(segment.payload() < damaged.len());
                segment.is_sound(&damaged);
            }
        }
    }
}
