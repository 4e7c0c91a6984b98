//! What a large send becomes: segments that are the frame's, cut anew here from its own bytes (RFC 9293 s3.1, RFC 3168 s6.1.2).

use ringway_sim::connectx::packet::Headers;

const FIN: u8 = 0x01;
const PSH: u8 = 0x08;
const CWR: u8 = 0x80;
/// Of an Ethernet header, and of one with a tag.
const ETHERNET: usize = 14;

fn be16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn be32(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// What is wrong with the segments of a frame of TCP over IPv4 whose headers are its first `head` bytes.
pub(super) fn wrong(frame: &[u8], head: usize, mss: usize, segments: &[Vec<u8>]) -> Option<String> {
    let payload = &frame[head..];
    let count = payload.len().div_ceil(mss);
    if segments.len() != count {
        return Some(format!("{} segments, and not {count}", segments.len()));
    }
    let ip = Headers::parse(frame).and_then(|headers| headers.ip).map_or(ETHERNET, |ip| ip.at);
    let tcp = ip + usize::from(frame[ip] & 0xf) * 4;
    let mut done = 0;
    for (index, segment) in segments.iter().enumerate() {
        let part = &payload[done..payload.len().min(done + mss)];
        let (is_first, is_last) = (index == 0, index + 1 == count);
        let len = usize::from(be16(segment, ip + 2));
        if len != head - ip + part.len() || segment.len() < ip + len {
            return Some(format!("segment {index} says {len} bytes, and has {} of payload", part.len()));
        }
        if segment[head..head + part.len()] != *part {
            return Some(format!("segment {index} has other bytes"));
        }
        if be32(segment, tcp + 4) != be32(frame, tcp + 4).wrapping_add(done as u32) {
            return Some(format!("segment {index} has another sequence number"));
        }
        if be16(segment, ip + 4) != be16(frame, ip + 4).wrapping_add(index as u16) {
            return Some(format!("segment {index} has another identification"));
        }
        let mut flags = frame[tcp + 13];
        if !is_last {
            flags &= !(FIN | PSH);
        }
        if !is_first {
            flags &= !CWR;
        }
        if segment[tcp + 13] != flags {
            return Some(format!("segment {index} has flags {:#x}, and not {flags:#x}", segment[tcp + 13]));
        }
        done += part.len();
    }
    None
}
