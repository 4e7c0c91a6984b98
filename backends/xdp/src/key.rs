//! What the map of flow rules is asked for: addresses and ports as on the wire, zeroes for whatever matches anything.

use std::net::{IpAddr, SocketAddr};

use ringway_stack::device::{FiveTuple, Protocol};

/// Where things lie in a key. An address of IPv4 is the first four bytes of its place.
pub(crate) const SOURCE: i16 = 0;
pub(crate) const DESTINATION: i16 = 16;
pub(crate) const PORTS: i16 = 32;
pub(crate) const PROTOCOL: i16 = 36;
pub(crate) const FAMILY: i16 = 37;
/// How long it is: the verifier wants the stack's bytes in eights.
pub(crate) const LEN: usize = 40;

pub(crate) const FAMILY_V4: u8 = 4;
pub(crate) const FAMILY_V6: u8 = 6;

/// A key.
pub(crate) type Key = [u8; LEN];

/// The key that frames of a flow are found by. Source is the peer.
pub(crate) fn of(flow: &FiveTuple) -> Key {
    let mut key = [0; LEN];
    let mut put = |at: usize, port_at: usize, address: SocketAddr| {
        match address.ip() {
            IpAddr::V4(ip) => key[at..at + 4].copy_from_slice(&ip.octets()),
            IpAddr::V6(ip) => key[at..at + 16].copy_from_slice(&ip.octets()),
        }
        key[port_at..port_at + 2].copy_from_slice(&address.port().to_be_bytes());
    };
    put(DESTINATION as usize, PORTS as usize + 2, flow.local);
    if let Some(remote) = flow.remote {
        put(SOURCE as usize, PORTS as usize, remote);
    }
    key[PROTOCOL as usize] = match flow.protocol {
        Protocol::Tcp => libc::IPPROTO_TCP as u8,
        Protocol::Udp => libc::IPPROTO_UDP as u8,
    };
    key[FAMILY as usize] = if flow.local.is_ipv4() { FAMILY_V4 } else { FAMILY_V6 };
    key
}
