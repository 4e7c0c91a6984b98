//! What may not wait for a timer where nothing is lost: small writes one way, and a connect from addresses that have just been used.

use core::time::Duration;
use std::io::{IoSlice, IoSliceMut};
use std::net::SocketAddr;

use ringway_sim::{Context, HostConfig, HostId, World, WorldConfig};
use ringway_stack::ring::{FlowId, NextHop, Readiness, RecvFlags, SendFlags};
use ringway_stack::tcp::Config;

const PORT: u16 = 80;
/// More than the round trip of two hosts here, 20 us, and far less than any timer.
const ROUND_TRIP_MAX: Duration = Duration::from_micros(100);

struct Site {
    world: World,
    client: HostId,
    server: HostId,
    address: SocketAddr,
    listener: FlowId,
    config: Config,
}

impl Site {
    fn new(seed: u64, config: Config) -> Self {
        let mut world = World::new(WorldConfig::seeded(seed));
        let [client, server] = ["client", "server"].map(|name| world.add_host(HostConfig::named(name)));
        world.introduce_all();
        let address = SocketAddr::new(world.host(server).ip(), PORT);
        let listener = world.call(server, |cx| cx.ring.tcp_listen(address, 4, &config)).expect("a fresh host's port is free");
        Self { world, client, server, address, listener, config }
    }

    /// A connection from this port, a round trip later.
    fn connect(&mut self, port: u16) -> [FlowId; 2] {
        let (address, config) = (self.address, self.config.clone());
        let connect = |cx: &mut Context<'_>| {
            cx.ring.tcp_connect(cx.now, SocketAddr::new(cx.ip, port), address, NextHop::Neighbour(address.ip()), &config)
        };
        let ours = self.world.call(self.client, connect).expect("the addresses are free");
        self.world.run_for(ROUND_TRIP_MAX);
        let listener = self.listener;
        let theirs = self.world.call(self.server, |cx| cx.ring.tcp_accept(listener)).expect("a round trip makes a connection");
        [ours, theirs]
    }

    fn write(&mut self, socket: FlowId, data: &[u8]) {
        let sent = self.world.call(self.client, |cx| cx.ring.tcp_send(cx.now, socket, &[IoSlice::new(data)], SendFlags::empty()));
        assert_eq!(sent, Ok(data.len()));
    }

    /// How many bytes there are to be read, which are read.
    fn read(&mut self, host: HostId, socket: FlowId) -> usize {
        let mut bytes = [0; 8192];
        let into = &mut [IoSliceMut::new(&mut bytes)];
        self.world.call(host, |cx| cx.ring.tcp_recv(cx.now, socket, into, RecvFlags::empty())).unwrap_or(0)
    }

    fn close(&mut self, host: HostId, socket: FlowId) {
        self.world.call(host, |cx| cx.ring.close(cx.now, socket, false));
        self.world.run_for(ROUND_TRIP_MAX);
    }
}

/// Nagle's algorithm is on, and the reader reads what comes: each write is there a round trip after the one before it was read.
#[test]
fn small_writes_one_way() {
    for writes in [1, 2] {
        let mut site = Site::new(7, Config::default());
        let server = site.server;
        let [ours, theirs] = site.connect(40_000);
        for n in 0..500 {
            (0..writes).for_each(|_| site.write(ours, b"8 bytes."));
            let mut read = 0;
            for _ in 0..writes {
                site.world.run_for(ROUND_TRIP_MAX);
                read += site.read(server, theirs);
            }
            assert_eq!(read, 8 * writes, "{writes} writes at a time, the {n}th time");
            site.world.run_for(Duration::from_millis(1));
        }
    }
}

/// The server closes first, and has the TIME-WAIT; the client is back at once, with the same port or another one, faster than the clock
/// of initial sequence numbers, and than that of timestamps.
#[test]
fn addresses_used_again() {
    for timestamps in [true, false] {
        for (bytes, pause) in [(4000, 0), (4000, 300), (1, 0), (100, 900)] {
            let mut site = Site::new(11, Config { timestamps, ..Config::default() });
            let (client, server) = (site.client, site.server);
            for round in 0..100 {
                let [ours, theirs] = site.connect(40_000 + round % 2);
                site.write(ours, &vec![7; bytes]);
                site.world.run_for(ROUND_TRIP_MAX);
                assert_eq!(site.read(server, theirs), bytes);
                site.close(server, theirs);
                let ready = site.world.call(client, |cx| cx.ring.readiness(ours));
                assert!(ready.contains(Readiness::RDHUP), "{ready:?}");
                site.close(client, ours);
                site.world.run_for(Duration::from_micros(pause));
            }
        }
    }
}
