//! The log, and the bugs.

use core::fmt;
use core::str::FromStr;

use ringway_sim::program::Storage;

/// What is wrong with the primary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bug {
    /// Nothing.
    None,
    /// A request that comes again is appended again.
    Twice,
    /// A request is answered before a quorum has it.
    Early,
    /// A node says that it has a request before that is on its disk.
    Unsynced,
}

impl fmt::Display for Bug {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "none",
            Self::Twice => "twice",
            Self::Early => "early",
            Self::Unsynced => "unsynced",
        })
    }
}

impl FromStr for Bug {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        let all = [Self::None, Self::Twice, Self::Early, Self::Unsynced];
        all.into_iter().find(|bug| bug.to_string() == s).ok_or_else(|| format!("no such bug: {s}"))
    }
}

/// A node's log, on its disk: requests by their numbers, in the order in which they were appended.
#[derive(Clone)]
pub(crate) struct Log {
    disk: Storage,
    bug: Bug,
}

impl Log {
    pub(crate) fn new(disk: &Storage, bug: Bug) -> Self {
        Self { disk: disk.clone(), bug }
    }

    /// All of it.
    pub(crate) fn requests(&self) -> Vec<u64> {
        let number = |value: Vec<u8>| value.try_into().map_or(0, u64::from_be_bytes);
        self.disk.entries().into_iter().map(|(_, value)| number(value)).collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.disk.entries().len()
    }

    /// Appends, durably, and says at which index.
    pub(crate) fn append(&self, request: u64) -> usize {
        let index = self.len();
        self.disk.put((index as u64).to_be_bytes(), request.to_be_bytes());
        if self.bug != Bug::Unsynced {
            self.disk.sync();
        }
        index
    }

    /// Where a request stands.
    pub(crate) fn position(&self, request: u64) -> Option<usize> {
        self.requests().iter().position(|&held| held == request)
    }
}
