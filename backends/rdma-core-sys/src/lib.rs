//! Bindings of [rdma-core](https://github.com/linux-rdma/rdma-core): libibverbs, librdmacm, and the direct verbs of libmlx5.
//!
//! The types and constants are checked in; the libraries are opened at run time. So a program builds without rdma-core, libclang
//! or cmake, and starts on a machine without RDMA, where [`Ibverbs::get`] says what is missing. C's names are kept, so that what
//! a manual page says of `ibv_post_send` holds for [`ibv_post_send`].
//!
//! ```no_run
//! use std::ffi::CStr;
//!
//! use rdma_core_sys::{Ibverbs, ibv_device_attr};
//!
//! let verbs = Ibverbs::get()?;
//! // SAFETY: the list is used before it is freed, and the device before it is closed; every pointer is checked.
//! unsafe {
//!     let mut count = 0;
//!     let list = verbs.ibv_get_device_list(&mut count);
//!     if list.is_null() {
//!         return Err(std::io::Error::last_os_error().into()); // ENOSYS: the kernel has no RDMA
//!     }
//!     for index in 0..count as usize {
//!         let device = *list.add(index);
//!         let context = verbs.ibv_open_device(device);
//!         if context.is_null() {
//!             continue;
//!         }
//!         let mut attr = ibv_device_attr::default();
//!         if verbs.ibv_query_device(context, &mut attr) == 0 {
//!             println!("{:?}: {} queue pairs", CStr::from_ptr(verbs.ibv_get_device_name(device)), attr.max_qp);
//!         }
//!         verbs.ibv_close_device(context);
//!     }
//!     verbs.ibv_free_device_list(list);
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! - [`verbs`] is `infiniband/verbs.h`
//! - [`rdmacm`] is `rdma/rdma_cma.h`, `rdma/rdma_verbs.h`, and what they need of `infiniband/sa.h` and `infiniband/ib.h`
//! - [`mlx5dv`] is `infiniband/mlx5dv.h`
//! - [`load`] opens the libraries: [`Ibverbs`], [`Rdmacm`], [`Mlx5dv`]
//!
//! Everything is at the crate's root, too.
//!
//! # How C's functions are called
//!
//! - What a library exports is a method of its structure: `verbs.ibv_open_device(device)`. The field of the same name is the pointer. What
//!   libraries of some age lack is only a field, an `Option`.
//! - What the headers define inline is a function, for it goes through the tables of operations that an opened device has:
//!   `ibv_poll_cq(cq, 1, &mut wc)`. Where such a function calls an exported one, too, it is a method: [`Ibverbs::ibv_query_port`].
//! - An enumeration of C is an alias of an integer, and constants, because a library may give a value that is younger than this crate.
//! - A member of C without a name has one here: `wr.imm.imm_data` is C's `wr.imm_data`.
//! - Every structure has a `Default`: all bytes zero.
//!
//! # Safety
//!
//! Every function here is C's, and what it expects of its arguments, its manual page says. Common to all: pointers are not null
//! unless the manual allows it; objects were made by the same libraries and not yet destroyed; memory that a request names stays
//! until it completes. A function that goes through an operation which the object does not have panics with its name, where C
//! would jump to address zero.
//!
//! # Versions
//!
//! Layouts are those of rdma-core 44 (Debian 12). Later releases only add: fields at the end of structures that libraries fill in
//! up to a length or a mask that they are told, operations in front of [`verbs_context`], functions. What they added is not here.
#![expect(non_camel_case_types, non_snake_case, reason = "C's names")]
#![expect(clippy::missing_safety_doc, reason = "the crate's page says it for all, and manual pages for each")]
#![expect(clippy::too_many_arguments, reason = "they are C's functions")]

#[macro_use]
mod macros;

pub mod load;
pub mod mlx5dv;
pub mod rdmacm;
pub mod verbs;

#[cfg(test)]
mod tests;

pub use load::*;
pub use mlx5dv::*;
pub use rdmacm::*;
pub use verbs::*;

/// 16 bits in network order.
pub type __be16 = u16;
/// 32 bits in network order.
pub type __be32 = u32;
/// 64 bits in network order.
pub type __be64 = u64;

/// An object lacks an operation: the caller's fault.
#[cold]
#[inline(never)]
pub(crate) fn absent(op: &str) -> ! {
    panic!("the object has no operation {op}")
}
