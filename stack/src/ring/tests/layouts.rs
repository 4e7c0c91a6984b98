//! Segments that are written to known places look like those that are put together piece by piece.

use super::*;
use crate::device::TxSlice;
use crate::ring::output::{Envelope, Output};
use crate::tcp::Segment;
use crate::wire::tcp as wire;

#[test]
fn a_segment_of_fixed_layout_looks_like_any() {
    let out = Wire::default();
    let mut cable = Cable::new(MacAddr([2, 0, 0, 0, 0, 1]), &out, &Wire::default());
    let caps = crate::device::Capabilities { tx_checksum: true, ..cable.capabilities().clone() };
    let buffer = cable.tx_alloc(100).unwrap();
    let to = Envelope { src: A, dst: B, mac: MacAddr([2, 0, 0, 0, 0, 9]), ttl: 63, tos: 0x1c };
    for (len, timestamps) in [(0, None), (0, Some((1, 0xffff_fffe))), (64, None), (100, Some((0x0102_0304, 5)))] {
        let header = wire::Header {
            src_port: 0x1234,
            dst_port: 80,
            seq: wire::SeqNumber(0xfedc_ba98),
            ack: wire::SeqNumber(0x7654_3210),
            flags: wire::Flags::ACK | wire::Flags::PSH,
            window: 0xabcd,
            options: wire::Options { timestamps, ..wire::Options::default() },
            ..wire::Header::default()
        };
        let slice = TxSlice { buffer: &buffer, offset: 0, len };
        let payload = if len > 0 { core::slice::from_ref(&slice) } else { &[] };
        let segment = Segment { header, payload, payload_len: len, cut: None, unsolicited: false, capable: len > 64 };
        Output::new(caps.clone(), cable.mac, None).tcp(&mut cable, &to, &segment).unwrap();
        Output::new(caps.clone(), cable.mac, None).tcp_of_any_layout(&mut cable, &to, &segment).unwrap();
        let frames: Vec<_> = out.lock().unwrap().drain(..).collect();
        assert_eq!(frames[0], frames[1], "{len} bytes, {timestamps:?}");
    }
}

#[test]
fn a_datagram_of_fixed_layout_looks_like_any() {
    let out = Wire::default();
    let mut cable = Cable::new(MacAddr([2, 0, 0, 0, 0, 1]), &out, &Wire::default());
    let caps = crate::device::Capabilities { tx_checksum: true, ..cable.capabilities().clone() };
    let to = Envelope { src: A, dst: B, mac: MacAddr([2, 0, 0, 0, 0, 9]), ttl: 63, tos: 0x1c };
    for len in [0, 1, 64, 180] {
        let fill = |bytes: &mut [u8]| (0..).zip(bytes).for_each(|(number, byte)| *byte = number);
        let send = |output: &mut Output, cable: &mut Cable| output.udp_inline(cable, &to, (0x1234, 80), len, fill).unwrap();
        send(&mut Output::new(caps.clone(), cable.mac, None), &mut cable);
        // (A tag is nothing that has a known place: what is sent with one is put together piece by piece.)
        send(&mut Output::new(caps.clone(), cable.mac, Some(5)), &mut cable);
        let frames: Vec<_> = out.lock().unwrap().drain(..).collect();
        let tag_at = 12..16;
        assert_eq!(frames[1][tag_at.clone()], [0x81, 0, 0, 5]);
        let mut untagged = frames[1].clone();
        untagged.drain(tag_at);
        assert_eq!(frames[0], untagged, "{len} bytes");
    }
}
