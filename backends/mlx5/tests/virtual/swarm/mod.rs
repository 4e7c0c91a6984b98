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
    pub(crate) ended: Instant,
}

/// Plays a seed.
///
/// # Panics
/// A law is broken; the message begins with `law` and its name.
pub(crate) fn run(seed: u64) -> Report {
    World::new(Plan::of_seed(seed)).play()
}
