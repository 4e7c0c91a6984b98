//! Two hosts, of which one reads by reference.

use std::io::IoSlice;
use std::net::SocketAddr;

use ringway_stack::ring::{SendFlags, UdpOptions};
use ringway_stack::tcp::Config;

use super::*;
use crate::addresses::neighbour;
use crate::host::{Context, HostConfig};
use crate::nic::Outstanding;
use crate::world::{HostId, World, WorldConfig};

const HOLD: Duration = Duration::from_millis(100);

/// A reader that lends like this, and its writer.
fn world(lending: Lending) -> (World, [HostId; 2]) {
    let mut world = World::new(WorldConfig::seeded(5));
    let reader = world.add_host(HostConfig { lending: vec![Some(lending)], ..HostConfig::named("reader") });
    let writer = world.add_host(HostConfig::named("writer"));
    world.introduce_all();
    (world, [reader, writer])
}

fn always(hold_max: Duration) -> Lending {
    Lending { from_start: true, hold_max, keeps_ppm: 0 }
}

fn connected(world: &mut World, [reader, writer]: [HostId; 2], config: &Config) -> [FlowId; 2] {
    let address = SocketAddr::new(world.host(reader).ip(), 80);
    let listener = world.call(reader, |cx| cx.ring.tcp_listen(address, 1, config)).unwrap();
    let local = SocketAddr::new(world.host(writer).ip(), 1000);
    let connect = |cx: &mut Context<'_>| cx.ring.tcp_connect(cx.now, local, address, neighbour(address), config);
    let client = world.call(writer, connect).unwrap();
    world.run_for(Duration::from_millis(1));
    [world.call(reader, |cx| cx.ring.tcp_accept(listener)).unwrap(), client]
}

fn write(world: &mut World, host: HostId, socket: FlowId, bytes: &[u8]) -> usize {
    world.call(host, |cx| cx.ring.tcp_send(cx.now, socket, &[IoSlice::new(bytes)], SendFlags::empty())).unwrap_or(0)
}

fn read(world: &mut World, host: HostId, socket: FlowId, room: [usize; 2]) -> Result<Vec<u8>, Error> {
    let [mut first, mut second] = room.map(|len| vec![0; len]);
    let into = &mut [IoSliceMut::new(&mut first), IoSliceMut::new(&mut second)];
    let n = world.call(host, |cx| cx.ring.tcp_recv(cx.now, socket, into, RecvFlags::empty()))?;
    first.extend(second);
    first.truncate(n);
    Ok(first)
}

fn held(world: &mut World, host: HostId) -> usize {
    world.outstanding()[host.0].rx_buffers
}

#[test]
fn what_is_read_is_what_was_written_whatever_the_room() {
    let (mut world, hosts) = world(always(HOLD));
    let [reader, writer] = connected(&mut world, hosts, &Config::default());
    let bytes: Vec<u8> = (0..=u8::MAX).cycle().take(60_000).collect();
    let (mut written, mut got) = (0, Vec::new());
    for round in 1..10_000 {
        written += write(&mut world, hosts[1], writer, &bytes[written..bytes.len().min(written + 37 * round)]);
        world.run_for(Duration::from_millis(1));
        got.extend(read(&mut world, hosts[0], reader, [round % 7, 61 * round]).unwrap_or_default());
        if got.len() == bytes.len() {
            break;
        }
    }
    assert!(got == bytes, "{} bytes", got.len());
    assert!(held(&mut world, hosts[0]) > 0);
    world.run_for(HOLD);
    assert_eq!(held(&mut world, hosts[0]), 0);
}

#[test]
fn who_keeps_everything_starves_itself_until_its_patience_ends() {
    let (mut world, hosts) = world(Lending { keeps_ppm: 1_000_000, ..always(Duration::ZERO) });
    let config = Config { rcvbuf: Some(20_000), ..Config::default() };
    let [reader, writer] = connected(&mut world, hosts, &config);
    let [other, its_writer] = {
        let address = SocketAddr::new(world.host(hosts[0]).ip(), 81);
        let open = |cx: &mut Context<'_>| cx.ring.udp_open(address, &UdpOptions::default());
        let local = SocketAddr::new(world.host(hosts[1]).ip(), 81);
        [world.call(hosts[0], open).unwrap(), world.call(hosts[1], |cx| cx.ring.udp_open(local, &UdpOptions::default())).unwrap()]
    };
    let mut got = 0;
    let mut told = 0;
    for _ in 0..50 {
        write(&mut world, hosts[1], writer, &[7; 3000]);
        let to = SocketAddr::new(world.host(hosts[0]).ip(), 81);
        let say = |cx: &mut Context<'_>| cx.ring.udp_send(cx.now, its_writer, &[IoSlice::new(b"there")], cx.ip, Some((to, neighbour(to))));
        world.call(hosts[1], say).unwrap();
        world.run_for(Duration::from_millis(10));
        got += read(&mut world, hosts[0], reader, [0, 100_000]).map_or(0, |bytes| bytes.len());
        let mut word = [0; 10];
        let hear = |cx: &mut Context<'_>| cx.ring.udp_recv(other, &mut [IoSliceMut::new(&mut word)], RecvFlags::empty());
        told += world.call(hosts[0], hear).map_or(0, |datagram| datagram.len);
    }
    // (It now and then reads by copying.)
    assert!((19_000..40_000).contains(&got), "{got} bytes of a buffer of 20000");
    assert_eq!(told, 50 * 5);
    world.run_for(Duration::from_nanos(PATIENCE_NS.1));
    assert!(!read(&mut world, hosts[0], reader, [0, 100_000]).unwrap().is_empty());
}

#[test]
fn what_is_held_outlives_its_socket_and_comes_back() {
    let (mut world, hosts) = world(Lending { keeps_ppm: 1_000_000, ..always(HOLD) });
    let mut outlived = 0;
    for port in 0..20 {
        let address = SocketAddr::new(world.host(hosts[0]).ip(), 100 + port);
        let open = |cx: &mut Context<'_>| cx.ring.udp_open(address, &UdpOptions::default());
        let socket = world.call(hosts[0], open).unwrap();
        let local = SocketAddr::new(world.host(hosts[1]).ip(), 100 + port);
        let from = world.call(hosts[1], |cx| cx.ring.udp_open(local, &UdpOptions::default())).unwrap();
        let say =
            |cx: &mut Context<'_>| cx.ring.udp_send(cx.now, from, &[IoSlice::new(&[1; 300])], cx.ip, Some((address, neighbour(address))));
        world.call(hosts[1], say).unwrap();
        world.run_for(Duration::from_millis(1));
        let mut bytes = [0; 300];
        let hear = |cx: &mut Context<'_>| cx.ring.udp_recv(socket, &mut [IoSliceMut::new(&mut bytes)], RecvFlags::empty());
        world.call(hosts[0], hear).unwrap();
        for (host, socket) in [(hosts[0], socket), (hosts[1], from)] {
            world.call(host, |cx| cx.ring.close(cx.now, socket, false));
        }
        outlived += usize::from(held(&mut world, hosts[0]) > 0);
    }
    assert!((1..20).contains(&outlived), "{outlived}");
    world.run_for(HOLD);
    assert_eq!(world.outstanding(), [Outstanding::default(); 2]);
}

#[test]
fn nothing_is_said_of_rings_that_do_not_lend() {
    let mut world = World::new(WorldConfig::seeded(5));
    let host = world.add_host(HostConfig { lending: vec![None], rings: 2, ..HostConfig::named("h") });
    assert!(world.host(host).rings().iter().all(|ring| ring.next_wake().is_none() && !ring.holds_loans()));
}
