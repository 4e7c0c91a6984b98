//! Congestion controllers on a modelled bottleneck: virtual time, no I/O, the same figures in each run.
//!
//! - `path`: the bottleneck: rate, delay, buffer, marks, random loss
//! - `flow`: a sender with SACK, loss detection, timeouts and pacing, and its receiver
//! - `world`: both together
//! - `alone`, `together`, `lossy`, `bbr`, `goodput`, `properties`: what is claimed

mod alone;
mod bbr;
mod flow;
mod goodput;
mod lossy;
mod path;
mod properties;
mod together;
mod world;
