//! Two rings on a cable without faults; what a network can do to them is tested in the simulator.

mod cable;
mod endings;
mod fast_open;
mod fits;
mod ipv6;
mod layouts;
mod paths;
mod reading;
mod requirements;
mod sleepers;
mod steering;
mod strangers;

use std::io::{IoSlice, IoSliceMut};
use std::net::{Ipv4Addr, SocketAddr};

pub(super) use cable::{Bytes, Cable, Told, Wire};

use super::*;
use crate::device::{RuleError, SendError, Wake};

pub(super) const A4: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
pub(super) const B4: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
pub(super) const A: IpAddr = IpAddr::V4(A4);
pub(super) const B: IpAddr = IpAddr::V4(B4);
pub(super) struct Pair {
    pub(super) now: Instant,
    pub(super) a: Ring<Cable>,
    pub(super) b: Ring<Cable>,
}

impl Pair {
    pub(super) fn new() -> Self {
        Self::between(A, B)
    }

    pub(super) fn between(a: IpAddr, b: IpAddr) -> Self {
        let (ab, ba) = (Wire::default(), Wire::default());
        let ring = |ip: IpAddr, number: u8, out: &Wire, inward: &Wire| {
            let device = Cable::new(MacAddr([2, 0, 0, 0, 0, number]), out, inward);
            Ring::new(device, RingConfig { addresses: vec![ip], ..RingConfig::default() }, [number; 32])
        };
        Self { now: Instant::ZERO, a: ring(a, 1, &ab, &ba), b: ring(b, 2, &ba, &ab) }
    }

    /// Polls both until neither has anything to do at this instant.
    pub(super) fn settle(&mut self) {
        while self.a.poll(self.now) + self.b.poll(self.now) > 0 {}
    }

    pub(super) fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while let Some(next) = [self.a.next_deadline(), self.b.next_deadline()].into_iter().flatten().min().filter(|n| *n <= end) {
            self.now = self.now.max(next) + Duration::from_nanos(1);
            self.settle();
        }
        self.now = end;
        self.settle();
    }

    pub(super) fn connected(&mut self) -> (FlowId, FlowId, FlowId) {
        self.connected_with(&tcp::Config::default())
    }

    /// The listener's configuration is `config`.
    fn connected_with(&mut self, config: &tcp::Config) -> (FlowId, FlowId, FlowId) {
        let listener = self.b.tcp_listen(SocketAddr::new(IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED), 80), 4, config).unwrap();
        let client = self.connect(5000);
        self.settle();
        let server = self.b.tcp_accept(listener).unwrap();
        (client, server, listener)
    }

    /// As [`Self::connect`]; also the SYN's frame, which B has yet to receive.
    pub(super) fn connect_seen(&mut self, port: u16) -> (FlowId, Vec<u8>) {
        self.a.set_neighbour(B, Some(self.b.queues.mac));
        let client = self.connect(port);
        let syn = self.b.queues.inward.lock().unwrap().back().unwrap().clone();
        (client, syn)
    }

    pub(super) fn connect(&mut self, port: u16) -> FlowId {
        let (local, remote) = (SocketAddr::new(A, port), SocketAddr::new(B, 80));
        self.a.tcp_connect(self.now, local, remote, NextHop::Neighbour(B), &tcp::Config::default()).unwrap()
    }
}

pub(super) fn read(ring: &mut Ring<Cable>, now: Instant, id: FlowId, len: usize) -> Result<Vec<u8>, Error> {
    let mut bytes = vec![0; len];
    let n = ring.tcp_recv(now, id, &mut [IoSliceMut::new(&mut bytes)], RecvFlags::empty())?;
    bytes.truncate(n);
    Ok(bytes)
}

pub(super) fn write(ring: &mut Ring<Cable>, now: Instant, id: FlowId, bytes: &[u8]) -> Result<usize, Error> {
    ring.tcp_send(now, id, &[IoSlice::new(bytes)], SendFlags::empty())
}

#[test]
fn a_stream_opens_carries_bytes_both_ways_and_closes() {
    let mut pair = Pair::new();
    let (client, server, listener) = pair.connected();
    assert_eq!(pair.a.take_event().map(|e| (e.flow, e.edges.contains(Readiness::OUT))), Some((client, true)));
    assert_eq!(write(&mut pair.a, pair.now, client, b"ping"), Ok(4));
    pair.settle();
    assert_eq!(read(&mut pair.b, pair.now, server, 64), Ok(b"ping".to_vec()));
    let big: Vec<u8> = (0..20_000u32).map(|n| n as u8).collect();
    assert_eq!(write(&mut pair.b, pair.now, server, &big), Ok(big.len()));
    pair.settle();
    assert_eq!(read(&mut pair.a, pair.now, client, 65536), Ok(big));
    pair.a.close(pair.now, client, false);
    pair.settle();
    assert_eq!(read(&mut pair.b, pair.now, server, 64), Ok(Vec::new()));
    pair.b.close(pair.now, server, false);
    pair.b.close(pair.now, listener, false);
    pair.settle();
    assert!(!pair.a.lingering() && !pair.b.lingering());
    pair.pass(Duration::from_secs(61));
    assert_eq!(pair.a.slots.iter().count() + pair.b.slots.iter().count(), 0);
}

#[test]
fn nobody_listening_refuses() {
    let mut pair = Pair::new();
    let client = pair.connect(5000);
    pair.settle();
    assert!(pair.a.readiness(client).contains(Readiness::HUP | Readiness::ERR));
    assert_eq!(pair.a.take_error(client), Some(Error::Refused));
    assert!(!pair.a.readiness(client).contains(Readiness::ERR));
}

#[test]
fn a_connection_whose_way_is_not_known_yet_sends_nothing_until_it_is() {
    let mut pair = Pair::new();
    pair.b.tcp_listen(SocketAddr::new(B, 80), 4, &tcp::Config::default()).unwrap();
    let open = |pair: &mut Pair, port| {
        let (local, remote) = (SocketAddr::new(A, port), SocketAddr::new(B, 80));
        pair.a.tcp_connect(pair.now, local, remote, NextHop::Pending, &tcp::Config::default()).unwrap()
    };
    let (routed, closed, reset) = (open(&mut pair, 5000), open(&mut pair, 5001), open(&mut pair, 5002));
    pair.pass(Duration::from_secs(10));
    assert!(pair.b.queues.inward.lock().unwrap().is_empty());
    assert_eq!(pair.a.info(routed).unwrap().state, Some(tcp::State::SynSent));
    assert!(!pair.a.readiness(routed).contains(Readiness::OUT));
    assert_eq!(write(&mut pair.a, pair.now, routed, b"early"), Err(Error::WouldBlock));
    assert_eq!(pair.a.tcp_hop(routed), Some(NextHop::Pending));

    assert_eq!(pair.a.tcp_route(pair.now, routed, NextHop::Neighbour(B)), Ok(()));
    pair.settle();
    assert_eq!(pair.a.info(routed).unwrap().state, Some(tcp::State::Established));
    assert_eq!(pair.a.tcp_route(pair.now, routed, NextHop::Neighbour(B)), Err(Error::Invalid));

    // Closed before its way is known, it is gone, whichever way.
    pair.a.close(pair.now, closed, false);
    pair.a.close(pair.now, reset, true);
    pair.settle();
    assert_eq!(pair.a.tcp_route(pair.now, closed, NextHop::Neighbour(B)), Err(Error::BadSocket));
    assert!(!pair.a.lingering());
    assert_eq!(pair.a.slots.iter().count(), 1);
}

#[test]
fn beyond_the_backlog_a_syn_waits_for_its_retransmission() {
    let mut pair = Pair::new();
    let listener = pair.b.tcp_listen(SocketAddr::new(B, 80), 1, &tcp::Config::default()).unwrap();
    let clients: Vec<_> = (0..3).map(|n| pair.connect(5000 + n)).collect();
    pair.settle();
    let states: Vec<_> = clients.iter().map(|c| pair.a.info(*c).unwrap().state.unwrap()).collect();
    assert_eq!(states, [tcp::State::Established, tcp::State::Established, tcp::State::SynSent]);
    pair.b.tcp_accept(listener).unwrap();
    pair.pass(Duration::from_secs(2));
    assert_eq!(pair.a.info(clients[2]).unwrap().state, Some(tcp::State::Established));
}

#[test]
fn beyond_the_rate_a_syn_waits_for_its_retransmission() {
    let mut pair = Pair::new();
    let config = tcp::Config { syn_rate_max: 2, ..tcp::Config::default() };
    pair.b.tcp_listen(SocketAddr::new(B, 80), 16, &config).unwrap();
    let clients: Vec<_> = (0..5).map(|n| pair.connect(5000 + n)).collect();
    let established = |pair: &Pair| {
        let states = clients.iter().map(|c| pair.a.info(*c).unwrap().state.unwrap());
        states.filter(|state| *state == tcp::State::Established).count()
    };
    pair.settle();
    assert_eq!(established(&pair), 2);
    // Their SYNs come again after 1 s, and after 2 s more.
    pair.pass(Duration::from_millis(1500));
    assert_eq!(established(&pair), 4);
    pair.pass(Duration::from_secs(2));
    assert_eq!(established(&pair), 5);
}

#[test]
fn closing_a_listener_resets_what_nobody_accepted() {
    let mut pair = Pair::new();
    let listener = pair.b.tcp_listen(SocketAddr::new(B, 80), 4, &tcp::Config::default()).unwrap();
    let client = pair.connect(5000);
    pair.settle();
    pair.b.close(pair.now, listener, false);
    pair.settle();
    assert_eq!(read(&mut pair.a, pair.now, client, 1), Err(Error::Reset));
}

#[test]
fn a_dead_peer_resets_its_connections() {
    let mut pair = Pair::new();
    let (client, server, _) = pair.connected();
    let mac = MacAddr([2, 0, 0, 0, 0, 2]);
    // Only flows that name a MAC address are tied to it.
    pair.a.slots.stream(client).unwrap().hop = NextHop::Mac(mac);
    pair.a.queues_mut().events.push_back(DeviceEvent::PeerGone(mac));
    pair.settle();
    assert_eq!(read(&mut pair.a, pair.now, client, 1), Err(Error::Reset));
    assert_eq!(read(&mut pair.b, pair.now, server, 1), Err(Error::WouldBlock));
}

#[test]
fn a_full_send_queue_only_delays() {
    let mut pair = Pair::new();
    let (client, server, _) = pair.connected();
    pair.a.queues_mut().room = 1;
    write(&mut pair.a, pair.now, client, &[7; 10_000]).unwrap();
    pair.settle();
    pair.a.queues_mut().room = usize::MAX;
    pair.pass(Duration::from_millis(20));
    assert_eq!(read(&mut pair.b, pair.now, server, 20_000).map(|b| b.len()), Ok(10_000));
}

#[test]
fn datagrams_pass_whole_and_wait_for_arp() {
    let mut pair = Pair::new();
    let a = pair.a.udp_open(SocketAddr::new(A, 1000), &UdpOptions::default()).unwrap();
    let b = pair.b.udp_open(SocketAddr::new(IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED), 2000), &UdpOptions::default()).unwrap();
    let to = Some((SocketAddr::new(B, 2000), NextHop::Neighbour(B)));
    for len in [0, 1, 60, 400, 1472] {
        let bytes = vec![len as u8; len];
        assert_eq!(pair.a.udp_send(pair.now, a, &[IoSlice::new(&bytes)], A, to), Ok(len));
    }
    assert_eq!(pair.a.udp_send(pair.now, a, &[IoSlice::new(&[0; 1473])], A, to), Err(Error::MessageTooLong));
    pair.settle();
    for len in [0, 1, 60, 400, 1472] {
        let mut bytes = [0; 1000];
        let got = pair.b.udp_recv(b, &mut [IoSliceMut::new(&mut bytes)], RecvFlags::empty()).unwrap();
        assert_eq!((got.len, got.copied, got.from), (len, len.min(1000), SocketAddr::new(A, 1000)));
        assert!(bytes[..got.copied].iter().all(|b| *b == len as u8));
    }
    assert_eq!(pair.b.udp_recv(b, &mut [], RecvFlags::empty()).unwrap_err(), Error::WouldBlock);
}

#[test]
fn a_datagram_for_nobody_is_refused_to_a_connected_sender() {
    let mut pair = Pair::new();
    let a = pair.a.udp_open(SocketAddr::new(A, 1000), &UdpOptions::default()).unwrap();
    pair.a.udp_connect(a, IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED), Some((SocketAddr::new(B, 9), NextHop::Neighbour(B)))).unwrap();
    pair.a.udp_send(pair.now, a, &[IoSlice::new(b"?")], A, None).unwrap();
    pair.settle();
    assert_eq!(pair.a.udp_recv(a, &mut [], RecvFlags::empty()).unwrap_err(), Error::Refused);
}

#[test]
fn a_socket_that_nobody_reads_stops_at_its_limit() {
    let mut pair = Pair::new();
    let a = pair.a.udp_open(SocketAddr::new(A, 1000), &UdpOptions::default()).unwrap();
    let options = UdpOptions { rcvbuf: 10_000, ..UdpOptions::default() };
    let b = pair.b.udp_open(SocketAddr::new(B, 2000), &options).unwrap();
    let to = Some((SocketAddr::new(B, 2000), NextHop::Neighbour(B)));
    pair.b.set_neighbour(A, Some(MacAddr([2, 0, 0, 0, 0, 1])));
    pair.a.set_neighbour(B, Some(MacAddr([2, 0, 0, 0, 0, 2])));
    for _ in 0..100 {
        pair.a.udp_send(pair.now, a, &[IoSlice::new(&[1; 1000])], A, to).unwrap();
        pair.settle();
    }
    let info = pair.b.info(b).unwrap();
    assert!(info.recv_queue <= 10_000);
    assert_eq!(info.counters.rx_packets + info.counters.rx_drops, 100);
}

#[test]
fn what_was_dropped_is_told_with_what_comes_next_and_only_to_whom_it_matters() {
    let mut pair = Pair::new();
    let a = pair.a.udp_open(SocketAddr::new(A, 1000), &UdpOptions::default()).unwrap();
    pair.b.set_neighbour(A, Some(MacAddr([2, 0, 0, 0, 0, 1])));
    pair.a.set_neighbour(B, Some(MacAddr([2, 0, 0, 0, 0, 2])));
    let send = |pair: &mut Pair, port, count| {
        for _ in 0..count {
            let to = Some((SocketAddr::new(B, port), NextHop::Neighbour(B)));
            pair.a.udp_send(pair.now, a, &[IoSlice::new(&[1; 744])], A, to).unwrap();
            pair.settle();
        }
    };
    // Each has room for two: copied, lent, and behind a filter.
    let tells = UdpOptions { rcvbuf: 2000, tell_drops: true, ..UdpOptions::default() };
    for port in 2000..2003 {
        let b = pair.b.udp_open(SocketAddr::new(B, port), &tells).unwrap();
        let read = |pair: &mut Pair| match port {
            2000 => pair.b.udp_recv(b, &mut [], RecvFlags::empty()).map(|datagram| datagram.drops),
            2001 => {
                let (datagram, pieces) = pair.b.udp_lend(b)?;
                drop(pieces);
                pair.b.give_back(pair.now, b, datagram.len);
                Ok(datagram.drops)
            }
            _ => {
                pair.b.decide(pair.now, b, Decision::Admit)?;
                pair.b.udp_recv(b, &mut [], RecvFlags::empty()).map(|datagram| datagram.drops)
            }
        };
        if port == 2002 {
            pair.b.set_recv_filter(b, true).unwrap();
        }
        send(&mut pair, port, 5);
        assert_eq!(read(&mut pair), Ok(0), "it came before any was dropped");
        send(&mut pair, port, 2);
        assert_eq!(pair.b.udp_backlog(b).unwrap().drops, 0, "the next came before any was dropped");
        assert_eq!([read(&mut pair), read(&mut pair)], [Ok(0), Ok(3)]);
        assert_eq!(pair.b.udp_backlog(b).unwrap().drops, 4);
        pair.b.udp_configure(b, |options| options.tell_drops = false).unwrap();
        send(&mut pair, port, 1);
        pair.b.udp_configure(b, |options| options.tell_drops = true).unwrap();
        send(&mut pair, port, 1);
        assert_eq!([read(&mut pair), read(&mut pair)], [Ok(0), Ok(4)]);
    }
}

#[test]
fn a_stale_id_reaches_nobody() {
    let mut pair = Pair::new();
    let (client, ..) = pair.connected();
    pair.a.close(pair.now, client, true);
    pair.settle();
    let other = pair.connect(6000);
    assert_eq!(other.index, client.index);
    assert_eq!(write(&mut pair.a, pair.now, client, b"x"), Err(Error::BadSocket));
    assert_eq!(pair.a.readiness(client), Readiness::ERR | Readiness::HUP);
}

#[test]
fn a_port_that_went_to_another_host_is_the_newcomers() {
    let mut pair = Pair::new();
    let (client, server, listener) = pair.connected();
    // To B, the client's frames come from a MAC address that the connection isn't with.
    pair.b.output.caps.point_to_point = true;
    pair.b.slots.stream(server).unwrap().hop = NextHop::Mac(MacAddr([2, 0, 0, 0, 0, 9]));
    write(&mut pair.a, pair.now, client, b"who?").unwrap();
    pair.settle();
    assert_eq!(read(&mut pair.a, pair.now, client, 1), Err(Error::Reset), "a stranger in the middle of a connection is refused");
    assert_eq!(read(&mut pair.b, pair.now, server, 1), Err(Error::WouldBlock), "and disturbs nobody");
    pair.a.close(pair.now, client, false);
    let next = pair.connect(5000);
    pair.settle();
    assert_eq!(pair.a.info(next).unwrap().state, Some(tcp::State::Established));
    assert_eq!(read(&mut pair.b, pair.now, server, 1), Err(Error::Reset));
    let accepted = pair.b.tcp_accept(listener).unwrap();
    pair.b.close(pair.now, server, false);
    write(&mut pair.a, pair.now, next, b"me").unwrap();
    pair.settle();
    assert_eq!(read(&mut pair.b, pair.now, accepted, 8), Ok(b"me".to_vec()), "the old socket's end takes nothing away");
}

#[test]
fn a_busy_connection_with_a_far_timer_leaves_no_trail_in_the_wheel() {
    let mut pair = Pair::new();
    let (client, server, _) = pair.connected();
    let keepalive = tcp::Keepalive { idle: Duration::from_secs(7200), interval: Duration::from_secs(75), count: 9 };
    pair.a.tcp_configure(pair.now, client, |config| config.keepalive = Some(keepalive)).unwrap();
    for _ in 0..200 {
        write(&mut pair.a, pair.now, client, b"x").unwrap();
        pair.pass(Duration::from_millis(1500));
        read(&mut pair.b, pair.now, server, 8).unwrap();
    }
    assert!(pair.a.wheel.len() < 10, "{} entries", pair.a.wheel.len());
}

/// How often a host that had 20 connections polls for its timers' sake after they are gone.
fn polls_after_connections(deadline: impl Fn(&mut Ring<Cable>) -> Option<Instant>) -> usize {
    let mut pair = Pair::new();
    let (_, _, listener) = pair.connected();
    for port in 6000..6020 {
        let client = pair.connect(port);
        pair.settle();
        let accepted = pair.b.tcp_accept(listener).unwrap();
        write(&mut pair.a, pair.now, client, b"ask").unwrap();
        pair.pass(Duration::from_millis(3));
        pair.b.close(pair.now, accepted, true);
        pair.pass(Duration::from_millis(3));
        pair.a.close(pair.now, client, true);
        pair.settle();
    }
    let until = pair.now + Duration::from_secs(2);
    let mut polls = 0;
    while let Some(at) = deadline(&mut pair.a).filter(|&at| at <= until) {
        polls += 1;
        pair.a.poll(at);
    }
    polls
}

#[test]
fn timers_of_connections_that_are_gone_end_no_sleep() {
    let (known, asleep) = (polls_after_connections(|ring| ring.next_deadline()), polls_after_connections(Ring::sleep_deadline));
    assert!(known >= 20, "{known}: each has left one");
    // (Every 64 ticks, entries may have to be sorted.)
    assert!(asleep < 10, "{asleep}");
}

/// A neighbour that becomes known by what it sends, while its answer to a request is lost: the connection that waits for it goes on.
#[test]
fn a_neighbour_that_speaks_first_frees_who_waits_for_it() {
    let mut pair = Pair::new();
    let config = tcp::Config::default();
    pair.a.tcp_listen(SocketAddr::new(A, 80), 4, &config).unwrap();
    pair.b.tcp_listen(SocketAddr::new(B, 80), 4, &config).unwrap();
    let client = pair.connect(5000);
    pair.b.poll(pair.now);
    pair.b.queues().out.lock().unwrap().clear();
    pair.b.tcp_connect(pair.now, SocketAddr::new(B, 5000), SocketAddr::new(A, 80), NextHop::Neighbour(A), &config).unwrap();
    pair.settle();
    assert_eq!(pair.a.info(client).unwrap().state, Some(tcp::State::Established));
}

/// Found by the simulator's edges checker.
#[test]
fn a_closed_socket_has_no_events() {
    let mut pair = Pair::new();
    let (client, server, _) = pair.connected();
    while pair.b.take_event().is_some() {}
    write(&mut pair.a, pair.now, client, b"x").unwrap();
    pair.settle();
    read(&mut pair.b, pair.now, server, 8).unwrap();
    pair.b.shutdown(pair.now, server, Shutdown::Write).unwrap();
    pair.b.close(pair.now, server, false);
    assert!(pair.b.info(server).is_some(), "it lingers");
    assert_eq!(pair.b.take_event(), None);
}

/// Found by the simulator's edges checker: an event must not say what isn't so.
#[test]
fn ending_one_direction_of_a_udp_socket_raises_no_other_edge() {
    let mut pair = Pair::new();
    let a = pair.a.udp_open(SocketAddr::new(A, 1000), &UdpOptions::default()).unwrap();
    pair.a.udp_connect(a, IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED), Some((SocketAddr::new(B, 2000), NextHop::Neighbour(B)))).unwrap();
    pair.a.shutdown(pair.now, a, Shutdown::Write).unwrap();
    assert_eq!(pair.a.take_event(), None);
    pair.a.shutdown(pair.now, a, Shutdown::Read).unwrap();
    assert_eq!(pair.a.take_event().map(|event| event.edges), Some(Readiness::IN | Readiness::RDHUP | Readiness::HUP));
}

/// RFC 6191 s2: without timestamps nothing tells an old duplicate from a new segment.
#[test]
fn addresses_in_time_wait_are_used_again_only_with_timestamps() {
    for timestamps in [true, false] {
        let mut pair = Pair::new();
        let (client, server, _) = pair.connected_with(&tcp::Config { timestamps, ..tcp::Config::default() });
        let info = pair.a.info(client).unwrap();
        pair.a.close(pair.now, client, false);
        pair.settle();
        pair.b.close(pair.now, server, false);
        pair.settle();
        assert_eq!(pair.a.info(client).unwrap().state, Some(tcp::State::TimeWait));
        let (local, remote) = (info.local, info.remote.unwrap());
        // Before a timestamp clock has ticked, it tells nothing. Found by the simulator: an old duplicate was read as the new stream.
        let early = pair.a.tcp_connect(pair.now, local, remote, NextHop::Neighbour(B), &tcp::Config::default());
        assert_eq!(early, Err(Error::AddressInUse));
        pair.pass(Duration::from_secs(2));
        let again = pair.a.tcp_connect(pair.now, local, remote, NextHop::Neighbour(B), &tcp::Config::default());
        assert_eq!(again.is_ok(), timestamps, "{again:?}");
    }
}

/// Found by the simulator (124081/duplication+bandwidth+mtu+nic_reset+cq_overrun+send_full/6/churn): an old duplicate of the side in TIME-WAIT lay
/// in the new connection's window, and was read as its beginning.
#[test]
fn a_connection_begins_above_the_one_whose_time_wait_it_ends() {
    let mut pair = Pair::new();
    let config = tcp::Config { timestamps: false, ..tcp::Config::default() };
    let (client, server, listener) = pair.connected_with(&config);
    let sent_up_to = |pair: &mut Pair, id: FlowId| pair.b.slots.stream_at(id.index).unwrap().connection.sent_up_to();
    // Far more than the clock of initial sequence numbers has advanced by.
    for _ in 0..100 {
        write(&mut pair.b, pair.now, server, &[1; 8000]).unwrap();
        pair.settle();
        read(&mut pair.a, pair.now, client, 8000).unwrap();
    }
    let (local, remote) = (pair.a.info(client).unwrap().local, pair.a.info(client).unwrap().remote.unwrap());
    pair.b.close(pair.now, server, false);
    pair.settle();
    pair.a.close(pair.now, client, false);
    pair.settle();
    let used = sent_up_to(&mut pair, server);
    pair.pass(Duration::from_millis(1));
    let again = pair.a.tcp_connect(pair.now, local, remote, NextHop::Neighbour(B), &config).unwrap();
    pair.settle();
    assert_eq!(pair.a.info(again).unwrap().state, Some(tcp::State::Established));
    let successor = pair.b.tcp_accept(listener).unwrap();
    let begins = sent_up_to(&mut pair, successor);
    assert!(begins.gt(used), "{begins:?} after {used:?}");
}

/// A peer that crashed has nothing better than a SYN with any number, and a reset for what answers it; an old duplicate comes once.
#[test]
fn a_retransmitted_syn_ends_a_time_wait() {
    let mut pair = Pair::new();
    let listener = pair.b.tcp_listen(SocketAddr::new(B, 80), 4, &tcp::Config::default()).unwrap();
    let (client, syn) = pair.connect_seen(5000);
    pair.settle();
    let server = pair.b.tcp_accept(listener).unwrap();
    pair.b.close(pair.now, server, false);
    pair.settle();
    pair.a.close(pair.now, client, false);
    pair.settle();
    // What A has forgotten, it answers with a reset.
    for (pause, expected) in [(0, tcp::State::TimeWait), (100, tcp::State::TimeWait), (1000, tcp::State::SynReceived)] {
        pair.pass(Duration::from_millis(pause));
        pair.b.queues().inward.lock().unwrap().push_back(syn.clone());
        pair.b.poll(pair.now);
        let state = |(_, socket): (FlowId, &Flow<Cable>)| match socket {
            Flow::Stream(stream) => Some(stream.connection.state()),
            Flow::Resting(resting) => Some(resting.state()),
            _ => None,
        };
        let states: Vec<_> = pair.b.slots.iter().filter_map(state).collect();
        assert_eq!(states, [expected], "after {pause} ms");
        pair.settle();
    }
}

/// Found by the simulator's timers checker: an acknowledgment that was due for half a second.
#[test]
fn a_flow_with_little_to_send_has_its_turn_beside_one_with_much() {
    let mut pair = Pair::new();
    let (bulk, ..) = pair.connected();
    let little = pair.connect(5001);
    pair.settle();
    pair.a.queues.room = 0;
    write(&mut pair.a, pair.now, bulk, &[1; 60_000]).unwrap();
    write(&mut pair.a, pair.now, little, b"x").unwrap();
    let sent = |pair: &mut Pair, id| pair.a.info(id).unwrap().counters.tx_bytes;
    let before = sent(&mut pair, little);
    // One slot at a time becomes free, and each time the one with much is the first to know.
    for _ in 0..2 {
        pair.a.queues.room = 1;
        pair.a.transmit(pair.now, bulk.index);
    }
    assert_eq!(sent(&mut pair, little), before + 1);
}

/// RFC 2018 s8: a receiver that runs out of buffers may drop what it reported.
#[test]
fn what_came_out_of_order_is_let_go_of_while_receive_buffers_are_scarce() {
    for scarce in [false, true] {
        let mut pair = Pair::new();
        let (client, server, _) = pair.connected();
        let data: Vec<u8> = (0..8_000).map(|i| (i / 31) as u8).collect();
        write(&mut pair.a, pair.now, client, &data).unwrap();
        // The first segment is lost.
        pair.b.queues.inward.lock().unwrap().pop_front().unwrap();
        pair.b.queues.scarce = scarce;
        pair.b.poll(pair.now);
        let stream = pair.b.slots.stream(server).unwrap();
        assert_eq!(stream.connection.holds_out_of_order(), !scarce);
        pair.b.queues.scarce = false;
        pair.settle();
        pair.pass(Duration::from_secs(5));
        assert_eq!(read(&mut pair.b, pair.now, server, 10_000).unwrap(), data);
    }
}

#[test]
fn a_packets_body_ends_where_its_header_says_and_one_that_is_too_short_is_none() {
    use super::input::{Body, Nothing, Rest};
    let rest = || Some(Rest::of(Bytes::of(b"abcdef".to_vec()), 6));
    let cut = |len: usize| rest().cut(len).map(|body| body.map(|body| body.len));
    assert_eq!([cut(6), cut(4), cut(0), cut(7)], [Some(Some(6)), Some(Some(4)), Some(None), None]);
    let none = |len| None::<Rest<Bytes>>.cut(len).map(|body| body.is_some());
    assert_eq!((none(0), none(1)), (Some(false), None));
    let nothing = |len| Body::<Bytes>::cut(Nothing, len).is_some();
    assert_eq!((nothing(0), nothing(1)), (true, false));
}
