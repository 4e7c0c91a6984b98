//! Congestion (RFC 5681): no new segment goes out while as much as the congestion window is in flight, and a retransmission timeout
//! makes that window small.

use core::time::Duration;

use ringway_stack::Instant;

use super::Moment;
use super::flow::Endpoint;
use super::segment::{FIN, SYN, Segment, before, later};

const NAME: &str = "congestion";

/// How long a larger window is remembered: what was queued under it may leave a slow device later.
const MEMORY: Duration = Duration::from_millis(50);

/// What it remembers of an endpoint.
#[derive(Debug, Default)]
pub(super) struct State {
    /// The largest windows in this span of time and in the one before.
    largest: [usize; 2],
    latest: usize,
    turned_at: Instant,
    /// Acknowledged since the last service: the window may have grown by as much before it fell.
    acknowledged: u32,
    /// Until this is acknowledged, duplicate acknowledgments or SACK may have told of segments that have left the network.
    recover: Option<u32>,
    timed_out: bool,
}

impl State {
    /// An acknowledgment arrived at an endpoint with `una..nxt` in flight. `lawless`: it may have acknowledged more before, in a segment that
    /// was none of the connection's.
    pub(super) fn delivered(&mut self, una: u32, nxt: u32, segment: &Segment, lawless: bool) {
        let advance = segment.ack.wrapping_sub(una);
        if before(una, segment.ack) {
            self.acknowledged = self.acknowledged.saturating_add(advance);
            self.recover = self.recover.filter(|&recover| before(segment.ack, recover));
        }
        // (Even with nothing in flight: by the time that the stack looks at it, there may be.)
        let duplicate = (segment.ack == una || lawless && before(segment.ack, una)) && segment.span() == 0;
        if duplicate || !segment.options.sack().is_empty() {
            self.recover = Some(nxt);
        }
    }

    /// Something was acknowledged since the last service.
    pub(super) fn progressed(&self) -> bool {
        self.acknowledged > 0
    }

    /// The retransmission timer ran out, as the wire shows.
    pub(super) fn timed_out(&mut self) {
        self.timed_out = true;
    }

    /// The congestion window is `cwnd` now.
    pub(super) fn sampled(&mut self, at: Instant, cwnd: usize) {
        if at.since(self.turned_at) > MEMORY {
            // The last one held until now: what was sent under it may be seen after the timer that ends it.
            self.largest = [self.latest, if at.since(self.turned_at) > 2 * MEMORY { 0 } else { self.largest[0] }];
            self.turned_at = at;
        }
        self.latest = cwnd;
        self.largest[0] = self.largest[0].max(cwnd);
    }
}

/// An endpoint sent a segment, which is no reset.
pub(super) fn sent(moment: &Moment, segment: &Segment, own: &mut Endpoint) {
    let again = segment.span() > 0 && before(segment.seq, own.nxt);
    if again {
        own.congestion.recover = Some(later(own.nxt, segment.end()));
        return;
    }
    let new = segment.len() > 0 && !segment.has(SYN);
    let State { largest, acknowledged, recover, .. } = own.congestion;
    let window = largest[0].max(largest[1]) + acknowledged as usize;
    // (What goes on from what was written down begins with a window of its own, before anybody has seen it.)
    if !new || own.shadow.blurred || own.flight() == 0 || recover.is_some() || largest == [0, 0] {
        return;
    }
    let flight = own.flight() as usize + segment.len() as usize;
    if flight > window {
        let fin = segment.has(FIN);
        moment.breach(NAME, format_args!("RFC 5681 s3.1: {flight} bytes in flight, and cwnd is {window} (fin {fin})"));
    }
}

/// A host was serviced, and this is how an endpoint stands.
pub(super) fn serviced(moment: &Moment, own: &mut Endpoint, cwnd: usize, mss: u16) {
    own.congestion.sampled(moment.at, cwnd);
    own.congestion.acknowledged = 0;
    if core::mem::take(&mut own.congestion.timed_out) && cwnd > 2 * usize::from(mss) {
        moment.breach(NAME, format_args!("RFC 5681 s3.1: cwnd is {cwnd} after a retransmission timeout, with segments of {mss}"));
    }
}
