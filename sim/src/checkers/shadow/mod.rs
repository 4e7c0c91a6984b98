//! The shadow: a TCP that is worked out from frames and calls alone, beside each connection of a stack, and never asks that stack how it stands.
//!
//! Frames that arrived wait in [`State::arrivals`] until the host has been serviced: by then the stack has looked at all of them, so that what it
//! owes the wire for them can be told. What it sends in the meantime may follow from any number of them: laws of single frames allow for all.
//! The duties are laws for hosts whose devices lose nothing behind the wire's back; other laws are for all.

mod challenges;
pub(super) mod duties;
pub(super) mod errors;
pub(super) mod format;
pub(super) mod marks;
pub(super) mod receiver;
pub(super) mod resets;
pub(super) mod sacks;
pub(super) mod sender;

#[cfg(test)]
pub(super) mod tests;

use core::time::Duration;
use std::rc::Rc;

use ringway_stack::Instant;
use ringway_stack::tcp::Config;

use super::Moment;
use super::flow::Endpoint;
use super::segment::{ACK, FIN, RST, SYN, Segment, before, later};

/// Most arrivals and frames of one service that are remembered.
const REMEMBERED_MAX: usize = 4096;

/// What the shadow remembers of an endpoint.
#[derive(Debug, Default)]
pub(in crate::checkers) struct State {
    /// Something came or went since the last service.
    pub(in crate::checkers) stirred: bool,
    /// What arrived since then.
    pub(in crate::checkers) arrivals: Vec<Segment>,
    /// Which of them repeat what had all come before.
    repeated: Vec<usize>,
    /// So many came as well that have no effect but an answer.
    pub(in crate::checkers) attacks: usize,
    /// What was sent since then, in this order.
    pub(in crate::checkers) sent: Vec<Segment>,
    /// The configuration that the program gave, and whether it changed since.
    pub(in crate::checkers) config: Option<Rc<Config>>,
    pub(in crate::checkers) reconfigured: bool,
    /// The last write said that more follows (MSG_MORE).
    pub(in crate::checkers) more: bool,
    /// The program heard of an error, or of the end.
    pub(in crate::checkers) failed: bool,
    /// The program closed the socket.
    pub(in crate::checkers) closed: bool,
    /// It ended the connection at once, or may have by closing what it had not read; or it reads no more.
    pub(in crate::checkers) aborted: bool,
    pub(in crate::checkers) unread: bool,
    /// A reset arrived with a number that counts (RFC 5961 s3.2).
    pub(in crate::checkers) reset: bool,
    /// Probes that nobody answered, and when the peer was last heard of for certain.
    pub(in crate::checkers) probes: u32,
    pub(in crate::checkers) heard_at: Instant,
    probed_at: Instant,
    /// The last probe went out when it was due.
    punctual: bool,
    /// The host's device refused frames at the last service, whosever they were: what goes out may have waited for it.
    pub(in crate::checkers) refused: bool,
    /// How late the last keepalive probe was.
    probe_late: Duration,
    probed: bool,
    /// How long the last probe came after the one before, what was acknowledged then, and whether the window was shut; and how often it was found shut.
    probes_apart: (Duration, u32, bool),
    probes_shut: u32,
    /// When the peer last answered at all, by a segment that nobody could have copied before, and its timestamp.
    answered: (Instant, Option<u32>),
    /// Its FIN went out before its peer's came, and since when both are acknowledged.
    closes_first: bool,
    pub(in crate::checkers) over_since: Option<Instant>,
    /// It was seen to wait for that.
    waits: bool,
    /// What was certainly acknowledged: by segments that nobody may drop for their numbers or timestamps (RFC 9293 s3.10.7.4, RFC 7323 s5.3).
    pub(in crate::checkers) acknowledged: Option<u32>,
    /// It came from elsewhere, or something befell it after which too little is known.
    pub(in crate::checkers) blurred: bool,
    challenges: challenges::State,
    marks: marks::State,
    pub(in crate::checkers) receiver: receiver::State,
    pub(in crate::checkers) sender: sender::State,
}

/// How far the host can be trusted in a service.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::checkers) struct Service {
    /// Nothing was ever lost between the wire and the stack.
    pub(in crate::checkers) calm: bool,
    /// The device takes all that it is given.
    pub(in crate::checkers) free: bool,
    /// The device refused frames, now or before.
    pub(in crate::checkers) refused: bool,
    /// It refused some of what strangers are told, which they are told no more.
    pub(in crate::checkers) dropped: bool,
    /// Receive buffers are short, or were.
    pub(in crate::checkers) scarce: bool,
    /// The NIC may merge segments.
    pub(in crate::checkers) merges: bool,
}

impl State {
    /// Whether the connection is a plain one, of which all is known.
    pub(in crate::checkers) fn is_known(own: &Endpoint) -> bool {
        !(own.shadow.blurred || own.moved || own.lost || own.lawless || own.left_at.is_some())
    }

    /// Whether its FIN went out before its peer's came.
    pub(in crate::checkers) fn closes_first(&self) -> bool {
        self.closes_first
    }

    /// Whether it also lives, for all that can be seen.
    pub(in crate::checkers) fn is_alive(own: &Endpoint) -> bool {
        Self::is_known(own) && !own.reset && !own.disturbed && !own.shadow.failed && !Self::is_over(own)
    }

    /// Whether both streams and their ends are acknowledged, as far as arrived.
    pub(in crate::checkers) fn is_over(own: &Endpoint) -> bool {
        own.shadow.receiver.ended && own.fin.is_some_and(|fin| before(fin, own.una))
    }

    /// A challenge may be said now: what came with the SYN met a half-open connection, whose SYN-ACK is the answer to both (RFC 5961 s7).
    pub(in crate::checkers) fn may_challenge(&mut self, at: Instant) {
        self.challenges.perhaps_at = Some(at);
    }

    /// Whether a segment says anything to a connection that goes on: it is no reset, and no SYN but the handshake's.
    /// `irs`: the number that its peer began with.
    fn counts(irs: Option<u32>, arrival: &Segment) -> bool {
        !arrival.has(RST) && (!arrival.has(SYN) || irs == Some(arrival.seq))
    }
}

/// An endpoint sent a segment, which is no reset. `own` is as it was before.
pub(in crate::checkers) fn sent(moment: &Moment, segment: &Segment, own: &mut Endpoint, peer: Option<&Endpoint>) {
    format::sent(moment, segment, own);
    receiver::sent(moment, segment, own, peer);
    sacks::sent(moment, segment, own);
    sender::sent(moment, segment, own, peer);
    errors::sent(moment, segment, own);
    marks::sent(moment, segment, own, peer);
    if segment.has(FIN) && own.fin.is_none() {
        // (Both may be first, if their ends cross.)
        own.shadow.closes_first = peer.is_some_and(|peer| peer.fin.is_none_or(|fin| !own.rx.has(fin, fin.wrapping_add(1))));
    }
    if own.shadow.sent.len() < REMEMBERED_MAX {
        own.shadow.sent.push(segment.clone());
    } else {
        own.shadow.blurred = true;
    }
}

/// Whether something of its peer's stream was certainly received, and not read by a program that may yet read it.
pub(in crate::checkers) fn has_unread(own: &Endpoint) -> bool {
    let read = u32::try_from(own.stream.taken() & 0xffff_ffff).unwrap_or(0);
    let received = own.irs.and_then(|irs| own.shadow.receiver.bytes(irs)).filter(|_| !own.shadow.receiver.is_doubtful());
    received.is_some_and(|received| before(read, received)) && own.calm && State::is_alive(own) && !own.shadow.unread
}

/// Since when an endpoint waits in TIME-WAIT (RFC 9293 s3.6), if that just began: it ended its stream first, and both ends are acknowledged.
pub(in crate::checkers) fn begins_waiting(own: &mut Endpoint) -> Option<Instant> {
    let certain = own.calm && own.shadow.closes_first && !own.shadow.receiver.is_doubtful() && State::is_known(own);
    let lives = !own.reset && !own.disturbed && !own.shadow.failed && !own.shadow.aborted && !own.is_closed_unread();
    let over = own.shadow.receiver.ended && own.fin.zip(own.shadow.acknowledged).is_some_and(|(fin, to)| before(fin, to));
    let begins = !own.shadow.waits && certain && lives && over;
    own.shadow.waits |= begins;
    own.shadow.over_since.filter(|_| begins)
}

/// Notes what `arrivals` certainly acknowledge. Before them, what was received ended before `next`.
fn note_acknowledged(at: Instant, own: &mut Endpoint, next: Option<u32>, arrivals: &[Segment]) {
    let (Some(before_them), Some(after)) = (next, own.shadow.receiver.next()) else { return };
    for arrival in arrivals.iter().filter(|arrival| arrival.flags & (ACK | RST | SYN) == ACK && !before(own.nxt, arrival.ack)) {
        // (Of several, one may repeat what another has just brought.)
        let news = arrival.span() > 0 && arrivals.len() == 1 && before(before_them, arrival.end()) && !before(after, arrival.seq);
        let bare = arrival.span() == 0 && before_them == after && arrival.seq == after;
        let old = arrival.options.timestamps.is_some_and(|(value, _)| own.shadow.receiver.echoes().iter().any(|&echo| before(value, echo)));
        if (news || bare) && !old {
            own.shadow.acknowledged = Some(own.shadow.acknowledged.map_or(arrival.ack, |to| later(to, arrival.ack)));
            // (Between two rings, it may have been lost.)
            if own.calm && State::is_known(own) {
                own.rto.surely_acknowledged(at, arrival.ack);
            }
        }
    }
}

/// The segment that arrives at an endpoint repeats what has all come before.
pub(in crate::checkers) fn repeats(own: &mut Endpoint) {
    if own.shadow.arrivals.len() < REMEMBERED_MAX {
        own.shadow.repeated.push(own.shadow.arrivals.len());
    }
}

/// A segment arrived at an endpoint, which has noted it.
pub(in crate::checkers) fn delivered(segment: &Segment, own: &mut Endpoint) {
    if segment.has(RST) {
        // Before the peer's number is known, an acknowledgment of the SYN counts (RFC 9293 s3.10.7.3).
        let exact = own.irs.map_or(segment.ack == own.nxt, |_| own.awaits(segment.seq));
        own.shadow.reset |= exact || !own.calm || own.shadow.receiver.is_doubtful() || own.una == own.iss;
    }
    if own.shadow.arrivals.len() < REMEMBERED_MAX {
        own.shadow.arrivals.push(segment.clone());
    } else {
        own.shadow.blurred = true;
    }
}

/// A segment arrived that somebody forged, and that must be seen through: it may be answered, no more.
pub(in crate::checkers) fn attacked(segment: &Segment, own: &mut Endpoint) {
    // A NIC that merges it with what came just before makes one of both.
    let adjoins = |arrival: &Segment| arrival.len() > 0 && arrival.end() == segment.seq;
    let merged = own.merges && segment.len() > 0 && own.shadow.arrivals.iter().any(adjoins);
    own.shadow.blurred |= merged;
    // Both may then have been dropped.
    own.shadow.receiver.prune(merged);
    own.shadow.attacks += 1;
    challenges::attacked(segment, own);
}

/// The endpoint's host was serviced.
pub(in crate::checkers) fn serviced(moment: &Moment, own: &mut Endpoint, peer: Option<&Endpoint>, service: Service) {
    own.shadow.stirred = false;
    errors::serviced(moment, own);
    let arrivals = core::mem::take(&mut own.shadow.arrivals);
    let sent = core::mem::take(&mut own.shadow.sent);
    challenges::serviced(moment, own, service, (&arrivals, &sent));
    own.shadow.attacks = 0;
    let next = own.shadow.receiver.next();
    if let Some(peer) = peer {
        let una = own.shadow.sender.una;
        marks::serviced(own, una, &arrivals);
        receiver::serviced(moment, own, peer, service, (&arrivals, &sent));
        sender::serviced(moment, own, peer, service, (&arrivals, &sent));
        note_acknowledged(moment.at, own, next, &arrivals);
        duties::serviced(moment, own, peer, service);
        duties::answers(moment, own, service, &arrivals, &sent);
        if State::is_over(own) && own.shadow.over_since.is_none() {
            own.shadow.over_since = Some(moment.at);
        }
    }
    let (mut arrivals, mut sent) = (arrivals, sent);
    arrivals.clear();
    sent.clear();
    own.shadow.repeated.clear();
    (own.shadow.arrivals, own.shadow.sent) = (arrivals, sent);
}
