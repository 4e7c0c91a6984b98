//! A connection that moves from one ring to another of the same host, with everything that it has: state, queues, buffers (which stay the
//! device's) and timers. What a forked server does with the connections that its children inherit.
//!
//! On a device with several rings, its rule goes with it, and is moved: at no moment do its frames go to a third (a kernel would answer them by a
//! reset). One that came by its listener's rule, or whose own does not steer yet, has none with it, and gets its own on the other ring: it names both ends,
//! and so comes before the listener's. Frames that the old ring
//! has received already, or still receives until the new rule counts, are lost there in silence, as a busy network would lose them: a
//! reset would end the connection on its new ring.

use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;

use super::Ring;
use super::demux::FlowKey;
use super::slots::{Flow, Silent, Stream};
use super::steering::Holder;
use super::stream::unnote;
use super::types::{FlowId, NextHop};
use super::udp::rule_error;
use crate::device::{Device, FiveTuple, MacAddr, Pacing, Protocol, Queues, RuleId};
use crate::error::Error;
#[cfg(feature = "marks")]
use crate::marks::Mark;
use crate::marks::mark;
use crate::mutants::Mutant;
use crate::tcp::{Config, Connection, ControlBlock, Snapshot, State, Undelivered};
use crate::time::Instant;
use crate::wire::tcp::SeqNumber;

/// How long a ring remembers what it gave away: longer than frames wait in receive queues, and than a connection that is given away once
/// more is without a rule.
const REMEMBERED: Duration = Duration::from_secs(60);
/// Within which time whoever takes a connection has it steered, most often: until then its frames may come to who gave it away.
const STEERED_WITHIN: Duration = Duration::from_secs(5);
/// Most connections remembered so.
const REMEMBERED_MAX: usize = 4096;

/// Most MAC addresses of which a connection remembers that its peer was there.
const FORMER_MAX: usize = 8;

/// Where a connection's peer was, the latest last.
#[derive(Debug, Default)]
pub(super) struct FormerMacs(Vec<MacAddr>);

impl FormerMacs {
    fn add(&mut self, mac: MacAddr, max: usize) {
        self.0.retain(|known| *known != mac);
        if self.0.len() >= max {
            self.0.remove(0);
        }
        self.0.push(mac);
    }

    pub(super) fn contains(&self, mac: MacAddr) -> bool {
        self.0.contains(&mac)
    }
}

/// A connection between two rings. Dropped, it is gone without a word to the peer.
pub struct Handover<Q: Queues> {
    pub(super) stream: Box<Stream<Q>>,
    carried: Carried<Q::Device>,
    rate: Option<Pacing>,
}

/// The flow rule of a connection, or a UDP socket, between two rings: what it brings still comes to the one that gave it away. Dropped, it ends.
pub(super) struct Carried<D: Device> {
    pub(super) device: D,
    pub(super) rule: Option<RuleId>,
}

impl<D: Device> Carried<D> {
    pub(super) fn end(&mut self) {
        if let Some(rule) = self.rule.take() {
            self.device.detach(rule);
        }
    }
}

impl<D: Device> Drop for Carried<D> {
    fn drop(&mut self) {
        self.end();
    }
}

impl<Q: Queues> core::fmt::Debug for Handover<Q> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let (state, local, remote) = (self.stream.connection.state(), self.local(), self.remote());
        f.debug_struct("Handover").field("state", &state).field("local", &local).field("remote", &remote).finish()
    }
}

impl<Q: Queues> Handover<Q> {
    /// Our address.
    pub fn local(&self) -> SocketAddr {
        self.stream.local
    }

    /// The peer's.
    pub fn remote(&self) -> SocketAddr {
        self.stream.remote
    }

    /// Where its peer is.
    pub fn hop(&self) -> NextHop {
        self.stream.hop
    }

    /// Its state.
    pub fn state(&self) -> State {
        self.stream.connection.state()
    }

    /// Ends the flow rule that it has with it: before a ring of another process, or another carrier, asks for one of these addresses.
    pub fn end_rule(&mut self) {
        self.carried.end();
    }

    /// Whether its frames come by a flow rule of its own, which it has with it. One that came by its listener's rule has none, as long as the listener is there.
    pub fn carries_rule(&self) -> bool {
        self.carried.rule.is_some()
    }

    /// What another implementation of TCP needs of the connection, as of `now`, also of one that the program has closed. `None`: as [`Handover::snapshot`].
    pub fn control_block(&self, now: Instant) -> Option<ControlBlock> {
        self.stream.connection.snapshot_even_if_closed().map(|snapshot| snapshot.control_block(now))
    }

    /// The connection as bytes, for a ring of another process ([`Ring::adopt_snapshot`]). `None`: it is over, or about to be, or the program
    /// has borrowed bytes of it.
    pub fn snapshot(&self) -> Option<Vec<u8>> {
        self.stream.connection.snapshot().map(|snapshot| snapshot.to_bytes())
    }
}

/// Connections that a ring gave away, by their addresses (ours, the peer's).
#[derive(Debug, Default)]
pub(super) struct HandedOver {
    known: BTreeMap<(SocketAddr, SocketAddr), LastKnown>,
    /// In the order of their expiry; entries that were overtaken are stale.
    queue: VecDeque<(Instant, (SocketAddr, SocketAddr))>,
}

#[derive(Debug)]
struct LastKnown {
    until: Instant,
    /// Until when it may be on its way to another ring, and its frames come here.
    steered_by: Instant,
    /// The first number that it has not used.
    used: SeqNumber,
    /// What it expected next of its peer, and where that is, and was before.
    expected: SeqNumber,
    hop: NextHop,
    former: FormerMacs,
    /// Which hosts may have heard that it is unfinished ([`HandoversUnderWay`]), and until when.
    noted: FormerMacs,
    noted_until: Instant,
}

/// How long whoever carries a connection on has until its peer has left its ring, too.
const HANDOVER_WITHIN: Duration = Duration::from_secs(20);
/// Most connections of which that is awaited.
const HANDOVERS_MAX: usize = 1024;

/// Connections that were given away, oldest first, and whose peers may not know it yet: they are not to take the death of this host for the end of
/// their streams.
#[derive(Debug, Default)]
pub(super) struct HandoversUnderWay(VecDeque<(Instant, MacAddr, FiveTuple)>);

impl HandoversUnderWay {
    fn add(&mut self, now: Instant, mac: MacAddr, flow: FiveTuple, queues: &mut impl Queues) {
        self.add_until(now + HANDOVER_WITHIN, mac, flow, queues);
        self.expire(now, queues);
    }

    fn add_until(&mut self, until: Instant, mac: MacAddr, flow: FiveTuple, queues: &mut impl Queues) {
        queues.note_unfinished(mac, &flow, true);
        self.0.push_back((until, mac, flow));
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    #[inline(never)]
    pub(super) fn expire(&mut self, now: Instant, queues: &mut impl Queues) {
        while let Some(&(until, mac, flow)) = self.0.front()
            && (until <= now || self.0.len() > HANDOVERS_MAX)
        {
            self.0.pop_front();
            queues.note_unfinished(mac, &flow, false);
        }
    }
}

impl HandedOver {
    /// Whether a SYN may be none of a newcomer's. An old duplicate of one that opened a connection which was given away is none: a newcomer begins above
    /// (RFC 9293 s3.10.7.4 asks the same of one that ends a TIME-WAIT). And as long as the connection may be on its way to another ring, no SYN ends it, whatever
    /// its number (RFC 5961 s4.2): a second connection of the same addresses would have the first one's peer reset it. (Where the connection is, a SYN is
    /// answered by a challenge. Here it is lost, as all is that comes for the connection, and a newcomer's comes again.)
    pub(super) fn is_doubtful(&self, now: Instant, local: SocketAddr, remote: SocketAddr, hop: NextHop, seq: SeqNumber) -> bool {
        let was_there = |gone: &LastKnown| matches!(hop, NextHop::Mac(mac) if gone.former.contains(mac));
        let gone = || self.known.get(&(local, remote)).filter(|gone| gone.hop == hop || was_there(gone));
        !self.known.is_empty() && gone().is_some_and(|gone| seq.le(gone.expected) || now < gone.steered_by)
    }

    /// Up to which number a connection of these addresses sent that was given away: bytes of it may still be under way.
    pub(super) fn used(&self, local: SocketAddr, remote: SocketAddr) -> Option<SeqNumber> {
        self.known.get(&(local, remote)).map(|gone| gone.used)
    }

    /// The addresses have a connection here again.
    pub(super) fn remove(&mut self, local: SocketAddr, remote: SocketAddr) {
        self.take(local, remote);
    }

    fn take(&mut self, local: SocketAddr, remote: SocketAddr) -> Option<LastKnown> {
        if self.known.is_empty() { None } else { self.known.remove(&(local, remote)) }
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    #[inline(never)]
    pub(super) fn expire(&mut self, now: Instant) {
        while let Some(&(at, key)) = self.queue.front()
            && (at <= now || self.queue.len() > REMEMBERED_MAX)
        {
            self.queue.pop_front();
            if self.known.get(&key).is_some_and(|gone| gone.until == at) {
                self.known.remove(&key);
            }
        }
    }

    /// One that was given away goes to another ring. (What leaves for another carrier has no frames any more.)
    fn goes_to_ring(&mut self, now: Instant, local: SocketAddr, remote: SocketAddr) {
        self.known.entry((local, remote)).and_modify(|gone| gone.steered_by = now + STEERED_WITHIN);
    }

    fn add<Q: Queues>(&mut self, now: Instant, stream: &Stream<Q>, former: FormerMacs) {
        let (until, key) = (now + REMEMBERED, (stream.local, stream.remote));
        let (used, expected) = (stream.connection.sent_up_to(), stream.connection.received_up_to());
        let mut noted = FormerMacs::default();
        if let NextHop::Mac(mac) = stream.hop {
            noted.add(mac, FORMER_MAX);
        }
        let (steered_by, noted_until) = (now, now + HANDOVER_WITHIN);
        let last = LastKnown { until, steered_by, used, expected, hop: stream.hop, former, noted, noted_until };
        self.known.insert(key, last);
        self.queue.push_back((until, key));
        self.expire(now);
    }
}

impl<Q: Queues> Ring<Q> {
    /// Gives a connection away, as it is, to a ring of the same device: see [`Ring::adopt`]. The id is dead at once.
    ///
    /// # Errors
    /// [`Error::NotConnected`] (its handshake is not complete), [`Error::BadSocket`], [`Error::NotSupported`] (not a stream).
    pub fn detach_stream(&mut self, now: Instant, id: FlowId) -> Result<Handover<Q>, Error> {
        self.slots.stream(id)?;
        self.give_away(now, id)
    }

    /// As [`Ring::detach_stream`], for one that the program has closed, and that has yet to get rid of what was written ([`Ring::lingering_streams`]): for a process
    /// that ends before it has.
    ///
    /// # Errors
    /// [`Error::BadSocket`]: there is no such connection, or it is not closed.
    pub fn detach_closed(&mut self, now: Instant, id: FlowId) -> Result<Handover<Q>, Error> {
        match self.slots.find(id) {
            Some(Flow::Stream(stream)) if stream.orphan => self.give_away(now, id),
            _ => Err(Error::BadSocket),
        }
    }

    fn give_away(&mut self, now: Instant, id: FlowId) -> Result<Handover<Q>, Error> {
        let rule =
            self.slots.stream_at(id.index).and_then(|stream| stream.rule).filter(|rule| self.is_steered() && self.rules.may_move(*rule));
        let rate = self.rates.of(id.index);
        let mut stream = self.remove_stream(now, id, rule.is_some())?;
        stream.rule = None;
        self.handed_over.goes_to_ring(now, stream.local, stream.remote);
        Ok(Handover { stream, carried: Carried { device: self.queues.device().clone(), rule }, rate })
    }

    /// Takes a connection over from another ring: steers its frames here, arms its timers, and goes on. What it is ready for shows as
    /// an event.
    ///
    /// One that has ended has no addresses any more: it only brings what is still to be read.
    ///
    /// # Errors
    /// [`Error::AddressInUse`] (this ring, or the rule's table, has a connection of these addresses), [`Error::NoBuffers`] (no room for it, for its rule, or
    /// for its rate); the connection comes back whole.
    pub fn adopt(&mut self, now: Instant, handover: Handover<Q>) -> Result<FlowId, (Error, Handover<Q>)> {
        let (deadline, ends) = (handover.stream.connection.deadline(), (handover.local(), handover.remote()));
        let id = self.place(handover)?;
        let late = self.late.end(ends);
        if let Some(deadline) = deadline
            && let Some(stream) = self.slots.stream_at(id.index)
            && stream.needs_wheel(deadline)
            && !self.config.is(Mutant::AdoptedTimerLost)
        {
            self.wheel.insert(deadline, (id.index, deadline));
        }
        self.transmit(now, id.index);
        self.output.flush(&mut self.queues);
        self.replay_late(now, late);
        Ok(id)
    }

    /// Gives a connection a place here, with its rule and its addresses. Nothing is sent, and no timer runs, before it is heard of.
    fn place(&mut self, mut handover: Handover<Q>) -> Result<FlowId, (Error, Handover<Q>)> {
        let (local, remote) = (handover.local(), handover.remote());
        let key = FlowKey::new(Protocol::Tcp, local, remote);
        // What comes for the addresses of one that has ended is a stranger's, or a new connection's, which may be here already (RFC 9293 s3.3.2: CLOSED is no
        // connection at all).
        let is_over = handover.stream.connection.is_finished();
        let taken = self.demux.exact(key).is_some();
        if taken && !is_over {
            return Err((Error::AddressInUse, handover));
        }
        if !self.slots.has_room() {
            return Err((Error::NoBuffers, handover));
        }
        let index = self.slots.next_index();
        let rate = match handover.rate.map(|rate| self.keeper_of(index, rate, true).map(|keeper| (rate, keeper))).transpose() {
            Ok(rate) => rate,
            Err(error) => return Err((error, handover)),
        };
        let attached = match (!is_over).then(|| self.steer_adopted(&mut handover.carried.rule, local, remote)).transpose() {
            Ok(attached) => attached,
            Err(error) => {
                let lifted = handover.rate.map(|_| self.keeper_of(index, Pacing::UNLIMITED, true));
                debug_assert!(lifted.is_none_or(|lifted| lifted.is_ok()), "a rate that was set can be lifted");
                return Err((rule_error(error), handover));
            }
        };
        let Handover { mut stream, mut carried, .. } = handover;
        stream.is_paced = rate.is_some();
        if let Some(attached) = &attached {
            carried.rule = None;
            stream.rule = Some(attached.rule);
        }
        let hop = stream.hop;
        stream.connection.share_profile(&mut self.slots.profiles);
        let (readiness, used) = (stream.connection.readiness(), stream.connection.sent_up_to());
        let id = self.slots.insert(Flow::Stream(stream)).expect("there was room");
        if let Some((rate, keeper)) = rate {
            self.rates.insert(id.index, rate, keeper);
        }
        if let Some(attached) = attached {
            self.hold(attached, Holder::Flow(id.index), None);
            self.demux.insert(key, id.index);
        } else if !taken {
            self.earlier_incarnations.add(key, used);
        }
        if !self.config.is(Mutant::ReturnedStillHandedOver)
            && let Some(gone) = self.handed_over.take(local, remote)
        {
            self.remember_macs(id.index, gone, hop);
        }
        if !readiness.is_empty() && !self.config.is(Mutant::AdoptedRaisesNothing) {
            self.raise(id.index, readiness);
        }
        Ok(id)
    }

    /// A connection is back that was here before: what its peer sent here then, from where it was, may be on its way still.
    fn remember_macs(&mut self, index: u32, gone: LastKnown, hop: NextHop) {
        let LastKnown { hop: before, mut former, .. } = gone;
        if let NextHop::Mac(mac) = before {
            former.add(mac, FORMER_MAX);
        }
        former.0.retain(|mac| !hop.is_mac(*mac));
        if !former.0.is_empty() && !self.config.is(Mutant::OneFormerMac) {
            self.former_macs.insert(index, former);
        }
    }

    /// Whether this ring has given a connection away, as far as it remembers.
    pub(super) fn has_given_away(&self, local: SocketAddr, remote: SocketAddr) -> bool {
        !self.handed_over.is_empty() && self.handed_over.known.contains_key(&(local, remote))
    }

    /// A segment came for a connection, and it may be one that was given away. Whether it is: then its peer has yet to hear where it is. If the peer has gone
    /// over itself since, it is not to take the death of this host for the end of its stream, either.
    pub(super) fn is_for_given_away(&mut self, from: MacAddr, local: SocketAddr, remote: SocketAddr) -> bool {
        if self.handed_over.is_empty() {
            return false;
        }
        let Some(gone) = self.handed_over.known.get_mut(&(local, remote)) else { return false };
        if matches!(gone.hop, NextHop::Mac(_))
            && !gone.noted.contains(from)
            && gone.noted.0.len() < FORMER_MAX
            && !self.config.is(Mutant::MovedPeerMissesHandover)
        {
            gone.noted.add(from, FORMER_MAX);
            let flow = FiveTuple { protocol: Protocol::Tcp, local, remote: Some(remote) };
            self.handovers.add_until(gone.noted_until, from, flow, &mut self.queues);
        }
        true
    }

    /// Ends a connection here without a word to the peer, and gives what another carrier needs to go on with it; also of one that the
    /// program has closed, and that is still ending. Its id is dead at once, and frames that still come for it are ignored.
    ///
    /// # Errors
    /// [`Error::BadSocket`]: there is none between these addresses (ours, the peer's), or one that was aborted; [`Error::NotConnected`]: its handshake is under
    /// way.
    pub fn end_silently(&mut self, now: Instant, local: SocketAddr, remote: SocketAddr) -> Result<Undelivered, Error> {
        // One that has ended, and that the program has not closed yet, is in no table but its own: it may have bytes to be read.
        let is_it = |flow: &Flow<Q>| flow.stream_ends() == Some((local, remote));
        let ended = || self.slots.iter().find_map(|(id, flow)| is_it(flow).then_some(id.index));
        let index = self.demux.exact(FlowKey::new(Protocol::Tcp, local, remote)).or_else(ended).ok_or(Error::BadSocket)?;
        let id = self.slots.id_at(index);
        let stream = self.slots.stream_at(index).ok_or(Error::BadSocket)?;
        if stream.orphan && stream.connection.state() == State::Closed {
            // Aborted: all there is left of it is a reset that has yet to go out.
            return Err(Error::BadSocket);
        }
        let (parent, queued) = (stream.parent, stream.queued);
        let stream = self.remove_stream(now, id, false)?;
        if let Some(Flow::Listener(listener)) = parent.and_then(|parent| self.slots.find_mut(parent).ok())
            && queued
            && !self.config.is(Mutant::SilentlyEndedStaysQueued)
        {
            listener.ready.retain(|&(ready, _)| ready != id);
        }
        let undelivered = Undelivered { accepted: parent.is_none(), ..stream.connection.end_silently() };
        #[cfg(feature = "marks")]
        self.marks.hit(match &undelivered {
            Undelivered { over: true, .. } => Mark::EndedSilentlyOver,
            Undelivered { accepted: false, .. } => Mark::EndedSilentlyUnaccepted,
            Undelivered { orphaned: true, .. } => Mark::EndedSilentlyOrphan,
            _ => Mark::EndedSilently,
        });
        Ok(undelivered)
    }

    /// Takes a connection out of everything here that names it, closed by the program or not. `carries`: its rule goes with it.
    fn remove_stream(&mut self, now: Instant, id: FlowId, carries: bool) -> Result<Box<Stream<Q>>, Error> {
        let stream = self.slots.stream_at(id.index).ok_or(Error::BadSocket)?;
        if matches!(stream.connection.state(), State::SynSent | State::SynReceived) {
            return Err(Error::NotConnected);
        }
        let Some(Flow::Stream(mut stream)) = self.slots.remove(id.index) else { return Err(Error::BadSocket) };
        self.forget_rate(id.index);
        let former = self.former_macs.remove(&id.index).unwrap_or_default();
        stream.is_paced = false;
        let key = FlowKey::new(Protocol::Tcp, stream.local, stream.remote);
        if self.demux.exact(key) == Some(id.index) {
            self.demux.remove(key);
        }
        if let Some(rule) = stream.rule.take().filter(|_| !carries && !self.config.is(Mutant::SilentEndLeaksRule)) {
            self.detach(rule);
        }
        if stream.connection.state() != State::Closed
            && let NextHop::Mac(mac) = stream.hop
        {
            self.handovers.add(now, mac, stream.five_tuple(), &mut self.queues);
        }
        unnote(&mut stream, &mut self.queues);
        // What comes for one that was over is answered as ever: its peer may know nothing of that yet.
        if stream.connection.state() != State::Closed && !self.config.is(Mutant::SilentEndForgets) {
            self.handed_over.add(now, &stream, former);
        }
        // What this ring planned for it is void: the wheel's entries and the lists name a slot, and find it empty.
        let (stalled, far_at) = (stream.stalled, stream.far_at);
        (stream.wheel_at, stream.far_at, stream.stalled) = (None, None, false);
        stream.stalled = stalled && self.config.is(Mutant::HandoverKeepsStalled);
        stream.far_at = far_at.filter(|_| self.config.is(Mutant::HandoverKeepsFarTimer));
        Ok(stream)
    }
}

impl<Q: Queues> Ring<Q> {
    /// Takes a connection that a ring of another process gave away ([`Handover::snapshot`]), between these addresses (ours, the peer's), as
    /// [`Ring::adopt`] does, and whose clock is `now`'s. It says nothing and its timers stand still, so that the other ring may still take it back, until it goes
    /// on ([`Ring::tcp_go_on`], [`Ring::tcp_retarget`]), hears its peer, or is used. The peer's frames come here by the rule, or because the peer is told; what
    /// came since [`Ring::tcp_expect`] is heard at once. What the program has set of it comes with it, and the rest of `config` counts.
    ///
    /// # Errors
    /// [`Error::Invalid`] (no connection is written there), [`Error::AddressInUse`], [`Error::NoBuffers`]; of one that is expected, [`Error::InProgress`] (its rule
    /// does not steer yet), or what became of the rule.
    pub fn adopt_snapshot(
        &mut self,
        now: Instant,
        (local, remote): (SocketAddr, SocketAddr),
        hop: NextHop,
        config: &Config,
        bytes: &[u8],
    ) -> Result<FlowId, Error> {
        self.late.may_arrive((local, remote))?;
        let snapshot = Snapshot::from_bytes(bytes).map_err(|_| Error::Invalid)?;
        let ports = (local.port(), remote.port());
        // What the device gathers, and cuts, is this ring's, not the one's that the connection comes from.
        let config = self.limited(remote.ip(), config);
        let Self { queues, .. } = self;
        let mut connection = Connection::resume(now, &config, ports, &snapshot, &mut |len| queues.tx_alloc(len))?;
        if let Some(mtu) = self.paths.mtu(now, remote.ip()) {
            connection.set_path_mtu(now, mtu);
        }
        if self.lends {
            connection.lend_from_now_on();
        }
        let (wheel_at, far_at, parent) = (None, None, None);
        let [queued, orphan, stalled, shared, noted, is_paced] = [false; 6];
        let stream = Stream {
            connection,
            local,
            remote,
            hop,
            rule: None,
            silent: Silent::No,
            wheel_at,
            far_at,
            parent,
            queued,
            orphan,
            stalled,
            shared,
            noted,
            is_paced,
        };
        let rule = self.late.take_rule((local, remote));
        let carried = Carried { device: self.queues.device().clone(), rule };
        let id = self.place(Handover { stream: Box::new(stream), carried, rate: None }).map_err(|(error, mut handover)| {
            // (What was expected goes on to be: another try may find room.)
            self.late.keep_rule((local, remote), handover.carried.rule.take());
            error
        })?;
        self.renote(id.index);
        mark!(self, AdoptedWritten);
        let late = self.late.end((local, remote));
        self.replay_late(now, late);
        Ok(id)
    }

    /// A connection that this ring has just taken ([`Ring::adopt_snapshot`]) goes on as if it had not moved: nothing that is on its way is sent again, and its
    /// timers run as they were set.
    ///
    /// # Errors
    /// [`Error::BadSocket`], [`Error::NotSupported`] (not a stream).
    pub fn tcp_go_on(&mut self, now: Instant, id: FlowId) -> Result<(), Error> {
        let stream = self.slots.stream(id)?;
        if self.config.is(Mutant::MoveTakenForLoss) {
            stream.connection.go_on_elsewhere(now);
        }
        self.transmit(now, id.index);
        self.output.flush(&mut self.queues);
        Ok(())
    }

    /// Writes each connection down and reads it in again, where it is; those that cannot be now stay as they are. How many it was. A simulator that tells one story
    /// twice, once with this in each service, shows by it that nothing is missing from what is written.
    #[cfg(feature = "mutants")]
    pub fn rewrite_streams(&mut self, now: Instant) -> usize {
        let rewritten = self.slots.iter_mut().filter_map(|flow| match flow {
            Flow::Stream(stream) => stream.connection.rewrite(now).then_some(()),
            _ => None,
        });
        rewritten.count()
    }

    /// A connection goes on between two rings that know each other: this one has just taken it ([`Ring::adopt_snapshot`]), or its peer is at
    /// another MAC address from now on. What was on its way is sent again; what still comes from where the peer was, is lost in silence.
    ///
    /// # Errors
    /// [`Error::BadSocket`] (no such connection, be it closed by the program or not).
    pub fn tcp_retarget(&mut self, now: Instant, id: FlowId, hop: NextHop) -> Result<(), Error> {
        let Self { slots, queues, former_macs, .. } = self;
        slots.find(id).ok_or(Error::BadSocket)?;
        let stream = slots.stream_at(id.index).ok_or(Error::BadSocket)?;
        // (Each of the two hosts is told of it for itself.)
        unnote(stream, queues);
        if let (NextHop::Mac(former), true) = (stream.hop, stream.hop != hop) {
            let max = if self.config.is(Mutant::OneFormerMac) { 1 } else { FORMER_MAX };
            former_macs.entry(id.index).or_default().add(former, max);
        }
        if !self.config.is(Mutant::FollowerStaysBehind) {
            stream.hop = hop;
        }
        if !self.config.is(Mutant::FollowerWaitsForTimer) {
            stream.connection.go_on_elsewhere(now);
        }
        self.renote(id.index);
        self.go_on_from(now, id.index);
        Ok(())
    }

    fn go_on_from(&mut self, now: Instant, index: u32) {
        self.transmit(now, index);
        // (One that waits out its TIME-WAIT is as small as it was.)
        self.slots.rest(index);
        self.output.flush(&mut self.queues);
    }

    /// The connection between these addresses (ours, the peer's), whether the program has closed it, has yet to accept it, or has it.
    pub fn tcp_between(&self, local: SocketAddr, remote: SocketAddr) -> Option<FlowId> {
        let id = self.slots.id_at(self.demux.exact(FlowKey::new(Protocol::Tcp, local, remote))?);
        self.slots.find(id)?.stream_ends().map(|_| id)
    }

    /// The connection as bytes, as it is: a ring of the same process takes it from them ([`Ring::adopt_snapshot`]), before this one is left
    /// ([`Ring::detach_stream`]). `None`: as [`Handover::snapshot`]; or it has a rate of its own, which is its ring's.
    pub fn tcp_written(&mut self, id: FlowId) -> Option<Vec<u8>> {
        let stream = self.slots.stream(id).ok()?;
        if stream.is_paced || stream.silent != Silent::No {
            return None;
        }
        stream.connection.snapshot().map(|snapshot| snapshot.to_bytes())
    }

    /// A connection that this ring has just taken ([`Ring::adopt_snapshot`]) says nothing until [`Ring::tcp_speak`], whatever the program does with it: its
    /// peer is with the ring before it, and refuses what comes from here. What the peer sends here is heard. If it dies before, the
    /// connection is reset: what it sent last, nobody has.
    ///
    /// # Errors
    /// [`Error::BadSocket`], [`Error::NotSupported`] (not a stream).
    pub fn tcp_keep_silent(&mut self, id: FlowId) -> Result<(), Error> {
        let stream = self.slots.stream(id)?;
        if !self.config.is(Mutant::SpeaksUnfollowed) {
            stream.silent = Silent::UntilFollowed;
        }
        self.renote(id.index);
        Ok(())
    }

    /// The peer sends to this ring from now on, or is gone: the connection goes on. Nothing, if it is over, or has not been silent.
    pub fn tcp_speak(&mut self, now: Instant, id: FlowId) {
        if self.slots.find(id).is_none() {
            return;
        }
        if let Some(stream) = self.slots.stream_at(id.index)
            && stream.silent.ends(Silent::UntilFollowed)
            && !self.config.is(Mutant::FollowedSaysNothing)
        {
            stream.connection.go_on_elsewhere(now);
            self.go_on_from(now, id.index);
        }
    }
}

#[cfg(test)]
mod tests;
