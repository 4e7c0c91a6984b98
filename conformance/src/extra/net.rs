//! Two rings on one network, and the calls that most cases make.

use core::fmt::Debug;
use core::ops::DerefMut;
use core::time::Duration;
use std::io::{IoSlice, IoSliceMut};
use std::net::{Ipv4Addr, SocketAddrV4};

use anyhow::{Result, bail};
use ringway_stack::device::{Queues, RxBuffer as _};
use ringway_stack::ring::{
    Candidate, Datagram, Decision, Event, FlowId, Lent, LentPieces, NextHop, Readiness, RecvFlags, Ring, SendFlags, UdpOptions,
};
use ringway_stack::{Error, Instant, tcp};

use super::Side::{self, Receiver, Sender};

/// Where cases receive.
pub const PORT: u16 = 2000;
/// Where they send from.
const SENDER_PORT: u16 = 1000;
/// What a connection may take to come about on a network that loses one frame in twenty: several SYNs.
const CONNECT_MAX: Duration = Duration::from_secs(60);
/// What a datagram takes at most, if it arrives.
const TRANSIT_MAX: Duration = Duration::from_millis(10);

/// A handle on what a network's device received.
pub type Rx<N> = <<N as Net>::Queues as Queues>::Rx;

/// Two rings that reach each other, on devices of one kind, in virtual time.
pub trait Net: Sized {
    /// The device.
    type Queues: Queues<Rx: Debug>;

    /// A host's ring. Nobody but the case takes its events.
    fn ring(&mut self, side: Side) -> impl DerefMut<Target = Ring<Self::Queues>>;

    /// A host's address.
    fn ip(&self, side: Side) -> Ipv4Addr;

    /// How the other host reaches this one.
    fn hop(&self, to: Side) -> NextHop;

    /// Virtual time.
    fn now(&self) -> Instant;

    /// Hands over what the rings have queued, and lets time pass, in which both are polled.
    fn pass(&mut self, time: Duration);

    /// Whether every frame arrives, once, in order and unchanged. On a network of which this is not true, cases must do with what does
    /// arrive.
    fn delivers(&self) -> bool;

    /// Buffers that hold what the receiver received, of those that longer payloads lie in.
    fn held(&mut self) -> usize;

    /// A port of a host.
    fn address(&self, side: Side, port: u16) -> SocketAddrV4 {
        SocketAddrV4::new(self.ip(side), port)
    }

    /// A socket of the sender's, and one of the receiver's at [`PORT`] with room for `rcvbuf` bytes.
    ///
    /// # Errors
    /// The rings'.
    fn datagrams(&mut self, rcvbuf: usize) -> Result<(FlowId, FlowId)> {
        let (from, to) = (self.address(Sender, SENDER_PORT), self.address(Receiver, PORT));
        let a = self.ring(Sender).udp_open(from.into(), &UdpOptions::default())?;
        let b = self.ring(Receiver).udp_open(to.into(), &UdpOptions { rcvbuf, ..UdpOptions::default() })?;
        Ok((a, b))
    }

    /// Sends a datagram to a port of the receiver's, and waits for as long as it may take.
    ///
    /// # Errors
    /// The ring's.
    fn tell(&mut self, from: FlowId, port: u16, bytes: &[u8]) -> Result<()> {
        let (now, source) = (self.now(), self.ip(Sender));
        let to = Some((self.address(Receiver, port).into(), self.hop(Receiver)));
        self.ring(Sender).udp_send(now, from, &[IoSlice::new(bytes)], source.into(), to)?;
        self.pass(TRANSIT_MAX);
        Ok(())
    }

    /// Takes a datagram by copying it.
    ///
    /// # Errors
    /// The ring's.
    fn hear(&mut self, socket: FlowId) -> Result<Vec<u8>, Error> {
        let mut bytes = vec![0; 2000];
        let got = self.ring(Receiver).udp_recv(socket, &mut [IoSliceMut::new(&mut bytes)], RecvFlags::empty())?;
        bytes.truncate(got.copied);
        Ok(bytes)
    }

    /// A connection from the sender to the receiver's `port`, where the listener's configuration is `config`.
    ///
    /// # Errors
    /// The rings'; it did not come about.
    fn connected(&mut self, port: u16, config: &tcp::Config) -> Result<(FlowId, FlowId)> {
        let (now, local, remote, hop) = (self.now(), self.address(Sender, port), self.address(Receiver, port), self.hop(Receiver));
        let listener = self.ring(Receiver).tcp_listen(remote.into(), 4, config)?;
        let client = self.ring(Sender).tcp_connect(now, local.into(), remote.into(), hop, &tcp::Config::default())?;
        Ok((client, self.accepted(listener)?))
    }

    /// The next connection of a listener of the receiver's.
    ///
    /// # Errors
    /// None came.
    fn accepted(&mut self, listener: FlowId) -> Result<FlowId> {
        let until = self.now() + CONNECT_MAX;
        while self.now() < until {
            let accepted = self.ring(Receiver).tcp_accept(listener);
            if accepted != Err(Error::WouldBlock) {
                return Ok(accepted?);
            }
            self.pass(TRANSIT_MAX);
        }
        bail!("no connection in {CONNECT_MAX:?}")
    }

    /// Writes to a stream; how many bytes it took.
    fn write(&mut self, side: Side, socket: FlowId, bytes: &[u8]) -> usize {
        let now = self.now();
        self.ring(side).tcp_send(now, socket, &[IoSlice::new(bytes)], SendFlags::empty()).unwrap_or(0)
    }

    /// Reads up to `len` bytes from a stream of the receiver's.
    ///
    /// # Errors
    /// The ring's.
    fn read(&mut self, socket: FlowId, len: usize) -> Result<Vec<u8>, Error> {
        let (now, mut bytes) = (self.now(), vec![0; len]);
        let n = self.ring(Receiver).tcp_recv(now, socket, &mut [IoSliceMut::new(&mut bytes)], RecvFlags::empty())?;
        bytes.truncate(n);
        Ok(bytes)
    }

    /// Takes the next piece of a stream by reference. `None`: its end.
    ///
    /// # Errors
    /// The ring's.
    fn lend(&mut self, side: Side, socket: FlowId) -> Result<Option<Lent<Rx<Self>>>, Error> {
        self.ring(side).tcp_lend(socket, |buffer| buffer.len())
    }

    /// Takes a datagram of the receiver's by reference.
    ///
    /// # Errors
    /// The ring's.
    fn take(&mut self, socket: FlowId) -> Result<(Datagram, LentPieces<Rx<Self>>), Error> {
        self.ring(Receiver).udp_lend(socket)
    }

    /// What is to be decided about next on a socket of the receiver's.
    ///
    /// # Errors
    /// The ring's.
    fn candidate(&mut self, socket: FlowId) -> Result<Candidate<Rx<Self>>, Error> {
        self.ring(Receiver).candidate(socket)
    }

    /// Decides about it; its length.
    ///
    /// # Errors
    /// The ring's.
    fn decide(&mut self, socket: FlowId, decision: Decision) -> Result<usize, Error> {
        let now = self.now();
        self.ring(Receiver).decide(now, socket, decision)
    }

    /// Gives back what was taken by reference.
    fn give_back(&mut self, side: Side, socket: FlowId, len: usize) {
        let now = self.now();
        self.ring(side).give_back(now, socket, len);
    }

    /// The events of a ring that nobody took yet, of one socket.
    fn events(&mut self, side: Side, socket: FlowId) -> Vec<Readiness> {
        let mut ring = self.ring(side);
        let events: Vec<Event> = core::iter::from_fn(|| ring.take_event()).collect();
        events.into_iter().filter(|event| event.flow == socket).map(|event| event.edges).collect()
    }
}

/// The bytes behind a piece.
pub(super) fn bytes<B: ringway_stack::device::RxBuffer>(piece: &Lent<B>) -> Vec<u8> {
    match piece {
        Lent::Copied(bytes) => bytes.clone(),
        Lent::Buffer(buffer) => {
            let mut out = vec![0; buffer.len()];
            buffer.copy_to(0, &mut out);
            out
        }
    }
}

/// The bytes of a datagram.
pub(super) fn all<B: ringway_stack::device::RxBuffer>(pieces: &LentPieces<B>) -> Vec<u8> {
    pieces.iter().flat_map(bytes).collect()
}

/// Whether a piece is where the device put it.
pub(super) fn is_uncopied<B>(piece: &Lent<B>) -> bool {
    matches!(piece, Lent::Buffer(_))
}

/// The datagram of a number: no two are alike, and its first byte says which it is.
pub(super) fn message(number: u8) -> Vec<u8> {
    let len = 1 + (usize::from(number) * 211) % 1470;
    (0..len).map(|at| if at == 0 { number } else { number.wrapping_mul(31).wrapping_add((at % 253) as u8) }).collect()
}

/// Whether these are a message's bytes, whole.
pub(super) fn is_message(bytes: &[u8]) -> bool {
    bytes.first().is_some_and(|&number| message(number) == bytes)
}
