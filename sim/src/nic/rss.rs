//! Receive-side scaling: a hash over a flow's addresses and ports, and the table that spreads hashes over rings.

use std::net::IpAddr;

/// The verification suite's key (Microsoft, "Verifying the RSS hash calculation"), which most NICs start with.
const KEY: [u8; 40] = [
    0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0, 0xd0, 0xca, 0x2b, 0xcb, 0xae, 0x7b,
    0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30, 0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
];
/// Entries of the indirection table.
const TABLE_LEN: u32 = 128;

/// The Toeplitz hash of a packet's addresses, and of its ports if it has some.
pub(super) fn hash(src: IpAddr, dst: IpAddr, ports: Option<(u16, u16)>) -> u32 {
    let mut toeplitz =
        Toeplitz { hash: 0, window: u64::from_be_bytes([KEY[0], KEY[1], KEY[2], KEY[3], KEY[4], KEY[5], KEY[6], KEY[7]]), next: 8 };
    for address in [src, dst] {
        match address {
            IpAddr::V4(ip) => toeplitz.add(&ip.octets()),
            IpAddr::V6(ip) => toeplitz.add(&ip.octets()),
        }
    }
    if let Some((src, dst)) = ports {
        toeplitz.add(&src.to_be_bytes());
        toeplitz.add(&dst.to_be_bytes());
    }
    toeplitz.hash
}

/// Which of `members` rings a hash belongs to: the indirection table's entries go round.
pub(super) fn member(hash: u32, members: usize) -> usize {
    (hash % TABLE_LEN) as usize % members.max(1)
}

struct Toeplitz {
    hash: u32,
    /// The next 64 bits of the key, as far as they have been shifted in.
    window: u64,
    next: usize,
}

impl Toeplitz {
    fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            for bit in (0..8).rev() {
                if byte >> bit & 1 == 1 {
                    self.hash ^= (self.window >> 32) as u32;
                }
                self.window <<= 1;
            }
            // Eight bits have left the window at the top: eight more of the key come in.
            self.window |= u64::from(KEY.get(self.next).copied().unwrap_or(0));
            self.next += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Microsoft's published vectors: destination, source, hash over addresses, hash with TCP ports.
    const VECTORS: [(&str, u16, &str, u16, u32, u32); 8] = [
        ("161.142.100.80", 1766, "66.9.149.187", 2794, 0x323e_8fc2, 0x51cc_c178),
        ("65.69.140.83", 4739, "199.92.111.2", 14230, 0xd718_262a, 0xc626_b0ea),
        ("12.22.207.184", 38024, "24.19.198.95", 12898, 0xd2d0_a5de, 0x5c2b_394a),
        ("209.142.163.6", 2217, "38.27.205.30", 48228, 0x8298_9176, 0xafc7_327f),
        ("202.188.127.2", 1303, "153.39.163.191", 44251, 0x5d18_09c5, 0x10e8_28a2),
        ("3ffe:2501:200:3::1", 1766, "3ffe:2501:200:1fff::7", 2794, 0x2cc1_8cd5, 0x4020_7d3d),
        ("ff02::1", 4739, "3ffe:501:8::260:97ff:fe40:efab", 14230, 0x0f0c_461c, 0xdde5_1bbf),
        ("fe80::200:f8ff:fe21:67cf", 38024, "3ffe:1900:4545:3:200:f8ff:fe21:67cf", 44251, 0x4b61_e985, 0x02d1_feef),
    ];

    #[test]
    fn the_published_vectors_come_out() {
        for (dst, dst_port, src, src_port, addresses, with_ports) in VECTORS {
            let (src, dst) = (src.parse().unwrap(), dst.parse().unwrap());
            assert_eq!(hash(src, dst, None), addresses, "{src} {dst}");
            assert_eq!(hash(src, dst, Some((src_port, dst_port))), with_ports, "{src} {dst} with ports");
        }
    }

    #[test]
    fn every_member_gets_its_share() {
        let mut shares = [0; 3];
        (0..TABLE_LEN).for_each(|hash| shares[member(hash, 3)] += 1);
        assert_eq!(shares, [43, 43, 42]);
        assert_eq!(member(77, 1), 0);
    }
}
