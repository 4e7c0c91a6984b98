//! Who spins on which core, among the processes that are connected ([`crate::protocol::CoreClaims`]).

use super::ShmQueues;
use crate::member::slot_of;

impl ShmQueues {
    /// Announces that a thread of this process spins on `core` (its number in the system), unless one does already, of this
    /// process or of a connected one: then `false`, and nothing stays announced. Costs a fence, and a load of every peer's
    /// memory. A peer's claim ends with its link; one that connects later is not looked at until the next claim.
    pub fn claim_core(&mut self, core: usize) -> bool {
        if self.member.is_forked() {
            return false;
        }
        self.take_notices();
        let others = self.active.iter().filter_map(|&slot| self.channels[usize::from(slot)].as_deref());
        let peers = others
            // The first slot is the channel to ourselves.
            .filter(|channel| slot_of(channel.link.mac) != 0 && channel.link.is_alive() && !channel.is_dying)
            .map(|channel| (&channel.link.peer.view, channel.link.peer.id));
        self.core_claims.take(&*self.member.segment, self.member.id, core, peers)
    }

    /// Takes back what [`ShmQueues::claim_core`] announced.
    pub fn release_core(&mut self, core: usize) {
        if !self.member.is_forked() {
            self.core_claims.leave(&*self.member.segment, core);
        }
    }
}
