//! Frames as people read them: sequence numbers and timestamps relative to each connection's start, so that what is told says what
//! happened and nothing of how random the beginning was.

use core::fmt::Write;
use std::collections::BTreeMap;
use std::net::SocketAddr;

use ringway_stack::device::ChecksumVerdict;

use crate::checksum;
use crate::dissect::{self, Ip, Lookup, Payload, TCP, UDP, be16, be32};
use crate::fabric::Marks;
use crate::segment::{self, ACK, FIN, PSH, RST, SYN, URG};

/// A TCP segment in relative numbers.
#[derive(Clone, Debug)]
pub(crate) struct Segment {
    pub(crate) src: SocketAddr,
    pub(crate) dst: SocketAddr,
    pub(crate) seq: u32,
    pub(crate) ack: u32,
    pub(crate) flags: u8,
    /// In bytes: scaled, unless the SYNs that say how were not seen.
    pub(crate) window: u32,
    pub(crate) len: u32,
    /// In tcpdump's words; empty without options.
    pub(crate) options: String,
}

impl Segment {
    /// `S`, `F`, `R`, `P`, `U`, and a dot for an acknowledgment, as tcpdump has it.
    pub(crate) fn letters(&self) -> String {
        let letters = [(SYN, 'S'), (FIN, 'F'), (RST, 'R'), (PSH, 'P'), (URG, 'U'), (ACK, '.')];
        letters.iter().filter(|(bit, _)| self.flags & bit != 0).map(|&(_, c)| c).collect()
    }

    /// Sequence numbers that it occupies.
    pub(crate) fn occupies(&self) -> u32 {
        self.len + u32::from(self.flags & SYN != 0) + u32::from(self.flags & FIN != 0)
    }

    fn write(&self, out: &mut String) {
        let Self { src, dst, seq, ack, flags, window, len, options } = self;
        let _ = write!(out, "{src} > {dst}: Flags [{}]", self.letters());
        if *len > 0 {
            let _ = write!(out, ", seq {seq}:{}", seq.wrapping_add(*len));
        } else if flags & (SYN | FIN | RST) != 0 {
            let _ = write!(out, ", seq {seq}");
        }
        if flags & ACK != 0 {
            let _ = write!(out, ", ack {ack}");
        }
        let _ = write!(out, ", win {window}");
        if !options.is_empty() {
            let _ = write!(out, ", options [{options}]");
        }
        let _ = write!(out, ", length {len}");
    }
}

/// The first sequence number and timestamp seen of each direction of each connection.
#[derive(Default)]
pub(crate) struct Reader {
    origins: BTreeMap<(SocketAddr, SocketAddr), Origin>,
}

#[derive(Clone, Copy, Default)]
struct Origin {
    seq: u32,
    tsval: Option<u32>,
    /// What its SYN offered to scale its windows by, if it did.
    scale: Option<u8>,
}

impl Reader {
    /// The segment in a frame, if there is one.
    pub(crate) fn segment(&mut self, frame: &[u8], marks: Marks) -> Option<Segment> {
        match dissect::payload(frame) {
            Payload::Ip(ip) if ip.protocol == TCP => self.tcp(frame, &ip, marks),
            _ => None,
        }
    }

    /// A frame as a line, in tcpdump's manner.
    pub(crate) fn describe(&mut self, frame: &[u8], marks: Marks, out: &mut String) {
        let done = match dissect::payload(frame) {
            Payload::Lookup(lookup) => tell_lookup(&lookup, out),
            Payload::Ip(ip) => self.ip(frame, &ip, marks, out),
            Payload::Other(_) => None,
        };
        if done.is_none() {
            let _ = write!(out, "ethertype {:#06x}, length {}", be16(frame, 12).unwrap_or(0), frame.len());
        }
    }

    fn ip(&mut self, frame: &[u8], ip: &Ip, marks: Marks, out: &mut String) -> Option<()> {
        match ip.protocol {
            TCP => self.tcp(frame, ip, marks)?.write(out),
            UDP => {
                let (src, dst) = dissect::ports(frame, ip)?;
                write!(out, "{src} > {dst}: UDP, length {}", (ip.end - ip.l4).checked_sub(8)?).ok()?;
            }
            _ if ip.is_icmp() => {
                let name = if ip.is_v6() { "ICMPv6" } else { "ICMP" };
                write!(out, "{} > {}: {name} type {} code {}", ip.src, ip.dst, frame.get(ip.l4)?, frame.get(ip.l4 + 1)?).ok()?;
            }
            other => write!(out, "{} > {}: protocol {other}, length {}", ip.src, ip.dst, ip.end - ip.l4).ok()?,
        }
        if checksum::verify(frame) == ChecksumVerdict::Bad {
            out.push_str(", bad checksum");
        }
        Some(())
    }

    /// What an attacker made up says nothing of the connection's numbers.
    fn tcp(&mut self, frame: &[u8], ip: &Ip, marks: Marks) -> Option<Segment> {
        let segment::Segment { src, dst, seq, ack, flags, window, options, options_len, payload, .. } = segment::Segment::parse(frame, ip)?;
        let listed = frame.get(payload.start - options_len..payload.start)?;
        let tsval = options.timestamps.map(|(val, _)| val);
        let fresh = Origin { seq, tsval, scale: options.scale.filter(|_| flags & SYN != 0) };
        let origin = if marks.contains(Marks::FORGED) {
            self.origins.get(&(src, dst)).copied().unwrap_or(fresh)
        } else {
            *self.origins.entry((src, dst)).and_modify(|o| renew(o, flags, fresh)).or_insert(fresh)
        };
        let other = self.origins.get(&(dst, src)).copied().unwrap_or_default();
        // RFC 7323 s2.2: both have to offer it, and a SYN's own window is never scaled.
        let scale = origin.scale.filter(|_| flags & SYN == 0 && other.scale.is_some()).unwrap_or(0);
        Some(Segment {
            src,
            dst,
            seq: seq.wrapping_sub(origin.seq),
            ack: ack.wrapping_sub(other.seq),
            flags,
            window: u32::from(window) << scale.min(14),
            len: u32::try_from(payload.len()).ok()?,
            options: tcp_options(listed, origin, other, (ack, other.seq))?,
        })
    }
}

/// A connection that begins anew on the same ports has a new origin.
fn renew(origin: &mut Origin, flags: u8, fresh: Origin) {
    if flags & SYN != 0 {
        *origin = Origin { tsval: if origin.seq == fresh.seq { origin.tsval } else { fresh.tsval }, ..fresh };
    }
}

/// Options as (kind, contents), until the end or the first that makes no sense.
fn each_option(mut options: &[u8]) -> impl Iterator<Item = (u8, &[u8])> {
    core::iter::from_fn(move || {
        let (&kind, rest) = options.split_first()?;
        match kind {
            0 => None,
            1 => {
                options = rest;
                Some((1, &[][..]))
            }
            _ => {
                let len = usize::from(*rest.first()?);
                let contents = options.get(2..len)?;
                options = &options[len..];
                Some((kind, contents))
            }
        }
    })
}

fn tcp_options(options: &[u8], origin: Origin, other: Origin, (ack, base): (u32, u32)) -> Option<String> {
    let mut words = Vec::new();
    for (kind, contents) in each_option(options) {
        words.push(match (kind, contents.len()) {
            (1, _) => "nop".to_owned(),
            (2, 2) => format!("mss {}", be16(contents, 0)?),
            (3, 1) => format!("wscale {}", contents[0]),
            (4, 0) => "sackOK".to_owned(),
            (5, len) if len % 8 == 0 && ack != 0 => {
                let edge = |at| be32(contents, at).map(|e| e.wrapping_sub(base));
                let blocks: Option<Vec<_>> = (0..len).step_by(8).map(|at| Some(format!("{{{}:{}}}", edge(at)?, edge(at + 4)?))).collect();
                format!("sack {} {}", len / 8, blocks?.concat())
            }
            (8, 8) => {
                let (val, ecr) = (be32(contents, 0)?, be32(contents, 4)?);
                let ecr = if ecr == 0 { 0 } else { ecr.wrapping_sub(other.tsval.unwrap_or(0)) };
                format!("TS val +{} ecr +{ecr}", val.wrapping_sub(origin.tsval.unwrap_or(0)))
            }
            (kind, _) => format!("option {kind}"),
        });
    }
    Some(words.join(","))
}

fn tell_lookup(lookup: &Lookup, out: &mut String) -> Option<()> {
    let &Lookup { asks, sender, mac, target, .. } = lookup;
    let protocol = if sender.is_ipv6() { "ND" } else { "ARP" };
    match mac {
        _ if asks => write!(out, "{protocol}, who has {target}, tell {sender}").ok(),
        Some(mac) => write!(out, "{protocol}, {sender} is at {mac}").ok(),
        None => write!(out, "{protocol}, {sender} is there").ok(),
    }
}
