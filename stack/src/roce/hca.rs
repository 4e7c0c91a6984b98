//! The adapter: memory regions, completion queues and queue pairs under one roof, an IP packet in, IP packets out.
//!
//! - `groups`: whom datagrams to many come to
//! - `prediction`: the short way of most packets

mod groups;
mod prediction;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;

pub use self::prediction::Predicted;
use super::cq::{Arm, CompletionQueue};
use super::dcqcn::{self, Dcqcn};
use super::flaws::Flaw;
use super::gsi::{Gsi, Management};
use super::mad::GSI_QP;
use super::memory::{Access, Memory, Pd, Regions, RegisterError};
use super::packet::Body;
use super::packet::datagram::{Crc, Datagram, DatagramError, OVERHEAD_MAX};
use super::payload::{Payload, Source};
use super::qp::{Context, Events, Modify, ModifyError, Mtu, Qp, QpConfig, State, Transport};
use super::slab::Slab;
use super::ud::Unreceived;
use super::work::{Completion, PostError, SGES_MAX, SendWr, Sge};
pub use crate::device::messages::CreateError;
use crate::device::messages::MULTICAST_QP;
use crate::time::Instant;

/// What queue pairs have in common.
#[derive(Clone, Copy, Debug)]
pub struct Tuning {
    /// How many packets of a connection may be unacknowledged.
    pub window: u32,
    /// Receives are counted, and peers told (IBTA spec, volume 1, s9.7.7.2). Neither rxe nor hardware with shared receive queues does.
    pub count_credits: bool,
    /// The longest datagram.
    pub datagram_mtu: Mtu,
    /// A peer that does not answer is asked again for ever: one that is gone is told of ([`Hca::on_peer_gone`]), and one that is stopped may go on.
    pub retries_for_ever: bool,
    /// Whoever carries packets vouches for their bytes, as memory does: the invariant CRC is zero, and nobody looks at it.
    pub bytes_are_vouched: bool,
    /// A few messages' acknowledgment may wait for what goes to the same peer next, which it then goes behind. Whoever sends packets sees to it that it does not wait for
    /// long: `Hca::is_urgent` says what may not.
    pub acknowledges_late: bool,
    /// Congestion control of connections; `None`: they send as fast as their windows let them, and neither notifications nor marks mean anything.
    pub dcqcn: Option<Dcqcn>,
    #[cfg(test)]
    pub(crate) flaw: Flaw,
    /// Nothing goes the short way.
    #[cfg(test)]
    pub(crate) at_length: bool,
}

impl Tuning {
    /// Whether this is wrong with it; a constant `false` but in tests.
    #[inline]
    pub(super) fn has(&self, flaw: Flaw) -> bool {
        #[cfg(test)]
        return self.flaw == flaw;
        #[cfg(not(test))]
        {
            let _ = flaw;
            false
        }
    }

    /// Whether packets may go the short way: it knows nothing of marks. (A mutant goes the long way, where what is wrong with it is.)
    #[inline]
    pub(super) fn predicts(&self) -> bool {
        #[cfg(test)]
        if self.at_length || !self.flaw.leaves_short_way() {
            return false;
        }
        self.dcqcn.is_none()
    }

    /// What becomes of the invariant CRC.
    pub(super) const fn crc(&self) -> Crc {
        if self.bytes_are_vouched { Crc::LeftOut } else { Crc::Computed }
    }
}

impl Default for Tuning {
    fn default() -> Self {
        Self {
            window: 128,
            count_credits: false,
            datagram_mtu: Mtu::B1024,
            retries_for_ever: false,
            bytes_are_vouched: false,
            acknowledges_late: false,
            dcqcn: None,
            #[cfg(test)]
            flaw: Flaw::None,
            #[cfg(test)]
            at_length: false,
        }
    }
}

/// Acknowledgments of queue pairs that ended, which wait to be sent.
const LAST_MAX: usize = 256;

/// Queue pairs in groups at most, each counted once for each of its groups.
pub const MEMBERS_MAX: usize = 8192;

/// Addresses of regions that ask for none begin here.
const ADDRESS_MIN: u64 = 0x1000_0000_0000;

/// An adapter's limits.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Queue pairs.
    pub qps: usize,
    /// Completion queues.
    pub cqs: usize,
    /// Memory regions.
    pub regions: usize,
    /// Completions in a queue.
    pub cq_depth: usize,
    /// Work requests in a queue.
    pub wrs: usize,
    /// Inline bytes in a work request.
    pub inline: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { qps: 16_384, cqs: 16_384, regions: 65_534, cq_depth: 32_767, wrs: 16_384, inline: 512 }
    }
}

/// Packets that came and were of no use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dropped {
    /// No RoCEv2, or headers that make no sense.
    pub malformed: u64,
    /// Damaged on the way.
    pub corrupted: u64,
    /// No queue pair of this number, transport and partition.
    pub no_qp: u64,
    /// Not from the peer of the connection.
    pub stranger: u64,
    /// Datagrams with another key.
    pub qkey: u64,
    /// Datagrams without a receive, management's included.
    pub no_receive: u64,
    /// Of unreliable connections: out of their turn, without a receive, or not allowed.
    pub unreliable: u64,
    /// Congestion notifications that were for nobody, or while congestion is not controlled.
    pub congestion: u64,
}

/// The adapter.
#[derive(Debug)]
pub struct Hca<M> {
    limits: Limits,
    tuning: Tuning,
    regions: Regions<M>,
    cqs: Slab<CompletionQueue>,
    qps: Slab<Box<Qp>>,
    gsi: Gsi,
    /// Groups' addresses, and the queue pairs that hear what is sent there; none is empty.
    groups: BTreeMap<IpAddr, BTreeSet<u32>>,
    /// Queue pairs that may have something to send, each once.
    ready: VecDeque<u32>,
    /// The same of those that owe an acknowledgment which may wait ([`Tuning::acknowledges_late`]), and may have nothing else.
    owing: VecDeque<u32>,
    /// Connected queue pairs that have something to send, and may not before an acknowledgment comes.
    held_up: BTreeSet<u32>,
    timers: BTreeSet<(Instant, u32)>,
    next_pd: u32,
    /// Where the next region begins that asks for no address of its own.
    pub(super) next_address: u64,
    /// Acknowledgments that queue pairs owed when they ended: an adapter in hardware has sent them by then, and whoever waits for one would try again, for seconds.
    /// At most [`LAST_MAX`].
    last: VecDeque<Vec<u8>>,
    /// IPv4's identification of the next packet.
    ip_id: u16,
    dropped: Dropped,
    predicted: Predicted,
}

impl<M: Memory> Hca<M> {
    /// An adapter without anything.
    pub fn new(limits: Limits, tuning: Tuning) -> Self {
        Self::with_first_qp(limits, tuning, 0)
    }

    /// An adapter whose queue pairs have numbers from `256 * (first + 1)` on, so that several adapters can share one address: each place
    /// takes 256 numbers.
    pub fn with_first_qp(limits: Limits, tuning: Tuning, first: u16) -> Self {
        Self {
            limits,
            tuning,
            regions: Regions::new(limits.regions),
            cqs: Slab::new(limits.cqs),
            qps: Slab::with_first(limits.qps, first.into()),
            gsi: Gsi::default(),
            groups: BTreeMap::new(),
            ready: VecDeque::new(),
            owing: VecDeque::new(),
            held_up: BTreeSet::new(),
            last: VecDeque::new(),
            timers: BTreeSet::new(),
            next_pd: 1,
            next_address: ADDRESS_MIN,
            ip_id: 0,
            dropped: Dropped::default(),
            predicted: Predicted::default(),
        }
    }

    /// The same with numbers that begin so many places later, and end just before (modulo how many there are), and in each place with another one of its 256 (by what the
    /// division leaves), of an adapter without queue pairs. Peers refuse a connection of a queue pair of
    /// which they know another connection, until its time of waiting is over (IBTA spec, volume 1, s12.9.8.3.1): so an adapter that begins anew does well to begin somewhere else.
    #[must_use]
    pub fn turned(self, by: u64) -> Self {
        Self { qps: self.qps.turned(by), ..self }
    }

    pub(super) const fn limits(&self) -> &Limits {
        &self.limits
    }

    pub(super) const fn tuning(&self) -> &Tuning {
        &self.tuning
    }

    /// A protection domain of its own.
    pub fn alloc_pd(&mut self) -> Pd {
        let pd = Pd(self.next_pd);
        self.next_pd += 1;
        pd
    }

    /// Registers `memory`, whose first byte gets `address`. The key is both local and remote.
    ///
    /// # Errors
    /// [`RegisterError`].
    pub fn register(&mut self, pd: Pd, address: u64, memory: M, access: Access) -> Result<u32, RegisterError> {
        self.regions.register(pd, address, memory, access)
    }

    /// Takes a region's memory back. Requests that name it fail from now on.
    pub fn deregister(&mut self, key: u32) -> Option<M> {
        self.regions.deregister(key)
    }

    /// A region's memory.
    pub fn memory(&self, key: u32) -> Option<&M> {
        self.regions.memory(key)
    }

    /// Gives a region other memory, as long as what it has. Whether there is such a region.
    pub(super) fn replace_memory(&mut self, key: u32, memory: M) -> bool {
        self.regions.replace(key, memory)
    }

    /// A region's memory, to write.
    pub fn memory_mut(&mut self, key: u32) -> Option<&mut M> {
        self.regions.memory_mut(key)
    }

    /// Makes a completion queue for `depth` completions; gives its number.
    ///
    /// # Errors
    /// [`CreateError::Limit`], [`CreateError::Full`].
    pub fn create_cq(&mut self, depth: usize) -> Result<u32, CreateError> {
        if depth == 0 || depth > self.limits.cq_depth {
            return Err(CreateError::Limit);
        }
        self.cqs.insert_with(|_| CompletionQueue::new(depth)).ok_or(CreateError::Full)
    }

    /// Unmakes a completion queue.
    ///
    /// # Errors
    /// [`CreateError::Missing`]; [`CreateError::InUse`]: a queue pair completes there.
    pub fn destroy_cq(&mut self, cq: u32) -> Result<(), CreateError> {
        if self.cqs.get(cq).ok_or(CreateError::Missing)?.users > 0 {
            return Err(CreateError::InUse);
        }
        self.cqs.remove(cq);
        Ok(())
    }

    /// The next completion.
    pub fn poll_cq(&mut self, cq: u32) -> Option<Completion> {
        self.cqs.get_mut(cq)?.pop()
    }

    /// Asks for an event about a completion that is yet to come. Whoever arms polls once more before sleeping.
    pub fn arm_cq(&mut self, cq: u32, arm: Arm) {
        if let Some(cq) = self.cqs.get_mut(cq) {
            cq.arm(arm);
        }
    }

    /// Whether the event came that was asked for. Once.
    pub fn take_cq_event(&mut self, cq: u32) -> bool {
        self.cqs.get_mut(cq).is_some_and(CompletionQueue::take_event)
    }

    /// Whether more completions came than it holds. It takes no more, and its queue pairs are in the error state.
    pub fn is_cq_overrun(&self, cq: u32) -> bool {
        self.cqs.get(cq).is_some_and(CompletionQueue::is_overrun)
    }

    /// Makes a queue pair in RESET; gives its number.
    ///
    /// # Errors
    /// [`CreateError`].
    pub fn create_qp(&mut self, config: QpConfig) -> Result<u32, CreateError> {
        let depths = [config.send_depth, config.recv_depth];
        let limits = &self.limits;
        if depths.iter().any(|depth| *depth > limits.wrs) || config.sges_max > SGES_MAX || config.inline_max > limits.inline {
            return Err(CreateError::Limit);
        }
        let queues = [config.send_cq, config.recv_cq];
        if queues.iter().any(|cq| self.cqs.get(*cq).is_none()) {
            return Err(CreateError::Missing);
        }
        let number = self.qps.insert_with(|number| Box::new(Qp::new(number, config))).ok_or(CreateError::Full)?;
        for cq in queues {
            if let Some(cq) = self.cqs.get_mut(cq) {
                cq.users += 1;
            }
        }
        Ok(number)
    }

    /// Unmakes a queue pair. What it has not completed is never completed, and its completions are gone.
    ///
    /// # Errors
    /// [`CreateError::Missing`].
    pub fn destroy_qp(&mut self, qp: u32) -> Result<(), CreateError> {
        self.acknowledge_last(Instant::ZERO, qp);
        let gone = self.qps.remove(qp).ok_or(CreateError::Missing)?;
        self.held_up.remove(&qp);
        if gone.config.transport == Transport::Ud {
            self.leave_all(qp);
        }
        if let Some(at) = gone.timer {
            self.timers.remove(&(at, qp));
        }
        if gone.listed {
            self.ready.retain(|listed| *listed != qp);
        }
        if gone.owes {
            self.owing.retain(|owing| *owing != qp);
        }
        for cq in [gone.config.send_cq, gone.config.recv_cq] {
            if let Some(cq) = self.cqs.get_mut(cq) {
                cq.users -= 1;
                cq.forget(qp);
            }
        }
        Ok(())
    }

    /// Changes a queue pair's state.
    ///
    /// # Errors
    /// [`ModifyError`]; nothing has changed.
    pub fn modify_qp(&mut self, now: Instant, qp: u32, modify: &Modify) -> Result<(), ModifyError> {
        if matches!(modify, Modify::Err | Modify::Reset) {
            self.acknowledge_last(now, qp);
        }
        self.with_qp(now, qp, |qp, cx| qp.modify(cx, modify)).unwrap_or(Err(ModifyError::NoQp))
    }

    /// Writes down what a queue pair that ends has to acknowledge.
    fn acknowledge_last(&mut self, now: Instant, qp: u32) {
        if self.last.len() >= LAST_MAX {
            return;
        }
        let id = self.ip_id;
        let mut packet = [0; OVERHEAD_MAX];
        let written = self.with_qp_quietly(now, qp, |qp, cx| qp.last_acknowledgment(cx, id, &mut packet)).flatten();
        if let Some(len) = written {
            self.ip_id = id.wrapping_add(1);
            self.last.push_back(packet[..len].to_vec());
        }
    }

    /// How many receives of a queue pair wait for messages.
    pub fn posted_receives(&self, qp: u32) -> Option<usize> {
        self.qps.get(qp).map(|qp| qp.rq.len())
    }

    /// A queue pair's state.
    pub fn qp_state(&self, qp: u32) -> Option<State> {
        self.qps.get(qp).map(|qp| qp.state)
    }

    /// Whom a connected queue pair is with: the adapter's address, and the queue pair there.
    pub fn peer_of(&self, qp: u32) -> Option<(IpAddr, u32)> {
        let peer = self.qps.get(qp)?.peer?;
        Some((peer.path.addresses.dst(), peer.dest_qp))
    }

    /// Whether a connected queue pair has sent all that was posted to it, and, as far as it knows, nothing of it is to be sent again.
    pub fn has_sent_all(&self, qp: u32) -> bool {
        self.qps.get(qp).is_some_and(|qp| qp.has_sent_all())
    }

    /// What happened to a queue pair since the last call, beside completions.
    pub fn take_qp_events(&mut self, qp: u32) -> Events {
        self.qps.get_mut(qp).map(|qp| core::mem::take(&mut qp.events)).unwrap_or_default()
    }

    /// Posts a request to send.
    ///
    /// # Errors
    /// [`PostError`]; it was not taken.
    pub fn post_send(&mut self, now: Instant, qp: u32, wr: &SendWr<'_>) -> Result<(), PostError> {
        self.with_qp(now, qp, |qp, cx| qp.post_send(cx, wr)).unwrap_or(Err(PostError::NoQp))
    }

    /// A request to send has failed before it came here, by what its owner knows of it, and all those before it are completed: the queue pair is in the state that one of its own would leave it in
    /// (SQE, or of a reliable connection ERR: IBTA spec, volume 1, s10.3.1). Nothing, if it does not send.
    pub fn fail_sends(&mut self, now: Instant, qp: u32) {
        self.with_qp(now, qp, |qp, cx| {
            if matches!(qp.state, State::Rts | State::Sqd) {
                qp.stop_sends(cx);
            }
        });
    }

    /// Posts a receive, with the program's number for it.
    ///
    /// # Errors
    /// [`PostError`]; it was not taken.
    pub fn post_recv(&mut self, now: Instant, qp: u32, id: u64, sges: &[Sge]) -> Result<(), PostError> {
        // (Nothing is sent for that, and no timer is set.)
        let posted = self.qps.get_mut(qp).ok_or(PostError::NoQp)?;
        posted.post_recv(id, sges)?;
        if posted.state == State::Err {
            self.with_qp(now, qp, |qp, cx| qp.flush_receives(cx));
        }
        Ok(())
    }

    /// Takes an IP packet. Its bytes were copied out of whatever memory others may write.
    pub fn on_packet(&mut self, now: Instant, bytes: &[u8]) {
        if self.take_predicted(bytes) {
            return;
        }
        let crc = if self.tuning.has(Flaw::IgnoresChecksums) { Crc::LeftOut } else { self.tuning.crc() };
        let datagram = match Datagram::parse_with(bytes, crc) {
            Ok(datagram) => datagram,
            Err(DatagramError::Corrupted) => return self.dropped.corrupted += 1,
            Err(_) => return self.dropped.malformed += 1,
        };
        let header = datagram.packet.header;
        // (What is sent to many is for queue pairs that are members, and for nothing else: IBTA spec, volume 1, s9.6.1.2.)
        if datagram.path.addresses.dst().is_multicast() && header.dest_qp != MULTICAST_QP {
            return self.dropped.no_qp += 1;
        }
        match header.body {
            Body::CongestionNotification => self.on_notification(now, &datagram),
            Body::Datagram(deth, None) if header.dest_qp == GSI_QP => {
                let taken = self.gsi.on_datagram(&datagram, deth);
                self.dropped.no_receive += u64::from(!taken);
            }
            Body::Datagram(..) if header.dest_qp == MULTICAST_QP => self.on_group_packet(now, &datagram, None),
            _ => self.on_qp_packet(now, &datagram, Payload::Bytes(datagram.packet.payload)),
        }
    }

    /// Takes an IPv6 packet of `len` bytes whose bytes are vouched for: its front was copied, with all headers, and all of it is in `source`. `false`, and nothing
    /// happened: it is no write, and has to be copied whole.
    pub(super) fn on_front(&mut self, now: Instant, front: &[u8], len: usize, source: &dyn Source) -> bool {
        if self.tuning.crc() != Crc::LeftOut {
            return false;
        }
        let Ok((datagram, payload)) = Datagram::parse_front(front, len) else { return false };
        if !datagram.packet.header.body.is_write() {
            return false;
        }
        self.on_qp_packet(now, &datagram, Payload::Source { source, at: payload.start, len: payload.len() });
        true
    }

    /// A connection's peer says that there is congestion on the way to it.
    fn on_notification(&mut self, now: Instant, datagram: &Datagram<'_>) {
        let addresses = datagram.path.addresses.reversed();
        let number = datagram.packet.header.dest_qp;
        let is_from_peer = |qp: &Qp| qp.state == State::Rts && qp.peer.is_some_and(|peer| peer.path.addresses == addresses);
        if self.tuning.dcqcn.is_none() || !self.qps.get(number).is_some_and(|qp| is_from_peer(qp)) {
            return self.dropped.congestion += 1;
        }
        self.with_qp(now, number, |qp, cx| qp.on_notification(cx));
    }

    fn on_qp_packet(&mut self, now: Instant, datagram: &Datagram<'_>, written: Payload<'_>) {
        let header = datagram.packet.header;
        // The membership bit may differ (IBTA spec, s10.9.3).
        let fits = |qp: &Qp| (qp.pkey ^ header.pkey) & 0x7fff == 0;
        let qp = self.qps.get(header.dest_qp).filter(|qp| fits(qp));
        match (qp.map(|qp| qp.config.transport), header.body) {
            (Some(Transport::Uc), _) if header.unreliable => self.on_unreliable_packet(now, datagram, written),
            (Some(Transport::Ud), Body::Datagram(deth, immediate)) => {
                let received = self.with_qp(now, header.dest_qp, |qp, cx| qp.on_datagram(cx, datagram, deth, immediate));
                match received {
                    Some(Err(Unreceived::Qkey)) => self.dropped.qkey += 1,
                    Some(Err(Unreceived::NoReceive | Unreceived::State)) => self.dropped.no_receive += 1,
                    Some(Ok(())) | None => {}
                }
            }
            (None | Some(Transport::Ud | Transport::Uc), _) | (Some(Transport::Rc), Body::Datagram(..)) => self.dropped.no_qp += 1,
            (Some(Transport::Rc), _) if header.unreliable => self.dropped.no_qp += 1,
            (Some(Transport::Rc), body) => {
                if !self.is_from_peer(datagram) {
                    return;
                }
                let is_marked = self.is_marked(datagram);
                self.with_qp(now, header.dest_qp, |qp, cx| {
                    if is_marked {
                        qp.on_mark(cx);
                    }
                    if body.is_response() { qp.on_answer(cx, &datagram.packet) } else { qp.on_request(cx, &datagram.packet, written) }
                });
            }
        }
    }

    fn on_unreliable_packet(&mut self, now: Instant, datagram: &Datagram<'_>, written: Payload<'_>) {
        if !self.is_from_peer(datagram) {
            return;
        }
        let is_marked = self.is_marked(datagram);
        let taken = self.with_qp(now, datagram.packet.header.dest_qp, |qp, cx| {
            if is_marked {
                qp.on_mark(cx);
            }
            qp.on_unreliable(cx, &datagram.packet, written)
        });
        self.dropped.unreliable += u64::from(taken == Some(false));
    }

    /// Whether a packet is from the peer of the connection that it is for.
    fn is_from_peer(&mut self, datagram: &Datagram<'_>) -> bool {
        let addresses = datagram.path.addresses.reversed();
        let peer = self.qps.get(datagram.packet.header.dest_qp).and_then(|qp| qp.peer);
        let is_from_peer = peer.is_some_and(|peer| peer.path.addresses == addresses);
        self.dropped.stranger += u64::from(!is_from_peer);
        is_from_peer
    }

    fn is_marked(&self, datagram: &Datagram<'_>) -> bool {
        self.tuning.dcqcn.is_some() && dcqcn::is_marked(datagram.path.traffic_class)
    }

    /// The bytes that [`Hca::poll_transmit`] needs room for.
    pub const PACKET_MAX: usize = Mtu::B32768.bytes() as usize + OVERHEAD_MAX;

    /// Whether [`Hca::poll_transmit`] may have something to write.
    pub(super) fn may_transmit(&self) -> bool {
        self.is_urgent() || self.is_owing()
    }

    /// Whether there are acknowledgments that may wait.
    #[inline]
    pub(super) fn is_owing(&self) -> bool {
        !self.owing.is_empty()
    }

    /// The same but for acknowledgments that may wait.
    #[inline]
    pub(super) fn is_urgent(&self) -> bool {
        !self.ready.is_empty() || !self.last.is_empty() || self.gsi.may_transmit()
    }

    /// Writes the next IP packet to `out`, which must have room for [`Hca::PACKET_MAX`] bytes, and gives its length; `None` if there is
    /// none now. Queue pairs take turns.
    pub fn poll_transmit(&mut self, now: Instant, out: &mut [u8]) -> Option<usize> {
        self.poll_transmit_some(now, out, true)
    }

    /// The same; acknowledgments that may wait do, unless `with_owing`.
    pub(super) fn poll_transmit_some(&mut self, now: Instant, out: &mut [u8], with_owing: bool) -> Option<usize> {
        let id = self.ip_id;
        self.ip_id = id.wrapping_add(1);
        if let Some(packet) = self.last.pop_front() {
            out[..packet.len()].copy_from_slice(&packet);
            return Some(packet.len());
        }
        if self.gsi.may_transmit()
            && let Some(len) = self.gsi.transmit(id, self.tuning.crc(), out)
        {
            return Some(len);
        }
        while let Some((number, is_owing)) = self.next_listed(with_owing) {
            if let Some(qp) = self.qps.get_mut(number) {
                let is_in = if is_owing { &mut qp.owes } else { &mut qp.listed };
                *is_in = false;
            }
            let sent = self.with_qp_quietly(now, number, |qp, cx| match qp.config.transport {
                Transport::Rc if core::mem::take(&mut qp.resp.was_served) || cx.tuning.acknowledges_late && qp.resp.may_wait() => {
                    qp.transmit_request(cx, id, out).or_else(|| qp.transmit_response(cx, id, out))
                }
                Transport::Rc => qp.transmit_response(cx, id, out).or_else(|| qp.transmit_request(cx, id, out)),
                Transport::Uc => qp.transmit_unreliable(cx, id, out),
                Transport::Ud => qp.transmit_datagram(cx, id, out),
            });
            if let Some(len) = sent.flatten() {
                self.list(number);
                if !self.groups.is_empty() {
                    self.hear_own(now, &out[..len]);
                }
                return Some(len);
            }
            if self.qps.get(number).is_some_and(|qp| qp.is_held_up()) {
                self.held_up.insert(number);
            } else {
                self.held_up.remove(&number);
            }
        }
        None
    }

    /// The next queue pair that may have something to send, and whether it was listed for an acknowledgment alone, as those are that come `with_owing`.
    fn next_listed(&mut self, with_owing: bool) -> Option<(u32, bool)> {
        match self.ready.pop_front() {
            Some(number) => Some((number, false)),
            None if with_owing => self.owing.pop_front().map(|number| (number, true)),
            None => None,
        }
    }

    /// Whether something is to be sent as soon as an acknowledgment comes.
    pub fn awaits_acknowledgment(&self) -> bool {
        !self.held_up.is_empty()
    }

    /// When to call [`Hca::on_timer`] at the latest. There may turn out to be nothing to do.
    pub fn deadline(&self) -> Option<Instant> {
        self.timers.first().map(|(at, _)| *at)
    }

    /// Does what is due.
    pub fn on_timer(&mut self, now: Instant) {
        while let Some((at, number)) = self.timers.first().copied().filter(|(at, _)| *at <= now) {
            self.timers.remove(&(at, number));
            if let Some(qp) = self.qps.get_mut(number) {
                qp.timer = None;
            }
            self.with_qp(now, number, |qp, cx| qp.on_timer(cx));
        }
    }

    /// A management datagram that came for queue pair 1.
    pub fn receive_management(&mut self) -> Option<Management> {
        self.gsi.receive()
    }

    /// Sends a management datagram from queue pair 1. Whether there was room for it.
    pub fn send_management(&mut self, management: Management) -> bool {
        self.gsi.send(management)
    }

    /// Packets that came and were of no use.
    pub const fn dropped(&self) -> Dropped {
        self.dropped
    }

    /// Lets something happen to a queue pair, which may want to send after it.
    fn with_qp<R>(&mut self, now: Instant, number: u32, event: impl FnOnce(&mut Qp, &mut Context<'_, M>) -> R) -> Option<R> {
        let result = self.with_qp_quietly(now, number, event);
        self.list(number);
        result
    }

    /// Lets something happen to a queue pair, and looks after its timer and its completion queue.
    fn with_qp_quietly<R>(&mut self, now: Instant, number: u32, event: impl FnOnce(&mut Qp, &mut Context<'_, M>) -> R) -> Option<R> {
        let qp = self.qps.get_mut(number)?;
        let mut overrun = None;
        let mut cx = Context {
            now,
            regions: &mut self.regions,
            cqs: &mut self.cqs,
            tuning: &self.tuning,
            overrun: &mut overrun,
            predicted: &mut self.predicted.sent,
        };
        let result = event(qp, &mut cx);
        // A deadline that moves later, as it does with every acknowledgment, is left where it is: it fires for nothing, and is set anew.
        if let Some(deadline) = qp.deadline().filter(|at| qp.timer.is_none_or(|timer| *at < timer)) {
            if let Some(at) = qp.timer {
                self.timers.remove(&(at, number));
            }
            self.timers.insert((deadline, number));
            qp.timer = Some(deadline);
        }
        if let Some(cq) = overrun {
            self.fail_users(now, cq);
        }
        Some(result)
    }

    /// The adapter at this address is no more: queue pairs that are connected with it fail, but for those that ask for no acknowledgment, which never find out.
    pub fn on_peer_gone(&mut self, now: Instant, peer: IpAddr) {
        let is_with = |qp: &Qp| qp.config.transport == Transport::Rc && qp.peer.is_some_and(|known| known.path.addresses.dst() == peer);
        let with_it: Vec<u32> = self.qps.keys().filter(|number| self.qps.get(*number).is_some_and(|qp| is_with(qp))).collect();
        for number in with_it {
            // One that was reset has nothing to fail.
            let _ = self.modify_qp(now, number, &Modify::Err);
        }
    }

    /// All queue pairs of an overrun completion queue fail (IBTA spec, s11.6.3.2). It happens once to a queue, so it may look at all of
    /// them.
    fn fail_users(&mut self, now: Instant, cq: u32) {
        let uses = |qp: &Qp| qp.config.send_cq == cq || qp.config.recv_cq == cq;
        let users: Vec<u32> = self.qps.keys().filter(|number| self.qps.get(*number).is_some_and(|qp| uses(qp))).collect();
        for number in users {
            self.with_qp_quietly(now, number, |qp, cx| {
                qp.events |= Events::FATAL;
                if qp.state != State::Reset {
                    qp.resp.stop();
                    qp.enter_error(cx);
                }
            });
        }
    }

    /// Lists a queue pair if it may have something to send.
    fn list(&mut self, number: u32) {
        let Some(qp) = self.qps.get_mut(number).filter(|qp| !qp.listed) else { return };
        if self.tuning.acknowledges_late && qp.only_acknowledges() {
            if !core::mem::replace(&mut qp.owes, true) {
                self.owing.push_back(number);
            }
        } else if qp.may_transmit() {
            qp.listed = true;
            self.ready.push_back(number);
        } else if !self.held_up.is_empty() {
            self.held_up.remove(&number);
        }
    }
}
