//! Strengths of what befalls a host.

use core::time::Duration;

use super::{Episodes, FaultSet};

/// What goes wrong with one host. The default: nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostFaults {
    /// When its clock jumps: forward, by up to `length_max`. Its clock is its own; the world's doesn't jump. Many tiny jumps are drift. (A clock
    /// that runs slow is one beside which all others run fast; none goes back, as CLOCK_MONOTONIC never does.)
    pub clock: Episodes,
    /// When it doesn't poll, nor run its programs.
    pub pause: Episodes,
    /// When it is down after a crash. Its sockets and programs vanish without a word; it starts again with the same addresses, and with
    /// the programs that [`crate::World::add_restartable`] gave it.
    pub crash: Episodes,
    /// When its Ethernet address changes (a failover, a migrated machine), with or without an announcement, or it forgets its neighbours'.
    /// Each takes but an instant: `length_max` has no meaning.
    pub neighbour: Episodes,
    /// When an attacker off the path sends it an ICMP error about one of its connections, whose addresses and ports he guessed, but not
    /// its sequence numbers (RFC 5927 s2). Each takes but an instant. UDP is left alone, since nothing in it tells a
    /// forged error from a true one.
    pub icmp: Episodes,
    /// Of a million frames that it hears, after so many an attacker on the path sends it a forged one ([`super::Forgery`]): such that an RFC
    /// lets it have no effect, or none that a connection does not survive.
    pub forge_ppm: u32,
    /// He lies about neighbours as well, which ARP has nothing against (RFC 826): connections may end for that.
    pub forge_lies: bool,
}

impl HostFaults {
    /// The same strengths, for the classes in `keep` only.
    #[must_use]
    pub fn only(self, keep: FaultSet) -> Self {
        Self {
            clock: self.clock.kept(keep.contains(FaultSet::CLOCK)),
            pause: self.pause.kept(keep.contains(FaultSet::PAUSE)),
            crash: self.crash.kept(keep.contains(FaultSet::CRASH)),
            neighbour: self.neighbour.kept(keep.contains(FaultSet::NEIGHBOUR)),
            icmp: self.icmp.kept(keep.contains(FaultSet::ICMP)),
            forge_ppm: if keep.contains(FaultSet::FORGE) { self.forge_ppm } else { 0 },
            ..self
        }
    }

    /// The longest time that the host may be gone at once: add it to what a liveness phase allows.
    pub fn absence_max(&self) -> Duration {
        let length = |episodes: Episodes| if episodes.never() { Duration::ZERO } else { episodes.length_max };
        length(self.pause) + length(self.crash)
    }
}
