//! An attacker beside a host: he sees what it sends and hears, and makes frames of that which look like more of the same.
//!
//! He does not win by force: what an RFC lets anybody do who sees everything (an exact reset, the next bytes with a right acknowledgment) he
//! leaves alone. What he does do must change nothing but what an RFC says, which is for the checkers to tell.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::rc::Rc;

use ringway_stack::device::MacAddr;

use super::icmp;
use crate::checksum;
use crate::dissect::{self, Ip, Payload, TCP, UDP, be16, be32, mac_at};
use crate::faults::Forgery;
use crate::random::{RandomStream, SplitMix};

/// The attacker's own MAC address; the switch knows it not, so that what is sent there is lost.
pub(crate) const ATTACKER_MAC: MacAddr = MacAddr([0x02, 0, 0, 0xff, 0xff, 0xfd]);
/// An address that nobody has.
const NOBODY: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 255, 255, 253));
const NOBODY_V6: IpAddr = IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0xffff, 0xfffd));
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

/// Frames that he remembers, of those that came and of those that went; and every so many of them for longer.
const LATEST: usize = 24;
const OLD: usize = 16;
const KEEP_EVERY: u64 = 8;
/// Of connections whose addresses were connected anew.
const BURIED: usize = 16;

const FIN: u8 = 1;
const SYN: u8 = 2;
const RST: u8 = 4;
const PSH: u8 = 8;
const ACK: u8 = 16;
const URG: u8 = 32;

/// Farther than any window or burst reaches.
const FAR: u32 = 1 << 30;

/// An attacker beside one host.
#[derive(Debug)]
pub(crate) struct Attacker {
    stream: RandomStream,
    /// Of a million frames that the host hears, so many provoke him.
    ppm: u32,
    /// He lies about neighbours as well.
    lies: bool,
    heard: Seen,
    said: Seen,
    /// What the host heard in earlier connections with the addresses of later ones.
    buried: VecDeque<Rc<[u8]>>,
}

/// Frames one way.
#[derive(Debug, Default)]
struct Seen {
    latest: VecDeque<Rc<[u8]>>,
    old: VecDeque<Rc<[u8]>>,
    count: u64,
}

impl Seen {
    fn see(&mut self, frame: &Rc<[u8]>) {
        if self.latest.len() >= LATEST
            && let Some(oldest) = self.latest.pop_front()
        {
            self.count += 1;
            if self.count.is_multiple_of(KEEP_EVERY) {
                if self.old.len() >= OLD {
                    self.old.pop_front();
                }
                self.old.push_back(oldest);
            }
        }
        self.latest.push_back(Rc::clone(frame));
    }

    fn all(&self) -> impl Iterator<Item = &Rc<[u8]>> {
        self.old.iter().chain(&self.latest)
    }
}

/// A TCP segment that he saw.
struct Segment<'a> {
    frame: &'a [u8],
    ip: Ip,
    ends: [IpAddr; 2],
    seq: u32,
    ack: u32,
    flags: u8,
    window: u16,
    options: &'a [u8],
    span: u32,
}

impl<'a> Segment<'a> {
    fn of(frame: &'a [u8]) -> Option<Self> {
        let Payload::Ip(ip) = dissect::payload(frame) else { return None };
        let header_len = usize::from(*frame.get(ip.l4 + 12)? >> 4) * 4;
        if ip.protocol != TCP || ip.fragment || header_len < 20 || ip.l4 + header_len > ip.end || mac_at(frame, 0)?.is_multicast() {
            return None;
        }
        let flags = frame[ip.l4 + 13];
        let len = u32::try_from(ip.end - ip.l4 - header_len).unwrap_or(0);
        Some(Self {
            frame,
            ip,
            ends: [ip.src, ip.dst],
            seq: be32(frame, ip.l4 + 4)?,
            ack: be32(frame, ip.l4 + 8)?,
            flags,
            window: be16(frame, ip.l4 + 14)?,
            options: &frame[ip.l4 + 20..ip.l4 + header_len],
            span: len + u32::from(flags & SYN != 0) + u32::from(flags & FIN != 0),
        })
    }

    fn ports(&self) -> [u8; 4] {
        self.frame[self.ip.l4..].first_chunk().copied().unwrap_or_default()
    }

    fn end(&self) -> u32 {
        self.seq.wrapping_add(self.span)
    }

    /// Whether both are of one connection and direction.
    fn follows(&self, other: &Segment<'_>) -> bool {
        self.ends == other.ends && self.ports() == other.ports()
    }

    /// Whether this one goes the other way.
    fn answers(&self, other: &Segment<'_>) -> bool {
        let [a, b, c, d] = self.ports();
        self.ends == [other.ends[1], other.ends[0]] && [c, d, a, b] == other.ports()
    }

    /// Its timestamps, as the only option, with `value` in place of its own.
    fn stamped(&self, value: impl Fn(u32) -> u32) -> Option<Vec<u8>> {
        let at = self.options.windows(10).position(|bytes| bytes[..2] == [8, 10])?;
        let own = be32(self.options, at + 2)?;
        Some([&[1, 1, 8, 10][..], &value(own).to_be_bytes(), &self.options[at + 6..at + 10]].concat())
    }

    fn timestamps(&self) -> Vec<u8> {
        self.stamped(|own| own).unwrap_or_default()
    }

    /// The same addresses and ports with another header, other options and other bytes.
    fn rewritten(&self, seq: u32, ack: u32, flags: u8, options: &[u8], payload: &[u8]) -> Vec<u8> {
        let mut frame = self.frame[..self.ip.l4 + 4].to_vec();
        frame.extend(seq.to_be_bytes());
        frame.extend(ack.to_be_bytes());
        let header_len = 20 + options.len().next_multiple_of(4);
        frame.extend([u8::try_from(header_len / 4).unwrap_or(15) << 4, flags]);
        frame.extend(self.window.to_be_bytes());
        frame.extend([0; 4]);
        frame.extend(options);
        frame.resize(self.ip.l4 + header_len, 0);
        frame.extend(payload);
        let len = frame.len() - self.ip.offset;
        self.ip.set_len(&mut frame, len);
        checksum::fill(&mut frame);
        frame
    }
}

/// What he knows of a connection: its latest segment to the host, and how far both sides are.
struct Known<'a> {
    base: Segment<'a>,
    /// What the host awaits next, as far as can be seen.
    next: u32,
    /// Behind everything that the host has sent, and what of that was acknowledged.
    nxt: u32,
    una: u32,
    /// What the host has acknowledged, and the room that it last announced, not scaled.
    acked: u32,
    room: u32,
}

impl Attacker {
    pub(crate) fn new(stream: RandomStream, ppm: u32, lies: bool) -> Self {
        Self { stream, ppm, lies, heard: Seen::default(), said: Seen::default(), buried: VecDeque::new() }
    }

    /// The host sent this.
    pub(crate) fn said(&mut self, frame: &Rc<[u8]>) {
        self.said.see(frame);
    }

    /// The host heard this. What he does about it.
    pub(crate) fn heard(&mut self, frame: &Rc<[u8]>, mac: MacAddr, own: IpAddr) -> Option<(Forgery, Vec<u8>)> {
        self.bury(frame);
        self.heard.see(frame);
        // Always the same two numbers, as of any class that judges frames.
        let (hit, detail) = (self.stream.below(1_000_000), self.stream.bits());
        if hit >= u64::from(self.ppm) {
            return None;
        }
        let mut dice = SplitMix(detail);
        let kind = if udp_of(frame).is_some() && dice.next() & 1 == 0 {
            [Forgery::NoChecksum, Forgery::WrongLength, Forgery::ForeignPort][pick(&mut dice, 3)]
        } else if dice.next().is_multiple_of(6) {
            Forgery::PathError
        } else {
            let kinds = if self.lies { Forgery::ALL.len() } else { Forgery::FalseNeighbour as usize };
            Forgery::ALL[pick(&mut dice, kinds)]
        };
        let mut bytes = self.forge(kind, &mut dice, mac, own)?;
        // He sends from his own MAC address, or pretends to be the one whose frame he copied.
        if dice.next() & 1 == 0 && !matches!(kind, Forgery::Replay | Forgery::Incarnation) {
            bytes[6..12].copy_from_slice(&ATTACKER_MAC.0);
        }
        Some((kind, bytes))
    }

    /// A SYN begins a connection anew: what its sender said before, with other numbers, is of an earlier one. (Numbers grow from one to the next:
    /// RFC 6528.)
    fn bury(&mut self, frame: &[u8]) {
        let Some(syn) = Segment::of(frame).filter(|segment| segment.flags & SYN != 0) else { return };
        let earlier = |segment: &Segment<'_>| segment.follows(&syn) && segment.seq.wrapping_sub(syn.seq).cast_signed() < 0;
        for frame in self.heard.all().filter(|frame| Segment::of(frame).is_some_and(|segment| earlier(&segment))) {
            if !self.buried.iter().any(|known| Rc::ptr_eq(known, frame)) {
                if self.buried.len() >= BURIED {
                    self.buried.pop_front();
                }
                self.buried.push_back(Rc::clone(frame));
            }
        }
    }

    fn forge(&self, kind: Forgery, dice: &mut SplitMix, mac: MacAddr, own: IpAddr) -> Option<Vec<u8>> {
        match kind {
            Forgery::InexactReset
            | Forgery::InexactSyn
            | Forgery::BlindData
            | Forgery::FutureTimestamp
            | Forgery::OldTimestamp
            | Forgery::AncientAck
            | Forgery::FutureAck
            | Forgery::FarFin
            | Forgery::LyingOptions
            | Forgery::Urgent
            | Forgery::Padded => segment(kind, &self.known()?, dice),
            Forgery::Truncated => truncated(self.known()?.base.frame, dice),
            Forgery::Replay => {
                let old = if dice.next() & 1 == 0 { &self.heard.old } else { &self.heard.latest };
                let frame = old.get(pick(dice, old.len()))?;
                Segment::of(frame).filter(|segment| !self.is_opening(segment)).map(|segment| segment.frame.to_vec())
            }
            Forgery::Incarnation => {
                let frame = self.buried.get(pick(dice, self.buried.len()))?;
                // Without timestamps, nothing but the window tells (RFC 7323 s5.1).
                let tells = |segment: &Segment<'_>| segment.flags & SYN != 0 || !segment.timestamps().is_empty();
                Segment::of(frame).filter(|segment| tells(segment) && !self.is_opening(segment)).map(|segment| segment.frame.to_vec())
            }
            Forgery::StrangeSyn => self.strange_syn(dice),
            Forgery::HardError | Forgery::PathError | Forgery::SourceQuench => self.icmp_error(kind, dice, mac),
            Forgery::NoChecksum | Forgery::WrongLength | Forgery::ForeignPort => datagram(kind, self.heard.latest.back()?, dice),
            Forgery::FalseNeighbour | Forgery::FalseSelf | Forgery::UnknownNeighbour => self.false_neighbour(kind, dice, mac, own),
        }
    }

    /// The connection whose segment came last, if it is one that stands.
    fn known(&self) -> Option<Known<'_>> {
        let base = Segment::of(self.heard.latest.back()?)?;
        if base.flags & (SYN | RST) != 0 || base.flags & ACK == 0 || self.is_opening(&base) {
            return None;
        }
        let further = |a: u32, b: u32| if b.wrapping_sub(a).cast_signed() > 0 { b } else { a };
        let (mut next, mut una) = (base.end(), base.ack);
        for segment in self.heard.latest.iter().filter_map(|frame| Segment::of(frame)).filter(|segment| segment.follows(&base)) {
            next = further(next, segment.end());
            una = further(una, segment.ack);
        }
        let own = || self.said.latest.iter().filter_map(|frame| Segment::of(frame)).filter(|segment| segment.answers(&base));
        let nxt = own().map(|segment| segment.end()).fold(una, further);
        let last = own().rfind(|segment| segment.flags & (ACK | RST) == ACK)?;
        let (acked, room) = (last.ack, u32::from(last.window));
        // (A keepalive probe's number is one that was acknowledged long ago.)
        Some(Known { next: further(next, acked), base, nxt, una, acked, room })
    }

    /// Whether the host may have begun a connection with these addresses, and was not seen to go on: whoever sees a handshake can end it.
    fn is_opening(&self, segment: &Segment<'_>) -> bool {
        let own = self.said.latest.iter().rev().filter_map(|frame| Segment::of(frame));
        let last = own.filter(|own| own.answers(segment)).find(|own| own.flags & RST == 0);
        last.is_none_or(|own| own.flags & SYN != 0)
    }

    /// A SYN to a port at which the host was seen to answer.
    fn strange_syn(&self, dice: &mut SplitMix) -> Option<Vec<u8>> {
        let base = self.heard.latest.iter().rev().filter_map(|frame| Segment::of(frame)).next()?;
        let options: [&[u8]; 8] = [
            &[2, 4, 0, 0],
            &[2, 4, 0, 1],
            &[2, 4, 5, 0xb4, 2, 4, 0, 9],
            &[3, 3, 255, 0],
            &[3, 3, 15, 3, 3, 0],
            &[2, 3, 5, 8, 10],
            &[4, 2, 4, 2, 8, 10, 0, 0, 0, 0, 0, 0, 0, 0],
            &[],
        ];
        let options = options[pick(dice, options.len())];
        let mut frame = base.rewritten(dice.next() as u32, 0, SYN, options, &[]);
        // A port of the other host's that nobody has, so that it will say so.
        let port = 1 + u16::try_from(pick(dice, 60)).unwrap_or(0);
        frame[base.ip.l4..base.ip.l4 + 2].copy_from_slice(&port.to_be_bytes());
        checksum::fill(&mut frame);
        Some(frame)
    }

    /// An error about the latest segment that the host has sent, or one that it may be said to have sent.
    fn icmp_error(&self, kind: Forgery, dice: &mut SplitMix, mac: MacAddr) -> Option<Vec<u8>> {
        let Known { base, nxt, una, .. } = self.known()?;
        let said = self.said.latest.iter().rev().filter_map(|frame| Segment::of(frame)).find(|segment| segment.answers(&base))?;
        // One that ends a handshake may be believed (RFC 5927 s5.2).
        if said.flags & SYN != 0 {
            return None;
        }
        let flight = nxt.wrapping_sub(una);
        let seq = match dice.next() % 4 {
            0 => nxt.wrapping_add(FAR / 64 + dice.next() as u32 % (FAR / 16)),
            1 => una.wrapping_sub(FAR / 64 + dice.next() as u32 % (FAR / 16)),
            _ => una.wrapping_add((dice.next() % u64::from(flight.max(1))) as u32),
        };
        let about = match kind {
            Forgery::HardError => [(3, 2), (3, 3), (3, 1), (3, 0), (3, 13), (11, 0), (12, 0)][pick(dice, 7)],
            Forgery::PathError => (3, 4),
            _ => (4, 0),
        };
        let mtu = if kind == Forgery::PathError { [0, 1, 67, 68, 69, 128, 296, 551, 552, 576][pick(dice, 10)] } else { 0 };
        let quote = icmp::Quote::of(said.frame, &said.ip)?.about(seq);
        let claimed = if dice.next() & 1 == 0 { 1500 } else { quote.len()? };
        Some(icmp::lie(&base.frame[..base.ip.offset], mac, quote, claimed, about, mtu))
    }

    /// An announcement, or an answer that nobody asked for.
    fn false_neighbour(&self, kind: Forgery, dice: &mut SplitMix, mac: MacAddr, own: IpAddr) -> Option<Vec<u8>> {
        let like = self.heard.latest.back()?;
        let Payload::Ip(ip) = dissect::payload(like) else { return None };
        let about = match kind {
            Forgery::FalseNeighbour => ip.src,
            Forgery::FalseSelf => own,
            _ if own.is_ipv6() => NOBODY_V6,
            _ => NOBODY,
        };
        let announces = dice.next() & 1 == 0;
        let link = &like[..ip.offset - 2];
        match (about, own) {
            (IpAddr::V4(about), IpAddr::V4(own)) => Some(arp(link, announces, mac, about, own)),
            (IpAddr::V6(about), IpAddr::V6(own)) => Some(advertisement(link, announces, mac, about, own)),
            _ => None,
        }
    }
}

/// `link`: the head of a frame for the host, up to its ethertype.
fn arp(link: &[u8], announces: bool, mac: MacAddr, about: Ipv4Addr, own: Ipv4Addr) -> Vec<u8> {
    let to = if announces { MacAddr::BROADCAST } else { mac };
    let mut frame = link.to_vec();
    frame[..6].copy_from_slice(&to.0);
    frame[6..12].copy_from_slice(&ATTACKER_MAC.0);
    frame.extend([0x08, 0x06]);
    let operation = if announces { 1 } else { 2 };
    frame.extend([0, 1, 8, 0, 6, 4, 0, operation]);
    frame.extend(ATTACKER_MAC.0);
    frame.extend(about.octets());
    frame.extend(if announces { [0; 6] } else { mac.0 });
    frame.extend(if announces { about } else { own }.octets());
    frame
}

/// The same in IPv6 (RFC 4861 s4.4).
fn advertisement(link: &[u8], announces: bool, mac: MacAddr, about: Ipv6Addr, own: Ipv6Addr) -> Vec<u8> {
    const OVERRIDE: u8 = 0x20;
    const SOLICITED: u8 = 0x40;
    let (to, dst) = if announces { (MacAddr([0x33, 0x33, 0, 0, 0, 1]), ALL_NODES) } else { (mac, own) };
    let mut frame = link.to_vec();
    frame[..6].copy_from_slice(&to.0);
    frame[6..12].copy_from_slice(&ATTACKER_MAC.0);
    frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 32, dissect::ICMPV6, 255]);
    frame.extend(about.octets());
    frame.extend(dst.octets());
    let message = frame.len();
    frame.extend([136, 0, 0, 0, if announces { OVERRIDE } else { OVERRIDE | SOLICITED }, 0, 0, 0]);
    frame.extend(about.octets());
    frame.extend([2, 1]);
    frame.extend(ATTACKER_MAC.0);
    checksum::fill_icmpv6(&mut frame, message);
    frame
}

fn put_source(frame: &mut [u8], ip: &Ip, source: IpAddr) {
    match source {
        IpAddr::V4(source) => frame[ip.offset + 12..ip.offset + 16].copy_from_slice(&source.octets()),
        IpAddr::V6(source) => frame[ip.offset + 8..ip.offset + 24].copy_from_slice(&source.octets()),
    }
}

fn pick(dice: &mut SplitMix, bound: usize) -> usize {
    usize::try_from(dice.next() % (bound.max(1) as u64)).unwrap_or(0)
}

/// A segment that the host must see through.
fn segment(kind: Forgery, known: &Known<'_>, dice: &mut SplitMix) -> Option<Vec<u8>> {
    let Known { ref base, next, nxt, una, acked, room } = *known;
    let stamps = base.timestamps();
    let garbage: Vec<u8> = (0..1 + dice.next() % 64).map(|_| 0xa5 ^ dice.next() as u8).collect();
    let far = dice.next() as u32 % (FAR / 2);
    let (ancient, future) = (una.wrapping_sub(FAR + far), nxt.wrapping_add(FAR / 64 + far));
    let strange = if dice.next() & 1 == 0 { ancient } else { future };
    let within = next.wrapping_add(1 + dice.next() as u32 % room.max(2));
    let before = acked.wrapping_sub(1 + dice.next() as u32 % 4096);
    let anywhere = [within, before, next][pick(dice, 3)];
    Some(match kind {
        Forgery::InexactReset => {
            let flags = if dice.next() & 1 == 0 { RST } else { RST | ACK };
            let seq = if dice.next().is_multiple_of(4) { before } else { within };
            base.rewritten(seq, nxt, flags, &[], &[])
        }
        Forgery::InexactSyn => match dice.next() % 4 {
            0 => base.rewritten(anywhere, nxt, SYN | ACK, &stamps, &[]),
            1 => base.rewritten(anywhere, 0, SYN, &[&[2, 4, 0, 88][..], &stamps].concat(), &garbage),
            _ => base.rewritten(anywhere, 0, SYN, &[&[2, 4, 5, 0xb4][..], &stamps].concat(), &[]),
        },
        Forgery::BlindData => {
            let seq = if dice.next() & 1 == 0 { next } else { within };
            let flags = if dice.next().is_multiple_of(4) { ACK | FIN } else { ACK | PSH };
            base.rewritten(seq, strange, flags, &stamps, &garbage)
        }
        Forgery::FutureTimestamp => {
            let stamps = base.stamped(|own| own.wrapping_add(FAR / 2))?;
            base.rewritten(next, strange, ACK | PSH, &stamps, if dice.next() & 1 == 0 { &garbage } else { &[] })
        }
        Forgery::OldTimestamp => {
            let stamps = base.stamped(|own| own.wrapping_sub(FAR + far))?;
            let flags = if dice.next().is_multiple_of(4) { ACK | FIN } else { ACK | PSH };
            base.rewritten(next, nxt, flags, &stamps, &garbage)
        }
        Forgery::AncientAck => base.rewritten(next, ancient, ACK, &stamps, &[]),
        Forgery::FutureAck => base.rewritten(next, future, ACK, &stamps, &[]),
        Forgery::FarFin => base.rewritten(next.wrapping_add(FAR + far), nxt, ACK | FIN, &stamps, &garbage[..pick(dice, garbage.len())]),
        Forgery::LyingOptions => {
            let block = |start: u32, end: u32| [&[5, 10][..], &start.to_be_bytes(), &end.to_be_bytes()].concat();
            let lie = match dice.next() % 9 {
                0 => vec![5, 10, 1, 2],
                1 => vec![5, 1],
                2 => block(future, future.wrapping_add(1000)),
                3 => block(nxt, una),
                4 => block(ancient, ancient.wrapping_add(far)),
                5 => vec![2, 4, 0, 0, 3, 3, 14],
                7 => vec![4, 2, 4, 2, 2, 4, 0, 1],
                // Neither is a timestamp: its length is wrong.
                6 => vec![8, 6, 0, 0, 0, 1],
                _ => vec![8, 11, 0, 0, 0, 1],
            };
            // The host may throw it away for that, but must not believe it.
            let (first, second) = if dice.next() & 1 == 0 { (stamps, lie) } else { (lie, stamps) };
            base.rewritten(base.end(), base.ack, ACK, &[first, second].concat(), &[])
        }
        Forgery::Urgent => {
            let mut frame = base.rewritten(base.end(), base.ack, ACK | URG, &stamps, &[]);
            let pointer = dice.next() as u16;
            frame[base.ip.l4 + 18..base.ip.l4 + 20].copy_from_slice(&pointer.to_be_bytes());
            frame[base.ip.l4 + 12] |= dice.next() as u8 & 0xf;
            checksum::fill(&mut frame);
            frame
        }
        Forgery::Padded => {
            let mut frame = base.rewritten(base.end(), base.ack, ACK, &stamps, &[]);
            frame.resize((frame.len() + 1 + pick(dice, 40)).max(60), 0x5a);
            frame
        }
        _ => return None,
    })
}

/// A frame whose packet claims more than there is.
fn truncated(frame: &[u8], dice: &mut SplitMix) -> Option<Vec<u8>> {
    let segment = Segment::of(frame)?;
    let (ip, at, l4) = (segment.ip, segment.ip.offset, segment.ip.l4);
    let mut frame = frame.to_vec();
    match dice.next() % 4 {
        0 => frame.truncate(at + pick(dice, frame.len() - at)),
        1 => frame.truncate(frame.len() - 1),
        2 => {
            let len = frame.len() - at + 1 + pick(dice, 1000);
            ip.set_len(&mut frame, len);
            checksum::fill_ip_header(&mut frame);
        }
        _ => {
            // The header's length, of the segment or of the packet.
            frame[l4 + 12] = (frame[l4 + 12] & 0xf) | if dice.next() & 1 == 0 { 0x40 } else { 0xf0 };
            frame.truncate(frame.len().min(l4 + 40));
            let len = frame.len() - at;
            ip.set_len(&mut frame, len);
            checksum::fill(&mut frame);
        }
    }
    (frame.len() >= 14).then_some(frame)
}

/// A frame's packet, if it is a datagram for one host.
fn udp_of(frame: &[u8]) -> Option<Ip> {
    let Payload::Ip(ip) = dissect::payload(frame) else { return None };
    let one = ip.protocol == UDP && !ip.fragment && !mac_at(frame, 0)?.is_multicast() && ip.end >= ip.l4 + 8;
    one.then_some(ip)
}

/// A datagram like one that came.
fn datagram(kind: Forgery, like: &[u8], dice: &mut SplitMix) -> Option<Vec<u8>> {
    let ip = udp_of(like)?;
    let mut frame = like[..ip.end].to_vec();
    let l4 = ip.l4;
    match kind {
        Forgery::NoChecksum => frame[l4 + 6..l4 + 8].fill(0),
        Forgery::WrongLength => {
            let len = u16::try_from(ip.end - l4).unwrap_or(u16::MAX);
            let wrong = if dice.next() & 1 == 0 { len.saturating_add(1 + dice.next() as u16 % 2000) } else { dice.next() as u16 % 8 };
            frame[l4 + 4..l4 + 6].copy_from_slice(&wrong.to_be_bytes());
            // Without a checksum, only the length tells.
            frame[l4 + 6..l4 + 8].fill(0);
        }
        _ => {
            if dice.next() & 1 == 0 {
                frame[l4 + 1] ^= 1 + dice.next() as u8 % 255;
            } else {
                put_source(&mut frame, &ip, if ip.is_v6() { NOBODY_V6 } else { NOBODY });
            }
            checksum::fill(&mut frame);
        }
    }
    Some(frame)
}

#[cfg(test)]
mod tests;
