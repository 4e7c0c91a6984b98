//! Which queue of an interface a flow's frames come by, where its driver says how it spreads them (receive-side scaling): a Toeplitz hash of their addresses and ports
//! (Microsoft, "RSS hashing types"), which a table takes to a queue. Asked for by ethtool's ioctl (ETHTOOL_GRSSH, ETHTOOL_GRXFH; include/uapi/linux/ethtool.h).
//!
//! Nothing relies on it: the table may be another one a moment later, and a filter may be before it. What comes elsewhere finds its ring nevertheless ([`crate::strays`]).

use std::net::{IpAddr, SocketAddr};

use ringway_stack::device::Protocol;

use crate::interface::Asker;

const ETHTOOL_GRXFH: u32 = 0x29;
const ETHTOOL_GRSSH: u32 = 0x46;
/// Of `hfunc`: Toeplitz (ETH_RSS_HASH_TOP).
const TOEPLITZ: u32 = 1;
/// What is hashed (RXH_IP_SRC and RXH_IP_DST, RXH_L4_B_0_1 and RXH_L4_B_2_3).
const ADDRESSES: u32 = 1 << 4 | 1 << 5;
const PORTS: u32 = 1 << 6 | 1 << 7;
/// TCP_V4_FLOW, UDP_V4_FLOW, TCP_V6_FLOW, UDP_V6_FLOW.
const FLOW_TYPES: [u32; 4] = [1, 2, 5, 6];
/// Words of `struct ethtool_rxfh` before its table: the command, the context, the two sizes, the function (with three bytes beside it), and one that is unused.
const RXFH_WORDS: usize = 6;
/// Words of `struct ethtool_rxnfc`, without what follows it. (Of these, the fields are in the third.)
const RXNFC_WORDS: usize = 48;
/// No table is longer, and no key: a driver that says so is not believed.
const TABLE_MAX: u32 = 1 << 16;
const KEY_MAX: u32 = 1 << 10;
/// Bytes of a key that the hash of IPv6's addresses and ports takes: 36 to be hashed, and the window of four.
const KEY_MIN: usize = 40;

/// How an interface spreads what it receives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rss {
    key: Vec<u8>,
    table: Vec<u32>,
    /// Of each of [`FLOW_TYPES`], whether the ports are hashed; `None`: something else is.
    hashes_ports: [Option<bool>; 4],
}

impl Rss {
    /// As [`Rss::ask`], of the interface of that name.
    pub(crate) fn of_interface(name: &str) -> Option<Self> {
        Self::ask(&Asker::new(name).ok()?)
    }

    /// Asks an interface's driver. `None`: it does not say, or does something that is unknown here.
    fn ask(ask: &Asker) -> Option<Self> {
        let mut sizes = [0; RXFH_WORDS];
        sizes[0] = ETHTOOL_GRSSH;
        ask.ethtool(&mut sizes).ok()?;
        let (entries, key_len) = (sizes[2], sizes[3]);
        if entries == 0 || entries > TABLE_MAX || key_len > KEY_MAX {
            return None;
        }
        let mut answer = vec![0; RXFH_WORDS + entries as usize + (key_len as usize).div_ceil(4)];
        (answer[0], answer[2], answer[3]) = (ETHTOOL_GRSSH, entries, key_len);
        ask.ethtool(&mut answer).ok()?;
        let fields = FLOW_TYPES.map(|flow_type| {
            let mut words = [0; RXNFC_WORDS];
            (words[0], words[1]) = (ETHTOOL_GRXFH, flow_type);
            // (A number of 64 bits, aligned as such.)
            ask.ethtool(&mut words).ok().map(|()| u64::from(words[2]) | u64::from(words[3]) << 32)
        });
        Self::of(&answer, fields)
    }

    /// Of the answers.
    fn of(answer: &[u32], fields: [Option<u64>; 4]) -> Option<Self> {
        let (entries, key_len) = (answer[2] as usize, answer[3] as usize);
        // (Beside the function: what is done to the addresses before they are hashed, which is to be nothing.)
        let function = answer[4].to_ne_bytes();
        if function[..2] != [TOEPLITZ as u8, 0] {
            return None;
        }
        let rest = answer.get(RXFH_WORDS..)?;
        let table = rest.get(..entries)?.to_vec();
        let mut key: Vec<u8> = rest.get(entries..)?.iter().flat_map(|word| word.to_ne_bytes()).collect();
        key.truncate(key_len);
        // (Some cannot read their key, and show zeroes.)
        if key.len() < KEY_MIN || key.iter().all(|byte| *byte == 0) || table.is_empty() {
            return None;
        }
        let hashes_ports = fields.map(|fields| match fields {
            Some(fields) if fields == u64::from(ADDRESSES) => Some(false),
            Some(fields) if fields == u64::from(ADDRESSES | PORTS) => Some(true),
            _ => None,
        });
        Some(Self { key, table, hashes_ports })
    }

    /// The queue by which comes what is sent from `remote` to `local`.
    pub(crate) fn queue_of(&self, protocol: Protocol, local: SocketAddr, remote: SocketAddr) -> Option<u32> {
        let kind = usize::from(protocol == Protocol::Udp) + 2 * usize::from(local.is_ipv6());
        let mut input = Vec::with_capacity(36);
        for ip in [remote.ip(), local.ip()] {
            match ip {
                IpAddr::V4(ip) => input.extend(ip.octets()),
                IpAddr::V6(ip) => input.extend(ip.octets()),
            }
        }
        if self.hashes_ports[kind]? {
            [remote.port(), local.port()].into_iter().for_each(|port| input.extend(port.to_be_bytes()));
        }
        Some(self.table[self.hash(&input) as usize % self.table.len()])
    }

    /// For each bit that is set, the 32 bits of the key from there on.
    fn hash(&self, input: &[u8]) -> u32 {
        let key_at = |at: usize| u64::from(self.key.get(at).copied().unwrap_or(0));
        let mut window = (0..8).fold(0, |window, at| window << 8 | key_at(at));
        let mut hash = 0;
        for (at, byte) in input.iter().enumerate() {
            for bit in (0..8).rev() {
                if byte >> bit & 1 == 1 {
                    hash ^= (window >> 32) as u32;
                }
                window <<= 1;
            }
            window |= key_at(at + 8);
        }
        hash
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The key of the published vectors (Microsoft, "Verifying the RSS hash calculation").
    const KEY: [u8; 40] = [
        0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0, 0xd0, 0xca, 0x2b, 0xcb, 0xae, 0x7b,
        0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30, 0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
    ];

    /// Their destination and source, the hash of the addresses, and that with the ports.
    const VECTORS: [(&str, &str, u32, u32); 5] = [
        ("161.142.100.80:1766", "66.9.149.187:2794", 0x323e_8fc2, 0x51cc_c178),
        ("65.69.140.83:4739", "199.92.111.2:14230", 0xd718_262a, 0xc626_b0ea),
        ("12.22.207.184:38024", "24.19.198.95:12898", 0xd2d0_a5de, 0x5c2b_394a),
        ("[3ffe:2501:200:3::1]:1766", "[3ffe:2501:200:1fff::7]:2794", 0x2cc1_8cd5, 0x4020_7d3d),
        ("[fe80::200:f8ff:fe21:67cf]:38024", "[3ffe:1900:4545:3:200:f8ff:fe21:67cf]:44251", 0x4b61_e985, 0x02d1_feef),
    ];

    /// What a driver answers, with a table that takes each hash to its last seven bits.
    fn answer(function: [u8; 4], key: &[u8]) -> Vec<u32> {
        let mut words = vec![ETHTOOL_GRSSH, 0, 128, key.len() as u32, u32::from_ne_bytes(function), 0];
        words.extend(0..128);
        words.extend(key.chunks(4).map(|chunk| {
            let mut word = [0; 4];
            word[..chunk.len()].copy_from_slice(chunk);
            u32::from_ne_bytes(word)
        }));
        words
    }

    const BOTH: Option<u64> = Some((ADDRESSES | PORTS) as u64);
    const ALONE: Option<u64> = Some(ADDRESSES as u64);

    #[test]
    fn the_published_vectors_come_out() {
        let mut longer = KEY.to_vec();
        longer.extend([7; 12]);
        for key in [&KEY[..], &longer] {
            let rss = Rss::of(&answer([1, 0, 0, 0], key), [BOTH, ALONE, BOTH, ALONE]).unwrap();
            for (local, remote, addresses, with_ports) in VECTORS {
                let (local, remote) = (local.parse().unwrap(), remote.parse().unwrap());
                assert_eq!(rss.queue_of(Protocol::Tcp, local, remote), Some(with_ports % 128), "{local} {remote}");
                assert_eq!(rss.queue_of(Protocol::Udp, local, remote), Some(addresses % 128), "{local} {remote}");
            }
        }
    }

    #[test]
    fn what_is_not_understood_is_not_known() {
        let of = |function, key: &[u8], tcp4| Rss::of(&answer(function, key), [tcp4, BOTH, BOTH, BOTH]);
        // XOR, a symmetric hash, no key to be read, and one that is too short.
        assert_eq!(of([2, 0, 0, 0], &KEY, BOTH), None);
        assert_eq!(of([1, 1, 0, 0], &KEY, BOTH), None);
        assert_eq!(of([1, 0, 0, 0], &[0; 40], BOTH), None);
        assert_eq!(of([1, 0, 0, 0], &KEY[..20], BOTH), None);
        // Of one kind of flow alone.
        let ports = |fields| {
            of([1, 0, 0, 0], &KEY, fields).unwrap().queue_of(Protocol::Tcp, "10.0.0.1:1".parse().unwrap(), "10.0.0.2:2".parse().unwrap())
        };
        assert_eq!([ports(None), ports(Some(1 << 6))], [None; 2]);
        assert!(ports(BOTH).is_some());
    }
}
