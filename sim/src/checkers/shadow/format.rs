//! The form of what is sent: flags that go together, a PSH at the end of what was written, options that SYNs have.

use super::super::Moment;
use super::super::flow::Endpoint;
use super::super::segment::{ACK, FIN, PSH, RST, SYN, Segment, URG};
use crate::addresses::Family;

const NAME: &str = "format";

/// An endpoint sent a segment, which is no reset.
pub(in crate::checkers) fn sent(moment: &Moment, segment: &Segment, own: &Endpoint) {
    if segment.has(URG) || segment.reserved != 0 || segment.urgent != 0 {
        moment.breach(NAME, format_args!("RFC 9293 s3.1: flags {:#x}: nothing is urgent", segment.flags));
    }
    // (Of bytes with a cookie, other laws speak.)
    let has_bytes = segment.len() > 0 && segment.fast_open.is_none();
    if segment.has(SYN) && (segment.has(FIN) || segment.has(RST) || segment.has(PSH) || has_bytes) {
        moment.breach(NAME, format_args!("RFC 9293 s3.5: a SYN with flags {:#x} and {} bytes", segment.flags, segment.len()));
    }
    if !segment.has(SYN) && !segment.has(ACK) {
        moment.breach(NAME, "RFC 9293 s3.1: once a connection is established the ACK bit is always set");
    }
    // MUST-61: "If PSH flags are not a parameter, then the last buffered segment MUST have it": no more can have been written behind it by then.
    let end = segment.seq.wrapping_add(segment.len());
    if segment.len() > 0
        && own.stream.is_watched()
        && !segment.has(PSH)
        && own.offset(end) == own.stream.written()
        && super::State::is_known(own)
        && own.una != segment.seq.wrapping_add(1)
    {
        moment.breach(NAME, format_args!("RFC 9293 s3.9.1.2: no PSH on the last of {} bytes written", own.stream.written()));
    }
    if segment.has(SYN) {
        syn(moment, segment, own);
    }
}

/// Each transmission of a SYN says the same, and its options are those that the protocol knows, once each.
fn syn(moment: &Moment, segment: &Segment, own: &Endpoint) {
    let (first, options) = (&own.syn, &segment.options);
    let Some(mss) = options.mss else {
        moment.breach(NAME, "RFC 9293 s3.7.1: a SYN without the MSS option");
    };
    let same = first.mss == Some(mss)
        && first.scale == options.scale
        && first.sack_permitted == options.sack_permitted
        && first.timestamps.is_some() == options.timestamps.is_some();
    // (A simultaneous open's SYN-ACK says no more than was agreed on by then.)
    if !same && !segment.has(ACK) {
        moment.breach(NAME, format_args!("RFC 9293 s3.8.1: a SYN that says {options:?} after one that said {first:?}"));
    }
    if options.scale.is_some_and(|scale| scale > 14) {
        moment.breach(NAME, format_args!("RFC 7323 s2.3: a shift of {:?}", options.scale));
    }
    if !segment.has(ACK) && options.timestamps.is_some_and(|(_, echo)| echo != 0) {
        moment.breach(NAME, "RFC 7323 s3.2: a SYN echoes nothing");
    }
}

/// The program's configuration is known: is it what the SYN said?
pub(in crate::checkers) fn configured(moment: &Moment, own: &Endpoint, peer: Option<&Endpoint>, mtu: usize) {
    let Some(config) = &own.shadow.config else { return };
    if own.shadow.blurred || own.moved || mtu == 0 || own.passive && peer.is_none() {
        return;
    }
    // RFC 9293 s3.7.1, RFC 6691 s2: MTU less the fixed headers, whatever options there may be.
    let most = u16::try_from(mtu.saturating_sub(Family::headers(own.tuple.0.ip()))).unwrap_or(u16::MAX).min(config.mss_max);
    let mss = config.mss_user.unwrap_or(u16::MAX).min(most).max(88);
    if own.syn.mss != Some(mss) {
        moment.breach(NAME, format_args!("RFC 6691 s2: MSS {:?} announced, where it is {mss}", own.syn.mss));
    }
    // Whoever answers a SYN offers what that offered (RFC 7323 s2.2, s3.2, RFC 2018 s2).
    let offered = peer.filter(|_| own.passive).map(|peer| &peer.syn);
    let wanted = |configured: bool, of_peer: Option<bool>| configured && of_peer.unwrap_or(true);
    let says = (own.syn.timestamps.is_some(), own.syn.sack_permitted, own.syn.scale.is_some());
    let meant = (
        wanted(config.timestamps, offered.map(|syn| syn.timestamps.is_some())),
        wanted(config.sack, offered.map(|syn| syn.sack_permitted)),
        wanted(config.window_scaling, offered.map(|syn| syn.scale.is_some())),
    );
    if says != meant {
        moment.breach(NAME, format_args!("RFC 7323 s2.2: timestamps, SACK and scaling are {meant:?}, and the SYN says {says:?}"));
    }
}
