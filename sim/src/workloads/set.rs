//! Which workloads a scenario has.

use core::fmt;
use core::str::FromStr;

bitflags::bitflags! {
    /// Workloads, to be switched on and off by name. A workload's bit is part of its stream's key: add, never renumber.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct WorkloadSet: u32 {
        /// Streams of bytes, one way or both at once.
        const BULK = 1;
        /// Requests and responses, turn by turn.
        const REQUEST = 1 << 1;
        /// Many short connections from few ports.
        const CHURN = 1 << 2;
        /// Connections that do nothing for a long time; then a few speak.
        const IDLE = 1 << 3;
        /// One side speaks only after the other has ended its stream.
        const HALF_CLOSE = 1 << 4;
        /// One side ends with a reset, or leaves while the other still writes.
        const ABORT = 1 << 5;
        /// More connections than a listener's backlog holds, accepted one by one.
        const OVERFLOW = 1 << 6;
        /// Datagrams and their echoes.
        const UDP = 1 << 7;
        /// Datagrams to a group whose members come and go.
        const MULTICAST = 1 << 8;
        /// Many sockets behind one epoll instance whose interests change all the time.
        const EPOLL = 1 << 9;
        /// Readers that rest, so that windows shut and open again.
        const SLOW = 1 << 10;
        /// Connections that move from program to program while data flow.
        const HANDOVER = 1 << 11;
        /// Two hosts that connect to each other at the same instant.
        const MEETING = 1 << 12;
        /// A peer of another make, that keeps to no law.
        const STRANGER = 1 << 13;
        /// Connections that leave their rings for another carrier, as those do that processes share.
        const SHARED = 1 << 14;
        /// Somebody who speaks ARP, ICMP, IGMP and UDP by hand.
        const PROBES = 1 << 15;
    }
}

impl fmt::Display for WorkloadSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str("none");
        }
        for (i, (name, _)) in self.iter_names().enumerate() {
            write!(f, "{}{}", if i > 0 { "+" } else { "" }, name.to_ascii_lowercase().replace('_', "-"))?;
        }
        Ok(())
    }
}

impl WorkloadSet {
    /// What there is in IPv4 alone: what is spoken by hand.
    pub const fn of_ipv4() -> Self {
        Self::PROBES
    }

    /// The names of all, as they are written.
    pub fn names() -> Vec<String> {
        Self::all().iter().map(|one| one.to_string()).collect()
    }
}

impl FromStr for WorkloadSet {
    type Err = UnknownWorkload;

    fn from_str(s: &str) -> Result<Self, UnknownWorkload> {
        match s {
            "none" => Ok(Self::empty()),
            "all" => Ok(Self::all()),
            _ => s.split('+').try_fold(Self::empty(), |set, name| {
                let known = Self::from_name(&name.to_ascii_uppercase().replace('-', "_"));
                known.map(|workload| set | workload).ok_or_else(|| UnknownWorkload(name.to_owned()))
            }),
        }
    }
}

/// The caller: no workload has that name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no workload is called {0:?}; it may be none, all, or some of these joined by +: {names}", names = WorkloadSet::names().join(", "))]
pub struct UnknownWorkload(pub String);
