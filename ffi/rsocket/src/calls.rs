//! What the calls do. (`exports` has their C forms.)
//!
//! - `open`: from rsocket to rclose; `connect`: rconnect
//! - `stream`: bytes; `datagram`: datagrams; `direct`: riomap and riowrite
//! - `options`: rsetsockopt, rgetsockopt, rfcntl; `poll`, `select`, `repoll`: waits for several

pub(crate) mod connect;
pub(crate) mod datagram;
pub(crate) mod direct;
pub(crate) mod open;
pub(crate) mod options;
pub(crate) mod poll;
pub(crate) mod repoll;
pub(crate) mod select;
pub(crate) mod stream;
