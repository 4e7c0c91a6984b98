//! `infiniband/mlx5dv.h`: mlx5's queues as they lie in memory, and what the header defines inline.

mod builders;
mod context;
mod cqe;
mod create;
mod devx;
mod devx_bits;
mod obj;
mod segments;
mod wqe;

pub use builders::*;
pub use context::*;
pub use cqe::*;
pub use create::*;
pub use devx::*;
pub use devx_bits::*;
pub use obj::*;
pub use segments::*;
pub use wqe::*;

#[cfg(test)]
pub(crate) const TABLES: &[crate::tests::table::Table] = &[context::TABLE, cqe::TABLE, create::TABLE, devx::TABLE, obj::TABLE, wqe::TABLE];
