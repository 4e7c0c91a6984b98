//! Messages of rtnetlink(7) to what a snapshot is made of.
//!
//! Attributes that are not known here are left out: newer kernels have more of them. What is known must be as long as it should be.

mod address;
mod link;
mod neighbour;
mod route;
mod rule;

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use netlink_packet_core::{NlaBuffer, NlasIterator};
use ringway_stack::net::Family;

use super::Error;

pub(super) use address::address;
pub(super) use link::link;
pub(super) use neighbour::neighbour;
pub(super) use route::{mtu, route};
pub(super) use rule::rule;

/// Some attributes: type and value of each.
pub(super) struct Attributes<'a> {
    what: &'static str,
    rest: NlasIterator<&'a [u8]>,
}

impl<'a> Attributes<'a> {
    /// Those in `bytes`. `what` they tell of.
    pub(super) fn new(what: &'static str, bytes: &'a [u8]) -> Self {
        Self { what, rest: NlasIterator::new(bytes) }
    }
}

impl<'a> Iterator for Attributes<'a> {
    type Item = Result<(u16, &'a [u8]), Error>;

    fn next(&mut self) -> Option<Self::Item> {
        let malformed = || Error::Malformed { what: self.what };
        let attribute: NlaBuffer<&'a [u8]> = match self.rest.next()? {
            Ok(attribute) => attribute,
            Err(_) => {
                // (Nothing tells where the next one begins.)
                self.rest = NlasIterator::new(&[]);
                return Some(Err(malformed()));
            }
        };
        let (kind, length) = (attribute.kind(), usize::from(attribute.length()));
        Some(attribute.into_inner().get(4..length).map(|value| (kind, value)).ok_or_else(malformed))
    }
}

/// A message's fixed part, and its attributes.
fn split<'a, const N: usize>(what: &'static str, payload: &'a [u8]) -> Result<(&'a [u8; N], Attributes<'a>), Error> {
    let (header, attributes) = payload.split_first_chunk().ok_or(Error::Malformed { what })?;
    Ok((header, Attributes::new(what, attributes)))
}

pub(super) fn u32_of(what: &'static str, value: &[u8]) -> Result<u32, Error> {
    value.try_into().map(u32::from_ne_bytes).map_err(|_| Error::Malformed { what })
}

fn u16_of(what: &'static str, value: &[u8]) -> Result<u16, Error> {
    value.try_into().map(u16::from_ne_bytes).map_err(|_| Error::Malformed { what })
}

fn u8_of(what: &'static str, value: &[u8]) -> Result<u8, Error> {
    value.first().copied().ok_or(Error::Malformed { what })
}

/// Text up to its zero.
fn text_of(value: &[u8]) -> Box<str> {
    let end = value.iter().position(|&byte| byte == 0).unwrap_or(value.len());
    String::from_utf8_lossy(&value[..end]).into()
}

/// An address of either family, by its length.
pub(super) fn ip_of(what: &'static str, value: &[u8]) -> Result<IpAddr, Error> {
    if let Ok(octets) = <[u8; 4]>::try_from(value) {
        return Ok(Ipv4Addr::from(octets).into());
    }
    let octets = <[u8; 16]>::try_from(value).map_err(|_| Error::Malformed { what })?;
    Ok(Ipv6Addr::from(octets).into())
}

/// `None`: neither IPv4 nor IPv6.
fn family_of(family: u8) -> Option<Family> {
    match i32::from(family) {
        libc::AF_INET => Some(Family::V4),
        libc::AF_INET6 => Some(Family::V6),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
