//! Explicit congestion notification (RFC 3168): what may be marked, that a mark is told of until its sender answers, and that the sender does.

use super::super::Moment;
use super::super::flow::Endpoint;
use super::super::segment::{ACK, CWR, ECE, RST, SYN, Segment, before};

const NAME: &str = "ecn";
/// ECT(0).
const CAPABLE: u8 = 2;
/// CE.
const MARKED: u8 = 3;

/// What it remembers of an endpoint.
#[derive(Debug, Default)]
pub(in crate::checkers) struct State {
    /// SYNs that it sent, SYN-ACKs too; whether one of them spoke of ECN, and whether the last one did.
    syns: u32,
    spoke: bool,
    speaks: bool,
    /// The end of bytes that arrived marked, for the first time and in order of sending, and since when nothing arrived that answers, or brings them again.
    marked: Option<u32>,
    /// Something arrived marked since the last answer that certainly counts; and the end of one that does once it is acknowledged.
    was_marked: bool,
    answer: Option<u32>,
    /// The peer told of a mark, to which nothing has been answered; and where the last answer began.
    owes: bool,
    told: bool,
    answered: Option<u32>,
}

impl State {
    /// Whether it was told of a mark, after which its window may be a single segment that waits for a timer (RFC 3168 s6.1.2).
    pub(super) fn was_told(&self) -> bool {
        self.told
    }

    /// Whether it spoke of ECN, so that it may hear of marks.
    pub(super) fn spoke(&self) -> bool {
        self.spoke
    }
}

/// An endpoint sent a segment, which is no reset. `own` is as it was before.
pub(in crate::checkers) fn sent(moment: &Moment, segment: &Segment, own: &mut Endpoint, peer: Option<&Endpoint>) {
    let said = segment.flags & (ECE | CWR);
    if segment.has(SYN) {
        syn(moment, segment, own, peer);
        return;
    }
    let peer_spoke = peer.is_none_or(|peer| peer.shadow.marks.spoke);
    let known = super::State::is_known(own);
    let covers = |end: u32| segment.has(ACK) && !before(segment.ack, end);
    if own.calm && own.shadow.marks.answer.take_if(|end| covers(*end)).is_some() {
        own.shadow.marks.was_marked = false;
    }
    let state = &own.shadow.marks;
    let (may, echoes) = (state.speaks && peer_spoke, state.spoke && peer_spoke);
    let is_new = segment.len() > 0 && !before(segment.seq, own.nxt);
    if segment.codepoint != 0 && known {
        if segment.codepoint != CAPABLE {
            moment.breach(NAME, format_args!("RFC 3168 s5: a packet with {} is sent, where ECT(0) is 2", segment.codepoint));
        }
        if !may {
            moment.breach(NAME, "RFC 3168 s6.1.1: a packet is capable of marks, and ECN was not agreed on");
        }
        if segment.len() == 0 {
            moment.breach(NAME, "RFC 3168 s6.1.4: a segment without bytes is capable of marks");
        }
        if !is_new {
            moment.breach(NAME, format_args!("RFC 3168 s6.1.5: byte {} is sent again, and may be marked", own.relative(segment.seq)));
        }
    }
    if said != 0 && known && !echoes {
        moment.breach(NAME, format_args!("RFC 3168 s6.1.1: flags {:#x}, and ECN was not agreed on", segment.flags));
    }
    if segment.has(CWR) && known && !is_new {
        moment.breach(NAME, "RFC 3168 s6.1.2: CWR is for the first new bytes after the window came down");
    }
    if segment.has(ECE) && known && !state.was_marked {
        moment.breach(NAME, "RFC 3168 s6.1.3: nothing has arrived marked since the peer answered, and it is told that something has");
    }
    if !segment.has(ECE) && known && echoes && own.calm && own.fin.is_none() && state.marked.is_some_and(covers) {
        moment.breach(NAME, "RFC 3168 s6.1.3: bytes that arrived marked are acknowledged, and the peer is not told of the mark");
    }
    let clean = known && may && own.calm && !own.shadow.sender.retried();
    if is_new && state.owes && clean && !segment.has(CWR) {
        moment.breach(NAME, "RFC 3168 s6.1.2: the peer told of a mark, and new bytes do not say that the window came down");
    }
    let state = &mut own.shadow.marks;
    if segment.has(CWR) {
        (state.owes, state.answered) = (false, Some(segment.seq));
    }
}

fn syn(moment: &Moment, segment: &Segment, own: &mut Endpoint, peer: Option<&Endpoint>) {
    let said = segment.flags & (ECE | CWR);
    let state = &mut own.shadow.marks;
    let answers = segment.has(ACK);
    if segment.codepoint != 0 {
        moment.breach(NAME, "RFC 3168 s6.1.1: a SYN is capable of marks");
    }
    if said != 0 && said != if answers { ECE } else { ECE | CWR } {
        moment.breach(NAME, format_args!("RFC 3168 s6.1.1: a SYN with flags {:#x}", segment.flags));
    }
    if said != 0 && answers && peer.is_some_and(|peer| !peer.shadow.marks.spoke) {
        moment.breach(NAME, "RFC 3168 s6.1.1: a SYN-ACK agrees on ECN, and the peer did not ask for it");
    }
    if said != 0 && !answers && state.syns > 0 && before(segment.seq, own.nxt) {
        moment.breach(NAME, "RFC 3168 s6.1.1.1: a SYN that got no answer asks for ECN again");
    }
    state.syns += 1;
    state.spoke |= said != 0;
    state.speaks = said != 0;
}

/// A segment arrived at an endpoint, which has yet to note it.
pub(in crate::checkers) fn delivered(segment: &Segment, own: &mut Endpoint) {
    own.shadow.marks.told |= own.shadow.marks.spoke && segment.has(ECE);
    if segment.has(SYN) || segment.has(RST) || segment.len() == 0 {
        return;
    }
    // (What lies before all that arrived, or before the peer's SYN came, may be another connection's, which had these addresses.)
    let is_next = own.irs.is_some() && !before(segment.seq, own.rx.next);
    let is_first = is_next && !own.rx.has(segment.seq, segment.end());
    let state = &mut own.shadow.marks;
    // What brings them again may be what is taken of them, and an answer may be.
    if segment.has(CWR) || state.marked.is_some_and(|end| before(segment.seq, end)) {
        state.marked = None;
    }
    if state.answer.is_some_and(|end| before(segment.seq, end)) {
        state.answer = None;
    }
    if segment.codepoint == MARKED {
        (state.was_marked, state.answer) = (true, None);
        state.marked = is_first.then(|| segment.end()).filter(|_| !segment.has(CWR));
    } else if segment.has(CWR) && is_first {
        state.answer = Some(segment.end());
    }
}

/// The endpoint's host was serviced: it has looked at `arrivals`.
pub(in crate::checkers) fn serviced(own: &mut Endpoint, una: Option<u32>, arrivals: &[Segment]) {
    let nxt = own.nxt;
    let state = &mut own.shadow.marks;
    let [arrival] = arrivals else { return };
    if !arrival.has(ACK) || arrival.flags & (SYN | RST) != 0 {
        return;
    }
    // (What tells of a mark beside bytes may have been dropped with them.)
    let advances = una.is_some_and(|una| before(una, arrival.ack)) && !before(nxt, arrival.ack) && arrival.span() == 0;
    let is_fresh = state.answered.is_none_or(|from| before(from, arrival.ack));
    state.owes |= arrival.has(ECE) && advances && is_fresh;
}
