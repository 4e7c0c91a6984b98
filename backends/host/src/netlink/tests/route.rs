//! `Tables::route` gives what the kernel gives.

use core::net::IpAddr;
use std::net::UdpSocket;
use std::os::fd::AsRawFd;

use ringway_stack::net::{Address, Delivery, Family, LinkId, Query, Route, Rule, Scope, Tables, Unroutable};

use super::world::{LINKS, Random, in_namespace, random_v4, random_v6, show, until, world};
use crate::netlink::{KernelRoute, Monitor};

/// How many namespaces are made, and what is asked in each.
const WORLDS: u64 = 24;
const QUERIES: u32 = 1500;

/// What came of the questions.
#[derive(Debug, Default)]
struct Counts {
    routes: u32,
    errors: u32,
    multipath: u32,
}

#[test]
fn the_kernel_agrees() {
    let first = std::env::var("RINGWAY_SEED").ok().and_then(|seed| seed.parse().ok());
    let seeds = first.map_or(0..WORLDS, |seed| seed..seed + 1);
    let mut counts = Counts::default();
    for seed in seeds {
        in_namespace(|| compare(seed, &mut counts));
    }
    println!("{counts:?}");
    // (Nothing, if there are no namespaces.)
    assert!(counts.routes == 0 || counts.routes > QUERIES && counts.errors > QUERIES / 4, "{counts:?}");
}

fn compare(seed: u64, counts: &mut Counts) {
    let mut random = Random(seed);
    world(&mut random);
    let mut monitor = Monitor::open().expect("rtnetlink");
    // Both ends of three pairs get a link-local address once they have a carrier, which takes a moment.
    let is_link_local = |own: &Address| own.scope == Scope::LINK && own.address.is_ipv6();
    until(&mut monitor, |monitor, _| {
        let addresses = monitor.tables().addresses();
        addresses.iter().filter(|own| is_link_local(own)).count() == 6 && !addresses.iter().any(|own| own.is_tentative)
    });
    let tables = monitor.tables().clone();
    assert!(tables.routes().len() > 60, "{:?}", tables.routes());
    for _ in 0..QUERIES {
        let query = query(&mut random, &tables);
        let ours = tables.route(&query);
        let theirs = monitor.ask_kernel(&query).expect("rtnetlink");
        if agrees(&tables, &query, &ours, &theirs) {
            *(if ours.is_ok() { &mut counts.routes } else { &mut counts.errors }) += 1;
        } else if (40_000..40_200).any(|source_port| {
            // Which of several ways a flow takes is the kernel's own hash. (No rule knows these ports.)
            let flow = Query { source_port, ..query };
            query.source_port == 0 && agrees(&tables, &query, &tables.route(&flow), &theirs)
        }) {
            counts.multipath += 1;
        } else {
            let rules = show("rule") + &show("-6 rule");
            let routes = show("route show table all") + &show("-6 route show table all");
            panic!("RINGWAY_SEED={seed}: {query:?}\nours {ours:?}\ntheirs {theirs:?}\n{}\n{rules}\n{routes}", show("-br addr"));
        }
    }
}

fn query(random: &mut Random, tables: &Tables) -> Query {
    let is_v6 = random.one_in(2);
    let address = |random: &mut Random| -> IpAddr { if is_v6 { random_v6(random).into() } else { random_v4(random).into() } };
    let mut query = Query::to(address(random));
    let own: Vec<IpAddr> = tables.addresses().iter().map(|own| own.address).filter(|own| own.is_ipv6() == is_v6).collect();
    if random.one_in(12) {
        query.destination = random.of(&own);
    }
    query.source = match random.below(6) {
        0 => Some(address(random)),
        1 | 2 => Some(random.of(&own)),
        _ => None,
    };
    // Without a socket, the kernel takes a link beside an IPv6 source for a wish alone.
    if random.one_in(4) && !(is_v6 && query.source.is_some()) {
        query.link = tables.link_named(random.of(&LINKS)).map(|link| link.id);
    }
    query.tos = random.of(&[0, 0, 0x10, 0x08, 0xb8]);
    query.mark = random.of(&[0, 0, 4, 5, 6]);
    query.uid = random.of(&[0, 0, 1000, 1500]);
    if random.one_in(3) {
        (query.protocol, query.destination_port) = (random.of(&[6, 17]), random.of(&[80, 443]));
    }
    query
}

fn agrees(tables: &Tables, query: &Query, ours: &Result<Route, Unroutable>, theirs: &Result<KernelRoute, i32>) -> bool {
    match (ours, theirs) {
        (Ok(ours), Ok(theirs)) => {
            let source = match query.source {
                Some(given) => given == ours.source,
                None => theirs.source == Some(ours.source),
            };
            let mtu = theirs.mtu.unwrap_or_else(|| link_mtu(tables, ours.link, query.destination));
            let is_lo = tables.loopback().is_some_and(|lo| lo.id == ours.link);
            (is_lo || ours.delivery != Delivery::Local)
                && source
                && (ours.link, ours.next_hop, ours.mtu) == (theirs.link, theirs.gateway, mtu)
        }
        // (A route without a source address is of no use to a socket.)
        (Err(Unroutable::NoSource), Ok(theirs)) => theirs.source.is_none() && query.source.is_none(),
        (Err(Unroutable::ForeignSource), Err(libc::EINVAL)) => true,
        (Err(ours), Err(theirs)) => ours.errno() == Some(*theirs),
        _ => false,
    }
}

fn link_mtu(tables: &Tables, link: LinkId, destination: IpAddr) -> u32 {
    let mtu = tables.link(link).map_or(0, |link| link.mtu);
    if destination.is_ipv4() { mtu.min(65_535) } else { mtu.min(65_575) }
}

/// What a socket finds out by connect(2), getsockname(2) and IP_MTU: beyond what RTM_GETROUTE tells, a link's MTU.
#[test]
fn sockets_agree() {
    let mut compared = 0;
    for seed in 0..12 {
        in_namespace(|| {
            let mut random = Random(seed);
            world(&mut random);
            let mut monitor = Monitor::open().expect("rtnetlink");
            until(&mut monitor, |monitor, _| !monitor.tables().addresses().iter().any(|own| own.is_tentative));
            let tables = monitor.tables().clone();
            for _ in 0..200 {
                let destination: IpAddr = if random.one_in(2) { random_v4(&mut random).into() } else { random_v6(&mut random).into() };
                let family = Family::of(destination);
                let is_usual = tables.rules(family) == Rule::defaults(family);
                // (Broadcast needs an option, a link-local address a scope; and IPv6 looks twice, the second time with a source, if rules differ.)
                let mut query = Query { protocol: 17, destination_port: 9, ..Query::to(destination) };
                let is_odd = |address: IpAddr| matches!(address, IpAddr::V6(address) if address.segments()[0] & 0xff00 != 0xfd00);
                if !is_usual || destination.is_multicast() || is_odd(destination) {
                    continue;
                }
                let Some(theirs) = connected(destination) else {
                    continue;
                };
                let is_same = (0..200).any(|port| {
                    query.source_port = port;
                    tables.route(&query).is_ok_and(|ours| (ours.source, ours.mtu) == theirs)
                });
                assert!(is_same, "seed {seed}: {destination}: {theirs:?}, {:?}", tables.route(&query));
                compared += 1;
            }
        });
    }
    println!("{compared} sockets");
}

/// The address and the path MTU of a socket that is connected to `destination`; `None`: it cannot be.
fn connected(destination: IpAddr) -> Option<(IpAddr, u32)> {
    const IP_MTU: i32 = 14;
    const IPV6_MTU: i32 = 24;
    let any = Family::of(destination).unspecified();
    let socket = UdpSocket::bind((any, 0)).expect("a socket");
    socket.connect((destination, 9)).ok()?;
    let (mut mtu, mut len) = (0u32, 4u32);
    let (level, option) = if destination.is_ipv4() { (libc::IPPROTO_IP, IP_MTU) } else { (libc::IPPROTO_IPV6, IPV6_MTU) };
    // SAFETY: both are writable.
    let got = unsafe { libc::getsockopt(socket.as_raw_fd(), level, option, (&raw mut mtu).cast(), &raw mut len) };
    assert_eq!(got, 0, "{}", std::io::Error::last_os_error());
    Some((socket.local_addr().expect("connected").ip(), mtu))
}
