//! The device's side of a link: sending into our ring, receiving from the peer's.

mod receiver;
mod sender;

use std::sync::Arc;

use receiver::Receiver;
pub(crate) use sender::NotSent;
use sender::Sender;

use crate::layout::WAITING_AT;
use crate::link::Link;
use crate::protocol::ReadWords;
use crate::sync::Ordering;
use crate::wakeups::Left;

/// One peer, as the device has it.
#[derive(Debug)]
pub(crate) struct Channel {
    pub(crate) link: Arc<Link>,
    pub(crate) tx: Sender,
    pub(crate) rx: Receiver,
    pub(crate) wake_ups: Left,
    /// The peer has gone; when its ring is empty, so is the channel's use.
    pub(crate) is_dying: bool,
}

impl Channel {
    pub(crate) fn new(link: Arc<Link>) -> Self {
        Self { link, tx: Sender::default(), rx: Receiver::default(), wake_ups: Left::default(), is_dying: false }
    }

    /// Whether the peer sleeps, and wants to be woken when there is room again.
    pub(crate) fn peer_waits_for_room(&self) -> bool {
        self.link.theirs.load(WAITING_AT, Ordering::Relaxed) != 0
    }
}
