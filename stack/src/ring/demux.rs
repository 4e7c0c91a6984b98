//! Demultiplexing: from a frame's addresses to the slot of its flow, in constant time.

use core::hash::{BuildHasher, Hasher};
use std::net::{Ipv4Addr, SocketAddrV4};

use hashbrown::HashMap;

use crate::device::Protocol;

/// A flow's addresses as two words; unspecified parts are zero, which no real flow has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FlowKey {
    addresses: u64,
    ports: u64,
}

impl FlowKey {
    #[inline]
    pub(super) fn new(protocol: Protocol, local: SocketAddrV4, remote: SocketAddrV4) -> Self {
        let protocol = match protocol {
            Protocol::Tcp => 6,
            Protocol::Udp => 17,
        };
        Self {
            addresses: u64::from(local.ip().to_bits()) << 32 | u64::from(remote.ip().to_bits()),
            ports: protocol << 32 | u64::from(local.port()) << 16 | u64::from(remote.port()),
        }
    }

    /// The key of a listener or a bound UDP socket.
    pub(super) fn bound(protocol: Protocol, local: SocketAddrV4) -> Self {
        Self::new(protocol, local, SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0))
    }

    pub(super) fn words(self) -> [u64; 2] {
        [self.addresses, self.ports]
    }
}

impl core::hash::Hash for FlowKey {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.addresses);
        state.write_u64(self.ports);
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

/// All flows of a ring.
#[derive(Debug)]
pub(super) struct Demux {
    flows: HashMap<FlowKey, u32, FlowHash>,
    /// The flow that the last frame was for: the next one's often too.
    last: Option<(FlowKey, u32)>,
}

impl Demux {
    pub(super) fn new(key: u64) -> Self {
        Self { flows: HashMap::with_hasher(FlowHash { key }), last: None }
    }

    /// `false`: that key is taken.
    pub(super) fn insert(&mut self, key: FlowKey, slot: u32) -> bool {
        if self.flows.contains_key(&key) {
            return false;
        }
        self.flows.insert(key, slot);
        // A new, more specific flow may shadow what the cache remembers.
        self.last = None;
        true
    }

    pub(super) fn remove(&mut self, key: FlowKey) {
        self.flows.remove(&key);
        self.last = None;
    }

    pub(super) fn len(&self) -> usize {
        self.flows.len()
    }

    pub(super) fn exact(&self, key: FlowKey) -> Option<u32> {
        self.flows.get(&key).copied()
    }

    /// The connection of these addresses; else the listener or bound socket, a full address before a wildcard.
    #[inline(always)]
    pub(super) fn find(&mut self, protocol: Protocol, local: SocketAddrV4, remote: SocketAddrV4) -> Option<u32> {
        let key = FlowKey::new(protocol, local, remote);
        match self.last {
            Some((last, slot)) if last == key => Some(slot),
            _ => self.look_up(key, protocol, local),
        }
    }

    #[inline(never)]
    fn look_up(&mut self, key: FlowKey, protocol: Protocol, local: SocketAddrV4) -> Option<u32> {
        let slot = self
            .exact(key)
            .or_else(|| self.exact(FlowKey::bound(protocol, local)))
            .or_else(|| self.exact(FlowKey::bound(protocol, SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, local.port()))))?;
        self.last = Some((key, slot));
        Some(slot)
    }
}
