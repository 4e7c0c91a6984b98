//! The table of flow rules that a member publishes in its segment: how connected peers learn, without a system call, who has an
//! address.

use core::sync::atomic::{Ordering, fence};
use std::collections::HashMap;
use std::collections::hash_map;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use ringway_stack::device::Protocol;

use crate::layout::{RULE_BYTES, RULE_V6_BYTES, RULES_AT, RULES_LEN_AT, RULES_MAX, RULES_V6_AT, RULES_V6_LEN_AT, RULES_VERSION_AT};
use crate::protocol::{ReadWords, WriteWords};

/// Readings of a table that changes meanwhile, before the reader gives up.
const TRIES: usize = 16;

/// Beside a socket's name: others may have its address as well.
const SHARED_SOCKET: u64 = 1 << 63;

/// What a rule matches. The first word: in use (bit 56), protocol (bits 48..), port (32..), and the address, if it is IPv4's. Never zero, which is a
/// free entry. (Beside it, of a UDP socket: the kernel's name of it, which has 63 bits, and whether it is shared. Of a listener: its stamp, a number that
/// no other rule of the member has had; a new one says that the members who share the address are others than before.)
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Entry {
    V4(u64),
    /// And the address.
    V6(u64, [u64; 2]),
}

impl Entry {
    fn of(protocol: Protocol, address: SocketAddr) -> Self {
        let protocol = match protocol {
            Protocol::Tcp => 6,
            Protocol::Udp => 17,
        };
        let word = 1 << 56 | protocol << 48 | u64::from(address.port()) << 32;
        match address.ip() {
            IpAddr::V4(ip) => Self::V4(word | u64::from(ip.to_bits())),
            IpAddr::V6(ip) => Self::V6(word, [(ip.to_bits() >> 64) as u64, ip.to_bits() as u64]),
        }
    }

    const fn is_udp(word: u64) -> bool {
        word >> 48 & 0xff == 17
    }

    const fn family(&self) -> Family {
        match self {
            Self::V4(_) => Family::V4,
            Self::V6(..) => Family::V6,
        }
    }
}

/// A table for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Family {
    V4,
    V6,
}

impl Family {
    pub(crate) const fn of(address: SocketAddr) -> Self {
        match address {
            SocketAddr::V4(_) => Self::V4,
            SocketAddr::V6(_) => Self::V6,
        }
    }

    /// Where the entry at `place` is.
    const fn at(self, place: usize) -> usize {
        match self {
            Self::V4 => RULES_AT + place * RULE_BYTES,
            Self::V6 => RULES_V6_AT + place * RULE_V6_BYTES,
        }
    }

    const fn len_at(self) -> usize {
        match self {
            Self::V4 => RULES_LEN_AT,
            Self::V6 => RULES_V6_LEN_AT,
        }
    }
}

/// The same port, on every address of the family.
pub(crate) fn wildcard_of(address: SocketAddr) -> SocketAddr {
    let any = if address.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    SocketAddr::new(any, address.port())
}

/// The owner's side.
#[derive(Debug, Default)]
pub(crate) struct RuleTable {
    version: u64,
    v4: Places,
    v6: Places,
    /// What is published, how often, and its newest stamp.
    entries: HashMap<Entry, (usize, u64)>,
    /// Sockets of the kernel's that rules of a family are for: how many are (two, while one takes another's place), and whether the last one is
    /// shared.
    sockets: HashMap<(Family, u64), (usize, bool)>,
}

/// Which entries of a table are used.
#[derive(Debug, Default)]
struct Places {
    len: u16,
    free: Vec<u16>,
}

impl Places {
    fn take(&mut self) -> Option<u16> {
        let place = self.free.pop().or_else(|| (usize::from(self.len) < RULES_MAX).then_some(self.len))?;
        self.len = self.len.max(place + 1);
        Some(place)
    }
}

/// What is published of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rule {
    pub(crate) protocol: Protocol,
    pub(crate) address: SocketAddr,
    pub(crate) is_shared: bool,
    /// Of the kernel's socket beside it; zero if there is none.
    pub(crate) cookie: u64,
}

impl RuleTable {
    /// Adds a rule; its place, or none if the table is full.
    pub(crate) fn insert(&mut self, own: &impl WriteWords, rule: &Rule) -> Option<u16> {
        let entry = Entry::of(rule.protocol, rule.address);
        let place = self.places(entry.family()).take()?;
        let stamp = self.version;
        self.store(own, (entry.family(), place), Some((entry, self.beside(rule))));
        if rule.cookie != 0 {
            let (count, is_shared) = self.sockets.entry((entry.family(), rule.cookie)).or_default();
            *count += 1;
            *is_shared = rule.is_shared;
        }
        let (count, newest) = self.entries.entry(entry).or_default();
        (*count, *newest) = (*count + 1, stamp);
        Some(place)
    }

    /// The entry's second word.
    const fn beside(&self, rule: &Rule) -> u64 {
        match rule.protocol {
            Protocol::Tcp => self.version,
            Protocol::Udp => rule.cookie | if rule.is_shared { SHARED_SOCKET } else { 0 },
        }
    }

    /// Another member has a listener there now as well: whoever knows the rule at `place`, which is a listener's, looks for the others again.
    pub(crate) fn stamp(&mut self, own: &impl WriteWords, rule: &Rule, place: u16) {
        let entry = Entry::of(rule.protocol, rule.address);
        if let Some((_, newest)) = self.entries.get_mut(&entry) {
            *newest = self.version;
        }
        self.store(own, (entry.family(), place), Some((entry, self.beside(rule))));
    }

    fn places(&mut self, family: Family) -> &mut Places {
        match family {
            Family::V4 => &mut self.v4,
            Family::V6 => &mut self.v6,
        }
    }

    /// Removes the rule at `place`, which is one of that kind.
    pub(crate) fn remove(&mut self, own: &impl WriteWords, rule: &Rule, place: u16) {
        let entry = Entry::of(rule.protocol, rule.address);
        self.store(own, (entry.family(), place), None);
        if let hash_map::Entry::Occupied(mut socket) = self.sockets.entry((entry.family(), rule.cookie)) {
            socket.get_mut().0 -= 1;
            if socket.get().0 == 0 {
                socket.remove();
            }
        }
        if let hash_map::Entry::Occupied(mut count) = self.entries.entry(entry) {
            count.get_mut().0 -= 1;
            if count.get().0 == 0 {
                count.remove();
            }
        }
        self.places(entry.family()).free.push(place);
    }

    /// Looks for the rules of our own that match `address`.
    pub(crate) fn find(&self, protocol: Protocol, address: SocketAddr) -> Found {
        let count = |address| self.entries.get(&Entry::of(protocol, address)).copied().unwrap_or((0, 0));
        let ((exact, stamp), (wildcard, other)) = (count(address), count(wildcard_of(address)));
        Found { exact, wildcard, stamps: stamp.wrapping_add(other), version: self.version }
    }

    /// Whether a rule of our own is for what comes to that socket of the kernel's by that family, and whether it is shared.
    pub(crate) fn find_socket(&self, family: Family, cookie: u64) -> Option<bool> {
        self.sockets.get(&(family, cookie)).map(|&(_, is_shared)| is_shared)
    }

    /// Whether a rule of our own is for that socket of the kernel's.
    pub(crate) fn has_socket(&self, cookie: u64) -> bool {
        [Family::V4, Family::V6].into_iter().any(|family| self.find_socket(family, cookie).is_some())
    }

    /// Has everybody who knows a rule of ours ask again.
    pub(crate) fn unsettle(&mut self, own: &impl WriteWords) {
        self.change(own, |_| ());
    }

    /// No entry: the place is free.
    fn store(&mut self, own: &impl WriteWords, (family, place): (Family, u16), entry: Option<(Entry, u64)>) {
        let (at, len_at, len) = (family.at(place.into()), family.len_at(), u64::from(self.places(family).len));
        let (word, address, socket) = match entry {
            Some((Entry::V4(word), socket)) => (word, None, socket),
            Some((Entry::V6(word, address), socket)) => (word, Some(address), socket),
            None => (0, None, 0),
        };
        // All or nothing: a reader that saw the new version with the old length would miss the rule for as long as the version stays.
        self.change(own, |own| {
            own.store(at, word, Ordering::Relaxed);
            own.store(at + 8, socket, Ordering::Relaxed);
            if let Some([high, low]) = address {
                own.store(at + 16, high, Ordering::Relaxed);
                own.store(at + 24, low, Ordering::Relaxed);
            }
            own.store(len_at, len, Ordering::Relaxed);
        });
    }

    /// A sequence lock: odd while the table changes.
    fn change<W: WriteWords>(&mut self, own: &W, store: impl FnOnce(&W)) {
        own.store(RULES_VERSION_AT, self.version + 1, Ordering::Relaxed);
        fence(Ordering::Release);
        store(own);
        self.version += 2;
        own.store(RULES_VERSION_AT, self.version, Ordering::Release);
    }
}

/// What a look into a table gives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Found {
    /// How many rules there are for exactly that address: one for each of the sockets that share it.
    pub(crate) exact: usize,
    /// How many there are for that port on every address.
    pub(crate) wildcard: usize,
    /// The sum of the stamps of those that are listeners': as long as the numbers above and this one are the same, so are the rules.
    pub(crate) stamps: u64,
    /// The table's generation.
    pub(crate) version: u64,
}

impl Found {
    #[inline]
    fn count(&mut self, is_exact: bool, is_wildcard: bool, stamp: impl FnOnce() -> u64) {
        if is_exact || is_wildcard {
            self.exact += usize::from(is_exact);
            self.wildcard += usize::from(is_wildcard);
            self.stamps = self.stamps.wrapping_add(stamp());
        }
    }
}

/// Looks for the rules that match `address`.
pub(crate) fn find(table: &impl ReadWords, protocol: Protocol, address: SocketAddr) -> Found {
    let (exact, wildcard) = (Entry::of(protocol, address), Entry::of(protocol, wildcard_of(address)));
    let (found, version) = match (exact, wildcard) {
        (Entry::V4(exact), Entry::V4(wildcard)) => read(table, |found: &mut Found| {
            each(table, Family::V4, |at| {
                let word = table.load(at, Ordering::Relaxed);
                found.count(word == exact, word == wildcard, || table.load(at + 8, Ordering::Relaxed));
            });
        }),
        _ => read(table, |found: &mut Found| {
            each(table, Family::V6, |at| {
                let [word, high, low] = [at, at + 16, at + 24].map(|at| table.load(at, Ordering::Relaxed));
                let entry = Entry::V6(word, [high, low]);
                found.count(entry == exact, entry == wildcard, || table.load(at + 8, Ordering::Relaxed));
            });
        }),
    };
    Found { version, ..found }
}

/// Whether there is a rule for what comes to that socket of the kernel's by that family, whether that is shared, and the tables' generation. (A
/// socket of IPv6 may get what is for IPv4 from its ring, and the rest from the kernel.)
pub(crate) fn find_socket(table: &impl ReadWords, family: Family, cookie: u64) -> Option<(bool, u64)> {
    let (found, version) = read(table, |found: &mut Option<bool>| {
        each(table, family, |at| {
            let [word, socket] = [at, at + 8].map(|at| table.load(at, Ordering::Relaxed));
            if Entry::is_udp(word) && socket & !SHARED_SOCKET == cookie {
                *found = Some(socket & SHARED_SOCKET != 0);
            }
        });
    });
    found.map(|is_shared| (is_shared, version))
}

/// Goes through a family's entries: where each is.
#[inline]
fn each(table: &impl ReadWords, family: Family, look: impl FnMut(usize)) {
    let len = (table.load(family.len_at(), Ordering::Acquire) as usize).min(RULES_MAX);
    (0..len).map(|place| family.at(place)).for_each(look);
}

/// Looks into the tables. Those that never hold still (their owner died in the middle, or is hostile) have no entries.
fn read<T: Default>(table: &impl ReadWords, look: impl Fn(&mut T)) -> (T, u64) {
    for _ in 0..TRIES {
        let version = table.load(RULES_VERSION_AT, Ordering::Acquire);
        if version & 1 == 1 {
            core::hint::spin_loop();
            continue;
        }
        let mut found = T::default();
        look(&mut found);
        fence(Ordering::Acquire);
        if table.load(RULES_VERSION_AT, Ordering::Relaxed) == version {
            return (found, version);
        }
    }
    (T::default(), 0)
}

/// The table's generation now.
#[inline]
pub(crate) fn version(table: &impl ReadWords) -> u64 {
    table.load(RULES_VERSION_AT, Ordering::Acquire)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::layout::POOL_AT;
    use crate::memfd;

    fn address(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    /// The order of the stores.
    #[derive(Default)]
    struct Log(core::cell::RefCell<Vec<(usize, u64)>>);

    impl WriteWords for Log {
        fn store(&self, offset: usize, value: u64, _: Ordering) {
            self.0.borrow_mut().push((offset, value));
        }
    }

    #[test]
    fn a_change_is_between_an_odd_version_and_the_next_one() {
        let log = Log::default();
        let mut table = RuleTable::default();
        let plain = rule(Protocol::Udp, address("127.0.0.1:53"));
        let place = table.insert(&log, &plain).unwrap();
        table.remove(&log, &plain, place);
        for change in log.0.take().split_inclusive(|&(at, value)| at == RULES_VERSION_AT && value % 2 == 0) {
            let versions: Vec<_> = change.iter().filter(|(at, _)| *at == RULES_VERSION_AT).collect();
            assert!(versions.len() == 2 && change[0].0 == RULES_VERSION_AT && change[0].1 % 2 == 1, "{change:?}");
        }
    }

    fn rule(protocol: Protocol, address: SocketAddr) -> Rule {
        Rule { protocol, address, is_shared: false, cookie: 0 }
    }

    #[test]
    fn a_reader_finds_the_kernels_socket_beside_a_rule() {
        let (own, fd) = memfd::create(c"rules-test", POOL_AT).unwrap();
        let view = memfd::open(&fd, Some(POOL_AT), POOL_AT).unwrap();
        let mut table = RuleTable::default();
        let plain = Rule { cookie: 7, ..rule(Protocol::Udp, address("127.0.0.1:80")) };
        let shared = Rule { cookie: 8, is_shared: true, ..plain };
        table.insert(&own, &plain).unwrap();
        let place = table.insert(&own, &shared).unwrap();
        assert_eq!([7, 8, 9].map(|cookie| find_socket(&view, Family::V4, cookie).map(|found| found.0)), [Some(false), Some(true), None]);
        assert_eq!([7, 8, 9].map(|cookie| table.find_socket(Family::V4, cookie)), [Some(false), Some(true), None]);
        let before = find_socket(&view, Family::V4, 7).unwrap();
        table.remove(&own, &shared, place);
        assert_eq!((find_socket(&view, Family::V4, 8), find_socket(&view, Family::V4, 0)), (None, None));
        assert_ne!(find_socket(&view, Family::V4, 7).unwrap(), before, "whoever knew it asks again");
        // It finds its peer, and has another address from then on.
        let moved = Rule { address: address("127.0.0.2:80"), ..plain };
        table.insert(&own, &moved).unwrap();
        table.remove(&own, &plain, 0);
        assert_eq!((find_socket(&view, Family::V4, 7).map(|found| found.0), table.find_socket(Family::V4, 7)), (Some(false), Some(false)));
    }

    #[test]
    fn a_reader_sees_exact_and_wildcard_rules_and_every_change() {
        let (own, fd) = memfd::create(c"rules-test", POOL_AT).unwrap();
        let view = memfd::open(&fd, Some(POOL_AT), POOL_AT).unwrap();
        let mut table = RuleTable::default();
        let to = address("127.0.0.1:80");
        assert_eq!(find(&view, Protocol::Tcp, to), Found::default());

        let exact = table.insert(&own, &rule(Protocol::Tcp, to)).unwrap();
        let first = find(&view, Protocol::Tcp, to);
        assert_eq!((first.exact, first.wildcard), (1, 0));
        assert_eq!(find(&view, Protocol::Udp, to), Found { exact: 0, ..first });
        assert_eq!(find(&view, Protocol::Tcp, address("127.0.0.2:80")).exact, 0);

        let any = address("0.0.0.0:80");
        let [one, _] = [(); 2].map(|()| table.insert(&own, &rule(Protocol::Tcp, any)).unwrap());
        table.remove(&own, &rule(Protocol::Tcp, to), exact);
        let second = find(&view, Protocol::Tcp, to);
        assert!((second.exact, second.wildcard) == (0, 2) && second.version != first.version);
        assert_eq!(table.find(Protocol::Tcp, to), Found { stamps: table.find(Protocol::Tcp, to).stamps, ..second });
        table.remove(&own, &rule(Protocol::Tcp, any), one);
        let third = find(&view, Protocol::Tcp, address("10.1.2.3:80"));
        assert_eq!((third.exact, third.wildcard), (0, 1));
        assert_eq!(table.find(Protocol::Tcp, to), Found { stamps: table.find(Protocol::Tcp, to).stamps, ..third });
    }

    /// Both to who reads it and to its owner.
    #[test]
    fn a_listener_that_is_opened_again_has_another_stamp_and_so_has_one_that_is_joined() {
        let (own, fd) = memfd::create(c"rules-test", POOL_AT).unwrap();
        let view = memfd::open(&fd, Some(POOL_AT), POOL_AT).unwrap();
        let mut table = RuleTable::default();
        let (to, mut seen) = (address("127.0.0.1:80"), Vec::new());
        let listener = rule(Protocol::Tcp, to);
        let mut look = |table: &RuleTable, is_new: bool| {
            let both = [find(&view, Protocol::Tcp, to), table.find(Protocol::Tcp, to)].map(|found| (found.exact, found.stamps));
            assert_eq!(seen.iter().all(|other: &[_; 2]| both[0] != other[0] && both[1] != other[1]), is_new, "{both:?} after {seen:?}");
            seen.push(both);
        };
        let place = table.insert(&own, &listener).unwrap();
        look(&table, true);
        table.remove(&own, &listener, place);
        let place = table.insert(&own, &listener).unwrap();
        look(&table, true);
        table.stamp(&own, &listener, place);
        look(&table, true);
        // What it has beside is none of that one's.
        table.insert(&own, &Rule { cookie: 4, ..rule(Protocol::Udp, to) }).unwrap();
        table.insert(&own, &rule(Protocol::Tcp, address("127.0.0.1:81"))).unwrap();
        look(&table, false);
        assert_eq!(find_socket(&view, Family::V4, 2), None, "a stamp is no socket's name");
    }

    #[test]
    fn the_table_has_an_end_and_its_places_are_used_again() {
        let (own, fd) = memfd::create(c"rules-test", POOL_AT).unwrap();
        let view = memfd::open(&fd, Some(POOL_AT), POOL_AT).unwrap();
        let mut table = RuleTable::default();
        for port in 0..RULES_MAX as u16 {
            table.insert(&own, &rule(Protocol::Udp, SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port))).unwrap();
        }
        assert_eq!(table.insert(&own, &rule(Protocol::Udp, address("127.0.0.1:9999"))), None);
        table.remove(&own, &rule(Protocol::Udp, address("127.0.0.1:17")), 17);
        assert_eq!(table.insert(&own, &rule(Protocol::Udp, address("127.0.0.1:9999"))), Some(17));
        assert_eq!(find(&view, Protocol::Udp, address("127.0.0.1:9999")).exact, 1);
        assert_eq!(find(&view, Protocol::Udp, address("127.0.0.1:17")).exact, 0);
    }

    #[test]
    fn a_table_left_in_the_middle_of_a_change_has_no_rules() {
        let (own, fd) = memfd::create(c"rules-test", POOL_AT).unwrap();
        let view = memfd::open(&fd, Some(POOL_AT), POOL_AT).unwrap();
        RuleTable::default().insert(&own, &rule(Protocol::Tcp, address("127.0.0.1:80"))).unwrap();
        own.store(RULES_VERSION_AT, 7, Ordering::Release);
        assert_eq!(find(&view, Protocol::Tcp, address("127.0.0.1:80")), Found::default());
    }

    #[test]
    fn each_family_has_its_own_rules() {
        let (own, fd) = memfd::create(c"rules-test", POOL_AT).unwrap();
        let view = memfd::open(&fd, Some(POOL_AT), POOL_AT).unwrap();
        let mut table = RuleTable::default();
        let [v4, v6] = ["0.0.0.0:80", "[::]:80"].map(|any| rule(Protocol::Tcp, address(any)));
        let place = table.insert(&own, &v6).unwrap();
        let counts = |to: &str| {
            let found = find(&view, Protocol::Tcp, address(to));
            let own = table.find(Protocol::Tcp, address(to));
            assert_eq!((own.exact, own.wildcard), (found.exact, found.wildcard));
            (found.exact, found.wildcard)
        };
        assert_eq!(["[::1]:80", "[::]:80", "127.0.0.1:80", "[::1]:81"].map(counts), [(0, 1), (1, 1), (0, 0), (0, 0)]);
        table.insert(&own, &v4).unwrap();
        // Addresses that differ in one half only.
        for other in ["[::1]:80", "[1::1]:80", "[1::]:80"] {
            table.insert(&own, &rule(Protocol::Tcp, address(other))).unwrap();
        }
        table.insert(&own, &Rule { cookie: 9, ..rule(Protocol::Udp, address("[::1]:80")) }).unwrap();
        table.remove(&own, &v6, place);
        let counts = |to: &str| {
            let found = find(&view, Protocol::Tcp, address(to));
            (found.exact, found.wildcard)
        };
        assert_eq!(
            ["[::1]:80", "[1::1]:80", "[1::]:80", "[1::2]:80", "127.0.0.1:80"].map(counts),
            [(1, 0), (1, 0), (1, 0), (0, 0), (0, 1)]
        );
        assert_eq!(find_socket(&view, Family::V6, 9).map(|found| found.0), Some(false));
        assert_eq!((find_socket(&view, Family::V4, 9), table.find_socket(Family::V4, 9)), (None, None));
        // A place that was used is used again, and so is its family's only.
        assert_eq!(table.insert(&own, &rule(Protocol::Udp, address("[::1]:53"))), Some(place));
    }
}
