//! Fast Open (RFC 7413): who shows a cookie was given it by whom it shows it to; who takes bytes from a SYN was shown one that it gave to
//! that host; and a listener has no more such connections under way than it allows.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use super::Moment;
use super::flow::Endpoint;
use super::segment::{ACK, FastOpen, SYN, Segment, before};

const NAME: &str = "fast_open";

/// For so long a connection whose SYN-ACK nobody acknowledges is certainly under way: the SYN-ACK goes again after 1, 2, 4, 8, 16 s (RFC 6298 s2.1, s5.5).
const SURELY_UNDER_WAY: Duration = Duration::from_secs(20);

/// Who gave a cookie to whom.
type Whose = (IpAddr, IpAddr);

/// What hosts gave, and were given.
#[derive(Debug, Default)]
pub(super) struct Cookies {
    given: BTreeMap<Whose, BTreeSet<Vec<u8>>>,
    /// As far as it arrived, damaged where no checksum tells or not.
    arrived: BTreeMap<Whose, BTreeSet<Vec<u8>>>,
}

impl Cookies {
    /// A segment arrived, which may tell a cookie.
    pub(super) fn delivered(&mut self, segment: &Segment) {
        if let Some(told) = segment.fast_open.filter(|_| segment.has(SYN | ACK)) {
            let whose = (segment.src.ip(), segment.dst.ip());
            self.arrived.entry(whose).or_default().insert(told.cookie().to_vec());
        }
    }

    fn has(of: &BTreeMap<Whose, BTreeSet<Vec<u8>>>, whose: Whose, cookie: &FastOpen) -> bool {
        of.get(&whose).is_some_and(|cookies| cookies.contains(cookie.cookie()))
    }
}

/// What it remembers of an endpoint.
#[derive(Debug, Default)]
pub(super) struct State {
    /// What its first SYN said, and the bytes that it had.
    said: Option<FastOpen>,
    bytes: u32,
    /// It took bytes of its peer's SYN.
    took: bool,
}

impl State {
    /// The numbers behind its first SYN, if that had bytes.
    pub(super) fn bytes(&self) -> u32 {
        self.bytes
    }

    /// Its SYN showed a cookie.
    pub(super) fn shows(&self) -> bool {
        self.said.is_some_and(|said| !said.asks())
    }
}

/// An endpoint sent a segment, which is no reset. `own` is as it was before.
pub(super) fn sent(moment: &Moment, segment: &Segment, own: &mut Endpoint, peer: Option<&Endpoint>, cookies: &mut Cookies) {
    if segment.fast_open.is_some() && !segment.has(SYN) {
        moment.breach(NAME, "RFC 7413 s4.1.1: a cookie, or the request for one, in a segment that is no SYN");
    }
    match (segment.has(SYN), segment.has(ACK)) {
        (true, false) => syn(moment, segment, own, cookies),
        (true, true) => syn_ack(moment, segment, own, peer, cookies),
        (false, _) => early(moment, segment, own, peer),
    }
}

/// RFC 7413 s4.1.3: bytes go with a cookie that the peer gave, the first time alone.
fn syn(moment: &Moment, segment: &Segment, own: &mut Endpoint, cookies: &Cookies) {
    if before(segment.seq, own.nxt) {
        if segment.fast_open.is_some() || segment.len() > 0 {
            moment.breach(NAME, format_args!("RFC 7413 s4.1.3.1: a SYN goes again with {} bytes, {:?}", segment.len(), segment.fast_open));
        }
        return;
    }
    let shown = segment.fast_open.filter(|said| !said.asks());
    if segment.len() > 0 && shown.is_none() {
        moment.breach(NAME, format_args!("RFC 7413 s4.1.3: a SYN without a cookie has {} bytes", segment.len()));
    }
    if shown.is_some_and(|shown| !Cookies::has(&cookies.arrived, (segment.dst.ip(), segment.src.ip()), &shown)) {
        moment.breach(NAME, "RFC 7413 s4.1.3: a cookie is shown to a host that did not give it");
    }
    (own.fast_open.said, own.fast_open.bytes) = (segment.fast_open, segment.len());
    // (Which of its bytes go again, and when, follows from what the peer makes of them.)
    own.shadow.blurred |= shown.is_some();
}

/// RFC 7413 s4.2.2: a cookie is for who asked, or showed one; and bytes are taken from who showed one that it was given.
fn syn_ack(moment: &Moment, segment: &Segment, own: &mut Endpoint, peer: Option<&Endpoint>, cookies: &mut Cookies) {
    let whose = (segment.src.ip(), segment.dst.ip());
    if let Some(told) = segment.fast_open {
        cookies.given.entry(whose).or_default().insert(told.cookie().to_vec());
        if told.asks() {
            moment.breach(NAME, "RFC 7413 s4.2.2: a SYN-ACK asks for a cookie");
        }
    }
    let Some(peer) = peer.filter(|peer| !peer.lawless) else { return };
    match (segment.fast_open, peer.fast_open.said) {
        (Some(_), None) => moment.breach(NAME, "RFC 7413 s4.2.2: a cookie for who did not ask"),
        (Some(told), Some(said)) if told.is_experimental != said.is_experimental => {
            moment.breach(NAME, "RFC 7413 s4.2.2: a cookie in another form than it was asked for in");
        }
        _ => {}
    }
    own.shadow.blurred |= peer.fast_open.shows();
    if segment.ack == peer.iss.wrapping_add(1) {
        return;
    }
    own.fast_open.took = true;
    let shown = peer.fast_open.said.filter(|said| !said.asks());
    if shown.is_none_or(|shown| !Cookies::has(&cookies.given, whose, &shown)) {
        moment
            .breach(NAME, format_args!("RFC 7413 s4.2.2: bytes are taken from a SYN that shows {shown:?}, which its sender was not given"));
    }
}

/// RFC 9293 s3.10.7.4: what follows a SYN-ACK that nobody has acknowledged follows from Fast Open.
fn early(moment: &Moment, segment: &Segment, own: &Endpoint, peer: Option<&Endpoint>) {
    let is_early = own.passive && own.una == own.iss && segment.len() > 0;
    if is_early && !own.moved && !own.lawless && peer.is_some_and(|peer| !peer.lawless && !peer.fast_open.shows()) {
        moment.breach(NAME, "RFC 9293 s3.10.7.4: bytes before the handshake is over, for a peer that showed no cookie");
    }
}

/// How many connections of a host's port are certainly under way that began with bytes; no more than its listeners allow (RFC 7413 s5.1).
pub(super) fn bounded<'a>(moment: &Moment, all: impl Iterator<Item = &'a Endpoint>, port: u16, most: usize) {
    let is_under_way = |own: &&Endpoint| {
        let is_its = own.host == moment.host && own.tuple.0.port() == port && own.fast_open.took && own.una == own.iss;
        let is_over = own.reset || own.succeeded || own.disturbed || own.shadow.failed || own.shadow.closed || own.shadow.reset;
        is_its && !is_over && moment.at.since(own.began_at) < SURELY_UNDER_WAY
    };
    let under_way = all.filter(is_under_way).count();
    if under_way > most {
        moment.breach(NAME, format_args!("RFC 7413 s5.1: {under_way} connections are under way that began with bytes, and {most} may"));
    }
}

#[cfg(test)]
mod tests;
