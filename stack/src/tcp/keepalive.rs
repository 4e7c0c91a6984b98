//! Keepalive (RFC 9293 s3.8.4): what to do when its timer runs out.

use core::time::Duration;

use super::config::Keepalive;

/// The timer's consequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The peer was heard of since: look again after this time.
    Wait(Duration),
    /// Send a probe, and look again after this time.
    Probe(Duration),
    /// The peer is gone.
    Dead,
}

/// Decides after `silence` and so many unanswered probes. `timeout`: TCP_USER_TIMEOUT, which takes the count's place
/// (RFC 5482 s4.2, Linux).
pub(super) fn judge(keepalive: &Keepalive, silence: Duration, unanswered: u32, timeout: Option<Duration>) -> Verdict {
    if silence < keepalive.idle {
        return Verdict::Wait(keepalive.idle - silence);
    }
    let dead = match timeout {
        Some(timeout) => unanswered > 0 && silence >= timeout,
        None => unanswered >= keepalive.count,
    };
    if dead { Verdict::Dead } else { Verdict::Probe(keepalive.interval) }
}
