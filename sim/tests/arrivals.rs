//! When the bytes of streams came, by the ring and by a NIC that stamps what it receives, as whoever asks is told once they are read.

use core::time::Duration;
use std::io::{IoSlice, IoSliceMut};
use std::net::SocketAddr;

use ringway_sim::{HostConfig, NicConfig, World, WorldConfig};
use ringway_stack::Instant;
use ringway_stack::ring::{NextHop, RecvFlags, SendFlags};
use ringway_stack::tcp::{Arrival, Config};

/// How long a frame lies in its queue.
const POLL_DELAY: Duration = Duration::from_micros(5);
/// Longer than a piece is on its way.
const LATER: Duration = Duration::from_millis(1);
/// Bytes of short frames, of one that is not all in its head, and of several.
const PIECES: [usize; 4] = [10, 1000, 4000, 1];

/// Sends each piece some time after the one before, and then reads them byte by byte: when each piece was sent, and what is said of each of its bytes.
fn arrivals(stamps: bool) -> Vec<(Instant, Vec<Arrival>)> {
    let mut world = World::new(WorldConfig::seeded(1));
    let nic = NicConfig { hardware_time: stamps, ..NicConfig::full() };
    let [client, server] =
        ["client", "server"].map(|name| world.add_host(HostConfig { poll_delay: POLL_DELAY, ..HostConfig::named(name) }.nic(nic.clone())));
    world.introduce_all();
    let [from, to] = [(client, 40_000), (server, 80)].map(|(host, port)| SocketAddr::new(world.host(host).ip(), port));
    let config = Config { arrival_times: true, ..Config::default() };
    let listener = world.call(server, |cx| cx.ring.tcp_listen(to, 1, &config)).expect("a fresh host's port is free");
    let hop = NextHop::Neighbour(to.ip());
    let sender = world.call(client, |cx| cx.ring.tcp_connect(cx.now, from, to, hop, &Config::default())).expect("it has room");
    world.run_for(LATER);
    let reader = world.call(server, |cx| cx.ring.tcp_accept(listener)).expect("it is open, and has its listener's configuration");
    let mut sent = Vec::new();
    for len in PIECES {
        let bytes = vec![7; len];
        let (taken, now) = world.call(client, |cx| (cx.ring.tcp_send(cx.now, sender, &[IoSlice::new(&bytes)], SendFlags::empty()), cx.now));
        assert_eq!(taken, Ok(len));
        sent.push(now);
        world.run_for(LATER);
    }
    let mut read = |flags| {
        world.call(server, |cx| {
            assert_eq!(cx.ring.tcp_recv(cx.now, reader, &mut [IoSliceMut::new(&mut [0])], flags), Ok(1));
            cx.ring.tcp_arrival(reader, usize::from(flags.contains(RecvFlags::PEEK))).expect("it was asked for")
        })
    };
    let mut both = || {
        let peeked = read(RecvFlags::PEEK);
        assert_eq!(read(RecvFlags::empty()), peeked);
        peeked
    };
    sent.into_iter().zip(PIECES).map(|(sent, len)| (sent, (0..len).map(|_| both()).collect())).collect()
}

#[test]
fn bytes_have_the_times_of_their_segments() {
    for stamps in [true, false] {
        for (sent, arrivals) in arrivals(stamps) {
            assert!(arrivals.is_sorted_by_key(|at| at.received));
            for Arrival { received, hardware_time } in arrivals {
                assert!(sent < received && received < sent + LATER, "{sent:?} {received:?}");
                let Some(arrived) = hardware_time.filter(|_| stamps) else {
                    assert_eq!((stamps, hardware_time), (false, None));
                    continue;
                };
                assert!(sent < arrived && arrived < received && received.since(arrived) <= POLL_DELAY, "{sent:?} {arrived:?} {received:?}");
            }
        }
    }
}
