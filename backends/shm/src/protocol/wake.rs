//! Sleeping and waking. A member that is about to sleep makes its generation odd, and looks once more; a sender looks at the
//! generation after it has published. With a sequentially consistent fence between each one's store and load, at
//! least one of them sees the other (the store buffering litmus test), so no wake-up is lost.

use super::{ReadWords, WriteWords};
use crate::layout::{ARMED_AT, PAUSED_AT};
use crate::sync::{Ordering, fence};

/// The end that sleeps.
#[derive(Debug)]
pub(crate) struct Armer {
    at: usize,
    generation: u64,
}

impl Default for Armer {
    fn default() -> Self {
        Self { at: ARMED_AT, generation: 0 }
    }
}

impl Armer {
    /// For a pause, which only a channel that fills ends.
    pub(crate) fn of_pauses() -> Self {
        Self { at: PAUSED_AT, generation: 0 }
    }

    /// Announces the sleep. The caller looks once more for work, and takes it back if there is any.
    pub(crate) fn arm(&mut self, own: &impl WriteWords) {
        self.generation += 1 + (self.generation & 1);
        own.store(self.at, self.generation, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Takes it back.
    pub(crate) fn disarm(&mut self, own: &impl WriteWords) {
        self.generation += self.generation & 1;
        own.store(self.at, self.generation, Ordering::Relaxed);
    }

    /// Whether the sleep stands announced.
    pub(crate) fn is_armed(&self) -> bool {
        self.generation & 1 == 1
    }
}

/// The end that wakes.
#[derive(Debug)]
pub(crate) struct Kicker {
    at: usize,
    kicked: u64,
}

impl Default for Kicker {
    fn default() -> Self {
        Self { at: ARMED_AT, kicked: 0 }
    }
}

impl Kicker {
    /// For a peer's pauses.
    pub(crate) fn of_pauses() -> Self {
        Self { at: PAUSED_AT, kicked: 0 }
    }

    /// Whether the peer sleeps and was not woken from this sleep yet; then the caller must wake it. The caller has put
    /// a sequentially consistent fence between what it published and this.
    #[inline]
    pub(crate) fn must_kick(&mut self, peer: &impl ReadWords) -> bool {
        self.must_kick_if(peer, || true)
    }

    /// The same, where there is a reason to, which is asked for only if the peer sleeps.
    #[inline]
    pub(crate) fn must_kick_if(&mut self, peer: &impl ReadWords, has_reason: impl FnOnce() -> bool) -> bool {
        let generation = peer.load(self.at, Ordering::Relaxed);
        if generation & 1 == 0 || generation == self.kicked || !has_reason() {
            return false;
        }
        self.kicked = generation;
        true
    }
}
