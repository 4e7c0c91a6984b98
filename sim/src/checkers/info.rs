//! What a program is told of its connection (`TCP_INFO`, `SIOCOUTQ`) agrees with what the wire and its calls show. The telling is judged here, and believed
//! nowhere: what is lawful on the wire is the `shadow`'s to say.

use core::time::Duration;

use ringway_stack::Instant;
use ringway_stack::ring::FlowInfo;
use ringway_stack::tcp::State as TcpState;

use super::Moment;
use super::flow::Endpoint;
use super::segment::{FIN, SYN, Segment, before, later};
use super::shadow::{self, Service};
use crate::addresses::Family;

const NAME: &str = "info";

/// How long a larger window or segment size is remembered: what was queued under it may leave a slow device later.
const MEMORY: Duration = Duration::from_millis(50);
/// How long a segment may wait in a slow device before the wire sees it.
const QUEUED_MAX: Duration = Duration::from_secs(1);

/// What it remembers of an endpoint.
#[derive(Debug, Default)]
pub(super) struct State {
    /// The largest windows in this span of time and in the one before.
    largest: [usize; 2],
    latest: usize,
    /// Payload of a full segment as the last service told of it, and when the window that is told of became what it is.
    mss: u16,
    mss_then: u16,
    turned_at: Instant,
    /// When it was said first.
    first_at: Option<Instant>,
    /// Acknowledged since the last service: the window may have grown by as much before it fell.
    acknowledged: u32,
    /// What was acknowledged before a segment acknowledged more that may have been dropped for its number (RFC 9293 s3.10.7.4), as of all that came since.
    surely: Option<u32>,
    /// Something was lost behind the wire, and may have been an acknowledgment: the next one that arrives is one of both to the stack.
    unheard: bool,
    /// What was acknowledged by then.
    kept: u32,
    /// Until this is acknowledged, duplicate acknowledgments or SACK may have told of segments that have left the network.
    recover: Option<u32>,
    /// They have come since the last service: what is sent for them is in flight when an acknowledgment that came with them has been looked at as well.
    left: bool,
    timed_out: bool,
    /// Segments that went out again.
    resent: u64,
    /// Somebody forged a segment for it, whose timestamp may be an old one's.
    attacked: bool,
    /// The program was told this in the service that is going on.
    told: Option<(Instant, FlowInfo)>,
}

impl State {
    /// An acknowledgment arrived at an endpoint with `una..nxt` in flight. `lawless`: it may have acknowledged more before, in a segment that
    /// was none of the connection's. `repeats`: all that it brings had come before.
    pub(super) fn delivered(&mut self, (una, nxt): (u32, u32), segment: &Segment, lawless: bool, repeats: bool) {
        let advance = segment.ack.wrapping_sub(una);
        if before(una, segment.ack) {
            self.acknowledged = self.acknowledged.saturating_add(advance);
            self.recover = self.recover.filter(|&recover| before(segment.ack, recover));
        }
        // (Even with nothing in flight: by the time that the stack looks at it, there may be.)
        let same = segment.ack == una || self.surely == Some(segment.ack) || lawless && before(segment.ack, una);
        let duplicate = same && segment.span() == 0;
        self.surely = match self.surely {
            None => Some(una).filter(|_| repeats && before(una, segment.ack)),
            Some(surely) if repeats || !before(surely, segment.ack) => Some(surely),
            Some(_) => Some(segment.ack).filter(|&ack| before(ack, una)),
        };
        if duplicate || !segment.options.sack().is_empty() {
            (self.recover, self.left) = (Some(nxt), true);
        }
    }

    /// A segment came for the endpoint that somebody forged.
    pub(super) fn attacked(&mut self) {
        self.attacked = true;
    }

    /// Something was acknowledged since the last service.
    pub(super) fn progressed(&self) -> bool {
        self.acknowledged > 0
    }

    /// The retransmission timer ran out, as the wire shows.
    pub(super) fn timed_out(&mut self) {
        self.timed_out = true;
    }

    /// The congestion window is said to be `cwnd` now. Whether it was said to be larger before.
    pub(super) fn sampled(&mut self, at: Instant, cwnd: usize) -> bool {
        let fell = cwnd < self.latest;
        if at.since(self.turned_at) > MEMORY {
            // The last one held until now: what was sent under it may be seen after the timer that ends it.
            self.largest = [self.latest, if at.since(self.turned_at) > 2 * MEMORY { 0 } else { self.largest[0] }];
            self.turned_at = at;
        }
        self.first_at.get_or_insert(at);
        self.latest = cwnd;
        self.largest[0] = self.largest[0].max(cwnd);
        fell
    }
}

/// An endpoint sent a segment, which is no reset: no more is in flight than the window that is told of has room for (RFC 5681 s3.1).
pub(super) fn sent(moment: &Moment, segment: &Segment, own: &mut Endpoint) {
    let again = segment.span() > 0 && before(segment.seq, own.nxt);
    if again {
        own.info.resent += 1;
        own.info.recover = Some(later(own.nxt, segment.end()));
        return;
    }
    let new = segment.len() > 0 && !segment.has(SYN);
    if new && own.info.left {
        own.info.recover = Some(segment.end());
    }
    let State { largest, acknowledged, recover, .. } = own.info;
    let window = largest[0].max(largest[1]) + acknowledged as usize;
    // (What goes on from what was written down begins with a window of its own, before anybody has seen it. And one that was told of for the first time in
    // this service may have been larger before.)
    let early = own.info.first_at.is_none_or(|first| moment.at <= first);
    // (What acknowledges some of it without a stack may be dropped for its number: then that is in flight to the stack, or counts as lost.)
    if !new || early || own.lawless || own.shadow.blurred || own.flight() == 0 || recover.is_some() || largest == [0, 0] {
        return;
    }
    let flight = own.flight() as usize + segment.len() as usize;
    // (RFC 8985 s7.3: one segment goes as a probe, whatever the window says, which may have become less than what is in flight.)
    let probes = own.agrees_on_sack && own.shadow.sender.may_probe_anew(moment.at);
    let most = if probes { window.max(own.flight() as usize) + segment.len() as usize } else { window };
    if flight > most {
        let fin = segment.has(FIN);
        moment.breach(NAME, format_args!("tcpi_snd_cwnd: {flight} bytes in flight, and {window} are told (fin {fin})"));
    }
}

/// A host's ring was serviced, and this is what it tells of a connection.
pub(super) fn told(moment: &Moment, own: &mut Endpoint, told: FlowInfo) {
    let cwnd = told.cwnd;
    // A path that is found narrower leaves a window as it is, which was so many segments of before: in this service, perhaps, and then behind the timer.
    if cwnd != own.info.latest {
        own.info.mss_then = own.info.mss.max(told.mss);
    }
    own.info.mss = told.mss;
    own.info.left = false;
    own.info.sampled(moment.at, cwnd);
    own.info.unheard = moment.at <= moment.hampered || own.info.unheard && own.info.acknowledged == own.info.kept;
    own.info.kept = if own.info.unheard { own.info.acknowledged } else { 0 };
    own.info.acknowledged = own.info.kept;
    let mss = own.info.mss_then.max(told.mss);
    // (Where two connections of the same addresses waited to be accepted, what is told may be of the other one.)
    if core::mem::take(&mut own.info.timed_out) && !own.shadow.blurred && cwnd > 2 * usize::from(mss) {
        moment.breach(NAME, format_args!("tcpi_snd_cwnd: {cwnd} after a retransmission timeout (RFC 5681 s3.1), with segments of {mss}"));
    }
    own.info.told = Some((moment.at, told));
}

/// All rings of the host were serviced, and the shadow knows of all that arrived. `steady`: the device never refused anything.
pub(super) fn serviced(moment: &Moment, own: &mut Endpoint, peer: &Endpoint, service: Service, steady: bool) {
    // (What is on its way from one socket to another was not asked in this service.)
    let Some((_, told)) = own.info.told.take().filter(|&(at, _)| at == moment.at) else { return };
    let own = &*own;
    if !shadow::State::is_alive(own)
        || own.irs.is_none()
        || own.una == own.iss
        || !own.shadow.sender.stands()
        || own.shadow.aborted
        || own.is_closed_unread()
    {
        return;
    }
    never_too_much(moment, own, peer, &told);
    if !(service.calm && service.free) || own.shadow.receiver.is_doubtful() || moment.at <= moment.excused {
        return;
    }
    state(moment, own, told.state);
    bytes(moment, own, &told);
    estimates(moment, own, &told, steady);
    if steady && (told.counters.retransmissions == 0) != (own.info.resent == 0) {
        let (told, resent) = (told.counters.retransmissions, own.info.resent);
        moment.breach(NAME, format_args!("tcpi_total_retrans: {told}, and {resent} segments went out again"));
    }
}

/// Whatever the device loses: nothing was received that did not arrive, nor acknowledged, and no segment is longer than the peer takes.
fn never_too_much(moment: &Moment, own: &Endpoint, peer: &Endpoint, told: &FlowInfo) {
    let mss = peer.syn.mss.unwrap_or(Family::mss_default(own.tuple.0.ip()));
    // (Until it has heard of the peer's, it goes by the default.)
    if told.mss > mss && own.sequence.has_acknowledged() {
        moment.breach(NAME, format_args!("tcpi_snd_mss: {}, and the peer takes {mss}", told.mss));
    }
    let (received, arrived) = (told.counters.rx_bytes, u64::from(own.arrived()));
    if received > arrived && arrived < 1 << 31 {
        moment.breach(NAME, format_args!("tcpi_bytes_received: {received}, and {arrived} arrived"));
    }
    let (written, waiting) = (own.stream.written(), told.send_queue as u64);
    let acked = u64::from(own.relative(own.una).saturating_sub(1));
    // (What is closed with something unread is given up, and so is what comes for who reads no more.)
    let keeps = own.stream.is_watched() && !own.shadow.closed && !own.shadow.unread;
    if keeps && written < 1 << 31 && written > waiting + acked {
        moment.breach(NAME, format_args!("SIOCOUTQ: {waiting} of {written} that were written, of which {acked} are acknowledged"));
    }
}

/// RFC 9293 s3.3.2, by which ends were sent, came, and were acknowledged.
fn state(moment: &Moment, own: &Endpoint, told: Option<TcpState>) {
    // A program that ended its stream is told so before the end is on the wire.
    if own.fin.is_none() && own.stream.has_ended() {
        return;
    }
    let acked = |fin: u32| own.shadow.acknowledged.is_some_and(|to| before(fin, to));
    // One in a segment that may be dropped for its number says nothing for certain.
    if own.fin.is_some_and(|fin| before(fin, own.una) && !acked(fin)) {
        return;
    }
    let lawful: &[TcpState] = match (own.fin, own.shadow.receiver.ended) {
        (None, false) => &[TcpState::Established],
        (None, true) => &[TcpState::CloseWait],
        (Some(fin), false) if acked(fin) => &[TcpState::FinWait2],
        (Some(_), false) => &[TcpState::FinWait1],
        (Some(fin), true) if acked(fin) => return,
        (Some(_), true) => &[TcpState::Closing, TcpState::LastAck],
    };
    // (An orphan may have been forgotten already.)
    if told.is_none_or(|told| !lawful.contains(&told)) && !(own.shadow.closed && told.is_none()) {
        moment.breach(NAME, format_args!("tcpi_state: {told:?}, where the wire shows {lawful:?}"));
    }
}

/// What is counted of both streams.
fn bytes(moment: &Moment, own: &Endpoint, told: &FlowInfo) {
    let (received, held) = (told.counters.rx_bytes, own.shadow.receiver.bytes(own.irs.unwrap_or(0)));
    if held.is_some_and(|held| received < u64::from(held)) && !own.shadow.closed && !own.shadow.unread {
        moment.breach(NAME, format_args!("tcpi_bytes_received: {received}, and {held:?} arrived in order"));
    }
    let acknowledged = own.shadow.acknowledged.unwrap_or(own.iss);
    let end = own.fin.filter(|&fin| before(fin, acknowledged)).unwrap_or(acknowledged);
    let (written, acked, waiting) = (own.stream.written(), u64::from(own.relative(end).saturating_sub(1)), told.send_queue as u64);
    if own.stream.is_watched() && written < 1 << 31 && waiting + acked > written {
        moment.breach(NAME, format_args!("SIOCOUTQ: {waiting}, with {acked} of {written} acknowledged"));
    }
}

/// The window and the round-trip time that are told of lie within what was seen.
fn estimates(moment: &Moment, own: &Endpoint, told: &FlowInfo, steady: bool) {
    let sender = &own.shadow.sender;
    // (What a device was to send and did not was on its way to the stack, whose window grew for being used.)
    if let Some(most) = sender.window_most().filter(|_| steady)
        // (Which acknowledgment ended slow start, and what lay in each, is not known to the byte.)
        && told.cwnd as u64 > most + most / 4 + 2 * u64::from(told.mss)
    {
        moment.breach(NAME, format_args!("tcpi_snd_cwnd: {}, and {most} are the most that it can be (RFC 5681 s3.1)", told.cwnd));
    }
    // (A segment may have waited for its neighbour's address: no longer than until the last question for one was out of date.)
    let (longest, asked) = (sender.longest_wait(moment.at), moment.excused.since(Instant::ZERO));
    if told.srtt > longest + asked + QUEUED_MAX && !own.info.attacked {
        moment.breach(NAME, format_args!("tcpi_rtt: {:?}, and nothing waited longer than {longest:?} (RFC 6298 s2)", told.srtt));
    }
}

#[cfg(test)]
mod tests;
