//! The table of flow rules that a member publishes in its segment: how connected peers learn, without a system call, who has an
//! address.

use core::sync::atomic::{Ordering, fence};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::{Ipv4Addr, SocketAddrV4};

use ringway_stack::device::Protocol;

use crate::layout::{RULES_AT, RULES_LEN_AT, RULES_MAX, RULES_VERSION_AT};
use crate::protocol::{ReadWords, WriteWords};

/// Readings of a table that changes meanwhile, before the reader gives up.
const TRIES: usize = 16;

/// An entry: in use (bit 56), protocol (bits 48..), port (32..), address. Never zero, which is a free entry.
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
}

impl RuleTable {
    /// Adds a rule; its place, or none if the table is full.
    pub(crate) fn insert(&mut self, own: &impl WriteWords, protocol: Protocol, address: SocketAddrV4) -> Option<u16> {
        let entry = encode(protocol, address);
        let place = self.free.pop().or_else(|| (usize::from(self.len) < RULES_MAX).then_some(self.len))?;
        self.len = self.len.max(place + 1);
        let len = u64::from(self.len);
        // Both or neither: a reader that saw the new version with the old length would miss the rule for as long as the version stays.
        self.change(own, |own| {
            own.store(RULES_AT + usize::from(place) * 8, entry, Ordering::Relaxed);
            own.store(RULES_LEN_AT, len, Ordering::Relaxed);
        });
        *self.entries.entry(entry).or_default() += 1;
        Some(place)
    }

    /// Removes the rule at `place`, which is one of that kind.
    pub(crate) fn remove(&mut self, own: &impl WriteWords, protocol: Protocol, address: SocketAddrV4, place: u16) {
        self.change(own, |own| own.store(RULES_AT + usize::from(place) * 8, 0, Ordering::Relaxed));
        if let Entry::Occupied(mut count) = self.entries.entry(encode(protocol, address)) {
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

/// Looks for the rules that match `address`. A table that never holds still (its owner died in the middle, or is hostile)
/// has none.
pub(crate) fn find(table: &impl ReadWords, protocol: Protocol, address: SocketAddrV4) -> Found {
    let exact = encode(protocol, address);
    let wildcard = encode(protocol, SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, address.port()));
    for _ in 0..TRIES {
        let version = table.load(RULES_VERSION_AT, Ordering::Acquire);
        if version & 1 == 1 {
            core::hint::spin_loop();
            continue;
        }
        let mut found = Found { version, ..Found::default() };
        let len = (table.load(RULES_LEN_AT, Ordering::Acquire) as usize).min(RULES_MAX);
        for place in 0..len {
            let entry = table.load(RULES_AT + place * 8, Ordering::Relaxed);
            found.exact += usize::from(entry == exact);
            found.wildcard += usize::from(entry == wildcard);
        }
        fence(Ordering::Acquire);
        if table.load(RULES_VERSION_AT, Ordering::Relaxed) == version {
            return found;
        }
    }
    Found::default()
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
        let place = table.insert(&log, Protocol::Udp, address("127.0.0.1:53")).unwrap();
        table.remove(&log, place);
        for change in log.0.take().split_inclusive(|&(at, value)| at == RULES_VERSION_AT && value % 2 == 0) {
            let versions: Vec<_> = change.iter().filter(|(at, _)| *at == RULES_VERSION_AT).collect();
            assert!(versions.len() == 2 && change[0].0 == RULES_VERSION_AT && change[0].1 % 2 == 1, "{change:?}");
        }
    }

    #[test]
    fn a_reader_sees_exact_and_wildcard_rules_and_every_change() {
        let (own, fd) = memfd::create(c"rules-test", POOL_AT).unwrap();
        let view = memfd::open(&fd, Some(POOL_AT), POOL_AT).unwrap();
        let mut table = RuleTable::default();
        let to = address("127.0.0.1:80");
        assert_eq!(find(&view, Protocol::Tcp, to), Found::default());

        let exact = table.insert(&own, Protocol::Tcp, to).unwrap();
        let first = find(&view, Protocol::Tcp, to);
        assert_eq!((first.exact, first.wildcard), (1, 0));
        assert_eq!(find(&view, Protocol::Udp, to), Found { exact: 0, ..first });
        assert_eq!(find(&view, Protocol::Tcp, address("127.0.0.2:80")).exact, 0);

        let any = address("0.0.0.0:80");
        let [one, _] = [(); 2].map(|()| table.insert(&own, Protocol::Tcp, any).unwrap());
        table.remove(&own, Protocol::Tcp, to, exact);
        let second = find(&view, Protocol::Tcp, to);
        assert!((second.exact, second.wildcard) == (0, 2) && second.version != first.version);
        assert_eq!(table.find(Protocol::Tcp, to), second);
        table.remove(&own, Protocol::Tcp, any, one);
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
            table.insert(&own, Protocol::Udp, SocketAddrV4::new(Ipv4Addr::LOCALHOST, port)).unwrap();
        }
        assert_eq!(table.insert(&own, Protocol::Udp, address("127.0.0.1:9999")), None);
        table.remove(&own, Protocol::Udp, address("127.0.0.1:17"), 17);
        assert_eq!(table.insert(&own, Protocol::Udp, address("127.0.0.1:9999")), Some(17));
        assert_eq!(find(&view, Protocol::Udp, address("127.0.0.1:9999")).exact, 1);
        assert_eq!(find(&view, Protocol::Udp, address("127.0.0.1:17")).exact, 0);
    }

    #[test]
    fn a_table_left_in_the_middle_of_a_change_has_no_rules() {
        let (own, fd) = memfd::create(c"rules-test", POOL_AT).unwrap();
        let view = memfd::open(&fd, Some(POOL_AT), POOL_AT).unwrap();
        RuleTable::default().insert(&own, Protocol::Tcp, address("127.0.0.1:80")).unwrap();
        own.store(RULES_VERSION_AT, 7, Ordering::Release);
        assert_eq!(find(&view, Protocol::Tcp, address("127.0.0.1:80")), Found::default());
    }
}
