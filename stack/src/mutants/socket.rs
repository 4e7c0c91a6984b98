//! Mutants of sockets above several rings.

/// Puts them before those of [`super::Mutant`]'s other areas, and names them.
macro_rules! with_sockets {
    (@of $($(#[$doc:meta])* $name:ident,)* ; $($others:tt)*) => {
        mutants! { $($(#[$doc])* $name,)* $($others)* }

        impl Mutant {
            /// Those of [`crate::socket`], which rings do not have.
            pub const OF_SOCKETS: &'static [Self] = &[$(Self::$name,)*];
        }
    };
    ($($others:tt)*) => {
        with_sockets! {
            @of
            /// What waits in the first ring is taken first, whenever it came.
            FirstRingFirst,
            /// What came by the kernel has its turn when no ring has anything.
            KernelLast,
            /// A socket is ready for what its first flow is ready for.
            ReadinessOfOne,
            /// Ways that were found in older tables are taken on.
            RoutesOutliveTables,
            /// Datagrams are sent from the first link's address, whatever link they leave by.
            SourceOfFirstLink,
            /// Closing a socket closes one of its flows.
            CloseLeavesFlows,
            /// Flows that were opened before one could not be stay open.
            FailedOpenLeavesFlows,
            /// A connection attempt counts as a connection.
            AttemptIsSuccess,
            /// A connection migrates though its own thread uses it in between.
            OwnCallsForgotten,
            /// A connection for which the other ring has no room does not go back.
            NoWayBack,
            /// A connection for which no ring has room is dropped.
            ParcelDropped,
            /// What waits in the ring that a datagram socket was in is not read any more.
            FormerFlowClosed,
            /// What came to a datagram socket's new ring is read before what waits in the one that it was in.
            NewFlowFirst,
            /// A datagram socket's rule ends before it has another one in its new ring.
            RuleGoneBeforeTheNext,
            ; $($others)*
        }
    };
}
