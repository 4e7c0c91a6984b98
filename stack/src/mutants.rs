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
}
