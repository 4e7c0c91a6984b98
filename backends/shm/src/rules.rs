//! The table of flow rules that a member publishes in its segment: how connected peers learn, without a system call, who has an
//! address.

use core::sync::atomic::{Ordering, fence};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::{Ipv4Addr, SocketAddrV4};

use ringway_stack::device::Protocol;

use crate::layout::{RULE_BYTES, RULES_AT, RULES_LEN_AT, RULES_MAX, RULES_VERSION_AT};
use crate::protocol::{ReadWords, WriteWords};

/// Readings of a table that changes meanwhile, before the reader gives up.
const TRIES: usize = 16;

/// Beside a socket's name: others may have its address as well.
const SHARED_SOCKET: u64 = 1 << 63;

/// An entry: in use (bit 56), protocol (bits 48..), port (32..), address. Never zero, which is a free entry. (Whether it is shared stands beside the
/// kernel's name of its socket, which has 63 bits.)
fn encode(protocol: Protocol, address: SocketAddrV4) -> u64 {
    let protocol = match protocol {
        Protocol::Tcp => 6,
        Protocol::Udp => 17,
    };
    1 << 56 | protocol << 48 | u64::from(address.port()) << 32 | u64::from(address.ip().to_bits())
}

/// The owner's side.
#[derive(Debug, Default)]
pub(crate) struct RuleTable {
    version: u64,
    len: u16,
    free: Vec<u16>,
    /// What is published, and how often.
    entries: HashMap<u64, usize>,
    /// Sockets of the kernel's that rules are for: how many are (two, while one takes another's place), and whether the last one is shared.
    sockets: HashMap<u64, (usize, bool)>,
}

/// What is published of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rule {
    pub(crate) protocol: Protocol,
    pub(crate) address: SocketAddrV4,
    pub(crate) is_shared: bool,
    /// Of the kernel's socket beside it; zero if there is none.
    pub(crate) cookie: u64,
}

impl Rule {
    /// The entry's second word.
    const fn socket(&self) -> u64 {
        self.cookie | if self.is_shared { SHARED_SOCKET } else { 0 }
    }
}

impl RuleTable {
    /// Adds a rule; its place, or none if the table is full.
    pub(crate) fn insert(&mut self, own: &impl WriteWords, rule: &Rule) -> Option<u16> {
        let entry = encode(rule.protocol, rule.address);
        let place = self.free.pop().or_else(|| (usize::from(self.len) < RULES_MAX).then_some(self.len))?;
        self.len = self.len.max(place + 1);
        self.store(own, place, entry, rule.socket());
        if rule.cookie != 0 {
            let (count, is_shared) = self.sockets.entry(rule.cookie).or_default();
            *count += 1;
            *is_shared = rule.is_shared;
        }
        *self.entries.entry(entry).or_default() += 1;
        Some(place)
    }

    /// Removes the rule at `place`, which is one of that kind.
    pub(crate) fn remove(&mut self, own: &impl WriteWords, rule: &Rule, place: u16) {
        self.store(own, place, 0, 0);
        if let Entry::Occupied(mut socket) = self.sockets.entry(rule.cookie) {
            socket.get_mut().0 -= 1;
            if socket.get().0 == 0 {
                socket.remove();
            }
        }
        if let Entry::Occupied(mut count) = self.entries.entry(encode(rule.protocol, rule.address)) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
        self.free.push(place);
    }

    /// Looks for the rules of our own that match `address`.
    pub(crate) fn find(&self, protocol: Protocol, address: SocketAddrV4) -> Found {
        let any = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, address.port());
        let count = |address| self.entries.get(&encode(protocol, address)).copied().unwrap_or(0);
        Found { exact: count(address), wildcard: count(any), version: self.version }
    }

    /// Whether a rule of our own is for that socket of the kernel's, and whether it is shared.
    pub(crate) fn find_socket(&self, cookie: u64) -> Option<bool> {
        self.sockets.get(&cookie).map(|&(_, is_shared)| is_shared)
    }

    /// Has everybody who knows a rule of ours ask again.
    pub(crate) fn unsettle(&mut self, own: &impl WriteWords) {
        self.change(own, |_| ());
    }

    fn store(&mut self, own: &impl WriteWords, place: u16, entry: u64, socket: u64) {
        let (at, len) = (RULES_AT + usize::from(place) * RULE_BYTES, u64::from(self.len));
        // All or nothing: a reader that saw the new version with the old length would miss the rule for as long as the version stays.
        self.change(own, |own| {
            own.store(at, entry, Ordering::Relaxed);
            own.store(at + 8, socket, Ordering::Relaxed);
            own.store(RULES_LEN_AT, len, Ordering::Relaxed);
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
    /// The table's generation.
    pub(crate) version: u64,
}

/// Looks for the rules that match `address`.
pub(crate) fn find(table: &impl ReadWords, protocol: Protocol, address: SocketAddrV4) -> Found {
    let exact = encode(protocol, address);
    let wildcard = encode(protocol, SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, address.port()));
    let (found, version) = read(table, |found: &mut Found, entry, _| {
        found.exact += usize::from(entry == exact);
        found.wildcard += usize::from(entry == wildcard);
    });
    Found { version, ..found }
}

/// Whether there is a rule for that socket of the kernel's, whether that is shared, and the table's generation.
pub(crate) fn find_socket(table: &impl ReadWords, cookie: u64) -> Option<(bool, u64)> {
    let (found, version) = read(table, |found: &mut Option<bool>, entry, socket| {
        if entry != 0 && socket & !SHARED_SOCKET == cookie {
            *found = Some(socket & SHARED_SOCKET != 0);
        }
    });
    found.map(|is_shared| (is_shared, version))
}

/// Goes through a table's entries. One that never holds still (its owner died in the middle, or is hostile) has none.
fn read<T: Default>(table: &impl ReadWords, look: impl Fn(&mut T, u64, u64)) -> (T, u64) {
    for _ in 0..TRIES {
        let version = table.load(RULES_VERSION_AT, Ordering::Acquire);
        if version & 1 == 1 {
            core::hint::spin_loop();
            continue;
        }
        let mut found = T::default();
        let len = (table.load(RULES_LEN_AT, Ordering::Acquire) as usize).min(RULES_MAX);
        for place in 0..len {
            let at = RULES_AT + place * RULE_BYTES;
            look(&mut found, table.load(at, Ordering::Relaxed), table.load(at + 8, Ordering::Relaxed));
        }
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

    fn address(text: &str) -> SocketAddrV4 {
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

    fn rule(protocol: Protocol, address: SocketAddrV4) -> Rule {
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
        assert_eq!([7, 8, 9].map(|cookie| find_socket(&view, cookie).map(|found| found.0)), [Some(false), Some(true), None]);
        assert_eq!([7, 8, 9].map(|cookie| table.find_socket(cookie)), [Some(false), Some(true), None]);
        let before = find_socket(&view, 7).unwrap();
        table.remove(&own, &shared, place);
        assert_eq!((find_socket(&view, 8), find_socket(&view, 0)), (None, None));
        assert_ne!(find_socket(&view, 7).unwrap(), before, "whoever knew it asks again");
        // It finds its peer, and has another address from then on.
        let moved = Rule { address: address("127.0.0.2:80"), ..plain };
        table.insert(&own, &moved).unwrap();
        table.remove(&own, &plain, 0);
        assert_eq!((find_socket(&view, 7).map(|found| found.0), table.find_socket(7)), (Some(false), Some(false)));
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
        assert_eq!(table.find(Protocol::Tcp, to), second);
        table.remove(&own, &rule(Protocol::Tcp, any), one);
        let third = find(&view, Protocol::Tcp, address("10.1.2.3:80"));
        assert_eq!((third.exact, third.wildcard), (0, 1));
        assert_eq!(table.find(Protocol::Tcp, to), third);
    }

    #[test]
    fn the_table_has_an_end_and_its_places_are_used_again() {
        let (own, fd) = memfd::create(c"rules-test", POOL_AT).unwrap();
        let view = memfd::open(&fd, Some(POOL_AT), POOL_AT).unwrap();
        let mut table = RuleTable::default();
        for port in 0..RULES_MAX as u16 {
            table.insert(&own, &rule(Protocol::Udp, SocketAddrV4::new(Ipv4Addr::LOCALHOST, port))).unwrap();
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
}
