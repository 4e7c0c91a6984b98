//! A megabyte over a link that loses, doubles, swaps and damages frames; run twice, to show that chance has nothing to do with it.
//!
//!     cargo run -p ringway-sim --example lossy_link -- [SEED] [FILE.pcapng]

use core::time::Duration;
use std::error::Error;
use std::fs::File;
use std::io::BufWriter;
use std::net::SocketAddr;

use ringway_sim::apps::{Client, Dialogue, Pattern, Server, Shared, Side, Transfer};
use ringway_sim::{Capture, Faults, HostConfig, LinkConfig, World, WorldConfig};
use ringway_stack::Instant;
use ringway_stack::tcp::Config;

const BYTES: u64 = 1 << 20;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let seed = args.next().map_or(Ok(42), |s| s.parse())?;

    let (world, transfer) = upload(seed)?;
    let (again, _) = upload(seed)?;
    println!("{}", world.report());
    println!("the server read {} of {BYTES} bytes: {:?}", transfer.read().read, transfer.read().ending);
    println!("once more: trace {}", again.report().hash);
    assert_eq!(world.report(), again.report());

    if let Some(path) = args.next() {
        world.trace().write_pcapng(BufWriter::new(File::create(&path)?))?;
        println!("{path}: both ends' frames; what befell them stands in the packet comments");
    }
    Ok(())
}

/// One client sends its bytes to one server.
fn upload(seed: u64) -> Result<(World, Shared<Transfer>), Box<dyn Error>> {
    let faults = Faults {
        loss_ppm: 20_000,
        duplication_ppm: 10_000,
        duplication_delay_max: Duration::from_millis(3),
        reordering_ppm: 30_000,
        reordering_delay_max: Duration::from_millis(2),
        corruption_ppm: 5_000,
        ..Faults::default()
    };
    let link = LinkConfig { latency: Duration::from_millis(2), bandwidth_bps: Some(100_000_000), faults, ..LinkConfig::default() };
    let mut world = World::new(WorldConfig { seed, capture: Capture::Frames });
    let server = world.add_host(HostConfig::named("server"));
    let client = world.add_host(HostConfig::named("client").link(link));

    let dialogue = Dialogue { own: Side { pattern: Pattern(seed), total: BYTES, ..Side::silent() }, peer: Side::silent() };
    let read = Shared::new(Transfer::default());
    let mut program = Server::new(80, Config::default(), Shared::new(None));
    program.expect(SocketAddr::new(world.host(client).ip(), 40_000), dialogue.turned(), read.clone());
    world.add_app(server, program);
    let to = SocketAddr::new(world.host(server).ip(), 80);
    world.add_app(client, Client::new(40_000, to, dialogue, Config::default(), Shared::new(Transfer::default())));

    let five_minutes = Instant::ZERO + Duration::from_secs(300);
    world.run_until_finished(five_minutes)?;
    Ok((world, read))
}
