//! What goes wrong with a NIC.
//!
//! Each class draws from a stream of its own, once for each occasion: a frame that arrives or leaves, a call. A condition that a fault brings
//! about lasts for a time; whoever was refused meanwhile is woken when it ends.

use core::time::Duration;

use ringway_stack::Instant;

use crate::faults::FaultSet;
use crate::random::{Purpose, RandomStream, scale};

/// The classes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NicFault {
    /// The NIC resets: what it had queued, and what nobody polled, is lost, and it is down for a time. Drawn for each frame that arrives.
    Reset,
    /// A send completes with an error: that frame and those behind it are lost until the queue has recovered, their buffers come back.
    /// Drawn for each frame that leaves.
    SendError,
    /// A completion queue overruns: what its ring had received and nobody polled is lost, and nothing is received until it has been
    /// made anew. Drawn for each frame that arrives.
    CqOverrun,
    /// No receive buffer is posted for a time. Drawn for each frame that arrives.
    RxExhausted,
    /// The send queue takes nothing for a time. Drawn for each send call.
    SendFull,
    /// Buffers and rules cannot be registered for a time. Drawn for each call that would.
    Registration,
    /// A doorbell takes effect late. Drawn for each doorbell.
    Doorbell,
    /// A completion is told late, and so are those behind it: until then, buffers and places in the queue are taken. Drawn for each frame that has left.
    Completion,
}

impl NicFault {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 8] = [
        Self::Reset,
        Self::SendError,
        Self::CqOverrun,
        Self::RxExhausted,
        Self::SendFull,
        Self::Registration,
        Self::Doorbell,
        Self::Completion,
    ];

    const fn purpose(self) -> Purpose {
        match self {
            Self::Reset => Purpose::NicReset,
            Self::SendError => Purpose::SendError,
            Self::CqOverrun => Purpose::CqOverrun,
            Self::RxExhausted => Purpose::RxExhausted,
            Self::SendFull => Purpose::SendFull,
            Self::Registration => Purpose::Registration,
            Self::Doorbell => Purpose::Doorbell,
            Self::Completion => Purpose::Completion,
        }
    }

    /// The class as hosts and links have it.
    pub(super) const fn class(self) -> FaultSet {
        match self {
            Self::Reset => FaultSet::NIC_RESET,
            Self::SendError => FaultSet::SEND_ERROR,
            Self::CqOverrun => FaultSet::CQ_OVERRUN,
            Self::RxExhausted => FaultSet::RX_EXHAUSTED,
            Self::SendFull => FaultSet::SEND_FULL,
            Self::Registration => FaultSet::REGISTRATION,
            Self::Doorbell => FaultSet::DOORBELL,
            Self::Completion => FaultSet::COMPLETION,
        }
    }
}

/// How often a class strikes, in occasions of a million, and for how long at most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Strength {
    /// Occasions of a million.
    pub ppm: u32,
    /// The longest that it lasts.
    pub lasts_max: Duration,
}

/// Strengths of all classes. The default: never.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NicFaults {
    /// See [`NicFault::Reset`].
    pub reset: Strength,
    /// See [`NicFault::SendError`].
    pub send_error: Strength,
    /// See [`NicFault::CqOverrun`].
    pub cq_overrun: Strength,
    /// See [`NicFault::RxExhausted`].
    pub rx_exhausted: Strength,
    /// See [`NicFault::SendFull`].
    pub send_full: Strength,
    /// See [`NicFault::Registration`].
    pub registration: Strength,
    /// See [`NicFault::Doorbell`].
    pub doorbell: Strength,
    /// See [`NicFault::Completion`].
    pub completion: Strength,
}

impl NicFaults {
    /// The same strengths, for the classes in `keep` only.
    #[must_use]
    pub fn only(mut self, keep: FaultSet) -> Self {
        for fault in NicFault::ALL {
            if !keep.contains(fault.class()) {
                self.strength_mut(fault).ppm = 0;
            }
        }
        self
    }

    /// The strength of one class.
    pub fn strength_mut(&mut self, fault: NicFault) -> &mut Strength {
        match fault {
            NicFault::Reset => &mut self.reset,
            NicFault::SendError => &mut self.send_error,
            NicFault::CqOverrun => &mut self.cq_overrun,
            NicFault::RxExhausted => &mut self.rx_exhausted,
            NicFault::SendFull => &mut self.send_full,
            NicFault::Registration => &mut self.registration,
            NicFault::Doorbell => &mut self.doorbell,
            NicFault::Completion => &mut self.completion,
        }
    }
}

/// A fault that struck.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NicStrike {
    /// Its class.
    pub fault: NicFault,
    /// The ring that it struck; the first one if it strikes all.
    pub ring: usize,
    /// How long it lasts.
    pub lasts: Duration,
}

/// The dice of one NIC.
#[derive(Debug)]
pub(super) struct Trouble {
    strengths: [Strength; NicFault::ALL.len()],
    streams: [RandomStream; NicFault::ALL.len()],
    pub(super) on: bool,
    /// No class ever strikes.
    pub(super) calm: bool,
    strikes: Vec<NicStrike>,
}

impl Trouble {
    pub(super) fn new(mut faults: NicFaults, seed: u64, host: u32) -> Self {
        Self {
            strengths: NicFault::ALL.map(|fault| *faults.strength_mut(fault)),
            streams: NicFault::ALL.map(|fault| RandomStream::new(seed, fault.purpose(), host, 0)),
            on: true,
            calm: NicFault::ALL.iter().all(|&fault| faults.strength_mut(fault).ppm == 0),
            strikes: Vec::new(),
        }
    }

    /// Whether the class strikes on this occasion, and until when. An occasion takes two numbers from the class's stream, struck or not; a
    /// class that cannot strike takes none, since nothing follows from its stream.
    #[inline]
    pub(super) fn strikes(&mut self, fault: NicFault, ring: usize, now: Instant) -> Option<Instant> {
        if self.calm { None } else { self.draw(fault, ring, now) }
    }

    fn draw(&mut self, fault: NicFault, ring: usize, now: Instant) -> Option<Instant> {
        let Strength { ppm, lasts_max } = self.strengths[fault as usize];
        if !self.on || ppm == 0 {
            return None;
        }
        let stream = &mut self.streams[fault as usize];
        let (hit, detail) = (stream.below(1_000_000), stream.bits());
        if hit >= u64::from(ppm) {
            return None;
        }
        let max_ns = u64::try_from(lasts_max.as_nanos()).unwrap_or(u64::MAX);
        // At least a nanosecond: a condition that ends as it begins is none.
        let lasts = Duration::from_nanos(scale(detail, max_ns).saturating_add(1));
        self.strikes.push(NicStrike { fault, ring, lasts });
        Some(now + lasts)
    }

    /// What struck since the last call.
    pub(super) fn take_strikes(&mut self) -> Vec<NicStrike> {
        core::mem::take(&mut self.strikes)
    }
}
