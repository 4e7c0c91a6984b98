//! Coverage marks: rare and interesting code paths, counted, so that a campaign of simulations can say which of them it reached.
//!
//! A path is marked by one line, `mark!(self, FastRetransmit)`, which is nothing at all without the feature `marks`. Connections keep
//! a set, their ring keeps the counts ([`crate::ring::Ring::marks`]): no global state, so that worlds don't see each other's.

use core::fmt;

/// Counts a mark in `$at.marks`, which is a [`MarkSet`] or [`MarkCounts`].
macro_rules! mark {
    ($at:expr, $name:ident) => {
        #[cfg(feature = "marks")]
        {
            $at.marks.hit($crate::marks::Mark::$name);
        }
    };
}
pub(crate) use mark;

macro_rules! marks {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// A code path.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Mark {
            $($(#[$doc])* $name,)*
        }

        impl Mark {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// Its name.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($name),)*
                }
            }
        }
    };
}

marks! {
    /// The third duplicate acknowledgment, or what SACK says instead (RFC 5681 s3.2, RFC 6675 s5).
    FastRetransmit,
    /// A partial acknowledgment in recovery (RFC 6582 s3.2 step 3).
    PartialAck,
    /// What was sent again was lost again, and found so by what was sent later and arrived (RFC 8985 s6.2).
    LostAgain,
    /// What was sent before something that arrived was found lost by the time between the two (RFC 8985 s6.2).
    Overtaken,
    /// The reordering window was over, and what was sent before something that had arrived counted as lost (RFC 8985 s6.2 step 5).
    ReorderingTimeout,
    /// A probe of the end of what was sent went, long before its timeout (RFC 8985 s7.3).
    TailLossProbe,
    /// It was the probe that arrived, and not what it repeated (RFC 8985 s7.4.2).
    TailLossRepaired,
    /// A recovery ended (RFC 6582 s3.2).
    Recovered,
    /// A new segment went out on a duplicate acknowledgment (RFC 3042).
    LimitedTransmit,
    /// The retransmission timer ran out (RFC 6298 s5.4).
    RetransmissionTimeout,
    /// It ran out again (RFC 6298 s5.5).
    BackedOff,
    /// A SYN or SYN-ACK was sent again.
    SynRetransmitted,
    /// A FIN was sent again.
    FinRetransmitted,
    /// Too many retransmissions: the connection failed (RFC 9293 s3.8.3).
    GaveUp,
    /// TCP_USER_TIMEOUT ran out (RFC 5482).
    UserTimeout,
    /// The peer threw away what it had reported by SACK (RFC 2018 s8).
    SackReneged,
    /// A window probe (RFC 9293 s3.8.6.1).
    PersistProbe,
    /// The peer's window was open, but silly: it was filled after a while (RFC 9293 s3.8.6.2.1).
    SillyWindowOverride,
    /// A peer's window shut.
    ZeroWindowReceived,
    /// Our window was announced as shut.
    ZeroWindowSent,
    /// The reader made room, and the peer was told.
    WindowUpdate,
    /// The receive buffer grew.
    ReceiveBufferGrew,
    /// A keepalive probe (RFC 9293 s3.8.4).
    KeepaliveProbe,
    /// Keepalive found the peer gone.
    KeepaliveDead,
    /// Both sides opened at once (RFC 9293 s3.5, figure 8).
    SimultaneousOpen,
    /// Both sides closed at once (RFC 9293 s3.6, figure 13).
    SimultaneousClose,
    /// The peer's SYN came again: our SYN-ACK was lost.
    SynAckRepeated,
    /// Bytes that came with a SYN were taken (RFC 7413 s4.2.2).
    SynBytesTaken,
    /// Bytes that went with our SYN were not all acknowledged with it (RFC 7413 s4.2.1).
    SynBytesNotTaken,
    /// Something was sent before the handshake's last acknowledgment (RFC 7413 s4.2.2).
    AnsweredEarly,
    /// The SYN came again that a connection began with whose program has it already.
    FastSynRepeated,
    /// A good cookie counted for nothing: as many connections were under way as the listener allows (RFC 7413 s5.1).
    EarlyLimitReached,
    /// An acknowledgment in SYN-SENT of something that was never sent (RFC 9293 s3.10.7.3).
    StrangeAckInSynSent,
    /// An acknowledgment in SYN-RECEIVED of something that was never sent (RFC 9293 s3.10.7.4).
    StrangeAckInSynReceived,
    /// An old duplicate, by its timestamp (RFC 7323 s5.3).
    PawsDrop,
    /// A segment outside of the window.
    OutOfWindow,
    /// A challenge ACK (RFC 5961 s7).
    ChallengeAck,
    /// A challenge ACK that was held back for being one too many (RFC 5961 s7).
    ChallengeLimited,
    /// A reset whose number was in the window but not exact (RFC 5961 s3.2).
    InexactReset,
    /// A reset that was accepted.
    ResetReceived,
    /// A reset ended a handshake (RFC 9293 s3.10.7.3).
    ConnectionRefused,
    /// An acknowledgment of what was never sent, or is too old (RFC 5961 s5.2).
    UnacceptableAck,
    /// A segment that brought both new and old bytes, or only old ones.
    OldBytesTrimmed,
    /// A segment that reached beyond the window.
    WindowTrimmed,
    /// A segment out of order was kept.
    OutOfOrder,
    /// Receive buffers were scarce: what had arrived out of order was dropped (RFC 2018 s8).
    ReassemblyPruned,
    /// A FIN out of order was kept.
    FinOutOfOrder,
    /// A gap was filled.
    GapFilled,
    /// A duplicate was reported by SACK (RFC 2883).
    DuplicateSack,
    /// A segment with SACK blocks was sent (RFC 2018).
    SackSent,
    /// SACK blocks told something new.
    SackReceived,
    /// An acknowledgment was delayed, and its time came.
    DelayedAck,
    /// Nagle's algorithm held a partial segment back (RFC 9293 s3.7.4).
    NagleHeld,
    /// A cork's time ran out (tcp(7), TCP_CORK).
    CorkExpired,
    /// The peer is told that a router marked what it sent (RFC 3168 s6.1.3).
    MarkEchoed,
    /// The peer told of a mark, and the window comes down (RFC 3168 s6.1.2).
    MarkHeeded,
    /// The congestion window held a segment back (RFC 5681 s3.1).
    CongestionLimited,
    /// The peer's window held a segment back.
    WindowLimited,
    /// Sending again after a pause (RFC 5681 s4.1).
    RestartAfterIdle,
    /// A program's write found no room.
    WriteBlocked,
    /// A program's write found no buffers.
    NoSendBuffers,
    /// A segment lay in more buffers than the device gathers.
    GatherLimited,
    /// TIME-WAIT began.
    TimeWait,
    /// The peer's FIN came again in TIME-WAIT.
    TimeWaitRestarted,
    /// A reset for a connection in TIME-WAIT, which goes on waiting (RFC 1337 s3).
    TimeWaitReset,
    /// A new SYN ended a TIME-WAIT (RFC 9293 s3.10.7.4).
    TimeWaitSyn,
    /// A new connection of ours ended a TIME-WAIT (RFC 6191).
    TimeWaitReused,
    /// An orphan's FIN-WAIT-2 or a TIME-WAIT came to its end.
    LingerExpired,
    /// A program closed a socket with unread bytes (RFC 2525 s2.17).
    CloseWithUnread,
    /// Bytes arrived for a connection that nobody will read (RFC 9293 s3.10.4).
    OrphanGotData,
    /// A program aborted a connection (RFC 9293 s3.10.5).
    Aborted,
    /// A reset answered a segment of no connection (RFC 9293 s3.10.7.1).
    StrangerReset,
    /// A SYN found the listener's queue full.
    ListenOverflow,
    /// A listener was closed with connections that nobody had accepted.
    ListenerClosedWithChildren,
    /// A flow rule took a while, and somebody waited for it.
    RuleAwaited,
    /// Such a rule could not be had after all.
    RuleFailed,
    /// A connection came from another ring with its flow rule, which was moved.
    RuleMoved,
    /// A frame's flow tag named its connection.
    FoundByTag,
    /// A frame's flow tag named its UDP socket.
    DatagramFoundByTag,
    /// A listener ended, and connections that came by its rule got rules of their own.
    AcceptedSteered,
    /// A connection left the ring for another carrier, in the middle of its life.
    EndedSilently,
    /// So did one that nobody had accepted.
    EndedSilentlyUnaccepted,
    /// So did one that its program had closed.
    EndedSilentlyOrphan,
    /// So did one that was over.
    EndedSilentlyOver,
    /// A ring took a connection that another had written down.
    AdoptedWritten,
    /// A program took payload by reference that had come with a frame's head.
    LentSmall,
    /// It took more than that by reference, in one piece.
    LentLarge,
    /// It was lent a copy: the device, or the socket, had lent nothing yet when the bytes came.
    LentCopied,
    /// A gap was filled, and what had come behind it goes up by reference too.
    LentOutOfOrder,
    /// What a program holds shut its connection's window.
    WindowShutByLoans,
    /// Something was given back whose socket was gone.
    LentBeyondClose,
    /// A socket dropped a datagram that would have fitted, but for what its program holds.
    DatagramDroppedByLoans,
    /// The device took no more frames.
    SendStalled,
    /// What the device had refused was tried again.
    StallRetried,
    /// A flow waited for a neighbour's Ethernet address.
    NeighbourAwaited,
    /// An ARP request was sent again.
    ArpRetry,
    /// A neighbour never answered.
    NeighbourUnreachable,
    /// A report of what is listened to was sent (RFC 3810 s5.2).
    ListenerReported,
    /// A router asked who listens (RFC 3810 s5.1).
    ListenersAsked,
    /// A datagram waited for a neighbour's Ethernet address.
    DatagramHeld,
    /// A datagram found its socket's queue full.
    DatagramDropped,
    /// A datagram for a port that nobody has (RFC 1122 s4.1.3.1).
    PortUnreachableSent,
    /// ICMP said that something is unreachable (RFC 1122 s4.2.3.9).
    UnreachableReceived,
    /// A frame's checksum was wrong.
    BadChecksum,
    /// A path's MTU turned out to be smaller (RFC 1191).
    PathMtuLowered,
    /// The peer is dead, as the device says.
    PeerGone,
    /// It had left its connection in order.
    PeerExited,
}

impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// How many marks there are.
pub const MARKS: usize = Mark::ALL.len();

/// Marks that were hit at least once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MarkSet(u128);

impl MarkSet {
    /// Adds a mark.
    #[inline]
    pub fn hit(&mut self, mark: Mark) {
        self.0 |= 1 << mark as u32;
    }

    /// Takes all of them.
    #[inline]
    pub fn take(&mut self) -> Self {
        core::mem::take(self)
    }
}

/// How often each mark was hit.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct MarkCounts([u64; MARKS]);

impl Default for MarkCounts {
    fn default() -> Self {
        Self([0; MARKS])
    }
}

impl MarkCounts {
    /// Counts a mark.
    #[inline]
    pub fn hit(&mut self, mark: Mark) {
        self.0[mark as usize] += 1;
    }

    /// Counts each mark of a set once.
    #[inline]
    pub fn absorb(&mut self, set: MarkSet) {
        let mut left = set.0;
        while left != 0 {
            self.0[left.trailing_zeros() as usize] += 1;
            left &= left - 1;
        }
    }

    /// Adds another's counts.
    pub fn add(&mut self, other: &Self) {
        for (sum, more) in self.0.iter_mut().zip(&other.0) {
            *sum += more;
        }
    }

    /// How often `mark` was hit.
    pub fn of(&self, mark: Mark) -> u64 {
        self.0[mark as usize]
    }

    /// All marks with their counts.
    pub fn iter(&self) -> impl Iterator<Item = (Mark, u64)> {
        Mark::ALL.iter().map(|&mark| (mark, self.of(mark)))
    }

    /// The marks that were never hit.
    pub fn missed(&self) -> impl Iterator<Item = Mark> {
        self.iter().filter(|&(_, count)| count == 0).map(|(mark, _)| mark)
    }
}

impl fmt::Debug for MarkCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter().filter(|&(_, count)| count > 0)).finish()
    }
}

const _: () = assert!(MARKS <= 128, "a MarkSet has 128 bits");
