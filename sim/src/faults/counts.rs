//! How often each fault struck.

use core::ops::AddAssign;

use super::Mishap;
use crate::fabric::Strike;

macro_rules! counts {
    ($($(#[$doc:meta])+ $name:ident),+ $(,)?) => {
        /// How often each fault struck.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct FaultCounts {
            $($(#[$doc])+ pub $name: u64,)+
        }

        impl FaultCounts {
            /// Every count with its name, in the order of the fields.
            pub fn named(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name)),+].into_iter()
            }
        }

        impl AddAssign for FaultCounts {
            fn add_assign(&mut self, other: Self) {
                $(self.$name += other.$name;)+
            }
        }
    };
}

counts! {
    /// Frames that vanished.
    lost,
    /// Frames that arrived twice.
    duplicated,
    /// Frames held back.
    held_back,
    /// Frames in which bits flipped.
    corrupted,
    /// Corrupted frames without a checksum, dropped for their frame check sequence.
    frame_check,
    /// Frames that found a queue (a link's, or a host's receive queue or buffers) full.
    queue_full,
    /// Frames that vanished in a burst.
    burst_lost,
    /// Frames whose payload changed unnoticed.
    hidden_corrupted,
    /// Frames that a router marked.
    marked,
    /// Frames that a slower link delayed.
    delayed,
    /// Times a link's bandwidth and queue shrank.
    bandwidth_changes,
    /// Times a path's MTU shrank.
    mtu_changes,
    /// Frames longer than the path's MTU, dropped.
    too_long,
    /// Errors that told a sender about it.
    fragmentation_needed,
    /// Times groups of hosts were cut off from each other, one way or both.
    partitions,
    /// Frames stopped by a partition, both ways.
    partitioned,
    /// Frames stopped by a one-way partition.
    one_way,
    /// Times a link lost its carrier.
    flaps,
    /// Frames lost for want of a carrier.
    link_down,
    /// NICs that started anew.
    nic_resets,
    /// Sends that completed with an error.
    send_errors,
    /// Completion queues that overran.
    cq_overruns,
    /// Frames for which a NIC feigned to have no receive buffer.
    rx_exhausted,
    /// Sends for which a NIC feigned to have no room.
    send_full,
    /// Registrations and attachments that failed.
    registration_failures,
    /// Doorbells noticed late.
    delayed_doorbells,
    /// Completions told late.
    late_completions,
    /// Clocks that jumped.
    clock_jumps,
    /// Hosts that paused.
    pauses,
    /// Hosts that crashed.
    crashes,
    /// Frames for a host that was down.
    host_down,
    /// Changes of a host's Ethernet address, and forgotten neighbours.
    neighbour_changes,
    /// ICMP errors that an attacker forged.
    icmp_forged,
    /// True ICMP errors that came late.
    icmp_delayed,
    /// Frames that an attacker forged after those that he saw.
    forged,
    /// Lies of his about the address of a neighbour that the host knew by ARP.
    lied,
}

impl FaultCounts {
    /// The count of what befell a frame.
    pub(crate) fn of_strike(&mut self, strike: Strike) -> &mut u64 {
        match strike {
            Strike::QueueFull => &mut self.queue_full,
            Strike::Lost => &mut self.lost,
            Strike::FrameCheck => &mut self.frame_check,
            Strike::Corrupted { .. } => &mut self.corrupted,
            Strike::HeldBack { .. } => &mut self.held_back,
            Strike::Duplicated { .. } => &mut self.duplicated,
            Strike::BurstLost => &mut self.burst_lost,
            Strike::HiddenCorruption { .. } => &mut self.hidden_corrupted,
            Strike::Marked => &mut self.marked,
            Strike::Delayed { .. } => &mut self.delayed,
            Strike::TooLong { .. } => &mut self.too_long,
            Strike::Partitioned => &mut self.partitioned,
            Strike::OneWay => &mut self.one_way,
            Strike::LinkDown => &mut self.link_down,
            Strike::HostDown => &mut self.host_down,
            Strike::IcmpDelayed { .. } => &mut self.icmp_delayed,
        }
    }

    /// The count of what befell a host or a link as a whole; `None`: it is counted by the frames that it delays, or is the end of something counted.
    pub(crate) fn of_mishap(&mut self, mishap: Mishap) -> Option<&mut u64> {
        Some(match mishap {
            Mishap::Squeezed { .. } => &mut self.bandwidth_changes,
            Mishap::PathShrank { .. } => &mut self.mtu_changes,
            Mishap::Partitioned { .. } => &mut self.partitions,
            Mishap::CarrierLost => &mut self.flaps,
            Mishap::ClockJumped { .. } => &mut self.clock_jumps,
            Mishap::Paused => &mut self.pauses,
            Mishap::Crashed => &mut self.crashes,
            Mishap::Moved { .. } | Mishap::Forgot => &mut self.neighbour_changes,
            Mishap::Attacked => &mut self.icmp_forged,
            Mishap::Forged { .. } => &mut self.forged,
            Mishap::Delayed { .. } | Mishap::CarrierFound | Mishap::Resumed | Mishap::Restarted => return None,
        })
    }
}
