//! Two machines with rsockets, a wire between them that breaks on demand, and virtual time.

mod campaign;
mod closing;
mod connecting;
mod datagrams;
mod direct;
mod hostile;
mod pair;
mod record;
mod shared;
mod streams;
