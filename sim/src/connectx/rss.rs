//! Receive side scaling: the Toeplitz hash by a driver's key, over the fields that it chose.

use super::packet::{Headers, TCP, UDP};

/// Bytes of a key (rdma/mlx5-abi.h, `rx_key_len`: the kernel takes no other).
pub const KEY_LEN: usize = 40;

bitflags::bitflags! {
    /// What is hashed (rdma/mlx5-abi.h, `mlx5_rx_hash_fields`).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct HashFields: u64 {
        /// IPv4's source.
        const SRC_IPV4 = 1 << 0;
        /// IPv4's destination.
        const DST_IPV4 = 1 << 1;
        /// IPv6's source.
        const SRC_IPV6 = 1 << 2;
        /// IPv6's destination.
        const DST_IPV6 = 1 << 3;
        /// TCP's source port.
        const SRC_PORT_TCP = 1 << 4;
        /// TCP's destination port.
        const DST_PORT_TCP = 1 << 5;
        /// UDP's source port.
        const SRC_PORT_UDP = 1 << 6;
        /// UDP's destination port.
        const DST_PORT_UDP = 1 << 7;
    }
}

impl HashFields {
    /// Whether they are one combination that a hash can have: one version of IP at most, one transport at most, and no ports without
    /// addresses (rdma/mlx5-abi.h; the kernel's `create_rss_raw_qp_tir` gives EINVAL for the first two).
    pub fn is_possible(self) -> bool {
        let v4 = self.intersects(Self::SRC_IPV4 | Self::DST_IPV4);
        let v6 = self.intersects(Self::SRC_IPV6 | Self::DST_IPV6);
        let tcp = self.intersects(Self::SRC_PORT_TCP | Self::DST_PORT_TCP);
        let udp = self.intersects(Self::SRC_PORT_UDP | Self::DST_PORT_UDP);
        let (one_version, one_transport) = (!(v4 && v6), !(tcp && udp));
        one_version && one_transport && (v4 || v6 || !tcp && !udp)
    }
}

/// The hash of a frame; nothing where it has none of the fields, and then the card takes the table's first entry (`guessed`).
pub fn hash(headers: &Headers, key: &[u8; KEY_LEN], fields: HashFields) -> Option<u32> {
    let ip = headers.ip.as_ref()?;
    let len = if ip.v6 { 16 } else { 4 };
    let [src, dst] = match ip.v6 {
        true => [HashFields::SRC_IPV6, HashFields::DST_IPV6],
        false => [HashFields::SRC_IPV4, HashFields::DST_IPV4],
    };
    let [src_port, dst_port] = match ip.protocol {
        TCP => [HashFields::SRC_PORT_TCP, HashFields::DST_PORT_TCP],
        UDP => [HashFields::SRC_PORT_UDP, HashFields::DST_PORT_UDP],
        _ => [HashFields::empty(); 2],
    };
    let has = |field: HashFields| !field.is_empty() && fields.contains(field);
    let mut input = Vec::with_capacity(36);
    for (field, address) in [(src, &ip.src), (dst, &ip.dst)] {
        if has(field) {
            input.extend(&address[..len]);
        }
    }
    let ports = ip.ports.map_or([0; 2], |(src, dst)| [src, dst]);
    let addresses = !input.is_empty();
    for (field, port) in [(src_port, ports[0]), (dst_port, ports[1])] {
        if has(field) && ip.ports.is_some() {
            input.extend(port.to_be_bytes());
        }
    }
    // Ports are hashed behind the addresses that the driver chose; a frame of the other version of IP has neither.
    addresses.then(|| toeplitz(key, &input))
}

/// Microsoft, "RSS hashing functions": for each bit of the input that is set, the 32 bits of the key that begin there.
fn toeplitz(key: &[u8; KEY_LEN], input: &[u8]) -> u32 {
    let bit = |at: usize| u32::from(key[at / 8 % KEY_LEN] >> (7 - at % 8) & 1);
    let mut window = (0..32).fold(0, |window, at| window << 1 | bit(at));
    let mut hash = 0;
    for (at, set) in input.iter().flat_map(|byte| (0..8).rev().map(move |i| byte >> i & 1 != 0)).enumerate() {
        if set {
            hash ^= window;
        }
        window = window << 1 | bit(at + 32);
    }
    hash
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connectx::packet::Ip;

    /// Microsoft, "Verifying the RSS hash calculation".
    const KEY: [u8; KEY_LEN] = [
        0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0, 0xd0, 0xca, 0x2b, 0xcb, 0xae, 0x7b,
        0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30, 0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
    ];

    fn headers(v6: bool, src: &[u8], dst: &[u8], ports: (u16, u16)) -> Headers {
        let full = |address: &[u8]| core::array::from_fn(|i| address.get(i).copied().unwrap_or(0));
        let ip = Ip {
            v6,
            src: full(src),
            dst: full(dst),
            protocol: TCP,
            tos: 0,
            flow_label: 0,
            at: 14,
            l4: 34,
            end: 54,
            fragment: false,
            ports: Some(ports),
        };
        Headers { dst: [0; 6], src: [0; 6], vlan: None, ethertype: 0, ip: Some(ip) }
    }

    #[test]
    fn the_published_vectors_come_out() {
        let v4 = HashFields::SRC_IPV4 | HashFields::DST_IPV4;
        let tcp = HashFields::SRC_PORT_TCP | HashFields::DST_PORT_TCP;
        let one = headers(false, &[66, 9, 149, 187], &[161, 142, 100, 80], (2794, 1766));
        assert_eq!(hash(&one, &KEY, v4), Some(0x323e_8fc2));
        assert_eq!(hash(&one, &KEY, v4 | tcp), Some(0x51cc_c178));
        let v6 = HashFields::SRC_IPV6 | HashFields::DST_IPV6;
        let address = |text: &str| text.parse::<core::net::Ipv6Addr>().unwrap().octets();
        let one = headers(true, &address("3ffe:2501:200:1fff::7"), &address("3ffe:2501:200:3::1"), (2794, 1766));
        assert_eq!(hash(&one, &KEY, v6), Some(0x2cc1_8cd5));
        assert_eq!(hash(&one, &KEY, v6 | tcp), Some(0x4020_7d3d));
        assert_eq!(hash(&one, &KEY, v4 | tcp), None, "it has no address of IPv4");
        assert_eq!(hash(&Headers { ip: None, ..one }, &KEY, v6), None);
    }

    #[test]
    fn combinations_that_no_hash_has() {
        assert!((HashFields::SRC_IPV4 | HashFields::DST_PORT_UDP).is_possible() && HashFields::empty().is_possible());
        for impossible in [
            HashFields::SRC_IPV4 | HashFields::DST_IPV6,
            HashFields::SRC_IPV4 | HashFields::SRC_PORT_TCP | HashFields::SRC_PORT_UDP,
            HashFields::SRC_PORT_TCP,
        ] {
            assert!(!impossible.is_possible(), "{impossible:?}");
        }
    }
}
