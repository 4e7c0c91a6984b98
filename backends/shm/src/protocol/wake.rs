//! Sleeping and waking. A member that is about to sleep makes its generation odd, and looks once more; a sender looks at the
//! generation after it has published. With a sequentially consistent fence between each one's store and load, at
//! least one of them sees the other (the store buffering litmus test), so no wake-up is lost.
//!
//! The generation's highest bit says that frames which may wait are no reason to wake the member. What the sleeper waits for is decided
//! before it makes its generation odd, so a sender of such a frame either finds that it is waited for, or is seen at the last look.

use ringway_stack::device::Wake;

use super::{ReadWords, WriteWords};
use crate::layout::{ARMED_AT, PAUSED_AT};
use crate::sync::{Ordering, fence};

/// In a generation: unsolicited frames do not end this sleep.
const SOLICITED: u64 = 1 << 63;

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
    pub(crate) fn arm(&mut self, own: &impl WriteWords, wake: Wake) {
        self.generation += 1 + (self.generation & 1);
        let solicited = if wake == Wake::Solicited { SOLICITED } else { 0 };
        own.store(self.at, self.generation | solicited, Ordering::Relaxed);
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
    /// a sequentially consistent fence between what it published and this. `is_unsolicited`: what it published may wait.
    #[inline]
    pub(crate) fn must_kick(&mut self, peer: &impl ReadWords, is_unsolicited: bool) -> bool {
        let generation = peer.load(self.at, Ordering::Relaxed);
        self.is_kicked_by(generation, || !is_unsolicited || generation & SOLICITED == 0)
    }

    /// The same, where there is a reason to, which is asked for only if the peer sleeps.
    #[inline]
    pub(crate) fn must_kick_if(&mut self, peer: &impl ReadWords, has_reason: impl FnOnce() -> bool) -> bool {
        self.is_kicked_by(peer.load(self.at, Ordering::Relaxed), has_reason)
    }

    #[inline]
    fn is_kicked_by(&mut self, generation: u64, has_reason: impl FnOnce() -> bool) -> bool {
        if generation & 1 == 0 || generation == self.kicked || !has_reason() {
            return false;
        }
        self.kicked = generation;
        true
    }
}
