//! Frames between the rings of one interface. Which of its queues a frame comes by the interface decides (RSS), or whoever sends on the other side of a veth pair; and a
//! queue is one ring's. So what comes for a connection may come to a ring that does not have it: an answer to a connection that was opened without knowing where its
//! answers would come; what is sent after the interface was told to spread otherwise; an ICMP error, which comes from a router. Such a frame is copied into the inbox
//! of the ring that has the flow where the device knows which that is, and else goes from ring to ring until one has it. What no ring has, the last one answers.
//!
//! A SYN finds a listener on each ring. Of one that was sent again, and comes by another queue than the first time, the first ring knows what it has answered: so it goes
//! there.

use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;
use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::RawFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

use ringway_host::EventFd;
use ringway_stack::device::{FiveTuple, Protocol};
use ringway_stack::time::Instant;
use ringway_stack::wire::{ethernet, ipv4, ipv6, tcp};

/// Frames in one inbox. More are lost, as where a queue is full.
const INBOX_MAX: usize = 4096;
/// Where SYNs came is known for so long, at least: until the last one of a connect that nobody answers has been sent (tcp(7), tcp_syn_retries), but for the slowest.
const SYNS_FOR: Duration = Duration::from_secs(64);
/// So many of them, at least.
const SYNS_MAX: usize = 1 << 14;

/// A frame that came to another ring.
#[derive(Debug)]
pub(crate) struct Stray {
    pub(crate) bytes: Box<[u8]>,
    pub(crate) path: Path,
}

/// Where it has been.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Path {
    /// Whose queue it came by.
    pub(crate) came_to: u32,
    /// How many rings have looked at it.
    pub(crate) looked: u32,
}

/// What the rings of an interface have in common.
#[derive(Debug)]
pub(crate) struct Exchange {
    inboxes: Vec<Inbox>,
    syns: Mutex<Syns>,
}

#[derive(Debug)]
struct Inbox {
    strays: Mutex<VecDeque<Stray>>,
    has_some: AtomicBool,
    wakes: EventFd,
}

/// To which ring the first SYN of a connection came. Those of the last [`SYNS_FOR`], and of as long before.
#[derive(Debug, Default)]
struct Syns {
    now: HashMap<FiveTuple, u32>,
    before: HashMap<FiveTuple, u32>,
    since: Instant,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Exchange {
    /// For so many rings.
    pub(crate) fn new(rings: u32) -> io::Result<Self> {
        let inbox = |_| Ok(Inbox { strays: Mutex::default(), has_some: AtomicBool::new(false), wakes: EventFd::new()? });
        Ok(Self { inboxes: (0..rings).map(inbox).collect::<io::Result<_>>()?, syns: Mutex::default() })
    }

    /// The ring that looks at a frame next. `None`: all have.
    pub(crate) fn next(&self, ring: u32, path: Path) -> Option<u32> {
        let rings = self.inboxes.len() as u32;
        (path.looked < rings).then_some((ring + 1) % rings)
    }

    /// Gives a ring a frame.
    pub(crate) fn put(&self, ring: u32, stray: Stray) {
        let inbox = &self.inboxes[ring as usize];
        let mut strays = lock(&inbox.strays);
        if strays.len() < INBOX_MAX {
            strays.push_back(stray);
        }
        if !inbox.has_some.swap(true, Ordering::Release) {
            inbox.wakes.signal();
        }
    }

    /// Whether a ring has some.
    #[inline]
    pub(crate) fn has_some(&self, ring: u32) -> bool {
        self.inboxes[ring as usize].has_some.load(Ordering::Acquire)
    }

    /// The oldest of them, if it has come that way.
    pub(crate) fn take(&self, ring: u32, way: Option<Path>) -> Option<Stray> {
        let inbox = &self.inboxes[ring as usize];
        let mut strays = lock(&inbox.strays);
        let is_meant = strays.front().is_some_and(|stray| way.is_none_or(|way| stray.path == way));
        let stray = if is_meant { strays.pop_front() } else { None };
        if strays.is_empty() {
            inbox.has_some.store(false, Ordering::Relaxed);
            inbox.wakes.clear();
        }
        stray
    }

    /// Readable while a ring has some.
    pub(crate) fn fd(&self, ring: u32) -> RawFd {
        self.inboxes[ring as usize].wakes.fd()
    }

    /// Whether a frame that has come to that ring is a SYN that another one had before, which is given it.
    #[inline]
    pub(crate) fn takes_syn(&self, now: Instant, bytes: &[u8], ring: u32) -> bool {
        if !is_syn(bytes).unwrap_or(false) {
            return false;
        }
        let Some((ends, true)) = segment(bytes) else { return false };
        let first = self.of_syn(now, ends, ring);
        if first != ring {
            self.put(first, Stray { bytes: bytes.into(), path: Path { came_to: ring, looked: 1 } });
        }
        first != ring
    }

    /// The ring that a SYN is for, which has come to that one.
    pub(crate) fn of_syn(&self, now: Instant, ends: FiveTuple, ring: u32) -> u32 {
        let mut syns = lock(&self.syns);
        if now.since(syns.since) > SYNS_FOR || syns.now.len() >= SYNS_MAX {
            (syns.before, syns.since) = (core::mem::take(&mut syns.now), now);
        }
        let known = syns.now.get(&ends).or_else(|| syns.before.get(&ends)).copied();
        *syns.now.entry(ends).or_insert(known.unwrap_or(ring))
    }
}

/// Whether a frame may be a SYN: a look at few of its bytes, as all frames get it.
#[inline]
fn is_syn(bytes: &[u8]) -> Option<bool> {
    let at = if bytes.get(12..14)? == [0x81, 0x00] { 18 } else { 14 };
    let flags_at = match bytes.get(at)? >> 4 {
        4 if bytes.get(at + 9)? == &ipv4::PROTOCOL_TCP => at + 4 * usize::from(bytes[at] & 0xf) + 13,
        6 if bytes.get(at + 6)? == &ipv4::PROTOCOL_TCP => at + ipv6::LEN + 13,
        _ => return None,
    };
    // (Of RFC 9293 s3.1's flags, FIN, SYN, RST and ACK.)
    bytes.get(flags_at).map(|flags| flags & 0x17 == 0x02)
}

/// Both ends of a segment, as rules name them, and whether it is a SYN. `None`: it is none, or not all of its headers are there.
pub(crate) fn segment(head: &[u8]) -> Option<(FiveTuple, bool)> {
    let (link, at) = ethernet::Header::parse(head).ok()?;
    let packet = head.get(at..)?;
    let (source, destination, at): (IpAddr, IpAddr, usize) = match link.ethertype {
        ethernet::ETHERTYPE_IPV4 => {
            let (ip, at) = ipv4::Header::parse(packet).ok().filter(|(ip, _)| ip.protocol == ipv4::PROTOCOL_TCP)?;
            (ip.src.into(), ip.dst.into(), at)
        }
        ethernet::ETHERTYPE_IPV6 => {
            let (ip, at) = ipv6::Header::parse(packet).ok().filter(|(ip, _)| ip.next_header == ipv4::PROTOCOL_TCP)?;
            (ip.src.into(), ip.dst.into(), at)
        }
        _ => return None,
    };
    let (header, _) = tcp::Header::parse(packet.get(at..)?).ok()?;
    let (local, remote) = (SocketAddr::new(destination, header.dst_port), SocketAddr::new(source, header.src_port));
    Some((FiveTuple { protocol: Protocol::Tcp, local, remote: Some(remote) }, header.opens()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stray(byte: u8, path: Path) -> Stray {
        Stray { bytes: [byte].into(), path }
    }

    #[test]
    fn a_frame_goes_from_ring_to_ring_until_all_have_looked() {
        let exchange = Exchange::new(3).unwrap();
        let mut ring = 1;
        let mut looked = Vec::new();
        let mut path = Path { came_to: 1, looked: 1 };
        while let Some(next) = exchange.next(ring, path) {
            looked.push(next);
            (ring, path.looked) = (next, path.looked + 1);
        }
        assert_eq!(looked, [2, 0]);
    }

    #[test]
    fn an_inbox_is_readable_while_it_has_frames_and_gives_those_of_one_way_together() {
        let exchange = Exchange::new(2).unwrap();
        let [here, there] = [0, 1].map(|came_to| Path { came_to, looked: 1 });
        let is_readable = || {
            let mut poll = libc::pollfd { fd: exchange.fd(1), events: libc::POLLIN, revents: 0 };
            // SAFETY: one entry is readable and writable.
            (unsafe { libc::poll(&raw mut poll, 1, 0) }) == 1
        };
        let take = |way| exchange.take(1, way).map(|stray| stray.bytes[0]);
        assert!(!is_readable() && take(None).is_none());
        [(1, here), (2, here), (3, there)].into_iter().for_each(|(byte, path)| exchange.put(1, stray(byte, path)));
        assert!(is_readable() && exchange.has_some(1) && !exchange.has_some(0));
        assert_eq!([None, Some(here), Some(here)].map(take), [Some(1), Some(2), None]);
        assert!(is_readable());
        assert_eq!(take(None), Some(3));
        assert!(!is_readable() && !exchange.has_some(1));
    }

    #[test]
    fn a_syn_that_is_sent_again_is_for_the_ring_that_had_it_first() {
        let exchange = Exchange::new(4).unwrap();
        let ends = |port| FiveTuple {
            protocol: Protocol::Tcp,
            local: "10.0.0.1:80".parse().unwrap(),
            remote: Some(SocketAddr::new([10, 0, 0, 2].into(), port)),
        };
        let at = |seconds| Instant::ZERO + Duration::from_secs(seconds);
        assert_eq!([exchange.of_syn(at(1), ends(7), 2), exchange.of_syn(at(2), ends(7), 3), exchange.of_syn(at(2), ends(8), 3)], [2, 2, 3]);
        assert_eq!(exchange.of_syn(at(70), ends(7), 1), 2, "for a while");
        assert_eq!([exchange.of_syn(at(200), ends(9), 0), exchange.of_syn(at(300), ends(7), 1)], [0, 1], "and no longer");
    }
}
