//! A program that sends datagrams and waits for their echoes, and the one that echoes them.

use core::time::Duration;
use std::collections::BTreeMap;
use std::io::{IoSlice, IoSliceMut};
use std::net::SocketAddr;

use ringway_stack::ring::{FlowId, RecvFlags, UdpOptions};
use ringway_stack::{Error, Instant};

use super::{OPEN_RETRY, Pattern, Shared};
use crate::addresses::{self, neighbour};
use crate::host::{App, Context, Step};

/// Bytes at a datagram's beginning that number it.
const NUMBER_LEN: usize = 8;
/// Datagrams without an echo before the pause between them doubles, and how long it gets.
const PATIENCE: u32 = 64;
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// The longest datagram there can be.
const DATAGRAM_MAX: usize = 65_507;

/// What a [`Pinger`] does, and how far it got.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pings {
    /// It goes on until so many different datagrams came back.
    pub wanted: u64,
    /// Bytes of the shortest and the longest datagram; lengths in between take turns.
    pub len: (usize, usize),
    /// The time between two.
    pub interval: Duration,
    /// The key of their contents.
    pub pattern: Pattern,
    /// How many were sent.
    pub sent: u64,
    /// How many of them since the last one came back.
    pub unanswered: u32,
    /// How many times each came back.
    pub echoed: BTreeMap<u64, u64>,
    /// How often the other host said that nobody listens there.
    pub refused: u64,
}

impl Pings {
    /// Nothing sent yet.
    pub fn new(wanted: u64, len: (usize, usize), interval: Duration, pattern: Pattern) -> Self {
        Self { wanted, len, interval, pattern, sent: 0, unanswered: 0, echoed: BTreeMap::new(), refused: 0 }
    }

    /// Whether as many came back as are wanted.
    pub fn enough(&self) -> bool {
        self.echoed.len() as u64 >= self.wanted
    }

    /// The datagram of a number.
    pub(super) fn datagram(&self, number: u64) -> Vec<u8> {
        let span = (self.len.1 - self.len.0) as u64 + 1;
        let len = self.len.0 + usize::try_from(number.wrapping_mul(7919) % span).unwrap_or(0);
        let mut bytes = vec![0; len.max(NUMBER_LEN)];
        self.pattern.fill(number << 32, &mut bytes);
        bytes[..NUMBER_LEN].copy_from_slice(&number.to_be_bytes());
        bytes
    }

    /// The next datagram; it counts as sent.
    pub(super) fn next(&mut self) -> Vec<u8> {
        self.sent += 1;
        self.unanswered += 1;
        self.datagram(self.sent - 1)
    }

    /// The number of a datagram that arrived: it must be one that was sent, whole. `None`: its bytes may have changed on their way
    /// (`tainted`), and did.
    pub(super) fn verify(&self, bytes: &[u8], tainted: bool) -> Option<u64> {
        let number = bytes.first_chunk().map(|n| u64::from_be_bytes(*n)).filter(|&n| n < self.sent);
        let whole = number.filter(|&number| self.datagram(number) == bytes);
        assert!(number.is_some() || tainted, "a datagram nobody sent: {bytes:02x?}");
        assert!(whole.is_some() || tainted, "datagram {number:?} is not whole: {} bytes", bytes.len());
        whole
    }

    /// Whether a datagram says enough beside its number that it is not taken for another one where two of its bytes were changed.
    pub(crate) fn is_distinct(&self, number: u64) -> bool {
        self.datagram(number).len() > NUMBER_LEN + 1
    }

    /// A datagram came back.
    pub(super) fn check(&mut self, bytes: &[u8], tainted: bool) {
        let Some(number) = self.verify(bytes, tainted) else { return };
        *self.echoed.entry(number).or_default() += 1;
        self.unanswered = 0;
    }

    /// The time to the next one: silence makes it longer, so that a dead network costs few of them.
    pub(super) fn pause(&self) -> Duration {
        let doublings = (self.unanswered / PATIENCE).min(16);
        (self.interval * (1 << doublings)).min(self.interval.max(PAUSE_MAX))
    }
}

/// Sends numbered datagrams at an interval until enough came back.
#[derive(Debug)]
pub struct Pinger {
    port: u16,
    server: SocketAddr,
    pings: Shared<Pings>,
    options: UdpOptions,
    socket: Option<FlowId>,
    next_at: Instant,
    /// It hears its server alone.
    is_connected: bool,
    buffer: Vec<u8>,
}

impl Pinger {
    /// Sends from `port` to `server`.
    pub fn new(port: u16, server: SocketAddr, pings: Shared<Pings>) -> Self {
        let options = UdpOptions::default();
        Self { port, server, pings, options, socket: None, next_at: Instant::ZERO, is_connected: false, buffer: vec![0; DATAGRAM_MAX] }
    }

    /// With these options on its socket.
    #[must_use]
    pub fn options(self, options: UdpOptions) -> Self {
        Self { options, ..self }
    }

    /// Every second pinger wants to hear its server alone.
    fn connect(&mut self, cx: &mut Context<'_>) {
        let (Some(socket), 1, false) = (self.socket, self.pings.read().pattern.0 & 1, self.is_connected) else { return };
        let to = Some((self.server, neighbour(self.server)));
        match cx.ring.udp_connect(socket, cx.ip, to) {
            // No rule for it now.
            Err(Error::NoBuffers) => {}
            connected => {
                connected.expect("nobody else has these addresses");
                self.is_connected = true;
            }
        }
    }

    fn receive(&mut self, cx: &mut Context<'_>, socket: FlowId) {
        loop {
            let received = cx.ring.udp_recv(socket, &mut [IoSliceMut::new(&mut self.buffer)], RecvFlags::empty());
            match received {
                Ok(datagram) => {
                    // Whoever is bound to no peer hears everybody; that somebody sent it, the checkers look after.
                    if datagram.from != self.server {
                        continue;
                    }
                    assert_eq!((datagram.to, datagram.len), (cx.ip, datagram.copied));
                    self.pings.change(|p| p.check(&self.buffer[..datagram.copied], cx.tainted));
                }
                Err(Error::Refused) => self.pings.change(|p| p.refused += 1),
                // A router has told that one was too long for its path.
                Err(Error::MessageTooLong) if self.is_connected => {}
                Err(error) => return assert_eq!(error, Error::WouldBlock),
            }
        }
    }

    fn send(&mut self, cx: &mut Context<'_>, socket: FlowId) {
        let datagram = self.pings.change(Pings::next);
        let to = (self.server, neighbour(self.server));
        match cx.ring.udp_send(cx.now, socket, &[IoSlice::new(&datagram)], cx.ip, Some(to)) {
            Ok(len) => assert_eq!(len, datagram.len()),
            Err(error) => assert!(matches!(error, Error::HostUnreachable | Error::NoBuffers), "a datagram was refused: {error}"),
        }
    }
}

impl App for Pinger {
    fn step(&mut self, cx: &mut Context<'_>) -> Step {
        if self.socket.is_none() {
            self.socket = open(cx, SocketAddr::new(cx.ip, self.port), &self.options);
            self.is_connected = false;
        }
        self.connect(cx);
        let Some(socket) = self.socket else { return Step::Until(cx.now + OPEN_RETRY) };
        self.receive(cx, socket);
        if self.pings.read().enough() {
            cx.ring.close(cx.now, socket, false);
            return Step::Finished;
        }
        if self.next_at <= cx.now {
            self.send(cx, socket);
            self.next_at = cx.now + self.pings.read().pause();
        }
        Step::Until(self.next_at)
    }
}

/// Sends every datagram back to where it came from.
#[derive(Debug)]
pub struct Echo {
    port: u16,
    socket: Shared<Option<FlowId>>,
    options: UdpOptions,
    /// Bound to every address; and whose datagrams it wants alone.
    wildcard: bool,
    peer: Option<SocketAddr>,
    /// It has found that peer.
    is_connected: bool,
    buffer: Vec<u8>,
}

impl Echo {
    /// Echoes on `port`; the socket is noted in `socket`.
    pub fn new(port: u16, socket: Shared<Option<FlowId>>) -> Self {
        let (options, buffer) = (UdpOptions::default(), vec![0; DATAGRAM_MAX]);
        Self { port, socket, options, wildcard: false, peer: None, is_connected: false, buffer }
    }

    /// With these options on its socket.
    #[must_use]
    pub fn options(self, options: UdpOptions) -> Self {
        Self { options, ..self }
    }

    /// Bound to every address, and for one peer, as it may be.
    #[must_use]
    pub fn narrowed(self, wildcard: bool, peer: Option<SocketAddr>) -> Self {
        Self { wildcard, peer, ..self }
    }

    /// Its socket, as it is to be. None if there is no rule for it now.
    fn opened(&mut self, cx: &mut Context<'_>) -> Option<FlowId> {
        if self.socket.read().is_none() {
            let ip = if self.wildcard { addresses::every(cx.ip) } else { cx.ip };
            self.socket.set(open(cx, SocketAddr::new(ip, self.port), &self.options));
        }
        let socket = *self.socket.read();
        if let (Some(socket), Some(peer), false) = (socket, self.peer, self.is_connected) {
            match cx.ring.udp_connect(socket, cx.ip, Some((peer, neighbour(peer)))) {
                Err(Error::NoBuffers) => return None,
                connected => connected.expect("whoever has these addresses shares them"),
            }
            self.is_connected = true;
        }
        socket
    }
}

impl App for Echo {
    fn step(&mut self, cx: &mut Context<'_>) -> Step {
        let Some(socket) = self.opened(cx) else { return Step::IdleUntil(cx.now + OPEN_RETRY) };
        loop {
            let datagram = match cx.ring.udp_recv(socket, &mut [IoSliceMut::new(&mut self.buffer)], RecvFlags::empty()) {
                Ok(datagram) => datagram,
                Err(_) => return Step::Idle,
            };
            let (from, to) = (datagram.from, datagram.to);
            let echo = [IoSlice::new(&self.buffer[..datagram.copied])];
            // What cannot be sent is lost, as anywhere else on its way.
            let _ = cx.ring.udp_send(cx.now, socket, &echo, to, Some((from, neighbour(from))));
        }
    }
}

/// None if there is no rule for it now.
fn open(cx: &mut Context<'_>, local: SocketAddr, options: &UdpOptions) -> Option<FlowId> {
    match cx.ring.udp_open(local, options) {
        Err(Error::NoBuffers) => None,
        opened => Some(opened.expect("a fresh host's port is free")),
    }
}
