//! A hundred hosts: four of them serve, each of the others sends a stream to one and asks another.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Result, ensure};
use ringway_sim::apps::{Client, Dialogue, Ending, Pace, Pattern, Server, Shared, Side, Transfer};
use ringway_sim::{HostConfig, HostId, World, WorldConfig};
use ringway_stack::Instant;
use ringway_stack::tcp::Config;

use super::Run;
use super::stream::{self, Sink, Source};

const HOSTS: usize = 100;
const SERVERS: usize = 4;
/// Bytes that each client streams.
const STREAMED: u64 = 1 << 20;
/// Requests of each client, and the bytes of a request and of a response.
const REQUESTS: u64 = 400;
const REQUEST: u64 = 64;
const RESPONSE: u64 = 1024;
const STREAM_PORT: u16 = 9;
const REQUEST_PORT: u16 = 80;
const CLIENT_PORT: u16 = 40_000;

/// Runs it.
pub(super) fn hundred_hosts() -> Result<Run> {
    let mut world = World::new(WorldConfig::seeded(1)).unchecked();
    let hosts: Vec<HostId> = (0..HOSTS).map(|i| world.add_host(HostConfig::named(&format!("host{i}")))).collect();
    world.introduce_all();
    let clients = HOSTS - SERVERS;
    let mut servers: Vec<_> = (0..SERVERS).map(|_| Server::new(REQUEST_PORT, Config::default(), Shared::new(None))).collect();
    let read: Vec<_> = (0..SERVERS).map(|_| Shared::new(0)).collect();
    let mut transfers = Vec::new();
    for (i, &host) in hosts[SERVERS..].iter().enumerate() {
        let (asked, sunk) = (i % SERVERS, (i + 1) % SERVERS);
        let transfer = Shared::new(Transfer::default());
        let own = SocketAddr::new(world.host(host).ip(), CLIENT_PORT);
        servers[asked].expect(own, dialogue().turned(), Shared::new(Transfer::default()));
        let to = |server: usize, port| SocketAddr::new(world.host(hosts[server]).ip(), port);
        let (ask, stream) = (to(asked, REQUEST_PORT), to(sunk, STREAM_PORT));
        world.add_app(host, Client::new(CLIENT_PORT, ask, dialogue(), Config::default(), transfer.clone()));
        world.add_app(host, Source::new(CLIENT_PORT + 1, stream, STREAMED));
        transfers.push(transfer);
    }
    for (i, server) in servers.into_iter().enumerate() {
        world.add_app(hosts[i], server);
        world.add_app(hosts[i], Sink::new(STREAM_PORT, clients / SERVERS, read[i].clone()));
    }
    Run::measure(|| {
        let ended = world.run_until_finished(Instant::ZERO + Duration::from_secs(600))?;
        let streamed: u64 = read.iter().map(|read| *read.read()).sum();
        ensure!(streamed == STREAMED * clients as u64, "{streamed} bytes of the streams arrived");
        ensure!(transfers.iter().all(|t| t.read().ending == Some(Ending::Whole)), "a conversation failed");
        Ok((stream::packets(&world, &hosts), ended.since(Instant::ZERO)))
    })
}

fn dialogue() -> Dialogue {
    let (request, response) = (REQUEST, RESPONSE);
    let side = |total, pace| Side { pattern: Pattern(1), total, pace, ..Side::silent() };
    Dialogue {
        own: side(REQUESTS * REQUEST, Pace::Asks { request, response }),
        peer: side(REQUESTS * RESPONSE, Pace::Answers { request, response }),
    }
}
