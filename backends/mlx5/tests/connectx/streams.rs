//! Connections and datagrams of the stack's, over rings of two cards in one process.

use std::io::{IoSlice, IoSliceMut};

use ringway_stack::Error;
use ringway_stack::ring::{FlowId, RecvFlags, SendFlags, Shutdown, UdpOptions};
use ringway_stack::tcp::{Config, State};

use crate::world::{End, address, bytes, ip, on_card, path_of, until};

/// Bytes of a stream, each way.
pub(crate) const STREAM: usize = 2 << 20;

/// One end of a connection that carries a stream each way.
pub(crate) struct Side {
    flow: FlowId,
    out: Vec<u8>,
    expected: Vec<u8>,
    written: usize,
    read: Vec<u8>,
    is_done: bool,
}

impl Side {
    pub(crate) fn new(flow: FlowId, number: usize) -> Self {
        let (out, expected) = (bytes(STREAM, number as u64), bytes(STREAM, 1 - number as u64));
        Self { flow, out, expected, written: 0, read: Vec::new(), is_done: false }
    }

    /// Bytes that have come.
    pub(crate) fn arrived(&self) -> usize {
        self.read.len()
    }

    /// Writes and reads what there is room for; whether both streams are through.
    pub(crate) fn go_on(&mut self, end: &mut End) -> bool {
        let now = end.now();
        while self.written < self.out.len() {
            match end.ring.tcp_send(now, self.flow, &[IoSlice::new(&self.out[self.written..])], SendFlags::empty()) {
                Ok(len) => self.written += len,
                Err(error) => {
                    assert_eq!(error, Error::WouldBlock);
                    break;
                }
            }
            if self.written == self.out.len() {
                end.ring.shutdown(now, self.flow, Shutdown::Write).expect("our end");
            }
        }
        let mut into = vec![0; 1 << 16];
        while !self.is_done {
            match end.ring.tcp_recv(now, self.flow, &mut [IoSliceMut::new(&mut into)], RecvFlags::empty()) {
                Ok(0) => {
                    assert!(self.read == self.expected, "the peer's stream, byte for byte");
                    self.is_done = true;
                }
                Ok(len) => self.read.extend_from_slice(&into[..len]),
                Err(error) => {
                    assert_eq!(error, Error::WouldBlock);
                    break;
                }
            }
        }
        self.is_done && self.written == self.out.len()
    }
}

pub(crate) fn is_established(end: &End, flow: FlowId) -> bool {
    end.ring.info(flow).and_then(|info| info.state) == Some(State::Established)
}

#[test]
fn a_connection_carries_both_streams() {
    on_card(path_of!(a_connection_carries_both_streams), || {
        let (mut a, mut b) = (End::new(0), End::new(1));
        let listener = b.ring.tcp_listen(address(1, 80), 4, &Config::default()).expect("room");
        let hop = a.hop();
        let flow = a.ring.tcp_connect(a.now(), address(0, 5000), address(1, 80), hop, &Config::default()).expect("room");
        let accepted = until(&mut [&mut a, &mut b], "the handshake", |ends| {
            let accepted = ends[1].ring.tcp_accept(listener).ok()?;
            Some(accepted).filter(|_| is_established(ends[0], flow))
        });
        let mut sides = [Side::new(flow, 0), Side::new(accepted, 1)];
        until(&mut [&mut a, &mut b], "both streams", |ends| {
            let done = [0, 1].map(|at| sides[at].go_on(ends[at]));
            done.iter().all(|done| *done).then_some(())
        });
        let counters = a.ring.queues().counters();
        assert_eq!((counters.send_failures, counters.receive_failures), (0, 0));
        assert!(counters.sent < (STREAM / 1460) as u64, "the card cuts: {counters:?}");
    });
}

#[test]
fn datagrams_go_both_ways_whatever_their_length() {
    on_card(path_of!(datagrams_go_both_ways_whatever_their_length), || {
        let (mut a, mut b) = (End::new(0), End::new(1));
        let open = |end: &mut End, port| end.ring.udp_open(address(end.number, port), &UdpOptions::default()).expect("room");
        let (from, to) = (open(&mut a, 5), open(&mut b, 7));
        let mut into = [0; 2000];
        for len in [0, 1, 7, 200, 213, 214, 215, 1000, 1472] {
            let text = bytes(len, len as u64);
            // (By the address alone: the rings ask each other who has it, and hold the datagram meanwhile.)
            let next = |to| ringway_stack::ring::NextHop::Neighbour(to);
            let sent = a.ring.udp_send(a.now(), from, &[IoSlice::new(&text)], ip(0), Some((address(1, 7), next(ip(1)))));
            assert_eq!(sent, Ok(len));
            for (at, flow) in [(1, to), (0, from)] {
                let datagram = until(&mut [&mut a, &mut b], "a datagram", |ends| {
                    ends[at].ring.udp_recv(flow, &mut [IoSliceMut::new(&mut into)], RecvFlags::empty()).ok()
                });
                assert_eq!(into[..datagram.copied], text);
                if at == 1 {
                    let echoed = b.ring.udp_send(b.now(), to, &[IoSlice::new(&text)], ip(1), Some((datagram.from, next(ip(0)))));
                    assert_eq!(echoed, Ok(len));
                }
            }
        }
    });
}
