//! What there is to say of a connection to whoever looks at it from outside.

use super::{State, Stream};

/// A connection at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamInfo {
    /// It is opening, stands, or is over.
    pub stage: StreamStage,
    /// Bytes that came and were not read.
    pub unread: u64,
    /// Bytes that were sent and have not arrived for certain, direct writes included. (Of the last ones, up to a quarter of the send buffer, that may be known only once
    /// more is sent.)
    pub in_flight: u64,
    /// Bytes of the receive buffer.
    pub recv_buffer: u32,
    /// Bytes that came, and in how many messages; without direct writes.
    pub received: (u64, u64),
    /// Bytes that went, and in how many messages; without direct writes.
    pub sent: (u64, u64),
}

/// How far a connection is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StreamStage {
    /// The peer's answer is outstanding.
    #[default]
    Opening,
    /// Bytes go at least one way.
    Connected,
    /// It ended, or failed.
    Over,
}

/// Bytes and messages of one direction.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Totals {
    bytes: u64,
    messages: u64,
}

impl Totals {
    pub(super) const fn messages(self) -> u64 {
        self.messages
    }

    pub(super) fn add(&mut self, bytes: u32) {
        self.bytes += u64::from(bytes);
        self.messages += 1;
    }
}

impl Stream {
    /// What there is to say of it now. What has completed since the last look is not in it.
    pub fn info(&self) -> StreamInfo {
        StreamInfo {
            stage: match self.state {
                State::Opening => StreamStage::Opening,
                State::Connected => StreamStage::Connected,
                State::Disconnected | State::Failed(_) => StreamStage::Over,
            },
            unread: self.rx.messages.iter().map(|len| u64::from(*len)).sum(),
            in_flight: u64::from(self.sizes.send_buffer.saturating_sub(self.tx.room)),
            recv_buffer: self.sizes.recv_buffer,
            received: (self.rx.totals.bytes, self.rx.totals.messages),
            sent: (self.tx.totals.bytes, self.tx.totals.messages),
        }
    }
}
