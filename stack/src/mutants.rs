//! Mutants: the stack with one thing wrong, chosen by `RingConfig::mutant`, so that those who check the stack can be
//! checked themselves (`sim/tests/mutants.rs`). Behind the feature `mutants`; without it each hook is a constant `false`.

#[macro_use]
mod socket;
#[macro_use]
mod ipv6;
#[macro_use]
mod ring;
#[macro_use]
mod slips;
#[macro_use]
mod tcp;

macro_rules! mutants {
    ($($(#[$doc:meta])* $name:ident,)* ; at large: $($(#[$large_doc:meta])* $large:ident,)*) => {
        /// What is wrong.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Mutant {
            /// Nothing.
            #[default]
            Healthy,
            $($(#[$doc])* $name,)*
            $($(#[$large_doc])* $large,)*
        }

        impl Mutant {
            /// All that a checker must catch.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];
            /// Those that no checker is known to catch: what laws and stories are still to be written for.
            pub const AT_LARGE: &'static [Self] = &[$(Self::$large,)*];
        }
    };
}

/// Which mutant a part of the stack is that does not see its owner's configuration. Without the feature it has no size, and is healthy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mutation {
    #[cfg(feature = "mutants")]
    pub(crate) mutant: Mutant,
}

impl Mutation {
    /// Nothing is wrong.
    pub(crate) const HEALTHY: Self = Self {
        #[cfg(feature = "mutants")]
        mutant: Mutant::Healthy,
    };

    /// Whether it is none; a constant `true` without the feature.
    #[inline(always)]
    pub(crate) fn is_healthy(self) -> bool {
        #[cfg(feature = "mutants")]
        return self.mutant == Mutant::Healthy;
        #[cfg(not(feature = "mutants"))]
        true
    }

    /// Whether it is this mutant; a constant `false` without the feature.
    #[inline(always)]
    pub(crate) fn is(self, mutant: Mutant) -> bool {
        #[cfg(feature = "mutants")]
        return self.mutant == mutant;
        #[cfg(not(feature = "mutants"))]
        {
            let _ = mutant;
            false
        }
    }
}

with_ring! {
    {
    /// While there is a gap, one byte more is acknowledged than was received.
    AckBeyondReceived,
    /// A SACK block names a byte that did not arrive.
    WrongSack,
    /// A retransmission carries the bytes one further on.
    RetransmitWrongBytes,
    /// Timestamps run backwards now and then.
    TimestampBackwards,
    /// Segments are larger than the peer's MSS allows.
    IgnorePeerMss,
    /// A checksum's verdict is ignored.
    AcceptBadChecksum,
    /// The reader's room is never announced.
    NoWindowUpdate,
    /// Half of what is free is announced, whatever was before.
    ShrinkWindow,
    /// The peer's window is ignored.
    IgnorePeerWindow,
    /// The congestion window is ignored.
    IgnoreCwnd,
    /// A retransmission timeout leaves the congestion window as it is.
    NoCollapse,
    /// The retransmission timeout is never doubled.
    NoBackoff,
    /// The retransmission timer runs out after an eighth of its time.
    RtoTooEarly,
    /// Connections don't wait out TIME-WAIT.
    NoTimeWait,
    /// TIME-WAIT lasts a quarter of its time.
    ShortTimeWait,
    /// Keepalive never probes.
    NoKeepalive,
    /// A shut window is never probed.
    NoPersist,
    /// The retransmission timer is never started.
    LostTimer,
    /// A delayed acknowledgment is forgotten.
    NoDelayedAck,
    /// A byte is lost when a gap is filled.
    SkipByteOnReassembly,
    /// Bytes that fill a gap are delivered twice.
    DeliverDuplicate,
    /// A FIN ends the stream though bytes before it are missing.
    EofEarly,
    /// A byte follows the FIN.
    DataAfterFin,
    /// A connection that was aborted retransmits on.
    DataAfterReset,
    /// Bytes that arrive raise no edge unless the queue was empty.
    DropReadEdge,
    /// Room to write raises no edge.
    DropWriteEdge,
    /// A timer raises an edge for bytes that aren't there.
    SpuriousEdge,
    /// A connection's send buffers are never given back.
    LeakBuffer,
    /// A closed socket's flow rule stays.
    LeakRule,
    /// A closed connection's address stays taken.
    LeakFlow,
    /// A closed connection that ended is never forgotten.
    LeakSocket,
    /// A FIN is sent once.
    FinNotRetransmitted,
    /// A FIN goes out beyond the peer's window.
    FinTakesNoRoom,
    /// An abort tells the peer nothing.
    NoReset,
    /// A datagram loses its last byte.
    UdpTruncate,
    /// Every datagram is received twice.
    UdpDuplicate,
    /// A datagram is said to come from another port.
    UdpMisattribute,
    /// A peer that dies resets its connections, whatever its program had read.
    DeathIsReset,
    /// A peer that dies ends its streams, whatever its program had not read.
    DeathIsEnd,
    /// A datagram for a socket with that peer goes to whoever has the local address.
    PeerIsNotPreferred,
    /// Of the listeners that share an address, the last one gets every connection.
    ListenersNotShared,
    /// What was reported by SACK is taken for received, whatever the peer acknowledges later.
    TrustSack,
    /// What a connection that leaves its ring has received and not given is lost.
    UndeliveredLosesUnread,
    /// Of a connection that leaves its ring, the end of its stream is forgotten.
    UndeliveredForgetsEnd,
    /// The flow rule of a connection that leaves its ring stays.
    SilentEndLeaksRule,
    /// A connection that has left its ring is a stranger there.
    SilentEndForgets,
    /// Of a connection that is written down, the bytes that nobody has read are lost.
    SnapshotLosesUnread,
    /// A connection that was written down has promised its peer no window.
    SnapshotForgetsWindow,
    /// What a program holds by reference counts against no receive buffer.
    LentUncounted,
    /// What is lent of a stream is a copy.
    LendCopies,
    /// Bytes that were given back make room, and the peer is not told.
    GiveBackUnsaid,
    /// Datagrams that were given back go on counting against their socket's buffer.
    GiveBackForgotten,
    /// What a program drops before it is read is read all the same.
    DroppedIsRead,
    /// What it drops makes no room.
    DroppedTakesRoom,
    /// What a stream brings is read before anybody has decided about it.
    UndecidedIsRead,
    /// A SYN in the window resets the connection.
    SynResets,
    /// What is no exact reset is ignored without a word.
    SilentOnReset,
    /// So is a SYN for a connection that stands.
    SilentOnSyn,
    /// So is an acknowledgment of what was never sent.
    SilentOnAck,
    /// Timestamps are no protection against old segments.
    NoPaws,
    /// A segment's timestamp is remembered before its acknowledgment is looked at.
    TimestampBeforeAck,
    /// What a segment brings that acknowledges what was never sent is taken.
    IgnoreUnsentAck,
    /// So is what one brings that acknowledges what nobody remembers.
    AcceptAncientAck,
    /// ICMP errors are believed whatever they quote.
    BelieveAnyError,
    /// A hard ICMP error ends an established connection.
    HardErrorEnds,
    /// A path's MTU is believed however small it is.
    BelieveTinyPath,
    /// A SYN says where its sender's neighbour is to be found, whatever ARP has said.
    SynTeachesNeighbour,
    /// A datagram without a checksum is dropped.
    NeedUdpChecksum,
    /// A connected UDP socket hears everybody.
    ConnectedHearsAll,
    /// The device (the simulator's, which asks) receives into buffers that programs still hold.
    RecycleHeld,
    /// Twice the congestion window may be on its way.
    CwndTwice,
    /// A connection begins with twice the initial window.
    InitialWindowTwice,
    /// Nothing is retransmitted before the timer says so.
    NoFastRetransmit,
    /// What SACK reported is retransmitted with the rest.
    RetransmitsReported,
    /// Every segment's timestamp is echoed, wherever it lies.
    EchoEveryTimestamp,
    /// Small segments do not wait for one another.
    NagleIgnored,
    /// What came twice is not reported.
    NoDuplicateSack,
    /// The newest block is reported last.
    OldestSackFirst,
    /// Only each sixth segment is acknowledged at once.
    AckSeldom,
    /// A gap is acknowledged in due time.
    GapNotUrgent,
    /// A FIN is acknowledged in due time.
    FinNotUrgent,
    /// An acknowledgment is delayed for eight times as long as was declared.
    DelayedAckSlow,
    /// Each read is followed by an acknowledgment.
    AckEachRead,
    /// The end of what was written is not pushed.
    NoPush,
    /// SYNs do not permit SACK.
    SynWithoutSack,
    /// A reset for a stranger has the number behind the right one.
    ResetWrongNumber,
    /// A reset anywhere in the window ends the connection.
    InexactResetAccepted,
    /// Keepalive's probes come after half of the time.
    KeepaliveEarly,
    /// Keepalive never gives up.
    KeepaliveForever,
    /// The retransmission timer runs out after sixteen times its time.
    RtoTooLate,
    /// An acknowledgment sends nothing that waited for it.
    StallsAfterAck,
    /// The window of a SYN is scaled (RFC 7323 s2.2).
    SynWindowScaled,
    /// Windows are scaled though the peer did not offer it (RFC 7323 s2.2).
    ScaleUnasked,
    /// SACK is used though the peer did not permit it (RFC 2018 s2).
    SackUnasked,
    /// A SYN-ACK echoes a timestamp of zero (RFC 7323 s3.2).
    SynAckEchoesNothing,
    /// SYNs are retransmitted at a constant rate (RFC 6298 s5.5).
    SynNotBackedOff,
    /// A connection that is established raises no edge to write (epoll(7)).
    ConnectedRaisesNothing,
    /// A connection that is not alone in the accept queue raises no edge (epoll(7)).
    SecondConnectionRaisesNothing,
    /// A timestamp that is not newer than the last one counts as old (RFC 7323 s5.3).
    PawsStrict,
    /// The timestamps of predicted segments are not remembered (RFC 7323 s4.3).
    PredictedTimestampForgotten,
    /// What is sent again, or asks, carries no timestamp (RFC 7323 s3.2).
    PureAckWithoutTimestamp,
    /// Segments are as long as if they had no timestamps (RFC 6691 s2).
    TimestampLengthForgotten,
    /// Segments are as long as if they had no SACK blocks (RFC 6691 s2).
    SackLengthForgotten,
    /// The bytes that come with an acknowledgment of what was never sent are taken (RFC 5961 s5.2).
    AckOfUnsentKeepsData,
    /// Bytes that were received before are not acknowledged again (RFC 9293 s3.10.7.4).
    OldDataUnanswered,
    /// What arrives after our FIN was acknowledged is dropped (RFC 1122 s4.2.2.13).
    HalfClosedReceivesNothing,
    /// Bytes that come with the acknowledgment of our FIN are dropped (RFC 9293 s3.10.7.4).
    DataWithFinAckDropped,
    /// A FIN that comes before bytes is forgotten (as in smoltcp #112).
    EarlyFinForgotten,
    /// A FIN that comes twice is counted twice (RFC 9293 s3.10.7.4).
    DuplicateFinAdvances,
    /// The end of the peer's stream raises no edge (epoll(7)).
    FinRaisesNothing,
    /// A delayed acknowledgment that rode on something is sent again by itself (RFC 9293 s3.8.6.3).
    DelayedAckNotStopped,
    /// A SACK block names the newest segment alone, not the block around it (RFC 2018 s4).
    SackNamesSegment,
    /// Blocks are reported that were acknowledged since (RFC 2018 s4).
    SackOfAcknowledged,
    /// Blocks that came to touch one another are reported apart (RFC 2018 s3).
    BlocksNotJoined,
    /// What was dropped to make room is reported on (RFC 2018 s8).
    PrunedStillReported,
    /// A hole is lost as soon as one segment arrived behind it (RFC 6675 s4).
    LostAfterOne,
    /// What was sent again does not count as on its way (RFC 6675 s4).
    PipeForgetsRetransmissions,
    /// The first acknowledgment ends a recovery (RFC 6582 s1).
    PartialAckEndsRecovery,
    /// Retransmissions do not wait for the congestion window (RFC 6675 s5).
    RetransmitsBeyondCwnd,
    /// After a timeout the window is the initial one (RFC 5681 s3.1).
    LossWindowIsInitial,
    /// A window that is not used grows (RFC 7661 s1).
    UnusedWindowGrows,
    /// The timeout may be as short as a millisecond (RFC 6298 s2.4).
    NoLeastTimeout,
    /// The timeout stays doubled after an acknowledgment of something new (RFC 6298 s5.7).
    BackoffKept,
    /// An acknowledgment of something new does not restart the timer (as in smoltcp #953).
    TimerNotRestarted,
    /// The timer runs on though all was acknowledged (as in Zephyr #9504).
    TimerOutlivesFlight,
    /// Whatever is sent restarts the timer (RFC 6298 s5.1).
    TimerRestartedBySending,
    /// A window that opens sends nothing that waited for it (RFC 9293 s3.8.6).
    OpenedWindowUnused,
    /// The window does not depend on what waits for the reader (RFC 9293 s3.8.6.2.2).
    WindowOfWholeBuffer,
    /// A probe has the next number, which nobody need answer (as in picoTCP #126).
    ProbeAsksNothing,
    /// A FIN waits for Nagle's algorithm (RFC 9293 s3.7.4).
    NagleHoldsFin,
    /// Small segments wait for one another though they need not (tcp(7), TCP_NODELAY).
    NodelayIgnored,
    /// A FIN goes with the first part of bytes that lie in many buffers (RFC 9293 s3.10.4).
    FinBeforeItsBytes,
    /// A segment that the device refuses counts as sent.
    RefusedCountsAsSent,
    /// What the device cuts may be longer than the peer's window (RFC 9293 s3.8.6).
    CutSegmentIgnoresWindow,
    /// Any acknowledgment ends a connection in LAST-ACK (as in smoltcp #470).
    LastAckEndsByAnyAck,
    /// A FIN that comes with the acknowledgment of ours is looked at first (as in FreeRTOS-Plus-TCP #1303).
    FinBeforeItsAck,
    /// A simultaneous close leaves no TIME-WAIT (RFC 9293 s3.10.7.4).
    ClosingSkipsTimeWait,
    /// A repeated FIN ends the TIME-WAIT (RFC 9293 s3.10.7.4).
    TimeWaitEndsByFin,
    /// The addresses of a connection in TIME-WAIT are used again before a clock ticked (RFC 6191 s2).
    ReusedAtOnce,
    /// A reset takes what was received and not read (tcp(7)).
    ResetLosesUnread,
    /// A reset reads as the stream's end (recv(2), ECONNRESET).
    ResetReadsAsEnd,
    /// An aborted connection's reset is one beyond what was sent (RFC 9293 s3.10.5).
    ResetBehindWhatWasSent,
    /// A connection whose two streams have ended does not show it (poll(2), POLLHUP).
    NoHangUp,
    /// What is looked at is taken (recv(2), MSG_PEEK).
    PeekTakes,
    /// IP's checksum is not looked at (RFC 1122 s3.2.1.2).
    IpChecksumUnchecked,
    /// A frame's padding is taken for payload (RFC 1122 s2.3.3).
    PaddingIsPayload,
    /// A socket of every address comes before that of the datagram's (udp(7)).
    WildcardPreferred,
    /// Edges are lost while a socket's event waits to be taken (epoll(7)).
    LaterEdgesLost,
    /// A closed socket's event is still told (epoll(7)).
    EdgesOutliveClose,
    /// A timer that was put off is not waited for again.
    PutOffTimersLost,
    /// A connection's flow rule stays.
    StreamRuleLeaks,
    /// A sleeper who waits for room to write is not woken for the acknowledgment that makes it.
    ForgetsWriters,
    /// An acknowledgment that tells of a gap wakes nobody.
    QuietAboutGaps,
    /// A refused connection reports a reset one (connect(2), ECONNREFUSED).
    RefusedIsReset,
    /// A SYN that crosses ours is answered only once the timer runs out (RFC 9293 s3.5, figure 8).
    SimultaneousOpenUnanswered,
    /// A reset that refuses a SYN does not acknowledge it (as in Zephyr #90086).
    ResetForgetsSyn,
    /// After a pause the whole window goes at once (RFC 5681 s4.1).
    NoRestartAfterIdle,
    /// A shut window is probed at a constant rate (as in Zephyr #48471).
    PersistNotBackedOff,
    /// The time between probes doubles beyond two minutes (RFC 9293 s3.8.6.1).
    PersistUncapped,
    /// Keepalive sends one probe more than configured (tcp(7), TCP_KEEPCNT).
    KeepaliveOnceMore,
    /// Keepalive's probes are as far apart as the first one from the silence's beginning (tcp(7), TCP_KEEPINTVL).
    KeepaliveByIdle,
    /// An acknowledgment that the device refuses is forgotten.
    RefusedAckForgotten,
    /// What a read made due is sent with whatever comes next.
    ReadSendsLater,
    /// A closed socket whose FIN is acknowledged waits for ever for the peer's (tcp(7), tcp_fin_timeout).
    FinWait2Forever,
    /// A socket that is closed after its FIN was acknowledged waits for ever for the peer's (as in uC-TCP-IP #20).
    FinWait2ForeverOnceClosed,
    /// A socket that is closed with unread bytes ends its stream as if they had been read (RFC 2525 s2.17).
    UnreadIsForgotten,
    /// A port's unreachability quotes the datagram's addresses in the wrong order (RFC 792).
    UnreachableQuotesAnswer,
    /// A neighbour's address is believed for ever (RFC 1122 s2.3.2.1).
    ArpNeverExpires,
    /// A neighbour that moved is asked at its old address for ever (RFC 1122 s2.3.2.1).
    ArpProbesForever,
    /// Each packet asks for its neighbour (RFC 1122 s2.3.2.1).
    ArpAsksForEach,
    /// A neighbour is asked for ten times a second (RFC 1122 s2.3.2.1).
    ArpAsksTooOften,
    /// Requests for others are answered (RFC 826).
    ArpAnswersForOthers,
    /// A SYN-ACK completes the handshake whatever it acknowledges (RFC 9293 s3.10.7.3).
    StrangeSynAckAccepted,
    /// What a SYN-SENT connection did not send is acknowledged, and no reset says so (RFC 9293 s3.5.1).
    StrangeAckUnanswered,
    /// A reset that acknowledges nothing ends a SYN-SENT connection (RFC 9293 s3.10.7.3).
    SynSentResetBlindly,
    /// A repeated SYN brings no SYN-ACK before the timer does (RFC 9293 s3.10.7.4).
    SynAckNotRepeated,
    /// Any acknowledgment beyond what was sent completes a passive open (RFC 9293 s3.10.7.4).
    SynReceivedAckUnchecked,
    /// The window of our own SYN is scaled (RFC 7323 s2.2).
    OwnSynWindowScaled,
    /// The peer's windows are scaled by our own shift count (RFC 7323 s2.3).
    OwnScaleForPeer,
    /// After a SYN was lost twice the initial window is as large as ever (RFC 5681 s3.1).
    SynLossUnnoticed,
    /// The initial sequence number does not depend on the time (RFC 6528 s3).
    NumbersRepeat,
    /// A connection may begin below an earlier incarnation of the same addresses (RFC 1122 s4.2.2.13).
    EarlierIncarnationForgotten,
    /// Handshakes under way do not count against the backlog (as in gVisor #5637).
    BacklogCountsReadyOnly,
    /// One connection more than the backlog allows begins (as in gVisor #3153).
    BacklogOneMore,
    /// A handshake that failed goes on counting against the backlog (as in gVisor #11535).
    FailedHandshakeCounts,
    /// A listener that closes leaves its handshakes behind (as in gVisor #6671).
    HalfOpenOutliveListener,
    /// What acknowledges something to a listener is not reset (RFC 9293 s3.10.7.2).
    ListenerRefusesNothing,
    /// A reset that refuses a SYN has no ACK flag (RFC 9293 s3.10.7.1).
    ResetWithoutAck,
    /// While our window is shut, segments with bytes are dropped with their acknowledgments (RFC 9293 s3.10.7.4).
    ShutWindowRefusesAcks,
    /// Segments without ACK flag are taken (RFC 9293 s3.10.7.4).
    AckBitUnchecked,
    /// Challenge ACKs are sent at any rate (RFC 5961 s7).
    ChallengeUnlimited,
    /// A challenge ACK is sent once in 20 s only (RFC 5961 s7).
    ChallengeSeldom,
    /// A FIN behind nothing but old bytes is trimmed with them (RFC 9293 s3.10.7.4).
    FinBehindOldBytesLost,
    /// A FIN behind bytes that the window excludes is taken (RFC 9293 s3.10.7.4).
    FinBeyondWindowTaken,
    /// Every segment is acknowledged by itself (RFC 9293 s3.8.6.3).
    AckEverySegment,
    /// Each segment starts the time of a delayed acknowledgment anew (RFC 9293 s3.8.6.3).
    DelayedAckPutOff,
    /// A gap that was filled is acknowledged in due time (RFC 5681 s4.2).
    FilledGapNotUrgent,
    /// Only the newest block is reported (RFC 2018 s4).
    OneSackBlock,
    /// A duplicate is reported with every acknowledgment (RFC 2883 s4).
    DuplicateSackRepeated,
    /// All of a segment is reported as a duplicate of which a part was (RFC 2883 s4.2).
    DuplicateSackWhole,
    /// A report of a duplicate counts as one of a loss (RFC 2883 s5).
    DuplicateSackIsLoss,
    /// Blocks behind everything ever sent are taken (RFC 2018 s5).
    SackOfUnsentTaken,
    /// Two duplicate acknowledgments mean a loss (RFC 5681 s3.2).
    TwoDuplicatesSuffice,
    /// A loss halves the window instead of what was in flight (RFC 5681 s3.1).
    HalvesItsWindow,
    /// A loss takes a quarter of the window (RFC 5681 s3.1).
    LossTakesAQuarter,
    /// After a recovery the window is as before (RFC 6582 s3.2).
    RecoveryRestoresWindow,
    /// Slow start goes beyond its threshold (RFC 5681 s3.1).
    SlowStartPassesThreshold,
    /// Congestion avoidance grows by a segment for each that is acknowledged (RFC 5681 s3.1).
    AvoidanceBySegment,
    /// After a timeout an acknowledgment is good for all that it covers (RFC 3465 s2.3).
    StretchAckGrowsAll,
    /// The first sample's deviation is zero (RFC 6298 s2.2).
    FirstSampleIsCertain,
    /// The deviation is computed after the mean it refers to (RFC 6298 s2.3).
    VarianceAfterMean,
    /// The timeout does not depend on the deviation (RFC 6298 s2.3).
    TimeoutIgnoresVariance,
    /// The timeout is doubled beyond its maximum (RFC 6298 s2.5).
    BackoffUncapped,
    /// Timeouts count on though something new was acknowledged in between (RFC 9293 s3.8.3).
    RetriesAddUp,
    /// One retransmission more than configured is made (tcp(7), tcp_retries2).
    OneRetryMore,
    /// A closed socket retransmits for as long as an open one (tcp(7), tcp_orphan_retries).
    OrphanRetriesAsLong,
    /// The window is taken from segments of any age (RFC 9293 s3.10.7.4).
    WindowOfOldSegments,
    /// The window is taken only with an acknowledgment of something new (as in smoltcp #62).
    WindowNeedsNewAck,
    /// Whatever the window has room for is sent (RFC 9293 s3.8.6.2.1).
    SillyWindowFilled,
    /// A small window is filled by one segment (as on a stack without Linux's tcp_bound_to_half_wnd).
    SmallWindowInOnePiece,
    /// Each byte of room is announced by a segment (RFC 9293 s3.8.6.2.2).
    WindowUpdatesTooOften,
    /// Room is announced once everything was read (as in smoltcp #199).
    WindowUpdateOnlyWhenEmpty,
    /// The probe's timer runs on though the window opened (RFC 9293 s3.8.6.1).
    PersistOutlivesWindow,
    /// The next shut window is first probed as late as the last one was at the end (RFC 9293 s3.8.6.1).
    PersistBackoffKept,
    /// Keepalive probes while bytes wait to be acknowledged (RFC 9293 s3.8.4).
    KeepaliveWhileSending,
    /// What was written with more to follow waits though the next write says that nothing follows (send(2), MSG_MORE).
    MoreSticks,
    /// A cork holds what is small for ever (tcp(7), TCP_CORK).
    CorkForever,
    /// Bytes that are sent again lose their FIN, which counts as sent (as in Zephyr #46350).
    FinLostWithBytesSentAgain,
    /// A connection whose segment the device refuses is not tried again.
    StalledForgotten,
    /// A connection that the peer closed first goes through FIN-WAIT-1 (RFC 9293 s3.10.4).
    CloseWaitBecomesFinWait,
    /// A reset ends a TIME-WAIT (RFC 1337 s3).
    TimeWaitAssassinated,
    /// A repeated FIN does not restart the TIME-WAIT (RFC 9293 s3.10.7.4).
    TimeWaitNotRestarted,
    /// A repeated FIN is not acknowledged in TIME-WAIT (as in Zephyr #46407).
    TimeWaitFinUnanswered,
    /// Any SYN ends a TIME-WAIT (RFC 9293 s3.10.7.4).
    TimeWaitSynOfAnyNumber,
    /// No SYN's number ends a TIME-WAIT (RFC 9293 s3.10.7.4).
    TimeWaitSynRefused,
    /// A reset after the peer's end leaves no error (tcp(7), EPIPE).
    ResetAfterEndIsSilent,
    /// An error is told with every call (socket(7), SO_ERROR).
    ErrorToldAgain,
    /// A connection that ended keeps its addresses until it is closed.
    EndedKeepsAddresses,
    /// Timers of more than a few minutes are lost.
    FarTimersLost,
    /// A SYN that was sent again is timed from its first copy (RFC 6298 s3).
    SynRttOfRetransmission,
    /// Resets with old timestamps are dropped (RFC 7323 s5.2).
    PawsDropsResets,
    /// A reset one below the next number ends the connection (RFC 5961 s3.2).
    ResetOneBelowAccepted,
    /// A reset at the number acknowledged last ends the connection (RFC 5961 s3.2).
    ResetAtLastAckAccepted,
    /// Bytes that were received before are acknowledged again at the rate of challenges (RFC 5961 s7).
    OldDataRateLimited,
    /// A probe counts as the acknowledgment that is due (RFC 9293 s3.8.4).
    ProbeCountsAsAck,
    /// A partial acknowledgment sends nothing again (RFC 6582 s3.2).
    PartialAckWaits,
    /// Each partial acknowledgment starts the timer anew, whatever hole it shows (RFC 6582 s3.2 step 3).
    EachPartialAckRestartsTimer,
    /// Whatever room there is is announced (RFC 9293 s3.8.6.2.2).
    SillyWindowOffered,
    /// A window that stays shut ends the connection though probes are answered (RFC 9293 s3.8.6.1).
    PersistGivesUp,
    /// What the peer says does not count as an answer to probes (RFC 9293 s3.8.4).
    ProbesNeverAnswered,
    /// An idle connection keeps its send buffers.
    IdleBuffersKept,
    /// What a read made due is queued without the device being told.
    ReadRingsNoDoorbell,
    /// Nothing is tried again at once when the device comes back.
    DeviceResetUnnoticed,
    /// A UDP socket without a peer is told of errors (RFC 1122 s4.1.3.3).
    UnconnectedHearsErrors,
    /// ICMP's checksum is not looked at (RFC 792).
    IcmpChecksumUnchecked,
    /// A ping's answer has another number (RFC 792).
    PingWrongNumber,
    /// A datagram for a port that nobody has is not answered (RFC 1122 s4.1.3.1).
    PortUnreachableUnsaid,
    /// A fragment is taken for the whole packet (RFC 791 s3.2).
    FragmentIsWhole,
    /// Packets for other addresses are taken (RFC 1122 s3.2.1.3).
    ForeignPacketsTaken,
    /// UDP's checksum is not looked at (RFC 1122 s4.1.3.4).
    UdpChecksumUnchecked,
    /// A datagram without bytes is dropped (udp(7)).
    EmptyDatagramDropped,
    /// Datagrams without bytes do not count against the buffer.
    EmptyDatagramsUnbounded,
    /// A datagram larger than the buffer is dropped though nothing waits (as Linux takes it).
    EmptyQueueDrops,
    /// A datagram that is not alone in its queue raises no edge (epoll(7)).
    SecondDatagramRaisesNothing,
    /// A connected socket sends to its peer wherever it is told to send (sendto(2)).
    PeerBeforeDestination,
    /// What is sent to a group has the time to live of all else (RFC 1112 s6.1).
    GroupTtlOfUnicast,
    /// What is sent to a group comes back though it was not to (ip(7), IP_MULTICAST_LOOP).
    LoopsUnasked,
    /// The first member that leaves a group leaves for all (RFC 1112 s7.1).
    FirstLeaverLeaves,
    /// Routers are not told that the last member left (RFC 2236 s3).
    LeaveUnsaid,
    /// One member hears each datagram (RFC 1112 s6).
    GroupHeardByOne,
    /// A new socket does not get what the flow found last got (as with a stale early-demultiplexing cache).
    CachedFlowShadows,
    /// A query is answered within four times its time (RFC 2236 s3).
    ReportTooLate,
    /// A query is not answered (RFC 2236 s3).
    QueryUnanswered,
    /// A closed socket stays a member (ip(7)).
    MembershipOutlivesClose,
    /// A neighbour is asked for once (RFC 826).
    ArpAsksOnce,
    /// A neighbour that is not there is asked for without end (as Linux's mcast_solicit bounds it).
    ArpAsksForever,
    /// Who asks for us is not remembered (RFC 826).
    ArpAskerForgotten,
    /// Only the last datagram waits for a neighbour's answer (as in Zephyr #50140).
    HeldOnlyLast,
    /// Datagrams go to whichever neighbour answers first (as in rcore-os tgoskits #677).
    HeldGoesToWhoever,
    /// Datagrams that waited for a neighbour are lost (RFC 1122 s2.3.2.2).
    HeldNotReleased,
    /// A new Ethernet address is not announced (RFC 5227 s3).
    ReaddressUnannounced,
    /// A timestamp is held against what came 24 days ago or more.
    PawsKeepsAncientStamps,
    /// Timestamps are compared as if they did not wrap.
    PawsComparesUnsigned,
    /// A SYN without the option is taken for a segment size of 1460.
    SynWithoutMssMeansFull,
    /// A shift count beyond 14 is used as it is.
    ScaleUncapped,
    /// Predicted segments leave no trace of which segment the window came with.
    PredictionForgetsWl1,
    /// Whatever is refused in TIME-WAIT begins it anew.
    TimeWaitRestartedByAnything,
    /// A SYN with the very timestamp that was last seen ends TIME-WAIT.
    TimeWaitTakesEqualStamp,
    /// What comes for a closed socket is acknowledged and thrown away.
    OrphanSwallowsData,
    /// A reset has the number of the oldest byte in flight.
    ResetAtSndUna,
    /// Predicted segments do not count as answers to probes.
    ProbesCountedForever,
    /// Keepalive does not begin on a connection that is open already.
    KeepaliveSetLateIgnored,
    /// The peer's FIN ends keepalive.
    KeepaliveStopsAtFin,
    /// A closed socket's unanswered window probes have no end.
    OrphanProbesForever,
    /// A window that stays silly is never filled.
    SillyWindowNeverOverridden,
    /// Half of the window as it is now is worth sending.
    SillyHalfOfCurrentWindow,
    /// Each look at what is corked gives it another 200 ms.
    CorkTimerRestarted,
    /// What was pushed out once makes all small segments go at once.
    PushNeverCleared,
    /// Each timeout begins the user timeout anew.
    UserTimeoutRestarts,
    /// After a timeout, what a recovery had sent again is not sent once more.
    TimeoutKeepsHighRxt,
    /// A block that grows counts whole each time.
    SackedTwiceCounted,
    /// What was reported by SACK counts as in the network.
    PipeIgnoresSacked,
    /// The first duplicate acknowledgments let nothing new go.
    NoLimitedTransmit,
    /// Without SACK, window updates count as duplicate acknowledgments.
    WindowUpdatesCountAsDuplicates,
    /// Without SACK, a partial acknowledgment takes no duplicates off.
    PartialAckDeflatesNothing,
    /// A path MTU that shrinks collapses the congestion window.
    MtuCutTakenForCongestion,
    /// Timeouts of small segments count as a black hole.
    BlackHoleBySmallSegments,
    /// An echo from before the connection is a round trip.
    EchoOfAnyAge,
    /// The deviation is taken from the mean that has the sample in it already.
    RttvarAfterSrtt,
    /// A sender counts as idle only if it hears nothing.
    IdleMeasuredByReceipt,
    /// What came twice behind a gap is not reported as such.
    NoDsackForHeldBytes,
    /// A block that ends before what is expected sets that back.
    DrainStepsBack,
    /// The receive buffer grows beyond its largest size.
    BufferGrowsPastMax,
    /// The send buffer's limit goes for each write.
    SndbufCountedPerWrite,
    /// A late entry of the wheel is taken for an early one.
    FarTimerTakenForNear,
    /// The peer's FIN after ours raises no hang-up.
    HangUpUntold,
    /// Initial numbers do not depend on ports.
    IsnBlindToPorts,
    /// A second listen changes no backlog.
    SecondListenIgnored,
    /// Accepted connections do not inherit keepalive.
    AcceptedForgetsKeepalive,
    /// A socket that gives up its peer keeps the address it had for it.
    UdpDisconnectKeepsAddress,
    /// A socket that joins others on an address does not get what the last datagram's sender sends.
    SharedJoinLeavesCache,
    /// Of sockets that share a port, one gets all.
    ReusePortUnbalanced,
    /// The length of a datagram that was cut is that of the part.
    TruncationUntold,
    /// What was cut off a datagram counts against the queue for ever.
    TruncationLeaksQueue,
    /// A UDP checksum that comes out as zero goes out as zero.
    ComputedZeroChecksumSent,
    /// Leaving is told to the group, and not to the routers.
    LeaveTellsGroup,
    /// A second query postpones a report.
    QueryPostponesReport,
    /// A datagram in a frame for many is answered by an error.
    ErrorForFrameToMany,
    /// A router that tells no MTU brings the path to its floor.
    OldRouterMeansFloor,
    /// While a neighbour is awaited, the latest datagram is the one that is dropped.
    HeldKeepsOldest,
    } ;
    at large:
    /// A second copy of the SYN, from where the peer was, begins another connection (RFC 9293 s3.10.7.4).
    LateSynEndsConnection,
    /// Who gives a connection away does not count on the peer's going over, too.
    MovedPeerMissesHandover,
    /// An unasked announcement enters the table (RFC 826).
    ArpLearnsUnasked,
    /// Segments that the device merged count as one large one (as in Linux's gso_segs of received packets).
    MergedCountsOnce,
    /// Nothing that came early is dropped when the device runs out of buffers (RFC 2018 s8).
    ScarceKeepsAll,
    /// Reported bytes that are acknowledged go on counting as reported (RFC 6675 s4).
    ReportedBytesMiscounted,
    /// A carrier that comes back sends nothing again (as Linux does not, either).
    LinkUpIgnored,
    /// What the device cuts need not be whole segments, though more follows.
    CutUnevenly,
    /// A writer that found no buffers is not told when to try again.
    NoBuffersNoRetry,
    /// A stream takes the send buffers of all others.
    WritersTakeAll,
    /// A path's MTU is not believed (RFC 1191 s6.3).
    PathMtuIgnored,
    /// What was too long for the path waits for the timer (RFC 1191 s6.4).
    PathMtuResendsNothing,
    /// A path's MTU is believed for days (RFC 1191 s6.3).
    PathMtuForever,
    /// A new connection does not know its path's MTU (RFC 1191 s6.1).
    PathMtuNotShared,
    /// One path's MTU counts for all destinations (RFC 1191 s6.1).
    PathMtuForAll,
    /// An ICMP error ends a connection (RFC 1122 s4.2.3.9).
    UnreachableAborts,
    /// Every unreachable destination refuses (RFC 1122 s4.2.3.9).
    EveryErrorIsHard,
    /// A connection that times out blames what an acknowledgment has refuted since (RFC 1122 s4.2.3.9).
    SoftErrorSticks,
    /// Frames for other hosts are taken (RFC 1122 s2.4).
    ForeignFramesTaken,
    /// The flow found last is found after it ended (as with a stale early-demultiplexing cache).
    CachedFlowOutlives,
    /// A request that the device refused counts as sent.
    ArpRefusedIsAsked,
    /// A neighbour's new address is not believed before the old one expires (RFC 826).
    ArpKeepsFirstAnswer,
    /// An answer that the device refused is lost.
    ArpRefusedAnswerLost,
    /// A neighbour's answer wakes no connection (as in Zephyr #50140).
    NobodyAwaitsNeighbour,
    /// A neighbour's answer wakes one connection (as in Zephyr #50140).
    NeighbourWakesOne,
    /// Connections are not told that a neighbour does not answer (RFC 1122 s2.3.2.2).
    NeighbourMissesUntold,
    /// Datagrams for a neighbour that does not answer wait on (as in Zephyr #8019).
    HeldForever,
    /// A socket of one address hears its groups (ip(7), IP_ADD_MEMBERSHIP).
    GroupIgnoresAddress,
    /// A connected socket hears everybody who sends to its groups (udp(7)).
    GroupIgnoresPeer,
    /// A new membership is reported once (RFC 2236 s3).
    ReportedOnce,
    /// A member reports what another has reported (RFC 2236 s3).
    ReportNotSuppressed,
}
