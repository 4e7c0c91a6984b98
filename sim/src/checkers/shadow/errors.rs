//! What ends a connection, or asks whether it has ended: errors have a cause on the wire, and keepalive probes come when they are due, and no more of
//! them than were asked for (RFC 9293 s3.8.4, RFC 1122 s4.2.3.6).

use core::time::Duration;

use ringway_stack::{Error, Instant};

use super::super::Moment;
use super::super::flow::Endpoint;
use super::super::segment::{ACK, RST, SYN, Segment, before};
use super::State;

const NAME: &str = "errors";
const KEEPALIVE: &str = "keepalive";

/// A timer wheel's tick.
const TICK: Duration = Duration::from_millis(2);
/// A device that refuses frames is tried again within less.
const LATE: Duration = Duration::from_millis(100);
/// Fifteen probes of a shut window take longer, whatever the round trip.
const SILENCE: Duration = Duration::from_secs(60);
/// Probes of a shut window are no further apart than that (Linux's TCP_RTO_MAX).
const PROBES_APART_MAX: Duration = Duration::from_secs(100);

/// A program was told of an error. `asked_at`: when its host last asked for the MAC address of the peer, of whom it has not heard since.
pub(in crate::checkers) fn told(moment: &Moment, own: &Endpoint, error: Error, asked_at: Option<Instant>) {
    let shadow = &own.shadow;
    // What is sent again then, or asks whether the peer is there, waits for that, and is not seen.
    let asks = asked_at.is_some_and(|at| at > own.tx_at && at > own.rx_at);
    if shadow.blurred || own.moved || own.left_at.is_some() || own.lawless {
        return;
    }
    match error {
        Error::Reset if own.irs.is_none() => {
            moment.breach(NAME, format_args!("connect(2): a connection that never was is refused, and not reset: {:?}", own.tuple));
        }
        // (Who reads no more resets whoever writes on: RFC 1122 s4.2.2.13.)
        Error::Reset if !shadow.reset && !shadow.unread => {
            moment.breach(
                NAME,
                format_args!("RFC 5961 s3.2: a connection was reset, and no reset came with the number that is next: {:?}", own.tuple),
            );
        }
        Error::TimedOut if own.calm && heard_lately(moment, own) => {
            let since = moment.at.since(shadow.answered.0);
            moment.breach(
                NAME,
                format_args!("RFC 9293 s3.8.6.1, RFC 1122 s4.2.3.6: a peer that was heard of {since:?} ago is given up: {:?}", own.tuple),
            );
        }
        // (What a device refused of it while the clock ran ahead was never seen.)
        Error::TimedOut if own.calm && !shadow.sender.retried() && !shadow.probed && !own.lost && !asks => {
            moment.breach(
                NAME,
                format_args!("RFC 9293 s3.8.3: a connection timed out, of which nothing was ever sent again: {:?}", own.tuple),
            );
        }
        _ => {}
    }
}

/// The endpoint's host was serviced: did its peer answer at all? What was copied of an earlier segment has that one's timestamp.
pub(in crate::checkers) fn serviced(moment: &Moment, own: &mut Endpoint) {
    let (next, una, latest) = (own.rx.next, own.una, own.shadow.answered.1);
    let answers =
        own.shadow.arrivals.iter().filter(|arrival| arrival.flags & (ACK | RST | SYN) == ACK && (arrival.seq, arrival.ack) == (next, una));
    let stamp = answers.filter_map(|arrival| arrival.options.timestamps).map(|(value, _)| value).next_back();
    if let Some(stamp) = stamp.filter(|&stamp| latest.is_none_or(|latest| before(latest, stamp))) {
        own.shadow.answered = (moment.at, Some(stamp));
    }
}

/// Whether nothing is in flight, and the peer was heard of after all that might end a connection to it could have begun.
fn heard_lately(moment: &Moment, own: &Endpoint) -> bool {
    let Some(config) = own.shadow.config.as_ref().filter(|config| config.user_timeout.is_none() && !own.shadow.reconfigured) else {
        return false;
    };
    let silence = config.keepalive.map_or(SILENCE, |keepalive| keepalive.idle.min(SILENCE));
    State::is_known(own) && own.irs.is_some() && own.una == own.nxt && moment.at.since(own.shadow.answered.0) + TICK < silence
}

/// An endpoint sent a segment, which is no reset.
pub(in crate::checkers) fn sent(moment: &Moment, segment: &Segment, own: &mut Endpoint) {
    let settled = own.shadow.sender.una;
    own.shadow.probed |= segment.span() == 0 && segment.seq != own.nxt;
    let probe = segment.span() == 0 && segment.seq.wrapping_add(1) == own.una && settled == Some(own.una) && own.nxt == own.una;
    if !probe {
        return;
    }
    let shut = own.shadow.sender.is_shut(own.nxt);
    let apart = moment.at.since(own.shadow.probed_at);
    let before = core::mem::replace(&mut own.shadow.probes_apart, (apart, own.una, shut));
    // RFC 9293 s3.8.6.1: "SHOULD increase exponentially the interval between successive probes."
    // One that waited for a neighbour's answer, or for the device, is followed sooner: the stack counts from when it was due. (And one that was due when something
    // arrived does not go, but counts: after 1 and 2 come 4, where 3 and 4 are seen.)
    let punctual = core::mem::replace(&mut own.shadow.punctual, moment.at > moment.excused && own.free && !own.shadow.refused);
    let shut_since = punctual && shut && before.2 && before.1 == own.una && own.shadow.probes_shut > 1;
    own.shadow.probes_shut = if shut && before.1 == own.una { own.shadow.probes_shut + 1 } else { 0 };
    if shut_since && own.calm && State::is_known(own) && !own.shadow.reconfigured && apart < (before.0 * 5 / 4).min(PROBES_APART_MAX) {
        moment.breach(
            NAME,
            format_args!("RFC 9293 s3.8.6.1: a shut window is probed {apart:?} after a probe that was {:?} after its own", before.0),
        );
    }
    let unsent = own.stream.is_watched() && own.offset(own.nxt) < own.stream.written();
    let (probes, heard_at) = (own.shadow.probes, own.shadow.heard_at);
    own.shadow.probes += 1;
    (own.shadow.probed_at, own.shadow.probed) = (moment.at, true);
    let Some(config) = &own.shadow.config else { return };
    if shut || unsent || !own.calm || !State::is_known(own) || own.shadow.reconfigured || !own.shadow.arrivals.is_empty() {
        return;
    }
    let Some(keepalive) = config.keepalive else {
        moment.breach(KEEPALIVE, "RFC 9293 s3.8.4: keepalive is off by default, and a probe was sent");
    };
    let silence = moment.at.since(heard_at);
    if silence + TICK < keepalive.idle {
        moment.breach(
            KEEPALIVE,
            format_args!("RFC 9293 s3.8.4: a probe after {silence:?} of silence, and {:?} were asked for", keepalive.idle),
        );
    }
    // (Each of the two is rounded to a tick, and may wait behind others for the device, the first one more than the second: by as much as it was late.)
    let due = if probes > 0 { keepalive.interval.saturating_sub(own.shadow.probe_late) } else { keepalive.idle };
    let waited = if probes > 0 { apart } else { silence };
    own.shadow.probe_late = waited.saturating_sub(due).min(LATE);
    if probes > 0 && punctual && apart + 3 * TICK < due {
        moment.breach(KEEPALIVE, format_args!("tcp(7): probes {apart:?} apart, and {:?} were asked for", keepalive.interval));
    }
    if probes > 0 && apart > keepalive.interval + LATE && moment.at > moment.excused + keepalive.interval && !own.shadow.refused {
        moment.breach(KEEPALIVE, format_args!("tcp(7): probes {apart:?} apart, and {:?} were asked for", keepalive.interval));
    }
    if config.user_timeout.is_none() && probes >= keepalive.count {
        moment.breach(KEEPALIVE, format_args!("tcp(7): probe {} without an answer, and {} were asked for", probes + 1, keepalive.count));
    }
}
