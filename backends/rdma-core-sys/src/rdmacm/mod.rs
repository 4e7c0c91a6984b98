//! `rdma/rdma_cma.h` and `rdma/rdma_verbs.h`: connections; and what the headers define inline.

mod address;
mod connection;
mod helpers;

pub use address::*;
pub use connection::*;
pub use helpers::*;

#[cfg(test)]
pub(crate) const TABLES: &[crate::tests::table::Table] = &[address::TABLE, connection::TABLE];
