//! What can go wrong on a link, and how often.

use core::fmt;
use core::ops::AddAssign;
use core::str::FromStr;
use core::time::Duration;

use crate::nic::NicFaultCounts;

bitflags::bitflags! {
    /// Fault classes, to be switched on and off by name.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct FaultSet: u32 {
        /// Frames vanish.
        const LOSS = 1;
        /// Frames arrive twice.
        const DUPLICATION = 2;
        /// Frames are held back and overtaken.
        const REORDERING = 4;
        /// Bits flip, so that a checksum notices.
        const CORRUPTION = 8;
    }
}

impl fmt::Display for FaultSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str("none");
        }
        for (i, (name, _)) in self.iter_names().enumerate() {
            write!(f, "{}{}", if i > 0 { "+" } else { "" }, name.to_ascii_lowercase())?;
        }
        Ok(())
    }
}

impl FromStr for FaultSet {
    type Err = UnknownFault;

    fn from_str(s: &str) -> Result<Self, UnknownFault> {
        match s {
            "none" => Ok(Self::empty()),
            "all" => Ok(Self::all()),
            _ => s.split('+').try_fold(Self::empty(), |set, name| {
                Self::from_name(&name.to_ascii_uppercase()).map(|class| set | class).ok_or_else(|| UnknownFault(name.to_owned()))
            }),
        }
    }
}

/// The caller: no fault class has that name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no fault class is called {0:?}")]
pub struct UnknownFault(pub String);

/// How often faults strike the frames of one link, in frames of a million, and how hard. The default: never.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// Frames that vanish.
    pub loss_ppm: u32,
    /// Frames that arrive a second time.
    pub duplication_ppm: u32,
    /// The most by which the second copy comes later than the first.
    pub duplication_delay_max: Duration,
    /// Frames that are held back while later ones pass.
    pub reordering_ppm: u32,
    /// The most by which a frame is held back.
    pub reordering_delay_max: Duration,
    /// Frames in which one burst of at most 15 bits flips behind the Ethernet header. A 16-bit ones'-complement sum catches every such
    /// burst (RFC 1071), so nothing that a checksum covers may reach a program changed. What carries no checksum (ARP)
    /// is dropped instead, as its frame check sequence would have it.
    pub corruption_ppm: u32,
}

impl Faults {
    /// The same strengths, for the classes in `keep` only.
    #[must_use]
    pub fn only(self, keep: FaultSet) -> Self {
        let ppm = |class, value| if keep.contains(class) { value } else { 0 };
        Self {
            loss_ppm: ppm(FaultSet::LOSS, self.loss_ppm),
            duplication_ppm: ppm(FaultSet::DUPLICATION, self.duplication_ppm),
            reordering_ppm: ppm(FaultSet::REORDERING, self.reordering_ppm),
            corruption_ppm: ppm(FaultSet::CORRUPTION, self.corruption_ppm),
            ..self
        }
    }
}

/// How often each fault struck.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaultCounts {
    /// Frames that vanished.
    pub lost: u64,
    /// Frames that arrived twice.
    pub duplicated: u64,
    /// Frames held back.
    pub held_back: u64,
    /// Frames in which bits flipped.
    pub corrupted: u64,
    /// Corrupted frames without a checksum, dropped for their frame check sequence.
    pub frame_check: u64,
    /// Frames that found a queue (a link's, or a host's receive queue or buffers) full.
    pub queue_full: u64,
    /// Faults of NICs.
    pub nic: NicFaultCounts,
}

impl AddAssign for FaultCounts {
    fn add_assign(&mut self, other: Self) {
        let Self { lost, duplicated, held_back, corrupted, frame_check, queue_full, nic } = self;
        *lost += other.lost;
        *duplicated += other.duplicated;
        *held_back += other.held_back;
        *corrupted += other.corrupted;
        *frame_check += other.frame_check;
        *queue_full += other.queue_full;
        *nic += other.nic;
    }
}
