//! The driver in the simulator: two hosts with a software ConnectX each, in virtual time, from a seed.
//!
//! The driver is all of this crate: control by libibverbs, whose part [`library`] plays, and the data path. Above it is the stack's ring, and [`programs`] that check
//! what they get; below it the simulator's card ([`card`]) with faults of its own, and a link with the simulator's. [`plan`] says what a seed draws, and [`laws`] what must
//! hold. A [`run`] of a seed is the same each time; a breach is a panic that says which law.

mod card;
mod host;
mod laws;
mod library;
mod memory;
mod plan;
mod programs;
mod watched;
mod world;

use ringway_stack::Instant;

use plan::Plan;
use programs::lanes::Changes;
use world::World;

/// What a seed came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Report {
    pub(crate) seed: u64,
    pub(crate) events: u64,
    /// Faults of the cards' that struck once.
    pub(crate) faults: u64,
    /// Frames that left the cards, and that the drivers gave to their stacks.
    pub(crate) frames: u64,
    pub(crate) received: u64,
    /// Queues that failed, and came back.
    pub(crate) send_failures: u64,
    pub(crate) receive_failures: u64,
    /// Entries that were written into a register whole, and compressed runs.
    pub(crate) whole_entries: u64,
    pub(crate) compressed_runs: u64,
    /// Frames that came in strides, that rules have steered, and that left at a rate.
    pub(crate) in_strides: u64,
    pub(crate) steered: u64,
    pub(crate) paced: u64,
    /// Large sends, frames that were copied to the card to be sent, and such as were written there by who sent them.
    pub(crate) cut: u64,
    pub(crate) staged: u64,
    pub(crate) from_card: u64,
    /// What lanes changed meanwhile.
    pub(crate) changes: Changes,
    /// Frames that went to one of several queues of a group, and such as a rule took after it had been moved.
    pub(crate) of_groups: u64,
    pub(crate) after_moves: u64,
    pub(crate) ended: Instant,
}

impl Report {
    /// How often each thing happened of which a seed may have some.
    #[allow(dead_code, reason = "the tests of a range of seeds ask for it")]
    pub(crate) fn times(&self) -> Vec<(&'static str, u64)> {
        let own = [
            ("faults that strike once", self.faults),
            ("send queues that failed", self.send_failures),
            ("receive queues that failed", self.receive_failures),
            ("entries in registers", self.whole_entries),
            ("compressed runs", self.compressed_runs),
            ("frames in strides", self.in_strides),
            ("frames that rules took", self.steered),
            ("frames of groups", self.of_groups),
            ("frames of rules that were moved", self.after_moves),
            ("frames at a rate", self.paced),
            ("large sends", self.cut),
            ("frames copied to the card", self.staged),
            ("frames made of memory on the card", self.from_card),
        ];
        own.into_iter().chain(self.changes.counts()).collect()
    }
}

/// Plays a seed.
///
/// # Panics
/// A law is broken; the message begins with `law` and its name.
pub(crate) fn run(seed: u64) -> Report {
    World::new(Plan::of_seed(seed)).play()
}
