//! One small connection, frame by frame, as text. The snapshot changes when the stack's behaviour on the wire does, and only then:
//! look at every line of the difference before accepting it.

use core::time::Duration;
use std::net::SocketAddr;

use ringway_sim::apps::{Client, Dialogue, Ending, Pace, Pattern, Server, Shared, Side, Transfer};
use ringway_sim::{Capture, Faults, HostConfig, LinkConfig, World, WorldConfig, trace};
use ringway_stack::Instant;
use ringway_stack::tcp::Config;

const SECOND: u64 = 1_000_000_000;

/// A request of 5 bytes, a response, and both ends' closes.
fn exchange(seed: u64, response: u64, faults: Faults) -> World {
    let mut world = World::new(WorldConfig { seed, capture: Capture::Frames });
    let link = LinkConfig { latency: Duration::from_millis(5), bandwidth_bps: None, faults, ..LinkConfig::default() };
    let [client, server] = ["client", "server"].map(|name| world.add_host(HostConfig::named(name).link(link)));

    let request = 5;
    let asks = Side { pattern: Pattern(1), total: request, pace: Pace::Asks { request, response }, ..Side::silent() };
    let answers = Side { pattern: Pattern(2), total: response, pace: Pace::Answers { request, response }, ..Side::silent() };
    let dialogue = Dialogue { own: asks, peer: answers };
    let transfers = [Shared::new(Transfer::default()), Shared::new(Transfer::default())];
    let from = SocketAddr::new(world.host(client).ip(), 40_000);
    let to = SocketAddr::new(world.host(server).ip(), 80);

    let mut program = Server::new(80, Config::default(), Shared::new(None));
    program.expect(from, dialogue.turned(), transfers[1].clone());
    world.add_app(server, program);
    world.add_app(client, Client::new(40_000, to, dialogue, Config::default(), transfers[0].clone()));

    let finished = world.run_until_finished(Instant::from_nanos(60 * SECOND));
    assert!(finished.is_ok(), "{finished:?}\n{}", trace::render(world.trace()));
    world.run_for(Duration::from_secs(2));
    for transfer in &transfers {
        assert_eq!(transfer.read().ending, Some(Ending::Whole));
    }
    world
}

#[test]
fn handshake_data_and_close() {
    insta::assert_snapshot!(trace::render(exchange(1, 3000, Faults::default()).trace()));
}

#[test]
fn a_loss_repaired_by_sack() {
    let faults = Faults { loss_ppm: 60_000, ..Faults::default() };
    insta::assert_snapshot!(trace::render(exchange(6, 10_000, faults).trace()));
}
