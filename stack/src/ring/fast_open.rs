//! TCP Fast Open in the ring (RFC 7413): which cookies its listeners give and take, and which it was given by others.

use std::collections::BTreeMap;
use std::collections::VecDeque;
use std::hash::Hasher as _;
use std::io::IoSlice;
use std::net::IpAddr;

use siphasher::sip::SipHasher24;

use super::Ring;
use super::types::FlowId;
use crate::device::Queues;
use crate::error::Error;
use crate::marks::mark;
use crate::mutants::{Mutant, Mutation};
use crate::tcp::{self, FastOpenKeys, Learnt, State};
use crate::time::Instant;
use crate::wire::tcp::{Cookie, FastOpen, Header};

/// Peers whose cookies are kept.
const PEERS_MAX: usize = 1024;
/// SYNs in a row that were lost, with what they had of Fast Open, after which the path counts as one that drops such.
const LOSSES_MAX: u8 = 3;
/// How long it counts as one at first, and at most (RFC 7413 s4.1.3.1, and as long as Linux's tcp_fastopen_blackhole_timeout_sec).
const BLOCKED_MIN: core::time::Duration = core::time::Duration::from_secs(3600);
/// How long a connection that its peer reset before the handshake's end counts as one under way (RFC 7413 s5.1).
const RESET_COUNTS: core::time::Duration = core::time::Duration::from_secs(60);

/// How a connection is opened fast ([`Ring::tcp_connect_fast`]).
#[derive(Clone, Copy, Debug)]
pub struct EarlyData<'a> {
    /// What the program writes with it.
    pub data: &'a [IoSlice<'a>],
    /// All that fits is taken; else as much as goes with the SYN.
    pub all: bool,
    /// The SYN has bytes without a cookie (TCP_FASTOPEN_NO_COOKIE).
    pub without_cookie: bool,
}

/// What is known of a peer.
#[derive(Clone, Debug, Default)]
struct Peer {
    /// The cookie, in the form in which it came.
    cookie: Option<FastOpen>,
    /// The largest segment that it takes, once that is known.
    mss: Option<u16>,
    /// It was asked in the one form (1), and in the other (2), without an answer.
    asked: u8,
    losses: u8,
    blocked_until: Instant,
    /// When it was last used, by the count of uses.
    used: u64,
}

/// What the ring has for it.
#[derive(Default)]
pub(super) struct FastOpens {
    peers: BTreeMap<IpAddr, Peer>,
    uses: u64,
    /// Connections that their programs have before the end of the handshake, by slot, and their listeners. Invariant: each is counted by its listener
    /// ([`Early`]), so that there are no more than these allow.
    early: BTreeMap<u32, FlowId>,
    pub(super) mutation: Mutation,
}

/// What a listener counts of it.
#[derive(Debug, Default)]
pub(super) struct Early {
    /// Connections that began with a good cookie, and whose handshake is not over.
    under_way: usize,
    /// Until when those count that were reset: else whoever makes addresses up, whose owners answer by a reset, would never come to the limit.
    reset: VecDeque<Instant>,
}

impl Early {
    /// Whether one more may begin.
    fn has_room(&mut self, now: Instant, most: usize) -> bool {
        while self.reset.front().is_some_and(|at| *at <= now) {
            self.reset.pop_front();
        }
        self.under_way + self.reset.len() < most
    }
}

/// What a listener takes.
struct Taken {
    keys: FastOpenKeys,
    without_cookie: bool,
    mutation: Mutation,
}

/// What becomes of a SYN for a listener.
pub(super) enum Verdict {
    /// As if there were no Fast Open; perhaps the peer is told a cookie.
    Plain(Option<FastOpen>),
    /// What came with it is taken; perhaps the peer is told a newer cookie.
    Fast(Option<FastOpen>),
}

/// The cookie of `peer` for this host.
fn cookie(key: [u8; 16], peer: IpAddr, own: IpAddr) -> Option<Cookie> {
    let mut hasher = SipHasher24::new_with_key(&key);
    for address in [peer, own] {
        match address {
            IpAddr::V4(ip) => hasher.write(&ip.octets()),
            IpAddr::V6(ip) => hasher.write(&ip.octets()),
        }
    }
    Cookie::new(&hasher.finish().to_le_bytes())
}

/// What a listener that takes cookies makes of a SYN (RFC 7413 s4.2.2).
fn judge(config: &Taken, (peer, own): (IpAddr, IpAddr), syn: &Header, with_bytes: bool) -> Verdict {
    let Taken { keys, without_cookie, mutation } = *config;
    let asked = syn.options.fast_open();
    let is_excused = with_bytes && asked.is_none() && mutation.is(Mutant::SynBytesUncookied);
    if without_cookie && (with_bytes || asked.is_some()) || is_excused {
        return Verdict::Fast(None);
    }
    let peer = if mutation.is(Mutant::CookieForEveryHost) { own } else { peer };
    let primary = cookie(keys.primary, peer, own);
    let Some(asked) = asked else {
        let unasked = Some(FastOpen { cookie: primary, is_experimental: false });
        return Verdict::Plain(unasked.filter(|_| mutation.is(Mutant::CookieUnasked)));
    };
    let is_experimental = asked.is_experimental != mutation.is(Mutant::CookieInOtherForm);
    let offer = Some(FastOpen { cookie: primary, is_experimental }).filter(|_| !mutation.is(Mutant::CookieUntold));
    let backup = keys.backup.filter(|_| !mutation.is(Mutant::BackupKeyIgnored));
    match asked.cookie {
        Some(shown) if Some(shown) == primary || mutation.is(Mutant::CookieUnchecked) => Verdict::Fast(None),
        Some(shown) if backup.is_some_and(|key| cookie(key, peer, own) == Some(shown)) => Verdict::Fast(offer),
        _ => Verdict::Plain(offer),
    }
}

impl FastOpens {
    fn peer(&mut self, ip: IpAddr) -> &mut Peer {
        self.uses += 1;
        if self.peers.len() >= PEERS_MAX
            && !self.peers.contains_key(&ip)
            && let Some(oldest) = self.peers.iter().min_by_key(|(_, peer)| peer.used).map(|(ip, _)| *ip)
        {
            self.peers.remove(&oldest);
        }
        let peer = self.peers.entry(ip).or_default();
        peer.used = self.uses;
        peer
    }

    /// What a SYN to `ip` says, the segments that are known to arrive there, and whether bytes may go with it.
    fn plan(&mut self, now: Instant, ip: IpAddr, without_cookie: bool) -> (Option<FastOpen>, u16, bool) {
        let peer = self.peers.get(&ip).cloned().unwrap_or_default();
        let mss = peer.mss.unwrap_or(u16::MAX);
        if peer.losses >= LOSSES_MAX && now < peer.blocked_until && !self.mutation.is(Mutant::FastOpenTriedForever) {
            return (None, mss, false);
        }
        match peer.cookie {
            _ if without_cookie => (None, mss, true),
            Some(cookie) => (Some(cookie), mss, true),
            None => (Some(FastOpen { cookie: None, is_experimental: peer.asked == 1 }), mss, self.mutation.is(Mutant::SynBytesUnasked)),
        }
    }

    /// A handshake has taught this of `ip`.
    fn learn(&mut self, now: Instant, ip: IpAddr, learnt: &Learnt) {
        let forgets = self.mutation.is(Mutant::CookieForgotten);
        let peer = self.peer(ip);
        peer.mss = Some(learnt.mss);
        let asks = learnt.asked.is_some_and(|asked| asked.cookie.is_none());
        match (learnt.answer, learnt.asked) {
            // (One that was not asked for is none.)
            (Some(_), _) if forgets => {}
            (Some(answer), Some(_)) => peer.cookie = Some(answer),
            (None, Some(asked)) if asks && !learnt.is_lost && peer.asked < 2 => peer.asked = if asked.is_experimental { 2 } else { 1 },
            _ => {}
        }
        if learnt.is_lost && learnt.with_bytes {
            peer.losses = peer.losses.saturating_add(1);
            peer.blocked_until = now + BLOCKED_MIN;
        } else {
            peer.losses = 0;
        }
    }
}

impl<Q: Queues> Ring<Q> {
    /// Whether a SYN to that address would have bytes ([`Ring::tcp_connect_fast`]).
    pub fn tcp_has_cookie(&mut self, now: Instant, remote: IpAddr, without_cookie: bool) -> bool {
        self.fast_opens.plan(now, remote, without_cookie).2
    }

    /// A connection that was just begun opens fast. How many bytes of the program's it took.
    pub(super) fn open_fast(&mut self, now: Instant, id: FlowId, early: &EarlyData<'_>) -> Result<usize, Error> {
        let Self { slots, queues, fast_opens, .. } = self;
        let stream = slots.stream(id)?;
        let (option, mss, with_bytes) = fast_opens.plan(now, stream.remote.ip(), early.without_cookie);
        stream.connection.open_fast(option, mss, with_bytes);
        stream.connection.write_early(early.data, early.all, &mut |len| queues.tx_alloc(len))
    }

    /// What a listener makes of a SYN with or without bytes.
    pub(super) fn judge_syn(&mut self, now: Instant, listener: FlowId, ends: (IpAddr, IpAddr), syn: &Header, with_bytes: bool) -> Verdict {
        let own = FastOpenKeys { primary: self.fast_open_key, backup: None };
        let mutation = self.fast_opens.mutation;
        let Ok(listener) = self.slots.listener(listener) else { return Verdict::Plain(None) };
        let config = listener.config.fast_open;
        let has_room = listener.early.has_room(now, config.under_way_max) || mutation.is(Mutant::EarlyBoundIgnored);
        if config.under_way_max == 0 || !has_room {
            if config.under_way_max > 0 && syn.options.fast_open().is_some_and(|asked| asked.cookie.is_some()) {
                mark!(self, EarlyLimitReached);
            }
            return Verdict::Plain(None);
        }
        let taken = Taken { keys: config.keys.unwrap_or(own), without_cookie: config.without_cookie, mutation };
        judge(&taken, ends, syn, with_bytes)
    }

    /// A connection is its program's before the handshake is over.
    pub(super) fn count_early(&mut self, id: FlowId, listener: FlowId) {
        if let Ok(owner) = self.slots.listener(listener) {
            owner.early.under_way += 1;
            self.fast_opens.early.insert(id.index, listener);
        }
    }

    /// Something came for a connection whose handshake was under way, or it is about to be forgotten.
    #[cold]
    #[inline(never)]
    pub(super) fn after_handshake_segment(&mut self, now: Instant, index: u32) {
        let Some(stream) = self.slots.live_at(index) else { return };
        let state = stream.connection.state();
        if let Some(learnt) = stream.connection.take_learnt() {
            let remote = stream.remote.ip();
            self.fast_opens.learn(now, remote, &learnt);
        } else if state != State::SynReceived {
            self.uncount_early(index, (state == State::Closed).then_some(now));
        }
    }

    /// A connection counts no more as one that is its program's before the handshake is over, but for a while if it was reset.
    pub(super) fn uncount_early(&mut self, index: u32, reset: Option<Instant>) {
        if self.fast_opens.early.is_empty() {
            return;
        }
        if let Some(listener) = self.fast_opens.early.remove(&index)
            && let Ok(listener) = self.slots.listener(listener)
        {
            listener.early.under_way -= 1;
            if let Some(now) = reset.filter(|_| !self.fast_opens.mutation.is(Mutant::EarlyResetForgotten)) {
                listener.early.reset.push_back(now + RESET_COUNTS);
            }
        }
    }
}

impl FastOpenKeys {
    /// Reads TCP_FASTOPEN_KEY's value: one key, or two. `None`: it is neither.
    pub fn of_bytes(bytes: &[u8]) -> Option<Self> {
        let (primary, rest) = bytes.split_first_chunk::<16>()?;
        let backup = if rest.is_empty() { None } else { Some(rest.try_into().ok()?) };
        Some(tcp::FastOpenKeys { primary: *primary, backup })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    /// As packetdrill's scripts have Linux's (fastopen/server/simple1.pkt to simple3.pkt).
    #[test]
    fn cookies_are_those_of_linux() {
        let key = [0xf7, 0x63, 0xbf, 0xa0, 0x81, 0x3d, 0x80, 0xed, 0x30, 0x1d, 0x64, 0xcd, 0x90, 0x4a, 0xbc, 0xce];
        for (peer, own, expected) in [
            ("10.248.0.2", "192.168.0.2", 0x00ab_aaab_e8e9_54c2_u64),
            ("10.248.0.3", "192.168.0.2", 0x1313_a2da_994a_0951),
            ("10.248.0.3", "192.168.0.3", 0x76d2_c1c5_30f5_1f79),
        ] {
            assert_eq!(cookie(key, number(peer), number(own)), Cookie::new(&expected.to_be_bytes()), "{peer} {own}");
        }
    }

    #[test]
    fn peers_are_bounded_and_a_path_that_drops_cookies_is_spared_them() {
        let (now, mut known) = (Instant::ZERO, FastOpens::default());
        let answer = Some(FastOpen { cookie: Cookie::new(&[1; 8]), is_experimental: false });
        let learnt = Learnt { asked: Some(FastOpen::default()), answer, mss: 1000, is_lost: false, with_bytes: false };
        for last in 0..2 * PEERS_MAX as u32 {
            known.learn(now, IpAddr::from((0x0a00_0000 + last).to_be_bytes()), &learnt);
        }
        assert_eq!(known.peers.len(), PEERS_MAX);
        let (first, last) = (number("10.0.0.0"), number("10.0.7.255"));
        assert_eq!(known.plan(now, last, false), (answer, 1000, true));
        assert_eq!(known.plan(now, first, false), (Some(FastOpen::default()), u16::MAX, false));
        let lost = Learnt { asked: answer, answer: None, is_lost: true, with_bytes: true, ..learnt };
        for times in 1..=LOSSES_MAX {
            known.learn(now, last, &lost);
            assert_eq!(known.plan(now, last, false).2, times < LOSSES_MAX);
        }
        assert!(known.plan(now + BLOCKED_MIN, last, false).2);
    }

    #[test]
    fn a_reset_counts_for_a_while() {
        let mut early = Early { under_way: 1, reset: VecDeque::from([Instant::ZERO + RESET_COUNTS]) };
        assert!(early.has_room(Instant::ZERO, 3) && !early.has_room(Instant::ZERO, 2));
        assert!(early.has_room(Instant::ZERO + RESET_COUNTS, 2));
    }
}
