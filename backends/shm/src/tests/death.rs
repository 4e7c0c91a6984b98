//! Members that die. The dying ones are processes: this test binary again, told by the environment what to be.

use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddrV4;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use ringway_host::HostQueues;
use ringway_stack::device::{Device as _, DeviceEvent, Protocol, Queues, SendError, Wake};

use super::{Node, fresh_address, pattern, small, tcp, until};
use crate::{ResolveError, Settings, store_hook};

const ROLE: &str = "RINGWAY_SHM_TEST_ROLE";

/// Starts the other process. `role`: what it does, then its arguments.
fn start(role: &str) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "tests::death::other_process", "--ignored", "--nocapture", "--test-threads=1"])
        .env(ROLE, role)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// Waits until it says that it is ready.
fn await_ready(child: &mut Child) {
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().ends_with("ready")), "it ended before it was ready");
    // Its output is of no interest from here on; keeping the pipe open keeps it from failing.
    std::thread::spawn(move || lines.for_each(drop));
}

#[test]
#[ignore = "the other process of the tests in this file"]
fn other_process() {
    let role = std::env::var(ROLE).expect("started by one of the tests");
    let mut words = role.split(' ');
    let what = words.next().unwrap();
    let address: SocketAddrV4 = words.next().unwrap().parse().unwrap();
    let argument: u32 = if what == "pose" { 0 } else { words.next().map_or(0, |word| word.parse().unwrap()) };
    let mut node = Node::new();
    match what {
        // Holds what it receives, until it is killed.
        "hold" => {
            node.device.steer(&tcp(address)).unwrap();
            println!("ready");
            let mut held = Vec::new();
            loop {
                held.extend(node.poll());
            }
        }
        // Sends so many frames, and is killed by itself.
        "send" => {
            let to = node.find(address).unwrap().mac;
            for i in 0..argument {
                node.send(to, &pattern(i as usize * 100, i as usize)).unwrap();
            }
            // SAFETY: no memory is involved.
            unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
        }
        // Sends and receives for ever, until the store after so many.
        "stores" => {
            let to = node.find(address).unwrap().mac;
            store_hook::kill_after(argument);
            for i in 0.. {
                if node.send(to, &pattern(i * 37 % 3000, i)).is_err() {
                    node.device.reap();
                }
                node.device.doorbell();
                node.poll();
                if node.device.arm(Wake::Any) {
                    node.device.disarm();
                }
            }
        }
        // Publishes and withdraws rules, until the store after so many.
        "rules" => {
            store_hook::kill_after(argument);
            loop {
                let rule = node.device.steer(&tcp(address)).unwrap();
                node.device.device().detach(rule.rule);
            }
        }
        // Has a core, until it is killed.
        "sit" => {
            node.device.steer(&tcp(address)).unwrap();
            assert!(node.device.claim_core(argument as usize));
            println!("ready");
            loop {
                node.poll();
            }
        }
        // Claims a core and gives it up, until the store after so many.
        "claims" => {
            node.find(address).unwrap();
            store_hook::kill_after(argument);
            loop {
                if node.device.claim_core(0) {
                    node.device.release_core(0);
                }
            }
        }
        // Stops, once it has a rule.
        "stop" => {
            node.device.steer(&tcp(address)).unwrap();
            println!("ready");
            // SAFETY: no memory is involved.
            unsafe { libc::kill(libc::getpid(), libc::SIGSTOP) };
            loop {
                node.poll();
            }
        }
        // Forks a child that lives on; ends itself.
        "fork" => {
            let to = node.find(address).unwrap().mac;
            node.send(to, b"before the fork").unwrap();
            // SAFETY: the child calls only what is documented to be safe there, and sleeps.
            unsafe {
                if libc::fork() == 0 {
                    node.rendezvous.after_fork_in_child();
                    libc::close(1);
                    libc::sleep(10);
                    libc::_exit(0);
                }
                libc::usleep(50_000);
                libc::kill(libc::getpid(), libc::SIGKILL);
            }
        }
        // Says that it is the member whose id it is given: to whoever comes to `address`, and to whoever has the address after it.
        "pose" => pose(address, words.next().unwrap().parse().unwrap(), words.next().unwrap().parse().unwrap()),
        other => panic!("unknown role {other}"),
    }
}

/// Greets as the member `id`, and makes an offer as that to who has the address `to`. Everything else is in order.
fn pose(own: SocketAddrV4, to: SocketAddrV4, id: u64) {
    use crate::rendezvous::posing::{greet_as, offer_as};
    println!("offer {}", if offer_as(to, id) { "accepted" } else { "refused" });
    greet_as(own, id, || println!("ready"));
}

#[test]
fn who_says_that_it_is_another_is_refused() {
    let (victim, genuine) = (Node::new(), Node::new());
    let (own, real, posed) = (fresh_address(), fresh_address(), fresh_address());
    let victim = victim;
    victim.device.steer(&tcp(own)).unwrap();
    genuine.device.steer(&tcp(real)).unwrap();
    let id = genuine.rendezvous.member_ref().id();
    for is_linked in [false, true] {
        if is_linked {
            assert!(victim.find(real).is_some(), "the genuine one is let in, whatever others said before");
        }
        let mut child = start(&format!("pose {posed} {own} {id}"));
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        assert!(lines.any(|line| line.ends_with("offer refused")), "linked: {is_linked}");
        assert!(lines.any(|line| line.ends_with("ready")));
        assert!(matches!(victim.rendezvous.resolve(Protocol::Tcp, posed), Err(ResolveError::Unverified)), "linked: {is_linked}");
        assert_eq!(victim.rendezvous.peers().len(), usize::from(is_linked));
        kill(child);
    }
}

fn kill(mut child: Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn a_killed_peer_is_gone_within_a_second_and_its_buffers_come_back() {
    let mut node = Node::new();
    let address = fresh_address();
    let mut child = start(&format!("hold {address}"));
    await_ready(&mut child);
    let found = node.find(address).unwrap();
    assert!(node.rendezvous.still_valid(&found));
    for i in 0..50 {
        node.send(found.mac, &pattern(i * 500, i)).unwrap();
    }
    node.device.doorbell();
    assert!(node.device.buffers_in_use() > 0);
    kill(child);
    let begin = Instant::now();
    assert_eq!(node.await_event(), DeviceEvent::PeerGone(found.mac));
    assert!(begin.elapsed() < Duration::from_secs(1), "{:?}", begin.elapsed());
    assert_eq!(node.device.buffers_in_use(), 0);
    assert!(!node.rendezvous.still_valid(&found));
    assert_eq!(node.send(found.mac, b"x"), Err(SendError::NoPeer));
    assert!(node.find(address).is_none());
    assert!(node.rendezvous.peers().is_empty());

    // Its slot serves another, whose address is new.
    let mut child = start(&format!("hold {address}"));
    await_ready(&mut child);
    let next = node.find(address).unwrap();
    assert_ne!(next.mac, found.mac);
    assert_eq!(crate::member::slot_of(next.mac), crate::member::slot_of(found.mac));
    assert_eq!(node.send(found.mac, b"x"), Err(SendError::NoPeer));
    node.send(next.mac, b"x").unwrap();
    kill(child);
}

#[test]
fn what_a_peer_sent_before_its_death_arrives_before_the_news() {
    let mut node = Node::new();
    let address = fresh_address();
    node.device.steer(&tcp(address)).unwrap();
    let mut child = start(&format!("send {address} 200"));
    child.wait().unwrap();
    // The news is there before the first poll.
    until("the end", || node.rendezvous.peers().is_empty().then_some(()));
    let mut received = 0;
    let event = until("the news", || {
        for got in node.poll() {
            assert_eq!(got.payload, pattern(received * 100, received));
            received += 1;
        }
        node.device.poll_event()
    });
    assert_eq!(received, 200);
    assert!(matches!(event, DeviceEvent::PeerGone(_)));
    drop(child.stdout.take().map(|mut out| out.read_to_string(&mut String::new())));
}

#[test]
fn death_at_any_store_leaves_whole_frames_and_an_end() {
    // Every store of the first frames, then some of later ones.
    for stores in (0..120).step_by(if cfg!(debug_assertions) { 7 } else { 1 }).chain([500, 1999, 4000, 9001, 30_011]) {
        let mut node = Node::new();
        let address = fresh_address();
        node.device.steer(&tcp(address)).unwrap();
        let mut child = start(&format!("stores {address} {stores}"));
        let mut sequence = Vec::new();
        let event = until("the end", || {
            for got in node.poll() {
                sequence.push(got.payload);
            }
            node.device.reap();
            node.device.poll_event()
        });
        assert!(matches!(event, DeviceEvent::PeerGone(_)));
        // Frames that found no room were not sent: the rest is in order, and whole.
        let mut i = 0;
        for payload in sequence {
            while payload != pattern(i * 37 % 3000, i) {
                i += 1;
                assert!(i < 2_000_000, "a frame that was never sent, after {stores} stores");
            }
            i += 1;
        }
        child.wait().unwrap();
    }
}

#[test]
fn death_in_the_middle_of_a_rule_leaves_no_rule() {
    for stores in 0..10 {
        let mut node = Node::new();
        let address = fresh_address();
        let mut child = start(&format!("rules {address} {stores}"));
        while child.try_wait().unwrap().is_none() {
            let _ = node.rendezvous.resolve(ringway_stack::device::Protocol::Tcp, address);
        }
        until("its rules' end", || node.find(address).is_none().then_some(()));
        node.poll();
    }
}

#[test]
fn a_killed_members_core_is_free() {
    let mut node = Node::new();
    let address = fresh_address();
    let mut child = start(&format!("sit {address} 3"));
    await_ready(&mut child);
    let found = node.find(address).unwrap();
    let claimed = [3, 4].map(|core| node.device.claim_core(core));
    kill(child);
    assert_eq!(claimed, [false, true]);
    assert_eq!(node.await_event(), DeviceEvent::PeerGone(found.mac));
    assert!(node.device.claim_core(3));
}

#[test]
fn death_between_claiming_a_core_and_giving_it_up_frees_it() {
    for stores in 0..4 {
        let mut node = Node::new();
        let address = fresh_address();
        node.device.steer(&tcp(address)).unwrap();
        let mut child = start(&format!("claims {address} {stores}"));
        child.wait().unwrap();
        assert!(matches!(node.await_event(), DeviceEvent::PeerGone(_)));
        assert!(node.device.claim_core(0), "after {stores} stores");
    }
}

#[test]
fn a_stopped_owner_is_waited_for_only_so_long() {
    let limit = Duration::from_millis(500);
    let node = Node::with(&Settings { resolve_timeout: limit, ..small() });
    let address = fresh_address();
    let mut child = start(&format!("stop {address}"));
    await_ready(&mut child);
    // Stopped right after it said so.
    std::thread::sleep(Duration::from_millis(100));
    let begin = Instant::now();
    assert!(node.find(address).is_none());
    let waited = begin.elapsed();
    assert!(waited >= limit && waited < 20 * limit, "{waited:?}");
    // Once: the next ones do not wait, and the one after a while does so for a twentieth of that while.
    let again = (0..3).map(|_| {
        let begin = Instant::now();
        assert!(matches!(node.rendezvous.resolve(Protocol::Tcp, address), Err(ResolveError::Silent)));
        begin.elapsed()
    });
    assert!(again.min().unwrap() < Duration::from_millis(200));
    assert!(matches!(node.rendezvous.search(Protocol::Tcp, address), Err(ResolveError::Silent)));
    // SAFETY: our own child.
    unsafe { libc::kill(child.id() as i32, libc::SIGCONT) };
    until("an answer", || node.find(address));
    kill(child);
}

#[test]
fn a_childs_copies_do_not_hide_the_parents_death() {
    let mut node = Node::new();
    let address = fresh_address();
    node.device.steer(&tcp(address)).unwrap();
    let mut child = start(&format!("fork {address}"));
    assert_eq!(until("a frame", || node.poll().pop()).payload, b"before the fork");
    child.wait().unwrap();
    let begin = Instant::now();
    assert!(matches!(node.await_event(), DeviceEvent::PeerGone(_)));
    assert!(begin.elapsed() < Duration::from_secs(1));
}
