//! Rings begin with their first user and end with their last.

use super::*;

fn rings(limit: usize) -> Rings {
    Rings {
        all: Slab::new(),
        threads: Threads::default(),
        profiled: Profiled::default(),
        has_completions: true,
        is_active: true,
        logics: [Logic::Socket; 2],
        is_automatic: false,
        limit,
        ratios: [None; 2],
        migrate: [false; 2],
    }
}

fn key(rings: &mut Rings, index: u32) -> RingKey {
    let socket = crate::socket::Socket::new(
        3,
        crate::socket::Family::V4,
        ringway_stack::device::Protocol::Udp,
        false,
        ringway_stack::tcp::Config::default(),
    );
    rings.threads.key(Asked::by(Logic::Socket), Key { index, generation: 1 }, &socket)
}

fn on(ring: Key, by: RingKey) -> On {
    On { ring, by: Some(by) }
}

#[test]
fn a_ring_lives_as_long_as_somebody_uses_it() {
    let mut rings = rings(0);
    let (one, two) = (key(&mut rings, 1), key(&mut rings, 2));
    let (a, b, again) = (rings.join(one), rings.join(two), rings.join(one));
    assert!(a == again && a != b);
    assert_eq!(rings.len(), 2);
    rings.leave(on(a, one));
    assert_eq!(rings.len(), 2);
    rings.leave(on(a, one));
    rings.leave(on(b, two));
    assert_eq!(rings.len(), 0);
    assert_ne!(rings.join(one), a, "it is another ring");
}

#[test]
fn beyond_the_limit_the_least_used_ring_serves_and_goes_on_to() {
    let mut rings = rings(2);
    let keys = [1, 2, 3, 4].map(|index| key(&mut rings, index));
    let (a, b) = (rings.join(keys[0]), rings.join(keys[1]));
    rings.join(keys[0]);
    let c = rings.join(keys[2]);
    assert_eq!(c, b);
    assert_eq!(rings.join(keys[2]), b);
    assert_eq!(rings.join(keys[3]), a);
    assert_eq!(rings.len(), 2);
}

#[test]
fn keys_go_with_their_last_user() {
    let mut rings = rings(1);
    let first = key(&mut rings, 0);
    let only = rings.join(first);
    for index in 1..100 {
        let key = key(&mut rings, index);
        assert_eq!(rings.join(key), only);
        rings.leave(on(only, key));
    }
    assert_eq!(rings.all.find(only).map(|ring| ring.keys.len()), Some(1));
}

#[test]
fn sockets_with_other_profiles_share_no_ring_whatever_the_limit() {
    let mut rings = rings(1);
    let plain = key(&mut rings, 1);
    let socket = crate::socket::Socket::new(
        3,
        crate::socket::Family::V4,
        ringway_stack::device::Protocol::Udp,
        false,
        ringway_stack::tcp::Config::default(),
    );
    let mut with = |profile, index| {
        let asked = Asked { profile, ..Asked::by(Logic::Socket) };
        rings.threads.key(asked, Key { index, generation: 1 }, &socket)
    };
    let (one, another, alike) = (with(1, 2), with(2, 3), with(1, 4));
    let (a, b, c) = (rings.join(plain), rings.join(one), rings.join(another));
    assert!(a != b && b != c && a != c);
    assert_eq!(rings.join(alike), b);
}
