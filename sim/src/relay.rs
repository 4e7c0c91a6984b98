//! A link with faults, without a [`World`](crate::World) around it: for whoever has frames of his own, and a clock.
//!
//! Two ports, and the simulator's links behind them: what comes in at one port leaves by the other one, unless it is lost, and later, twice, changed or
//! overtaken, as the [`LinkConfig`] has it. Time comes in with the frames, and deadlines go out ([`Relay::next_at`]), so that one seed and the same frames at
//! the same times have the same fate, whether the time is a clock's or made up.
//!
//! Everything that a [`LinkConfig`] tells holds here, but for two classes, which take more than two hosts or a world: partitions, one way or both. Each way
//! has a queue of [`LinkConfig::queue_bytes_max`], and takes a frame of which it has no room for none of.

use std::rc::Rc;

use arrayvec::ArrayVec;
use ringway_stack::Instant;

use crate::fabric::{Direction, Frame, Lane, LinkConfig, Marks, Strike, WEATHER, icmp};
use crate::faults::{Course, FaultCounts, FaultSet, Plan, TIMED};
use crate::queue::EventQueue;
use crate::random::{Purpose, RandomStream};

/// One of a relay's two sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Port {
    /// The first.
    Near,
    /// The second.
    Far,
}

impl Port {
    /// Both.
    pub const BOTH: [Self; 2] = [Self::Near, Self::Far];

    /// The other one.
    #[must_use]
    pub fn other(self) -> Self {
        match self {
            Self::Near => Self::Far,
            Self::Far => Self::Near,
        }
    }
}

/// A frame that leaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leaving {
    /// When.
    pub at: Instant,
    /// By which port.
    pub port: Port,
    /// From the Ethernet header on, without a frame check sequence.
    pub bytes: Rc<[u8]>,
    /// What has befallen it.
    pub marks: Marks,
}

/// A link with faults between two ports.
#[derive(Debug)]
pub struct Relay {
    /// By the port at which they end.
    lanes: [Lane; 2],
    config: LinkConfig,
    spells: ArrayVec<Spell, 4>,
    silence: RandomStream,
    /// What is under way.
    agenda: EventQueue<(Port, Frame)>,
    counts: FaultCounts,
    now: Instant,
    arrived: u64,
    left: u64,
}

/// The episodes of one class, one after the other.
#[derive(Debug)]
struct Spell {
    class: FaultSet,
    course: Course,
    /// The one that comes, or is here.
    plan: Plan,
    /// When it begins or ends.
    turn: Instant,
    is_here: bool,
}

impl Relay {
    /// A relay whose links are both as `config` says. Its time begins at zero.
    pub fn new(seed: u64, config: LinkConfig) -> Self {
        // (The switch's side of a link is the one whose queue is bounded.)
        let lanes = Port::BOTH.map(|port| Lane::new(seed, port as usize, Direction::Down, config));
        let of_a_link = TIMED.iter().filter(|(class, _)| WEATHER.contains(*class) && !config.faults.episodes(*class).never());
        let spells = of_a_link.map(|&(class, purpose)| {
            let mut course = Course::new(seed, purpose, 0);
            let plan = course.next(config.faults.episodes(class));
            Spell { class, turn: Instant::ZERO + plan.after, course, plan, is_here: false }
        });
        Self {
            lanes,
            config,
            spells: spells.collect(),
            silence: RandomStream::new(seed, Purpose::MtuSilence, 0, 0),
            agenda: EventQueue::new(),
            counts: FaultCounts::default(),
            now: Instant::ZERO,
            arrived: 0,
            left: 0,
        }
    }

    /// A frame arrived at a port, at `at`; or when the one before it did, if that was later.
    pub fn arrive(&mut self, at: Instant, port: Port, bytes: &[u8]) {
        self.now = self.now.max(at);
        self.change_weather();
        let frame = Frame { id: self.arrived, bytes: bytes.into(), marks: Marks::default(), sound: false, unsolicited: false };
        self.arrived += 1;
        self.carry(port.other(), frame);
    }

    /// When the next frame leaves, if one is under way.
    pub fn next_at(&self) -> Option<Instant> {
        self.agenda.next_at()
    }

    /// The next frame that leaves no later than `until`.
    pub fn leave(&mut self, until: Instant) -> Option<Leaving> {
        let (at, (port, frame)) = self.agenda.pop_until(until)?;
        self.left += 1;
        Some(Leaving { at, port, bytes: frame.bytes, marks: frame.marks })
    }

    /// How often each fault has struck.
    pub fn counts(&self) -> FaultCounts {
        self.counts
    }

    /// Frames that arrived, and frames that left.
    pub fn passed(&self) -> [u64; 2] {
        [self.arrived, self.left]
    }

    fn carry(&mut self, to: Port, frame: Frame) {
        let passage = self.lanes[to as usize].offer(self.now, frame, true);
        for (strike, before) in passage.strikes.into_iter().zip(passage.before.iter().cycle()) {
            *self.counts.of_strike(strike) += 1;
            if let Strike::TooLong { mtu } = strike {
                self.fragmentation_needed(to.other(), before, mtu);
            }
        }
        for arrival in passage.arrivals {
            self.agenda.push_in(to as usize, arrival.at, (to, arrival.frame));
        }
    }

    /// Tells who is behind `port` that a frame of his was too long, unless this router is one of those that don't.
    fn fragmentation_needed(&mut self, port: Port, frame: &Frame, mtu: u16) {
        let silent_ppm = self.config.faults.mtu_silence_ppm;
        if silent_ppm > 0 && self.silence.chance_ppm(silent_ppm) {
            return;
        }
        let Some((_, bytes)) = icmp::fragmentation_needed(&frame.bytes, mtu) else { return };
        self.counts.fragmentation_needed += 1;
        self.carry(port, Frame { bytes: bytes.into(), marks: Marks::ROUTER, ..frame.clone() });
    }

    /// Begins and ends the episodes that did since the last frame. (What no frame meets need not be looked at.)
    fn change_weather(&mut self) {
        for spell in &mut self.spells {
            while spell.turn <= self.now {
                if spell.is_here {
                    self.lanes.iter_mut().for_each(|lane| lane.conditions_mut().end(spell.class));
                    spell.plan = spell.course.next(self.config.faults.episodes(spell.class));
                    spell.turn += spell.plan.after;
                } else {
                    let mishap = self.config.episode(spell.class, spell.plan.detail);
                    self.lanes.iter_mut().for_each(|lane| lane.conditions_mut().begin(mishap));
                    self.counts.of_mishap(mishap).into_iter().for_each(|count| *count += 1);
                    spell.turn += spell.plan.length;
                }
                spell.is_here = !spell.is_here;
            }
        }
    }
}

#[cfg(test)]
mod tests;
