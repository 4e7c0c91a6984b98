//! Many seeds: which ones, what counts as the same failure, how one is made small, and what it all came to.
//!
//! What needs threads, a clock or files is not here but in `ringway sim`, which runs what this module decides.

mod failure;
mod histogram;
mod minimise;
mod names;
mod seeds;
mod summary;

pub use failure::Failure;
pub use histogram::Histogram;
pub use minimise::{Minimal, minimise};
pub(crate) use minimise::{Shrunk, far_fewer_faults, shrink};
pub use names::struck;
pub use seeds::{Batch, RangeError, Seeds, Shard, ShardError};
pub use summary::Summary;
