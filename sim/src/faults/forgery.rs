//! What an attacker forges, by name.

use core::fmt;

macro_rules! forgeries {
    ($($(#[$doc:meta])+ $name:ident $text:literal,)+) => {
        /// One kind of forged frame.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Forgery {
            $($(#[$doc])+ $name,)+
        }

        impl Forgery {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];
        }

        impl fmt::Display for Forgery {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self {
                    $(Self::$name => $text,)+
                })
            }
        }
    };
}

forgeries! {
    /// A reset within the window, but not at the next number (RFC 5961 s3.2).
    InexactReset "an inexact reset",
    /// A SYN, or SYN-ACK, for a connection that stands (RFC 5961 s4.2).
    InexactSyn "a SYN for a connection that stands",
    /// Bytes, or a FIN, in the window, with an acknowledgment of what was never sent or long ago (RFC 5961 s5.2).
    BlindData "blind data",
    /// Bytes at the next number, or none, with such an acknowledgment and a timestamp from the future, which must not be remembered.
    FutureTimestamp "blind data from the future",
    /// Bytes at the next number, with a timestamp from before the connection (RFC 7323 s5.3).
    OldTimestamp "bytes with an old timestamp",
    /// An acknowledgment older than any window (RFC 5961 s5.2).
    AncientAck "an ancient acknowledgment",
    /// An acknowledgment of what was never sent (RFC 9293 s3.10.7.4).
    FutureAck "an acknowledgment of what was never sent",
    /// A FIN far beyond the window.
    FarFin "a FIN beyond the window",
    /// A frame that came before, once more.
    Replay "an old frame",
    /// A frame of an earlier connection with the addresses of one that stands: a SYN, or one whose timestamp tells (RFC 7323 s5.1).
    Incarnation "a frame of an earlier connection",
    /// A SYN in the name of a host that knows nothing of it, with options that lie.
    StrangeSyn "a SYN in another's name",
    /// Options that lie, in an acknowledgment that came before: lengths that lead nowhere, SACK blocks of nonsense, options of SYNs.
    LyingOptions "options that lie",
    /// An urgent pointer, and reserved bits, in an acknowledgment that came before.
    Urgent "an urgent pointer",
    /// A frame that ends before its packet does, or whose header claims to be longer than its packet.
    Truncated "a truncated frame",
    /// An acknowledgment that came before, with bytes behind its packet.
    Padded "a padded frame",
    /// An ICMP error about what is in flight, or nearly, that says that nobody is there (RFC 5927 s5).
    HardError "a hard ICMP error",
    /// An ICMP error that says that the path is narrow, very much so (RFC 5927 s7).
    PathError "a tiny path MTU",
    /// A source quench, which means nothing (RFC 6633).
    SourceQuench "a source quench",
    /// A datagram that came before, without a checksum (RFC 768).
    NoChecksum "a datagram without a checksum",
    /// A datagram whose length leads beyond its packet, or nowhere.
    WrongLength "a datagram of a wrong length",
    /// A datagram that came before, from another port or address.
    ForeignPort "a datagram from a foreign port",
    /// An ARP announcement that a neighbour has the attacker's MAC address, or an answer that says so.
    FalseNeighbour "a lie about a neighbour",
    /// The same about the host itself.
    FalseSelf "a lie about the host itself",
    /// The same about an address that nobody has.
    UnknownNeighbour "a lie about nobody",
}
