//! A UDP receiver with a full buffer drops what comes, and tells so with what comes next (socket(7), `SO_RXQ_OVFL`): where nothing else loses
//! anything, there were as many datagrams before one that is read as were read and as it says were dropped.

use core::time::Duration;
use std::io::{IoSlice, IoSliceMut};
use std::net::SocketAddr;

use ringway_sim::{HostConfig, World, WorldConfig};
use ringway_stack::ring::{NextHop, RecvFlags, UdpOptions};

const PORT: u16 = 53;
/// Longer than a burst is on its way.
const LATER: Duration = Duration::from_millis(1);
/// Datagrams in a burst, and how many of those that wait are read before the next one.
const BURSTS: [(u32, u32); 8] = [(3, 1), (40, 7), (1, 0), (17, 30), (60, 2), (2, 100), (30, 100), (1, 100)];

/// How many datagrams were sent, were read, and were dropped.
fn account(seed: u64, rcvbuf: usize, len: usize) -> [u32; 3] {
    let mut world = World::new(WorldConfig::seeded(seed));
    let [client, server] = ["client", "server"].map(|name| world.add_host(HostConfig::named(name)));
    world.introduce_all();
    let [from, to] = [client, server].map(|host| SocketAddr::new(world.host(host).ip(), PORT));
    let options = UdpOptions { rcvbuf, tell_drops: true, ..UdpOptions::default() };
    let sender = world.call(client, |cx| cx.ring.udp_open(from, &UdpOptions::default())).expect("a fresh host's port is free");
    let receiver = world.call(server, |cx| cx.ring.udp_open(to, &options)).expect("a fresh host's port is free");
    let hop = Some((to, NextHop::Neighbour(to.ip())));
    let (mut sent, mut read, mut told, mut number) = (0, 0, 0, vec![0; len]);
    for (burst, reads) in BURSTS {
        for _ in 0..burst {
            number[..4].copy_from_slice(&u32::to_be_bytes(sent));
            let data = &[IoSlice::new(&number)];
            let taken = world.call(client, |cx| cx.ring.udp_send(cx.now, sender, data, from.ip(), hop));
            assert_eq!(taken, Ok(len));
            sent += 1;
        }
        world.run_for(LATER);
        for _ in 0..reads {
            let into = &mut [IoSliceMut::new(&mut number)];
            let Ok(datagram) = world.call(server, |cx| cx.ring.udp_recv(receiver, into, RecvFlags::empty())) else { break };
            let own = number.first_chunk().map_or(0, |&bytes| u32::from_be_bytes(bytes));
            assert_eq!(own, read + datagram.drops, "seed {seed}: before this one {read} were read, and {} dropped", datagram.drops);
            (read, told) = (read + 1, datagram.drops);
        }
    }
    [sent, read, told]
}

#[test]
fn what_was_sent_is_what_was_read_and_what_was_dropped() {
    let mut dropped = 0;
    for seed in 0..40 {
        for (rcvbuf, len) in [(1, 4), (4096, 4), (4096, 1400), (20_000, 900), (1 << 20, 1400)] {
            let [sent, read, told] = account(seed, rcvbuf, len);
            assert_eq!(sent, read + told, "seed {seed}, {rcvbuf} bytes of buffer for datagrams of {len}");
            dropped += told;
        }
    }
    assert!(dropped > 1000, "only {dropped} were dropped");
}
