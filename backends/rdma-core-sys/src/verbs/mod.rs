//! `infiniband/verbs.h`: devices, memory, queues, work requests and completions; and what the header defines inline.

mod address;
mod builders;
mod context;
mod cq;
mod device;
mod event;
pub(crate) mod extended;
mod flow;
mod gid;
mod memory;
mod operations;
mod port;
mod qp;
mod qp_attr;
mod qp_ex;
mod readers;
mod wc;
mod wq;
mod wr;

pub use address::*;
pub use builders::*;
pub use context::*;
pub use cq::*;
pub use device::*;
pub use event::*;
pub use extended::*;
pub use flow::*;
pub use gid::*;
pub use memory::*;
pub use operations::*;
pub use port::*;
pub use qp::*;
pub use qp_attr::*;
pub use qp_ex::*;
pub use readers::*;
pub use wc::*;
pub use wq::*;
pub use wr::*;

#[cfg(test)]
pub(crate) const TABLES: &[crate::tests::table::Table] = &[
    address::TABLE,
    context::TABLE,
    cq::TABLE,
    device::TABLE,
    event::TABLE,
    flow::TABLE,
    gid::TABLE,
    memory::TABLE,
    port::TABLE,
    qp::TABLE,
    qp_attr::TABLE,
    qp_ex::TABLE,
    wc::TABLE,
    wq::TABLE,
    wr::TABLE,
];
