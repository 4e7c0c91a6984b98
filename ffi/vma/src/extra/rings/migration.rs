//! VMA_RING_MIGRATION_RATIO_RX and _TX: a socket whose ring was chosen by its thread, or core, goes over to another's once that other alone has used
//! it for so many calls.

use super::allocation::{Logic, Place};
use super::{Asked, Direction};
use crate::cancel::Masked;
use crate::process::Offload;
use crate::slab::Key;

/// Who uses a socket, and is not whom its ring is for.
#[derive(Debug, Default)]
pub(super) struct Stranger {
    place: Option<Place>,
    /// Calls in a row.
    calls: u32,
}

impl Stranger {
    /// One call more from there. Whether the socket is to move.
    fn calls(&mut self, from: Place, ratio: u32) -> bool {
        if self.place != Some(from) {
            *self = Self { place: Some(from), calls: 0 };
        }
        self.calls += 1;
        self.calls > ratio
    }
}

impl Logic {
    /// Whether a socket's ring depends on who makes the call.
    const fn is_by_caller(self) -> bool {
        matches!(self, Self::Thread | Self::Core | Self::CoreAttached)
    }
}

impl Offload {
    /// A socket has joined a ring: from now on its calls are looked at, if they may move it.
    pub(super) fn begin_migrating(&mut self, asked: Asked, direction: Direction) {
        if asked.logic.is_by_caller() && self.extra_rings.ratios[direction as usize].is_some() {
            self.extra_rings.migrate[direction as usize] = true;
        }
    }

    /// A call receives, or sends, on that socket.
    #[cold]
    #[inline(never)]
    pub(crate) fn note_use(&mut self, key: Key, direction: Direction) {
        let at = direction as usize;
        let Some(ratio) = self.extra_rings.ratios[at] else { return };
        let asked = self.asked(key.index, direction);
        // (Whose records wait in a cyclic buffer, or are being read there, stays.)
        if !asked.logic.is_by_caller() || asked.profile != 0 {
            return;
        }
        let Some(socket) = self.sockets.find_mut(key) else { return };
        let Some(ring) = socket.rare.as_ref().and_then(|rare| rare.rings.ring(direction)) else { return };
        let place = self.extra_rings.threads.seen(asked, key, socket);
        let strangers = &mut socket.rare().rings.strangers[at];
        if self.extra_rings.all.find(ring).is_some_and(|ring| ring.is_for(place)) {
            *strangers = Stranger::default();
        } else if strangers.calls(place, ratio) {
            *strangers = Stranger::default();
            // (The old ring's descriptor may be closed with it, which is a cancellation point; and the lock is held.)
            let _masked = Masked::new();
            self.change_ring(key.index, direction);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_that_calls_again_and_again_takes_a_socket_over() {
        let (a, b) = (Place::of_core(1), Place::of_core(2));
        let mut stranger = Stranger::default();
        assert_eq!([a, a, b, a, a, a].map(|from| stranger.calls(from, 2)), [false, false, false, false, false, true]);
    }
}
