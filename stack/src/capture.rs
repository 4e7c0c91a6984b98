//! Frames of captures that tests read (libpcap's savefile format, version 2.4).

/// Bytes of the file's header, and of a packet's.
const FILE_HEADER: usize = 24;
const PACKET_HEADER: usize = 16;

const IPV6: &[u8] = include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/../conformance/data/ipv6-linux-6.18.pcap"));

/// What Linux says over IPv6: conformance/data/README.md has the story.
pub(crate) fn ipv6() -> impl Iterator<Item = &'static [u8]> {
    frames(IPV6)
}

/// The frames of `capture` in order: whole Ethernet frames, with times in microseconds, little endian.
pub(crate) fn frames(capture: &'static [u8]) -> impl Iterator<Item = &'static [u8]> {
    assert_eq!(capture[..4], [0xd4, 0xc3, 0xb2, 0xa1], "microseconds, little endian");
    assert_eq!(capture[20..24], [1, 0, 0, 0], "Ethernet");
    let mut rest = &capture[FILE_HEADER..];
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
