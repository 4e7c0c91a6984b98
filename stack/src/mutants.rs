//! Mutants: the stack with one thing wrong, chosen by `RingConfig::mutant`, so that those who check the stack can be
//! checked themselves (`sim/tests/mutants.rs`). Behind the feature `mutants`; without it each hook is a constant `false`.

macro_rules! mutants {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// What is wrong.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Mutant {
            /// Nothing.
            #[default]
            Healthy,
            $($(#[$doc])* $name,)*
        }

        impl Mutant {
            /// All of them but the healthy one.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];
        }
    };
}

/// Which mutant a part of the stack is that does not see its owner's configuration. Without the feature it has no size, and is healthy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Strain {
    #[cfg(feature = "mutants")]
    pub(crate) mutant: Mutant,
}

impl Strain {
    /// Nothing is wrong.
    pub(crate) const HEALTHY: Self = Self {
        #[cfg(feature = "mutants")]
        mutant: Mutant::Healthy,
    };

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

mutants! {
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
    /// An abort tells the peer nothing.
    NoReset,
    /// A datagram loses its last byte.
    UdpTruncate,
    /// Every datagram is received twice.
    UdpDuplicate,
    /// A datagram is said to come from another port.
    UdpMisattribute,
    /// A station that dies resets its connections, whatever its program had read.
    DeathIsReset,
    /// A station that dies ends its streams, whatever its program had not read.
    DeathIsEnd,
    /// A datagram for a socket with that peer goes to whoever has the local address.
    PeerIsNotPreferred,
    /// Of the listeners that share an address, the last one gets every connection.
    ListenersNotShared,
    /// What was reported by SACK is taken for received, whatever the peer acknowledges later.
    TrustSack,
    /// What a connection that leaves its ring has received and not given is lost.
    RemainsLoseUnread,
    /// Of a connection that leaves its ring, the end of its stream is forgotten.
    RemainsForgetEnd,
    /// The flow rule of a connection that leaves its ring stays.
    DissolveLeaksRule,
    /// A connection that has left its ring is a stranger there.
    DissolveForgets,
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
    HalfClosedDeaf,
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
}
