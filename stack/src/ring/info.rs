//! A socket as `ss` would show it.

use core::time::Duration;
use std::net::IpAddr;

use super::Ring;
use super::slots::{Flow, Listener, Stream};
use super::types::{Backlog, Batches, FlowId, FlowInfo};
use super::udp::UdpFlow;
use crate::device::{Protocol, Queues};
use crate::tcp;
use crate::time::Instant;

impl<Q: Queues> Ring<Q> {
    /// How full a UDP socket's queue is, and was. `None`: a dead id, or another kind of socket.
    pub fn udp_backlog(&self, flow: FlowId) -> Option<Backlog> {
        match self.slots.find(flow)? {
            Flow::Udp(udp) => Some(udp.backlog()),
            _ => None,
        }
    }

    /// When what the program takes next from a flow came: a datagram ([`super::Datagram::received`]), or a connection that waits to be accepted
    /// (when its handshake was complete). `None`: nothing waits, or it is a stream. Who has several rings takes the oldest first.
    pub fn arrived(&self, flow: FlowId) -> Option<Instant> {
        match self.slots.find(flow)? {
            Flow::Udp(udp) => udp.arrived(),
            Flow::Listener(listener) => listener.ready.front().map(|&(_, at)| at),
            Flow::Stream(_) | Flow::Resting(_) => None,
        }
    }

    /// The groups that a UDP socket is a member of.
    pub fn udp_groups(&self, flow: FlowId) -> &[IpAddr] {
        match self.slots.find(flow) {
            Some(Flow::Udp(udp)) => &udp.memberships,
            _ => &[],
        }
    }

    /// The connections that no program has, at most `most` of them: those that it has closed and that go on by themselves, TIME-WAIT included, and those
    /// that a listener has not seen accepted. [`Ring::info`] and [`Ring::tcp_details`] know these ids.
    pub fn streams_without_owner(&self, most: usize) -> Vec<FlowId> {
        let is_one = |flow: &Flow<Q>| match flow {
            Flow::Stream(stream) => (stream.orphan || stream.parent.is_some()) && stream.connection.state() != tcp::State::Closed,
            Flow::Resting(_) => true,
            Flow::Listener(_) | Flow::Udp(_) => false,
        };
        self.slots.iter().filter(|(_, flow)| is_one(flow)).map(|(id, _)| id).take(most).collect()
    }

    /// How looks at the completion queue went.
    pub fn batches(&self) -> Batches {
        self.batches
    }
}

pub(super) fn of<Q: Queues>(flow: &Flow<Q>) -> FlowInfo {
    match flow {
        Flow::Stream(stream) => of_stream(stream),
        Flow::Resting(resting) => of_stream(&resting.as_stream::<Q>()),
        Flow::Listener(listener) => of_listener(listener),
        Flow::Udp(udp) => of_udp(udp),
    }
}

fn of_stream<Q: Queues>(stream: &Stream<Q>) -> FlowInfo {
    let connection = &stream.connection;
    FlowInfo {
        protocol: Protocol::Tcp,
        local: stream.local,
        remote: Some(stream.remote),
        state: Some(connection.state()),
        recv_queue: connection.available(),
        next_len: connection.available(),
        send_queue: connection.send_queue(),
        srtt: connection.srtt(),
        mss: connection.mss(),
        cwnd: connection.cwnd(),
        counters: connection.counters(),
    }
}

fn of_listener(listener: &Listener) -> FlowInfo {
    FlowInfo {
        protocol: Protocol::Tcp,
        local: listener.local,
        remote: None,
        state: Some(tcp::State::Listen),
        recv_queue: listener.ready.len(),
        next_len: 0,
        send_queue: 0,
        srtt: Duration::ZERO,
        mss: 0,
        cwnd: 0,
        counters: listener.counters,
    }
}

fn of_udp<Q: Queues>(udp: &UdpFlow<Q>) -> FlowInfo {
    let (recv_queue, next_len) = udp.waiting();
    FlowInfo {
        protocol: Protocol::Udp,
        local: udp.local,
        remote: udp.remote.map(|(address, _)| address),
        state: None,
        recv_queue,
        next_len,
        send_queue: 0,
        srtt: Duration::ZERO,
        mss: 0,
        cwnd: 0,
        counters: udp.counters,
    }
}

#[cfg(test)]
mod tests {
    use std::io::{IoSlice, IoSliceMut};
    use std::net::{IpAddr, SocketAddr};

    use super::super::tests::Pair;
    use super::super::types::{NextHop, RecvFlags, UdpOptions};
    use super::*;

    #[test]
    fn who_looks_at_connections_sees_those_that_no_program_has_and_what_they_wait_for() {
        use crate::tcp::Pending;

        let pending = |ring: &Ring<_>, now, id| ring.tcp_details(now, id).unwrap().pending;
        let mut pair = Pair::new();
        let listener = pair.b.tcp_listen(SocketAddr::new(IpAddr::from([10, 0, 0, 2]), 80), 4, &tcp::Config::default()).unwrap();
        let (client, _) = pair.connect_seen(5000);
        assert!(matches!(pending(&pair.a, pair.now, client), Some((Pending::Retransmission, left)) if left > Duration::ZERO));
        pair.settle();
        // The program has the one end, and has not accepted the other.
        let waiting = pair.b.streams_without_owner(9);
        assert_eq!((pair.a.streams_without_owner(9), waiting.len()), (vec![], 1));
        assert_eq!(pair.b.info(waiting[0]).unwrap().state, Some(tcp::State::Established));
        let server = pair.b.tcp_accept(listener).unwrap();
        assert_eq!((pair.b.streams_without_owner(9), pending(&pair.b, pair.now, server)), (vec![], None));
        // Who closes first waits for two minutes at most (here: one), in whatever form the ring keeps it.
        pair.a.close(pair.now, client, false);
        pair.settle();
        pair.b.close(pair.now, server, false);
        pair.settle();
        for _ in 0..2 {
            assert_eq!(pair.a.streams_without_owner(9), [client]);
            assert_eq!(pair.a.info(client).unwrap().state, Some(tcp::State::TimeWait));
            assert!(matches!(pending(&pair.a, pair.now, client), Some((Pending::TimeWait, left)) if left > Duration::from_secs(30)));
            pair.pass(Duration::from_secs(5));
        }
        assert_eq!(pair.a.streams_without_owner(0), []);
        pair.pass(Duration::from_secs(120));
        assert_eq!((pair.a.streams_without_owner(9), pair.b.streams_without_owner(9)), (vec![], vec![]));
    }

    #[test]
    fn a_queue_remembers_how_full_it_was() {
        let mut pair = Pair::new();
        let (a, b) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]));
        let (from, to) = (SocketAddr::new(a, 1000), SocketAddr::new(b, 2000));
        let sender = pair.a.udp_open(from, &UdpOptions::default()).unwrap();
        // Room for two datagrams of 100 bytes, with their overhead.
        let receiver = pair.b.udp_open(to, &UdpOptions { rcvbuf: 800, ..UdpOptions::default() }).unwrap();
        for _ in 0..3 {
            pair.a.udp_send(pair.now, sender, &[IoSlice::new(&[7; 100])], a, Some((to, NextHop::Neighbour(b)))).unwrap();
            pair.settle();
        }
        let mut bytes = [0; 100];
        pair.b.udp_recv(receiver, &mut [IoSliceMut::new(&mut bytes)], RecvFlags::empty()).unwrap();
        let expected = Backlog { packets: 1, packets_max: 2, bytes_max: 200, dropped_bytes: 100, drops: 0, limit: 800 };
        assert_eq!(pair.b.udp_backlog(receiver), Some(expected));
        assert_eq!(pair.b.counters().rx_packets, pair.b.batches().count, "one at a time");
        assert_eq!(pair.b.batches().max, 1);
        pair.b.close(pair.now, receiver, false);
        assert_eq!(pair.b.udp_backlog(receiver), None);
    }
}
