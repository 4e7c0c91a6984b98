//! Closing: once faults stop, whatever a program closed is gone within a bound, and whatever it aborted is told.

use core::time::Duration;

use ringway_stack::Instant;
use ringway_stack::tcp;

use super::Moment;

const NAME: &str = "closing";

/// A retransmission timeout at its cap, then FIN-WAIT-2 and TIME-WAIT at 60 s each, and a little.
pub(super) const BOUND: Duration = Duration::from_secs(250);
/// A reset leaves at once, or when the device takes frames again, or when its neighbour has answered.
pub(super) const RESET_BOUND: Duration = Duration::from_secs(10);

/// A socket that its program closed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Closed {
    pub(super) at: Instant,
    /// A reset must go out.
    pub(super) reset_due: bool,
}

/// How a closed connection stands when its time is up.
pub(super) fn check(moment: &Moment, closed: Closed, healed_at: Option<Instant>, state: Option<tcp::State>) {
    if closed.reset_due && moment.at.since(closed.at) >= RESET_BOUND {
        moment.breach(
            NAME,
            format_args!(
                "RFC 9293 s3.10.5, RFC 2525 s2.17: aborted {:?} ago, or closed with unread bytes, and the peer was not told",
                moment.at.since(closed.at)
            ),
        );
    }
    let Some(healed_at) = healed_at else { return };
    let since = closed.at.max(healed_at);
    if state.is_some() && moment.at.since(since) >= BOUND {
        moment.breach(NAME, format_args!("closed, without faults for {:?}, and still there: {state:?}", moment.at.since(since)));
    }
}
