//! More of TCP's mutants.

/// Puts them before those of [`super::Mutant`]'s other areas.
macro_rules! with_tcp {
    ($($others:tt)*) => {
        with_slips! {
            /// An acknowledgment older than the window of now is refused, not than the largest one (RFC 5961 s5.2).
            AckFloorOfCurrentWindow,
            /// Of several reported blocks one is noted (RFC 2018 s5).
            FirstSackBlockOnly,
            /// A segment with bytes counts as a duplicate acknowledgment (RFC 5681 s2).
            DataSegmentsCountAsDuplicates,
            /// An acknowledgment that repeats itself while nothing is on its way counts as a duplicate (RFC 5681 s2).
            DuplicatesWithNothingInFlight,
            /// Duplicate acknowledgments count on after a new one (RFC 5681 s3.2).
            DuplicatesAddUp,
            /// Without SACK, duplicates of what ended a recovery begin another (RFC 6582 s3.2 step 2).
            DuplicatesOfRecoverCount,
            /// A window that comes with bytes is not noted (RFC 9293 s3.10.7.4).
            WindowOfDataIgnored,
            /// Whatever is acknowledged first ends the measurement of a round trip (RFC 6298 s3).
            RttEndsAtAnyAck,
            /// What was sent again is measured (RFC 6298 s3).
            KarnIgnored,
            /// The retransmission timeout ends at two seconds (RFC 6298 s2.5).
            BackoffCappedEarly,
            /// A timeout leaves the slow-start threshold as it is (RFC 5681 s3.1).
            TimeoutKeepsThreshold,
            /// A loss leaves the congestion window as it is (RFC 5681 s3.2).
            LossKeepsWindow,
            /// What was sent again and is lost again is left to the timer (RFC 8985 s6.2).
            LostAgainNeverFound,
            /// That it was lost again takes nothing from the window (RFC 5681 s4.3).
            LostAgainKeepsWindow,
            /// The end of what was sent is not probed (RFC 8985 s7.2).
            NoTailProbe,
            /// It is probed before an answer can have come (RFC 8985 s7.2).
            ProbeTooEarly,
            /// It is probed again and again, and never times out (RFC 8985 s7.3: "at most one").
            ProbesWithoutEnd,
            /// What is probed is the beginning (RFC 8985 s7.3).
            ProbeSendsHead,
            /// That a probe repaired a loss takes nothing from the window (RFC 8985 s7.4.2).
            ProbeHidesLoss,
            /// What was sent long before something that arrived does not count as lost (RFC 8985 s6.2).
            OvertakenNeverFound,
            /// What was sent before something that arrived counts as lost, however little before it was (RFC 8985 s6.2 step 4).
            OvertakenAtOnce,
            /// What was sent before something that arrived waits for the retransmission timeout, if no more arrives (RFC 8985 s6.2 step 5).
            NoReorderingTimer,
            /// It does not wait for the reordering window (RFC 8985 s6.2 step 5).
            ReorderingTimerAtOnce,
            /// What came twice does not widen the reordering window (RFC 8985 s6.2 step 4).
            ReorderingWindowStays,
            /// In a recovery two segments more go than what arrived lets go (RFC 9937 s6.2).
            ProportionExceeded,
            /// Marks are not told of (RFC 3168 s6.1.3).
            MarksUntold,
            /// Marks are told of once, whether the peer has heard of it or not (RFC 3168 s6.1.3).
            EchoesOnce,
            /// The peer's answer does not end that it is told of a mark (RFC 3168 s6.1.3).
            EchoesForever,
            /// DCTCP's receiver tells of marks as others do, until it is answered (RFC 8257 s3.2).
            EchoesUntilAnswered,
            /// DCTCP's receiver does not acknowledge at once what came before a mark, or before bytes without (RFC 8257 s3.2).
            EchoesTogether,
            /// A mark that the peer tells of changes nothing (RFC 3168 s6.1.2).
            MarkChangesNothing,
            /// Each acknowledgment that tells of a mark takes from the window (RFC 3168 s6.1.2).
            EachEchoReduces,
            /// The peer is not told that the window came down (RFC 3168 s6.1.2).
            ReductionUntold,
            /// What is sent again is capable of ECN (RFC 3168 s6.1.5).
            RetransmissionCapable,
            /// Acknowledgments without bytes are capable of ECN (RFC 3168 s6.1.4).
            BareAckCapable,
            /// Bytes are capable of ECN although nobody agreed on it (RFC 3168 s6.1.1).
            CapableUnasked,
            /// A SYN-ACK agrees on ECN that nobody asked for (RFC 3168 s6.1.1).
            EcnUnasked,
            /// A SYN that got no answer asks for ECN again (RFC 3168 s6.1.1.1).
            SynAsksAgain,
            /// ECN is agreed on although the peer's last SYN does not ask for it (RFC 3168 s6.1.1).
            EcnKeptAfterPlainSyn,
            /// Any cookie is a good one (RFC 7413 s4.2.2).
            CookieUnchecked,
            /// Every host is given the same cookie (RFC 7413 s4.1.2).
            CookieForEveryHost,
            /// Who asks for a cookie is given none (RFC 7413 s4.2.2).
            CookieUntold,
            /// Who does not ask for a cookie is given one (RFC 7413 s4.2.2).
            CookieUnasked,
            /// A cookie is given in another form than it was asked for in.
            CookieInOtherForm,
            /// Cookies of the key before are good no more (TCP_FASTOPEN_KEY).
            BackupKeyIgnored,
            /// Bytes are taken from a SYN without a cookie (RFC 7413 s4.2.2).
            SynBytesUncookied,
            /// Bytes of a SYN are taken, and not acknowledged, so that they are taken again (RFC 7413 s4.2.2).
            SynBytesTwice,
            /// Any number of connections are their programs' before their handshakes are over (RFC 7413 s5.1).
            EarlyBoundIgnored,
            /// A connection that was reset counts no more among them (RFC 7413 s5.1).
            EarlyResetForgotten,
            /// One that timed out counts for good.
            EarlyCountKept,
            /// A connection that began with a good cookie is its program's when the handshake is over, and not before (RFC 7413 s4.2.2).
            EarlyAcceptHeld,
            /// What its program answers by then waits for the end of the handshake (RFC 7413 s4.2.2).
            EarlyAnswerHeld,
            /// The cookie that a peer gives is not kept (RFC 7413 s4.1.3).
            CookieForgotten,
            /// A SYN has bytes although no cookie is known (RFC 7413 s4.1.3).
            SynBytesUnasked,
            /// A SYN's bytes are as many as a segment's (RFC 7413 s4.2.1).
            SynBytesBeyondMss,
            /// A SYN that goes again has its bytes and its cookie again (RFC 7413 s4.1.3.1).
            SynAgainWithCookie,
            /// Bytes that a SYN-ACK does not acknowledge wait for the timer (RFC 7413 s4.2.1).
            SynBytesTakenForArrived,
            /// A path that drops SYNs with bytes is given more of them (RFC 7413 s4.1.3.1).
            FastOpenTriedForever,
            /// A SYN that was too long for its path waits for the timer.
            SynTooLongWaits,
            /// Behind the threshold the congestion window grows no more (RFC 5681 s3.1).
            AvoidanceStandsStill,
            /// A change of options, or of the path's MTU, makes the congestion window the initial one (RFC 5681 s3.1).
            OptionsRefreshCwnd,
            /// Idleness makes a small congestion window the initial one (RFC 5681 s4.1).
            IdleRestoresInitialWindow,
            /// Bytes that come with the handshake's last acknowledgment are lost (RFC 9293 s3.10.7.4).
            DataWithHandshakeAckDropped,
            /// After 24 minutes an old timestamp is no old one (RFC 7323 s5.5).
            PawsForgetsSoon,
            /// The timestamp of a segment without bytes is never echoed (RFC 7323 s4.3).
            StampOfBareAckIgnored,
            /// A peer's keepalive probe is not answered (RFC 9293 s3.8.4).
            KeepaliveProbeUnanswered,
            /// FIN-WAIT-2 ends after its time though the program still reads (RFC 9293 s3.6.1).
            HalfCloseTimesOut,
            /// The end of reading is no event (shutdown(2), poll(2)).
            ShutReadRaisesNothing,
            /// The number of probes counts though there is a user timeout (tcp(7), TCP_USER_TIMEOUT).
            KeepaliveIgnoresUserTimeout,
            /// A cork holds full segments (tcp(7), TCP_CORK).
            CorkHoldsFullSegments,
            /// What a cork held is not sent when it is drawn (tcp(7), TCP_CORK).
            OptionsWakeNothing,
            /// MSG_MORE holds nothing (send(2)).
            MoreMeansNothing,
            /// Send buffers are given back once all is acknowledged, and not before.
            AckedBuffersKept,
            /// Half of what was lent is never offered again.
            GivesBackHalf,
            /// A FIN that came early is looked for before its segment's bytes.
            EarlyFinMisplaced,
            /// Behind a second gap nothing is kept (RFC 9293 s3.10.7.4).
            OneBlockKept,
            /// A block is reported along with those that it holds (RFC 2018 s4).
            SackRepeatsSubsets,
            /// A smaller receive buffer takes back what was offered (RFC 9293 s3.8.6).
            SmallerBufferShrinksWindow,
            /// The receive buffer is not tuned (tcp(7), tcp_moderate_rcvbuf).
            BufferNeverGrows,
            /// The newest connection is accepted first (accept(2)).
            AcceptsNewestFirst,
            /// Behind an option that is not known none is seen (RFC 9293 s3.2).
            UnknownOptionEndsParsing,
            /// Segments with flags of RFC 3168 are dropped.
            CongestionFlagsRefused,
            /// A connection that times out says nothing of what ICMP said (RFC 1122 s4.2.3.9).
            SoftErrorForgotten,
            /// A write to a connection that was reset says that it ended (send(2)).
            WriteHidesError,
            /// A connection can be written to before it is one (connect(2)).
            WritableWhileConnecting,
            /// What is sent again is not counted (tcp(7), TCP_INFO).
            RetransmissionsUncounted,
            /// A connection from another process begins its timestamps anew (RFC 7323 s5.4).
            ResumeRestartsTimestamps,
            /// Of a connection that is written down, what came out of order is lost, and what was reported of it (RFC 2018 s8).
            SnapshotForgetsHeld,
            /// Of a connection that is written down, what its peer has reported is forgotten, and sent again (RFC 2018 s5).
            SnapshotForgetsReported,
            /// A connection from another process takes its retransmission timeout for the first one (RFC 6298 s5.5).
            SnapshotForgetsBackoff,
            /// A connection from another process has no timers until something sets them (RFC 6298 s5).
            SnapshotForgetsTimers,
            /// A connection from another process begins with the initial window (RFC 5681 s3.1).
            ResumeRestoresInitialWindow,
            /// A connection from another process sends again what is on its way (RFC 5681 s3.1).
            MoveTakenForLoss,
            /// A connection from another process sends what MSG_MORE holds (send(2)).
            SnapshotForgetsMore,
            /// Of a connection that is written down, what its path carries is forgotten (RFC 1191 s6.3).
            SnapshotForgetsPath,
            /// Of a connection that is written down, what it has counted is forgotten (tcp(7), TCP_INFO).
            SnapshotForgetsCounters,
            /// A closed listener's address stays taken (bind(2)).
            ListenerKeepsAddress,
            /// A round trip is measured from the last segment that was sent (RFC 6298 s3).
            RttOfLastSegment,
            /// A timeout halves the window that was allowed, not what was in flight (RFC 5681 s3.1).
            ThresholdOfWindow,
            /// A connection hangs up once one direction has ended (poll(2)).
            HangUpHalfway,
            /// An MSS counts in a segment that is no SYN (RFC 9293 s3.7.1).
            MssOfAnySegment,
            /// Who ends the second direction is not told that both have (epoll(7)).
            OwnEndHangsUpUntold,
            $($others)*
        }
    };
}
