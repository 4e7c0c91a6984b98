//! Two machines, a wire with faults on demand, and virtual time.

use core::time::Duration;
use std::collections::VecDeque;
use std::net::SocketAddr;

use super::record::Record;
use crate::device::messages::{ConnectionEvent, ConnectionId, Connections, Messages, State};
use crate::error::Error;
use crate::flow::Readiness;
use crate::roce::packet::datagram::Datagram;
use crate::roce::packet::{Body, Reth};
use crate::roce::{Node, NodeConfig};
use crate::rsocket::{Host, Settings, Shutdown, SocketId, Sockets};
use crate::time::Instant;

pub(super) type Machine = Node<Vec<u8>>;

/// One way.
pub(super) const LATENCY: Duration = Duration::from_micros(5);
pub(super) const PORT: u16 = 7471;

/// One of the two ends: A connects, B listens.
pub(super) const A: usize = 0;
pub(super) const B: usize = 1;

/// One end.
pub(super) struct End {
    pub(super) node: Machine,
    pub(super) sockets: Sockets,
    /// The first connection's socket.
    pub(super) socket: SocketId,
}

/// Decides what happens to an IP packet of that end's: the delays after which copies arrive, and as which bytes.
pub(super) type Fate = Box<dyn FnMut(usize, &[u8]) -> Vec<(Duration, Vec<u8>)>>;

/// What one end is made of.
#[derive(Clone, Debug)]
pub(super) struct Options {
    pub(super) settings: Settings,
    pub(super) host: Host,
    pub(super) node: NodeConfig,
    /// A connects by IPv6.
    pub(super) is_v6: bool,
}

impl Options {
    pub(super) fn new(end: usize) -> Self {
        let mut node = NodeConfig::new([10, 9, 0, end as u8 + 1].into());
        node.addresses.push(format!("fd00::{}", end + 1).parse().unwrap());
        // Retries after some 4 ms, and connection management's after some 67 ms.
        node.ack_timeout = 10;
        node.cm.response_timeout = 14;
        Self { settings: Settings::default(), host: Host::default(), node, is_v6: false }
    }
}

pub(super) struct Pair {
    pub(super) now: Instant,
    pub(super) ends: [End; 2],
    is_v6: bool,
    pub(super) fate: Fate,
    wire: VecDeque<(Instant, usize, Vec<u8>)>,
    /// All that was sent, lost or not: by whom, and what.
    pub(super) log: Vec<(usize, Vec<u8>)>,
    /// A's connections are none of its sockets': their events are kept here.
    pub(super) take_events_of_a: bool,
    /// What is written down of the first connection, if it is to be.
    pub(super) record: Option<Record>,
    pub(super) events_of_a: Vec<(ConnectionId, ConnectionEvent)>,
}

impl Pair {
    /// Not connected; B does not listen.
    pub(super) fn new(options: [Options; 2]) -> Self {
        let mut seed = 0;
        let is_v6 = options[A].is_v6;
        let ends = options.map(|Options { settings, host, node, .. }| {
            seed += 1;
            let mut node = Machine::new(node, seed);
            let mut sockets = Sockets::new(&mut node, settings, host);
            let socket = sockets.socket();
            End { node, sockets, socket }
        });
        let fate: Fate = Box::new(|_, bytes| vec![(LATENCY, bytes.to_vec())]);
        Self {
            now: Instant::from_nanos(1_000_000),
            ends,
            is_v6,
            fate,
            wire: VecDeque::new(),
            log: Vec::new(),
            take_events_of_a: false,
            record: None,
            events_of_a: Vec::new(),
        }
    }

    pub(super) fn plain() -> Self {
        Self::new([Options::new(A), Options::new(B)])
    }

    /// B listens; its listener.
    pub(super) fn listen(&mut self) -> SocketId {
        let end = &mut self.ends[B];
        let listener = end.socket;
        end.sockets.bind(listener, SocketAddr::new(if self.is_v6 { "::" } else { "0.0.0.0" }.parse().unwrap(), PORT)).unwrap();
        end.sockets.listen(&mut end.node, listener, 8).unwrap();
        listener
    }

    pub(super) fn begin_connect(&mut self) {
        let to = SocketAddr::new(if self.is_v6 { "fd00::2" } else { "10.9.0.2" }.parse().unwrap(), PORT);
        let (now, end) = (self.now, &mut self.ends[A]);
        assert_eq!(end.sockets.connect(now, &mut end.node, end.socket, to), Err(Error::InProgress));
    }

    /// Connected with each other. B has accepted, and its listener is gone.
    pub(super) fn connected(options: [Options; 2]) -> Self {
        let mut pair = Self::new(options);
        pair.connect_now();
        pair
    }

    pub(super) fn connect_now(&mut self) {
        let listener = self.listen();
        self.begin_connect();
        let end = self.now + Duration::from_secs(60);
        let mut accepted = false;
        let both = |pair: &mut Self| {
            // (A looks all the while, as a program does that waits.)
            let connected = pair.readiness(A).contains(Readiness::OUT);
            accepted |= pair.accept(listener).is_some();
            connected && accepted
        };
        assert!(self.run_until(end, both), "A is connected, and B accepts");
        self.ends[B].sockets.close(self.now, &mut self.ends[B].node, listener).unwrap();
    }

    /// Takes the next connection of B's listener, which becomes B's socket.
    pub(super) fn accept(&mut self, listener: SocketId) -> Option<SocketAddr> {
        let (socket, from) = self.ends[B].sockets.accept(listener).ok()?;
        self.ends[B].socket = socket;
        Some(from)
    }

    pub(super) fn send(&mut self, end: usize, bytes: &[u8]) -> Result<usize, Error> {
        let (now, End { node, sockets, socket }) = (self.now, &mut self.ends[end]);
        sockets.send(now, node, *socket, bytes)
    }

    pub(super) fn recv(&mut self, end: usize, out: &mut [u8]) -> Result<usize, Error> {
        let (now, End { node, sockets, socket }) = (self.now, &mut self.ends[end]);
        sockets.recv(now, node, *socket, out, false)
    }

    /// All that can be read now, up to the first call that reads nothing, and what that says.
    pub(super) fn drain(&mut self, end: usize) -> (Vec<u8>, Result<usize, Error>) {
        let mut all = Vec::new();
        let mut some = [0; 5000];
        loop {
            match self.recv(end, &mut some) {
                Ok(len) if len > 0 => all.extend_from_slice(&some[..len]),
                last => return (all, last),
            }
        }
    }

    pub(super) fn write_direct(&mut self, end: usize, bytes: &[u8], offset: u64) -> Result<usize, Error> {
        let (now, End { node, sockets, socket }) = (self.now, &mut self.ends[end]);
        sockets.write_direct(now, node, *socket, bytes, offset)
    }

    pub(super) fn shutdown(&mut self, end: usize, how: Shutdown) -> Result<(), Error> {
        let (now, End { node, sockets, socket }) = (self.now, &mut self.ends[end]);
        sockets.shutdown(now, node, *socket, how)
    }

    pub(super) fn close(&mut self, end: usize) {
        let (now, End { node, sockets, socket }) = (self.now, &mut self.ends[end]);
        sockets.close(now, node, *socket).unwrap();
    }

    pub(super) fn readiness(&mut self, end: usize) -> Readiness {
        let (now, End { node, sockets, socket }) = (self.now, &mut self.ends[end]);
        sockets.readiness(now, node, *socket).unwrap()
    }

    fn transmit(&mut self) {
        let mut out = [0; Machine::PACKET_MAX];
        for end in [A, B] {
            while let Some(len) = self.ends[end].node.poll_transmit(self.now, &mut out) {
                let copies = (self.fate)(end, &out[..len]);
                if let Some(record) = &mut self.record {
                    let arriving = copies.iter().map(|(delay, bytes)| (self.now + *delay, bytes.as_slice()));
                    record.sent(self.now, end, &out[..len], arriving);
                }
                for (delay, bytes) in copies {
                    let at = self.now + delay;
                    let place = self.wire.partition_point(|(other, ..)| *other <= at);
                    self.wire.insert(place, (at, 1 - end, bytes));
                }
                self.log.push((end, out[..len].to_vec()));
            }
        }
    }

    fn look_for_deaths(&mut self) {
        let Some(record) = &mut self.record else { return };
        for (end, qp) in record.qps.into_iter().enumerate() {
            if !matches!(self.ends[end].node.qp_state(qp), Some(State::Rtr | State::Rts)) {
                record.is_dead(self.now, end);
            }
        }
    }

    fn next(&self) -> Option<Instant> {
        let timers = self.ends.iter().flat_map(|end| [end.node.deadline(), end.sockets.deadline()]).flatten();
        self.wire.front().map(|(at, ..)| *at).into_iter().chain(timers).min()
    }

    /// Goes on until `done`, at most until `end`. Whether it was done.
    pub(super) fn run_until(&mut self, end: Instant, mut done: impl FnMut(&mut Self) -> bool) -> bool {
        loop {
            while let Some(event) = self.take_events_of_a.then(|| self.ends[A].node.poll_connection()).flatten() {
                self.events_of_a.push(event);
            }
            for end in &mut self.ends {
                end.sockets.poll(self.now, &mut end.node);
            }
            self.look_for_deaths();
            self.transmit();
            if done(self) {
                return true;
            }
            self.transmit();
            let Some(next) = self.next().filter(|next| *next <= end) else {
                self.now = end;
                return false;
            };
            self.now = self.now.max(next);
            while self.wire.front().is_some_and(|(at, ..)| *at <= self.now) {
                let Some((_, to, bytes)) = self.wire.pop_front() else { break };
                self.ends[to].node.on_packet(self.now, &bytes);
            }
            for end in &mut self.ends {
                end.node.on_timer(self.now);
                end.sockets.on_timer(self.now, &mut end.node);
            }
        }
    }

    /// Lets this much time pass, with all that happens in it: both ends look at their sockets all the while.
    pub(super) fn run(&mut self, time: Duration) {
        let end = self.now + time;
        self.run_until(end, |pair| {
            for end in [A, B] {
                let (now, End { node, sockets, socket }) = (pair.now, &mut pair.ends[end]);
                let _ = sockets.readiness(now, node, *socket);
            }
            false
        });
    }

    pub(super) fn settle(&mut self) {
        self.run(Duration::from_millis(50));
    }

    /// The writes that `end` sent since the last call, one for each packet that names memory: where to, and which immediate its message has if it is whole.
    pub(super) fn writes(&mut self, end: usize) -> Vec<(Reth, Option<u32>, Vec<u8>)> {
        let (mine, rest): (Vec<_>, Vec<_>) = core::mem::take(&mut self.log).into_iter().partition(|(from, _)| *from == end);
        self.log = rest;
        let mut writes: Vec<(Reth, Option<u32>, Vec<u8>)> = Vec::new();
        for (_, bytes) in &mine {
            let packet = Datagram::parse(bytes).unwrap().packet;
            match packet.header.body {
                Body::WriteOnly(reth, immediate) => writes.push((reth, immediate, packet.payload.to_vec())),
                Body::WriteFirst(reth) => writes.push((reth, None, packet.payload.to_vec())),
                Body::WriteMiddle => writes.last_mut().unwrap().2.extend(packet.payload),
                Body::WriteLast(immediate) => {
                    let last = writes.last_mut().unwrap();
                    last.1 = immediate;
                    last.2.extend(packet.payload);
                }
                _ => {}
            }
        }
        writes
    }
}

/// Bytes that tell where they are.
pub(super) fn pattern(seed: u64, at: u64, len: usize) -> Vec<u8> {
    (at..at + len as u64).map(|i| ((i ^ seed << 32).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect()
}
