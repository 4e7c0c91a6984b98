//! Datagrams from one host to the other, numbered, each with bytes of its own.

use core::time::Duration;
use std::collections::BTreeMap;
use std::io::{IoSlice, IoSliceMut};

use ringway_stack::ring::{FlowId, NextHop, RecvFlags, Ring, UdpOptions};
use ringway_stack::{Error, Instant};

use super::super::watched::WatchedQueues;
use super::{address, bytes, ip};

const PORT: u16 = 7;
/// The longest that one frame carries.
const LEN_MAX: usize = 1472;
const PAUSE: Duration = Duration::from_micros(100);

/// Who sends some, and receives the peer's.
pub(crate) struct Datagrams {
    host: usize,
    socket: Option<FlowId>,
    /// To send, and sent.
    all: u32,
    sent: u32,
    next_at: Instant,
    /// The card is gone.
    is_over: bool,
    /// How often each of the peer's has come.
    pub(crate) received: BTreeMap<u32, u32>,
}

/// A datagram: its number, and as many bytes as that says.
fn datagram(from: usize, number: u32) -> Vec<u8> {
    let len = (number as usize).wrapping_mul(379) % (LEN_MAX - 4);
    [&number.to_be_bytes()[..], &bytes(len, 1000 * from as u64 + u64::from(number))].concat()
}

impl Datagrams {
    pub(crate) fn new(host: usize, all: u32) -> Self {
        Self { host, socket: None, all, sent: 0, next_at: Instant::ZERO, is_over: false, received: BTreeMap::new() }
    }

    pub(crate) fn is_done(&self) -> bool {
        self.is_over || self.sent == self.all && self.socket.is_some()
    }

    pub(crate) fn sent(&self) -> u32 {
        self.sent
    }

    /// When it sends the next one.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        (!self.is_done()).then_some(self.next_at)
    }

    pub(crate) fn close(&mut self, now: Instant, ring: &mut Ring<WatchedQueues>) {
        self.socket.take().into_iter().for_each(|socket| ring.close(now, socket, false));
    }

    /// Does what can be done now.
    ///
    /// # Errors
    /// What no socket may come to.
    pub(crate) fn step(&mut self, now: Instant, ring: &mut Ring<WatchedQueues>) -> Result<(), String> {
        match self.go_on(now, ring) {
            Ok(()) | Err(Error::WouldBlock) => Ok(()),
            Err(Error::NetworkDown) if ring.is_gone() => {
                self.is_over = true;
                Ok(())
            }
            Err(error) => Err(format!("datagrams of host {}: {error:?}", self.host)),
        }
    }

    fn go_on(&mut self, now: Instant, ring: &mut Ring<WatchedQueues>) -> Result<(), Error> {
        if self.socket.is_none() {
            if ring.is_gone() {
                return Err(Error::NetworkDown);
            }
            // (A rule that is refused is asked for again.)
            self.socket = ring.udp_open(address(self.host, PORT), &UdpOptions::default()).ok();
            self.next_at = now + PAUSE;
        }
        let Some(socket) = self.socket else { return Ok(()) };
        let mut into = [0; 2 * LEN_MAX];
        loop {
            match ring.udp_recv(socket, &mut [IoSliceMut::new(&mut into)], RecvFlags::empty()) {
                Ok(got) => self.check(&into[..got.copied]),
                Err(Error::WouldBlock) => break,
                Err(error) => return Err(error),
            }
        }
        while self.sent < self.all && self.next_at <= now {
            let (bytes, to) = (datagram(self.host, self.sent), address(1 - self.host, PORT));
            let hop = NextHop::Neighbour(ip(1 - self.host));
            self.next_at = now + PAUSE;
            match ring.udp_send(now, socket, &[IoSlice::new(&bytes)], ip(self.host), Some((to, hop))) {
                Ok(_) => self.sent += 1,
                Err(Error::WouldBlock | Error::NoBuffers | Error::HostUnreachable) => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn check(&mut self, bytes: &[u8]) {
        let number = bytes.first_chunk().map_or(u32::MAX, |number| u32::from_be_bytes(*number));
        assert!(
            bytes == datagram(1 - self.host, number),
            "law datagrams: host {} receives {} bytes that nobody sent",
            self.host,
            bytes.len()
        );
        *self.received.entry(number).or_default() += 1;
    }
}
