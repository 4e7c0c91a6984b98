//! From ring to ring: of this process, as it is; of another, as bytes.

use std::io;
use std::net::SocketAddr;

use ringway_stack::Instant;
use ringway_stack::device::Queues;
use ringway_stack::ring::{FlowId, Handover, LatePacket, NextHop, Ring};

use super::{Leave, LeaveError, Refused, Way};

/// The way to another ring of this process and device. (The caller holds that ring's lock, and no other.)
pub struct ToRing<'a, Q: Queues> {
    /// The ring.
    pub ring: &'a mut Ring<Q>,
    /// When it takes the connection.
    pub now: Instant,
}

impl<Q: Queues> Leave<Q> for ToRing<'_, Q> {
    type Left = FlowId;

    fn way(&self) -> Way {
        Way::Ring
    }

    /// The rule moves with it, and what came late for the old ring is lost there, as a busy network would lose it.
    fn leave(&mut self, handover: Handover<Q>, _: &mut dyn FnMut() -> Vec<LatePacket>) -> Result<FlowId, Refused<Q>> {
        self.ring.adopt(self.now, handover).map_err(|(error, handover)| Refused { error: LeaveError::Ring(error), handover })
    }
}

/// A connection as another process gets it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// Our address.
    pub local: SocketAddr,
    /// The peer's.
    pub remote: SocketAddr,
    /// Where that is.
    pub hop: NextHop,
    /// For [`Ring::adopt_snapshot`].
    pub snapshot: Vec<u8>,
}

/// The way to a ring of another process: `offer` brings it there, and returns once it has been adopted, or not.
#[derive(Debug)]
pub struct ToProcess<F> {
    /// How the other process is told.
    pub offer: F,
}

impl<Q: Queues, F: FnMut(Written) -> io::Result<()>> Leave<Q> for ToProcess<F> {
    type Left = ();

    fn way(&self) -> Way {
        Way::Ring
    }

    /// The rule ends before the other ring asks for one of these addresses: between processes of shared memory, where no kernel answers meanwhile.
    fn leave(&mut self, mut handover: Handover<Q>, _: &mut dyn FnMut() -> Vec<LatePacket>) -> Result<(), Refused<Q>> {
        let Some(snapshot) = handover.snapshot() else { return Err(Refused { error: LeaveError::Engaged, handover }) };
        handover.end_rule();
        let written = Written { local: handover.local(), remote: handover.remote(), hop: handover.hop(), snapshot };
        (self.offer)(written).map_err(|error| Refused { error: LeaveError::Process(error), handover })
    }
}
