//! What the calls do. (`exports` has their C forms.)
//!
//! - `open`: from rsocket to rclose; `connect`: rconnect
//! - `stream`: bytes; `datagram`: datagrams; `direct`: riomap and riowrite
//! - `options`: rsetsockopt, rgetsockopt, rfcntl; `poll`: rpoll and rselect

pub(crate) mod connect;
pub(crate) mod datagram;
pub(crate) mod direct;
pub(crate) mod open;
pub(crate) mod options;
pub(crate) mod poll;
pub(crate) mod select;
pub(crate) mod stream;
