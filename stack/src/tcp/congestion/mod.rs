//! Congestion control: how many bytes may be in flight.

mod newreno;

pub(super) use newreno::NewReno;

/// What a controller learns, and what it decides. (More of them come; each is a file beside this one.)
pub(super) trait Controller {
    /// The congestion window in bytes.
    fn cwnd(&self) -> usize;

    /// The segment size became known, or changed.
    fn set_mss(&mut self, mss: usize);

    /// `acked` bytes were acknowledged in order, outside of fast recovery; `in_flight` bytes were on their way before that.
    fn on_ack(&mut self, acked: usize, in_flight: usize);

    /// Fast recovery begins with `in_flight` bytes on their way.
    fn on_loss(&mut self, in_flight: usize);

    /// Fast recovery ended with `in_flight` bytes on their way.
    fn on_recovered(&mut self, in_flight: usize);

    /// The retransmission timer ran out. `first`: the oldest byte had not been sent again before.
    fn on_timeout(&mut self, in_flight: usize, first: bool);

    /// Nothing was sent for longer than a retransmission timeout.
    fn on_idle(&mut self);
}
