//! The last one to leave leaves nothing behind. In a process of its own: the other tests' members would be counted.

use ringway_stack::device::{Protocol, Queues as _};

use super::{Node, find, fresh_address, pair, pattern, small, tcp, until};
use crate::attach;

/// Descriptors and shared mappings of this process, and its names in the kernel's table.
fn possessions() -> (usize, usize, usize) {
    let descriptors = std::fs::read_dir("/proc/self/fd").unwrap().count();
    let count = |path: &str, what: &str| std::fs::read_to_string(path).unwrap().lines().filter(|line| line.contains(what)).count();
    let own = format!("member/{}-", std::process::id());
    let [_, _, high, low] = std::process::id().to_be_bytes();
    let names = count("/proc/net/unix", &own) + count("/proc/net/unix", &format!("/127.{high}.{low}.1:"));
    (descriptors, count("/proc/self/maps", "memfd:ringway"), names)
}

#[test]
#[ignore = "run alone, by the test below"]
fn alone() {
    let before = possessions();
    assert_eq!((before.1, before.2), (0, 0));
    {
        let (mut a, mut b, to_b) = pair();
        for i in 0..20 {
            a.send(to_b, &pattern(i * 700, i)).unwrap();
        }
        let held = until("all frames", || Some(b.poll()).filter(|got| got.len() == 20));
        let during = possessions();
        assert!(during.0 > before.0 && during.1 >= 6 && during.2 >= 3, "{during:?}");
        drop((a, b));
        assert!(possessions().1 > 0, "held handles keep their memory");
        drop(held);
    }
    assert_eq!(possessions(), before);
}

#[test]
fn nothing_is_left_behind() {
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "tests::leave::alone", "--ignored", "--test-threads=1"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

/// A peer's progress thread may be slow to hear of it.
#[test]
fn who_has_left_is_not_found_by_one_who_has_not_heard_of_it() {
    let (a, b) = (Node::new(), Node::new());
    let (_device, unserved) = attach(&small()).unwrap();
    let address = fresh_address();
    for node in [&a, &b] {
        node.device.steer(&tcp(address).shared()).unwrap();
    }
    let turns = [(); 2].map(|()| find(&unserved, Protocol::Tcp, address).unwrap().mac);
    assert_ne!(turns[0], turns[1]);
    drop(b);
    assert_eq!(unserved.peers().len(), 2, "it has not heard of the end");
    for _ in 0..4 {
        let found = find(&unserved, Protocol::Tcp, address).expect("the one that is left");
        assert_eq!(unserved.member_at(found.mac).unwrap().id(), a.rendezvous.member_ref().id());
    }
    drop(a);
    assert!(find(&unserved, Protocol::Tcp, address).is_none());
}
