//! What can go wrong, how often and how hard: the fault classes by name ([`FaultSet`]), their strengths on a link ([`Faults`]) and
//! on a host ([`HostFaults`]), and how often each struck ([`FaultCounts`]).
//!
//! Classes are of two kinds. Some judge *frames*, one by one; others strike in [`Episodes`] of virtual time. Each has streams of
//! its own ([`crate::random`]) and does nothing at strength zero, so that switching one off leaves all others as they were.

mod counts;
mod draw;
mod episodes;
mod forgery;
mod host;
mod link;
mod mishap;

pub use counts::FaultCounts;
pub use episodes::Episodes;
pub(crate) use episodes::{Course, Plan, TIMED};
pub use forgery::Forgery;
pub use host::HostFaults;
pub use link::Faults;
pub use mishap::Mishap;

use core::fmt;
use core::str::FromStr;

bitflags::bitflags! {
    /// Fault classes, to be switched on and off by name.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub struct FaultSet: u32 {
        /// Frames vanish.
        const LOSS = 1;
        /// Frames arrive twice.
        const DUPLICATION = 1 << 1;
        /// Frames are held back and overtaken.
        const REORDERING = 1 << 2;
        /// Bits flip, so that a checksum notices.
        const CORRUPTION = 1 << 3;
        /// Frames vanish in bursts (Gilbert-Elliott).
        const BURST_LOSS = 1 << 4;
        /// Payload bits flip, and no checksum notices.
        const HIDDEN_CORRUPTION = 1 << 5;
        /// A link is slower for a while, and uneven.
        const DELAY = 1 << 6;
        /// A link has less bandwidth and shorter queues for a while.
        const BANDWIDTH = 1 << 7;
        /// A path's MTU shrinks for a while.
        const MTU = 1 << 8;
        /// Groups of hosts are cut off from each other for a while.
        const PARTITION = 1 << 9;
        /// A group of hosts doesn't hear another for a while, which hears it.
        const ONE_WAY = 1 << 10;
        /// A link loses its carrier for a while.
        const FLAP = 1 << 11;
        /// A NIC starts anew: frames in flight are lost.
        const NIC_RESET = 1 << 12;
        /// A send completes with an error.
        const SEND_ERROR = 1 << 13;
        /// A completion queue overruns.
        const CQ_OVERRUN = 1 << 14;
        /// A NIC runs out of receive buffers.
        const RX_EXHAUSTED = 1 << 15;
        /// A NIC's send queue is full.
        const SEND_FULL = 1 << 16;
        /// Memory can't be registered, or a flow rule not attached.
        const REGISTRATION = 1 << 17;
        /// A NIC notices a doorbell late.
        const DOORBELL = 1 << 18;
        /// A host's clock jumps forward.
        const CLOCK = 1 << 19;
        /// A host doesn't poll for a while.
        const PAUSE = 1 << 20;
        /// A host crashes, and starts again with the same addresses.
        const CRASH = 1 << 21;
        /// A host's Ethernet address changes, or it forgets its neighbours'.
        const NEIGHBOUR = 1 << 22;
        /// ICMP errors are forged, and true ones come late.
        const ICMP = 1 << 23;
        /// An attacker copies frames that he sees, and rewrites them.
        const FORGE = 1 << 24;
        /// A NIC tells late what it has sent.
        const COMPLETION = 1 << 25;
        /// A router marks frames that are capable of it (RFC 3168 s5).
        const MARK = 1 << 26;
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

impl FaultSet {
    /// The names of all, as they are written.
    pub fn names() -> Vec<String> {
        Self::all().iter().map(|one| one.to_string()).collect()
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
#[error("no fault class is called {0:?}; it may be none, all, or some of these joined by +: {names}", names = FaultSet::names().join(", "))]
pub struct UnknownFault(pub String);

#[cfg(test)]
mod tests;
