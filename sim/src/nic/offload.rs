//! What the NIC does to a frame on its way out: gathers it, cuts it, tags it, fills in its checksums, pads it.

use std::collections::VecDeque;
use std::rc::Rc;

use ringway_stack::Instant;
use ringway_stack::device::{SendStatus, TxBuffer};

use super::buffer::SimTx;
use super::fields::{Fields, Tunnel};
use crate::checksum;
use crate::dissect::{self, ETHERNET_LEN, Payload, TCP, UDP, be16, be32};

/// Frames shorter than this are padded (IEEE 802.3 s4A.2.3.2.3, without the frame check sequence).
const FRAME_LEN_MIN: usize = 60;
/// TCP's flags that only the last segment of a cut frame keeps, and the one that only the first keeps (RFC 3168 s6.1.2).
const FIN: u8 = 0x01;
const PSH: u8 = 0x08;
const CWR: u8 = 0x80;

/// A frame between [`ringway_stack::device::Queues::send`] and the wire: headers copied, payload still in the stack's buffers.
#[derive(Clone, Debug, Default)]
pub(super) struct Queued {
    pub(super) inline: Vec<u8>,
    pub(super) body: Vec<(SimTx, usize, usize)>,
    pub(super) checksum: bool,
    /// Checksums inside a tunnel, rather than over it.
    pub(super) inner_checksum: bool,
    pub(super) vlan: Option<u16>,
    pub(super) dummy: bool,
    pub(super) unsolicited: bool,
    /// The flow that it is of; zero: none.
    pub(super) flow: u32,
    pub(super) cut: Option<Cut>,
    /// Zero: nobody wants to know what becomes of it.
    pub(super) cookie: u64,
    /// When it was handed over; and, once that is known, how it ended, and when.
    pub(super) handed_at: Instant,
    /// It was shown when it was handed over ([`super::Nic::take_handed`]).
    pub(super) shown: bool,
    pub(super) ended: Option<(SendStatus, Instant)>,
}

/// What became of a frame.
#[derive(Clone, Copy, Debug)]
pub(super) struct Emitted {
    /// No further one is cut from what was handed over.
    pub(super) last: bool,
    /// Its checksums are known to be right, whoever looks, and wherever.
    pub(super) sound: bool,
}

/// How a frame is cut into segments.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cut {
    pub(super) mss: usize,
    /// Where the IP header, the TCP header and the payload begin.
    ip: usize,
    tcp: usize,
    payload: usize,
    /// Payload bytes that have left.
    done: usize,
    /// Segments that have left.
    segments: u16,
}

impl Cut {
    /// How to cut a frame that begins with `head`; none if that is not all the headers of a plain TCP packet.
    pub(super) fn plan(head: &[u8], mss: u16) -> Option<Self> {
        let ip = ETHERNET_LEN + if be16(head, 12)? == 0x8100 { 4 } else { 0 };
        let (protocol, tcp) = dissect::transport_at(head, ip)?;
        let payload = tcp + usize::from(head.get(tcp + 12)? >> 4) * 4;
        let is_ip = match be16(head, ip - 2)? {
            0x0800 => head[ip] >> 4 == 4 && be16(head, ip + 6)? & 0x3fff == 0,
            0x86dd => head[ip] >> 4 == 6,
            _ => false,
        };
        let fits = is_ip && protocol == TCP && tcp >= ip + 20 && payload >= tcp + 20 && payload <= head.len() && mss > 0;
        fits.then_some(Self { mss: usize::from(mss), ip, tcp, payload, done: 0, segments: 0 })
    }

    /// The length of a full segment's IP packet.
    pub(super) fn packet_len(&self) -> usize {
        self.payload - self.ip + self.mss
    }
}

impl Queued {
    /// The length of the whole frame as it was handed over.
    pub(super) fn len(&self) -> usize {
        self.inline.len() + self.body.iter().map(|(_, _, len)| len).sum::<usize>()
    }

    /// The length of the next frame on the wire, without padding.
    pub(super) fn next_len(&self) -> usize {
        let tag = if self.vlan.is_some() { 4 } else { 0 };
        tag + match self.cut {
            Some(cut) => cut.payload + (self.len() - cut.payload - cut.done).min(cut.mss),
            None => self.len(),
        }
    }

    /// Copies the payload now, so that no buffer is referenced any more.
    pub(super) fn inline_body(&mut self) {
        for (buffer, offset, len) in self.body.drain(..) {
            buffer.append_to(offset, len, &mut self.inline);
        }
    }

    /// The length of the frame on the wire, if that is the one that was handed over, but for its checksums.
    pub(super) fn plain_len(&self) -> Option<usize> {
        let plain = self.cut.is_none() && self.vlan.is_none();
        Some(self.len()).filter(|len| plain && *len >= FRAME_LEN_MIN)
    }

    /// Makes the frame in `out`, which is as long as it. Whether its checksums are known to be right.
    pub(super) fn emit_plain(&self, out: &mut [u8]) -> bool {
        let (head, mut rest) = out.split_at_mut(self.inline.len());
        head.copy_from_slice(&self.inline);
        for (buffer, offset, len) in &self.body {
            let (part, behind) = rest.split_at_mut(*len);
            buffer.copy_to(*offset, part);
            rest = behind;
        }
        self.checksum && fill_checksums(out, self.inner_checksum)
    }

    /// Makes the next frame in `out`.
    pub(super) fn emit(&mut self, out: &mut Vec<u8>) -> Emitted {
        out.clear();
        let emitted = match self.cut {
            Some(cut) => self.emit_segment(cut, out),
            None => {
                self.gather(0, self.len(), out);
                let sound = self.checksum && fill_checksums(out, self.inner_checksum);
                Emitted { last: true, sound }
            }
        };
        if let Some(tag) = self.vlan {
            let [hi, lo] = tag.to_be_bytes();
            out.splice(12..12, [0x81, 0x00, hi, lo]);
        }
        if out.len() < FRAME_LEN_MIN {
            out.resize(FRAME_LEN_MIN, 0);
        }
        emitted
    }

    /// Makes all of its frames; it can still be emitted.
    pub(super) fn emit_all(&mut self, scratch: &mut Vec<u8>, frames: &mut VecDeque<Rc<[u8]>>) {
        let cut = self.cut;
        loop {
            let Emitted { last, .. } = self.emit(scratch);
            frames.push_back(scratch[..].into());
            if last {
                break;
            }
        }
        self.cut = cut;
    }

    fn emit_segment(&mut self, mut cut: Cut, out: &mut Vec<u8>) -> Emitted {
        let total = self.len() - cut.payload;
        let len = (total - cut.done).min(cut.mss);
        let last = cut.done + len == total;
        out.extend_from_slice(&self.inline[..cut.payload]);
        self.gather(cut.payload + cut.done, len, out);
        let put = |out: &mut Vec<u8>, at: usize, value: u16| out[at..at + 2].copy_from_slice(&value.to_be_bytes());
        if out[cut.ip] >> 4 == 6 {
            put(out, cut.ip + 4, u16::try_from(cut.payload - cut.tcp + len).unwrap_or(u16::MAX));
        } else {
            put(out, cut.ip + 2, u16::try_from(cut.payload - cut.ip + len).unwrap_or(u16::MAX));
            let id = be16(out, cut.ip + 4).unwrap_or(0).wrapping_add(cut.segments);
            put(out, cut.ip + 4, id);
        }
        let seq = be32(out, cut.tcp + 4).unwrap_or(0).wrapping_add(u32::try_from(cut.done).unwrap_or(0));
        out[cut.tcp + 4..cut.tcp + 8].copy_from_slice(&seq.to_be_bytes());
        let flags = &mut out[cut.tcp + 13];
        if !last {
            *flags &= !(FIN | PSH);
        }
        if cut.segments > 0 {
            *flags &= !CWR;
        }
        let sound = checksum::fill(out);
        cut.done += len;
        cut.segments = cut.segments.wrapping_add(1);
        self.cut = Some(cut);
        Emitted { last, sound }
    }

    /// Appends `len` bytes of the frame from `from` on.
    fn gather(&self, from: usize, len: usize, out: &mut Vec<u8>) {
        let (mut at, end) = (0, from + len);
        let mut part = |part_len: usize, append: &mut dyn FnMut(usize, usize)| {
            let (start, stop) = (from.clamp(at, at + part_len), end.clamp(at, at + part_len));
            if start < stop {
                append(start - at, stop - start);
            }
            at += part_len;
        };
        part(self.inline.len(), &mut |offset, len| out.extend_from_slice(&self.inline[offset..offset + len]));
        for (buffer, base, part_len) in &self.body {
            part(*part_len, &mut |offset, len| buffer.append_to(base + offset, len, out));
        }
    }
}

/// Fills in a frame's checksums: of a tunnel, the inner ones and the outer IP header's, and the outer UDP's stays what it is
/// (RFC 7348 s5). Whether all are known to be right now.
fn fill_checksums(frame: &mut [u8], inner: bool) -> bool {
    match tunnel(frame) {
        Some(tunnel) if inner => {
            checksum::fill_ip_header(frame);
            checksum::fill(&mut frame[tunnel.inner_at..]);
            false
        }
        tunnel => checksum::fill(frame) && tunnel.is_none(),
    }
}

/// The tunnel in a frame, if it is whole.
pub(super) fn tunnel(frame: &[u8]) -> Option<Tunnel> {
    // Nearly every frame is IPv4 without a tag, and shows at once that it isn't UDP.
    if be16(frame, 12) == Some(0x0800) && frame.get(ETHERNET_LEN + 9) != Some(&UDP) {
        return None;
    }
    let fields = Fields::parse(frame, 0)?;
    let tunnel = fields.tunnel(frame)?;
    matches!(dissect::payload(frame.get(tunnel.inner_at..)?), Payload::Ip(_)).then_some(tunnel)
}
