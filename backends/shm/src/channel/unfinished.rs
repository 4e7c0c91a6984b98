//! What a member leaves behind when it dies: which of its TCP connections it was not through with.
//!
//! The kernel ends a dead process's connections by a FIN, or by a reset where bytes had come that the process had not read. Here nobody is left to do
//! so, and to the survivor an acknowledged byte looks the same whether it was read or not. So each member counts its unfinished connections with a
//! peer in its channel, by a hash of their addresses, and says up to which slot its stack has processed what the peer sent. The peer reads that
//! once the member is dead. Two connections with one hash look unfinished if either is: then a stream that had ended in order ends by a reset.

use std::net::{IpAddr, SocketAddr};

use ringway_stack::device::FiveTuple;
use ringway_stack::wire::{ethernet, ipv4, ipv6, tcp};

use crate::layout::{ADDRESSES, PROCESSED_AT, SLOT_DATA, SLOTS, UNFINISHED_AT, UNFINISHED_WORDS, slot_at};
use crate::link::Link;
use crate::protocol::{ReadWords, SlotWord, WriteWords};
use crate::stores::SharedMemory;
use crate::sync::Ordering;

/// Counts in a word.
const PER_WORD: usize = 4;
const COUNT_BITS: usize = 64 / PER_WORD;
const COUNT_MAX: u64 = (1 << COUNT_BITS) - 1;

/// The owner's end: the counts as they were stored last.
#[derive(Debug)]
pub(crate) struct Unfinished {
    words: Box<[u64; UNFINISHED_WORDS]>,
}

impl Default for Unfinished {
    fn default() -> Self {
        Self { words: Box::new([0; UNFINISHED_WORDS]) }
    }
}

impl Unfinished {
    /// Counts a connection, or counts it no more. `flow` is as it is here.
    #[inline]
    pub(crate) fn note(&mut self, own: &impl WriteWords, flow: &FiveTuple, is_unfinished: bool) {
        let Some(remote) = flow.remote else { return };
        let (word, shift) = place_of(flow.local, remote);
        let count = self.words[word] >> shift & COUNT_MAX;
        let changed = if is_unfinished { (count + 1).min(COUNT_MAX) } else { count.saturating_sub(1) };
        self.words[word] = self.words[word] & !(COUNT_MAX << shift) | changed << shift;
        // Release: whatever made it finished comes before.
        own.store(UNFINISHED_AT + word * 8, self.words[word], Ordering::Release);
    }
}

/// The survivor's end: a copy of what a dead member had said.
#[derive(Debug)]
pub(crate) struct Left {
    words: Box<[u64; UNFINISHED_WORDS]>,
    /// Connections, as they are here, of which it had not processed all bytes. `None`: it does not say.
    unprocessed: Option<Vec<(SocketAddr, SocketAddr)>>,
}

impl Left {
    /// `published`: frames that were ever put into our ring.
    pub(super) fn of(link: &Link, published: u64) -> Self {
        let mut words = Box::new([0; UNFINISHED_WORDS]);
        for (at, word) in words.iter_mut().enumerate() {
            *word = link.theirs.load(UNFINISHED_AT + at * 8, Ordering::Acquire);
        }
        let processed = link.theirs.load(PROCESSED_AT, Ordering::Acquire);
        // A member that is alive takes at most the whole ring at once.
        let is_possible = processed <= published && published - processed <= SLOTS as u64;
        let unprocessed = is_possible.then(|| (processed..published).filter_map(|slot| flow_of(&link.own, slot)).collect());
        Self { words, unprocessed }
    }

    /// Whether it was through with a connection. `flow` is as it is here.
    pub(crate) fn is_finished(&self, flow: &FiveTuple) -> bool {
        let Some(remote) = flow.remote else { return false };
        let (word, shift) = place_of(remote, flow.local);
        let is_counted = self.words[word] >> shift & COUNT_MAX > 0;
        !is_counted && self.unprocessed.as_ref().is_some_and(|flows| !flows.contains(&(flow.local, remote)))
    }
}

/// Where a connection is counted: a word, and a shift in it. The addresses are its owner's and the other's.
#[inline]
fn place_of(owner: SocketAddr, other: SocketAddr) -> (usize, usize) {
    let ports = u64::from(owner.port()) << 16 | u64::from(other.port());
    let addresses = match (owner.ip(), other.ip()) {
        (IpAddr::V4(owner), IpAddr::V4(other)) => u64::from(owner.to_bits()) << 32 | u64::from(other.to_bits()),
        (owner, other) => low_half(owner).rotate_left(32) ^ low_half(other),
    };
    // Fibonacci hashing (Knuth, The Art of Computer Programming 3, s6.4), of what differs between connections, and of what seldom does.
    let hash = (ports ^ addresses.rotate_left(17).wrapping_mul(0x9e37_79b9_7f4a_7c15)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let place = ((hash >> 32) as usize * (UNFINISHED_WORDS * PER_WORD)) >> 32;
    (place / PER_WORD, place % PER_WORD * COUNT_BITS)
}

/// What differs between the addresses of one network's hosts.
fn low_half(ip: IpAddr) -> u64 {
    match ip {
        IpAddr::V4(ip) => u64::from(ip.to_bits()),
        IpAddr::V6(ip) => ip.to_bits() as u64,
    }
}

/// The connection that a frame in our ring brings bytes for, if any: ours first.
fn flow_of(own: &SharedMemory, slot: u64) -> Option<(SocketAddr, SocketAddr)> {
    let at = slot_at(slot);
    let mut word = [0; 8];
    own.read(at, &mut word);
    let word = SlotWord::parse(u64::from_le_bytes(word)).ok()?;
    let mut head = [0; 256];
    let head = &mut head[..word.inline_len];
    own.read(at + SLOT_DATA, head.get_mut(ADDRESSES..)?);
    let (link, at) = ethernet::Header::parse(head).ok()?;
    let head = head.get(at..)?;
    let (src, dst, len, at) = match link.ethertype {
        ethernet::ETHERTYPE_IPV4 => {
            let (ip, at) = ipv4::Header::parse(head).ok().filter(|(ip, _)| ip.protocol == ipv4::PROTOCOL_TCP)?;
            (ip.src.into(), ip.dst.into(), usize::from(ip.total_len), at)
        }
        // (A stack's segments have no extension headers.)
        ethernet::ETHERTYPE_IPV6 => {
            let (ip, at) = ipv6::Header::parse(head).ok().filter(|(ip, _)| ip.next_header == ipv4::PROTOCOL_TCP)?;
            (ip.src.into(), ip.dst.into(), at + usize::from(ip.payload_len), at)
        }
        _ => return None,
    };
    let (tcp, tcp_len) = tcp::Header::parse(head.get(at..)?).ok()?;
    (len > at + tcp_len).then(|| (SocketAddr::new(src, tcp.src_port), SocketAddr::new(dst, tcp.dst_port)))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::net::Ipv4Addr;

    use ringway_stack::device::Protocol;

    use super::*;

    fn flow(local: u16, remote: u16) -> FiveTuple {
        let at = |port| SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port);
        FiveTuple { protocol: Protocol::Tcp, local: at(local), remote: Some(at(remote)) }
    }

    fn left(unfinished: &Unfinished) -> Left {
        Left { words: unfinished.words.clone(), unprocessed: Some(Vec::new()) }
    }

    #[test]
    fn what_is_counted_is_unfinished_until_it_is_counted_no_more() {
        let (own, _fd) = crate::memfd::create(c"unfinished-test", crate::layout::CHANNEL_BYTES).unwrap();
        let mut unfinished = Unfinished::default();
        // (Both ends are of one machine: the other end's ports are the other way round.)
        let (one, two) = (flow(80, 40_001), flow(80, 40_002));
        let seen = |flow: &FiveTuple| FiveTuple { protocol: Protocol::Tcp, local: flow.remote.unwrap(), remote: Some(flow.local) };
        for _ in 0..2 {
            unfinished.note(&own, &one, true);
        }
        assert!(!left(&unfinished).is_finished(&seen(&one)));
        assert!(left(&unfinished).is_finished(&seen(&two)));
        unfinished.note(&own, &one, false);
        assert!(!left(&unfinished).is_finished(&seen(&one)), "two were counted there");
        unfinished.note(&own, &one, false);
        assert!(left(&unfinished).is_finished(&seen(&one)));
        assert!(unfinished.words.iter().all(|&word| word == 0));
    }

    #[test]
    fn connections_that_follow_each_other_are_counted_apart() {
        let place = |port| place_of(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 80), SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port));
        let mut places: Vec<_> = (32_768..33_768).map(place).collect();
        places.sort_unstable();
        let most = places.chunk_by(|a, b| a == b).map(<[_]>::len).max();
        assert!(most <= Some(3), "{most:?} of a thousand in one place");
    }

    #[test]
    fn a_member_that_says_more_than_it_was_sent_is_believed_nothing() {
        let left = Left { words: Box::new([0; UNFINISHED_WORDS]), unprocessed: None };
        assert!(!left.is_finished(&flow(1, 2)));
    }
}
