//! What the VMA Extra API (seeds 000 to 002) promises of the stack and its devices, as cases: receiving by reference, deciding about packets
//! before the reader gets them, dummy sends, cyclic buffers, and how readiness is told.
//!
//! A case is a function over a [`Net`]: two rings on one network of some device. It is run on every device that can be opened here
//! (`tests/extra`), and named in `promises/*.toml`. What is promised of the C interface alone (a number, a structure, an environment
//! variable) has no case here: there is no library around the simulator.
#![expect(clippy::missing_errors_doc, reason = "every case's error is the same: which promise is broken, and how")]

pub mod cyclic;
pub mod dummy;
pub mod events;
pub mod lending;
mod net;
pub mod recv_filter;
pub mod sizes;
pub mod strides;

pub use crate::sentences::Side;
pub use net::{Net, PORT, Rx};
