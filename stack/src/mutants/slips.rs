//! Mutants that somebody thought of who had seen no checker: slips of a tired hand.

/// Puts them before those of [`super::Mutant`]'s other areas.
macro_rules! with_slips {
    ($($others:tt)*) => {
        with_ipv6! {
            /// Our FIN counts as acknowledged once the byte before it is (RFC 9293 s3.10.7.4).
            FinAckedByLastByte,
            /// A segment that comes late brings back an old window, if it is the next in order (RFC 9293 s3.10.7.4).
            WindowOfOldPredicted,
            /// What comes in order is no sign of life: a peer that talks is probed (RFC 9293 s3.8.4).
            PredictedIsSilence,
            /// A SYN-ACK that acknowledges the initial number, but not the SYN, opens a connection (RFC 9293 s3.10.7.3).
            IssAckTaken,
            /// A segment of old and new bytes is refused as a whole (RFC 9293 s3.10.7.4).
            StraddlerRefused,
            /// A challenge that acknowledges something as well wakes nobody (RFC 5961 s3.2).
            ChallengeIsQuiet,
            /// Bytes that came before the program closed its socket reset the connection when they come again (RFC 2525 s2.17).
            OrphanResetByOldBytes,
            /// Room for what comes behind a gap is counted from before the gap (RFC 9293 s3.10.7.4).
            RoomFromNextByte,
            /// What lies behind a second gap is dropped when the first one is filled, reported or not (RFC 2018 s8).
            SecondHoleForgotten,
            /// A stream that was ended before its handshake was over has not ended (RFC 9293 s3.10.4).
            ShutInHandshakeForgotten,
            /// Nagle's algorithm compares numbers that wrap as if they did not (RFC 9293 s3.4).
            NagleComparesUnsigned,
            /// Room to write is told to those alone whose write was refused (poll(2), epoll(7)).
            EdgeOnlyAfterRefusal,
            /// The user timeout counts from the connection's first stall (RFC 5482 s3).
            StallCountedFromFirst,
            /// A recovery outlives the acknowledgment of all that was sent before it (RFC 6582 s3.2).
            RecoveryEndsBeyond,
            /// The receive buffer grows with all that was ever read, not with how fast that is.
            ReadRateAccumulates,
            /// Of a segment that lies around a held block only what comes before that is kept (RFC 9293 s3.10.7.4).
            TailBehindHeldLost,
            /// Two segments that arrived behind a hole are enough for a loss (RFC 6675 s4).
            LostAfterExactlyTwo,
            /// What the device cuts may fill the congestion window, whatever is on its way (RFC 5681 s3.1).
            CutSegmentIgnoresPipe,
            /// Who did not answer when asked alone is asked among all only once (RFC 1122 s2.3.2.1).
            ProbeTriesCarryOver,
            /// Each new connection has its path's MTU believed ten minutes longer (RFC 1191 s6.3).
            PathMtuRenewedByUse,
            /// A socket may be a member of one group more than the limit (setsockopt(2), ENOBUFS).
            OneMembershipMore,
            /// A connection that left is still there to be accepted.
            SilentlyEndedStaysQueued,
            /// A listener's connections in a second are all there ever were.
            SynRateCountsForever,
            /// The pause before the device is tried again never becomes shorter.
            RetryPauseNeverShrinks,
            /// A connection in a TIME-WAIT's place loses its rule with that (RFC 6191 s2).
            ReusedRuleDetached,
            /// A connection that another ring takes over while the device refuses it never waits for the device again.
            HandoverKeepsStalled,
            /// A connection that another ring takes over relies on a timer of the first one's.
            HandoverKeepsFarTimer,
            /// Who sleeps until the next deadline misses those of questions to neighbours.
            NeighbourDeadlineMissed,
            /// A connection from another process forgets that its reading has ended (shutdown(2)).
            SnapshotForgetsReadShut,
            /// Bytes that are lent count no more once the connection has been idle for a second.
            IdleForgetsLent,
            /// A group's datagrams come no more when one member is left (RFC 1112 s7.1).
            GroupRuleLeavesOneMember,
            /// A cyclic buffer that began anew counts as full.
            CyclicStaysFull,
            /// A datagram that no record holds is offered for ever.
            OversizedStays,
            /// Of the connections that may wait for an acknowledgment, one is asked.
            WakeAsksOne,
            /// Timers run before frames that came before them.
            RestOfFramesAfterTimers,
            /// A second SYN insists, whatever its number (RFC 9293 s3.10.7.4).
            KnockOfAnyNumber,
            /// Of two connections that are no more, the older one's number counts (RFC 1122 s4.2.2.13).
            PredecessorOldestCounts,
            /// Behind a dummy that the device refused, all that is sent is one.
            DummySticksWhenRefused,
            /// A frame's payload in the device's memory is what that begins with, wherever it was to begin.
            RawMemoryOffsetIgnored,
            /// A flow's rate holds for all that its ring sends (SO_MAX_PACING_RATE, socket(7)).
            FlowRateOfWholeRing,
            /// Datagrams do not keep to their socket's rate (SO_MAX_PACING_RATE, socket(7)).
            DatagramsUnpaced,
            /// A socket's rate is that of the next one in its place.
            FlowRateOutlivesFlow,
            /// What a read that polled has left is no event (epoll(7), edge-triggered).
            RestOfPolledReadUntold,
            /// A connection whose rate the ring keeps keeps none (SO_MAX_PACING_RATE, socket(7)).
            RateNotKept,
            /// A connection that waited for its rate is not sent for when its turn has come.
            RateTurnForgotten,
            /// Who sleeps until the next deadline misses the turns of connections with rates.
            RateDeadlineMissed,
            /// What a rate holds back holds back acknowledgments, too (RFC 9293 s3.8.6.3: within half a second).
            RateHoldsAcknowledgments,
            /// What was sent has no timer while a rate holds back the rest (RFC 6298 s5.1).
            RateHoldsTimers,
            /// A segment that lies in more buffers than the device gathers counts as a full one where the congestion window is small (RFC 5681 s3.1).
            CwndCountsWhatIsNotGathered,
            $($others)*
        }
    };
}
