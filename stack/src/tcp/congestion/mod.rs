//! Congestion control: how many bytes may be in flight, and how fast they may get there.
//!
//! Each connection has one of the controllers behind [`CongestionControl`], CUBIC unless its [`crate::tcp::Config`] says another, and tells it of time, round
//! trips, delivery rates, losses and timeouts. (Not yet of marks, which no connection agrees on.)
//!
//! - `control`: the trait, and what a sender tells
//! - `selection`: [`Algorithm`], by name or number
//! - `window`: what window-based controllers share; `prr`: how their window comes down ([`Prr`], RFC 9937)
//! - `reno`, `cubic` (RFC 9438), `dctcp` (RFC 8257), [`bbr`] (BBRv3): the controllers
//! - `resting`: what is left of a controller while nothing is in flight ([`Resting`])
//! - `hystart`: [`HyStart`], CUBIC's slow start (RFC 9406)
//! - `rate`: [`RateSampler`], the delivery rate by records of what was sent

pub mod bbr;
mod control;
mod cubic;
mod dctcp;
mod hystart;
mod prr;
mod rate;
mod reno;
mod resting;
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
pub use dctcp::Dctcp;
pub use hystart::{Growth, HyStart};
pub use prr::{Progress, Prr};
pub(super) use rate::{Alone, Latest, Summary};
pub use rate::{RateSample, RateSampler, Report, SendRecord, Supply};
pub use reno::Reno;
pub use resting::Resting;
pub use selection::{Algorithm, Beginning, Selected};
pub use window::Reduction;
