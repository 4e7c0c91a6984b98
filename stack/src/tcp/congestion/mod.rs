//! Congestion control: how many bytes may be in flight, and how fast they may get there.
//!
//! Connections use `NewReno` by way of `Controller`, which is told neither time nor round trips nor rates nor marks. All else here is beside
//! that, and no connection uses it so far: [`CongestionControl`], which is told all of it, controllers behind it, and their parts.
//!
//! - `control`: the trait, and what a sender tells
//! - `selection`: [`Algorithm`], by name or number
//! - `window`: what window-based controllers share; `prr`: how their window comes down ([`Prr`], RFC 9937)
//! - `reno`, `cubic` (RFC 9438), `dctcp` (RFC 8257), [`bbr`] (BBRv3): the controllers
//! - `hystart`: [`HyStart`], CUBIC's slow start (RFC 9406)
//! - `rate`: [`RateSampler`], the delivery rate by records of what was sent

pub mod bbr;
mod control;
mod cubic;
mod dctcp;
mod hystart;
mod newreno;
mod prr;
mod rate;
mod reno;
mod selection;
#[cfg(test)]
mod tests;
mod window;

pub use bbr::Bbr;
pub use control::{
    Ack, Cause, Congestion, CongestionControl, INITIAL_SEGMENTS, Idle, Lost, MSS_MAX, Phase, RATE_MAX, Recovered, Sending, Timeout, Undo,
    WINDOW_MAX,
};
pub use cubic::Cubic;
pub use dctcp::{Dctcp, Echo};
pub use hystart::{Growth, HyStart};
pub(super) use newreno::NewReno;
pub use prr::{Progress, Prr};
pub use rate::{RateSample, RateSampler, SendRecord, Supply};
pub use reno::Reno;
pub use selection::{Algorithm, Beginning, Selected};
pub use window::Reduction;

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
