//! Timers: none starves. Whoever owes the wire a segment (a retransmission, a probe, an acknowledgment) sends it in time.

use core::time::Duration;

use ringway_stack::Instant;
use ringway_stack::tcp::Keepalive;

use super::flow::Endpoint;
use super::segment::{ACK, before};
use super::shadow;

pub(super) const NAME: &str = "timers";

/// Linux's TCP_RTO_MAX, and as much for window probes; then a timer's tick and a device that is tried again.
const RETRY_MAX: Duration = Duration::from_secs(122);
/// Linux's keepalive starts anew when bytes were sent in the meantime.
const KEEPALIVE_SLACK: Duration = Duration::from_secs(2);
/// RFC 9293 s3.8.6.3 has less than half a second.
const DELAYED_ACK_MAX: Duration = Duration::from_millis(510);

/// A device that refuses frames is tried again within this time.
const DEVICE_SLACK: Duration = Duration::from_millis(20);

/// What it remembers of an endpoint.
#[derive(Debug, Default)]
pub(super) struct State {
    /// When it is looked at next.
    pub(super) scheduled: Option<Instant>,
    ack_owed: Option<Instant>,
    /// When the program wrote last.
    wrote_at: Instant,
    pub(super) keepalive: Option<Keepalive>,
    keepalive_since: Instant,
}

impl State {
    /// The endpoint sent an acknowledgment.
    pub(super) fn acknowledged(&mut self) {
        self.ack_owed = None;
    }

    /// The program wrote something.
    pub(super) fn wrote(&mut self, at: Instant) {
        self.wrote_at = at;
    }

    /// The program set keepalive.
    pub(super) fn set_keepalive(&mut self, at: Instant, keepalive: Option<Keepalive>) {
        self.keepalive = keepalive;
        self.keepalive_since = at;
    }

    /// The host crashed.
    pub(super) fn forget(&mut self) {
        *self = Self::default();
    }
}

/// A program has read what was not acknowledged yet: whatever its device loses, that was certainly received.
pub(super) fn read(at: Instant, own: &mut Endpoint) {
    let Some(irs) = own.irs else { return };
    let read = irs.wrapping_add(1).wrapping_add(u32::try_from(own.stream.taken() & 0xffff_ffff).unwrap_or(0));
    if own.sequence.acked().is_some_and(|acked| before(acked, read)) {
        own.timers.ack_owed.get_or_insert(at);
    }
}

/// By when an endpoint must have done something at the latest, and what. `excused`: when its host last had a reason to be late.
pub(super) fn due(own: &Endpoint, excused: Instant) -> Option<(Instant, &'static str)> {
    let closed = own.shadow.closed;
    // Whoever is closed before the handshake is over is no more; and of an orphan nobody hears that it was given up.
    let limited = own.timers.keepalive.is_some() || own.shadow.config.as_ref().is_none_or(|config| config.user_timeout.is_some());
    if !own.goes_on() || closed && (own.una == own.iss || !own.calm || limited || own.may_be_given_up()) {
        return None;
    }
    let quiet = own.rx_at.max(own.tx_at).max(excused);
    let retry = if own.flight() > 0 {
        // (What was acknowledged in a segment before the window is sent again, since such a segment is dropped whole.)
        let since = own.una_at.max(own.rto.sent_at()).max(own.shadow.sender.retried_at()).max(excused);
        // From round trips on the wire, where all of them were seen.
        let bound = own.shadow.sender.retry_at(excused).filter(|_| own.calm && shadow::State::is_alive(own));
        Some((bound.map_or(since + RETRY_MAX, |at| at.min(since + RETRY_MAX)), "RFC 6298 s5: what is in flight is sent again"))
    } else if own.has_unsent() && !closed {
        // Nagle's algorithm and congestion wait for what is in flight, a cork for less: only the peer's window is left.
        Some((quiet.max(own.timers.wrote_at) + RETRY_MAX, "RFC 9293 s3.8.6.1: a shut or silly window is probed"))
    } else {
        None
    };
    // (What a device loses of acknowledgments leaves a stack waiting for them, which asks nothing else meanwhile.)
    // (Nor does what acknowledges it in a segment before the window count: RFC 9293 s3.10.7.4.)
    // (Who speaks without a stack may acknowledge it in what lies beyond the window.)
    let certain = !own.lawless || own.shadow.acknowledged == Some(own.nxt);
    let settled = own.flight() == 0 && own.shadow.sender.una == Some(own.nxt) && certain;
    // (Where somebody may have put bytes before the peer's FIN, it is not to be seen whether that counted, and the connection is over.)
    let infiltrated = own.lawless && own.shadow.blurred;
    let idle = own.calm && !infiltrated && own.una != own.iss && settled && !own.has_unsent() && !closed;
    let keepalive = own.timers.keepalive.filter(|_| idle).map(|keepalive| {
        let since = quiet.max(own.timers.keepalive_since);
        // Once it is silent, each further probe comes an interval after the one before.
        (since + keepalive.idle.max(keepalive.interval) + KEEPALIVE_SLACK, "RFC 9293 s3.8.4: a silent peer is probed when keepalive is on")
    });
    let receives = own.una != own.iss && !own.peer_ended();
    let delay = own.shadow.config.as_ref().filter(|_| own.calm && shadow::State::is_alive(own) && !own.shadow.receiver.is_doubtful());
    // What went out in this very service, once a full device had room again, is counted at its end.
    let settled = !own.shadow.sent.iter().any(|segment| segment.has(ACK));
    let declared = delay.filter(|_| settled).and_then(|config| {
        let at = own.shadow.receiver.deadline(config.delayed_ack)?;
        Some((
            at.max(excused + config.delayed_ack) + DEVICE_SLACK,
            "RFC 9293 s3.8.6.3: an acknowledgment is delayed no longer than was declared",
        ))
    });
    let owed = own.timers.ack_owed.filter(|_| receives && !own.lost).map(|since| {
        let law = "RFC 9293 s3.8.6.3: an acknowledgment is delayed by less than half a second";
        (since.max(excused) + DELAYED_ACK_MAX, law)
    });
    [retry, keepalive, owed, declared.filter(|_| receives)].into_iter().flatten().min_by_key(|&(at, _)| at)
}

#[cfg(test)]
mod tests;
