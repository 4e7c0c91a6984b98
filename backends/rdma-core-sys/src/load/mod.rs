//! Opening the libraries, and their exported functions.
//!
//! A library once opened stays until the process ends: contexts, queues and the pointers here are in it. Functions are looked up
//! as the linker would: of those that a library has in several versions (`ibv_query_device`), the newest.

#[macro_use]
mod library;

mod error;
mod ibverbs;
mod inline;
mod mlx5;
mod rdmacm;

pub use error::LoadError;
pub use ibverbs::Ibverbs;
pub use library::Symbol;
pub use mlx5::Mlx5dv;
pub use rdmacm::Rdmacm;
