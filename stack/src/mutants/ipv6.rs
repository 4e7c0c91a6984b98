//! Mutants of IPv6.

/// Puts them before those of [`super::Mutant`]'s other areas.
macro_rules! with_ipv6 {
    ($($others:tt)*) => {
        with_sockets! {
            /// Neighbour discovery that came through a router is believed (RFC 4861 s7.1.1, s7.1.2).
            DiscoveryFromAfar,
            /// Whoever is asked for, we are it (RFC 4861 s7.2.3).
            SolicitationOfOthersAnswered,
            /// Who asks whether an address is taken is not told (RFC 4862 s5.4.3).
            AddressProbeIgnored,
            /// Who asks and does not say which MAC address he has is not answered (RFC 4861 s7.2.4).
            AskerWithoutMacIgnored,
            /// An advertisement that is not to override overrides (RFC 4861 s7.2.5).
            OverridesUnbidden,
            /// An advertisement that nobody asked for proves that its sender hears us (RFC 4861 s7.2.5, s7.3.1).
            UnsolicitedProvesReachable,
            /// All nodes are asked for an address, not its own group (RFC 4861 s7.2.2).
            AllNodesSolicited,
            /// A datagram of IPv6 without a checksum is heard (RFC 8200 s8.1).
            ZeroChecksumHeardV6,
            /// A header that nobody knows goes without an answer (RFC 8200 s4).
            UnknownHeaderUnanswered,
            /// As many errors are sent as are caused (RFC 4443 s2.4 (f)).
            ErrorsWithoutLimit,
            /// What was for a group is answered with an error (RFC 4443 s2.4 (e)).
            ErrorsAboutGroups,
            /// A ping is answered without its last byte (RFC 4443 s4.2).
            EchoShortened,
            /// A packet was too big, and goes again as it was (RFC 8201 s4).
            PacketTooBigIgnored,
            /// Packets of IPv6 have a hop limit of one more than was asked for (ipv6(7), IPV6_UNICAST_HOPS).
            HopLimitOffByOne,
            /// Datagrams of IPv6 have no traffic class (ipv6(7), IPV6_TCLASS).
            TrafficClassForgotten,
            /// An error quotes its cause's header, and nothing of what that carries (RFC 4443 s3.1).
            ErrorQuotesHeaderOnly,
            /// Who listens to a group no longer does not say so at once (RFC 3810 s6.1).
            ListenerLeavesInSilence,
            /// Routers that ask who listens are not answered (RFC 3810 s6.2).
            ListenersUnheard,
            /// A router that is not on the link is answered (RFC 3810 s6.2).
            ListenersAskedFromAfar,
            /// Who sleeps until the next deadline misses those of listeners' reports.
            ListenersDeadlineMissed,
            /// A group's datagrams from sources that a member does not want are heard (RFC 3678 s3, RFC 3810 s4.2).
            SourceFilterIgnored,
            $($others)*
        }
    };
}
