//! Windows: the right edge that a receiver announces never retreats by more than scaling rounds away, it is announced when the reader
//! has made room, and no sender goes beyond it.

use core::time::Duration;

use ringway_stack::{Instant, tcp};

use super::Moment;
use super::flow::{self, Endpoint};
use super::segment::{ACK, FIN, SYN, Segment, before, later};

const NAME: &str = "window";

/// How long a shut window may outlast its cause: a device that refuses frames is tried again after 5 ms, and once a few times.
const SHUT_MAX: Duration = Duration::from_millis(100);

/// The least receive buffer, half of Linux's SOCK_MIN_RCVBUF.
const RCVBUF_MIN: usize = 1152;

/// What it remembers of an endpoint.
#[derive(Debug, Default)]
pub(super) struct State {
    edge: Option<u32>,
    /// The most room that was announced.
    most: u32,
    /// The last announcement left too little room for a peer that avoids silly windows (RFC 9293 s3.8.6.2.1).
    shut: bool,
    /// Since when nothing at all was offered, unless that was told already.
    zero_since: Option<Instant>,
    /// Since when that has no cause.
    causeless_since: Option<Instant>,
    /// Another announcement may have waited for the peer's MAC address, and been given up with the question for it.
    untold: bool,
    /// The most that may ever wait for the reader; `None`: nobody knows, or there is no reader any more.
    receive_max: Option<usize>,
    /// What acknowledges something that was not sent when it arrived, each with the edge that it announces: before it is looked at, that may have been sent, as an answer
    /// to what arrived with it.
    early: Vec<(u32, u32)>,
    /// Bytes that the reader took by reference, and has not given back.
    pub(super) lent: u64,
}

impl State {
    /// So much may wait for the reader. What was once offered stays so.
    pub(super) fn allow(&mut self, receive_max: usize) {
        self.receive_max = self.receive_max.max(Some(receive_max));
    }

    /// Whether nothing was offered for so long: once for each time.
    pub(super) fn shut_for(&mut self, time: Duration, at: Instant) -> bool {
        self.zero_since.take_if(|since| at.since(*since) >= time).is_some()
    }

    /// Whether what was announced last is too little for a peer that avoids silly windows.
    pub(super) fn is_shut(&self) -> bool {
        self.shut
    }

    /// The highest right edge that it announced.
    pub(super) fn edge(&self) -> Option<u32> {
        self.edge
    }

    /// Something arrived that acknowledges what was not sent yet, up to `ack`, and announces that edge.
    pub(super) fn hear_early(&mut self, ack: u32, edge: u32) {
        self.early.push((ack, edge));
    }

    /// The same, each once that was sent, if it may not have been looked at before.
    pub(super) fn take_early(&mut self, nxt: u32) -> Option<(u32, u32)> {
        let sent = self.early.iter().position(|(ack, _)| !before(nxt, *ack))?;
        Some(self.early.swap_remove(sent))
    }

    /// Nothing was to be said for a while, whoever had read what.
    pub(super) fn was_silent(&mut self) {
        self.causeless_since = None;
    }

    /// Nobody will read: what arrives waits for nobody.
    pub(super) fn forget_reader(&mut self) {
        self.receive_max = Some(usize::MAX);
    }
}

/// Bytes that may wait to be read, or be held by their reader, at most: SO_RCVBUF is what a program asks for, without what the kernel adds
/// (socket(7)); by itself a buffer grows to half of the largest, as tcp(7) says of tcp_rmem and tcp_adv_win_scale.
pub(super) fn receive_max(config: &tcp::Config) -> usize {
    config.rcvbuf.unwrap_or(config.rcvbuf_max / 2).max(RCVBUF_MIN)
}

/// An endpoint sent a segment, which is no reset.
pub(super) fn sent(moment: &Moment, segment: &Segment, own: &mut Endpoint, peer: Option<&Endpoint>) {
    let Some(peer) = peer else { return };
    if segment.has(ACK) {
        let scale = flow::scale(&own.syn, &peer.syn);
        room_was_there(moment, segment, (own, peer), scale);
        announced(moment, segment, own, scale);
    }
    let end = segment.seq.wrapping_add(segment.len());
    let probe = segment.len() == 1 && segment.seq == own.una;
    // (A FIN takes room as a byte does: what acknowledges something after it comes from behind it, and a receiver takes that from its window alone.)
    let end = end.wrapping_add(u32::from(segment.has(FIN)));
    if let Some(edge) = own.edge
        && (segment.len() > 0 || segment.has(FIN))
        && before(edge, end)
        && !probe
    {
        let (end, edge) = (own.relative(end), own.relative(edge));
        moment.breach(NAME, format_args!("RFC 9293 s3.8.6: bytes up to {end}, beyond the peer's right edge {edge}"));
    }
}

/// Nobody is invited to send more than the receive buffer has room for, beside what waits in it and what its reader holds by reference.
fn room_was_there(moment: &Moment, segment: &Segment, (own, peer): (&Endpoint, &Endpoint), scale: u8) {
    let Some(receive_max) = own.window.receive_max.filter(|_| !segment.has(SYN)) else { return };
    let edge = peer.offset(segment.ack.wrapping_add(u32::from(segment.window) << scale));
    // What left the buffer for good: whenever the segment was made, that was no more.
    let gone = own.stream.taken().saturating_sub(own.window.lent);
    // Rounding up by a unit, once in what is said and once in what may wait; and a FIN, which takes no room.
    let most = gone.saturating_add(receive_max as u64).saturating_add((2 << scale) + 1);
    if edge > most {
        let lent = own.window.lent;
        moment.breach(NAME, format_args!("room up to byte {edge}, with {gone} bytes gone, {lent} lent, and a buffer of {receive_max}"));
    }
}

fn announced(moment: &Moment, segment: &Segment, own: &mut Endpoint, scale: u8) {
    let scale = if segment.has(SYN) { 0 } else { scale };
    let room = u32::from(segment.window) << scale;
    let edge = segment.ack.wrapping_add(room);
    let moved = own.just_moved(moment.at);
    let state = &mut own.window;
    let rounding = (1u32 << scale) - 1;
    // (A SYN-ACK that goes again behind what was answered with Fast Open has no more to say it with: RFC 7323 s2.2.)
    let is_all = segment.has(SYN) && segment.window == u16::MAX;
    if let Some(highest) = state.edge
        && before(edge, highest.wrapping_sub(rounding))
        && !(moved || is_all)
    {
        let law = "RFC 9293 s3.8.6, RFC 7323 s2.4: a window must not shrink";
        let (edge, highest) = (own.peer_relative(edge), own.peer_relative(highest));
        moment.breach(NAME, format_args!("{law}: right edge {edge} after {highest}, with scale {scale}"));
    }
    let highest = state.edge.map_or(edge, |highest| later(highest, edge));
    state.edge = Some(highest);
    state.most = state.most.max(room);
    // (What its ring before made may go after what this one did: the peer has what was offered.)
    let room = if moved { highest.wrapping_sub(segment.ack) } else { room };
    let shut = room < own.syn.mss.map_or(0, u32::from).min(state.most / 2);
    let opened = state.shut && !shut;
    state.zero_since = if room > 0 { None } else { state.zero_since.or(Some(moment.at)) };
    (state.shut, state.untold) = (shut, false);
    if let Some(since) = state.causeless_since.take_if(|_| opened)
        && moment.at > since.max(moment.excused) + SHUT_MAX
    {
        let late = moment.at.since(since);
        moment.breach(NAME, format_args!("RFC 9293 s3.8.6.2.2: the window opened {late:?} after its reader had read everything"));
    }
}

/// A host was serviced: is a window shut without a cause? `stalled`: the device may be refusing frames. `asks`: the host asks for the peer's MAC address, which
/// what it has to say waits for, if that is not given up. (What arrived and was not read may wait for its
/// reader, or for its program to decide about it, or have been lost by the device: nobody need make room for that yet.)
pub(super) fn serviced(at: Instant, own: &mut Endpoint, stalled: bool, asks: bool) {
    own.window.early.clear();
    let receiving = own.irs.is_some() && !own.peer_ended() && own.goes_on();
    own.window.untold |= asks && own.window.shut;
    let causeless = own.window.shut && !own.window.untold && !own.has_unread() && own.window.lent == 0 && receiving && !stalled;
    match (&mut own.window.causeless_since, causeless) {
        (since @ None, true) => *since = Some(at),
        (since, false) => *since = None,
        _ => {}
    }
}
