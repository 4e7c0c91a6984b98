//! Frames in UD datagrams, put together from what anybody sends.

use core::time::Duration;
use std::net::{IpAddr, Ipv4Addr};

use crate::tcp::fuzzing::Bytes;
use crate::time::Instant;
use crate::ud::{HEADER_LEN, Header, Limits, Reassembly, Source};

const LIMITS: Limits = Limits { frame_len: 600, frames: 6, of_address: 3, patience: Duration::from_millis(50) };
const STEPS_MAX: usize = 600;

pub(super) fn pieces(input: &[u8]) {
    let mut bytes = Bytes::new(input);
    let mut reassembly = Reassembly::new(LIMITS);
    let mut now = Instant::from_nanos(1_000_000_000);
    for _ in 0..STEPS_MAX {
        if bytes.is_empty() {
            break;
        }
        let kind = bytes.byte();
        if kind & 7 == 7 {
            now += Duration::from_millis(bytes.byte().into());
            continue;
        }
        let source = source(kind >> 3);
        let (frame, frame_len) = (u16::from(bytes.byte() % 8), bytes.len(700) as u16);
        let count = bytes.byte();
        let index = bytes.byte() % count.max(1);
        let datagram = datagram(source, Header { frame, frame_len, index, count });
        let Ok((header, piece)) = Header::parse(&datagram) else { continue };
        assert_eq!(header.emit(), datagram[..HEADER_LEN]);
        let given_up = reassembly.given_up();
        if let Some(whole) = reassembly.add(now, source, header, piece) {
            assert!(whole == frame_of(source, header), "each byte in its place");
        }
        assert!(reassembly.given_up() >= given_up);
        assert!(reassembly.waiting() <= LIMITS.frames, "{} frames wait", reassembly.waiting());
    }
    completes(&mut reassembly, now, &mut bytes);
}

/// Whatever has come, a frame whose pieces come one after the other is complete with its last one.
fn completes(reassembly: &mut Reassembly, now: Instant, bytes: &mut Bytes<'_>) {
    let (source, count, first) = (source(31), 1 + bytes.byte() % 64, bytes.byte());
    for step in 0..count {
        let index = ((u16::from(first) + u16::from(step)) % u16::from(count)) as u8;
        let header = Header { frame: 99, frame_len: 600, index, count };
        let datagram = datagram(source, header);
        let Ok((header, piece)) = Header::parse(&datagram) else { return };
        let whole = reassembly.add(now, source, header, piece);
        assert_eq!(whole.is_some(), step + 1 == count, "piece {step} of {count}");
        assert!(whole.is_none_or(|whole| whole == frame_of(source, header)));
    }
}

fn source(which: u8) -> Source {
    Source { address: IpAddr::V4(Ipv4Addr::new(10, 0, 0, which & 3)), qp: u32::from(which >> 2) }
}

/// A frame that tells whose it is, and which.
fn frame_of(source: Source, header: Header) -> Vec<u8> {
    let salt = format!("{source:?}{}{}{}", header.frame, header.frame_len, header.count);
    let salt = salt.bytes().fold(7u32, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
    (0..u32::from(header.frame_len)).map(|at| (at ^ salt).wrapping_mul(2_654_435_761).to_be_bytes()[0]).collect()
}

/// A piece of it, behind its header, which need not be one of any frame's.
fn datagram(source: Source, header: Header) -> Vec<u8> {
    let frame = frame_of(source, header);
    let unit = frame.len().div_ceil(usize::from(header.count).max(1));
    let at = (unit * usize::from(header.index)).min(frame.len());
    let piece = &frame[at..(at + unit).min(frame.len())];
    [&header.emit()[..], piece].concat()
}
