//! Resets: to whom, and with which numbers (RFC 9293 s3.10.7.1, s3.5.2).

use std::net::SocketAddr;

use super::super::Moment;
use super::super::flow::{Endpoint, Tuple};
use super::super::segment::{ACK, FIN, RST, SYN, Segment, before};

const NAME: &str = "resets";

/// What came to a host lately for whom.
#[derive(Debug, Default)]
pub(in crate::checkers) struct State {
    arrivals: Vec<Stray>,
    /// Some of them came between addresses that nobody had.
    has_unknown: bool,
    /// Those of them that somebody forged, who need not be told anything.
    forged: Vec<Tuple>,
    /// Who was sent a reset since.
    resets: Vec<Tuple>,
}

/// What came, as far as a reset must answer it.
#[derive(Clone, Copy, Debug)]
pub(in crate::checkers) struct Stray {
    /// Whose it was: the host's address, and the sender's.
    pub(in crate::checkers) tuple: Tuple,
    flags: u8,
    ack: u32,
    end: u32,
    is_known: bool,
}

/// Most that are remembered.
const REMEMBERED_MAX: usize = 4096;

impl State {
    /// A segment came, which may be answered by a reset.
    /// `is_known`: its addresses are, or were, a connection's.
    pub(in crate::checkers) fn delivered(&mut self, segment: &Segment, is_known: bool) {
        if !segment.has(RST) && self.arrivals.len() < REMEMBERED_MAX {
            self.arrivals.push(Stray::of(segment, is_known));
            self.has_unknown |= !is_known;
        }
    }

    /// So did one that somebody forged.
    pub(in crate::checkers) fn forged(&mut self, segment: &Segment) {
        if self.forged.len() < REMEMBERED_MAX {
            self.forged.push((segment.dst, segment.src));
        }
    }

    /// The host has looked at all of it.
    pub(in crate::checkers) fn serviced(&mut self) {
        self.arrivals.clear();
        self.resets.clear();
        self.forged.clear();
        self.has_unknown = false;
    }

    /// The host sent a reset.
    pub(in crate::checkers) fn reset(&mut self, tuple: Tuple) {
        self.resets.push(tuple);
    }

    /// A segment came for an address where nobody ever was.
    pub(in crate::checkers) fn must_reset(&self, moment: &Moment, stray: &Stray) {
        if !self.resets.contains(&stray.tuple) && !self.forged.contains(&stray.tuple) && !self.is_full() {
            let Stray { tuple: (local, remote), flags, .. } = stray;
            moment.breach(
                NAME,
                format_args!(
                    "RFC 9293 s3.10.7.1: {remote} sent {local} a segment (flags {flags:#x}) that nobody is there for, and was not told"
                ),
            );
        }
    }

    /// Whether anything beside a SYN came between these addresses, or somebody forged something.
    pub(in crate::checkers) fn has_any(&self, tuple: Tuple) -> bool {
        self.forged.contains(&tuple) || self.arrivals.iter().any(|stray| stray.tuple == tuple && stray.flags & SYN == 0)
    }

    pub(in crate::checkers) fn is_full(&self) -> bool {
        self.arrivals.len() >= REMEMBERED_MAX
    }

    /// Whether nothing came, and nothing was sent.
    pub(in crate::checkers) fn is_empty(&self) -> bool {
        self.arrivals.is_empty() && self.forged.is_empty() && self.resets.is_empty()
    }

    /// Whether anything came between addresses that nobody had.
    pub(in crate::checkers) fn has_unknown(&self) -> bool {
        self.has_unknown
    }

    /// What came so.
    pub(in crate::checkers) fn unknown(&self) -> impl Iterator<Item = &Stray> {
        self.arrivals.iter().filter(|stray| !stray.is_known)
    }
}

impl Stray {
    pub(in crate::checkers) fn of(segment: &Segment, is_known: bool) -> Self {
        Self { tuple: (segment.dst, segment.src), flags: segment.flags, ack: segment.ack, end: segment.end(), is_known }
    }
}

/// A host sent a reset. `own`: the connection of these addresses, if it ever had one.
pub(in crate::checkers) fn sent(moment: &Moment, segment: &Segment, own: Option<&Endpoint>, state: &State) {
    if segment.len() > 0 || segment.has(SYN) || segment.has(FIN) {
        moment.breach(NAME, format_args!("RFC 9293 s3.5.3: a reset with flags {:#x} and {} bytes", segment.flags, segment.len()));
    }
    if let Some(own) = own {
        live(moment, segment, own);
    }
    // "If the connection … " of s3.10.5: the sequence number is SND.NXT, and it acknowledges what was received.
    let ends = |own: &Endpoint| segment.has(ACK) && (segment.seq == own.nxt || own.lost || own.moved);
    // (One that waits for its route may answer what came long ago.)
    if own.is_some_and(|own| own.followed) {
        return;
    }
    // (One that began with a SYN in its peer's name is nobody's that is followed.)
    if own.is_some_and(|own| ends(own) || own.forged.is_impersonated()) || state.is_full() {
        return;
    }
    let answers = |arrival: &Stray| arrival.tuple == (segment.src, segment.dst) && is_answer(segment, arrival);
    if !state.arrivals.iter().any(answers) {
        let (src, dst): (SocketAddr, SocketAddr) = (segment.src, segment.dst);
        moment.breach(
            NAME,
            format_args!(
                "RFC 9293 s3.10.7.1: {src} resets {dst} with seq {} and ack {}, which answers nothing that came, and ends nothing: {:?}",
                segment.seq,
                segment.ack,
                own.map(|own| own.nxt)
            ),
        );
    }
}

/// "If the ACK bit is off, sequence number zero is used, <SEQ=0><ACK=SEG.SEQ+SEG.LEN><CTL=RST,ACK>. If the ACK bit is on,
/// <SEQ=SEG.ACK><CTL=RST>."
pub(in crate::checkers) fn is_answer(reset: &Segment, arrival: &Stray) -> bool {
    match arrival.flags & ACK != 0 {
        true => reset.seq == arrival.ack && !reset.has(ACK),
        false => reset.has(ACK) && reset.seq == 0 && reset.ack == arrival.end,
    }
}

/// A connection that lives is not answered for by a reset (RFC 9293 s3.10.7.4), and TIME-WAIT is part of its life (s3.6.1).
fn live(moment: &Moment, segment: &Segment, own: &Endpoint) {
    let shadow = &own.shadow;
    let established = own.una != own.iss && own.irs.is_some() && own.calm && !shadow.receiver.is_doubtful();
    if established && super::State::is_alive(own) && !shadow.closed && !shadow.unread && own.owner.is_some() {
        moment.breach(
            NAME,
            format_args!("RFC 9293 s3.10.7.4: a reset (seq {}) in the middle of a connection {:?}", own.relative(segment.seq), own.tuple),
        );
    }
}

/// A host sent a reset for a connection that waits: `time_wait` after both streams were acknowledged, if it ended its own first.
pub(in crate::checkers) fn waits(moment: &Moment, own: &Endpoint, time_wait: core::time::Duration) {
    let shadow = &own.shadow;
    let Some(since) = shadow.over_since.filter(|_| shadow.closes_first && own.calm && super::State::is_known(own)) else { return };
    let waited = moment.at.since(since);
    // (It may have dropped again what came, for want of room, or because its program had closed.)
    let knows = own.sequence.acked().is_some_and(|acked| !before(acked, own.rx.next));
    if knows
        && !own.disturbed
        // (Its program has begun the next one between these addresses, RFC 6191.)
        && !own.followed
        && !own.reset
        && !shadow.aborted
        && !shadow.failed
        && waited + core::time::Duration::from_millis(2) < time_wait
    {
        moment.breach(
            NAME,
            format_args!("RFC 9293 s3.6.1: a reset {waited:?} after the end of {:?}, which is waited out for {time_wait:?}", own.tuple),
        );
    }
}
