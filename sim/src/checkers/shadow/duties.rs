//! Duties after a service: what a program wrote, and the end of it, goes out as soon as nothing but an idle program could hold it.

use super::super::Moment;
use super::super::flow::Endpoint;
use super::super::segment::{ACK, FIN, RST, SYN, Segment, before};
use super::{Service, State};

const NAME: &str = "duties";

/// The endpoint's host was serviced.
pub(in crate::checkers) fn serviced(moment: &Moment, own: &Endpoint, _peer: &Endpoint, service: Service) {
    let state = &own.shadow.sender;
    let (Some(config), Some(una), Some(edge)) = (&own.shadow.config, state.una, state.edge) else { return };
    let doubtful = moment.at <= moment.excused || !own.stream.is_watched() || !state.is_sure();
    if !(service.calm && service.free && State::is_alive(own)) || doubtful {
        return;
    }
    let end = own.sequence_of(own.stream.written());
    let unsent = end.wrapping_sub(own.nxt);
    // (The FIN has a number behind it.)
    let unsent = if before(own.nxt, end) { unsent } else { 0 };
    let flight = own.nxt.wrapping_sub(una);
    let usable = edge.wrapping_sub(own.nxt).cast_signed().max(0).cast_unsigned();
    let corked = config.cork || own.shadow.more || own.shadow.reconfigured;
    let marked = own.shadow.marks.was_told();
    if unsent > 0 && flight == 0 && usable >= unsent.min(state.mss) && !corked && !marked {
        moment.breach(
            NAME,
            format_args!("RFC 9293 s3.9.1.2: {unsent} bytes wait for nothing: all before them is acknowledged, and {usable} may be sent"),
        );
    }
    let small_waits = state.partial.is_some_and(|partial| before(una, partial));
    let full = state.longest.min(state.mss);
    let room = u64::from(flight) + u64::from(unsent.min(full)) <= 10 * u64::from(full);
    let silly = usable < unsent.min(state.mss);
    let nagle = !(config.nodelay || unsent >= state.mss || !small_waits);
    let first_window = !state.lossy && !state.shrunk && !state.reduced_unseen && !marked;
    if unsent > 0 && room && !silly && !nagle && !corked && first_window {
        moment.breach(
            NAME,
            format_args!(
                "RFC 9293 s3.7.4: {unsent} bytes wait, with {flight} in flight of a first window, and {usable} that the peer takes"
            ),
        );
    }
    if own.stream.has_ended() && unsent == 0 && own.fin.is_none() && flight == 0 && usable > 0 {
        moment.breach(NAME, "RFC 9293 s3.10.4: the program ended its stream, all of which is acknowledged, and no FIN follows");
    }
}

/// The endpoint's host was serviced: a SYN that crosses ours, or comes again, was answered.
pub(in crate::checkers) fn answers(moment: &Moment, own: &Endpoint, service: Service, arrivals: &[Segment], sent: &[Segment]) {
    if !(service.calm && service.free && State::is_known(own)) || own.shadow.failed || own.disturbed || moment.at <= moment.excused {
        return;
    }
    // Who was refused is there no more (RFC 9293 s3.10.7.3), whether its program knows or not.
    if own.shadow.reset {
        return;
    }
    // RFC 9293 s3.10.7.3 and s3.10.7.4: a SYN that crosses ours, or comes again.
    let syn = arrivals.iter().any(|arrival| arrival.flags & (SYN | ACK | RST | FIN) == SYN && own.irs == Some(arrival.seq));
    let alone = arrivals.iter().all(|arrival| arrival.flags & (SYN | ACK | RST) == SYN);
    if syn && alone && !own.reset && own.una == own.iss && own.nxt != own.iss && !sent.iter().any(|segment| segment.has(SYN | ACK)) {
        moment.breach(NAME, "RFC 9293 s3.5: a SYN came, and no SYN-ACK answers it");
    }
}
