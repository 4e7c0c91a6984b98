//! Rings begin with their first user and end with their last.

use super::*;

fn rings(limit: usize) -> Rings {
    Rings {
        all: Slab::new(),
        threads: Threads::default(),
        has_completions: true,
        is_active: true,
        logics: [Logic::Socket; 2],
        limit,
        ratios: [None; 2],
        migrate: [false; 2],
    }
}

fn place(rings: &mut Rings, index: u32) -> Place {
    let socket = crate::socket::Socket::new(
        3,
        crate::socket::Family::V4,
        ringway_stack::device::Protocol::Udp,
        false,
        ringway_stack::tcp::Config::default(),
    );
    rings.threads.place(Asked::by(Logic::Socket), Key { index, generation: 1 }, &socket)
}

#[test]
fn a_ring_lives_as_long_as_somebody_uses_it() {
    let mut rings = rings(0);
    let (one, two) = (place(&mut rings, 1), place(&mut rings, 2));
    let (a, b, again) = (rings.join(one), rings.join(two), rings.join(one));
    assert!(a == again && a != b);
    assert_eq!(rings.len(), 2);
    rings.leave(a);
    assert_eq!(rings.len(), 2);
    rings.leave(a);
    rings.leave(b);
    assert_eq!(rings.len(), 0);
    assert_ne!(rings.join(one), a, "it is another ring");
}

#[test]
fn beyond_the_limit_the_least_used_ring_serves_and_goes_on_to() {
    let mut rings = rings(2);
    let places = [1, 2, 3, 4].map(|index| place(&mut rings, index));
    let (a, b) = (rings.join(places[0]), rings.join(places[1]));
    rings.join(places[0]);
    let c = rings.join(places[2]);
    assert_eq!(c, b);
    assert_eq!(rings.join(places[2]), b);
    assert_eq!(rings.join(places[3]), a);
    assert_eq!(rings.len(), 2);
}
