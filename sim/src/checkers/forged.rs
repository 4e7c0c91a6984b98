//! Forged frames (fault class `forge`) have no effect but what an RFC allows. A segment that its connection must see through is none for the
//! other laws: whoever acknowledges its bytes, reads them, or sends more for its acknowledgment breaks those. Here stand the laws that are left.
//! A program hears of a reset only after one that counted (RFC 5961 s3.2, s4.2); no connection goes to an attacker's MAC address unless ARP said so
//! (RFC 826); and no ICMP error makes segments tiny (RFC 5927 s7.3).

use core::time::Duration;
use std::net::SocketAddr;

use ringway_stack::device::MacAddr;
use ringway_stack::{Error, Instant};

use super::Moment;
use super::datagrams::Datagram;
use super::flow::Endpoint;
use super::segment::{ACK, FIN, PSH, RST, SYN, Segment, before};
use crate::dissect::{self, Ip, be16, be32};
use crate::fabric::{forge, icmp};

const NAME: &str = "forged";

/// Farther than any window, and than anything that one service can bring or send.
const FAR: u32 = 1 << 23;
/// No window is larger (RFC 7323 s2.3): what is older than this is acknowledged by nobody who is in the connection (RFC 5961 s5.2).
const WINDOW_MAX: u32 = 1 << 30;
/// No ICMP error makes a segment shorter: Linux's min_pmtu, less the longest headers (what options take, SACK takes as well).
const SEGMENT_MIN: u32 = 552 - 20 - 60 - 40;

/// Less than any connection waits for an answer.
const HEARD_LATELY: Duration = Duration::from_secs(1);

/// What it remembers of an endpoint.
#[derive(Debug, Default)]
pub(super) struct State {
    /// A reset arrived that may have counted.
    reset: bool,
    /// An attacker's error said that the path is narrower than any path, and nothing was sent since.
    narrowed: bool,
    /// The shortest segment before the end of what was written, if there was one.
    least: Option<u32>,
    /// The longest segment that was sent.
    longest: u32,
    /// The number of a SYN that arrived in the peer's name, and of the last one of the peer's own.
    syn: Option<u32>,
    peers_syn: Option<u32>,
    /// What answered that SYN: its number, and when it went first.
    answer: Option<(u32, Instant)>,
}

impl State {
    /// A SYN arrived; `forged`: in the peer's name.
    pub(super) fn syn(&mut self, seq: u32, forged: bool) {
        if !forged {
            self.peers_syn = Some(seq);
        }
        self.syn = if forged { Some(seq) } else { self.syn }.filter(|&seq| self.peers_syn != Some(seq));
    }

    /// Whether a SYN-ACK with this acknowledgment is for somebody who only pretended to be the peer. (On another ring than the connection's, nobody
    /// knows better.)
    pub(super) fn answers_forged(&self, ack: u32) -> bool {
        self.syn == Some(ack.wrapping_sub(1))
    }

    /// The SYN-ACK with this number answered somebody who pretended to be the peer.
    pub(super) fn answered(&mut self, at: Instant, iss: u32) {
        if self.answer.is_none_or(|(known, _)| known != iss) {
            self.answer = Some((iss, at));
        }
    }

    /// When it went first, if it did: the peer may have sent that very SYN as well, and have come second.
    pub(super) fn answered_since(&self, iss: u32) -> Option<Instant> {
        self.answer.and_then(|(known, at)| (known == iss).then_some(at))
    }

    /// Whether somebody began a connection in the peer's name.
    pub(super) fn is_impersonated(&self) -> bool {
        self.syn.is_some()
    }

    /// Whether a reset arrived that may have counted.
    pub(super) fn was_reset(&self) -> bool {
        self.reset
    }

    /// A reset arrived, and it may count.
    pub(super) fn reset(&mut self) {
        self.reset = true;
    }
}

/// Whether its handshake is over.
fn stands(own: &Endpoint) -> bool {
    own.irs.is_some() && before(own.iss, own.una)
}

/// What a forged segment can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Forged {
    /// Nothing, but for an acknowledgment that it is answered with.
    Harmless,
    /// What the peer itself said, and may have said once more.
    Copy,
    /// Nobody knows.
    Doubtful,
}

/// Judges a segment that an attacker forged by its numbers and bytes.
pub(super) fn judge(frame: &[u8], segment: &Segment, own: &Endpoint, peer: Option<&Endpoint>) -> Forged {
    // (A handshake has less to tell by: whoever sees it may end it.)
    if !stands(own) {
        return Forged::Doubtful;
    }
    if segment.has(SYN) || segment.has(RST) {
        return if is_seen_through(segment, own) { Forged::Harmless } else { Forged::Doubtful };
    }
    if !segment.has(ACK) {
        return Forged::Harmless;
    }
    let unsent = before(own.nxt.wrapping_add(FAR), segment.ack);
    let ancient = before(segment.ack, own.una.wrapping_sub(WINDOW_MAX - 1));
    let outside = own.window.edge().is_some_and(|edge| before(edge.wrapping_add(FAR), segment.seq));
    let old = segment.options.timestamps.zip(peer.and_then(|peer| peer.sequence.stamped_first()));
    let old = old.is_some_and(|((value, _), first)| before(value, first)) && own.syn.timestamps.is_some();
    if unsent || ancient || outside || old {
        return Forged::Harmless;
    }
    match peer {
        Some(peer) if is_copy(frame, segment, own, peer) => Forged::Copy,
        _ => Forged::Doubtful,
    }
}

/// Whether a connection must see through a SYN or a RST: it stands, and knows that the number is not the next (RFC 5961 s3.2, s4.2).
pub(super) fn is_seen_through(segment: &Segment, own: &Endpoint) -> bool {
    // What of it arrived may have been lost between the NIC and the stack, which then awaits less than `rx.next`.
    // (So may what a stranger said beside its numbers; and a connection that moved left behind what it had out of order.)
    let awaited = own.awaits(segment.seq);
    let moved = own.moved || own.shadow.blurred;
    let exact = awaited || moved || !own.calm || own.lawless || own.shadow.receiver.is_doubtful();
    let inexact = before(own.rx.next, segment.seq) || !exact;
    // (In TIME-WAIT a SYN may begin a new connection.)
    stands(own) && if segment.has(RST) { inexact } else { own.fin.is_none() }
}

/// Whether the peer said that, for all that was seen of it.
fn is_copy(frame: &[u8], segment: &Segment, own: &Endpoint, peer: &Endpoint) -> bool {
    let ends = !segment.has(FIN) || peer.fin == Some(segment.end().wrapping_sub(1));
    let sent = !before(segment.seq, peer.iss) && !before(peer.nxt, segment.end()) && ends;
    let acked = peer.sequence.acked().is_some_and(|acked| !before(acked, segment.ack)) && !before(segment.ack, own.iss);
    let bytes = &frame[segment.payload.clone()];
    sent && acked && (bytes.is_empty() || peer.stream.check(peer.offset(segment.seq), bytes).is_ok())
}

/// A program is told that its peer has reset the connection.
pub(super) fn told(moment: &Moment, own: &Endpoint, error: Error) {
    if error == Error::Reset && !own.forged.reset && !own.reset && own.irs.is_some() {
        let law = "RFC 5961 s3.2, s4.2: a connection is reset by an exact reset alone";
        moment.breach(NAME, format_args!("{law}: {:?} was, and none came", own.tuple));
    }
    // A connection that times out is told why; one that has just heard from its peer has not timed out, unless what it sends again and again stays
    // without an acknowledgment.
    let struggles = own.flight() > 0 && own.rto.resends_since().is_some_and(|since| moment.at > since + HEARD_LATELY);
    if error == Error::Refused && own.calm && stands(own) && !own.forged.reset && !struggles && moment.at < own.rx_at + HEARD_LATELY {
        let law = "RFC 5927 s5.2: no ICMP error ends a connection that stands";
        moment.breach(NAME, format_args!("{law}: {:?}, {error}", own.tuple));
    }
}

/// What is to be known of a host that sends.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sender {
    /// An attacker told it by ARP that somebody has his MAC address.
    pub(super) lied_to: bool,
    /// The pieces that its NIC gathers into a frame, and how long each is that is full.
    pub(super) gathers: (u32, u32),
}

impl Sender {
    /// Whether so many bytes may be all that it gathers: what begins in the middle of a piece has so much less.
    fn gathers_no_more(self, len: u32) -> bool {
        let (pieces, bytes) = self.gathers;
        bytes > 0 && len.div_ceil(bytes) == pieces
    }
}

/// An endpoint sends a segment.
pub(super) fn sent(moment: &Moment, frame: &[u8], segment: &Segment, own: &mut Endpoint, peer: Option<&Endpoint>, sender: Sender) {
    if stands(own) && !sender.lied_to && segment.len() > 0 && dissect::mac_at(frame, 0) == Some(ATTACKER_MAC) {
        moment.breach(NAME, format_args!("RFC 826: a segment of {:?} for a MAC address that ARP never spoke of", own.tuple));
    }
    if segment.len() == 0 || segment.has(SYN) {
        return;
    }
    let narrowed = core::mem::take(&mut own.forged.narrowed);
    let whole = peer.is_some_and(|peer| peer.syn.mss.is_some_and(|mss| mss >= 1000) && peer.rx.next == own.una && peer.rx.is_whole());
    // (What lies in more pieces than the device gathers was as short before, or shorter where the program wrote less at a time. And where all segments are
    // short, what SACK takes of one is missing in its bytes.)
    let room = segment.len() + sack_len(segment);
    let usual = own.forged.least.is_some_and(|least| least <= room) || own.forged.longest <= room || sender.gathers_no_more(segment.len());
    own.forged.longest = own.forged.longest.max(segment.len());
    // (Who speaks without a stack may report that it has what lies in the middle of a segment.)
    let again = !usual && !own.lawless && segment.seq == own.una && before(segment.seq, own.nxt) && own.flight() > 2000;
    if narrowed && whole && again && segment.len() < SEGMENT_MIN {
        let len = segment.len();
        moment.breach(NAME, format_args!("RFC 5927 s7.3: {len} of {} bytes are sent again, for an error about the path", own.flight()));
    }
    if !segment.has(PSH) && !segment.has(FIN) {
        own.forged.least = Some(own.forged.least.map_or(segment.len(), |least| least.min(segment.len())));
    }
}

/// Bytes that SACK takes of a segment, aligned (RFC 2018 s3).
fn sack_len(segment: &Segment) -> u32 {
    match segment.options.sack().len() {
        0 => 0,
        blocks => 4 + 8 * u32::try_from(blocks).unwrap_or(0),
    }
}

const ATTACKER_MAC: MacAddr = forge::ATTACKER_MAC;

/// What an ICMP error quotes of a TCP segment: its ends, and its sequence number.
pub(super) fn quoted(frame: &[u8], ip: &Ip) -> Option<(super::flow::Tuple, u32)> {
    let at = ip.l4 + 8;
    let (src, dst) = dissect::addresses_at(frame, at)?;
    let (protocol, l4) = dissect::transport_at(frame, at)?;
    (protocol == dissect::TCP && icmp::is_error(frame)).then_some(())?;
    Some(((SocketAddr::new(src, be16(frame, l4)?), SocketAddr::new(dst, be16(frame, l4 + 2)?)), be32(frame, l4 + 4)?))
}

/// An attacker's ICMP error about what an endpoint is to have sent from `seq` on arrived: whether it may be believed (RFC 5927 s4.1).
pub(super) fn error(frame: &[u8], ip: &Ip, seq: u32, own: &mut Endpoint) -> bool {
    // What acknowledges the rest may have been lost between the NIC and the stack, and by the time that the stack looks it may have sent more.
    let believable = before(own.una.wrapping_sub(FAR), seq) && before(seq, own.nxt.wrapping_add(FAR));
    let mtu = be16(frame, ip.l4 + 6).unwrap_or(0);
    own.forged.narrowed |= believable && dissect::is_too_big(frame, ip) && mtu < if ip.is_v6() { 1280 } else { 552 };
    believable
}

/// A host was serviced, for whose socket datagrams without a checksum had arrived that nobody has read yet. `waits`: something waits for its reader;
/// `filtered`: the program decided about some, or there was no room.
pub(super) fn unheard(moment: &Moment, unsummed: &mut Vec<(Instant, Datagram, u32)>, waits: bool, filtered: bool) {
    // What came while the device was in trouble may have been lost there.
    unsummed.retain(|&(at, ..)| at > moment.hampered);
    if filtered {
        unsummed.clear();
    }
    if let (Some((at, datagram, _)), false) = (unsummed.first(), waits) {
        moment.breach(NAME, format_args!("RFC 768: no checksum is none: {datagram:?} came at {} ns, and was not heard", at.as_nanos()));
    }
}

#[cfg(test)]
mod tests;
