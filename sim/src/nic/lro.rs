//! Receive coalescing: segments of one flow that arrive in order, between two polls, become one.

use std::rc::Rc;

use ringway_stack::device::ChecksumVerdict;

use crate::checksum;
use crate::dissect::{self, Payload, TCP, be16, be32};

/// Flows that are coalesced at once.
const SESSIONS_MAX: usize = 8;
/// The longest IPv4 packet.
const PACKET_MAX: usize = 65_535;
const ACK: u8 = 0x10;
const PSH: u8 = 0x08;
/// No operation, no operation, timestamps (RFC 7323, appendix A): the only options that coalesced segments have.
const TIMESTAMPS: [u8; 4] = [1, 1, 8, 10];

/// What of a segment decides whether it is coalesced.
#[derive(Clone, Copy, Debug)]
struct Segment {
    /// Addresses and ports.
    flow: [u8; 12],
    /// Type of service (with its congestion marks) and time to live.
    tos_ttl: (u8, u8),
    ip: usize,
    tcp: usize,
    payload: usize,
    end: usize,
    seq: u32,
    ack: u32,
    /// The timestamp, if it has one.
    value: u32,
    flags: u8,
}

/// One flow's frames since the last poll.
#[derive(Debug)]
struct Session {
    /// Which frame of the queue it goes to.
    frame: u64,
    head: Segment,
    next_seq: u32,
    ack: u32,
    value: u32,
    /// Payload bytes of the first segment: a shorter one is the last.
    segment_len: usize,
}

/// Several segments as one frame, headers and checksums not yet adjusted.
#[derive(Debug)]
pub(super) struct Merged {
    pub(super) bytes: Vec<u8>,
    pub(super) segments: u16,
}

/// The flows of one ring.
#[derive(Debug, Default)]
pub(super) struct Sessions(Vec<Session>);

impl Sessions {
    /// The ring is polled: what was coalesced goes up.
    pub(super) fn close(&mut self) {
        self.0.clear();
    }

    /// The frame of the queue that `bytes` continue, if they do.
    pub(super) fn continues(&mut self, bytes: &[u8]) -> Option<u64> {
        let segment = Segment::parse(bytes);
        let flow = flow_of(bytes)?;
        let at = self.0.iter().position(|session| session.head.flow == flow)?;
        let session = &self.0[at];
        let fits = segment.is_some_and(|segment| session.takes(&segment));
        if !fits {
            // Anything else of the flow ends its session: nothing may overtake.
            self.0.remove(at);
            return None;
        }
        Some(session.frame)
    }

    /// `bytes`, which [`Sessions::continues`] said continue a frame, become a part of it.
    pub(super) fn merge(&mut self, first: &Rc<[u8]>, merged: &mut Option<Box<Merged>>, bytes: &[u8]) {
        let Some(segment) = Segment::parse(bytes) else { return };
        let Some(at) = self.0.iter().position(|session| session.head.flow == segment.flow) else { return };
        let session = &mut self.0[at];
        let merged = merged.get_or_insert_with(|| Box::new(Merged { bytes: first[..session.head.end].to_vec(), segments: 1 }));
        // The last segment's acknowledgment, window, flags and timestamps are the latest.
        let head = session.head;
        merged.bytes[head.tcp + 8..head.tcp + 12].copy_from_slice(&segment.ack.to_be_bytes());
        merged.bytes[head.tcp + 13] |= segment.flags;
        let (own, other) = (head.tcp + 14, segment.tcp + 14);
        merged.bytes[own..own + 2].copy_from_slice(&bytes[other..other + 2]);
        merged.bytes[head.tcp + 20..head.payload].copy_from_slice(&bytes[segment.tcp + 20..segment.payload]);
        merged.bytes.extend_from_slice(&bytes[segment.payload..segment.end]);
        merged.segments += 1;
        session.next_seq = session.next_seq.wrapping_add(segment.len());
        (session.ack, session.value) = (segment.ack, segment.value);
        let full = segment.end - segment.payload == session.segment_len;
        if !full || segment.flags & PSH != 0 || merged.bytes.len() - head.ip + session.segment_len > PACKET_MAX {
            self.0.remove(at);
        }
    }

    /// A frame that continues none was queued as number `frame`: later ones may continue it.
    pub(super) fn open(&mut self, frame: u64, bytes: &[u8]) {
        let Some(head) = Segment::parse(bytes).filter(|segment| segment.flags & PSH == 0) else { return };
        if self.0.len() == SESSIONS_MAX {
            self.0.remove(0);
        }
        let (next_seq, segment_len) = (head.seq.wrapping_add(head.len()), head.end - head.payload);
        self.0.push(Session { frame, head, next_seq, ack: head.ack, value: head.value, segment_len });
    }
}

impl Session {
    fn takes(&self, segment: &Segment) -> bool {
        segment.seq == self.next_seq
            && segment.payload - segment.tcp == self.head.payload - self.head.tcp
            && segment.end - segment.payload <= self.segment_len
            && segment.ack.wrapping_sub(self.ack) < 1 << 31
            // (By an older timestamp than the first part has, all of it would be thrown away: RFC 7323 s5.3.)
            && segment.value.wrapping_sub(self.value) < 1 << 31
            && segment.ip == self.head.ip
            && segment.tos_ttl == self.head.tos_ttl
    }
}

impl Segment {
    /// The segment in a frame, if it is one that may be coalesced: IPv4 without options, TCP with ACK and perhaps PSH only, with
    /// payload, and with no options but timestamps.
    fn parse(frame: &[u8]) -> Option<Self> {
        let Payload::Ip(ip) = dissect::payload(frame) else { return None };
        if ip.protocol != TCP || ip.fragment || ip.l4 != ip.offset + 20 || ip.l4 + 20 > ip.end {
            return None;
        }
        let payload = ip.l4 + usize::from(frame[ip.l4 + 12] >> 4) * 4;
        let flags = frame[ip.l4 + 13];
        let plain = payload == ip.l4 + 20 || (payload == ip.l4 + 32 && frame.get(ip.l4 + 20..ip.l4 + 24)? == TIMESTAMPS);
        if !plain || payload >= ip.end || flags & !PSH != ACK {
            return None;
        }
        let (seq, ack) = (be32(frame, ip.l4 + 4)?, be32(frame, ip.l4 + 8)?);
        let value = if payload == ip.l4 + 32 { be32(frame, ip.l4 + 24)? } else { 0 };
        let tos_ttl = (frame[ip.offset + 1], frame[ip.offset + 8]);
        Some(Self { flow: flow_of(frame)?, tos_ttl, ip: ip.offset, tcp: ip.l4, payload, end: ip.end, seq, ack, value, flags })
    }

    fn len(&self) -> u32 {
        u32::try_from(self.end - self.payload).unwrap_or(0)
    }
}

impl Merged {
    /// The frame as it goes up: its lengths and checksums are right again.
    pub(super) fn finish(mut self) -> Vec<u8> {
        if let Some(at) = ip_at_of(&self.bytes) {
            let len = u16::try_from(self.bytes.len() - at).unwrap_or(u16::MAX);
            self.bytes[at + 2..at + 4].copy_from_slice(&len.to_be_bytes());
            checksum::fill(&mut self.bytes);
        }
        self.bytes
    }
}

/// Whether a verdict lets a frame take part.
pub(super) fn is_sound(verdict: ChecksumVerdict) -> bool {
    verdict == ChecksumVerdict::Good
}

fn ip_at_of(frame: &[u8]) -> Option<usize> {
    match be16(frame, 12)? {
        0x8100 => Some(18),
        0x0800 => Some(14),
        _ => None,
    }
}

/// Addresses and ports of a TCP packet.
fn flow_of(frame: &[u8]) -> Option<[u8; 12]> {
    let Payload::Ip(ip) = dissect::payload(frame) else { return None };
    let mut flow = [0; 12];
    flow[..8].copy_from_slice(frame.get(ip.offset + 12..ip.offset + 20)?);
    flow[8..].copy_from_slice(frame.get(ip.l4..ip.l4 + 4)?);
    (ip.protocol == TCP && !ip.fragment).then_some(flow)
}
