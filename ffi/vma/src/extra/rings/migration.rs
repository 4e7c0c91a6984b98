//! VMA_RING_MIGRATION_RATIO_RX and _TX, for the Extra API's rings (for the process's own, see [`crate::moving::migration`]): a socket whose ring was chosen by its thread, or core, goes over to another's once that other alone has used
//! it for so many calls.

use ringway_stack::socket::{Allocation, Direction, Logic, Place};

use super::{Asked, Rings};
use crate::cancel::Masked;
use crate::process::Offload;
use crate::slab::Key;

impl Rings {
    /// Whether flows change rings by who calls, where one is for that place: whether by the core that the caller is on, and after how many calls for receiving
    /// and for sending. (A thread that is attached to a core stays there.)
    pub(crate) fn migration_by(&self, place: Place) -> Option<(bool, [Option<u32>; 2])> {
        let is_by_core = !place.is_threads() && self.logics.contains(&Logic::Core);
        if !place.is_threads() && !place.is_cores() {
            return None;
        }
        // (Where the process's logics put no direction by the caller, a socket's own do.)
        let [rx, tx] = self.logics;
        let logics = Allocation { rx, tx, user_id: 0 };
        let counts = [Direction::Rx, Direction::Tx].map(|direction| logics.counts(direction));
        let ratios = if counts == [false; 2] { self.ratios } else { core::array::from_fn(|at| self.ratios[at].filter(|_| counts[at])) };
        Some((is_by_core, ratios)).filter(|_| ratios != [None; 2])
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
        let key_now = self.extra_rings.threads.seen(asked, key, socket);
        let strangers = &mut socket.rare().rings.strangers[at];
        if self.extra_rings.all.find(ring).is_some_and(|ring| ring.is_for(key_now)) {
            strangers.forget();
        } else if strangers.calls(key_now.place(), ratio) {
            strangers.forget();
            // (The old ring's descriptor may be closed with it, which is a cancellation point; and the lock is held.)
            let _masked = Masked::new();
            self.change_ring(key.index, direction);
        }
    }
}
