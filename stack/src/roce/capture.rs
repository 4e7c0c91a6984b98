//! The frames of a real capture: rstream, then riostream, between two hosts with Linux's soft RoCE.

const CAPTURE: &[u8] = include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/../conformance/data/rsocket-rxe-rstream-riostream.pcap"));

/// Bytes of the file's header, and of a packet's (libpcap's savefile format, version 2.4, little endian).
const FILE_HEADER: usize = 24;
const PACKET_HEADER: usize = 16;

/// The frames in order.
pub(super) fn frames() -> impl Iterator<Item = &'static [u8]> {
    assert_eq!(CAPTURE[..4], [0xd4, 0xc3, 0xb2, 0xa1], "microseconds, little endian");
    assert_eq!(CAPTURE[20..24], [1, 0, 0, 0], "Ethernet");
    let mut rest = &CAPTURE[FILE_HEADER..];
    core::iter::from_fn(move || {
        let (header, after) = rest.split_first_chunk::<PACKET_HEADER>()?;
        let captured = u32::from_le_bytes([header[8], header[9], header[10], header[11]]);
        let original = u32::from_le_bytes([header[12], header[13], header[14], header[15]]);
        assert_eq!(captured, original, "frames are whole");
        let (frame, after) = after.split_at(captured as usize);
        rest = after;
        Some(frame)
    })
}
