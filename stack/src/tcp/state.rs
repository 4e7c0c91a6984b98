//! The states of a connection (RFC 9293 s3.3.2).

/// A connection's state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum State {
    /// No connection: it ended, or never was.
    #[default]
    Closed,
    /// Waiting for any peer. A connection is never in it (listeners are the ring's); it is there for whoever shows states.
    Listen,
    /// A SYN was sent.
    SynSent,
    /// A SYN was received and sent.
    SynReceived,
    /// Both directions are open.
    Established,
    /// We sent the end of our stream; it isn't acknowledged.
    FinWait1,
    /// The end of our stream was acknowledged; the peer may go on.
    FinWait2,
    /// The peer sent the end of its stream; we may go on.
    CloseWait,
    /// Both ends were sent; ours isn't acknowledged.
    Closing,
    /// As [`State::Closing`], but the peer's end came before ours: nothing is left to wait for afterwards.
    LastAck,
    /// Both ends were acknowledged; late segments are being waited out.
    TimeWait,
}

impl State {
    /// Whether sequence numbers are synchronised (RFC 9293 s3.5.2).
    #[inline]
    pub const fn is_synchronized(self) -> bool {
        !matches!(self, Self::Closed | Self::Listen | Self::SynSent | Self::SynReceived)
    }

    /// Whether our stream's end was sent, or is to be sent after what is queued.
    #[inline]
    pub const fn has_ended(self) -> bool {
        matches!(self, Self::FinWait1 | Self::FinWait2 | Self::Closing | Self::LastAck | Self::TimeWait)
    }

    /// Whether the peer's stream may still bring bytes.
    #[inline]
    pub const fn receives(self) -> bool {
        matches!(self, Self::Established | Self::FinWait1 | Self::FinWait2)
    }
}
