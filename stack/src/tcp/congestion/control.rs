//! The trait of congestion controllers, and what a sender tells them.
//!
//! A controller is told of one acknowledgment in this order, leaving out what did not happen: [`CongestionControl::on_undo`],
//! [`CongestionControl::on_congestion`], [`CongestionControl::on_lost`] for each segment that is newly counted as lost,
//! [`CongestionControl::on_recovered`], and in any case [`CongestionControl::on_ack`]. Where a timer is what tells of a loss,
//! [`CongestionControl::on_timeout`] comes first, and [`CongestionControl::on_lost`] for each segment after it.
//!
//! Positions in the stream are 64-bit numbers of bytes since its beginning, which do not wrap as sequence numbers do. All amounts are bytes of
//! payload.

use core::time::Duration;

use super::rate::{RateSample, SendRecord};
use crate::time::Instant;

/// No window is larger: what window scaling can announce (RFC 7323 s2.3).
pub const WINDOW_MAX: u64 = 1 << 30;
/// No segment is larger: a longer MSS than IP can carry is taken for this.
pub const MSS_MAX: u64 = 1 << 16;
/// No rate is higher, in bytes per second (about nine terabits per second): what is beyond is a fault of measurement.
pub const RATE_MAX: u64 = 1 << 40;
/// Segments in the initial window (RFC 6928 s2). As Linux, of large segments also as many.
pub const INITIAL_SEGMENTS: u64 = 10;

/// The state of loss recovery in which an acknowledgment finds the connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Phase {
    /// Nothing is known to be lost.
    #[default]
    Open,
    /// The window was reduced since the peer told of a mark (RFC 3168 s6.1.2), until what was sent by then is acknowledged.
    Reduced,
    /// Fast recovery (RFC 5681 s3.2, RFC 6675).
    Recovery,
    /// After a retransmission timeout, until what was sent by then is acknowledged.
    Loss,
}

/// A segment is about to be sent, for the first time or again.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sending {
    /// When.
    pub now: Instant,
    /// Its payload.
    pub bytes: u64,
    /// What is in the network without it.
    pub in_flight: u64,
    /// The sender had run out of data since the last acknowledgment of all that it sent ([`super::rate::RateSampler::is_app_limited`]).
    pub app_limited: bool,
}

/// An acknowledgment was taken.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ack {
    /// When.
    pub now: Instant,
    /// What it acknowledges in order: by how much SND.UNA advanced.
    pub acked: u64,
    /// What it reports as received, in order or by SACK, and nothing before it did. (DeliveredData of RFC 9937 s6.2.)
    pub delivered: u64,
    /// What of that it reports by SACK alone.
    pub sacked: u64,
    /// What is counted as lost since it came.
    pub lost: u64,
    /// The most that was sent and not acknowledged in order (FlightSize: RFC 5681 s2) since what was in flight when something was sent last: of the window that much was
    /// used, whatever was acknowledged since.
    pub flight_most: u64,
    /// What is in the network after it: neither acknowledged, nor reported by SACK, nor lost (`pipe` of RFC 6675 s2).
    pub in_flight: u64,
    /// SND.UNA after it.
    pub una: u64,
    /// SND.NXT.
    pub nxt: u64,
    /// All that was ever delivered, with it: C.delivered of the delivery rate's sampler.
    pub delivered_total: u64,
    /// The round trip of the segment sent last among those that it reports, where that is unambiguous.
    pub rtt: Option<Duration>,
    /// The smoothed round trip (RFC 6298); zero: unknown.
    pub srtt: Duration,
    /// How fast the path delivered, where it reports anything as received.
    pub rate: Option<RateSample>,
    /// At some time during the last round trip no further segment would have fitted into the window.
    pub cwnd_limited: bool,
    /// What of [`Ack::acked`] was marked. With AccECN that is known (RFC 9768); without, it is all of it if ECE is set (RFC 8257 s3.3).
    pub ce_bytes: u64,
    /// The state of recovery when it came; or the one that it began, which was told just before.
    pub phase: Phase,
}

/// A segment is counted as lost.
#[derive(Clone, Copy, Debug, Default)]
pub struct Lost {
    /// When it is found out.
    pub now: Instant,
    /// Where in the stream it begins.
    pub offset: u64,
    /// Its payload.
    pub bytes: u64,
    /// What was noted when it was sent last.
    pub sent: SendRecord,
    /// All that was ever counted as lost, with it.
    pub lost_total: u64,
    /// All that was ever delivered.
    pub delivered_total: u64,
    /// What is in the network without it.
    pub in_flight: u64,
}

/// What asks for a smaller window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Cause {
    /// A loss: fast recovery begins.
    #[default]
    Loss,
    /// A mark. "TCP should not react to congestion indications more than once every window of data" (RFC 3168 s6.1.2): this is told once a window,
    /// and never during recovery; the sender sets CWR in the next new segment. Where marks go on with a window of one segment, the sender "MUST reduce its
    /// sending rate even further" (RFC 9438 s4.6), by its retransmission timer, since no window can say so.
    Ecn,
}

/// Fast recovery begins, or the peer told of a mark.
#[derive(Clone, Copy, Debug, Default)]
pub struct Congestion {
    /// When.
    pub now: Instant,
    /// Why.
    pub cause: Cause,
    /// FlightSize: what was sent and is not acknowledged in order.
    pub flight: u64,
    /// What of that is reported by SACK.
    pub sacked: u64,
    /// What this acknowledgment reported for the first time, in order or by SACK.
    pub delivered: u64,
}

/// The retransmission timer ran out.
#[derive(Clone, Copy, Debug, Default)]
pub struct Timeout {
    /// When.
    pub now: Instant,
    /// FlightSize: what was sent and is not acknowledged in order.
    pub flight: u64,
    /// What of that still counts as in the network.
    pub in_flight: u64,
    /// The oldest byte had not been sent again by a timeout before.
    pub first: bool,
}

/// All that was sent before a recovery or a reduction is acknowledged.
#[derive(Clone, Copy, Debug, Default)]
pub struct Recovered {
    /// When.
    pub now: Instant,
    /// FlightSize that is left.
    pub flight: u64,
    /// What ended.
    pub phase: Phase,
}

/// What was counted as lost had arrived (RFC 5682 F-RTO, RFC 3522 Eifel, RFC 2883 D-SACK): the window was reduced for nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Undo {
    /// When.
    pub now: Instant,
    /// FlightSize.
    pub flight: u64,
    /// What the acknowledgment that told acknowledges in order.
    pub acked: u64,
    /// What is undone: [`Phase::Recovery`] or [`Phase::Loss`].
    pub phase: Phase,
}

/// Something is to be sent after a silence.
#[derive(Clone, Copy, Debug, Default)]
pub struct Idle {
    /// When.
    pub now: Instant,
    /// How long nothing was sent: more than a retransmission timeout.
    pub silence: Duration,
}

/// How much may be in the network, and how fast it may get there.
///
/// A controller never fails, whatever it is told: lies of a peer make it slow or fast, within [`WINDOW_MAX`] and [`RATE_MAX`].
pub trait CongestionControl {
    /// Its name as in TCP_CONGESTION.
    fn name(&self) -> &'static str;

    /// The congestion window in bytes; at least a segment.
    fn cwnd(&self) -> u64;

    /// The slow-start threshold in bytes; `None`: none yet, or there is no such thing.
    fn ssthresh(&self) -> Option<u64>;

    /// How fast segments may leave, in bytes per second; `None`: as fast as acknowledgments ask for them.
    fn pacing_rate(&self) -> Option<u64> {
        None
    }

    /// How much may leave in one burst where there is a pacing rate, in bytes.
    fn send_quantum(&self) -> Option<u64> {
        None
    }

    /// It holds back on purpose: what is sent now tells nothing of what the path could deliver, as if the program had nothing to send
    /// ([`super::rate::RateSampler::mark_app_limited`]). To be asked after each acknowledgment.
    fn holds_back(&self) -> bool {
        false
    }

    /// A segment is about to be sent.
    fn on_sending(&mut self, _sending: &Sending) {}

    /// An acknowledgment was taken.
    fn on_ack(&mut self, ack: &Ack);

    /// A segment is counted as lost.
    fn on_lost(&mut self, _lost: &Lost) {}

    /// Fast recovery begins, or the peer told of a mark.
    fn on_congestion(&mut self, congestion: &Congestion);

    /// The retransmission timer ran out.
    fn on_timeout(&mut self, timeout: &Timeout);

    /// Recovery, or what followed a mark, is over.
    fn on_recovered(&mut self, recovered: &Recovered);

    /// The last reduction was for nothing.
    fn on_undo(&mut self, undo: &Undo);

    /// Something is to be sent after a silence.
    fn on_idle(&mut self, idle: &Idle);

    /// The segment size became known, or changed.
    fn set_mss(&mut self, mss: u64);
}
