//! UDP sockets (RFC 768): datagrams in, datagrams out, whole or not at all.

mod bytes;
mod calls;
mod cyclic;
mod handover;
mod pieces;
pub(super) mod recv_filter;
pub(super) mod strides;

use std::collections::VecDeque;
use std::io::{IoSlice, IoSliceMut};
use std::net::{IpAddr, SocketAddr};

use arrayvec::ArrayVec;

use self::bytes::Bytes;
pub use self::handover::{UdpHandover, UdpPast};
pub(super) use self::pieces::{fill_buffers, gather};
use self::recv_filter::Undecided;
use super::Ring;
use super::arp::resolve;
use super::demux::FlowKey;
use super::output::Envelope;
use super::types::{Backlog, Datagram, FlowId, NextHop, Reuse, UdpOptions};
use crate::cyclic::NetworkHeaders;
use crate::device::{CyclicId, FlowRule, MacAddr, Protocol, Queues, RuleError, RuleId, RxBuffer, RxFrame, SendError, TxSlice};
use crate::error::Error;
use crate::flow::{Counters, Readiness};
use crate::marks::mark;
use crate::mutants::{Mutant, Mutation};
use crate::tcp::{Lent, RxPayload};
use crate::time::Instant;

/// What a waiting datagram counts beside its bytes, so that empty ones are bounded too.
const OVERHEAD: usize = 256;
/// The most buffers in one datagram: 64 KiB in the smallest that a device may hand out for large requests.
pub(super) const SLICES_MAX: usize = 32;

/// Datagrams in buffers between two looks for buffers that came back.
const REAP_EVERY: u64 = 32;

struct Waiting<B> {
    from: SocketAddr,
    to: IpAddr,
    received: Instant,
    /// [`Datagram::hardware_time`].
    hardware_time: Option<Instant>,
    /// [`Datagram::drops`].
    drops: u32,
    /// Bytes in the socket's byte queue; the rest is in `buffer`.
    head: usize,
    /// What of it lies where the device put it.
    buffer: Option<B>,
}

impl<B: RxBuffer> Waiting<B> {
    #[inline]
    fn len(&self) -> usize {
        self.head + self.buffer.as_ref().map_or(0, RxBuffer::len)
    }

    /// Copies as much as fits, from its part of the byte queue and then from its buffer; how much that was.
    #[inline]
    fn copy(&self, head: &[u8], into: &mut [IoSliceMut<'_>]) -> usize {
        let mut copied = 0;
        for out in into {
            let mut out = &mut out[..];
            while !out.is_empty() {
                let n = if copied < head.len() { take(&head[copied..], out) } else { self.copy_buffered(copied - self.head, out) };
                if n == 0 {
                    break;
                }
                copied += n;
                out = &mut out[n..];
            }
        }
        copied
    }

    /// Copies from its buffer, `at` bytes into it, as much as fits.
    fn copy_buffered(&self, at: usize, out: &mut [u8]) -> usize {
        let Some(buffer) = &self.buffer else { return 0 };
        let n = out.len().min(buffer.len().saturating_sub(at));
        buffer.copy_to(at, &mut out[..n]);
        n
    }
}

/// One ring's part of a UDP socket.
pub(super) struct UdpFlow<Q: Queues> {
    /// What it was bound to; and what it has now, with a peer.
    bound: SocketAddr,
    pub(super) local: SocketAddr,
    pub(super) remote: Option<(SocketAddr, NextHop)>,
    /// `None`: bound to a group, whose rule is shared ([`super::multicast`]).
    pub(super) rule: Option<RuleId>,
    /// Groups that it is a member of.
    pub(super) memberships: Vec<IpAddr>,
    pub(super) options: UdpOptions,
    queue: VecDeque<Waiting<Q::Rx>>,
    bytes: Bytes,
    /// What the queue counts against `options.rcvbuf`.
    queued: usize,
    /// What the program took by reference, and has not given back, counts as well, and so does what the reader is not to have yet, or has yet to read
    /// from the ring that the socket was in before.
    lent: usize,
    /// Where datagrams wait until the program lets the reader have them. (Then nothing is copied either.)
    filter: Option<VecDeque<Undecided<Q::Rx>>>,
    /// Datagrams stay where the device put them, however small they are.
    lends: bool,
    /// Nobody asked for any of that: datagrams are queued as they come. (One flag for the three, since every datagram asks for it.)
    is_plain: bool,
    /// The network headers of what waits, if somebody wants them.
    headers: Option<VecDeque<NetworkHeaders>>,
    /// The striding queue that its datagrams come to, if any; and how many of them wait there.
    strides: Option<CyclicId>,
    in_strides: usize,
    pub(super) error: Option<Error>,
    shut_read: bool,
    shut_write: bool,
    /// It has a rate of its own ([`Ring::set_rate`]).
    pub(super) is_paced: bool,
    pub(super) counters: Counters,
    /// The most datagrams, and bytes of them, that ever waited; and the bytes that were dropped.
    peaks: (usize, usize),
    dropped_bytes: u64,
    mutation: Mutation,
}

impl<Q: Queues> UdpFlow<Q> {
    /// An empty one, without a peer.
    fn new(local: SocketAddr, rule: Option<RuleId>, options: UdpOptions, lends: bool, mutation: Mutation) -> Self {
        Self {
            bound: local,
            local,
            remote: None,
            rule,
            memberships: Vec::new(),
            options,
            queue: VecDeque::new(),
            bytes: Bytes::default(),
            queued: 0,
            lent: 0,
            filter: None,
            lends,
            is_plain: !lends,
            headers: None,
            strides: None,
            in_strides: 0,
            error: None,
            shut_read: false,
            shut_write: false,
            is_paced: false,
            counters: Counters::default(),
            peaks: (0, 0),
            dropped_bytes: 0,
            mutation,
        }
    }

    /// Whether a group's datagram from there is for this socket, which is a member: a connected one has but one peer, and one local address.
    pub(super) fn hears(&self, from: SocketAddr, group: IpAddr) -> bool {
        let local = self.local.ip();
        self.remote.is_none_or(|(remote, _)| remote == from) && (local.is_unspecified() || local == group)
    }

    /// What its datagrams are found by.
    pub(super) fn key(&self) -> FlowKey {
        self.key_with(self.local, self.remote.map(|(remote, _)| remote))
    }

    fn key_with(&self, local: SocketAddr, remote: Option<SocketAddr>) -> FlowKey {
        match remote {
            Some(remote) => FlowKey::new(Protocol::Udp, local, remote),
            None => FlowKey::bound(Protocol::Udp, local),
        }
    }

    /// Queues a datagram. `false`: it was dropped. What arrives after the program stopped reading is kept, as on Linux.
    #[inline(always)]
    pub(super) fn push(&mut self, now: Instant, from: SocketAddr, to: IpAddr, payload: RxPayload<'_, Q::Rx>) -> bool {
        let len = payload.len();
        let least = if self.mutation.is(Mutant::EmptyQueueDrops) { 0 } else { len + OVERHEAD };
        let counts = len > 0 || !self.mutation.is(Mutant::EmptyDatagramsUnbounded);
        if counts && self.queued + self.lent + len + OVERHEAD > self.options.rcvbuf.max(least) {
            self.counters.rx_drops += u64::from(!self.mutation.is(Mutant::DropsUncounted));
            self.dropped_bytes += len as u64;
            return false;
        }
        self.counters.rx_packets += 1;
        self.counters.rx_bytes += len as u64;
        if !self.is_plain {
            let RxPayload { head, frame, body } = payload;
            // (Nearly all that is lent. What the call is handed fits in registers.)
            let is_lent = body.is_none() && frame.is_some_and(|frame| self.push_lent(now, from, to, head, frame));
            if !is_lent {
                self.push_apart(now, from, to, RxPayload { head, frame, body });
            }
            return true;
        }
        self.bytes.push(payload.head, self.mutation);
        let (drops, hardware_time) = (self.drops_to_tell(), payload.hardware_time());
        self.enqueue(Waiting { from, to, received: now, hardware_time, drops, head: payload.head.len(), buffer: payload.body }, len);
        true
    }

    /// How many were dropped before what comes now, where that is to be told.
    #[inline(always)]
    const fn drops_to_tell(&self) -> u32 {
        // (Linux counts them in as many bits.)
        if self.options.tell_drops { self.counters.rx_drops as u32 } else { 0 }
    }

    /// Queues a datagram as somebody wants it: to be decided about, or with its headers, or where the device put it.
    #[inline(never)]
    fn push_apart(&mut self, now: Instant, from: SocketAddr, to: IpAddr, payload: RxPayload<'_, Q::Rx>) {
        if self.filter.is_some() {
            return self.push_undecided(now, from, to, payload);
        }
        if self.headers.is_some() {
            self.keep_headers_of(from, to, &payload);
        }
        let (len, hardware_time) = (payload.len(), payload.hardware_time());
        let (head, buffer) = self.keep(to, payload);
        if !head.is_empty() {
            self.bytes.push(head, self.mutation);
        }
        let (head, drops) = (head.len(), self.drops_to_tell());
        self.enqueue(Waiting { from, to, received: now, hardware_time, drops, head, buffer }, len);
    }

    /// Queues a datagram that is to stay where the device put it, and all of which is in the frame's head. `false`: it is not as simple.
    #[inline(never)]
    fn push_lent(&mut self, now: Instant, from: SocketAddr, to: IpAddr, head: &[u8], frame: &RxFrame<Q::Rx>) -> bool {
        if !self.lends || self.headers.is_some() || to.is_multicast() {
            return false;
        }
        let Some(buffer) = (RxPayload { head, frame: Some(frame), body: None }).take_head() else { return false };
        let (drops, hardware_time) = (self.drops_to_tell(), frame.meta.hardware_time);
        let datagram = Waiting { from, to, received: now, hardware_time, drops, head: 0, buffer: Some(buffer) };
        if self.filter.is_some() {
            self.filter_datagram(datagram, Vec::new(), head.len());
        } else {
            self.enqueue(datagram, head.len());
        }
        true
    }

    /// Leaves a datagram's bytes where the device put them; those that are to be copied, because it lends no heads, come first.
    #[inline]
    fn keep<'p>(&self, to: IpAddr, payload: RxPayload<'p, Q::Rx>) -> (&'p [u8], Option<Q::Rx>) {
        // (A group may have other members here.)
        let lent_head = match self.lends {
            true if to.is_multicast() => payload.held_head(),
            true => payload.take_head(),
            false => None,
        };
        match lent_head {
            None => (payload.head, payload.body),
            whole => (&[], whole),
        }
    }

    /// A datagram of `len` bytes can be read.
    #[inline(always)]
    fn enqueue(&mut self, datagram: Waiting<Q::Rx>, len: usize) {
        self.queued += len + OVERHEAD;
        self.queue.push_back(datagram);
        self.peaks.0 = self.peaks.0.max(self.queue.len());
        self.peaks.1 = self.peaks.1.max(self.queued - self.queue.len() * OVERHEAD);
    }

    /// The oldest datagram is copied, and `tell` says what is to be known of it. (Most want little, and all of it is not to be put together for that.)
    #[inline(always)]
    fn pop<T>(&mut self, into: &mut [IoSliceMut<'_>], peek: bool, tell: impl FnOnce(Datagram) -> T) -> Result<T, Error> {
        let Some(first) = self.queue.front() else {
            return Err(Error::WouldBlock);
        };
        let len = first.len();
        let copied = first.copy(self.bytes.first(first.head), into);
        let head = first.head;
        let told = if self.mutation.is(Mutant::TruncationUntold) { copied } else { len };
        let &Waiting { from, to, received, hardware_time, drops, .. } = first;
        let answer = tell(Datagram { copied, len: told, from, to, received, hardware_time, drops });
        if !peek || (len == 0 && self.mutation.is(Mutant::PeekTakesEmpty)) {
            self.forget_first(head, len);
            if self.mutation.is(Mutant::TruncationLeaksQueue) {
                self.queued += len - copied;
            }
        }
        Ok(answer)
    }

    /// Whether a receive has an answer already: a datagram, or an error.
    #[inline(always)]
    pub(super) fn has_something_to_tell(&self) -> bool {
        !self.queue.is_empty() || self.error.is_some()
    }

    /// Whether what comes now may be read at once: nobody is asked about it, and it is copied.
    #[inline(always)]
    pub(super) const fn is_plain(&self) -> bool {
        self.is_plain
    }

    /// Drops the oldest datagram, of `len` bytes, the first `head` of them in the byte queue.
    #[inline(always)]
    fn forget_first(&mut self, head: usize, len: usize) {
        self.queue.pop_front();
        self.forget_bytes(head, len);
    }

    /// The oldest datagram has gone from the queue: so do its bytes.
    #[inline(always)]
    fn forget_bytes(&mut self, head: usize, len: usize) {
        if !self.is_plain
            && let Some(headers) = &mut self.headers
        {
            headers.pop_front();
        }
        if len > 0 || !self.mutation.is(Mutant::EmptyKeepsOverhead) {
            self.queued -= len + OVERHEAD;
        }
        self.bytes.consume(head);
        if self.queue.is_empty() && self.bytes.reset() {
            self.queue = VecDeque::new();
        }
    }

    /// Datagrams that arrive stay where the device put them.
    pub(super) fn lend_from_now_on(&mut self) {
        (self.lends, self.is_plain) = (true, false);
    }

    /// Whether the program holds any by reference.
    #[cfg(feature = "marks")]
    pub(super) fn has_lent(&self) -> bool {
        self.lent > 0
    }

    /// The oldest datagram by reference: piece by piece to `take`.
    #[inline]
    fn lend(&mut self, mut take: impl FnMut(Lent<Q::Rx>)) -> Result<Datagram, Error> {
        self.lend_from_now_on();
        let Some(first) = self.queue.pop_front() else {
            return Err(Error::WouldBlock);
        };
        let len = first.len();
        let Waiting { from, to, received, hardware_time, drops, head, buffer } = first;
        if head > 0 {
            take(Lent::Copied(self.bytes.first(head).into()));
        }
        if let Some(buffer) = buffer {
            take(Lent::Buffer(buffer));
        }
        self.lent += len + OVERHEAD;
        self.forget_bytes(head, len);
        Ok(Datagram { copied: 0, len, from, to, received, hardware_time, drops })
    }

    pub(super) fn readiness(&self) -> Readiness {
        let mut ready = Readiness::OUT;
        ready.set(Readiness::IN, !self.queue.is_empty() || self.in_strides > 0 || self.shut_read);
        ready.set(Readiness::RDHUP, self.shut_read);
        ready.set(Readiness::HUP, self.shut_read && self.shut_write);
        ready.set(Readiness::ERR, self.error.is_some());
        ready
    }

    /// Bytes waiting, and those of the next datagram.
    pub(super) fn waiting(&self) -> (usize, usize) {
        let next = self.queue.front().map_or(0, Waiting::len);
        let next = if self.mutation.is(Mutant::NextLenOfQueue) { self.queued - self.queue.len() * OVERHEAD } else { next };
        (self.queued - self.queue.len() * OVERHEAD, next)
    }

    /// When the datagram came that will be read next.
    pub(super) fn arrived(&self) -> Option<Instant> {
        self.queue.front().map(|first| first.received)
    }

    /// What will be read next, if it is let through.
    fn next_to_read(&self) -> Option<&Waiting<Q::Rx>> {
        let undecided = || self.filter.as_ref()?.front().map(Undecided::as_waiting);
        self.queue.front().or_else(undecided)
    }

    /// How full its queue is and was.
    pub(super) fn backlog(&self) -> Backlog {
        Backlog {
            packets: self.queue.len() + self.in_strides,
            packets_max: self.peaks.0,
            bytes_max: self.peaks.1,
            dropped_bytes: self.dropped_bytes,
            drops: self.next_to_read().map_or_else(|| self.drops_to_tell(), |next| next.drops),
            limit: self.options.rcvbuf,
        }
    }

    pub(super) fn shut(&mut self, read: bool, write: bool) -> Result<(), Error> {
        if self.mutation.is(Mutant::ShutForgetsHalf) {
            (self.shut_read, self.shut_write) = (false, false);
        }
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

impl<Q: Queues> Ring<Q> {
    pub(super) fn close_udp(&mut self, now: Instant, id: FlowId) {
        self.leave_all(now, id);
        let Ok(udp) = self.slots.udp(id) else { return };
        let (rule, key) = (udp.rule, udp.key());
        if !self.config.is(Mutant::LeakRule) {
            rule.into_iter().for_each(|rule| self.detach(rule));
        }
        // (One whose receiving side was shut down has none, and another may have the address.)
        self.demux.leave(key, id.index);
        self.forget_strided(id.index);
        self.slots.remove(id.index);
        self.forget_rate(id.index);
    }

    fn count_sent(&mut self, id: FlowId, packets: u64, bytes: u64) -> Result<(), Error> {
        let counters = &mut self.slots.udp(id)?.counters;
        counters.tx_packets = counters.tx_packets.wrapping_add(packets);
        counters.tx_bytes = counters.tx_bytes.wrapping_add(bytes);
        Ok(())
    }

    #[cold]
    fn not_sent(&mut self, id: FlowId, error: SendError, len: usize, is_multicast: bool) -> Result<usize, Error> {
        match error {
            SendError::NoPeer => Err(Error::HostUnreachable),
            SendError::TooLong => Err(Error::MessageTooLong),
            SendError::Unsupported(_) => Err(Error::NotSupported),
            SendError::Full if is_multicast => {
                self.output.counters.tx_drops += 1;
                Ok(len)
            }
            SendError::Full if self.config.is(Mutant::RefusedDatagramCounted) => Err(Error::WouldBlock),
            SendError::Full => {
                self.count_sent(id, 1_u64.wrapping_neg(), (len as u64).wrapping_neg())?;
                Err(Error::WouldBlock)
            }
        }
    }

    /// Groups are no neighbours: their Ethernet addresses follow from their own.
    #[inline(never)]
    fn send_to_group(
        &mut self,
        now: Instant,
        id: FlowId,
        from: SocketAddr,
        to: SocketAddr,
        data: &[IoSlice<'_>],
        len: usize,
    ) -> Result<(), SendError> {
        let Ok(UdpFlow { options, .. }) = self.slots.udp(id) else { return Ok(()) };
        let ttl = if self.config.is(Mutant::GroupTtlOfUnicast) { options.ttl } else { options.multicast_ttl };
        let tos = if self.config.is(Mutant::GroupTosForgotten) { 0 } else { options.tos };
        let (tos, loops) = (tos, options.multicast_loop || self.config.is(Mutant::LoopsUnasked));
        let envelope = Envelope { src: from.ip(), dst: to.ip(), mac: MacAddr::of_group(to.ip()), ttl, tos };
        let sent = self.udp_emit(&envelope, (from.port(), to.port()), data, len);
        // (What a full queue takes is lost on the wire alone. What is refused was not sent to anybody.)
        if loops && matches!(sent, Ok(()) | Err(SendError::Full)) {
            self.loop_back(now, from, to, data, len);
        }
        sent
    }

    /// To a neighbour whose Ethernet address may have to be asked for.
    #[inline(never)]
    fn send_to_neighbour(
        &mut self,
        now: Instant,
        ip: IpAddr,
        envelope: Envelope,
        ports: (u16, u16),
        data: &[IoSlice<'_>],
        len: usize,
    ) -> Result<(), SendError> {
        // (A question to the neighbour is nobody's.)
        let flow = self.output.flow();
        self.output.set_flow(0);
        let mac = self.neighbour(now, envelope.src, ip);
        self.output.set_flow(flow);
        match mac {
            Some(mac) => self.udp_emit(&Envelope { mac, ..envelope }, ports, data, len),
            None => {
                self.hold_datagram(&envelope, ip, ports, data, len);
                Ok(())
            }
        }
    }

    #[inline]
    pub(super) fn udp_emit(&mut self, envelope: &Envelope, ports: (u16, u16), data: &[IoSlice<'_>], len: usize) -> Result<(), SendError> {
        if self.output.udp_fits_inline(envelope.dst, len) {
            return self.output.udp_inline(&mut self.queues, envelope, ports, len, |out| gather(data, out));
        }
        // A program that only sends never polls: its buffers must come back here, before new ones cost new memory.
        if self.output.counters.tx_packets.is_multiple_of(REAP_EVERY) {
            self.queues.reap();
        }
        let mut buffers = ArrayVec::<(Q::Tx, usize), SLICES_MAX>::new();
        fill_buffers(&mut self.queues, data, len, &mut buffers)?;
        let slices: ArrayVec<TxSlice<'_, Q::Tx>, SLICES_MAX> =
            buffers.iter().map(|(buffer, len)| TxSlice { buffer, offset: 0, len: *len }).collect();
        self.output.udp(&mut self.queues, envelope, ports, &slices, len)
    }

    /// Keeps a whole small frame until its neighbour answers; a large one is lost, as RFC 1122 s2.3.2.2 allows for all but the
    /// latest.
    fn hold_datagram(&mut self, envelope: &Envelope, ip: IpAddr, ports: (u16, u16), data: &[IoSlice<'_>], len: usize) {
        mark!(self, DatagramHeld);
        if self.config.is(Mutant::HeldOnlyLast) {
            self.held.retain(|held| held.neighbour != ip);
        }
        let mut bytes = vec![0; len];
        gather(data, &mut bytes);
        let ttl = if self.config.is(Mutant::HeldForgetsTtl) { 64 } else { envelope.ttl };
        self.held.push(super::Held { envelope: Envelope { ttl, ..*envelope }, neighbour: ip, ports, flow: self.output.flow(), bytes });
        if self.held.len() > super::HELD_MAX && !self.config.is(Mutant::HeldUnbounded) {
            let one = if self.config.is(Mutant::HeldKeepsOldest) { super::HELD_MAX } else { 0 };
            self.held.remove(one);
            self.output.counters.tx_drops += 1;
        }
    }

    /// Sends what waited for a neighbour that is known now.
    pub(super) fn release_held(&mut self, ip: IpAddr, mac: MacAddr) {
        let mut at = 0;
        while at < self.held.len() {
            if self.held[at].neighbour == ip || self.config.is(Mutant::HeldGoesToWhoever) {
                let held = self.held.remove(at);
                let envelope = Envelope { mac, ..held.envelope };
                if self.config.is(Mutant::HeldNotReleased) {
                    continue;
                }
                let flow = self.output.flow();
                self.output.set_flow(held.flow);
                if self.udp_emit(&envelope, held.ports, &[IoSlice::new(&held.bytes)], held.bytes.len()).is_err() {
                    self.output.counters.tx_drops += 1;
                }
                self.output.set_flow(flow);
            } else {
                at += 1;
            }
        }
    }

    /// The neighbour's address, or a request for it on its way.
    pub(super) fn neighbour(&mut self, now: Instant, from: IpAddr, ip: IpAddr) -> Option<MacAddr> {
        resolve(now, (from, ip), &mut self.neighbours, &mut self.output, &mut self.queues)
    }
}

/// How a socket stands to others with its very addresses: of those that have a peer, nothing is shared out (reuseport_select_sock).
fn among_equals(reuse: Reuse, has_peer: bool) -> Reuse {
    if has_peer && reuse == Reuse::Port { Reuse::Address } else { reuse }
}

/// What has a UDP socket's datagrams come to this ring, under its tag. (A rule that is shared is a group's.)
fn udp_rule(local: SocketAddr, options: &UdpOptions, tag: u32) -> FlowRule {
    let shared = options.reuse != Reuse::No;
    FlowRule { shared, cookie: options.cookie, ..FlowRule::flow(Protocol::Udp, local, None) }.tag(if shared { 0 } else { tag })
}

pub(super) fn rule_error(error: RuleError) -> Error {
    match error {
        RuleError::Taken => Error::AddressInUse,
        RuleError::Full | RuleError::NoQueue | RuleError::Ended => Error::NoBuffers,
        RuleError::Unsupported(_) => Error::NotSupported,
    }
}
