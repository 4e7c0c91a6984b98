//! What hosts say to each other: streams both ways, datagrams, and frames of their own. Whatever arrives is checked byte for byte.

pub(super) mod datagrams;
pub(super) mod frames;
pub(super) mod lanes;
pub(super) mod streams;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

pub(super) fn ip(host: usize) -> IpAddr {
    Ipv4Addr::new(10, 9, 0, 1 + host as u8).into()
}

pub(super) fn address(host: usize, port: u16) -> SocketAddr {
    SocketAddr::new(ip(host), port)
}

/// Bytes that are no others'.
pub(super) fn bytes(len: usize, salt: u64) -> Vec<u8> {
    (0..len as u64).map(|at| ((at / 7 + salt).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 32) as u8 ^ at as u8).collect()
}
