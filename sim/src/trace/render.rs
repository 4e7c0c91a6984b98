//! Traces as text: one line an event, in tcpdump's manner, with sequence numbers and timestamps relative to each connection's start, so
//! that a line says what happened and nothing of how random the beginning was.

use core::fmt::Write;
use std::collections::BTreeMap;
use std::net::SocketAddrV4;

use super::pcapng::befallen;
use super::{Record, Trace, What};
use crate::checksum;
use crate::device::RxDrop;
use crate::dissect::{self, ICMP, Ipv4, Payload, TCP, UDP, be16, be32, ip_at, mac_at};
use crate::fabric::Marks;

/// Renders a kept trace, an event a line.
///
/// `>` a host sent it, `<` a host received it, `x` it was dropped, `!` a link did something else to it.
pub fn render(trace: &Trace) -> String {
    let mut renderer = Renderer::default();
    let mut out = String::new();
    for record in trace.records() {
        renderer.line(trace, record, &mut out);
    }
    out
}

/// The first sequence number and timestamp seen of each direction of each connection.
#[derive(Default)]
struct Renderer {
    origins: BTreeMap<(SocketAddrV4, SocketAddrV4), Origin>,
}

#[derive(Clone, Copy, Default)]
struct Origin {
    seq: u32,
    tsval: Option<u32>,
}

impl Renderer {
    fn line(&mut self, trace: &Trace, record: &Record, out: &mut String) {
        let micros = record.at.as_nanos() / 1000;
        let host = trace.host_name(record.host);
        let sign = match record.what {
            What::Sent => '>',
            What::Delivered => '<',
            What::Struck(_, strike) if !strike.is_drop() => '!',
            What::Injected | What::Befell(_) => '!',
            _ => 'x',
        };
        let _ = write!(out, "{:3}.{:06} {host:>8} {sign} ", micros / 1_000_000, micros % 1_000_000);
        if let What::Befell(mishap) = record.what {
            let _ = writeln!(out, "[{mishap}]");
            return;
        }
        self.frame(&record.bytes, out);
        let _ = match record.what {
            What::Sent => Ok(()),
            What::Befell(_) => Ok(()),
            What::Injected => write!(out, "  [from {}]", if record.marks.contains(Marks::FORGED) { "an attacker" } else { "the router" }),
            What::Delivered => befallen(record.marks).map_or(Ok(()), |marks| write!(out, "  [{marks}]")),
            What::Refused(RxDrop::QueueFull) => write!(out, "  [receive queue full]"),
            What::Refused(RxDrop::NoBuffer) => write!(out, "  [no receive buffer]"),
            What::NoStation => write!(out, "  [no such station]"),
            What::Struck(direction, strike) => write!(out, "  [{direction}: {strike}]"),
        };
        out.push('\n');
    }

    fn frame(&mut self, frame: &[u8], out: &mut String) {
        let done = match dissect::payload(frame) {
            Payload::Arp(at) => arp(frame, at, out),
            Payload::Ipv4(ip) => self.ipv4(frame, &ip, out),
            Payload::Other(_) => None,
        };
        if done.is_none() {
            let _ = write!(out, "ethertype {:#06x}, length {}", be16(frame, 12).unwrap_or(0), frame.len());
        }
    }

    fn ipv4(&mut self, frame: &[u8], ip: &Ipv4, out: &mut String) -> Option<()> {
        match ip.protocol {
            TCP => self.tcp(frame, ip, out)?,
            UDP => {
                let (src, dst) = dissect::ports(frame, ip)?;
                write!(out, "{src} > {dst}: UDP, length {}", (ip.end - ip.l4).checked_sub(8)?).ok()?;
            }
            ICMP => write!(out, "{} > {}: ICMP type {} code {}", ip.src, ip.dst, frame.get(ip.l4)?, frame.get(ip.l4 + 1)?).ok()?,
            other => write!(out, "{} > {}: protocol {other}, length {}", ip.src, ip.dst, ip.end - ip.l4).ok()?,
        }
        if checksum::verify(frame) == ringway_stack::device::ChecksumVerdict::Bad {
            out.push_str(", bad checksum");
        }
        Some(())
    }

    fn tcp(&mut self, frame: &[u8], ip: &Ipv4, out: &mut String) -> Option<()> {
        let (src, dst) = dissect::ports(frame, ip)?;
        let l4 = frame.get(ip.l4..ip.end)?;
        let (seq, ack, flags) = (be32(l4, 4)?, be32(l4, 8)?, *l4.get(13)?);
        let header_len = usize::from(*l4.get(12)? >> 4) * 4;
        let options = l4.get(20..header_len)?;
        let len = l4.len() - header_len;
        let tsval = timestamps(options).map(|(val, _)| val);

        let fresh = Origin { seq, tsval };
        let origin = *self.origins.entry((src, dst)).and_modify(|o| renew(o, flags, fresh)).or_insert(fresh);
        let other = self.origins.get(&(dst, src)).copied().unwrap_or_default();

        write!(out, "{src} > {dst}: Flags [{}]", flag_letters(flags)).ok()?;
        let relative = seq.wrapping_sub(origin.seq);
        if len > 0 {
            write!(out, ", seq {relative}:{}", relative.wrapping_add(u32::try_from(len).ok()?)).ok()?;
        } else if flags & (SYN | FIN | RST) != 0 {
            write!(out, ", seq {relative}").ok()?;
        }
        if flags & ACK != 0 {
            write!(out, ", ack {}", ack.wrapping_sub(other.seq)).ok()?;
        }
        write!(out, ", win {}", be16(l4, 14)?).ok()?;
        tcp_options(options, origin, other, (ack, other.seq), out)?;
        write!(out, ", length {len}").ok()
    }
}

const FIN: u8 = 1;
const SYN: u8 = 2;
const RST: u8 = 4;
const ACK: u8 = 16;

/// A connection that begins anew on the same ports has a new origin.
fn renew(origin: &mut Origin, flags: u8, fresh: Origin) {
    if flags & SYN != 0 {
        *origin = Origin { seq: fresh.seq, tsval: if origin.seq == fresh.seq { origin.tsval } else { fresh.tsval } };
    }
}

fn flag_letters(flags: u8) -> String {
    let mut letters: String =
        [(SYN, 'S'), (FIN, 'F'), (RST, 'R'), (8, 'P'), (32, 'U')].iter().filter(|(bit, _)| flags & bit != 0).map(|&(_, c)| c).collect();
    if flags & ACK != 0 {
        letters.push('.');
    }
    letters
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

fn timestamps(options: &[u8]) -> Option<(u32, u32)> {
    each_option(options).find(|&(kind, c)| kind == 8 && c.len() == 8).and_then(|(_, c)| Some((be32(c, 0)?, be32(c, 4)?)))
}

fn tcp_options(options: &[u8], origin: Origin, other: Origin, (ack, base): (u32, u32), out: &mut String) -> Option<()> {
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
    if !words.is_empty() {
        write!(out, ", options [{}]", words.join(",")).ok()?;
    }
    Some(())
}

fn arp(frame: &[u8], at: usize, out: &mut String) -> Option<()> {
    let (sender, target) = (ip_at(frame, at + 14)?, ip_at(frame, at + 24)?);
    match be16(frame, at + 6)? {
        1 => write!(out, "ARP, who has {target}, tell {sender}").ok(),
        2 => write!(out, "ARP, {sender} is at {}", mac_at(frame, at + 8)?).ok(),
        other => write!(out, "ARP, operation {other}").ok(),
    }
}
