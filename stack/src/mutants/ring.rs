//! More of the ring's mutants.

use super::Mutant;

impl Mutant {
    /// Those of connections that go over to another MAC address, which happens only where each ring has one of its own.
    pub const OF_MOVES: &'static [Self] = &[
        Self::SpeaksUnfollowed,
        Self::FollowedSaysNothing,
        Self::FollowerWaitsForTimer,
        Self::FollowerStaysBehind,
        Self::LateFromFormerRefused,
        Self::OneFormerMac,
        Self::SilentOutlivesPeer,
        Self::UntoldDeathIsEnd,
    ];
}

/// Adds these to what `mutants!` is given.
macro_rules! with_ring {
    ({ $($before:tt)* } ; $($after:tt)*) => {
        with_tcp! {
            $($before)*
            /// A connection that has gone over to another MAC address speaks before its peer follows.
            SpeaksUnfollowed,
            /// It says nothing when its peer follows, either.
            FollowedSaysNothing,
            /// Who follows its peer sends nothing again before the timer.
            FollowerWaitsForTimer,
            /// Who is told where its peer is goes on sending to where that was.
            FollowerStaysBehind,
            /// What comes late from where the peer was is refused.
            LateFromFormerRefused,
            /// Of the MAC addresses where the peer was, one is remembered.
            OneFormerMac,
            /// A connection whose peer dies before it follows is silent for ever.
            SilentOutlivesPeer,
            /// A peer that dies before it follows may have left in order.
            UntoldDeathIsEnd,
            /// Of those that share an address, one that left is found still (socket(7), SO_REUSEPORT).
            ShareLeaverFound,
            /// A datagram that finds the queue full is not counted (socket(7), SO_RXQ_OVFL).
            DropsUncounted,
            /// Looking at an empty datagram takes it (recv(2), MSG_PEEK).
            PeekTakesEmpty,
            /// What an empty datagram took of the queue's room is not given back.
            EmptyKeepsOverhead,
            /// A socket that was shut for writing sends (shutdown(2)).
            ShutWriteSends,
            /// Shutting one half opens the other (shutdown(2)).
            ShutForgetsHalf,
            /// The call that reports an error takes a datagram with it (as a recv that fails must not).
            ErrorEatsDatagram,
            /// A socket that was connected elsewhere hears its former peer (connect(2)).
            FormerPeerHeard,
            /// The rule of the address that a socket had before it was connected is kept.
            ConnectLeaksRule,
            /// The longest datagram that fits is refused (udp(7), EMSGSIZE).
            LongestDatagramRefused,
            /// A datagram that waited for its neighbour has the TTL of any (ip(7), IP_TTL).
            HeldForgetsTtl,
            /// A group's datagrams have no type of service (ip(7), IP_TOS).
            GroupTosForgotten,
            /// A datagram that the device refused counts as sent.
            RefusedDatagramCounted,
            /// A datagram that was given back takes some of the queue's room for ever.
            GiveBackKeepsOverhead,
            /// When a queue that never runs empty is moved down, it is moved by one byte too few.
            CompactionShiftsQueue,
            /// A group's member whose queue is full keeps its datagrams from the others.
            FullMemberEndsDelivery,
            /// A sender that is a member does not hear itself (ip(7), IP_MULTICAST_LOOP).
            LoopMissesSender,
            /// A member that left hears the group on (ip(7), IP_DROP_MEMBERSHIP).
            LeaverStillHears,
            /// Reports have no router alert (RFC 2236 s2).
            ReportWithoutAlert,
            /// A query for one group is answered for all (RFC 2236 s3).
            SpecificQueryAsksAll,
            /// An echo returns no more than 56 bytes (RFC 1122 s3.2.2.6).
            PingCutShort,
            /// An ICMP error for a datagram socket wakes nobody (RFC 1122 s4.1.3.3).
            UdpErrorRaisesNothing,
            /// That a host has no TCP ends no connection attempt (RFC 1122 s4.2.3.9).
            ProtocolUnreachableIsSoft,
            /// What a path carries is not remembered for the next connection (RFC 1191 s5.2).
            PathMtuOfOne,
            /// What all connections on a path have on its way goes again for what ICMP says of one (RFC 1191 s6.4).
            PathMtuResendsAll,
            /// Who asks whether an address is free gets no answer (RFC 5227 s2.1.1).
            ProbeUnanswered,
            /// Forgetting a neighbour forgets the question that others wait for.
            ForgottenQuestion,
            /// Any number of datagrams waits for a neighbour (RFC 1122 s2.3.2.2).
            HeldUnbounded,
            /// When one neighbour does not answer, those that wait for another are forgotten.
            OtherWaitersForgotten,
            /// A new MAC address is announced for the first address only (RFC 5227 s3).
            AnnouncesFirstOnly,
            /// Frames of another priority are another VLAN's (IEEE 802.1Q).
            VlanPriorityCounts,
            /// IP options are read as the transport's header (RFC 1122 s3.2.1.8).
            OptionsArePayload,
            /// Packets from a group or from everybody are taken (RFC 1122 s3.2.1.3).
            ForeignSourceTaken,
            /// A segment in a broadcast frame is answered by a reset (RFC 1122 s4.2.3.10).
            ResetForFrameToMany,
            /// After a slice of odd length, the checksum goes on as after an even one (RFC 1071 s2).
            OddSliceChecksum,
            /// A SYN leaves before its flow rule steers.
            SynBeforeRule,
            /// What waits for its flow rule is never told that it steers.
            PendingRuleForgotten,
            /// A connection that comes from another ring leaves its flow rule there.
            AdoptedRuleStays,
            /// A flow tag is believed, whatever the frame's addresses are.
            TagTrusted,
            /// A datagram's flow tag counts where another socket with its port fits the addresses better.
            DatagramTagPreferred,
            /// Connections that a listener accepted have no flow rule once it ends.
            AcceptedEndWithListener,
            /// A closed socket's name finds the one that has its slot now.
            StaleIdFindsNextFlow,
            /// A closed socket's slot is never used again.
            SlotLeaks,
            /// What waits to be decided about is dropped when the receive filter goes.
            FilterOffDrops,
            /// An adopted connection's timer is not set.
            AdoptedTimerLost,
            /// Of two sockets that a cyclic buffer reads, the youngest datagram comes first.
            CyclicYoungestFirst,
            /// A socket whose receiving side was shut down keeps its rule.
            RxShutdownKeepsRule,
            /// The next datagram is said to be as long as the queue (udp(7), FIONREAD).
            NextLenOfQueue,
            /// Asking for an error leaves it (socket(7), SO_ERROR).
            SoErrorStays,
            /// What is set on a listener does not pass to its connections (socket(7), tcp(7)).
            ListenerConfigIgnored,
            /// Who sleeps until the next deadline misses those of reports.
            GroupsDeadlineMissed,
            /// That a datagram was too big for the path is not told (RFC 1122 s4.1.3.3).
            TooBigUntold,
            /// A datagram is as long as its packet, whatever it says (RFC 768).
            UdpTailDelivered,
            /// Reports have a TTL of 64 (RFC 2236 s2).
            ReportTravels,
            /// When the last undecided bytes are dropped, nobody is told of the end behind them.
            DroppedEndUnraised,
            /// ARP is answered to everybody (RFC 826).
            ArpReplyToAll,
            /// A query of version 1 is answered at once (RFC 2236 s4).
            OldQuerierAnsweredAtOnce,
            /// An error quotes four bytes of the datagram (RFC 792).
            UnreachableShortQuote,
            /// What an adopted connection is ready for is not told.
            AdoptedRaisesNothing,
            /// A connection that came back is remembered as gone.
            ReturnedStillHandedOver,
            /// That buffers are used up is told as such, not as a call that would block.
            NoBuffersTold,
            /// An error quotes a header without the options that it came with (RFC 792).
            UnreachableForgetsOptions,
            ; $($after)*
        }
    };
}
