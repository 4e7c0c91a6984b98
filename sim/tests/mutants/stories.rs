//! Two connections that hardly any seed of the swarm has: one that is silent for long, and one whose window update is lost.

use core::time::Duration;
use std::io::{IoSlice, IoSliceMut};
use std::net::SocketAddrV4;

use ringway_sim::{HostConfig, HostId, World, WorldConfig};
use ringway_stack::mutants::Mutant;
use ringway_stack::ring::{NextHop, RecvFlags, SendFlags, SocketId};
use ringway_stack::tcp::{Config, Keepalive};

const PORT: u16 = 80;

/// Two hosts with a connection between them.
fn connected(seed: u64, mutant: Mutant, keepalive: Option<Keepalive>) -> (World, [(HostId, SocketId); 2]) {
    let mut world = World::new(WorldConfig::seeded(seed));
    let [client, server] = ["client", "server"].map(|name| world.add_host(HostConfig::named(name)));
    world.infect(mutant);
    let config = Config { keepalive, rcvbuf: Some(20_000), ..Config::default() };
    let address = SocketAddrV4::new(world.host(server).ip(), PORT);
    let listener = world.call(server, |cx| cx.ring.tcp_listen(address, 1, &config)).expect("a fresh host's port is free");
    let connect = |cx: &mut ringway_sim::Context<'_>| {
        cx.ring.tcp_connect(cx.now, SocketAddrV4::new(cx.ip, 40_000), address, NextHop::Neighbour(*address.ip()), &config)
    };
    let ours = world.call(client, connect).expect("a fresh host's port is free");
    world.run_for(Duration::from_secs(1));
    let theirs = world.call(server, |cx| cx.ring.tcp_accept(listener)).expect("nothing is lost");
    (world, [(client, ours), (server, theirs)])
}

/// Nobody says anything for two minutes; keepalive does.
pub(super) fn a_long_silence(seed: u64, mutant: Mutant) {
    let keepalive = Keepalive { idle: Duration::from_secs(20), interval: Duration::from_secs(5), count: 5 };
    let (mut world, ends) = connected(seed, mutant, Some(keepalive));
    world.run_for(Duration::from_secs(120));
    for (host, socket) in ends {
        world.call(host, |cx| cx.ring.close(cx.now, socket, false));
    }
}

/// The reader makes room while its link is dead; it is up to the writer to find out.
pub(super) fn a_lost_window_update(seed: u64, mutant: Mutant) {
    let (mut world, [(client, ours), (server, theirs)]) = connected(seed, mutant, None);
    world.call(client, |cx| cx.ring.tcp_send(cx.now, ours, &[IoSlice::new(&[7; 60_000])], SendFlags::empty())).expect("room");
    world.run_for(Duration::from_millis(100));
    world.change_link(server, |link| link.faults.loss_ppm = 1_000_000);
    let mut bytes = vec![0; 60_000];
    world.call(server, |cx| cx.ring.tcp_recv(cx.now, theirs, &mut [IoSliceMut::new(&mut bytes)], RecvFlags::empty())).expect("bytes");
    world.run_for(Duration::from_millis(10));
    world.change_link(server, |link| link.faults.loss_ppm = 0);
    world.run_for(Duration::from_secs(300));
}
