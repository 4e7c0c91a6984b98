//! Which states of the world a run came upon, as calls and frames show them: a law about a state in which nobody ever is says nothing. What happens inside the
//! stack is counted there (`ringway_stack::marks`); a campaign must come upon all of both.

/// A state that a campaign must come upon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum State {
    /// One UDP socket is bound to every address, another one to one address and the same port.
    BoundToAllAndOne,
    /// One UDP socket of a port has a peer, another one has none.
    ConnectedAndNot,
    /// Several sockets listen at one address.
    ListenersShare,
    /// A receive window was shut for a minute.
    WindowShutMinute,
    /// A peer was gone without a word (its host crashed) while this side was in that state (RFC 9293 s3.3.2).
    PeerGoneSynSent,
    /// See [`State::PeerGoneSynSent`].
    PeerGoneSynReceived,
    /// See [`State::PeerGoneSynSent`].
    PeerGoneEstablished,
    /// See [`State::PeerGoneSynSent`].
    PeerGoneFinWait1,
    /// See [`State::PeerGoneSynSent`].
    PeerGoneFinWait2,
    /// See [`State::PeerGoneSynSent`].
    PeerGoneCloseWait,
    /// See [`State::PeerGoneSynSent`].
    PeerGoneClosing,
    /// See [`State::PeerGoneSynSent`].
    PeerGoneLastAck,
    /// See [`State::PeerGoneSynSent`].
    PeerGoneTimeWait,
    /// A connection began between the addresses of one whose last segment was less than a second old.
    AddressesUsedAgain,
    /// A host knew that a path takes less than its own link does.
    PathNarrower,
    /// A write of one byte less than a full segment.
    WriteBelowSegment,
    /// A write of just a full segment.
    WriteOfSegment,
    /// A write of one byte more.
    WriteAboveSegment,
    /// A segment that ends just where the peer's window does.
    SentToWindowEdge,
    /// A segment that ends one byte before that.
    SentBelowWindowEdge,
    /// A segment of one byte.
    SentOneByte,
    /// A segment across sequence number zero.
    SequenceWrapped,
    /// A segment of a connection on which nobody had said anything for an hour.
    SilentHour,
    /// A connection was accepted from a listener that had had a handshake which failed.
    RefilledAfterFailure,
    /// A clock ran faster than the world's, by tiny steps.
    ClockDrifts,
    /// A clock jumped.
    ClockJumps,
    /// A connection went over to a ring that has another MAC address, and was silent there.
    WentOver,
    /// Its peer followed.
    Followed,
    /// It went on.
    SpokeAgain,
    /// Both ends had gone over before either knew of the other.
    BothWentOver,
    /// Its peer died before it followed.
    PeerDiedUntold,
    /// Its program closed it before that.
    ClosedUntold,
    /// Its program aborted it before that.
    AbortedUntold,
    /// Its program ended its stream before that.
    HalfClosedUntold,
    /// The ring that it was to go to had no room for it.
    FoundNoRoom,
    /// A read on a ring whose reads poll got bytes of a stream.
    ReadPolledForBytes,
    /// The same, a datagram.
    ReadPolledForDatagram,
}

impl State {
    /// All states.
    pub const ALL: [Self; 37] = [
        Self::BoundToAllAndOne,
        Self::ConnectedAndNot,
        Self::ListenersShare,
        Self::WindowShutMinute,
        Self::PeerGoneSynSent,
        Self::PeerGoneSynReceived,
        Self::PeerGoneEstablished,
        Self::PeerGoneFinWait1,
        Self::PeerGoneFinWait2,
        Self::PeerGoneCloseWait,
        Self::PeerGoneClosing,
        Self::PeerGoneLastAck,
        Self::PeerGoneTimeWait,
        Self::AddressesUsedAgain,
        Self::PathNarrower,
        Self::WriteBelowSegment,
        Self::WriteOfSegment,
        Self::WriteAboveSegment,
        Self::SentToWindowEdge,
        Self::SentBelowWindowEdge,
        Self::SentOneByte,
        Self::SequenceWrapped,
        Self::SilentHour,
        Self::RefilledAfterFailure,
        Self::ClockDrifts,
        Self::ClockJumps,
        Self::WentOver,
        Self::Followed,
        Self::SpokeAgain,
        Self::BothWentOver,
        Self::PeerDiedUntold,
        Self::ClosedUntold,
        Self::AbortedUntold,
        Self::HalfClosedUntold,
        Self::FoundNoRoom,
        Self::ReadPolledForBytes,
        Self::ReadPolledForDatagram,
    ];

    /// So many seeds of the swarm come upon it as good as always: of fewer, nobody can ask for it.
    pub fn seeds(self) -> u64 {
        match self {
            // A stream's numbers begin anywhere in four thousand million, and most streams are short.
            Self::SequenceWrapped => 500_000,
            Self::SilentHour | Self::WindowShutMinute | Self::SentBelowWindowEdge => 5_000,
            _ => 1_000,
        }
    }

    /// Its name, as a campaign's summary has it.
    pub fn name(self) -> &'static str {
        match self {
            Self::BoundToAllAndOne => "bound to all and one",
            Self::ConnectedAndNot => "connected and not",
            Self::ListenersShare => "listeners share",
            Self::WindowShutMinute => "window shut a minute",
            Self::PeerGoneSynSent => "peer gone in SYN-SENT",
            Self::PeerGoneSynReceived => "peer gone in SYN-RECEIVED",
            Self::PeerGoneEstablished => "peer gone in ESTABLISHED",
            Self::PeerGoneFinWait1 => "peer gone in FIN-WAIT-1",
            Self::PeerGoneFinWait2 => "peer gone in FIN-WAIT-2",
            Self::PeerGoneCloseWait => "peer gone in CLOSE-WAIT",
            Self::PeerGoneClosing => "peer gone in CLOSING",
            Self::PeerGoneLastAck => "peer gone in LAST-ACK",
            Self::PeerGoneTimeWait => "peer gone in TIME-WAIT",
            Self::AddressesUsedAgain => "addresses used again",
            Self::PathNarrower => "path narrower",
            Self::WriteBelowSegment => "write below a segment",
            Self::WriteOfSegment => "write of a segment",
            Self::WriteAboveSegment => "write above a segment",
            Self::SentToWindowEdge => "sent to the window's edge",
            Self::SentBelowWindowEdge => "sent to a byte before it",
            Self::SentOneByte => "sent one byte",
            Self::SequenceWrapped => "sequence number wrapped",
            Self::SilentHour => "silent for an hour",
            Self::RefilledAfterFailure => "backlog refilled after a failed handshake",
            Self::ClockDrifts => "clock drifts",
            Self::ClockJumps => "clock jumps",
            Self::WentOver => "went over to another MAC address",
            Self::Followed => "peer followed",
            Self::SpokeAgain => "spoke again",
            Self::BothWentOver => "both went over at once",
            Self::PeerDiedUntold => "peer died before it followed",
            Self::ClosedUntold => "closed before the peer followed",
            Self::AbortedUntold => "aborted before the peer followed",
            Self::HalfClosedUntold => "half closed before the peer followed",
            Self::FoundNoRoom => "found no room to go over",
            Self::ReadPolledForBytes => "a read that polls got bytes",
            Self::ReadPolledForDatagram => "a read that polls got a datagram",
        }
    }
}

/// How often each state was come upon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reached([u64; State::ALL.len()]);

impl Default for Reached {
    fn default() -> Self {
        Self([0; State::ALL.len()])
    }
}

impl Reached {
    /// Once more.
    pub(crate) fn note(&mut self, state: State) {
        self.0[state as usize] += 1;
    }

    /// Adds another run's counts.
    pub(crate) fn add(&mut self, other: &Self) {
        self.0.iter_mut().zip(other.0).for_each(|(sum, more)| *sum += more);
    }

    /// All states, and how often each was come upon.
    pub fn iter(&self) -> impl Iterator<Item = (State, u64)> + '_ {
        State::ALL.iter().map(|&state| (state, self.0[state as usize]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_state_has_a_place_and_a_name_of_its_own() {
        for (place, state) in State::ALL.into_iter().enumerate() {
            assert_eq!(state as usize, place);
            assert!(State::ALL.iter().filter(|other| other.name() == state.name()).count() == 1, "{state:?}");
        }
    }
}
