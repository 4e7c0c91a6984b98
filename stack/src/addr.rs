//! Addresses of the link layer.

use core::fmt;

/// An Ethernet address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MacAddr(pub [u8; 6]);

impl MacAddr {
    /// All ones: every host.
    pub const BROADCAST: Self = Self([0xff; 6]);

    /// Whether they are one, as it costs least: by a word and a half.
    #[inline(always)]
    pub const fn is(self, other: Self) -> bool {
        let [a, b, c, d, e, f] = self.0;
        let [g, h, i, j, k, l] = other.0;
        let words = u32::from_ne_bytes([a, b, c, d]) ^ u32::from_ne_bytes([g, h, i, j]);
        let halves = u16::from_ne_bytes([e, f]) ^ u16::from_ne_bytes([k, l]);
        words | halves as u32 == 0
    }

    /// The address of a group: for IPv4, 01:00:5e and the group's low 23 bits (RFC 1112 s6.4), so that 32 groups share each; for IPv6, 33:33 and the low 32
    /// bits (RFC 2464 s7).
    pub const fn of_group(group: std::net::IpAddr) -> Self {
        match group {
            std::net::IpAddr::V4(group) => {
                let [_, b, c, d] = group.octets();
                Self([0x01, 0x00, 0x5e, b & 0x7f, c, d])
            }
            std::net::IpAddr::V6(group) => Self::of_group_v6(group),
        }
    }

    /// The address of an IPv6 group: 33:33 and the group's low 32 bits (RFC 2464 s7).
    pub const fn of_group_v6(group: std::net::Ipv6Addr) -> Self {
        let [.., a, b, c, d] = group.octets();
        Self([0x33, 0x33, a, b, c, d])
    }

    /// Whether the group bit is set (IEEE 802.3: multicast or broadcast).
    pub const fn is_multicast(self) -> bool {
        self.0[0] & 1 == 1
    }
}

impl fmt::Display for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}
