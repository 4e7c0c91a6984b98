//! IPv6: its rules and names, and a stack's connections and datagrams over the device.

use std::io::{IoSlice, IoSliceMut};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use ringway_stack::device::{Device as _, DeviceEvent, Protocol, Queues};
use ringway_stack::ring::{FlowId, NextHop, RecvFlags, Ring, RingConfig, SendFlags, UdpOptions};
use ringway_stack::{Error, Instant, tcp};

use super::{Node, Progress, find, fresh_address, pattern, small, until};
use crate::{Rendezvous, ShmQueues, attach};

/// A port of the process's own, on an address that the machine need not have.
fn fresh_v6() -> SocketAddr {
    let v4 = fresh_address();
    SocketAddr::new(Ipv6Addr::from((0x2001_0db8 << 96) | u128::from(v4.ip().to_bits())).into(), v4.port())
}

#[test]
fn a_member_is_found_under_an_address_of_either_family_and_under_no_other() {
    let (a, b) = (Node::new(), Node::new());
    let address = fresh_v6();
    assert!(find(&a.rendezvous, Protocol::Tcp, address).is_none());
    let rule = b.device.steer(&super::tcp(address)).unwrap();
    let found = find(&a.rendezvous, Protocol::Tcp, address).expect("the other member");
    assert!(find(&a.rendezvous, Protocol::Udp, address).is_none());
    // The same port of the other family, and of an address that differs in its first half alone.
    let v4 = SocketAddr::new(fresh_address().ip().to_owned().into(), address.port());
    let IpAddr::V6(ip) = address.ip() else { panic!("{address}") };
    let other = SocketAddr::new(Ipv6Addr::from(ip.to_bits() ^ 1 << 90).into(), address.port());
    assert!(find(&a.rendezvous, Protocol::Tcp, v4).is_none() && find(&a.rendezvous, Protocol::Tcp, other).is_none());
    // By memory alone, now that the two know each other.
    let search = a.rendezvous.search(Protocol::Tcp, address).unwrap();
    assert_eq!(search.found.map(|found| found.mac), Some(found.mac));
    b.device.device().detach(rule.rule);
    assert!(!a.rendezvous.still_valid(&found) && find(&a.rendezvous, Protocol::Tcp, address).is_none());
}

#[test]
fn every_address_is_every_one_of_its_family() {
    let (a, b) = (Node::new(), Node::new());
    let port = fresh_address().port() + 20_000;
    let [any, any_v4] = ["::", "0.0.0.0"].map(|ip| SocketAddr::new(ip.parse().unwrap(), port));
    let [one, mapped] = ["::1", "127.0.0.1"].map(|ip| SocketAddr::new(ip.parse().unwrap(), port));
    b.device.steer(&super::tcp(any)).unwrap();
    let found = find(&a.rendezvous, Protocol::Tcp, one).expect("a wildcard");
    // To nobody in particular is to this host.
    assert_eq!(find(&a.rendezvous, Protocol::Tcp, any).map(|found| found.mac), Some(found.mac));
    assert!(find(&a.rendezvous, Protocol::Tcp, mapped).is_none());
    // (As a socket that accepts both has it.)
    b.device.steer(&super::tcp(any_v4)).unwrap();
    assert!(find(&a.rendezvous, Protocol::Tcp, mapped).is_some());
}

#[test]
fn an_address_has_one_holder_in_each_family() {
    let (a, b) = (Node::new(), Node::new());
    let (v6, v4) = (fresh_v6(), fresh_address());
    a.device.steer(&super::tcp(v6)).unwrap();
    assert!(b.device.steer(&super::tcp(v6)).is_err(), "another member has it");
    assert!(a.device.steer(&super::tcp(v6)).is_err(), "it has it itself");
    b.device.steer(&super::tcp(SocketAddr::new(v4.ip().to_owned().into(), v6.port()))).unwrap();
}

/// A member with a stack.
struct Host {
    ring: Ring<ShmQueues>,
    rendezvous: Arc<Rendezvous>,
    now: Instant,
    _progress: Progress,
}

impl Host {
    fn new(seed: u8) -> Self {
        let (device, rendezvous) = attach(&small()).unwrap();
        let progress = Progress::of(&rendezvous);
        let ring = Ring::new(device, RingConfig::default(), [seed; 32]);
        Self { ring, rendezvous, now: Instant::ZERO, _progress: progress }
    }

    fn turn(&mut self) {
        self.now += core::time::Duration::from_micros(10);
        self.ring.poll(self.now);
        while self.ring.take_event().is_some() {}
    }

    fn send(&mut self, id: FlowId, bytes: &[u8]) -> usize {
        self.ring.tcp_send(self.now, id, &[IoSlice::new(bytes)], SendFlags::empty()).unwrap_or(0)
    }

    fn receive(&mut self, id: FlowId, into: &mut [u8]) -> Result<usize, Error> {
        self.ring.tcp_recv(self.now, id, &mut [IoSliceMut::new(into)], RecvFlags::empty())
    }
}

#[test]
fn a_stack_plays_ping_pong_over_ipv6() {
    let (mut client, mut server) = (Host::new(1), Host::new(2));
    let (to, from) = (fresh_v6(), fresh_v6());
    let listener = server.ring.tcp_listen(to, 8, &tcp::Config::default()).unwrap();
    let hop = NextHop::Mac(find(&client.rendezvous, Protocol::Tcp, to).expect("the server").mac);
    let stream = client.ring.tcp_connect(client.now, from, to, hop, &tcp::Config::default()).unwrap();
    let accepted = until("the connection", || {
        client.turn();
        server.turn();
        server.ring.tcp_accept(listener).ok()
    });
    let info = server.ring.info(accepted).unwrap();
    assert_eq!((info.local, info.remote), (to, Some(from)));
    // From one byte, in its slot, to many frames with gather lists.
    for (round, len) in [1, 100, 5000, 200_000].into_iter().enumerate() {
        let ball = pattern(len, round);
        for server_serves in [false, true] {
            let (mut sent, mut got, mut into) = (0, Vec::new(), vec![0; 64 << 10]);
            until("the ball", || {
                client.turn();
                server.turn();
                let ((sender, out), (receiver, here)) = match server_serves {
                    true => ((&mut server, accepted), (&mut client, stream)),
                    false => ((&mut client, stream), (&mut server, accepted)),
                };
                sent += sender.send(out, &ball[sent..]);
                let came = receiver.receive(here, &mut into).unwrap_or(0);
                got.extend_from_slice(&into[..came]);
                (got.len() == len).then_some(())
            });
            assert_eq!(got, ball);
        }
    }
    client.ring.close(client.now, stream, false);
    until("the end of the stream", || {
        client.turn();
        server.turn();
        (server.receive(accepted, &mut [0; 8]) == Ok(0)).then_some(())
    });
}

#[test]
fn datagrams_go_over_ipv6() {
    let (mut client, mut server) = (Host::new(3), Host::new(4));
    let (to, from) = (fresh_v6(), fresh_v6());
    let there = server.ring.udp_open(to, &UdpOptions::default()).unwrap();
    let here = client.ring.udp_open(from, &UdpOptions::default()).unwrap();
    let hop = NextHop::Mac(find(&client.rendezvous, Protocol::Udp, to).expect("the server").mac);
    for len in [0, 1, 1000, 60_000] {
        let bytes = pattern(len, len);
        client.ring.udp_send(client.now, here, &[IoSlice::new(&bytes)], from.ip(), Some((to, hop))).unwrap();
        let mut into = vec![0; 64 << 10];
        let got = until("the datagram", || {
            client.turn();
            server.turn();
            server.ring.udp_recv(there, &mut [IoSliceMut::new(&mut into)], RecvFlags::empty()).ok()
        });
        assert_eq!((got.from, got.to, &into[..got.len]), (from, to.ip(), &bytes[..]));
    }
}

#[test]
fn what_a_member_was_through_with_is_known_of_its_ipv6_connections_too() {
    for is_read in [true, false] {
        let (mut client, mut server) = (Host::new(5), Host::new(6));
        let (to, from) = (fresh_v6(), fresh_v6());
        let listener = server.ring.tcp_listen(to, 8, &tcp::Config::default()).unwrap();
        let mac = find(&client.rendezvous, Protocol::Tcp, to).expect("the server").mac;
        let stream = client.ring.tcp_connect(client.now, from, to, NextHop::Mac(mac), &tcp::Config::default()).unwrap();
        let accepted = until("the connection", || {
            client.turn();
            server.turn();
            server.ring.tcp_accept(listener).ok()
        });
        client.turn();
        assert_eq!(client.send(stream, b"asked"), 5);
        client.turn();
        if is_read {
            server.turn();
            assert_eq!(server.receive(accepted, &mut [0; 8]), Ok(5));
        }
        // As if it were killed: nothing is said of its connections.
        core::mem::drop(server);
        let flow = ringway_stack::device::FiveTuple { protocol: Protocol::Tcp, local: from, remote: Some(to) };
        let device = client.ring.queues_mut();
        let mut batch = ringway_stack::device::RxBatch::new(64);
        until("the end of the peer", || {
            batch.clear();
            device.poll_rx(Instant::ZERO, &mut batch);
            device.poll_event().filter(|event| *event == DeviceEvent::PeerGone(mac))
        });
        assert_eq!(device.left_finished(mac, &flow), is_read);
    }
}
