//! The kernel as the reference: the same socket calls, on Ringway in the simulator and on Linux, compared one by one.
//!
//! - [`sockets`]: a small set of nonblocking sockets on two hosts, as a trait that both worlds implement
//! - [`program`]: a program is a list of calls on them
//! - [`ringway`]: the simulated world
//! - [`lockstep`]: both worlds take a step, come to rest, and are compared
//!
//! The kernel's side, the programs and the list of known differences are the test's (`tests/reference`).

pub mod lockstep;
pub mod program;
pub mod ringway;
pub mod sockets;
