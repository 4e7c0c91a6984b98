//! Receive coalescing: segments of one connection that lie in the queue one behind the other go up as one, as Linux's GRO has them. What is got is fewer
//! acknowledgments, one for all of them: each is a frame that the kernel copies, and has the peer look at its window and send two more segments. What came waits for
//! nothing else to come.
//!
//! The bytes stay where they came ([`Received::append`]).

use ringway_stack::device::{RxBatch, RxBuffer as _};
use ringway_stack::wire::checksum::{self, Checksum};
use ringway_stack::wire::{ethernet, ipv4, ipv6, tcp};

use crate::umem::{Piece, Received};

/// The most segments of one frame. (Each lies in a place of its own, and a program that takes bytes by reference has room for so many.)
const SEGMENTS_MAX: u16 = 32;

/// All headers of a segment, at the most.
const HEADERS_MAX: usize = ethernet::LEN + ipv6::LEN + tcp::LEN_MAX;

// Where fields are in their headers: IPv4's length (with the identification behind it), fragment and checksum, IPv6's length, TCP's sequence number and control bits.
const V4_LEN: usize = 2;
const V4_FRAGMENT: usize = 6;
const V4_CHECKSUM: usize = 10;
const V6_LEN: usize = 4;
const SEQUENCE: usize = 4;
const CONTROL: usize = 13;

/// A segment that may be one of several: of TCP, with bytes, and nothing special about its headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    is_v4: bool,
    /// Where TCP's header begins in the frame, and the payload.
    transport: usize,
    payload: usize,
    sequence: u32,
    /// Bytes of the payload.
    len: usize,
    is_pushed: bool,
}

impl Segment {
    /// That of a frame: without a VLAN tag, IP options, extension headers or fragments, and with no control bits but ACK and PSH. (What is shorter than
    /// Ethernet's least is padded, and is none.)
    pub(crate) fn parse(frame: &[u8]) -> Option<Self> {
        let packet = frame.get(ethernet::LEN..)?;
        let (is_v4, len, transport) = match u16::from_be_bytes([frame[12], frame[13]]) {
            ethernet::ETHERTYPE_IPV4 => {
                // (More fragments, and an offset: RFC 791 s3.1.)
                let is_plain =
                    *packet.first()? == 0x45 && be16(packet, V4_FRAGMENT)? & 0x3fff == 0 && *packet.get(9)? == ipv4::PROTOCOL_TCP;
                (true, usize::from(be16(packet, V4_LEN).filter(|_| is_plain)?), ipv4::LEN)
            }
            ethernet::ETHERTYPE_IPV6 => {
                let is_plain = *packet.get(6)? == ipv4::PROTOCOL_TCP;
                (false, ipv6::LEN + usize::from(be16(packet, V6_LEN).filter(|_| is_plain)?), ipv6::LEN)
            }
            _ => return None,
        };
        let transport = ethernet::LEN + transport;
        let control = *frame.get(transport + CONTROL)?;
        let headers = usize::from(*frame.get(transport + CONTROL - 1)? >> 4) * 4;
        let payload = transport + headers;
        let is_plain = tcp::Flags::from_bits_retain(control) - tcp::Flags::PSH == tcp::Flags::ACK && headers >= tcp::LEN;
        if !is_plain || len != packet.len() || payload >= frame.len() {
            return None;
        }
        let sequence = u32::from(be16(frame, transport + SEQUENCE)?) << 16 | u32::from(be16(frame, transport + SEQUENCE + 2)?);
        let is_pushed = control & tcp::Flags::PSH.bits() != 0;
        Some(Self { is_v4, transport, payload, sequence, len: frame.len() - payload, is_pushed })
    }

    /// Where its payload begins in the frame.
    pub(crate) const fn payload(&self) -> usize {
        self.payload
    }

    /// Whether the frame's checksums are right.
    pub(crate) fn is_sound(&self, frame: &[u8]) -> bool {
        let (ip, transport) = frame[ethernet::LEN..].split_at(self.transport - ethernet::LEN);
        // The pseudo-header of both families comes to this sum (RFC 9293 s3.1, RFC 8200 s8.1).
        let addresses = if self.is_v4 { &ip[12..20] } else { &ip[8..40] };
        let mut sum = Checksum::pseudo_header([0; 4].into(), [0; 4].into(), ipv4::PROTOCOL_TCP, transport.len());
        sum.add(addresses);
        sum.add(transport);
        sum.is_good() && (!self.is_v4 || checksum::sum(ip) == 0xffff)
    }

    /// Whether the headers are those of another segment, but for what differs between segments that follow each other.
    fn is_like(&self, frame: &[u8], other: &[u8]) -> bool {
        let mut headers = [0; HEADERS_MAX];
        let Some(headers) = headers.get_mut(..self.payload) else { return false };
        let (Some(frame), Some(other)) = (frame.get(..self.payload), other.get(..self.payload)) else { return false };
        headers.copy_from_slice(frame);
        let mut leave_out = |from: usize, to: usize| headers[from..to].copy_from_slice(&other[from..to]);
        if self.is_v4 {
            leave_out(ethernet::LEN + V4_LEN, ethernet::LEN + V4_FRAGMENT);
            leave_out(ethernet::LEN + V4_CHECKSUM, ethernet::LEN + V4_CHECKSUM + 2);
        } else {
            leave_out(ethernet::LEN + V6_LEN, ethernet::LEN + V6_LEN + 2);
        }
        leave_out(self.transport + SEQUENCE, self.transport + SEQUENCE + 4);
        leave_out(self.transport + CONTROL, self.transport + CONTROL + 1);
        leave_out(self.transport + tcp::CHECKSUM_OFFSET, self.transport + tcp::CHECKSUM_OFFSET + 2);
        headers == other
    }
}

fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..at + 2).map(|two| u16::from_be_bytes([two[0], two[1]]))
}

/// A frame of this batch that what comes may continue.
#[derive(Clone, Copy, Debug)]
struct Open {
    /// Which one.
    frame: usize,
    /// The sequence number that it goes on with.
    next: u32,
    /// Bytes of its first segment. One that has fewer is the last.
    segment_len: usize,
    /// The chunk that its last bytes are in.
    last: u32,
    segments: u16,
}

/// The frames of one batch that what comes may continue.
#[derive(Debug, Default)]
pub(crate) struct Coalescing(Vec<Open>);

impl Coalescing {
    /// The batch is a new one.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// Which of them goes on with a segment, whose checksums are right; the newest, if several do.
    pub(crate) fn find(&self, batch: &mut RxBatch<Received>, segment: &Segment, frame: &[u8]) -> Option<usize> {
        let frames = batch.frames_mut();
        self.0.iter().rposition(|open| {
            let first = &frames[open.frame];
            open.next == segment.sequence
                && segment.len <= open.segment_len
                && first.len() + segment.len <= usize::from(u16::MAX)
                && segment.is_like(frame, first.head())
        })
    }

    /// A segment, whose payload lies in `piece`, becomes a part of what was [found](Coalescing::find).
    pub(crate) fn merge(&mut self, batch: &mut RxBatch<Received>, found: usize, segment: &Segment, piece: Piece) {
        let open = &mut self.0[found];
        let first = &mut batch.frames_mut()[open.frame];
        let Some(mut buffer) = first.take_buffer() else { return };
        buffer.append(open.last, piece);
        let head_len = first.head().len();
        let len = (buffer.len() - ethernet::LEN) as u16;
        first.set_whole(head_len, Some(buffer));
        let (ip, transport) = first.head[ethernet::LEN..].split_at_mut(segment.transport - ethernet::LEN);
        if segment.is_v4 {
            ip[V4_LEN..V4_LEN + 2].copy_from_slice(&len.to_be_bytes());
            ip[V4_CHECKSUM..V4_CHECKSUM + 2].fill(0);
            let sum = !checksum::sum(ip);
            ip[V4_CHECKSUM..V4_CHECKSUM + 2].copy_from_slice(&sum.to_be_bytes());
        } else {
            ip[V6_LEN..V6_LEN + 2].copy_from_slice(&(len - ipv6::LEN as u16).to_be_bytes());
        }
        transport[CONTROL] |= if segment.is_pushed { tcp::Flags::PSH.bits() } else { 0 };
        open.segments += 1;
        first.meta.coalesced = open.segments;
        (open.next, open.last) = (open.next.wrapping_add(segment.len as u32), piece.chunk);
        if segment.is_pushed || segment.len < open.segment_len || open.segments == SEGMENTS_MAX {
            self.0.remove(found);
        }
    }

    /// A segment whose checksums are right is the batch's newest frame, in that chunk.
    pub(crate) fn open(&mut self, batch: &RxBatch<Received>, segment: &Segment, chunk: u32) {
        // (The end of what was written is the end of what is merged, as for GRO.)
        if !segment.is_pushed {
            let next = segment.sequence.wrapping_add(segment.len as u32);
            self.0.push(Open { frame: batch.len() - 1, next, segment_len: segment.len, last: chunk, segments: 1 });
        }
    }
}

#[cfg(test)]
mod tests;
