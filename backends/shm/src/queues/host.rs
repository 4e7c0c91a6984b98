//! How the threads of this process sleep on the ring, on which cores they spin, among the processes that are connected
//! ([`crate::protocol::CoreClaims`]), and who drains a ring that nobody polls: a member that pauses is woken by the sender whose channel to
//! it is half full.
//!
//! The socket buffers behind a ring hold far more than a channel does, and the kernel's loopback has nothing like a channel: what
//! a socket has room for arrives there. So a channel is emptied before it is full, whatever the program does meanwhile; and a sender that was quicker
//! than that waits for a moment ([`ShmQueues::is_worth_waiting`]), as the kernel's sender spends the time of the delivery itself.

use ringway_host::{HostQueues, queues::SLEPT_MAX};
use ringway_stack::device::{MacAddr, Queues as _, Wake};

use super::ShmQueues;
use crate::copy;
use crate::layout;
use crate::member::slot_of;
use crate::sync::{Ordering, fence};
use crate::wakeups::WakeUps;

impl HostQueues for ShmQueues {
    fn begin_sleep(&mut self) -> i32 {
        self.has_sleeper = true;
        self.member.wake_ups.sleeper_fd()
    }

    fn is_of_sleeper(event: u64) -> bool {
        WakeUps::is_of_sleeper(event)
    }

    fn slept(&mut self, events: impl ExactSizeIterator<Item = u64>) {
        // (As many as there was room for: perhaps there are more.)
        self.slept_out = events.len() < SLEPT_MAX && self.armer.is_armed() && !self.member.is_forked();
        for slot in events {
            if !self.member.wake_ups.is_own(slot) {
                self.woken_by(slot);
            }
        }
    }

    fn clear_sleeper(&mut self) {
        self.member.wake_ups.clear_sleeper();
    }

    fn end_sleep(&mut self) {
        self.has_sleeper = false;
    }

    /// Costs a fence, and a load of every peer's memory. A peer's claim ends with its link; one that connects later is not looked at until the next
    /// claim.
    fn claim_core(&mut self, core: usize) -> bool {
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

    fn release_core(&mut self, core: usize) {
        if !self.member.is_forked() {
            self.core_claims.leave(&*self.member.segment, core);
        }
    }

    fn pause(&mut self) {
        if self.member.is_forked() {
            return;
        }
        // So that "half" is told from what is unread.
        for &slot in &self.active {
            if let Some(channel) = self.channels[usize::from(slot)].as_deref_mut()
                && channel.rx.slots.has_unpublished()
            {
                channel.rx.slots.publish_consumed(&channel.link.own);
            }
        }
        self.pauses.arm(&*self.member.segment, Wake::Any);
    }

    fn resume(&mut self) -> bool {
        if !self.pauses.is_armed() || self.member.is_forked() {
            return false;
        }
        self.pauses.disarm(&*self.member.segment);
        // (Of an armed ring, the wake-up is somebody else's as well.)
        if !self.armer.is_armed() {
            self.clear_wake_ups();
        }
        self.rx_ready()
    }

    fn queue_frames(&self) -> usize {
        layout::SLOTS
    }

    fn tx_buffers(&mut self) -> (usize, usize) {
        (self.allocator.all(), self.allocator.in_use())
    }

    fn copied_bytes(&self) -> u64 {
        copy::bulk_copied()
    }
}

impl ShmQueues {
    /// A frame to that member found no room, so the member is woken if it pauses. Whether there may be room soon: not if the
    /// member has consumed nothing since [`ShmQueues::give_up`].
    pub fn is_worth_waiting(&mut self, mac: MacAddr) -> bool {
        let Some(slot) = self.find(mac) else { return false };
        let Some(channel) = self.channels[slot].as_deref_mut() else { return false };
        fence(Ordering::SeqCst);
        if channel.tx.must_press(&channel.link) {
            channel.link.wake();
        }
        !channel.is_dying && !channel.tx.is_stalled()
    }

    /// Somebody waited for room at that member in vain.
    pub fn give_up(&mut self, mac: MacAddr) {
        if let Some(slot) = self.find(mac)
            && let Some(channel) = self.channels[slot].as_deref_mut()
        {
            channel.tx.give_up();
        }
    }
}
