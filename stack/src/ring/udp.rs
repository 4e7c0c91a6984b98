//! UDP sockets (RFC 768): datagrams in, datagrams out, whole or not at all.

mod cyclic;

use std::collections::VecDeque;
use std::io::{IoSlice, IoSliceMut};
use std::net::{Ipv4Addr, SocketAddrV4};

use arrayvec::ArrayVec;

use super::Ring;
use super::arp::resolve;
use super::demux::FlowKey;
use super::output::Envelope;
use super::slots::Socket;
use super::types::{Counters, Datagram, NextHop, Readiness, RecvFlags, SocketId, UdpOptions};
use crate::cyclic::NetworkHeaders;
use crate::device::{Device, FlowRule, MacAddr, Protocol, RuleError, RuleId, RxBuffer, SendError, TxBuffer, TxSlice};
use crate::error::Error;
use crate::marks::mark;
use crate::mutants::Mutant;
use crate::tcp::{Lent, RxPayload};
use crate::time::Instant;
use crate::wire::udp as wire;

/// What a waiting datagram counts beside its bytes, so that empty ones are bounded too.
const OVERHEAD: usize = 256;
/// A byte queue that has grown beyond this is given back when it runs empty.
const QUEUE_KEPT: usize = 16 * 1024;
/// The most buffers in one datagram: 64 KiB in the smallest that a device may hand out for large requests.
const SLICES_MAX: usize = 32;

/// Datagrams in buffers between two looks for buffers that came back.
const REAP_EVERY: u64 = 32;

struct Waiting<B> {
    from: SocketAddrV4,
    to: Ipv4Addr,
    received: Instant,
    /// Bytes in the socket's byte queue; the rest is in `buffers`.
    head: usize,
    buffers: Buffers<B>,
}

/// What of a datagram lies where the device put it.
enum Buffers<B> {
    None,
    One(B),
    /// Its head and its body.
    Two(Box<[B; 2]>),
}

impl<B> Buffers<B> {
    fn as_slice(&self) -> &[B] {
        match self {
            Self::None => &[],
            Self::One(buffer) => core::slice::from_ref(buffer),
            Self::Two(both) => &both[..],
        }
    }

    fn into_pieces(self, pieces: &mut LentPieces<B>) {
        match self {
            Self::None => {}
            Self::One(buffer) => pieces.push(Lent::Buffer(buffer)),
            Self::Two(both) => pieces.extend(both.into_iter().map(Lent::Buffer)),
        }
    }
}

impl<B: RxBuffer> Waiting<B> {
    #[inline]
    fn len(&self) -> usize {
        self.head
            + match &self.buffers {
                Buffers::None => 0,
                Buffers::One(buffer) => buffer.len(),
                Buffers::Two(both) => both[0].len() + both[1].len(),
            }
    }

    /// Copies as much as fits, from the two halves of its part of the byte queue and then from its buffers; how much that was.
    #[inline]
    fn copy(&self, [a, b]: [&[u8]; 2], into: &mut [IoSliceMut<'_>]) -> usize {
        let mut copied = 0;
        for out in into {
            let mut out = &mut out[..];
            while !out.is_empty() {
                let n = if copied < a.len() {
                    take(&a[copied..], out)
                } else if copied < self.head {
                    take(&b[copied - a.len()..], out)
                } else {
                    self.copy_buffered(copied - self.head, out)
                };
                if n == 0 {
                    break;
                }
                copied += n;
                out = &mut out[n..];
            }
        }
        copied
    }

    /// Copies from its buffers, `at` bytes into them, as much as fits of one of them.
    fn copy_buffered(&self, mut at: usize, out: &mut [u8]) -> usize {
        for buffer in self.buffers.as_slice() {
            if at < buffer.len() {
                let n = out.len().min(buffer.len() - at);
                buffer.copy_to(at, &mut out[..n]);
                return n;
            }
            at -= buffer.len();
        }
        0
    }
}

/// A datagram's pieces: what was copied before anybody asked for it by reference, its head, its body.
pub type LentPieces<B> = ArrayVec<Lent<B>, 3>;

/// A UDP socket.
pub(super) struct UdpSocket<D: Device> {
    pub(super) local: SocketAddrV4,
    pub(super) remote: Option<(SocketAddrV4, NextHop)>,
    /// `None`: bound to a group, whose rule is shared ([`super::multicast`]).
    pub(super) rule: Option<RuleId>,
    /// Groups that it is a member of.
    pub(super) memberships: Vec<Ipv4Addr>,
    pub(super) options: UdpOptions,
    queue: VecDeque<Waiting<D::Rx>>,
    bytes: VecDeque<u8>,
    /// What the queue counts against `options.rcvbuf`.
    queued: usize,
    /// What the program took by reference, and has not given back, counts as well.
    lent: usize,
    /// Datagrams stay where the device put them, however small they are.
    lends: bool,
    /// The network headers of what waits, if somebody wants them.
    headers: Option<VecDeque<NetworkHeaders>>,
    pub(super) error: Option<Error>,
    shut_read: bool,
    shut_write: bool,
    pub(super) counters: Counters,
}

impl<D: Device> UdpSocket<D> {
    /// Whether a datagram from there is for this socket: a connected one has but one peer.
    #[inline]
    pub(super) fn takes_from(&self, from: SocketAddrV4) -> bool {
        self.remote.is_none_or(|(remote, _)| remote == from)
    }

    /// Queues a datagram. `false`: it was dropped. What arrives after the program stopped reading is kept, as on Linux.
    #[inline]
    pub(super) fn push(&mut self, now: Instant, from: SocketAddrV4, to: Ipv4Addr, payload: RxPayload<'_, D::Rx>) -> bool {
        let len = payload.len();
        if self.queued + self.lent + len + OVERHEAD > self.options.rcvbuf.max(len + OVERHEAD) {
            self.counters.rx_drops += 1;
            return false;
        }
        self.queued += len + OVERHEAD;
        if self.headers.is_some() {
            self.keep_headers_of(from, to, &payload);
        }
        let lent_head = if self.lends { payload.held_head() } else { None };
        let head = if lent_head.is_none() { payload.head } else { &[] };
        self.bytes.extend(head);
        let buffers = match (lent_head, payload.body) {
            (None, None) => Buffers::None,
            (Some(buffer), None) | (None, Some(buffer)) => Buffers::One(buffer),
            (Some(head), Some(body)) => Buffers::Two(Box::new([head, body])),
        };
        self.queue.push_back(Waiting { from, to, received: now, head: head.len(), buffers });
        self.counters.rx_packets += 1;
        self.counters.rx_bytes += len as u64;
        true
    }

    fn pop(&mut self, into: &mut [IoSliceMut<'_>], peek: bool) -> Result<Datagram, Error> {
        let Some(first) = self.queue.front() else {
            return Err(Error::WouldBlock);
        };
        let len = first.len();
        let (a, b) = self.bytes.as_slices();
        let head_a = &a[..first.head.min(a.len())];
        let head_b = &b[..first.head - head_a.len()];
        let copied = first.copy([head_a, head_b], into);
        let head = first.head;
        let datagram = Datagram { copied, len, from: first.from, to: first.to, received: first.received };
        if !peek {
            self.bytes.drain(..head);
            self.forget_first(len);
        }
        Ok(datagram)
    }

    /// The oldest datagram, of `len` bytes, has gone; its bytes have left the byte queue.
    fn forget_first(&mut self, len: usize) {
        self.queue.pop_front();
        if let Some(headers) = &mut self.headers {
            headers.pop_front();
        }
        self.queued -= len + OVERHEAD;
        if self.queue.is_empty() && self.bytes.capacity() > QUEUE_KEPT {
            self.bytes = VecDeque::new();
            self.queue = VecDeque::new();
        }
    }

    /// Datagrams that arrive stay where the device put them.
    pub(super) fn lend_from_now_on(&mut self) {
        self.lends = true;
    }

    /// Whether the program holds any by reference.
    #[cfg(feature = "marks")]
    pub(super) fn has_lent(&self) -> bool {
        self.lent > 0
    }

    /// The oldest datagram by reference.
    fn lend(&mut self) -> Result<(Datagram, LentPieces<D::Rx>), Error> {
        self.lends = true;
        let Some(first) = self.queue.front_mut() else {
            return Err(Error::WouldBlock);
        };
        let len = first.len();
        let datagram = Datagram { copied: 0, len, from: first.from, to: first.to, received: first.received };
        let mut pieces = LentPieces::new();
        if first.head > 0 {
            pieces.push(Lent::Copied(self.bytes.drain(..first.head).collect()));
        }
        core::mem::replace(&mut first.buffers, Buffers::None).into_pieces(&mut pieces);
        self.lent += len + OVERHEAD;
        self.forget_first(len);
        Ok((datagram, pieces))
    }

    pub(super) fn readiness(&self) -> Readiness {
        let mut ready = Readiness::OUT;
        ready.set(Readiness::IN, !self.queue.is_empty() || self.shut_read);
        ready.set(Readiness::RDHUP, self.shut_read);
        ready.set(Readiness::HUP, self.shut_read && self.shut_write);
        ready.set(Readiness::ERR, self.error.is_some());
        ready
    }

    /// Bytes waiting, and those of the next datagram.
    pub(super) fn waiting(&self) -> (usize, usize) {
        let next = self.queue.front().map_or(0, Waiting::len);
        (self.queued - self.queue.len() * OVERHEAD, next)
    }

    pub(super) fn shut(&mut self, read: bool, write: bool) -> Result<(), Error> {
        self.shut_read |= read;
        self.shut_write |= write;
        if self.remote.is_some() { Ok(()) } else { Err(Error::NotConnected) }
    }
}

#[inline]
fn take(from: &[u8], out: &mut [u8]) -> usize {
    let n = from.len().min(out.len());
    out[..n].copy_from_slice(&from[..n]);
    n
}

impl<D: Device> Ring<D> {
    pub(super) fn udp_open_inner(&mut self, local: SocketAddrV4, options: &UdpOptions) -> Result<SocketId, Error> {
        if local.port() == 0 {
            return Err(Error::Invalid);
        }
        let key = FlowKey::bound(Protocol::Udp, local);
        if self.demux.exact(key).is_some() {
            return Err(Error::AddressInUse);
        }
        // A group's datagrams come with its first member.
        let rule = match local.ip().is_multicast() {
            true => None,
            false => Some(self.device.attach(&FlowRule::flow(Protocol::Udp, local, None)).map_err(rule_error)?),
        };
        let socket = UdpSocket {
            local,
            remote: None,
            rule,
            memberships: Vec::new(),
            options: *options,
            queue: VecDeque::new(),
            bytes: VecDeque::new(),
            queued: 0,
            lent: 0,
            lends: self.lends,
            headers: None,
            error: None,
            shut_read: false,
            shut_write: false,
            counters: Counters::default(),
        };
        match self.slots.insert(Socket::Udp(Box::new(socket))) {
            Ok(id) => {
                self.demux.insert(key, id.index);
                Ok(id)
            }
            Err(error) => {
                rule.into_iter().for_each(|rule| self.device.detach(rule));
                Err(error)
            }
        }
    }

    pub(super) fn close_udp(&mut self, id: SocketId) {
        self.leave_all(id);
        let Ok(udp) = self.slots.udp(id) else { return };
        let (rule, key) = (udp.rule, FlowKey::bound(Protocol::Udp, udp.local));
        if !self.config.is(Mutant::LeakRule) {
            rule.into_iter().for_each(|rule| self.device.detach(rule));
        }
        self.demux.remove(key);
        self.slots.remove(id.index);
    }

    #[inline]
    pub(super) fn udp_send_inner(
        &mut self,
        now: Instant,
        id: SocketId,
        data: &[IoSlice<'_>],
        source: Ipv4Addr,
        to: Option<(SocketAddrV4, NextHop)>,
    ) -> Result<usize, Error> {
        let socket = self.slots.udp(id)?;
        let (remote, hop) = to.or(socket.remote).ok_or(Error::DestinationRequired)?;
        let len = data.iter().map(|d| d.len()).sum::<usize>();
        if len > self.output.payload_max(wire::LEN) {
            return Err(Error::MessageTooLong);
        }
        if let Some(error) = socket.error.take() {
            return Err(error);
        }
        if socket.shut_write {
            return Err(Error::Pipe);
        }
        let ports = (socket.local.port(), remote.port());
        let src = if socket.local.ip().is_unspecified() { source } else { *socket.local.ip() };
        let to_group = remote.ip().is_multicast();
        let (ttl, tos) = (if to_group { socket.options.multicast_ttl } else { socket.options.ttl }, socket.options.tos);
        let looped = to_group && socket.options.multicast_loop;
        socket.counters.tx_packets += 1;
        socket.counters.tx_bytes += len as u64;
        let mac = match hop {
            // Groups are no neighbours: their Ethernet addresses follow from their own.
            _ if to_group => Some(MacAddr::of_group(*remote.ip())),
            NextHop::Station(mac) => Some(mac),
            NextHop::Neighbour(ip) => self.neighbour(now, src, ip),
        };
        let envelope = Envelope { src, dst: *remote.ip(), mac: mac.unwrap_or_default(), ttl, tos };
        let sent = match (mac, hop) {
            (None, NextHop::Neighbour(ip)) => {
                self.hold_datagram(&envelope, ip, ports, data, len);
                Ok(())
            }
            _ => self.udp_emit(&envelope, ports, data, len),
        };
        if looped {
            self.loop_back(now, SocketAddrV4::new(src, ports.0), remote, data, len);
        }
        self.output.flush(&mut self.device);
        match sent {
            Ok(()) => Ok(len),
            Err(SendError::NoPeer) => Err(Error::HostUnreachable),
            Err(SendError::TooLong) => Err(Error::MessageTooLong),
            Err(SendError::Unsupported(_)) => Err(Error::NotSupported),
            // A queue that overflows loses datagrams, here as in a switch; the counters tell.
            Err(SendError::Full) => {
                self.output.counters.tx_drops += 1;
                Ok(len)
            }
        }
    }

    #[inline]
    fn udp_emit(&mut self, envelope: &Envelope, ports: (u16, u16), data: &[IoSlice<'_>], len: usize) -> Result<(), SendError> {
        if self.output.udp_fits_inline(len) {
            return self.output.udp_inline(&mut self.device, envelope, ports, len, |out| gather(data, out));
        }
        // A program that only sends never polls: its buffers must come back here, before new ones cost new memory.
        if self.output.counters.tx_packets.is_multiple_of(REAP_EVERY) {
            self.device.reap();
        }
        let mut buffers = ArrayVec::<(D::Tx, usize), SLICES_MAX>::new();
        fill_buffers(&mut self.device, data, len, &mut buffers)?;
        let slices: ArrayVec<TxSlice<'_, D::Tx>, SLICES_MAX> =
            buffers.iter().map(|(buffer, len)| TxSlice { buffer, offset: 0, len: *len }).collect();
        self.output.udp(&mut self.device, envelope, ports, &slices, len)
    }

    /// Keeps a whole small frame until its neighbour answers; a large one is lost, as RFC 1122 s2.3.2.2 allows for all but the
    /// latest.
    fn hold_datagram(&mut self, envelope: &Envelope, ip: Ipv4Addr, ports: (u16, u16), data: &[IoSlice<'_>], len: usize) {
        mark!(self, DatagramHeld);
        let mut bytes = vec![0; len];
        gather(data, &mut bytes);
        self.held.push(super::Held { envelope: *envelope, neighbour: ip, ports, bytes });
        if self.held.len() > super::HELD_MAX {
            self.held.remove(0);
            self.output.counters.tx_drops += 1;
        }
    }

    /// Sends what waited for a neighbour that is known now.
    pub(super) fn release_held(&mut self, ip: Ipv4Addr, mac: MacAddr) {
        let mut at = 0;
        while at < self.held.len() {
            if self.held[at].neighbour == ip {
                let held = self.held.remove(at);
                let envelope = Envelope { mac, ..held.envelope };
                if self.udp_emit(&envelope, held.ports, &[IoSlice::new(&held.bytes)], held.bytes.len()).is_err() {
                    self.output.counters.tx_drops += 1;
                }
            } else {
                at += 1;
            }
        }
    }

    pub(super) fn udp_recv_inner(&mut self, id: SocketId, into: &mut [IoSliceMut<'_>], flags: RecvFlags) -> Result<Datagram, Error> {
        let socket = self.slots.udp(id)?;
        if let Some(error) = socket.error.take() {
            return Err(error);
        }
        socket.pop(into, flags.contains(RecvFlags::PEEK))
    }

    /// See [`Ring::udp_lend`].
    pub(super) fn udp_lend_inner(&mut self, id: SocketId) -> Result<(Datagram, LentPieces<D::Rx>), Error> {
        let socket = self.slots.udp(id)?;
        if let Some(error) = socket.error.take() {
            return Err(error);
        }
        let lent = socket.lend()?;
        if self.config.is(Mutant::LentUncounted) {
            socket.lent = 0;
        }
        #[cfg(feature = "marks")]
        lent.1.iter().for_each(|piece| self.marks.hit(crate::marks::of_lent(piece)));
        Ok(lent)
    }

    /// See [`Ring::give_back`].
    pub(super) fn udp_give_back(&mut self, id: SocketId, len: usize) {
        match self.slots.udp(id) {
            Ok(_) if self.config.is(Mutant::GiveBackForgotten) => {}
            Ok(socket) => socket.lent = socket.lent.saturating_sub(len + OVERHEAD),
            Err(_) => {
                mark!(self, LentBeyondClose);
            }
        }
    }

    /// The neighbour's address, or a request for it on its way.
    pub(super) fn neighbour(&mut self, now: Instant, from: Ipv4Addr, ip: Ipv4Addr) -> Option<MacAddr> {
        resolve(now, (from, ip), &mut self.neighbours, &mut self.output, &mut self.device)
    }
}

pub(super) fn rule_error(error: RuleError) -> Error {
    match error {
        RuleError::Taken => Error::AddressInUse,
        RuleError::Full | RuleError::NoQueue => Error::NoBuffers,
        RuleError::Unsupported(_) => Error::NotSupported,
    }
}

pub(super) fn gather(data: &[IoSlice<'_>], out: &mut [u8]) {
    let mut at = 0;
    for part in data {
        out[at..at + part.len()].copy_from_slice(part);
        at += part.len();
    }
}

fn fill_buffers<D: Device>(
    device: &mut D,
    data: &[IoSlice<'_>],
    len: usize,
    buffers: &mut ArrayVec<(D::Tx, usize), SLICES_MAX>,
) -> Result<(), SendError> {
    let mut left = len;
    for part in data {
        let mut part = &part[..];
        while !part.is_empty() {
            let room = buffers.last().map_or(0, |(buffer, used)| buffer.capacity() - used);
            if room == 0 {
                // The length was checked: only because the large buffers are used up do the small ones not do.
                if buffers.is_full() {
                    return Err(SendError::Full);
                }
                let buffer = device.tx_alloc(left).or_else(|| {
                    device.reap();
                    device.tx_alloc(left)
                });
                buffers.push((buffer.ok_or(SendError::Full)?, 0));
                continue;
            }
            let n = part.len().min(room);
            if let Some((buffer, used)) = buffers.last_mut() {
                buffer.write(*used, &part[..n]);
                *used += n;
            }
            left -= n;
            part = &part[n..];
        }
    }
    Ok(())
}
