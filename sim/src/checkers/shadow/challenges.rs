//! Answers to attacks (RFC 5961): what cannot be the peer's is answered by an acknowledgment at once, so that the peer, if it was, can prove itself; and
//! by no more than one in an interval, so that nobody makes a connection speak (s7).

use core::time::Duration;

use ringway_stack::Instant;

use super::super::Moment;
use super::super::flow::Endpoint;
use super::super::segment::{ACK, RST, SYN, Segment, before};
use super::{Service, State as Shadow};

const NAME: &str = "challenges";

/// Linux's tcp_invalid_ratelimit, which the stack follows.
const INTERVAL: Duration = Duration::from_millis(500);
/// A timer wheel's tick.
const TICK: Duration = Duration::from_millis(2);

/// What a segment that has no other effect is answered with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// An acknowledgment, whatever was said before.
    Always(&'static str),
    /// An acknowledgment, unless there was one within the interval.
    Challenge(&'static str),
    /// Nobody knows whether it is one of those.
    Perhaps,
}

/// What it remembers of an endpoint.
#[derive(Debug, Default)]
pub(super) struct State {
    /// Answers since the last service.
    answers: Vec<Answer>,
    /// When one may have been a challenge last, and when one certainly was.
    pub(super) perhaps_at: Option<Instant>,
    certain_at: Option<Instant>,
    /// What its last acknowledgment said, as of the last service: acknowledgment and window.
    said: Option<(u32, u16)>,
}

/// A segment arrived that has no effect but its answer.
pub(super) fn attacked(segment: &Segment, own: &mut Endpoint) {
    let answer = answer(segment, own);
    own.shadow.challenges.answers.extend(answer);
}

/// `None`: it is dropped silently.
fn answer(segment: &Segment, own: &Endpoint) -> Option<Answer> {
    let edge = own.window.edge();
    let within = edge.is_some_and(|edge| !before(segment.seq, own.rx.next) && before(segment.seq, edge));
    let outside = edge.is_some_and(|edge| before(edge, segment.seq));
    if segment.has(SYN) {
        return Some(Answer::Challenge("RFC 5961 s4.2: a SYN, irrespective of its number, is answered by a challenge ACK"));
    }
    if segment.has(RST) {
        // The edge may move on before it is looked at, as far as a window can be.
        let most = own.shadow.config.as_ref().map_or(u32::MAX / 4, |config| u32::try_from(config.rcvbuf_max).unwrap_or(u32::MAX / 4));
        if edge.is_some_and(|edge| !before(segment.seq, edge) && before(segment.seq, edge.wrapping_add(most))) {
            return Some(Answer::Perhaps);
        }
        let inexact = within && segment.seq != own.rx.next;
        return inexact.then_some(Answer::Challenge("RFC 5961 s3.2: a RST in the window that is not exact is answered by a challenge ACK"));
    }
    if !segment.has(ACK) {
        return None;
    }
    let old = !own.shadow.receiver.is_doubtful() && segment.len() > 0 && !before(own.rx.next, segment.end());
    let strange = before(own.nxt, segment.ack) || before(segment.ack, own.una.wrapping_sub(1 << 30));
    // The stack's window begins where it was last announced to (as Linux's rcv_wup): what lies between that and what has come since goes on to the check of
    // its acknowledgment, and to that one's limit.
    let announced = own.shadow.receiver.acked.is_none_or(|acked| !before(segment.end(), acked));
    if old && announced && strange {
        return Some(Answer::Perhaps);
    }
    if segment.len() > 0 && (outside || old) {
        return Some(Answer::Always("RFC 9293 s3.10.7.4: a segment that is not acceptable is acknowledged"));
    }
    let stale = segment.options.timestamps.is_some_and(|(value, _)| own.shadow.receiver.is_stale(value));
    if stale && segment.len() > 0 {
        return Some(Answer::Always("RFC 7323 s5.3: a segment with an old timestamp is acknowledged"));
    }
    if within && !stale && strange {
        return Some(Answer::Challenge("RFC 5961 s5.2: an acknowledgment of what was never sent, or long ago, is answered by an ACK"));
    }
    Some(Answer::Perhaps)
}

/// The endpoint's host was serviced.
pub(super) fn serviced(moment: &Moment, own: &mut Endpoint, service: Service, (arrivals, sent): (&[Segment], &[Segment])) {
    let judged = service.calm
        && service.free
        && !service.merges
        && moment.at > moment.excused
        && Shadow::is_alive(own)
        && own.una != own.iss
        && !own.shadow.receiver.is_doubtful()
        && !own.may_be_given_up();
    let acknowledges = |segment: &&Segment| segment.has(ACK) && !segment.has(SYN | RST);
    let answered = sent.iter().any(|segment| acknowledges(&segment));
    // What the peer itself says may be answered by a challenge as well; and an answer counts from when it was decided upon, though a device that
    // is full, or a neighbour who is asked for, lets it go later.
    let echoes = own.shadow.receiver.echoes();
    let stamp = |arrival: &Segment| arrival.options.timestamps.map(|(value, _)| value);
    // (What came just before it, in the same service, may have brought a newer one.)
    let stale = |place: usize, arrival: &Segment| {
        let known = || echoes.iter().copied().chain(arrivals[..place].iter().filter_map(stamp));
        stamp(arrival).is_some_and(|value| known().any(|echo| before(value, echo)))
    };
    // (RFC 5961 s5.2: what acknowledges less than a window ago may be challenged. The largest window that there was is no less than today's.)
    let window = own.edge.map_or(0, |edge| edge.wrapping_sub(own.una));
    let ancient = |arrival: &Segment| before(arrival.ack, own.una) && own.una.wrapping_sub(arrival.ack) >= window;
    let inexact = |arrival: &Segment| arrival.span() > 0 || arrival.has(RST) || arrival.seq != own.rx.next;
    let strange =
        |(place, arrival): (usize, &Segment)| arrival.len() == 0 && (inexact(arrival) || stale(place, arrival) || ancient(arrival));
    let perhaps = !own.shadow.challenges.answers.is_empty() || arrivals.iter().enumerate().any(strange);
    let (nxt, owes, took_all) = (own.nxt, own.shadow.receiver.owed_since.is_some(), own.free);
    let state = &mut own.shadow.challenges;
    let answers = core::mem::take(&mut state.answers);
    let said = state.said;
    state.said = sent.iter().rfind(acknowledges).map(|segment| (segment.ack, segment.window)).or(said);
    let limited = state.perhaps_at.is_some_and(|at| moment.at < at + INTERVAL + TICK);
    if perhaps {
        state.perhaps_at = Some(moment.at);
    }
    if !judged || answers.is_empty() {
        return;
    }
    for answer in &answers {
        let (law, due) = match *answer {
            Answer::Always(law) => (law, true),
            Answer::Challenge(law) => (law, !limited),
            Answer::Perhaps => continue,
        };
        if due && !answered {
            moment.breach(NAME, format_args!("{law}: {:?} sent nothing for {} such segments", own.tuple, answers.len()));
        }
    }
    // What says nothing new answers what came; and where that was nothing else, it is a challenge. (A device that was full by the last service may have
    // refused an answer to what came before, which RFC 5681 s4.2 owes to each segment behind a gap: that goes now.)
    if owes || !took_all || !arrivals.is_empty() || answers.iter().any(|answer| matches!(answer, Answer::Always(_))) {
        return;
    }
    let pure = |segment: &Segment| segment.span() == 0 && segment.seq == nxt && Some((segment.ack, segment.window)) == said;
    let challenges = sent.iter().filter(|segment| acknowledges(segment) && pure(segment)).count();
    let before = state.certain_at;
    if challenges > 0 {
        state.certain_at = Some(moment.at);
    }
    let again = before.is_some_and(|at| moment.at + TICK < at + INTERVAL);
    if challenges > usize::from(!again) {
        let since = before.map(|at| moment.at.since(at));
        moment.breach(
            NAME,
            format_args!("RFC 5961 s7: {challenges} more challenges of {:?}, the last of which was {since:?} ago", own.tuple),
        );
    }
}
