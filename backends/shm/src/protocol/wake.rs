//! Sleeping and waking. A member that is about to sleep makes its generation odd, and looks once more; a sender looks at the
//! generation after it has published. With a sequentially consistent fence between each one's store and load, at
//! least one of them sees the other (the store buffering litmus test), so no wake-up is lost.

use super::{ReadWords, WriteWords};
use crate::layout::ARMED_AT;
use crate::sync::{Ordering, fence};

/// The end that sleeps.
#[derive(Debug, Default)]
pub(crate) struct Armer {
    generation: u64,
}

impl Armer {
    /// Announces the sleep. The caller looks once more for work, and takes it back if there is any.
    pub(crate) fn arm(&mut self, own: &impl WriteWords) {
        self.generation += 1 + (self.generation & 1);
        own.store(ARMED_AT, self.generation, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Takes it back.
    pub(crate) fn disarm(&mut self, own: &impl WriteWords) {
        self.generation += self.generation & 1;
        own.store(ARMED_AT, self.generation, Ordering::Relaxed);
    }

    /// Whether the sleep stands announced.
    pub(crate) fn is_armed(&self) -> bool {
        self.generation & 1 == 1
    }
}

/// The end that wakes.
#[derive(Debug, Default)]
pub(crate) struct Kicker {
    kicked: u64,
}

impl Kicker {
    /// Whether the peer sleeps and was not woken from this sleep yet; then the caller must wake it. The caller has put
    /// a sequentially consistent fence between what it published and this.
    #[inline]
    pub(crate) fn must_kick(&mut self, peer: &impl ReadWords) -> bool {
        let generation = peer.load(ARMED_AT, Ordering::Relaxed);
        if generation & 1 == 0 || generation == self.kicked {
            return false;
        }
        self.kicked = generation;
        true
    }
}
