//! The driver under unmodified libibverbs and libmlx5, on the software ConnectX: each test begins itself anew with that preloaded, once or, where it has two
//! processes, twice.

mod agreement;
mod cyclic;
mod doorbells;
mod events;
mod failures;
mod frames;
mod library;
mod processes;
mod random;
mod rules;
mod sleep;
mod streams;
mod world;
mod wrong;
