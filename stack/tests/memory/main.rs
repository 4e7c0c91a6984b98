//! What connections cost a ring in memory while nothing happens on them: an allocator that counts says it, of a hundred thousand of them, tables and
//! timers included, in the same bytes each time. (Of a device's buffers they hold none then.)
//!
//! One test alone, since the count is the whole process's.

mod wire;

use core::time::Duration;
use std::alloc::System;
use std::io::{IoSlice, IoSliceMut};
use std::net::{Ipv4Addr, SocketAddr};

use cap::Cap;
use ringway_stack::Instant;
use ringway_stack::device::MacAddr;
use ringway_stack::ring::{FlowId, NextHop, RecvFlags, Ring, RingConfig, SendFlags};
use ringway_stack::tcp::Config;

use self::wire::End;

#[global_allocator]
static ALLOCATOR: Cap<System> = Cap::new(System, usize::MAX);

/// Connections that are counted, each of which has two ends. (No power of two, after which tables would have just grown.)
const CONNECTIONS: u32 = 100_000;

struct Pair {
    now: Instant,
    client: Ring<End>,
    server: Ring<End>,
    listener: FlowId,
}

const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const SERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);

impl Pair {
    fn new() -> Self {
        let (a, b) = wire::ends(1, 2);
        let ring = |end, number: u8| Ring::new(end, RingConfig::default(), [number; 32]);
        let (client, mut server) = (ring(a, 1), ring(b, 2));
        let listener = server.tcp_listen(SocketAddr::new(SERVER.into(), 80), 1 << 20, &Config::default()).unwrap();
        Self { now: Instant::from_nanos(1_000_000_000), client, server, listener }
    }

    fn connect(&mut self, number: u32) -> FlowId {
        let port = 1024 + (number % 50_000) as u16;
        let host = Ipv4Addr::from_bits(CLIENT.to_bits() + 256 * (number / 50_000));
        let (local, remote) = (SocketAddr::new(host.into(), port), SocketAddr::new(SERVER.into(), 80));
        let config = Config { nodelay: true, ..Config::default() };
        self.client.tcp_connect(self.now, local, remote, NextHop::Mac(MacAddr([2, 0, 0, 0, 0, 2])), &config).unwrap()
    }

    fn settle(&mut self) {
        while self.client.poll(self.now) + self.server.poll(self.now) > 0 {}
        for ring in [&mut self.client, &mut self.server] {
            while ring.take_event().is_some() {}
        }
    }

    fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while let Some(next) = [self.client.next_deadline(), self.server.next_deadline()].into_iter().flatten().min().filter(|n| *n <= end)
        {
            self.now = self.now.max(next) + Duration::from_nanos(1);
            self.settle();
        }
        self.now = end;
        self.settle();
        self.client.queues().shrink();
        self.server.queues().shrink();
    }

    /// Connections that stand, and on which a program said a word and got one back.
    fn established(&mut self, numbers: core::ops::Range<u32>) -> Vec<(FlowId, FlowId)> {
        numbers
            .map(|number| {
                self.now += Duration::from_micros(100);
                let client = self.connect(number);
                self.settle();
                let server = self.server.tcp_accept(self.listener).unwrap();
                self.server.tcp_configure(self.now, server, |config| config.nodelay = true).unwrap();
                let now = self.now;
                self.client.tcp_send(now, client, &[IoSlice::new(b"ping")], SendFlags::empty()).unwrap();
                self.settle();
                let mut word = [0; 8];
                self.server.tcp_recv(now, server, &mut [IoSliceMut::new(&mut word)], RecvFlags::empty()).unwrap();
                self.server.tcp_send(now, server, &[IoSlice::new(b"pong")], SendFlags::empty()).unwrap();
                self.settle();
                self.client.tcp_recv(now, client, &mut [IoSliceMut::new(&mut word)], RecvFlags::empty()).unwrap();
                (client, server)
            })
            .collect()
    }
}

/// Bytes of each of so many.
fn each(before: usize, count: u32) -> usize {
    (ALLOCATOR.allocated() - before) / count as usize
}

/// Both ends of a connection stand, have spoken, and are silent.
fn idle() -> usize {
    let mut pair = Pair::new();
    // What is there once.
    let first = pair.established(0..100);
    pair.pass(Duration::from_secs(10));
    let before = ALLOCATOR.allocated();
    let idle = pair.established(100..100 + CONNECTIONS);
    let named = idle.capacity() * size_of::<(FlowId, FlowId)>();
    pair.pass(Duration::from_secs(10));
    assert_eq!(pair.server.usage().flows, first.len() + idle.len() + 1);
    each(before + named, 2 * CONNECTIONS)
}

/// The server has answered a SYN, and nobody answers that. (All of them begin at once: the answer is not sent again meanwhile.)
fn half_open() -> usize {
    let mut pair = Pair::new();
    for number in 0..CONNECTIONS {
        let client = pair.connect(number);
        pair.server.poll(pair.now);
        pair.client.queues().lose();
        pair.client.close(pair.now, client, true);
    }
    assert_eq!(pair.server.tcp_half_open(pair.listener), CONNECTIONS as usize);
    let Pair { client, server, .. } = pair;
    drop(client);
    let with = ALLOCATOR.allocated();
    drop(server);
    // (All of the server's ring is theirs, but for what is there once.)
    (with - ALLOCATOR.allocated()) / CONNECTIONS as usize
}

/// The client has closed first.
fn time_wait() -> usize {
    let mut pair = Pair::new();
    drop(pair.established(0..100));
    let mut connections = pair.established(100..100 + CONNECTIONS);
    pair.pass(Duration::from_secs(10));
    for (client, server) in connections.drain(..) {
        pair.client.close(pair.now, client, false);
        pair.settle();
        pair.server.close(pair.now, server, false);
        pair.settle();
    }
    drop(connections);
    let with = ALLOCATOR.allocated();
    assert_eq!(pair.client.usage().flows, 100 + CONNECTIONS as usize);
    drop(pair.client);
    // (All of the client's ring is theirs, but for a hundred connections and what is there once.)
    (with - ALLOCATOR.allocated()) / CONNECTIONS as usize
}

#[test]
fn connections_on_which_nothing_happens_cost_little() {
    // Bytes; what the allocator keeps beside each piece of memory is not counted.
    let most = [("an idle connection's end", 960), ("a half-open one", 384), ("one in TIME-WAIT", 384)];
    for ((what, most), cost) in most.into_iter().zip([idle(), half_open(), time_wait()]) {
        println!("{what}: {cost} B");
        assert!(cost <= most, "{what} costs {cost} B, at most {most} B were to be enough");
    }
}
