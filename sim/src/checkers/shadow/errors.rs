//! What ends a connection, or asks whether it has ended: errors have a cause on the wire, and keepalive probes come when they are due, and no more of
//! them than were asked for (RFC 9293 s3.8.4, RFC 1122 s4.2.3.6).

use core::time::Duration;

use ringway_stack::Error;

use super::super::Moment;
use super::super::flow::Endpoint;
use super::super::segment::Segment;
use super::State;

const NAME: &str = "errors";
const KEEPALIVE: &str = "keepalive";

/// A timer wheel's tick.
const TICK: Duration = Duration::from_millis(2);

/// A program was told of an error.
pub(in crate::checkers) fn told(moment: &Moment, own: &Endpoint, error: Error) {
    let shadow = &own.shadow;
    if shadow.blurred || own.moved || own.left_at.is_some() || own.lawless {
        return;
    }
    match error {
        // (Who reads no more resets whoever writes on: RFC 1122 s4.2.2.13.)
        Error::Reset if !shadow.reset && !shadow.unread => {
            moment.breach(
                NAME,
                format_args!("RFC 5961 s3.2: a connection was reset, and no reset came with the number that is next: {:?}", own.tuple),
            );
        }
        Error::TimedOut if !shadow.sender.retried() && !shadow.probed && !own.lost => {
            moment.breach(
                NAME,
                format_args!("RFC 9293 s3.8.3: a connection timed out, of which nothing was ever sent again: {:?}", own.tuple),
            );
        }
        _ => {}
    }
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
    let Some(config) = &own.shadow.config else { return };
    let unsent = own.stream.is_watched() && own.offset(own.nxt) < own.stream.written();
    let (probes, heard_at, probed_at) = (own.shadow.probes, own.shadow.heard_at, own.shadow.probed_at);
    own.shadow.probes += 1;
    (own.shadow.probed_at, own.shadow.probed) = (moment.at, true);
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
    if probes > 0 && moment.at.since(probed_at) + TICK < keepalive.interval {
        let since = moment.at.since(probed_at);
        moment.breach(KEEPALIVE, format_args!("tcp(7): probes {since:?} apart, and {:?} were asked for", keepalive.interval));
    }
    if config.user_timeout.is_none() && probes >= keepalive.count {
        moment.breach(KEEPALIVE, format_args!("tcp(7): probe {} without an answer, and {} were asked for", probes + 1, keepalive.count));
    }
}
