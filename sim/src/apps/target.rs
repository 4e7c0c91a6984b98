//! The program that a [`Prober`](super::Prober) probes: UDP sockets of every kind on a few ports, that are read now and then, and speak to whom they know and to whom
//! nobody knows.

use core::time::Duration;
use std::io::{IoSlice, IoSliceMut};
use std::net::{IpAddr, SocketAddr};

use ringway_stack::Instant;
use ringway_stack::ring::{FlowId, RecvFlags, Reuse, UdpOptions};

use super::{OPEN_RETRY, Shared};
use crate::addresses::{self, neighbour};
use crate::host::{App, Context, Step};
use crate::random::RandomStream;

/// The most bytes that a prober sends.
const DATAGRAM_MAX: usize = 2048;
/// Datagrams that are read at once, at most.
const READ_MAX: u64 = 40;

/// What a [`Target`] has, and whom it knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ports {
    /// Its port for everybody, and the one of the socket that hears the prober alone.
    pub open: u16,
    /// See `open`.
    pub paired: u16,
    /// The prober, and an address that nobody has.
    pub prober: SocketAddr,
    /// See `prober`.
    pub nobody: IpAddr,
    /// The group, and its port.
    pub group: SocketAddr,
    /// The first socket is bound to every address.
    pub wildcard: bool,
    /// Another one shares its port, bound to the host's address, or to every one; and so does the one that hears the prober alone.
    pub shares: bool,
    /// The longest rest between two looks.
    pub rest_max: Duration,
}

/// See the module's documentation.
#[derive(Debug)]
pub struct Target {
    has: Ports,
    options: UdpOptions,
    /// The prober has finished.
    done: Shared<bool>,
    dice: RandomStream,
    sockets: Vec<FlowId>,
    joined: bool,
    next_at: Instant,
    buffer: Vec<u8>,
}

impl Target {
    /// Opens sockets with these options.
    pub fn new(has: Ports, options: UdpOptions, done: Shared<bool>, dice: RandomStream) -> Self {
        let (sockets, buffer) = (Vec::new(), vec![0; DATAGRAM_MAX]);
        Self { has, options, done, dice, sockets, joined: false, next_at: Instant::ZERO, buffer }
    }

    /// Opens all of them; `false`: there is no rule for one now.
    fn open(&mut self, cx: &mut Context<'_>) -> bool {
        let Ports { open, paired, prober, wildcard, shares, .. } = self.has;
        let options = UdpOptions { reuse: if shares { Reuse::Address } else { Reuse::No }, ..self.options };
        let address = |any: bool| if any { addresses::every(cx.ip) } else { cx.ip };
        let mut wanted = vec![SocketAddr::new(address(wildcard), open), SocketAddr::new(address(!wildcard), paired)];
        if shares {
            wanted.push(SocketAddr::new(address(!wildcard), open));
            wanted.push(SocketAddr::new(address(false), paired));
        }
        for local in wanted {
            match cx.ring.udp_open(local, &options) {
                Ok(socket) => self.sockets.push(socket),
                Err(_) => return false,
            }
        }
        let peer = Some((prober, neighbour(prober)));
        cx.ring.udp_connect(self.sockets[1], cx.ip, peer).is_ok()
    }

    fn close(&mut self, cx: &mut Context<'_>) {
        for socket in self.sockets.drain(..) {
            cx.ring.close(cx.now, socket, false);
        }
        self.joined = false;
    }

    fn read(&mut self, cx: &mut Context<'_>) {
        for at in 0..self.sockets.len() {
            for _ in 0..self.dice.below(READ_MAX) {
                let peek = if self.dice.below(8) == 0 { RecvFlags::PEEK } else { RecvFlags::empty() };
                if cx.ring.udp_recv(self.sockets[at], &mut [IoSliceMut::new(&mut self.buffer)], peek).is_err() {
                    break;
                }
            }
        }
    }

    /// Says something, to the prober, to nobody, to itself by way of the group, or to its peer.
    fn speak(&mut self, cx: &mut Context<'_>) {
        let Ports { prober, nobody, group, .. } = self.has;
        let at = usize::try_from(self.dice.below(self.sockets.len() as u64)).unwrap_or(0);
        let to = match self.dice.below(8) {
            0..=2 => prober,
            3 => SocketAddr::new(prober.ip(), prober.port() ^ 1),
            4 => SocketAddr::new(nobody, prober.port()),
            _ => group,
        };
        let mut bytes = vec![0; usize::try_from(self.dice.magnitude(1, 400) - 1).unwrap_or(0)];
        self.dice.fill(&mut bytes);
        let to = Some((to, neighbour(to))).filter(|_| at != 1 || self.dice.below(2) == 0);
        // What cannot be sent is lost, as anywhere else on its way.
        let _ = cx.ring.udp_send(cx.now, self.sockets[at], &[IoSlice::new(&bytes)], cx.ip, to);
    }

    /// Joins the group with two of its sockets, or leaves it with one of them.
    fn change_membership(&mut self, cx: &mut Context<'_>) {
        let (group, members) = (self.has.group.ip(), [self.sockets[0], self.sockets[1]]);
        if self.joined {
            let leaves = self.dice.pick(&members);
            let _ = cx.ring.udp_leave(cx.now, leaves, group);
        }
        let joins = self.dice.pick(&members);
        self.joined |= cx.ring.udp_join(cx.now, joins, group, cx.ip).is_ok();
    }
}

impl App for Target {
    fn step(&mut self, cx: &mut Context<'_>) -> Step {
        if cx.now < self.next_at {
            return Step::Until(self.next_at);
        }
        if self.sockets.is_empty() && !self.open(cx) {
            self.close(cx);
            if *self.done.read() {
                return Step::Finished;
            }
            self.next_at = cx.now + OPEN_RETRY;
            return Step::Until(self.next_at);
        }
        self.read(cx);
        if *self.done.read() {
            self.close(cx);
            return Step::Finished;
        }
        match self.dice.below(8) {
            0 | 1 => self.change_membership(cx),
            2..=4 => self.speak(cx),
            5 if self.dice.below(4) == 0 => self.close(cx),
            _ => {}
        }
        let longest = u64::try_from(self.has.rest_max.as_nanos()).unwrap_or(u64::MAX);
        self.next_at = cx.now + Duration::from_nanos(self.dice.magnitude(10_000, longest));
        Step::Until(self.next_at)
    }
}
