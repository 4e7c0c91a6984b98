//! TCP in the ring: opening, accepting, transmitting, ending; the connection's own logic is in [`crate::tcp`].

mod calls;

use std::net::{IpAddr, SocketAddr};

use rand_chacha::ChaCha8Rng;
use rand_core::{Rng, SeedableRng};

use super::Ring;
use super::arp::resolve;
use super::demux::FlowKey;
use super::fast_open::Verdict;
use super::neighbour::Neighbours;
use super::output::{Envelope, Output};
use super::rates::{self, Meter, Rates};
use super::slots::{Flow, STALL_MAX, STALL_MIN, Silent, Stream};
use super::steering::Holder;
use super::types::{FlowId, NextHop};
use super::udp::rule_error;
use crate::device::{Attached, MacAddr, Protocol, Queues, SendError};
use crate::error::Error;
use crate::flow::Readiness;
use crate::marks::mark;
use crate::mutants::Mutant;
use crate::tcp;
use crate::time::Instant;
use crate::wire::tcp as wire;

/// How far a connection that follows another one which ended its TIME-WAIT, or left the ring, begins above it: a window without scaling, as Linux.
const SEQUENCE_GAP: usize = 65_537;

impl<Q: Queues> Ring<Q> {
    /// A pair of addresses whose connection only waits out its TIME-WAIT may be used again if timestamps tell the two apart
    /// (RFC 6191 s2, Linux's tcp_tw_reuse). Its rule comes with them: if there were none for the new connection, the old one would have ended its
    /// wait for nothing, and without it old duplicates could be taken for new.
    fn displace(&mut self, now: Instant, index: u32) -> Result<Option<Attached>, Error> {
        if !self.slots.at(index).is_some_and(|flow| flow.may_be_reused(now)) {
            return Err(Error::AddressInUse);
        }
        let Some(stream) = self.slots.stream_at(index) else { return Err(Error::AddressInUse) };
        let (local, remote) = (stream.local, stream.remote);
        let kept = stream.rule.filter(|_| self.config.is(Mutant::ReusedRuleDetached));
        let taken = stream.rule.take();
        stream.rule = kept;
        let rule = match taken {
            None => self.steer(local, remote).map_err(rule_error)?,
            Some(rule) => Some(Attached { rule, is_ready: !self.rules.is_pending(rule) }),
        };
        mark!(self, TimeWaitReused);
        self.end_time_wait(index);
        Ok(rule)
    }

    /// A newcomer has the addresses of a connection in TIME-WAIT, which the program may have yet to close.
    pub(super) fn end_time_wait(&mut self, index: u32) {
        if let Some(stream) = self.slots.stream_at(index) {
            let key = FlowKey::new(Protocol::Tcp, stream.local, stream.remote);
            self.earlier_incarnations.add(key, stream.connection.sent_up_to());
        }
        match self.slots.stream_at(index) {
            Some(stream) if stream.orphan => self.drop_stream(index),
            Some(stream) => {
                stream.connection.peer_gone();
                self.settle(index);
            }
            None => {}
        }
    }

    /// A SYN for a connection's addresses, from another MAC address: the kernel gave the peer's port to another process, so that
    /// whoever had it is through with it. The addresses are the newcomer's.
    pub(super) fn on_syn_from_another_mac(&mut self, now: Instant, index: u32) {
        let Some(stream) = self.slots.stream_at(index) else { return };
        if stream.orphan {
            self.drop_stream(index);
            return;
        }
        let key = FlowKey::new(Protocol::Tcp, stream.local, stream.remote);
        stream.connection.peer_gone();
        self.demux.remove(key);
        self.after_input(now, index);
    }

    /// The configuration of a connection with `remote`, held to what the device can carry.
    pub(super) fn limited(&self, remote: IpAddr, config: &tcp::Config) -> tcp::Config {
        let mut config = config.clone();
        config.mss_max = config.mss_max.min(self.output.payload_max(remote, wire::LEN).min(usize::from(u16::MAX)) as u16);
        config.family = tcp::Family::of(remote);
        config.gather_max = self.output.caps.gather_max;
        config.tso_max = self.output.tso_payload_max(remote);
        config.time_wait = self.config.time_wait;
        config.urgent_waits &= self.output.caps.is_beside_kernel;
        #[cfg(feature = "mutants")]
        {
            config.mutant = self.config.mutant;
        }
        config
    }

    /// RFC 6528: an initial sequence number from a clock and a keyed function of the addresses, which nobody else can foretell.
    fn opening(&mut self, now: Instant, local: SocketAddr, remote: SocketAddr) -> tcp::Opening {
        let key = FlowKey::new(Protocol::Tcp, local, remote);
        let mut seed = self.secret;
        let words = key.words();
        let words = if self.config.is(Mutant::IsnBlindToPorts) { &words[..words.len() - 1] } else { &words[..] };
        for (at, byte) in words.iter().flat_map(|w| w.to_le_bytes()).enumerate() {
            seed[at % 32] ^= byte;
        }
        let mut keyed = ChaCha8Rng::from_seed(seed);
        // The clock advances once in 4 us (RFC 6528 s3).
        let clock = (now.as_nanos() / 4096) as u32;
        let clock = if self.config.is(Mutant::NumbersRepeat) { 0 } else { clock };
        let mut iss = wire::SeqNumber(keyed.next_u32().wrapping_add(clock));
        if self.config.is(Mutant::EarlierIncarnationForgotten) {
            self.earlier_incarnations.take(key);
        }
        if let Some(used) = self.earlier_incarnations.take(key).or_else(|| self.handed_over.used(local, remote)) {
            // RFC 1122 s4.2.2.13: larger than any that the connection before used. The clock alone is slower than any network.
            iss = iss.max(used + SEQUENCE_GAP);
        }
        tcp::Opening { iss, timestamp_offset: keyed.next_u32() }
    }

    #[expect(clippy::too_many_arguments, reason = "all that a connection begins with")]
    fn insert_stream(
        &mut self,
        now: Instant,
        key: FlowKey,
        mut connection: tcp::Connection<Q::Rx, Q::Tx>,
        local: SocketAddr,
        remote: SocketAddr,
        hop: NextHop,
        parent: Option<FlowId>,
        attached: Option<Attached>,
    ) -> Result<FlowId, Error> {
        let (wheel_at, far_at) = (None, None);
        if let Some(mtu) = self.paths.mtu(now, remote.ip()).filter(|_| !self.config.is(Mutant::PathMtuNotShared)) {
            connection.set_path_mtu(now, mtu);
        }
        if self.lends {
            connection.lend_from_now_on();
        }
        let stream = Stream {
            connection,
            local,
            remote,
            hop,
            rule: attached.map(|attached| attached.rule),
            silent: Silent::No,
            wheel_at,
            far_at,
            parent,
            queued: false,
            orphan: false,
            stalled: false,
            shared: false,
            noted: false,
            is_paced: false,
        };
        match self.slots.insert(Flow::Stream(Box::new(stream))) {
            Ok(id) => {
                self.demux.insert(key, id.index);
                self.handed_over.remove(local, remote);
                if let Some(attached) = attached {
                    self.hold(attached, Holder::Flow(id.index), None);
                }
                Ok(id)
            }
            Err(error) => {
                attached.into_iter().for_each(|attached| self.detach(attached.rule));
                Err(error)
            }
        }
    }

    /// A SYN for a listener, and what came with it. Beyond the backlog it is dropped, as Linux does: the peer tries again.
    pub(super) fn on_syn(
        &mut self,
        now: Instant,
        index: u32,
        (header, payload): (&wire::Header, tcp::RxPayload<'_, Q::Rx>),
        local: SocketAddr,
        remote: SocketAddr,
        hop: NextHop,
    ) -> Option<()> {
        if remote.ip().is_unspecified() || remote.ip().is_loopback() && !local.ip().is_loopback() {
            // RFC 9293 s3.9.2.3, RFC 1122 s3.2.1.3: no host has that address. (Those of class D and E come to no socket.)
            return None;
        }
        let key = FlowKey::new(Protocol::Tcp, local, remote);
        let is_doubtful = self.handed_over.is_doubtful(now, local, remote, hop, header.seq);
        if is_doubtful && !self.unanswered_syns.is_retransmission(now, key, header.seq) {
            return None;
        }
        let (parent, mutation) = (self.slots.id_at(index), self.slots.mutation);
        let listener = self.slots.listener(parent).ok()?;
        let half_open = if self.config.is(Mutant::BacklogCountsReadyOnly) { 0 } else { listener.half_open };
        let more = usize::from(self.config.is(Mutant::BacklogOneMore));
        if listener.ready.len() + half_open > listener.backlog + more {
            listener.counters.rx_drops += 1;
            mark!(self, ListenOverflow);
            return None;
        }
        if !listener.lets_begin(now, mutation) {
            listener.counters.rx_drops += 1;
            return None;
        }
        let mut config = listener.config.clone();
        if self.config.is(Mutant::AcceptedForgetsKeepalive) {
            config.keepalive = None;
        }
        let config = self.limited(remote.ip(), &config);
        // Where there is no room for a rule, the peer tries again.
        let rule = self.steer_accepted(index, local, remote).ok()?;
        let profile = self.slots.profiles.share(&config);
        let opening = self.opening(now, local, remote);
        let verdict = self.judge_syn(now, parent, (remote.ip(), local.ip()), header, !payload.is_empty());
        let is_fast = matches!(verdict, Verdict::Fast(_));
        let connection = match verdict {
            Verdict::Fast(offer) => tcp::Connection::accept_fast(now, profile, (header, payload), opening, offer, self.lends),
            Verdict::Plain(offer) => {
                let mut connection = tcp::Connection::accept(now, profile, header, opening);
                offer.into_iter().for_each(|offer| connection.offer_cookie(offer));
                connection
            }
        };
        let id = self.insert_stream(now, key, connection, local, remote, hop, Some(parent), rule).ok()?;
        if is_fast {
            self.count_early(id, parent);
        }
        if let Ok(listener) = self.slots.listener(parent) {
            listener.half_open += 1;
        }
        self.after_input(now, id.index);
        Some(())
    }

    /// After anything that came in for a connection: its events, its place in the accept queue, what it wants to send, its
    /// timer, its end.
    #[inline]
    pub(super) fn after_input(&mut self, now: Instant, index: u32) {
        let Some(stream) = self.slots.live_at(index) else { return };
        let is_waiting = stream.parent.is_some();
        if is_waiting {
            self.promote(now, index);
        }
        self.transmit(now, index);
        if is_waiting {
            self.slots.rest(index);
        }
    }

    /// Moves a child whose handshake is complete (or failed) on from its listener's half-open ones.
    fn promote(&mut self, now: Instant, index: u32) {
        let id = self.slots.id_at(index);
        let Some(stream) = self.slots.live_at(index) else { return };
        let Some(parent) = stream.parent else { return };
        let state = stream.connection.state();
        let is_under_way =
            state == tcp::State::SynReceived && (!stream.connection.is_open_early() || self.config.is(Mutant::EarlyAcceptHeld));
        if stream.queued || is_under_way || state == tcp::State::Closed {
            return;
        }
        stream.queued = true;
        if let (NextHop::Neighbour(ip), Some(mac)) = (stream.hop, self.third_from)
            && self.neighbours.confirmed(now, ip, mac)
        {
            self.neighbour_known(ip, mac);
        }
        let Ok(listener) = self.slots.listener(parent) else { return };
        listener.half_open -= 1;
        listener.ready.push_back((id, now));
        if listener.ready.len() > 1 && self.config.is(Mutant::SecondConnectionRaisesNothing) {
            return;
        }
        self.raise(parent.index, Readiness::IN);
    }

    /// Sends what a connection wants to send, then settles its events, timer and end. And whether something of it is held afterwards
    /// ([`Ring::is_held`]).
    #[inline]
    pub(super) fn transmit(&mut self, now: Instant, index: u32) -> bool {
        if self.stalled.is_empty() { self.transmit_now(now, index) } else { self.transmit_in_turn(now, index) }
    }

    /// Others wait for the device, and were there before: else a flow that now and then has an answer to send would starve beside one
    /// that fills each slot as it becomes free.
    #[cold]
    fn transmit_in_turn(&mut self, now: Instant, index: u32) -> bool {
        if let Some(stream) = self.slots.live_at(index)
            && stream.connection.wants_transmit()
            && !stream.stalled
        {
            stream.stalled = true;
            self.stalled.push(index);
        }
        self.drain_stalled(now);
        if !self.tries_again() {
            // Whom the device refuses next has waited for nothing yet.
            self.retry_at = None;
            if !self.config.is(Mutant::RetryPauseNeverShrinks) {
                self.retry_after = STALL_MIN;
            }
        }
        self.settle(index)
    }

    /// Lets those that wait for the device send in turn, until it refuses one. That one goes last.
    fn drain_stalled(&mut self, now: Instant) {
        let mut waiting = core::mem::take(&mut self.stalled);
        let mut tried = 0;
        while tried < waiting.len() && self.stalled.is_empty() {
            let index = waiting[tried];
            tried += 1;
            if let Some(stream) = self.slots.stream_at(index) {
                stream.stalled = false;
                self.transmit_now(now, index);
            }
        }
        // (In the same memory: nearly always there is nothing left, and more to come.)
        waiting.drain(..tried);
        waiting.append(&mut self.stalled);
        self.stalled = waiting;
    }

    #[inline(never)]
    fn transmit_now(&mut self, now: Instant, index: u32) -> bool {
        self.transmit_here(now, index)
    }

    /// As [`Ring::transmit`], of what a program has just written: nearly all that most programs send.
    #[inline(always)]
    pub(super) fn transmit_written(&mut self, now: Instant, index: u32) -> bool {
        if self.stalled.is_empty() { self.transmit_here(now, index) } else { self.transmit_in_turn(now, index) }
    }

    #[inline(always)]
    fn transmit_here(&mut self, now: Instant, index: u32) -> bool {
        let Self { slots, queues, output, neighbours, rates, .. } = self;
        let Some(stream) = slots.live_at(index) else { return false };
        if stream.connection.wants_transmit() {
            match next_hop_mac(now, stream, neighbours, output, queues) {
                Some(mac) => {
                    let gone = if stream.is_paced {
                        emit_paced(now, (index, stream), mac, output, queues, rates)
                    } else {
                        emit(now, stream, mac, output, queues)
                    };
                    if let Some(Gone { lost, was_nowhere }) = gone {
                        mark!(self, PeerGone);
                        let is_finished = !was_nowhere && queues.left_finished(mac, &stream.five_tuple());
                        stream.connection.peer_died(is_finished);
                        if lost > 0 {
                            // The peer's host would answer them by a reset.
                            stream.connection.peer_gone();
                        }
                    } else if stream.is_paced && rates.awaits_turn(index) {
                        // (Its turn wakes it.)
                    } else if stream.connection.wants_transmit() && !stream.stalled {
                        stream.stalled = true;
                        self.stall(now, index);
                    }
                }
                // `tcp_route`, the rule, or `tcp_speak`, wakes the flow.
                None if stream.hop == NextHop::Pending || stream.silent != Silent::No => {}
                // The neighbour's answer, or its absence, wakes the flow.
                None => self.await_neighbour(index),
            }
        }
        self.settle(index)
    }

    fn await_neighbour(&mut self, index: u32) {
        mark!(self, NeighbourAwaited);
        if self.config.is(Mutant::NobodyAwaitsNeighbour) {
            return;
        }
        if let Some(stream) = self.slots.stream_at(index)
            && !stream.stalled
        {
            stream.stalled = true;
            self.waiting_neighbour.push(index);
        }
    }

    fn stall(&mut self, now: Instant, index: u32) {
        mark!(self, SendStalled);
        if self.config.is(Mutant::StalledForgotten) {
            return;
        }
        self.stalled.push(index);
        self.retry_soon(now);
    }

    /// Sees to it that what the device refused is tried again.
    pub(super) fn retry_soon(&mut self, now: Instant) {
        if self.retry_at.is_none() {
            self.retry_at = Some(now + self.retry_after);
        }
    }

    /// Tries again what the device refused. The pause doubles while nothing moves.
    #[inline(never)]
    pub(super) fn retry_stalled(&mut self, now: Instant) {
        mark!(self, StallRetried);
        self.retry_at = None;
        self.queues.reap();
        let before = self.output.counters.tx_packets;
        self.answer_owed();
        self.steer_again();
        self.drain_stalled(now);
        let moved = self.output.counters.tx_packets != before && !self.config.is(Mutant::RetryPauseNeverShrinks);
        self.retry_after = if moved { STALL_MIN } else { (self.retry_after * 2).min(STALL_MAX) };
        if self.tries_again() {
            self.retry_at = Some(now + self.retry_after);
        }
    }

    pub(super) fn neighbour_known(&mut self, ip: IpAddr, mac: MacAddr) {
        self.release_held(ip, mac);
        let woken = if self.config.is(Mutant::NeighbourWakesOne) { 1 } else { usize::MAX };
        for index in core::mem::take(&mut self.waiting_neighbour).into_iter().take(woken) {
            if let Some(stream) = self.slots.stream_at(index) {
                stream.stalled = false;
                self.dirty.push(index);
            }
        }
    }

    /// Publishes a connection's new edges, keeps its timer in the wheel, and removes it once it has ended and nobody
    /// will ask for it. And whether something of it is held ([`Ring::is_held`]).
    #[inline(always)]
    pub(super) fn settle(&mut self, index: u32) -> bool {
        self.settle_one(index, false)
    }

    /// The same, of a connection that is open for certain.
    #[inline(always)]
    pub(super) fn settle_open(&mut self, index: u32) {
        self.settle_one(index, true);
    }

    #[inline(always)]
    fn settle_one(&mut self, index: u32, is_open: bool) -> bool {
        let Self { slots, demux, queues, awaiting, .. } = self;
        let slot = slots.slot(index);
        let Some(Flow::Stream(stream)) = &mut slot.flow else { return false };
        // (Through its box once.)
        let stream = &mut **stream;
        if stream.awaits_acknowledgment() && !slot.awaiting {
            slot.awaiting = true;
            awaiting.push(index);
        }
        let edges = stream.connection.take_edges();
        let is_held = stream.connection.is_held();
        #[cfg(feature = "marks")]
        self.marks.absorb(stream.connection.take_marks());
        let is_reader = self.reader.is(index);
        if !is_reader && stream.noted != stream.is_unfinished() {
            note(stream, queues);
        }
        let mut freed = None;
        debug_assert!(!is_open || stream.connection.state() == tcp::State::Established);
        let is_over = !is_open && matches!(stream.connection.state(), tcp::State::Closed | tcp::State::TimeWait);
        let leaks = stream.orphan && self.config.is(Mutant::LeakSocket);
        if is_over && stream.connection.is_finished() && !leaks {
            if stream.orphan || (stream.parent.is_some() && !stream.queued) {
                self.drop_stream(index);
                return false;
            }
            // It has ended; what comes for its addresses is a stranger's, or a new connection's, even if the program keeps it open.
            let key = FlowKey::new(Protocol::Tcp, stream.local, stream.remote);
            if demux.exact(key) == Some(index) && !self.config.is(Mutant::EndedKeepsAddresses) {
                demux.remove(key);
                self.earlier_incarnations.add(key, stream.connection.sent_up_to());
                freed = stream.rule.take();
            }
        }
        if self.config.is(Mutant::FarTimerTakenForNear) && stream.wheel_at.is_none() {
            stream.wheel_at = stream.far_at.take();
        }
        if let Some(deadline) = stream.connection.take_sooner_deadline()
            && !(self.config.is(Mutant::FarTimerTakenForNear) && stream.wheel_at.is_some_and(|at| at > deadline))
            && stream.needs_wheel(deadline)
            && !(self.config.is(Mutant::FarTimersLost) && deadline.since(self.polled_at) > core::time::Duration::from_secs(268))
        {
            self.wheel.insert(deadline, (index, deadline));
        }
        let hidden = stream.orphan || stream.parent.is_some();
        let is_kept = is_reader && !hidden && self.reader.keeps(edges);
        if !edges.is_empty() && !hidden && !is_kept {
            self.raise(index, edges);
        }
        // (Somebody else may listen there, or connect from there, before the program closes it.)
        if let Some(rule) = freed {
            self.detach(rule);
        }
        if is_over {
            if !self.config.is(Mutant::EarlyCountKept) {
                self.uncount_early(index, None);
            }
            self.slots.rest(index);
        }
        is_held
    }

    pub(super) fn on_wheel(&mut self, now: Instant, index: u32, at: Instant) {
        if !self.slots.goes_by(index, at) {
            return;
        }
        let Some(stream) = self.slots.stream_at(index) else { return };
        if stream.wheel_at == Some(at) {
            stream.wheel_at = None;
        } else if stream.far_at == Some(at) {
            stream.far_at = None;
        } else {
            return;
        }
        if stream.connection.deadline().is_some_and(|deadline| deadline <= now) {
            stream.connection.on_timer(now);
        }
        self.transmit(now, index);
        let Some(stream) = self.slots.stream_at(index) else { return };
        if let Some(deadline) = stream.connection.deadline()
            && !self.config.is(Mutant::PutOffTimersLost)
            && stream.needs_wheel(deadline)
        {
            self.wheel.insert(deadline, (index, deadline));
        }
        self.slots.rest(index);
    }

    /// Forgets a connection.
    pub(super) fn drop_stream(&mut self, index: u32) {
        let Some(Flow::Stream(mut stream)) = self.slots.remove(index) else { return };
        unnote(&mut stream, &mut self.queues);
        self.uncount_early(index, None);
        self.forget_rate(index);
        self.former_macs.remove(&index);
        let key = FlowKey::new(Protocol::Tcp, stream.local, stream.remote);
        if self.demux.exact(key) == Some(index) && !self.config.is(Mutant::LeakFlow) {
            self.demux.remove(key);
            self.earlier_incarnations.add(key, stream.connection.sent_up_to());
        }
        let rule = stream.rule.filter(|_| !self.config.is(Mutant::StreamRuleLeaks));
        rule.into_iter().for_each(|rule| self.detach(rule));
        if self.config.is(Mutant::FailedHandshakeCounts) {
            return;
        }
        if let (Some(parent), false) = (stream.parent, stream.queued)
            && let Ok(listener) = self.slots.listener(parent)
        {
            listener.half_open -= 1;
        }
    }

    /// Ends a connection on the program's behalf.
    pub(super) fn close_stream(&mut self, now: Instant, index: u32, abort: bool) {
        let Some(stream) = self.slots.stream_at(index) else { return };
        stream.orphan = true;
        let closing = &mut stream.connection;
        if abort {
            closing.abort();
        } else {
            closing.orphan(now);
        }
        // The id is dead: what happened before and was not taken is nobody's event any more.
        if !self.config.is(Mutant::EdgesOutliveClose) {
            self.slots.slot(index).edges = Readiness::empty();
        }
        self.transmit(now, index);
    }

    /// A listener ends, and with it what nobody accepted.
    pub(super) fn close_listener(&mut self, now: Instant, id: FlowId) {
        let Some(Flow::Listener(listener)) = self.slots.remove(id.index) else { return };
        if !self.config.is(Mutant::ListenerKeepsAddress) {
            self.demux.leave(FlowKey::bound(Protocol::Tcp, listener.local), id.index);
        }
        let children: Vec<u32> = self
            .slots
            .iter()
            .filter_map(|(child, flow)| match flow {
                _ if flow.stream_parent() == Some(id) => Some(child.index),
                _ => None,
            })
            .collect();
        if !children.is_empty() {
            mark!(self, ListenerClosedWithChildren);
        }
        for child in children {
            if let Some(stream) = self.slots.stream_at(child) {
                stream.parent = None;
            }
            let is_half_open = || self.slots.find(self.slots.id_at(child)).is_some_and(is_handshaking);
            if self.config.is(Mutant::HalfOpenOutliveListener) && is_half_open() {
                continue;
            }
            self.close_stream(now, child, true);
        }
        if let Some(rule) = listener.rule
            && !self.config.is(Mutant::LeakRule)
        {
            self.detach_listener_rule(rule);
        }
    }

    /// The link found its carrier again.
    pub(super) fn link_up(&mut self, now: Instant) {
        let streams = self.slots.iter().filter_map(|(id, flow)| flow.stream_ends().map(|_| id.index));
        let streams: Vec<u32> = streams.collect();
        // All of them are told before one sends: one that sends lets others have their turn, who would be told afterwards, and send twice.
        for &index in &streams {
            if let Some(stream) = self.slots.stream_at(index) {
                stream.connection.on_link_up();
            }
        }
        for index in streams {
            self.transmit(now, index);
            self.slots.rest(index);
        }
    }

    /// Tells the device whether a connection is unfinished, if that changed.
    #[inline]
    pub(super) fn renote(&mut self, index: u32) {
        let Self { slots, queues, .. } = self;
        if let Some(stream) = slots.live_at(index)
            && stream.noted != stream.is_unfinished()
        {
            note(stream, queues);
        }
    }

    /// The peer died: every connection to it ends, at once or when it sends.
    pub(super) fn peer_gone(&mut self, now: Instant, mac: MacAddr) {
        let lost: Vec<u32> = self
            .slots
            .iter()
            .filter_map(|(id, flow)| match flow {
                _ if flow.stream_hop() == Some(NextHop::Mac(mac)) => Some(id.index),
                _ => None,
            })
            .collect();
        // All of them are told before one sends: one that sends lets others have their turn, whose bytes would be taken for sent.
        for &index in &lost {
            mark!(self, PeerGone);
            if let Some(stream) = self.slots.stream_at(index) {
                // (Of one that had not been told where this end is, what it sent last is lost on the ring before: it says nothing here of that.)
                let is_told = stream.silent != Silent::UntilFollowed || self.config.is(Mutant::UntoldDeathIsEnd);
                let is_finished = is_told && self.queues.left_finished(mac, &stream.five_tuple());
                // (Nobody will tell it to speak. A reset that it owes goes to nobody, and is done with.)
                if !self.config.is(Mutant::SilentOutlivesPeer) {
                    stream.silent.ends(Silent::UntilFollowed);
                }
                stream.connection.peer_died(is_finished);
            }
        }
        for index in lost {
            self.after_input(now, index);
        }
    }
}

/// Whether a connection's handshake is under way.
fn is_handshaking<Q: Queues>(flow: &Flow<Q>) -> bool {
    match flow {
        Flow::Stream(stream) => stream.connection.state() == tcp::State::SynReceived,
        Flow::Resting(resting) => resting.state() == tcp::State::SynReceived,
        _ => false,
    }
}

/// Tells the device what its peer is to know of a connection should this host die.
#[inline]
fn note<Q: Queues>(stream: &mut Stream<Q>, queues: &mut Q) {
    stream.noted = !stream.noted;
    if let NextHop::Mac(mac) = stream.hop {
        queues.note_unfinished(mac, &stream.five_tuple(), stream.noted);
    }
}

/// The connection is no longer this ring's.
pub(super) fn unnote<Q: Queues>(stream: &mut Stream<Q>, queues: &mut Q) {
    if stream.noted {
        note(stream, queues);
    }
}

#[inline]
fn next_hop_mac<Q: Queues>(
    now: Instant,
    stream: &Stream<Q>,
    neighbours: &mut Neighbours,
    output: &mut Output,
    queues: &mut Q,
) -> Option<MacAddr> {
    match stream.hop {
        _ if stream.silent != Silent::No => None,
        NextHop::Mac(mac) => Some(mac),
        NextHop::Pending => None,
        NextHop::Neighbour(ip) => {
            // A SYN's answers, and the reset of who ends before a third segment, ask nobody: or a flood of SYNs made one of questions.
            let is_brief = matches!(stream.connection.state(), tcp::State::SynReceived | tcp::State::Closed);
            let told = if is_brief { neighbours.told(ip) } else { None };
            told.or_else(|| resolve(now, (stream.local.ip(), ip), neighbours, output, queues))
        }
    }
}

/// The peer is gone, which a send finds out.
struct Gone {
    /// Bytes of the stream that went with it.
    lost: usize,
    /// Others were sent to where the peer was before it moved, or from where this end was, and not again since.
    was_nowhere: bool,
}

/// Sends until the connection has nothing more, or the device takes nothing more, or the peer is gone.
#[inline(always)]
fn emit<Q: Queues>(now: Instant, stream: &mut Stream<Q>, mac: MacAddr, output: &mut Output, queues: &mut Q) -> Option<Gone> {
    let Some((predicted, slice)) = stream.connection.predict(now) else { return emit_at_length(now, stream, mac, output, queues, None) };
    let (ttl, tos) = (stream.connection.config().ttl, stream.connection.config().tos);
    let to = Envelope { src: stream.local.ip(), dst: stream.remote.ip(), mac, ttl, tos };
    let sent = output.tcp(queues, &to, &predicted.segment(&[slice]));
    stream.connection.on_predicted_sent(now, &predicted, &sent);
    matches!(sent, Err(SendError::NoPeer)).then_some(Gone { lost: predicted.len, was_nowhere: false })
}

/// As [`emit`], of a connection that has a rate of its own.
#[cold]
#[inline(never)]
fn emit_paced<Q: Queues>(
    now: Instant,
    (index, stream): (u32, &mut Stream<Q>),
    mac: MacAddr,
    output: &mut Output,
    queues: &mut Q,
    rates: &mut Rates,
) -> Option<Gone> {
    if let Some(meter) = rates.meter(index) {
        return emit_at_length(now, stream, mac, output, queues, Some(meter));
    }
    output.set_flow(rates::tag(index));
    let gone = emit_at_length(now, stream, mac, output, queues, None);
    output.set_flow(0);
    gone
}

/// As [`emit`], whatever there is to send, and as fast as its meter lets it, if it has one.
#[inline(never)]
fn emit_at_length<Q: Queues>(
    now: Instant,
    stream: &mut Stream<Q>,
    mac: MacAddr,
    output: &mut Output,
    queues: &mut Q,
    mut meter: Option<&mut Meter>,
) -> Option<Gone> {
    let (ttl, tos) = (stream.connection.config().ttl, stream.connection.config().tos);
    let to = Envelope { src: stream.local.ip(), dst: stream.remote.ip(), mac, ttl, tos };
    let mut lost = None;
    // (A peer that is gone is sent again, as far as the connection knows, what went astray before.)
    let was_nowhere = stream.connection.is_nowhere();
    let before = stream.connection.counters().resent();
    let is_metered = meter.is_some();
    let mut send = |segment: &tcp::Segment<'_, Q::Tx>| {
        let sent = match meter.as_deref_mut().filter(|_| segment.payload_len > 0) {
            None => output.tcp(queues, &to, segment),
            Some(meter) => {
                let bytes = output.wire_len(to.dst, segment);
                if !meter.admits(now, bytes, output.mutation) {
                    return Err(SendError::Full);
                }
                output.tcp(queues, &to, segment).inspect(|()| meter.sent(now, bytes))
            }
        };
        if sent == Err(SendError::NoPeer) {
            lost = Some(lost.unwrap_or(0) + segment.payload_len);
        }
        sent
    };
    stream.connection.poll_at_length(now, &mut send);
    if is_metered {
        stream.connection.held_by_rate(now, &mut send);
    }
    let [segments, bytes] = stream.connection.counters().resent();
    output.counters.retransmissions += segments - before[0];
    output.counters.retransmitted_bytes += bytes - before[1];
    lost.map(|lost| Gone { lost, was_nowhere })
}
