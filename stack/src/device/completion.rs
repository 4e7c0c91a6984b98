//! What became of sends: completions, for who asks to be told of single ones.

use crate::time::Instant;

/// By which clock a device says when a send was done ([`Completion::at`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeSource {
    /// The device's own: when the frame left, as it stamps what it sends.
    Hardware,
    /// The host's: when the frame was handed over.
    Software,
}

/// What became of a send that carried a cookie ([`super::Queues::send_with_cookie`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The send's cookie; never zero.
    pub cookie: u64,
    /// When it was done, by the clock that [`super::Capabilities::completion_time`] names; none if it names none, or if the frame was not sent.
    pub at: Option<Instant>,
    /// How it ended.
    pub status: SendStatus,
}

/// How a send ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendStatus {
    /// It left: of a frame that the device cuts, all segments did. (Whether it arrived is nothing that a device knows.) A dummy has gone as far as it goes.
    Sent,
    /// The device could not send it: nothing, or of a frame that is cut not all, has left.
    Failed,
    /// It was not tried: the send queue was in error because of one before it (as verbs' IBV_WC_WR_FLUSH_ERR has it).
    Flushed,
}
