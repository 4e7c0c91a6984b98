use std::net::{SocketAddr, SocketAddrV4, TcpListener, UdpSocket};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use ringway_host::members::{members, query};
use ringway_stack::device::{Device as _, FlowRule, Protocol, Queues, RuleError};

use crate::fd::Fd;
use crate::rendezvous::names;
use crate::tests::{Node, Progress, fresh_address, small, tcp, until};
use crate::{ResolveError, Settings, attach, sys};

#[test]
fn nobody_there_is_no_error_and_quick() {
    let node = Node::new();
    let begin = Instant::now();
    assert!(node.find(fresh_address()).is_none());
    assert!(begin.elapsed() < Duration::from_millis(100));
}

#[test]
fn rules_are_found_exactly_by_wildcard_and_by_protocol() {
    let (a, b) = (Node::new(), Node::new());
    let exact = fresh_address();
    let wildcard = fresh_address();
    b.device.steer(&tcp(exact)).unwrap();
    let rule = b.device.steer(&tcp(std::net::SocketAddrV4::new(std::net::Ipv4Addr::UNSPECIFIED, 40_000 + wildcard.port()))).unwrap();
    let at_wildcard = std::net::SocketAddrV4::new(*wildcard.ip(), 40_000 + wildcard.port());

    let found = a.find(at_wildcard).unwrap();
    assert_eq!(a.find(exact).unwrap().mac, found.mac, "one link for both");
    assert!(a.rendezvous.resolve(Protocol::Udp, exact).unwrap().is_none());
    assert!(a.rendezvous.still_valid(&found));
    b.device.device().detach(rule.rule);
    assert!(!a.rendezvous.still_valid(&found));
    assert!(a.find(at_wildcard).is_none());
    assert_eq!(a.rendezvous.peers().len(), 1);
}

#[test]
fn a_rule_has_one_owner_at_a_time() {
    let (a, b) = (Node::new(), Node::new());
    let address = fresh_address();
    let rule = a.device.steer(&tcp(address)).unwrap();
    assert_eq!(b.device.steer(&tcp(address)), Err(RuleError::Taken));
    assert_eq!(a.device.steer(&tcp(address)), Err(RuleError::Taken));
    b.device.steer(&FlowRule::flow(Protocol::Udp, address.into(), None)).unwrap();
    let datagrams = FlowRule::flow(Protocol::Udp, fresh_address().into(), None);
    for more in [tcp(address).tag(1), datagrams.shared(), FlowRule::any()] {
        assert!(matches!(b.device.steer(&more), Err(RuleError::Unsupported(_))), "memory steers by addresses only");
    }
    a.device.device().detach(rule.rule);
    b.device.steer(&tcp(address)).unwrap();
}

#[test]
fn members_that_share_a_rule_take_turns() {
    let (mut a, mut b, c) = (Node::new(), Node::new(), Node::new());
    let address = fresh_address();
    for node in [&mut a, &mut b] {
        node.device.steer(&tcp(address).shared()).unwrap();
    }
    assert_eq!(a.device.steer(&tcp(address)), Err(RuleError::Taken), "it is shared");
    let mut turns: Vec<_> = (0..6).map(|_| c.find(address).unwrap().mac).collect();
    turns.sort();
    assert_eq!((turns[0], turns[3]), (turns[2], turns[5]));
    assert_ne!(turns[0], turns[3]);
    // Who has the rule has its turn too.
    let mut turns: Vec<_> = (0..6).map(|_| a.find(address).unwrap().mac).collect();
    turns.sort();
    assert_eq!((turns[0], turns[3]), (turns[2], turns[5]));
    assert_ne!(turns[0], turns[3]);
    drop(b);
    let left = c.find(address).unwrap().mac;
    assert!((0..4).all(|_| c.find(address).unwrap().mac == left));
}

#[test]
fn a_member_that_has_a_shared_rule_several_times_has_as_many_turns() {
    let (a, b, c) = (Node::new(), Node::new(), Node::new());
    let address = fresh_address();
    let shared = tcp(address).shared();
    let rules = [(); 3].map(|()| a.device.steer(&shared).unwrap());
    b.device.steer(&shared).unwrap();
    let turns = |count: usize| {
        let mut turns = std::collections::BTreeMap::new();
        (0..count).for_each(|_| *turns.entry(c.find(address).unwrap().mac).or_insert(0) += 1);
        let mut turns: Vec<usize> = turns.into_values().collect();
        turns.sort_unstable();
        turns
    };
    assert_eq!(turns(40), [10, 30]);
    a.device.device().detach(rules[0].rule);
    a.device.device().detach(rules[1].rule);
    assert_eq!(turns(40), [20, 20]);
    a.device.device().detach(rules[2].rule);
    assert_eq!(turns(4), [4]);
}

/// Without a look that is due: the look before was just now.
#[test]
fn who_knows_a_group_learns_at_once_that_another_member_joins_or_comes_again() {
    let (a, b, c, d) = (Node::new(), Node::new(), Node::new(), Node::new());
    let address = fresh_address();
    let shared = tcp(address).shared();
    let first = a.device.steer(&shared).unwrap();
    let of_a = c.find(address).unwrap().mac;
    let members = |count: usize| (0..count).map(|_| c.find(address).unwrap().mac).collect::<std::collections::BTreeSet<_>>().len();
    assert_eq!(members(4), 1);
    // One more.
    b.device.steer(&shared).unwrap();
    b.rendezvous.await_joined();
    assert_eq!(members(4), 2);
    // The one whom the other has told goes, and another one takes its place.
    a.device.device().detach(first.rule);
    d.device.steer(&shared).unwrap();
    d.rendezvous.await_joined();
    assert_eq!(members(4), 2);
    assert!((0..4).all(|_| c.find(address).unwrap().mac != of_a));
    // Where all were looked for, nobody is asked again.
    let greeted = c.rendezvous.peers().len();
    a.device.steer(&shared).unwrap();
    a.rendezvous.await_joined();
    assert_eq!((members(6), c.rendezvous.peers().len()), (3, greeted));
}

/// One that has the exact address gets all of it from those whose address is every one, although they were known first.
#[test]
fn who_joins_with_a_better_address_is_found_at_once() {
    let (a, b, c) = (Node::new(), Node::new(), Node::new());
    let address = SocketAddrV4::new(*fresh_address().ip(), 40_000 + fresh_address().port());
    a.device.steer(&tcp(SocketAddrV4::new(std::net::Ipv4Addr::UNSPECIFIED, address.port())).shared()).unwrap();
    let of_a = c.find(address).unwrap().mac;
    assert!((0..3).all(|_| c.find(address).unwrap().mac == of_a));
    b.device.steer(&tcp(address).shared()).unwrap();
    b.rendezvous.await_joined();
    assert!((0..3).all(|_| c.find(address).unwrap().mac != of_a));
}

#[test]
fn datagrams_go_to_the_member_whose_socket_the_kernel_names() {
    let (a, b, c) = (Node::new(), Node::new(), Node::new());
    let (first, second, client) = (udp("127.0.0.1:0"), udp("127.0.0.1:0"), udp("127.0.0.1:0"));
    let (to, other, from) = (local(&first), local(&second), local(&client));
    let rule = |socket: &UdpSocket, shared| {
        let cookie = sys::cookie(socket.as_raw_fd()).unwrap();
        FlowRule { shared, cookie, ..FlowRule::flow(Protocol::Udp, local(socket).into(), None) }
    };
    let find = || c.rendezvous.resolve_datagram(from, to).unwrap();
    assert!(find().is_none(), "no member has published it");
    let first_rule = a.device.steer(&rule(&first, true)).unwrap();
    let found = find().expect("a");
    assert!(found.is_shared && c.rendezvous.still_valid(&found));
    let wide = FlowRule { cookie: rule(&second, false).cookie, ..FlowRule::flow(Protocol::Udp, "0.0.0.0:9".parse().unwrap(), None) };
    let wide = b.device.steer(&wide).unwrap();
    b.device.steer(&rule(&second, false)).expect("as where a socket finds its peer: one rule takes the other's place");
    b.device.device().detach(wide.rule);
    let plain = c.rendezvous.resolve_datagram(from, other).unwrap().expect("b");
    assert!(!plain.is_shared && plain.mac != found.mac);
    // The kernel has no socket there for who comes from elsewhere.
    first.connect("127.0.0.1:1").unwrap();
    assert!(find().is_none());
    first.connect(from).unwrap();
    assert_eq!(find().map(|again| again.mac), Some(found.mac));

    // A member that takes them from another one has its senders ask again.
    let (found, theirs) = (find().unwrap(), c.rendezvous.receiver(from, to));
    assert_eq!(theirs, sys::cookie(first.as_raw_fd()).ok());
    b.rendezvous.unsettle(theirs);
    assert!(!c.rendezvous.still_valid(&found));
    a.device.device().detach(first_rule.rule);
    assert!(find().is_none(), "nobody has it on a ring");
}

/// Whoever looks for a socket finds it while it goes over to another member of its process, and after: who knew the one before, who is asked for by a
/// name, and who has yet to be greeted.
#[test]
fn a_socket_that_goes_over_to_another_member_is_always_somebodys() {
    let (a, b, c, d) = (Node::new(), Node::new(), Node::new(), Node::new());
    let (socket, client) = (udp("127.0.0.1:0"), udp("127.0.0.1:0"));
    let (to, from) = (local(&socket), local(&client));
    let cookie = sys::cookie(socket.as_raw_fd()).unwrap();
    let rule = FlowRule { cookie, ..FlowRule::flow(Protocol::Udp, to.into(), None) };
    assert_eq!(b.rendezvous.share_name(&a.rendezvous, cookie), Err(RuleError::Taken), "nobody has it");
    let before = a.device.steer(&rule).unwrap();
    assert_eq!(b.device.steer(&rule), Err(RuleError::Taken));
    let find = |node: &Node| node.rendezvous.resolve_datagram(from, to).unwrap().expect("somebody has it");
    let of_a = find(&c);
    b.rendezvous.share_name(&a.rendezvous, cookie).unwrap();
    let after = b.device.steer(&rule).unwrap();
    b.rendezvous.let_go_of_name(cookie);
    assert!(c.rendezvous.still_valid(&of_a));
    find(&c);
    a.device.device().detach(before.rule);
    assert!(!c.rendezvous.still_valid(&of_a));
    assert_ne!(find(&c).mac, of_a.mac, "that one is another's by now");
    find(&d);
    b.device.device().detach(after.rule);
    assert!([&c, &d].iter().all(|node| node.rendezvous.resolve_datagram(from, to).unwrap().is_none()));
    a.device.steer(&rule).expect("the name is free again");
}

fn udp(address: &str) -> UdpSocket {
    UdpSocket::bind(address).unwrap()
}

fn local(socket: &UdpSocket) -> SocketAddrV4 {
    let Ok(std::net::SocketAddr::V4(local)) = socket.local_addr() else { panic!("{socket:?}") };
    local
}

#[test]
fn two_that_look_for_each_other_at_once_make_one_link() {
    for _ in 0..40 {
        let (mut a, mut b) = (Node::new(), Node::new());
        let (at_a, at_b) = (fresh_address(), fresh_address());
        a.device.steer(&tcp(at_a)).unwrap();
        b.device.steer(&tcp(at_b)).unwrap();
        let barrier = Barrier::new(4);
        let (to_b, to_a) = std::thread::scope(|scope| {
            let look = |node: &Node, address| {
                let (rendezvous, barrier) = (node.rendezvous.clone(), &barrier);
                scope.spawn(move || {
                    barrier.wait();
                    rendezvous.resolve(Protocol::Tcp, address).unwrap().expect("the other").mac
                })
            };
            let (first, second, third, fourth) = (look(&a, at_b), look(&b, at_a), look(&a, at_b), look(&b, at_a));
            let (to_b, to_a) = (first.join().unwrap(), second.join().unwrap());
            assert_eq!((third.join().unwrap(), fourth.join().unwrap()), (to_b, to_a));
            (to_b, to_a)
        });
        assert_eq!((a.rendezvous.peers().len(), b.rendezvous.peers().len()), (1, 1));
        a.send(to_b, b"there").unwrap();
        let there = b.receive();
        assert_eq!((there.payload.as_slice(), there.source), (&b"there"[..], to_a));
        b.send(to_a, b"back").unwrap();
        assert_eq!(a.receive().payload, b"back");
        assert!(a.device.poll_event().is_none() && b.device.poll_event().is_none());
    }
}

#[test]
fn the_limit_of_peers_holds() {
    let a = Node::with(&Settings { peers_max: 3, ..small() });
    let mut others: Vec<_> = (0..3).map(|_| Node::new()).collect();
    let addresses: Vec<_> = others
        .iter_mut()
        .map(|node| {
            let address = fresh_address();
            node.device.steer(&tcp(address)).unwrap();
            address
        })
        .collect();
    assert!(a.find(addresses[0]).is_some());
    assert!(a.find(addresses[1]).is_some());
    assert!(matches!(a.rendezvous.resolve(Protocol::Tcp, addresses[2]), Err(ResolveError::Full)));
}

#[test]
fn connectors_that_say_nothing_hold_up_nobody() {
    let (a, b) = (Node::new(), Node::new());
    let address = fresh_address();
    b.device.steer(&tcp(address)).unwrap();
    let name = names::rule(sys::effective_uid(), Protocol::Tcp, address);
    let silent: Vec<Fd> = (0..100)
        .map(|i| {
            let socket = sys::unix_socket(libc::SOCK_SEQPACKET).unwrap();
            until("a place in the backlog", || sys::connect_abstract(&socket, &name).ok());
            if i % 3 == 0 {
                sys::send(&socket, b"not a message of any version").unwrap();
            }
            socket
        })
        .collect();
    assert!(a.find(address).is_some());
    drop(silent);
    assert_eq!(b.rendezvous.peers().len(), 1);
}

/// Serves a member from later on.
fn served_after(rendezvous: &Arc<crate::Rendezvous>, delay: Duration) -> std::thread::JoinHandle<Progress> {
    let rendezvous = rendezvous.clone();
    std::thread::spawn(move || {
        std::thread::sleep(delay);
        Progress::of(&rendezvous)
    })
}

#[test]
fn the_silence_of_one_process_is_not_held_against_the_next_one() {
    let a = Node::new();
    let (device, rendezvous) = attach(&small()).unwrap();
    let address = fresh_address();
    device.steer(&tcp(address)).unwrap();
    let name = names::rule(sys::effective_uid(), Protocol::Tcp, address);
    // As often as it takes for the longest belief. No process has that number.
    (0..6).for_each(|_| a.rendezvous.note_silence(&name, Some(i32::MAX)));
    // Longer than who was silent itself would be waited for.
    let served = served_after(&rendezvous, Duration::from_millis(1200));
    assert!(a.find(address).is_some(), "it was given up as the other one would be");
    drop(served.join().unwrap());
}

#[test]
fn an_offer_of_anything_else_than_sealed_memory_is_refused() {
    let b = Node::new();
    let address = fresh_address();
    b.device.steer(&tcp(address)).unwrap();
    let name = names::rule(sys::effective_uid(), Protocol::Tcp, address);
    let event = sys::eventfd().unwrap();
    let unsealed = sys::memfd_create(c"unsealed").unwrap();
    sys::ftruncate(&unsealed, crate::layout::POOL_AT * 2).unwrap();
    let (_kept, sealed) = crate::link::create_channel(1, 2).unwrap();
    let offers: [&[i32]; 5] = [
        &[],
        &[event.raw(), event.raw(), event.raw()],
        &[unsealed.raw(), unsealed.raw(), event.raw()],
        &[sealed.raw(), sealed.raw(), event.raw()],
        &[sealed.raw(), sealed.raw()],
    ];
    for passed in offers {
        let socket = sys::unix_socket(libc::SOCK_SEQPACKET).unwrap();
        sys::connect_abstract(&socket, &name).unwrap();
        until("a greeting", || matches!(super::hello::receive(&socket), super::hello::Incoming::Message(_)).then_some(()));
        super::hello::send(&socket, super::hello::Kind::Offer, 77, passed).unwrap();
        until("a refusal", || sys::is_hung_up(&socket).then_some(()));
    }
    assert!(b.rendezvous.peers().is_empty());
}

/// Counts lines that warn.
struct Lines(std::sync::atomic::AtomicU64);

impl tracing::Subscriber for Lines {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        *metadata.level() <= tracing::Level::WARN
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, _: &tracing::Event<'_>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}

#[test]
fn offers_that_are_refused_do_not_fill_the_log() {
    let (device, rendezvous) = attach(&small()).unwrap();
    let address = fresh_address();
    device.steer(&tcp(address)).unwrap();
    let name = names::rule(sys::effective_uid(), Protocol::Tcp, address);
    let lines = Arc::new(Lines(std::sync::atomic::AtomicU64::new(0)));
    tracing::subscriber::with_default(lines.clone(), || {
        for _ in 0..50 {
            let socket = sys::unix_socket(libc::SOCK_SEQPACKET).unwrap();
            sys::connect_abstract(&socket, &name).unwrap();
            rendezvous.service();
            super::hello::send(&socket, super::hello::Kind::Offer, 77, &[]).unwrap();
            until("a refusal", || {
                rendezvous.service();
                sys::is_hung_up(&socket).then_some(())
            });
        }
    });
    // (Other tests make the same offers meanwhile, and may have had the one line that there is.)
    assert!(lines.0.load(Ordering::Relaxed) <= 2, "{:?}", lines.0);
}

#[test]
fn members_meet_without_proc() {
    privileged("a mount namespace", || {
        let (slash, proc, tmpfs) = (c"/".as_ptr(), c"/proc".as_ptr(), c"tmpfs".as_ptr());
        // Of this thread only, and of those that it starts.
        // SAFETY: C strings, and no data.
        let is_hidden = unsafe {
            libc::unshare(libc::CLONE_NEWNS) == 0
                && libc::mount(slash, slash, core::ptr::null(), libc::MS_REC | libc::MS_PRIVATE, core::ptr::null()) == 0
                && libc::mount(tmpfs, proc, tmpfs, 0, core::ptr::null()) == 0
        };
        if !is_hidden {
            return None;
        }
        assert!(std::fs::metadata("/proc/self").is_err());
        let (mut a, mut b, to_b) = crate::tests::pair();
        a.send(to_b, b"there").unwrap();
        assert_eq!(b.receive().payload, b"there");
        Some(())
    });
}

#[test]
fn an_id_that_somebody_has_is_not_taken_again() {
    let ids = [0x5e1f_0000_0000_0000 | u64::from(std::process::id()), 0x5e1f_0001_0000_0000 | u64::from(std::process::id())];
    let taken = ids.map(|id| {
        let socket = sys::unix_socket(libc::SOCK_SEQPACKET).unwrap();
        sys::listen_abstract(&socket, &names::dialogues(sys::effective_uid(), id), 1).unwrap();
        socket
    });
    let mut drawn = ids.into_iter().chain([7_u64 << 32 | u64::from(std::process::id())]);
    let (_device, rendezvous) = crate::queues::attach_as(&small(), Arc::default(), || Ok(drawn.next().unwrap())).unwrap();
    assert_eq!((rendezvous.member_ref().id() >> 32, drawn.next()), (7, None));
    drop(taken);
    // Where no id is to be had, the process stays on the kernel.
    let held = sys::unix_socket(libc::SOCK_SEQPACKET).unwrap();
    sys::listen_abstract(&held, &names::dialogues(sys::effective_uid(), ids[0]), 1).unwrap();
    assert!(matches!(crate::queues::attach_as(&small(), Arc::default(), || Ok(ids[0])), Err(crate::AttachError::System { .. })));
}

#[test]
fn a_member_whose_name_is_gone_is_not_offloaded_to() {
    let (a, b) = (Node::new(), Node::new());
    let address = fresh_address();
    b.device.steer(&tcp(address)).unwrap();
    b.rendezvous.lock().dialogues.close_dialogues();
    assert!(matches!(a.rendezvous.resolve(Protocol::Tcp, address), Err(ResolveError::Unverified)));
    // The other way round: it is not let in either.
    let c = Node::new();
    let other = fresh_address();
    c.device.steer(&tcp(other)).unwrap();
    assert!(b.find(other).is_none());
    assert!(a.rendezvous.peers().is_empty() && b.rendezvous.peers().is_empty() && c.rendezvous.peers().is_empty());
}

#[test]
fn who_publishes_what_it_has_not_bound_gets_nothing() {
    let careful = Node::with(&Settings { listeners_are_bound: true, ..small() });
    let liar = Node::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let SocketAddr::V4(address) = listener.local_addr().unwrap() else { panic!("not IPv4") };
    drop(listener);
    let rule = liar.device.steer(&tcp(address)).unwrap();
    let resolve = || careful.rendezvous.resolve(Protocol::Tcp, address);
    assert!(matches!(resolve(), Err(ResolveError::Unbound)), "whom it has not met");
    // It is known by now, and nobody needs to be asked.
    assert!(matches!(resolve(), Err(ResolveError::Unbound)));
    assert!(matches!(careful.rendezvous.search(Protocol::Tcp, address), Err(ResolveError::Unbound)));
    // A socket that is bound and does not listen gets no connections either.
    let bound = UdpSocket::bind(address).unwrap();
    assert!(matches!(resolve(), Err(ResolveError::Unbound)));
    drop(bound);
    let listener = TcpListener::bind(address).unwrap();
    assert!(resolve().unwrap().is_some() && careful.rendezvous.search(Protocol::Tcp, address).unwrap().found.is_some());
    // The kernel is asked again in time.
    drop(listener);
    std::thread::sleep(Duration::from_millis(1100));
    assert!(matches!(resolve(), Err(ResolveError::Unbound)));
    liar.device.device().detach(rule.rule);
    assert!(resolve().unwrap().is_none(), "nobody says anything of it");
}

#[test]
fn the_control_socket_answers_one_line() {
    let node = Node::new();
    let name = node.rendezvous.member_name();
    assert!(query(&name, "stats", Duration::from_secs(1)).unwrap().contains("not ready"));
    let large = "x".repeat(1 << 20);
    node.rendezvous.set_control_handler(Box::new({
        let large = large.clone();
        move |request| if request == "large" { large.clone() } else { format!("{{\"asked\":\"{request}\"}}") }
    }));
    assert_eq!(query(&name, "doctor", Duration::from_secs(1)).unwrap(), r#"{"asked":"doctor"}"#);
    assert_eq!(query(&name, "large", Duration::from_secs(5)).unwrap(), large);
    let listed = members(sys::effective_uid()).unwrap();
    assert!(listed.iter().any(|member| member.name == name && member.pid == sys::pid()));
    // One that asks and never reads the answer stops nobody.
    let socket = sys::unix_socket(libc::SOCK_STREAM).unwrap();
    sys::connect_abstract(&socket, &name).unwrap();
    sys::send(&socket, b"large\n").unwrap();
    assert_eq!(query(&name, "stats", Duration::from_secs(1)).unwrap(), r#"{"asked":"stats"}"#);
    drop(node);
    assert!(query(&name, "stats", Duration::from_secs(1)).is_err());
    let _ = UnixStream::pair();
}

/// What only a privileged test can try. It fails where it must not be left out.
fn privileged<T: Send>(what: &str, act: impl FnOnce() -> Option<T> + Send) -> Option<T> {
    let result = std::thread::scope(|scope| scope.spawn(act).join().unwrap());
    if result.is_none() {
        assert!(std::env::var_os("CI").is_none(), "{what} needs privileges that this test run lacks");
        eprintln!("left out: {what} needs privileges");
    }
    result
}

#[test]
fn two_network_namespaces_never_meet() {
    let here = Node::new();
    let address = fresh_address();
    here.device.steer(&tcp(address)).unwrap();
    // Of this thread only; it ends with it.
    privileged("a network namespace", || {
        // SAFETY: no memory is involved.
        if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
            return None;
        }
        let there = Node::new();
        assert!(there.find(address).is_none());
        there.device.steer(&tcp(address)).unwrap();
        assert_eq!(there.find(address).unwrap().mac, there.device.mac(), "its own");
        Some(())
    });
    assert!(here.rendezvous.peers().is_empty());
    assert!(Node::new().find(address).is_some());
}

#[test]
fn other_users_are_refused_both_ways() {
    const NOBODY: u32 = 65534;
    let here = Node::new();
    let address = fresh_address();
    let squatted = fresh_address();
    here.device.steer(&tcp(address)).unwrap();
    let own = sys::effective_uid();
    let is_over = AtomicBool::new(false);
    let is_ready = Arc::new(Barrier::new(2));
    std::thread::scope(|scope| {
        let (is_over, ready) = (&is_over, is_ready.clone());
        let other = scope.spawn(move || {
            // SAFETY: the raw call changes only this thread's user.
            if unsafe { libc::syscall(libc::SYS_setresuid, NOBODY, NOBODY, NOBODY) } != 0 {
                ready.wait();
                return None;
            }
            // It knows the name, and connects: it isn't even greeted.
            let socket = sys::unix_socket(libc::SOCK_SEQPACKET).unwrap();
            sys::connect_abstract(&socket, &names::rule(own, Protocol::Tcp, address)).unwrap();
            until("a refusal", || sys::is_hung_up(&socket).then_some(()));
            assert!(sys::receive(&socket, &mut [0; 64]).map_or(true, |len| len == 0));
            // Its own members don't find ours.
            let (_device, rendezvous) = attach(&small()).unwrap();
            assert!(rendezvous.resolve(Protocol::Tcp, address).unwrap().is_none());
            // It binds a name that is ours to use.
            let squatter = sys::unix_socket(libc::SOCK_SEQPACKET).unwrap();
            sys::listen_abstract(&squatter, &names::rule(own, Protocol::Tcp, squatted), 8).unwrap();
            ready.wait();
            until("the end", || is_over.load(Ordering::Relaxed).then_some(()));
            Some(())
        });
        is_ready.wait();
        let resolved = here.rendezvous.resolve(Protocol::Tcp, squatted);
        let taken = here.device.steer(&tcp(squatted));
        is_over.store(true, Ordering::Relaxed);
        if privileged("another user", || other.join().unwrap()).is_some() {
            assert!(matches!(resolved, Err(ResolveError::OtherUser { uid: NOBODY })), "{resolved:?}");
            assert_eq!(taken, Err(RuleError::Taken));
        }
    });
    assert!(here.rendezvous.peers().is_empty());
}

mod dialogues {
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::sync::{Arc, Mutex};
    use std::time::Duration;

    use crate::fd::Fd;
    use crate::{Dialogue, DialogueHandler, MemberRef, Settings, attach, sys};

    /// Says everything backwards, and hands the descriptors back.
    #[derive(Default)]
    struct Echo {
        asked: AtomicU64,
        ended: Mutex<Vec<u64>>,
    }

    impl DialogueHandler for Echo {
        fn asked(&self, dialogue: u64, from: &[u64], words: &[u8], passed: Vec<Fd>) -> (Vec<u8>, Vec<Fd>) {
            assert!(from.is_empty(), "a process that is no peer: {from:x?}");
            self.asked.store(dialogue, Ordering::SeqCst);
            (words.iter().rev().copied().collect(), passed)
        }

        fn hung_up(&self, dialogue: u64) {
            self.ended.lock().unwrap().push(dialogue);
        }
    }

    #[test]
    fn a_question_has_an_answer_and_a_dialogue_an_end() {
        const PATIENCE: Duration = Duration::from_secs(5);
        let (device, rendezvous) = attach(&Settings::default()).unwrap();
        let echo = Arc::new(Echo::default());
        rendezvous.set_dialogue_handler(echo.clone());
        let member = rendezvous.member_ref();
        let asked = std::thread::spawn(move || {
            let dialogue = Dialogue::begin(&member, PATIENCE).unwrap().expect("somebody listens");
            let eventfd = sys::eventfd().unwrap();
            sys::eventfd_signal(&eventfd);
            let (words, passed) = dialogue.ask(b"abc", &[eventfd.raw()], PATIENCE).unwrap();
            assert_eq!((words.as_slice(), passed.len()), (&b"cba"[..], 1));
            assert_eq!(sys::wait_for(&passed[0], libc::POLLIN, Duration::ZERO).unwrap(), libc::POLLIN, "the very same eventfd");
            assert_eq!(dialogue.ask(b"xy", &[], PATIENCE).unwrap().0, b"yx");
        });
        while !asked.is_finished() {
            rendezvous.service();
        }
        asked.join().unwrap();
        while echo.ended.lock().unwrap().is_empty() {
            rendezvous.service();
        }
        assert_eq!(*echo.ended.lock().unwrap(), [echo.asked.load(Ordering::SeqCst)]);
        drop(device);
        assert!(Dialogue::begin(&member, PATIENCE).unwrap().is_none(), "nobody is there any more");
    }

    #[test]
    fn a_member_that_nobody_can_find_is_met_by_its_id() {
        let (first, met) = attach(&Settings::default()).unwrap();
        let (second, meeting) = attach(&Settings::default()).unwrap();
        let member = MemberRef::told(met.member_ref().id());
        let asked = std::thread::spawn(move || {
            let mac = meeting.meet(&member).unwrap().expect("it is there");
            assert_eq!(meeting.meet(&member).unwrap(), Some(mac), "one link is enough");
            let known = meeting.member_at(mac).map(|member| member.id());
            (meeting, known)
        });
        while !asked.is_finished() {
            met.service();
        }
        let (meeting, known) = asked.join().unwrap();
        assert_eq!(known, Some(met.member_ref().id()));
        assert!(met.peers().iter().any(|peer| peer.id == meeting.member_ref().id()), "they know each other");
        drop(first);
        assert_eq!(meeting.meet(&MemberRef::told(met.member_ref().id())).unwrap(), None, "nobody is there any more");
        drop(second);
    }
}

#[test]
fn ports_of_rdma_cm_are_not_those_of_sockets() {
    let address = SocketAddr::from(([127, 0, 0, 1], 7471));
    let of = |ports| attach(&Settings { ports, pool_bytes: 1 << 20, ..Settings::default() }).unwrap();
    let members = [of(crate::Ports::Sockets), of(crate::Ports::RdmaCm), of(crate::Ports::RdmaCm)];
    let rule = FlowRule::flow(Protocol::Tcp, address, None);
    // Both have it.
    members[0].0.steer(&rule).unwrap();
    members[1].0.steer(&rule).unwrap();
    assert!(members[2].0.steer(&rule).is_err(), "of one kind, one has it");
    let found = std::thread::scope(|scope| {
        let asking = scope.spawn(|| members[2].1.resolve(Protocol::Tcp, address).unwrap().unwrap().mac);
        while !asking.is_finished() {
            members.iter().for_each(|(_, rendezvous)| rendezvous.service());
        }
        asking.join().unwrap()
    });
    let peer = members[2].1.peers().into_iter().find(|peer| peer.mac == found).unwrap();
    assert_eq!(peer.id, members[1].1.member_ref().id());
}
