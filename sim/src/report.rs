//! What a run came to, and the proof that it comes to the same again.

use core::fmt;

use ringway_stack::Instant;
use ringway_stack::marks::MarkCounts;

use crate::faults::FaultCounts;
use crate::reached::Reached;
use crate::trace::TraceHash;

/// What a run came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// The seed that it followed from.
    pub seed: u64,
    /// The hash of everything that happened on the wire.
    pub hash: TraceHash,
    /// How many things happened on the wire.
    pub events: u64,
    /// How often faults struck.
    pub faults: FaultCounts,
    /// How often each marked code path of the stack was taken, over all hosts; zero without the feature `marks`.
    pub marks: MarkCounts,
    /// How often the run came upon each state that calls and frames show; none without checkers.
    pub reached: Reached,
    /// When, in virtual time, it ended.
    pub ended: Instant,
}

impl Report {
    /// Another world was played beside this one: what it came upon counts as well.
    pub(crate) fn comes_with(&mut self, beside: &Self) {
        self.marks.add(&beside.marks);
        self.reached.add(&beside.reached);
        self.events += beside.events;
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, hash, events, faults, ended, marks: _, reached: _ } = self;
        write!(f, "seed {seed}: trace {hash}, {events} events in {} ms of virtual time, faults: ", ended.as_millis())?;
        let struck: Vec<_> = faults.named().filter(|&(_, n)| n > 0).map(|(name, n)| format!("{n} {}", name.replace('_', " "))).collect();
        f.write_str(if struck.is_empty() { "none" } else { "" })?;
        f.write_str(&struck.join(", "))
    }
}

/// Runs `seed` twice and returns the first report.
///
/// # Panics
/// The two reports differ: something in the run follows from more than its seed.
pub fn assert_deterministic(seed: u64, mut run: impl FnMut(u64) -> Report) -> Report {
    let (first, second) = (run(seed), run(seed));
    assert!(first == second, "one seed, two stories:\n  {first}\n  {second}");
    first
}
