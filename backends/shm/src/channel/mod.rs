//! The device's side of a link: sending into our ring, receiving from the peer's.

mod receiver;
mod sender;
mod unfinished;

use std::sync::Arc;

use receiver::Receiver;
pub(crate) use sender::NotSent;
use sender::Sender;
pub(crate) use unfinished::Left;
use unfinished::Unfinished;

use crate::layout::{PROCESSED_AT, WAITING_AT};
use crate::link::Link;
use crate::protocol::{ReadWords, WriteWords};
use crate::sync::Ordering;
use crate::wakeups;

/// One peer, as the device has it.
#[derive(Debug)]
pub(crate) struct Channel {
    pub(crate) link: Arc<Link>,
    pub(crate) tx: Sender,
    pub(crate) rx: Receiver,
    pub(crate) wake_ups: wakeups::Left,
    /// What the peer is to know of our connections.
    pub(crate) unfinished: Unfinished,
    /// Frames were received that the stack may not be through with.
    pub(crate) is_under_way: bool,
    /// The peer has gone; when its ring is empty, so is the channel's use.
    pub(crate) is_dying: bool,
}

impl Channel {
    pub(crate) fn new(link: Arc<Link>) -> Self {
        Self {
            link,
            tx: Sender::default(),
            rx: Receiver::default(),
            wake_ups: wakeups::Left::default(),
            unfinished: Unfinished::default(),
            is_under_way: false,
            is_dying: false,
        }
    }

    /// The stack is through with what was received.
    #[inline(always)]
    pub(crate) fn note_processed(&mut self) {
        self.is_under_way = false;
        // Release: what it noted of connections comes before.
        self.link.own.store(PROCESSED_AT, self.rx.slots.consumed(), Ordering::Release);
    }

    /// What the peer, which is dead, has left.
    pub(crate) fn left(&self) -> Left {
        Left::of(&self.link, self.tx.published())
    }

    /// Whether the peer sleeps, and wants to be woken when there is room again.
    pub(crate) fn peer_waits_for_room(&self) -> bool {
        self.link.theirs.load(WAITING_AT, Ordering::Relaxed) != 0
    }
}
