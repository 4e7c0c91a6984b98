//! The frames of a real capture: rstream, then riostream, between two hosts with Linux's soft RoCE.

const CAPTURE: &[u8] = include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/../conformance/data/rsocket-rxe-rstream-riostream.pcap"));

/// The frames in order.
pub(crate) fn frames() -> impl Iterator<Item = &'static [u8]> {
    crate::capture::frames(CAPTURE)
}
