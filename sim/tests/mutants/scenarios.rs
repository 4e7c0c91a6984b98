//! Connections that hardly any seed of the swarm has: one that is silent for long, one whose window update is lost, one whose receiver has
//! few buffers, and one that is attacked all the time and has no other trouble.

use core::time::Duration;
use std::io::{IoSlice, IoSliceMut};
use std::net::SocketAddr;

use ringway_sim::{HostConfig, HostId, NicConfig, World, WorldConfig};
use ringway_stack::mutants::Mutant;
use ringway_stack::ring::{FlowId, NextHop, RecvFlags, SendFlags, Shutdown, UdpOptions};
use ringway_stack::tcp::{Config, Keepalive};

const PORT: u16 = 80;

/// All of them.
pub(super) fn all(seed: u64, mutant: Mutant) {
    a_long_silence(seed, mutant);
    a_lost_window_update(seed, mutant);
    an_attacked_connection(seed, mutant);
    a_receiver_short_of_buffers(seed, mutant);
    a_reader_who_rests(seed, mutant);
    a_peer_that_vanishes(seed, mutant);
    a_peer_that_never_closes(seed, mutant);
    an_unread_end(seed, mutant);
    a_closed_door(seed, mutant);
    a_crossing(seed, mutant);
}

/// Two hosts with a connection between them.
fn connected(seed: u64, mutant: Mutant, keepalive: Option<Keepalive>) -> (World, [(HostId, FlowId); 2]) {
    let config = Config { keepalive, rcvbuf: Some(20_000), ..Config::default() };
    connected_with(seed, mutant, &config, NicConfig::default())
}

/// As [`connected`], with this configuration of both ends, and the server behind this NIC.
fn connected_with(seed: u64, mutant: Mutant, config: &Config, nic: NicConfig) -> (World, [(HostId, FlowId); 2]) {
    let mut world = World::new(WorldConfig::seeded(seed));
    let client = world.add_host(HostConfig::named("client"));
    let server = world.add_host(HostConfig::named("server").nic(nic));
    world.infect(mutant);
    let address = SocketAddr::new(world.host(server).ip(), PORT);
    let listener = world.call(server, |cx| cx.ring.tcp_listen(address, 1, config)).expect("a fresh host's port is free");
    let connect = |cx: &mut ringway_sim::Context<'_>| {
        cx.ring.tcp_connect(cx.now, SocketAddr::new(cx.ip, 40_000), address, NextHop::Neighbour(address.ip()), config)
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

/// Somebody forges a frame for every second one that the server hears.
pub(super) fn an_attacked_connection(seed: u64, mutant: Mutant) {
    let nic = NicConfig { lro: false, ..NicConfig::default() };
    let (mut world, [(client, ours), (server, theirs)]) = connected_with(seed, mutant, &Config::default(), nic);
    world.introduce_all();
    world.change_host_faults(server, |faults| faults.forge_ppm = 500_000);
    let mut bytes = [0; 1000];
    for _ in 0..100 {
        let _ = world.call(client, |cx| cx.ring.tcp_send(cx.now, ours, &[IoSlice::new(&[7; 100])], SendFlags::empty()));
        world.run_for(Duration::from_millis(100));
        let _ = world.call(server, |cx| cx.ring.tcp_recv(cx.now, theirs, &mut [IoSliceMut::new(&mut bytes)], RecvFlags::empty()));
    }
}

/// Segments are lost, and what comes behind them is more than the receiver has buffers for: it takes back what it reported (RFC 2018 s8).
pub(super) fn a_receiver_short_of_buffers(seed: u64, mutant: Mutant) {
    const TOTAL: usize = 400_000;
    let nic = NicConfig { rx_buffers_max: 16, ..NicConfig::default() };
    let (mut world, [(client, ours), (server, theirs)]) = connected_with(seed, mutant, &Config::default(), nic);
    // Whoever asks for an address is excused meanwhile.
    world.introduce_all();
    world.change_link(server, |link| {
        link.latency = Duration::from_millis(5);
        link.faults.loss_ppm = 20_000;
    });
    let (mut written, mut read) = (0, 0);
    let mut bytes = vec![7; TOTAL];
    for _ in 0..30_000 {
        let rest = [IoSlice::new(&bytes[written..])];
        written += world.call(client, |cx| cx.ring.tcp_send(cx.now, ours, &rest, SendFlags::empty())).unwrap_or(0);
        let into = &mut [IoSliceMut::new(&mut bytes)];
        read += world.call(server, |cx| cx.ring.tcp_recv(cx.now, theirs, into, RecvFlags::empty())).unwrap_or(0);
        if read == TOTAL {
            break;
        }
        bytes.fill(7);
        world.run_for(Duration::from_millis(10));
    }
    #[cfg(feature = "marks")]
    if mutant == Mutant::Healthy {
        use ringway_stack::marks::Mark;
        let marks = world.report().marks;
        let passed = [Mark::ReassemblyPruned, Mark::SackReneged].map(|mark| marks.of(mark));
        assert!(passed.iter().all(|&count| count > 0), "{passed:?}");
    }
    assert_eq!(read, TOTAL, "{written} were written");
}

/// The reader rests for half an hour, with its window shut, and then reads on.
pub(super) fn a_reader_who_rests(seed: u64, mutant: Mutant) {
    let (mut world, [(client, ours), (server, theirs)]) = connected(seed, mutant, None);
    world.call(client, |cx| cx.ring.tcp_send(cx.now, ours, &[IoSlice::new(&[7; 60_000])], SendFlags::empty())).expect("room");
    let mut bytes = vec![0; 60_000];
    for _ in 0..2 {
        world.run_for(Duration::from_secs(1800));
        let error = world.call(client, |cx| cx.ring.take_error(ours));
        assert_eq!(error, None, "a peer that answers is not given up");
        let _ = world.call(server, |cx| cx.ring.tcp_recv(cx.now, theirs, &mut [IoSliceMut::new(&mut bytes)], RecvFlags::empty()));
    }
    world.run_for(Duration::from_secs(10));
}

/// A silent peer vanishes, and keepalive finds out.
pub(super) fn a_peer_that_vanishes(seed: u64, mutant: Mutant) {
    let keepalive = Keepalive { idle: Duration::from_secs(20), interval: Duration::from_secs(5), count: 5 };
    let (mut world, [(client, ours), (server, _)]) = connected(seed, mutant, Some(keepalive));
    world.introduce_all();
    world.change_link(server, |link| link.faults.loss_ppm = 1_000_000);
    world.run_for(Duration::from_secs(200));
    world.call(client, |cx| cx.ring.take_error(ours));
}

/// A program closes its socket, and its peer's never does; or it has ended its stream long before.
pub(super) fn a_peer_that_never_closes(seed: u64, mutant: Mutant) {
    for shuts_first in [false, true] {
        let (mut world, [(client, ours), _]) = connected(seed, mutant, None);
        world.set_faults(false);
        if shuts_first {
            world.call(client, |cx| cx.ring.shutdown(cx.now, ours, Shutdown::Write)).expect("it is connected");
            world.run_for(Duration::from_secs(5));
        }
        world.call(client, |cx| cx.ring.close(cx.now, ours, false));
        world.run_for(Duration::from_secs(400));
    }
}

/// A program closes its socket without having read what came.
pub(super) fn an_unread_end(seed: u64, mutant: Mutant) {
    let (mut world, [(client, ours), (server, theirs)]) = connected(seed, mutant, None);
    world.call(client, |cx| cx.ring.tcp_send(cx.now, ours, &[IoSlice::new(&[7; 600])], SendFlags::empty())).expect("room");
    world.run_for(Duration::from_secs(1));
    world.call(server, |cx| cx.ring.close(cx.now, theirs, false));
    world.run_for(Duration::from_secs(20));
}

/// Nobody listens.
pub(super) fn a_closed_door(seed: u64, mutant: Mutant) {
    let (mut world, [(client, _), (server, _)]) = connected(seed, mutant, None);
    let door = SocketAddr::new(world.host(server).ip(), PORT + 1);
    let knock = |cx: &mut ringway_sim::Context<'_>| {
        let config = Config::default();
        cx.ring.tcp_connect(cx.now, SocketAddr::new(cx.ip, 40_001), door, NextHop::Neighbour(door.ip()), &config)
    };
    let ours = world.call(client, knock).expect("the port is free");
    let ask = |cx: &mut ringway_sim::Context<'_>| {
        let socket = cx.ring.udp_open(SocketAddr::new(cx.ip, 40_001), &UdpOptions::default())?;
        let to = Some((door, NextHop::Neighbour(door.ip())));
        cx.ring.udp_send(cx.now, socket, &[IoSlice::new(b"who is there?")], cx.ip, to)
    };
    world.call(client, ask).expect("the port is free");
    world.run_for(Duration::from_secs(1));
    world.call(client, |cx| cx.ring.take_error(ours));
}

/// Two connect to one another at once.
pub(super) fn a_crossing(seed: u64, mutant: Mutant) {
    let (mut world, [(client, _), (server, _)]) = connected(seed, mutant, None);
    let ends = [(client, server), (server, client)].map(|(here, there)| {
        let [from, to] = [here, there].map(|host| SocketAddr::new(world.host(host).ip(), 50_000));
        (here, from, to)
    });
    for link in [client, server] {
        world.change_link(link, |link| link.latency = Duration::from_millis(5));
    }
    for (here, from, to) in ends {
        let connect =
            |cx: &mut ringway_sim::Context<'_>| cx.ring.tcp_connect(cx.now, from, to, NextHop::Neighbour(to.ip()), &Config::default());
        world.call(here, connect).expect("the port is free");
    }
    world.run_for(Duration::from_secs(5));
}
