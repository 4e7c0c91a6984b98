//! Who drains a ring that nobody polls: a member that pauses is woken by the sender whose channel to it is half full.
//!
//! The socket buffers behind a ring hold far more than a channel does, and the kernel's loopback has nothing like a channel: what
//! a socket has room for arrives there. So a channel is emptied before it is full, whatever the program does meanwhile; and a sender that was quicker
//! than that waits for a moment ([`ShmQueues::is_worth_waiting`]), as the kernel's sender spends the time of the delivery itself.

use ringway_stack::device::{MacAddr, Queues as _, Wake};

use super::ShmQueues;
use crate::sync::{Ordering, fence};

impl ShmQueues {
    /// Nobody polls the ring from now on, nor is it armed: who fills half a channel signals [`Queues::wait_fd`](ringway_stack::device::Queues::wait_fd).
    pub fn pause(&mut self) {
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

    /// The pause is over. Whether there is anything to poll for.
    pub fn resume(&mut self) -> bool {
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

    /// A frame to that station found no room, so the station is woken if it pauses. Whether there may be room soon: not if the
    /// station has consumed nothing since [`ShmQueues::give_up`].
    pub fn is_worth_waiting(&mut self, mac: MacAddr) -> bool {
        let Some(slot) = self.find(mac) else { return false };
        let Some(channel) = self.channels[slot].as_deref_mut() else { return false };
        fence(Ordering::SeqCst);
        if channel.tx.must_press(&channel.link) {
            channel.link.wake();
        }
        !channel.is_dying && !channel.tx.is_stalled()
    }

    /// Somebody waited for room at that station in vain.
    pub fn give_up(&mut self, mac: MacAddr) {
        if let Some(slot) = self.find(mac)
            && let Some(channel) = self.channels[slot].as_deref_mut()
        {
            channel.tx.give_up();
        }
    }
}
