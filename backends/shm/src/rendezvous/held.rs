//! The rendezvous's lock, which no signal handler finds held by its own thread.
//!
//! A handler may call what signal-safety(7) names: bind, connect, sendto. Those come here, and would wait for ever for the thread that they
//! interrupt. So no signal is delivered to a thread while it has the lock. (What blocks here asks the system for more than that anyhow.)

use std::ops::{Deref, DerefMut};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ringway_host::Blocked;

use super::State;

/// Whoever has it has the state, and its thread no signals but faults.
pub(super) struct Held<'a> {
    // Released first, and then the signals are.
    state: MutexGuard<'a, State>,
    blocked: Blocked,
}

impl<'a> Held<'a> {
    pub(super) fn new(state: &'a Mutex<State>) -> Self {
        let blocked = Blocked::new();
        // What a panic may have left half done is at worst a peer less.
        Self { state: state.lock().unwrap_or_else(PoisonError::into_inner), blocked }
    }

    /// Lets go of it until `told`, or for so long. (Signals wait as well: to let them go first would be to let them go while it is held.)
    pub(super) fn wait(self, told: &Condvar, longest: Duration) -> Self {
        let Self { state, blocked } = self;
        let state = told.wait_timeout(state, longest).unwrap_or_else(PoisonError::into_inner).0;
        Self { state, blocked }
    }
}

impl Deref for Held<'_> {
    type Target = State;

    fn deref(&self) -> &State {
        &self.state
    }
}

impl DerefMut for Held<'_> {
    fn deref_mut(&mut self) -> &mut State {
        &mut self.state
    }
}
