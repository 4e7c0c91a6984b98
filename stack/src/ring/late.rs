//! Frames of connections that are between two owners: a connection is on its way from this ring to the kernel, or from there to this ring, and what its peer
//! sends meanwhile comes here, by the flow rule. It is kept, to be passed on or to be heard when the connection has arrived.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use super::Ring;
use super::input::{Packet, Rest};
use super::steering::Holder;
use super::udp::rule_error;
use crate::device::{ChecksumVerdict, Queues, RuleId, RxBuffer, RxFrame};
use crate::error::Error;
use crate::time::Instant;
use crate::wire::{ethernet, ipv4, ipv6};

/// Most frames of all such connections together. Later ones are dropped, as a full queue would: their sender sends them again.
const FRAMES_MAX: usize = 4096;

/// Ours, and the peer's.
type Ends = (SocketAddr, SocketAddr);

/// A packet that came for a connection which was between two owners.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LatePacket {
    /// From its IP header on, without what a link padded it with.
    pub bytes: Vec<u8>,
    /// The device has verified its checksums, or needs none: those in its headers need not be right.
    pub verified: bool,
}

/// The connections that are awaited, and what came for them.
pub(super) struct Late<B> {
    known: BTreeMap<Ends, Kept<B>>,
    /// Of all of them.
    frames: usize,
}

struct Kept<B> {
    frames: Vec<RxFrame<B>>,
    rule: Rule,
}

/// The flow rule of a connection that is awaited.
enum Rule {
    /// Whoever hands it over has it.
    Elsewhere,
    Pending(RuleId),
    Steers(RuleId),
    Failed(Error),
}

impl<B> Default for Late<B> {
    fn default() -> Self {
        Self { known: BTreeMap::new(), frames: 0 }
    }
}

impl<B: RxBuffer> Late<B> {
    #[inline]
    pub(super) fn awaits(&self, local: SocketAddr, remote: SocketAddr) -> bool {
        !self.known.is_empty() && self.known.contains_key(&(local, remote))
    }

    pub(super) fn rule_steers(&mut self, local: SocketAddr, remote: SocketAddr) {
        if let Some(kept) = self.known.get_mut(&(local, remote))
            && let Rule::Pending(rule) = kept.rule
        {
            kept.rule = Rule::Steers(rule);
        }
    }

    pub(super) fn rule_failed(&mut self, local: SocketAddr, remote: SocketAddr, error: Error) {
        if let Some(kept) = self.known.get_mut(&(local, remote)) {
            kept.rule = Rule::Failed(error);
        }
    }

    /// Whether a connection may arrive: its rule steers, if one was attached for it.
    pub(super) fn may_arrive(&self, ends: Ends) -> Result<(), Error> {
        match self.known.get(&ends).map(|kept| &kept.rule) {
            Some(Rule::Pending(_)) => Err(Error::InProgress),
            Some(Rule::Failed(error)) => Err(*error),
            Some(Rule::Steers(_) | Rule::Elsewhere) | None => Ok(()),
        }
    }

    /// Takes the rule of a connection that arrives.
    pub(super) fn take_rule(&mut self, ends: Ends) -> Option<RuleId> {
        let kept = self.known.get_mut(&ends)?;
        let Rule::Steers(rule) = kept.rule else { return None };
        kept.rule = Rule::Elsewhere;
        Some(rule)
    }

    /// It has not arrived after all.
    pub(super) fn keep_rule(&mut self, ends: Ends, rule: Option<RuleId>) {
        if let (Some(kept), Some(rule)) = (self.known.get_mut(&ends), rule) {
            kept.rule = Rule::Steers(rule);
        }
    }

    fn keep(&mut self, ends: Ends, frame: RxFrame<B>) {
        if let Some(kept) = self.known.get_mut(&ends)
            && self.frames < FRAMES_MAX
        {
            kept.frames.push(frame);
            self.frames += 1;
        }
    }

    fn take(&mut self, ends: Ends) -> Vec<RxFrame<B>> {
        let frames = self.known.get_mut(&ends).map(|kept| core::mem::take(&mut kept.frames)).unwrap_or_default();
        self.frames -= frames.len();
        frames
    }

    /// It is awaited no more; what came for it.
    pub(super) fn end(&mut self, ends: Ends) -> Vec<RxFrame<B>> {
        let frames = self.take(ends);
        self.known.remove(&ends);
        frames
    }
}

impl<Q: Queues> Ring<Q> {
    /// Keeps what comes from now on for a connection between these addresses (ours, the peer's) that was just handed over
    /// ([`Ring::detach_stream`]), instead of dropping it: until [`Ring::tcp_end_late`], or until the connection is adopted again, which then hears it.
    pub fn tcp_keep_late(&mut self, local: SocketAddr, remote: SocketAddr) {
        self.late.known.entry((local, remote)).or_insert(Kept { frames: Vec::new(), rule: Rule::Elsewhere });
    }

    /// Steers the frames of a connection between these addresses (ours, the peer's) to this ring, before the connection comes from another owner
    /// ([`Ring::adopt_snapshot`], once [`Ring::tcp_is_expected`]), and keeps them until then.
    ///
    /// # Errors
    /// [`Error::AddressInUse`] (it is here already, or another ring has the rule), [`Error::NoBuffers`], [`Error::NotSupported`]: nothing is steered here.
    pub fn tcp_expect(&mut self, local: SocketAddr, remote: SocketAddr) -> Result<(), Error> {
        if self.late.awaits(local, remote) || self.tcp_state(local, remote).is_some() {
            return Err(Error::AddressInUse);
        }
        let rule = self.rule_of(self.slots.next_index(), local, remote);
        let attached = self.attach(&rule).map_err(rule_error)?;
        let rule = if attached.is_ready { Rule::Steers(attached.rule) } else { Rule::Pending(attached.rule) };
        self.late.known.insert((local, remote), Kept { frames: Vec::new(), rule });
        self.hold(attached, Holder::Arrival(local, remote), None);
        Ok(())
    }

    /// Whether the frames of a connection that is expected are steered here: the other owner gets no more of them.
    ///
    /// # Errors
    /// Why they never will be, or [`Error::BadSocket`]: none is expected.
    pub fn tcp_is_expected(&self, local: SocketAddr, remote: SocketAddr) -> Result<bool, Error> {
        match self.late.known.get(&(local, remote)).map(|kept| &kept.rule) {
            Some(Rule::Pending(_)) => Ok(false),
            Some(Rule::Steers(_)) => Ok(true),
            Some(Rule::Failed(error)) => Err(*error),
            Some(Rule::Elsewhere) | None => Err(Error::BadSocket),
        }
    }

    /// Takes what has come so far for a connection that is between two owners. More may come.
    pub fn tcp_take_late(&mut self, local: SocketAddr, remote: SocketAddr) -> Vec<LatePacket> {
        self.late.take((local, remote)).iter().filter_map(packet_of).collect()
    }

    /// The connection has another owner for good, or stays with the one that was to give it away: its rule, if it was expected here, ends, and nothing more is
    /// kept. What had come.
    pub fn tcp_end_late(&mut self, local: SocketAddr, remote: SocketAddr) -> Vec<LatePacket> {
        if let Some(Kept { rule: Rule::Pending(rule) | Rule::Steers(rule), .. }) = self.late.known.get(&(local, remote)) {
            let rule = *rule;
            self.detach(rule);
        }
        self.late.end((local, remote)).iter().filter_map(packet_of).collect()
    }

    #[cold]
    #[inline(never)]
    pub(super) fn keep_late_frame(&mut self, local: SocketAddr, remote: SocketAddr, packet: Packet<'_, Q::Rx>) -> Option<()> {
        // (What is kept for others is not to cost the ring's own connections their buffers.)
        if self.queues.rx_scarce() {
            return None;
        }
        self.late.keep((local, remote), packet.frame.with_buffer(packet.body.map(Rest::into_buffer)));
        Some(())
    }

    /// The connection hears what came for it before it was here.
    pub(super) fn replay_late(&mut self, now: Instant, frames: Vec<RxFrame<Q::Rx>>) {
        if frames.is_empty() {
            return;
        }
        for mut frame in frames {
            let _ = self.on_frame(now, &mut frame);
        }
        for index in core::mem::take(&mut self.dirty) {
            self.transmit(now, index);
        }
        self.output.flush(&mut self.queues);
    }
}

fn packet_of<B: RxBuffer>(frame: &RxFrame<B>) -> Option<LatePacket> {
    let (link, at) = ethernet::Header::parse(frame.head()).ok()?;
    let mut bytes = vec![0; frame.len() - at];
    frame.copy_to(at, &mut bytes);
    let len = match link.ethertype {
        ethernet::ETHERTYPE_IPV4 => usize::from(ipv4::Header::parse(&bytes).ok()?.0.total_len),
        _ => ipv6::LEN + usize::from(ipv6::Header::parse(&bytes).ok()?.0.payload_len),
    };
    bytes.truncate(len);
    Some(LatePacket { bytes, verified: frame.meta.checksum == ChecksumVerdict::Good })
}

#[cfg(test)]
mod tests;
