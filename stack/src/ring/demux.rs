//! Demultiplexing: from a frame's addresses to the slot of its flow, in constant time.

use core::hash::{BuildHasher, Hasher};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use arrayvec::ArrayVec;
use hashbrown::HashMap;

use super::types::Reuse;
use crate::device::Protocol;
use crate::mutants::{Mutant, Mutation};

/// Addresses, ports and protocol of a flow; unspecified parts are zero, which no real flow has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum FlowKey {
    V4(KeyV4),
    V6(KeyV6),
}

/// Of IPv4: two words, since there may be a million of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct KeyV4 {
    addresses: u64,
    ports: u64,
}

/// Of IPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct KeyV6 {
    local: u128,
    remote: u128,
    ports: u64,
}

impl KeyV4 {
    /// Of the connection between an address and port of ours, and a peer's.
    #[inline(always)]
    pub(super) fn of_tcp((local, local_port): (Ipv4Addr, u16), (remote, remote_port): (Ipv4Addr, u16)) -> Self {
        Self { addresses: addresses_of(local, remote), ports: ports_of(Protocol::Tcp, local_port, remote_port) }
    }

    /// The same, of a segment that came: `hosts` is the peer's address and ours, `ports` are its port and ours.
    #[inline(always)]
    pub(super) fn of_segment(hosts: u64, ports: u32) -> Self {
        Self { addresses: hosts.rotate_left(32), ports: TCP_PORTS | u64::from(ports.rotate_left(16)) }
    }
}

/// The protocol's number, above the ports.
const TCP_PORTS: u64 = 6 << 32;

#[inline(always)]
fn addresses_of(local: Ipv4Addr, remote: Ipv4Addr) -> u64 {
    u64::from(local.to_bits()) << 32 | u64::from(remote.to_bits())
}

/// Both ports, and the protocol's number.
#[inline(always)]
fn ports_of(protocol: Protocol, local: u16, remote: u16) -> u64 {
    let protocol = match protocol {
        Protocol::Tcp => 6,
        Protocol::Udp => 17,
    };
    protocol << 32 | u64::from(local) << 16 | u64::from(remote)
}

impl FlowKey {
    /// Both addresses are of one family; where they are not, the remote one is none.
    #[inline]
    pub(super) fn new(protocol: Protocol, local: SocketAddr, remote: SocketAddr) -> Self {
        let ports = ports_of(protocol, local.port(), remote.port());
        match (local.ip(), remote.ip()) {
            (IpAddr::V4(local), remote) => {
                let remote = if let IpAddr::V4(remote) = remote { remote } else { Ipv4Addr::UNSPECIFIED };
                Self::V4(KeyV4 { addresses: addresses_of(local, remote), ports })
            }
            (IpAddr::V6(local), remote) => {
                let remote = if let IpAddr::V6(remote) = remote { remote.to_bits() } else { 0 };
                Self::V6(KeyV6 { local: local.to_bits(), remote, ports })
            }
        }
    }

    /// The key of a listener or a bound UDP socket.
    pub(super) fn bound(protocol: Protocol, local: SocketAddr) -> Self {
        Self::new(protocol, local, any_of(local))
    }

    /// Of UDP: the family, and the local port.
    fn datagram_port(self) -> Option<(bool, u16)> {
        let (is_v4, ports) = match self {
            Self::V4(key) => (true, key.ports),
            Self::V6(key) => (false, key.ports),
        };
        (ports >> 32 == 17).then_some((is_v4, (ports >> 16) as u16))
    }

    /// The key as words, for a keyed hash over all of it.
    pub(super) fn words(self) -> ArrayVec<u64, 5> {
        match self {
            Self::V4(key) => [key.addresses, key.ports].into_iter().collect(),
            Self::V6(KeyV6 { local, remote, ports }) => {
                [(local >> 64) as u64, local as u64, (remote >> 64) as u64, remote as u64, ports].into_iter().collect()
            }
        }
    }
}

/// No address and no port, of the same family.
pub(super) fn any_of(address: SocketAddr) -> SocketAddr {
    let ip = if address.is_ipv4() { IpAddr::V4(Ipv4Addr::UNSPECIFIED) } else { IpAddr::V6(Ipv6Addr::UNSPECIFIED) };
    SocketAddr::new(ip, 0)
}

impl core::hash::Hash for KeyV4 {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.addresses);
        state.write_u64(self.ports);
    }
}

impl core::hash::Hash for KeyV6 {
    fn hash<H: Hasher>(&self, state: &mut H) {
        FlowKey::V6(*self).words().iter().for_each(|word| state.write_u64(*word));
    }
}

/// What has a key: a table for each family.
#[derive(Debug)]
struct Table {
    v4: HashMap<KeyV4, u32, FlowHash>,
    v6: HashMap<KeyV6, u32, FlowHash>,
}

impl Table {
    #[inline]
    fn get(&self, key: &FlowKey) -> Option<&u32> {
        match key {
            FlowKey::V4(key) => self.v4.get(key),
            FlowKey::V6(key) => self.v6.get(key),
        }
    }

    fn insert(&mut self, key: FlowKey, entry: u32) {
        match key {
            FlowKey::V4(key) => self.v4.insert(key, entry),
            FlowKey::V6(key) => self.v6.insert(key, entry),
        };
    }

    fn remove(&mut self, key: &FlowKey) {
        match key {
            FlowKey::V4(key) => self.v4.remove(key),
            FlowKey::V6(key) => self.v6.remove(key),
        };
    }

    fn len(&self) -> usize {
        self.v4.len() + self.v6.len()
    }

    fn hash_of(&self, key: FlowKey) -> u64 {
        match key {
            FlowKey::V4(key) => self.v4.hasher().hash_one(key),
            FlowKey::V6(key) => self.v6.hasher().hash_one(key),
        }
    }
}

/// A keyed multiply-and-fold hash: a few cycles, and a peer that doesn't know the key cannot choose colliding ports.
#[derive(Clone, Copy, Debug)]
pub(super) struct FlowHash {
    key: u64,
}

impl BuildHasher for FlowHash {
    type Hasher = FlowHasher;
    #[inline]
    fn build_hasher(&self) -> FlowHasher {
        FlowHasher(self.key)
    }
}

/// See [`FlowHash`].
pub(super) struct FlowHasher(u64);

impl Hasher for FlowHasher {
    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }
    #[inline]
    fn write_u64(&mut self, word: u64) {
        // An odd constant from the digits of the golden ratio; the fold mixes the product's high half back in.
        let product = u128::from(self.0 ^ word) * u128::from(0x9e37_79b9_7f4a_7c15_u64);
        self.0 = (product as u64) ^ (product >> 64) as u64;
    }
}

/// A flow's slot, or its group with this bit.
const GROUP: u32 = 1 << 31;

/// The sockets of one key, where they share it.
#[derive(Debug, Default)]
struct Group {
    /// In the order in which they came.
    members: Vec<(u32, Reuse)>,
    /// Those among whom what arrives is shared out. Invariant: it is empty only while the group is not in use.
    targets: Vec<u32>,
}

impl Group {
    /// Linux looks at the youngest socket first: with SO_REUSEPORT it stands for its whole group (udp4_lib_lookup2, inet_lhash2_lookup).
    fn settle(&mut self) {
        self.targets.clear();
        match self.members.last() {
            Some((_, Reuse::Port)) => {
                let sharers = self.members.iter().filter(|(_, reuse)| *reuse == Reuse::Port);
                self.targets.extend(sharers.map(|(slot, _)| *slot));
            }
            Some((slot, _)) => self.targets.push(*slot),
            None => {}
        }
    }
}

/// All flows of a ring.
#[derive(Debug)]
pub(super) struct Demux {
    flows: Table,
    groups: Vec<Group>,
    free_groups: Vec<u32>,
    /// Sockets of groups beyond the first of each.
    sharers: usize,
    /// How many UDP sockets there are of each family and port, and how many ports have more than one.
    datagram_ports: BTreeMap<(bool, u16), u32>,
    shared_datagram_ports: usize,
    /// The flow that the last frame was for: the next one's often too.
    last: Option<(FlowKey, u32)>,
    pub(super) mutation: Mutation,
}

impl Demux {
    pub(super) fn new(key: u64) -> Self {
        let flows = Table { v4: HashMap::with_hasher(FlowHash { key }), v6: HashMap::with_hasher(FlowHash { key }) };
        Self {
            flows,
            groups: Vec::new(),
            free_groups: Vec::new(),
            sharers: 0,
            datagram_ports: BTreeMap::new(),
            shared_datagram_ports: 0,
            last: None,
            mutation: Mutation::HEALTHY,
        }
    }

    /// `false`: that key is taken.
    pub(super) fn insert(&mut self, key: FlowKey, slot: u32) -> bool {
        if self.flows.get(&key).is_some() {
            return false;
        }
        self.flows.insert(key, slot);
        self.count_port(key, true);
        // A new, more specific flow may shadow what the cache remembers.
        if !self.mutation.is(Mutant::CachedFlowShadows) {
            self.last = None;
        }
        true
    }

    /// Whether a socket that stands so to others may have the key as well.
    pub(super) fn admits(&self, key: FlowKey, reuse: Reuse) -> bool {
        match self.flows.get(&key) {
            None => true,
            Some(_) if reuse == Reuse::No => false,
            Some(entry) => entry & GROUP != 0,
        }
    }

    /// As [`Demux::insert`], for a socket that may share the key.
    pub(super) fn join(&mut self, key: FlowKey, slot: u32, reuse: Reuse) -> bool {
        if reuse == Reuse::No {
            return self.insert(key, slot);
        }
        let index = match self.flows.get(&key) {
            Some(entry) if entry & GROUP == 0 => return false,
            Some(entry) => {
                self.sharers += 1;
                entry & !GROUP
            }
            None => {
                let index = self.free_groups.pop().unwrap_or(self.groups.len() as u32);
                if index as usize == self.groups.len() {
                    self.groups.push(Group::default());
                }
                self.flows.insert(key, index | GROUP);
                index
            }
        };
        let group = &mut self.groups[index as usize];
        group.members.push((slot, reuse));
        group.settle();
        self.count_port(key, true);
        if !self.mutation.is(Mutant::SharedJoinLeavesCache) {
            self.last = None;
        }
        true
    }

    /// Takes a socket's key away from it, if it has it, whether or not it shares it.
    pub(super) fn leave(&mut self, key: FlowKey, slot: u32) {
        let Some(&entry) = self.flows.get(&key) else { return };
        self.last = None;
        if entry & GROUP == 0 {
            if entry == slot {
                self.flows.remove(&key);
                self.count_port(key, false);
            }
            return;
        }
        let index = entry & !GROUP;
        let group = &mut self.groups[index as usize];
        let Some(at) = group.members.iter().position(|(member, _)| *member == slot) else { return };
        group.members.remove(at);
        if !self.mutation.is(Mutant::ShareLeaverFound) {
            group.settle();
        }
        let is_empty = group.members.is_empty();
        self.count_port(key, false);
        if is_empty {
            self.flows.remove(&key);
            self.free_groups.push(index);
        } else {
            self.sharers -= 1;
        }
    }

    pub(super) fn remove(&mut self, key: FlowKey) {
        self.flows.remove(&key);
        if !self.mutation.is(Mutant::CachedFlowOutlives) {
            self.last = None;
        }
    }

    /// A UDP socket has come, or has gone.
    fn count_port(&mut self, key: FlowKey, comes: bool) {
        let Some(port) = key.datagram_port() else { return };
        let count = self.datagram_ports.entry(port).or_default();
        match (comes, *count) {
            (true, before) => {
                *count += 1;
                self.shared_datagram_ports += usize::from(before == 1);
            }
            (false, 2) => {
                *count = 1;
                self.shared_datagram_ports -= 1;
            }
            (false, 3..) => *count -= 1,
            (false, _) => _ = self.datagram_ports.remove(&port),
        }
    }

    /// Whether every UDP socket has its port alone: then a datagram for that port is its own, or nobody's.
    pub(super) fn has_datagram_ports_apart(&self) -> bool {
        self.shared_datagram_ports == 0
    }

    /// How many sockets have a key here.
    pub(super) fn len(&self) -> usize {
        self.flows.len() + self.sharers
    }

    /// The one that has a key that is not shared: a connection's.
    pub(super) fn exact(&self, key: FlowKey) -> Option<u32> {
        self.flows.get(&key).copied().filter(|entry| entry & GROUP == 0)
    }

    /// The connection of these addresses, or the UDP socket with that peer; else the listener or bound socket, a full address before a wildcard. Of those that share a key, the
    /// one whose turn these addresses are.
    #[inline(always)]
    pub(super) fn find(&mut self, protocol: Protocol, local: SocketAddr, remote: SocketAddr) -> Option<u32> {
        let key = FlowKey::new(protocol, local, remote);
        match self.last {
            Some((last, slot)) if last == key => Some(slot),
            _ => self.look_up(key, protocol, local, remote),
        }
    }

    /// The flow that the last frame was for, if this one has the same addresses.
    #[inline(always)]
    pub(super) fn same_as_last(&self, key: KeyV4) -> Option<u32> {
        match self.last {
            Some((FlowKey::V4(last), slot)) if last == key => Some(slot),
            _ => None,
        }
    }

    #[inline(never)]
    fn look_up(&mut self, key: FlowKey, protocol: Protocol, local: SocketAddr, remote: SocketAddr) -> Option<u32> {
        let any = SocketAddr::new(any_of(local).ip(), local.port());
        // (A UDP socket may have a peer and every local address.)
        let mut keys = [key, FlowKey::new(protocol, any, remote), FlowKey::bound(protocol, local), FlowKey::bound(protocol, any)];
        if self.mutation.is(Mutant::WildcardPreferred) {
            keys.swap(2, 3);
        }
        let entry = keys.iter().find_map(|key| self.flows.get(key))?;
        let slot = if entry & GROUP == 0 { *entry } else { self.share_out(entry & !GROUP, key)? };
        self.last = Some((key, slot));
        Some(slot)
    }

    /// Whose turn a pair of addresses is.
    fn share_out(&self, group: u32, key: FlowKey) -> Option<u32> {
        let targets = &self.groups.get(group as usize)?.targets;
        if let [only] = targets[..] {
            return Some(only);
        }
        if self.mutation.is(Mutant::ReusePortUnbalanced) {
            return targets.first().copied();
        }
        let hash = self.flows.hash_of(key);
        // The high bits of a product share out evenly what a remainder would not.
        let turn = (u128::from(hash) * targets.len() as u128) >> 64;
        targets.get(turn as usize).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    fn found(demux: &mut Demux, to: &str, from: u16) -> Option<u32> {
        demux.find(Protocol::Udp, address(to), SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), from))
    }

    #[test]
    fn the_most_specific_socket_is_found_whatever_came_before() {
        let mut demux = Demux::new(1);
        let peer = address("127.0.0.1:5000");
        let local = address("127.0.0.1:80");
        assert!(demux.join(FlowKey::new(Protocol::Udp, local, peer), 3, Reuse::Address));
        assert_eq!((found(&mut demux, "127.0.0.1:80", 5000), found(&mut demux, "127.0.0.1:80", 5001)), (Some(3), None));
        assert!(demux.join(FlowKey::bound(Protocol::Udp, local), 2, Reuse::Address));
        assert!(demux.join(FlowKey::bound(Protocol::Udp, address("0.0.0.0:80")), 1, Reuse::Address));
        assert_eq!((found(&mut demux, "127.0.0.1:80", 5000), found(&mut demux, "127.0.0.1:80", 5001)), (Some(3), Some(2)));
        assert_eq!(found(&mut demux, "127.0.0.2:80", 5000), Some(1));
        demux.leave(FlowKey::new(Protocol::Udp, local, peer), 3);
        assert_eq!(found(&mut demux, "127.0.0.1:80", 5000), Some(2));
    }

    #[test]
    fn of_those_that_share_an_address_the_youngest_is_found_or_all_of_its_group_in_turn() {
        let mut demux = Demux::new(7);
        let key = FlowKey::bound(Protocol::Udp, address("127.0.0.1:80"));
        assert!(demux.join(key, 1, Reuse::Address) && demux.join(key, 2, Reuse::Address));
        assert!(!demux.admits(key, Reuse::No) && !demux.insert(key, 9));
        assert_eq!(found(&mut demux, "127.0.0.1:80", 5000), Some(2));
        for slot in 3..7 {
            assert!(demux.join(key, slot, Reuse::Port));
        }
        let mut counts = [0; 8];
        for from in 1000..2000 {
            let slot = found(&mut demux, "127.0.0.1:80", from).unwrap();
            assert_eq!(found(&mut demux, "127.0.0.1:80", from), Some(slot), "the same addresses, the same flow");
            counts[slot as usize] += 1;
        }
        assert!(counts[..3] == [0; 3] && counts[3..7].iter().all(|&count| count > 150), "{counts:?}");
        assert_eq!(demux.len(), 6);
        for slot in 3..7 {
            demux.leave(key, slot);
        }
        assert_eq!(found(&mut demux, "127.0.0.1:80", 5000), Some(2));
        demux.leave(key, 2);
        demux.leave(key, 1);
        assert_eq!((found(&mut demux, "127.0.0.1:80", 5000), demux.len()), (None, 0));
        assert!(demux.insert(key, 9) && !demux.join(key, 8, Reuse::Port));
    }
}
