//! Rates of single flows (SO_MAX_PACING_RATE): kept by the device, where it paces flows (their frames carry the flow's tag, its slot's number and one), and
//! else by the ring, for connections ([`meter`]).

mod meter;

use std::collections::{BTreeMap, BTreeSet};

pub(super) use self::meter::Meter;
use super::Ring;
use super::slots::Flow;
use super::types::FlowId;
use crate::device::{Pacing, Queues, RateError};
use crate::error::Error;
use crate::mutants::Mutant;
use crate::tcp;
use crate::time::Instant;

/// The rates, by their flows' slots.
#[derive(Debug)]
pub(super) struct Rates {
    all: BTreeMap<u32, Rate>,
    /// Connections that wait for their rates, and until when.
    turns: BTreeSet<(Instant, u32)>,
    /// When the first of them has waited for long enough.
    next: Instant,
}

#[derive(Debug)]
struct Rate {
    pacing: Pacing,
    /// Of one that the ring keeps.
    meter: Option<Meter>,
}

/// Who sees to it that a flow keeps its rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keeper {
    Device,
    Ring,
}

impl Default for Rates {
    fn default() -> Self {
        Self { all: BTreeMap::new(), turns: BTreeSet::new(), next: Instant::MAX }
    }
}

impl Rates {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub(super) fn of(&self, index: u32) -> Option<Pacing> {
        self.all.get(&index).map(|rate| rate.pacing)
    }

    pub(super) fn insert(&mut self, index: u32, pacing: Pacing, keeper: Keeper) {
        let meter = (keeper == Keeper::Ring).then(|| Meter::new(pacing));
        self.all.insert(index, Rate { pacing, meter });
    }

    /// Whose rate it was, if there was one.
    fn remove(&mut self, index: u32) -> Option<Keeper> {
        self.end_turn(index);
        self.all.remove(&index).map(|rate| if rate.meter.is_some() { Keeper::Ring } else { Keeper::Device })
    }

    /// Of a flow whose rate the ring keeps.
    pub(super) fn meter(&mut self, index: u32) -> Option<&mut Meter> {
        self.all.get_mut(&index)?.meter.as_mut()
    }

    /// A connection that its meter has just refused something waits until that has its turn. `false`: the meter has not.
    pub(super) fn awaits_turn(&mut self, index: u32) -> bool {
        let Some(meter) = self.meter(index) else { return false };
        let Some(turn) = meter.take_refused() else { return false };
        if let Some(before) = meter.turn.replace(turn) {
            self.turns.remove(&(before, index));
        }
        self.turns.insert((turn, index));
        self.find_next();
        true
    }

    fn end_turn(&mut self, index: u32) {
        if let Some(turn) = self.meter(index).and_then(|meter| meter.turn.take()) {
            self.turns.remove(&(turn, index));
            self.find_next();
        }
    }

    fn find_next(&mut self) {
        self.next = self.turns.first().map_or(Instant::MAX, |&(turn, _)| turn);
    }

    /// When the first connection has waited for long enough, if any waits.
    pub(super) fn next_turn(&self) -> Option<Instant> {
        (self.next != Instant::MAX).then_some(self.next)
    }

    /// Whether one has.
    #[inline(always)]
    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.next <= now
    }

    /// One that has.
    fn take_due(&mut self, now: Instant) -> Option<u32> {
        let &(_, index) = self.turns.first().filter(|(turn, _)| *turn <= now)?;
        self.end_turn(index);
        Some(index)
    }
}

/// What the frames of the flow in this slot carry.
#[inline]
pub(super) const fn tag(index: u32) -> u32 {
    index + 1
}

impl<Q: Queues> Ring<Q> {
    /// Limits how fast what is this flow's is sent, a connection's or a UDP socket's, until it ends; it goes with a connection to another ring
    /// ([`Ring::adopt`]), and does not go to another process. [`Pacing::UNLIMITED`] lifts the limit. Where the device paces no flows, the ring keeps a
    /// connection's rate, and a UDP socket has none (as on Linux, where only a queueing discipline paces datagrams).
    ///
    /// # Errors
    /// [`Error::NotSupported`] (a UDP socket's, on a device that paces no flows, or it is a listener), [`Error::NoBuffers`] (as many have a rate as can),
    /// [`Error::BadSocket`]; the flow has the rate that it had.
    pub fn set_rate(&mut self, now: Instant, flow: FlowId, rate: Pacing) -> Result<(), Error> {
        let is_stream = match self.slots.find(flow).ok_or(Error::BadSocket)? {
            Flow::Stream(stream) if !stream.orphan => true,
            Flow::Udp(_) => false,
            Flow::Listener(_) => return Err(Error::NotSupported),
            Flow::Stream(_) | Flow::Resting(_) => return Err(Error::BadSocket),
        };
        if self.config.is(Mutant::FlowRateOfWholeRing) {
            return self.queues.pace(rate).map_err(|_| Error::NotSupported);
        }
        let keeper = self.keeper_of(flow.index, rate, is_stream)?;
        let is_paced = rate.rate_bps > 0;
        match self.slots.at(flow.index) {
            Some(Flow::Stream(stream)) => stream.is_paced = is_paced,
            Some(Flow::Udp(udp)) => udp.is_paced = is_paced,
            _ => {}
        }
        let former = self.rates.remove(flow.index);
        if is_paced {
            self.rates.insert(flow.index, rate, keeper);
        }
        if is_stream && (keeper == Keeper::Ring || former == Some(Keeper::Ring)) {
            // What the device is given to cut is no longer than a burst; and what waited for the rate before may go now.
            self.tcp_configure(now, flow, |_| {})?;
        }
        Ok(())
    }

    /// Tells the device of the rate of the flow in this slot, or finds that the ring has to keep it.
    pub(super) fn keeper_of(&mut self, index: u32, rate: Pacing, is_stream: bool) -> Result<Keeper, Error> {
        match self.queues.set_rate(tag(index), rate) {
            Ok(()) => Ok(Keeper::Device),
            Err(RateError::Unsupported(_)) if is_stream => Ok(Keeper::Ring),
            Err(RateError::Unsupported(_)) => Err(Error::NotSupported),
            Err(RateError::Full) => Err(Error::NoBuffers),
        }
    }

    /// A connection's configuration, held to its rate.
    pub(super) fn held_to_rate(&mut self, index: u32, config: &mut tcp::Config) {
        if let Some(meter) = self.rates.meter(index) {
            config.tso_max = config.tso_max.min(meter.burst());
        }
    }

    /// Lets those send that have waited for their rates.
    #[inline(never)]
    pub(super) fn send_in_turn(&mut self, now: Instant) -> usize {
        let mut count = 0;
        while let Some(index) = self.rates.take_due(now) {
            count += 1;
            if !self.config.is(Mutant::RateTurnForgotten) {
                self.transmit(now, index);
            }
        }
        count
    }

    /// A flow's rate, if it has one.
    pub fn rate(&self, flow: FlowId) -> Option<Pacing> {
        self.slots.find(flow).and_then(|_| self.rates.of(flow.index))
    }

    /// A flow has left its slot, which may be another's next.
    #[inline]
    pub(super) fn forget_rate(&mut self, index: u32) {
        if !self.rates.is_empty() && !self.config.is(Mutant::FlowRateOutlivesFlow) {
            self.end_rate(index);
        }
    }

    #[cold]
    fn end_rate(&mut self, index: u32) {
        if self.rates.remove(index) == Some(Keeper::Device) {
            // (Nothing can be in the way of a limit that is lifted.)
            let lifted = self.queues.set_rate(tag(index), Pacing::UNLIMITED);
            debug_assert!(lifted.is_ok(), "a rate that was set can be lifted: {lifted:?}");
            self.held.iter_mut().filter(|held| held.flow == tag(index)).for_each(|held| held.flow = 0);
        }
    }
}

#[cfg(test)]
mod tests;
