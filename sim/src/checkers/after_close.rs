//! What is closed stays closed: nothing is sent behind a FIN or after a reset, and nothing is read from, or written to, a socket
//! that its program closed. What has left its ring is silent there.

use core::time::Duration;

use super::Moment;
use super::flow::Endpoint;
use super::segment::{Segment, before};

const NAME: &str = "after_close";

/// How long a ring remembers, at least, which connections have left it.
pub(super) const REMEMBERED: Duration = Duration::from_secs(50);

/// An endpoint sent a segment, which is no reset.
pub(super) fn sent(moment: &Moment, segment: &Segment, own: &Endpoint) {
    if own.reset {
        moment.breach(NAME, "RFC 9293 s3.10.5: a segment of a connection that was reset");
    }
    let end = segment.seq.wrapping_add(segment.len());
    if let Some(fin) = own.fin
        && segment.len() > 0
        && before(fin, end)
    {
        moment.breach(NAME, format_args!("RFC 9293 s3.6: bytes up to {end}, behind the FIN at {fin}"));
    }
}

/// An endpoint sent a reset. One that has left its ring goes on elsewhere, and what is still under way to it is nobody's business there.
pub(super) fn reset_sent(moment: &Moment, own: &Endpoint) {
    if let Some(left_at) = own.left_at.filter(|_| !own.forged.is_impersonated())
        && moment.at < left_at + REMEMBERED
    {
        let ago = moment.at.since(left_at);
        moment.breach(NAME, format_args!("a reset for a connection that left its ring {ago:?} ago, and goes on elsewhere"));
    }
}

/// A call on a socket that its program had closed succeeded.
pub(super) fn used(moment: &Moment, call: &str) {
    moment.breach(NAME, format_args!("{call} succeeded on a socket that was closed"));
}
