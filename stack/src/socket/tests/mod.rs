//! Hosts with several links and rings, on a fabric without faults; what a network can do to them is tested in the simulator.

mod choice;
mod datagrams;
mod fabric;
mod homes;
mod kernels;
mod listeners;
mod merging;
mod migration;
mod routes;

use core::time::Duration;
use std::io::{IoSlice, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use self::fabric::{Card, Fabric, Queue};
use super::*;
use crate::device::Protocol;
use crate::error::Error;
use crate::flow::Readiness;
use crate::net::{
    Address, Builder, Link, LinkAddress, LinkId, LinkKind, Neighbour, NeighbourState, NextHop, Prefix, RouteEntry, RouteKind, Scope, Table,
    Tables,
};
use crate::ring::{RecvFlags, Ring, RingConfig, SendFlags};
use crate::time::Instant;

/// A host's rings: the number of each is its place.
pub(super) struct Own(Vec<Ring<Queue>>);

impl Rings for Own {
    fn at(&mut self, number: u16) -> Option<&mut dyn FlowRing> {
        self.0.get_mut(usize::from(number)).map(|ring| ring as &mut dyn FlowRing)
    }
}

/// A host with links 2, 3 …, whose addresses are 10.0.2.HOST, 10.0.3.HOST …
pub(super) struct Host {
    rings: Own,
    tables: Tables,
    choice: Choice,
    caller: Caller,
    sockets: u64,
}

/// Two of them.
pub(super) struct Pair {
    now: Instant,
    fabric: Fabric,
    a: Host,
    b: Host,
}

fn ip(link: u32, host: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(10, 0, link as u8, host))
}

/// The tables of a host on those links, whose neighbours are known.
fn tables(links: u32, host: u8, cards: &[(u32, u8, Card)], generation: u64) -> Tables {
    let mut builder = Builder::default();
    builder.links.push(Link::new(1, "lo", LinkKind::Loopback));
    for number in 2..2 + links {
        let (link, own) = (LinkId(number), ip(number, host));
        builder.links.push(Link::new(number, "eth", LinkKind::Ethernet));
        builder.addresses.push(Address::new(link, own, 24).expect("a prefix"));
        let base = RouteEntry { preferred_source: Some(own), ..RouteEntry::new(Prefix::host(own), NextHop::new(link, None)) };
        builder.routes.push(RouteEntry { table: Table::LOCAL, kind: RouteKind::Local, scope: Scope::HOST, ..base.clone() });
        builder.routes.push(RouteEntry { destination: Prefix::new(own, 24).expect("a prefix"), ..base });
    }
    for (link, of, card) in cards.iter().filter(|(_, of, _)| *of != host) {
        builder.neighbours.push(Neighbour {
            link: LinkId(*link),
            address: ip(*link, *of),
            state: NeighbourState::Permanent,
            link_address: LinkAddress::new(&card.mac().0),
            is_router: false,
        });
    }
    builder.build(generation)
}

impl Pair {
    /// Both on so many links, with so many rings on each.
    fn new(links: u32, rings: u32) -> Self {
        let fabric = Fabric::default();
        let cards: Vec<_> = (2..2 + links).flat_map(|link| [1, 2].map(|host| (link, host, fabric.card(link as u8 * 16 + host)))).collect();
        let host = |of: u8| {
            let (mut own, mut choice) = (Vec::new(), Choice::default());
            for (link, _, card) in cards.iter().filter(|(_, host, _)| *host == of) {
                for queue in 0..rings {
                    let number = own.len() as u16;
                    let config = RingConfig { number, addresses: vec![ip(*link, of)], ..RingConfig::default() };
                    own.push(Ring::new(card.queue(queue), config, [of * 16 + number as u8; 32]));
                    choice.add(LinkId(*link), number);
                }
            }
            let tables = tables(links, of, &cards, 1);
            Host { rings: Own(own), tables, choice, caller: Caller::default(), sockets: 0 }
        };
        Self { now: Instant::from_nanos(1_000_000_000), a: host(1), b: host(2), fabric }
    }

    /// Lets all rings work until none has anything to do. Each round is a microsecond.
    fn settle(&mut self) {
        loop {
            self.now += Duration::from_micros(1);
            let rings = self.a.rings.0.iter_mut().chain(&mut self.b.rings.0);
            if rings.map(|ring| ring.poll(self.now)).sum::<usize>() == 0 {
                break;
            }
        }
    }
}

impl Host {
    fn call<R>(&mut self, now: Instant, act: impl FnOnce(&mut Env<'_>) -> R) -> R {
        let Self { rings, tables, choice, caller, .. } = self;
        act(&mut Env { now, rings, tables, choice, caller: *caller })
    }

    fn id(&mut self) -> SocketId {
        self.sockets += 1;
        SocketId(self.sockets)
    }

    fn socket(&mut self, protocol: Protocol, spread: Spread) -> Socket {
        Socket::new(self.id(), Setup { spread, ..Setup::new(protocol) }, None)
    }

    /// A listener on every address.
    fn listener(&mut self, now: Instant, port: u16, spread: Spread) -> Socket {
        let mut socket = self.socket(Protocol::Tcp, spread);
        self.call(now, |env| {
            socket.bind(env, SocketAddr::from(([0; 4], port))).expect("a fresh socket");
            socket.listen(env, 8).expect("nobody listens there");
        });
        socket
    }

    /// A connection that begins.
    fn connecting(&mut self, now: Instant, port: u16, to: SocketAddr) -> Socket {
        let mut socket = self.socket(Protocol::Tcp, Spread::One);
        self.call(now, |env| {
            socket.bind(env, SocketAddr::from(([0; 4], port))).expect("a fresh socket");
            assert_eq!(socket.connect(env, to), Err(Error::InProgress));
        });
        socket
    }

    fn accept(&mut self, now: Instant, listener: &mut Socket) -> Result<Socket, Error> {
        let id = self.id();
        self.call(now, |env| listener.accept(env, id))
    }

    fn close(&mut self, now: Instant, mut socket: Socket) {
        self.call(now, |env| socket.close(env, true));
    }

    fn flows(&self) -> usize {
        self.rings.0.iter().map(|ring| ring.open_flows().len()).sum()
    }
}

fn remote(socket: &Socket) -> SocketAddr {
    match socket.state() {
        State::Connected(stream) => stream.remote(),
        state => panic!("it is {state:?}"),
    }
}
