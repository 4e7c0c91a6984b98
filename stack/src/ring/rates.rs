//! Rates of single flows (SO_MAX_PACING_RATE), where the device paces them: their frames carry the flow's tag, its slot's number and one.

use std::collections::BTreeMap;

use super::Ring;
use super::slots::Flow;
use super::types::FlowId;
use crate::device::{Pacing, Queues, RateError};
use crate::error::Error;
use crate::mutants::Mutant;

/// The rates, by their flows' slots.
#[derive(Debug, Default)]
pub(super) struct Rates(BTreeMap<u32, Pacing>);

impl Rates {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn of(&self, index: u32) -> Option<Pacing> {
        self.0.get(&index).copied()
    }

    pub(super) fn insert(&mut self, index: u32, rate: Pacing) {
        self.0.insert(index, rate);
    }
}

/// What the frames of the flow in this slot carry.
#[inline]
pub(super) const fn tag(index: u32) -> u32 {
    index + 1
}

impl<Q: Queues> Ring<Q> {
    /// Limits how fast the device sends what is this flow's, a connection's or a UDP socket's, until it ends; it goes with a connection to another ring of the
    /// device ([`Ring::adopt`]), and does not go to another process. [`Pacing::UNLIMITED`] lifts the limit.
    ///
    /// # Errors
    /// [`Error::NotSupported`] (the device paces no flows, or it is a listener), [`Error::NoBuffers`] (as many have a rate as can),
    /// [`Error::BadSocket`]; the flow has the rate that it had.
    pub fn set_rate(&mut self, flow: FlowId, rate: Pacing) -> Result<(), Error> {
        match self.slots.find(flow).ok_or(Error::BadSocket)? {
            Flow::Stream(stream) if !stream.orphan => {}
            Flow::Udp(_) => {}
            Flow::Listener(_) => return Err(Error::NotSupported),
            Flow::Stream(_) | Flow::Resting(_) => return Err(Error::BadSocket),
        }
        if self.config.is(Mutant::FlowRateOfWholeRing) {
            return self.queues.pace(rate).map_err(|_| Error::NotSupported);
        }
        self.queues.set_rate(tag(flow.index), rate).map_err(rate_error)?;
        let is_paced = rate.rate_bps > 0;
        match self.slots.at(flow.index) {
            Some(Flow::Stream(stream)) => stream.is_paced = is_paced,
            Some(Flow::Udp(udp)) => udp.is_paced = is_paced,
            _ => {}
        }
        if is_paced {
            self.rates.insert(flow.index, rate);
        } else {
            self.rates.0.remove(&flow.index);
        }
        Ok(())
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
        if self.rates.0.remove(&index).is_some() {
            // (Nothing can be in the way of a limit that is lifted.)
            let lifted = self.queues.set_rate(tag(index), Pacing::UNLIMITED);
            debug_assert!(lifted.is_ok(), "a rate that was set can be lifted: {lifted:?}");
            self.held.iter_mut().filter(|held| held.flow == tag(index)).for_each(|held| held.flow = 0);
        }
    }
}

pub(super) fn rate_error(error: RateError) -> Error {
    match error {
        RateError::Unsupported(_) => Error::NotSupported,
        RateError::Full => Error::NoBuffers,
    }
}

#[cfg(test)]
mod tests;
