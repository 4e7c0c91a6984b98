//! At most one spinner a core, of all processes that are connected. A member publishes the cores on which a thread of its
//! own spins. Who wants a core claims it first, and then looks whether a peer has claimed it too. With a sequentially
//! consistent fence between each one's claim and look (Dekker's way: the store buffering litmus test), of two that claim a
//! core at once at least one sees the other, and takes its claim back; so never do both keep it.
//!
//! Both may take theirs back: then neither spins in this wait, and since nobody tries again within a wait, nobody can go
//! on like that. It is made rarer by a rule: the one with the lower id gives the other a moment to give way first.
//!
//! What a peer publishes here is only believed to the effect that a thread sleeps where it could have spun: a hostile
//! peer that claims every core costs time, and nothing else.

use super::{ReadWords, WriteWords};
use crate::layout::{CORE_CLAIM_WORDS, CORE_CLAIMS_AT};
use crate::sync::{Ordering, fence, spin_loop};

/// How often the lower one looks whether the other has given way, before it does. (One who really sits there will not, so
/// this is what every refusal costs.)
const LOOKS: u32 = if cfg!(loom) { 2 } else { 4 };

/// Where a core's bit is.
#[derive(Clone, Copy, Debug)]
struct Place {
    word: usize,
    bit: u64,
}

impl Place {
    const fn of(core: usize) -> Self {
        Self { word: core / 64 % CORE_CLAIM_WORDS, bit: 1 << (core % 64) }
    }

    const fn offset(self) -> usize {
        CORE_CLAIMS_AT + self.word * 8
    }
}

/// The cores that this member has claimed.
#[derive(Debug, Default)]
pub(crate) struct CoreClaims {
    words: [u64; CORE_CLAIM_WORDS],
}

impl CoreClaims {
    /// Claims `core`, unless one of `peers` (their memory and id) has it, or a thread of our own.
    pub(crate) fn take<'a, R: ReadWords + 'a>(
        &mut self,
        own: &impl WriteWords,
        id: u64,
        core: usize,
        peers: impl Iterator<Item = (&'a R, u64)>,
    ) -> bool {
        self.take_patiently(own, id, core, peers, LOOKS)
    }

    /// Gives up a core that was taken.
    pub(crate) fn leave(&mut self, own: &impl WriteWords, core: usize) {
        let place = Place::of(core);
        self.words[place.word] &= !place.bit;
        // Whoever takes the claim next sees what was done in it.
        own.store(place.offset(), self.words[place.word], Ordering::Release);
    }

    /// The same, with so many looks at each peer of a higher id. Those that were found to have no claim need not be looked at
    /// again: who claims after that look sees ours, which was there before the fence.
    pub(super) fn take_patiently<'a, R: ReadWords + 'a>(
        &mut self,
        own: &impl WriteWords,
        id: u64,
        core: usize,
        peers: impl Iterator<Item = (&'a R, u64)>,
        looks: u32,
    ) -> bool {
        let place = Place::of(core);
        if self.words[place.word] & place.bit != 0 {
            return false;
        }
        self.words[place.word] |= place.bit;
        own.store(place.offset(), self.words[place.word], Ordering::Relaxed);
        fence(Ordering::SeqCst);
        for (peer, peer_id) in peers {
            let mut left = if id < peer_id { looks } else { 1 };
            while peer.load(place.offset(), Ordering::Acquire) & place.bit != 0 {
                left -= 1;
                if left == 0 {
                    self.leave(own, core);
                    return false;
                }
                spin_loop();
            }
        }
        true
    }
}
