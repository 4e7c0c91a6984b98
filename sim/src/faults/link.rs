//! Strengths of what befalls a link.

use core::time::Duration;

use super::{Episodes, FaultSet};

/// What goes wrong on one link, both ways: for classes that judge frames, how many of a million; for the others, when and for how long.
/// The default: nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// Frames that vanish.
    pub loss_ppm: u32,
    /// Frames that arrive a second time.
    pub duplication_ppm: u32,
    /// The most by which the second copy comes later than the first.
    pub duplication_delay_max: Duration,
    /// Frames that are held back while later ones pass.
    pub reordering_ppm: u32,
    /// The most by which a frame is held back.
    pub reordering_delay_max: Duration,
    /// Frames in which one burst of at most 15 bits flips behind the Ethernet header. A 16-bit ones'-complement sum catches every such
    /// burst (RFC 1071), so nothing that a checksum covers may reach a program changed. What carries no checksum (ARP)
    /// is dropped instead, as its frame check sequence would have it.
    pub corruption_ppm: u32,

    /// Frames at which a burst of losses begins: the good state's end in Gilbert's and Elliott's model. Zero: no bursts.
    pub burst_ppm: u32,
    /// Frames that a burst lasts, on average: the bad state's mean length.
    pub burst_frames: u32,
    /// Frames of a burst that vanish, of a million.
    pub burst_loss_ppm: u32,
    /// Frames in whose TCP or UDP payload bits flip such that every checksum still comes out right. They are marked
    /// ([`crate::Marks::HIDDEN`]), for checkers to exempt their content, and nothing else.
    pub hidden_corruption_ppm: u32,

    /// When the link is slower. Frames keep their order.
    pub delay: Episodes,
    /// The most that an episode adds to each frame's latency.
    pub delay_max: Duration,
    /// The most that it adds to single frames beyond that.
    pub jitter_max: Duration,
    /// When the link has less bandwidth and shorter queues.
    pub bandwidth: Episodes,
    /// The least bandwidth, in bits a second.
    pub bandwidth_bps_min: u64,
    /// The shortest queue, in bytes.
    pub queue_bytes_min: usize,
    /// When the path's MTU is smaller. A frame longer than that is dropped; a router says so to its sender by ICMP (RFC 1191).
    pub mtu: Episodes,
    /// The smallest MTU in bytes, 576 at least.
    pub mtu_min: u16,
    /// Dropped frames of a million whose sender isn't told: 1,000,000 makes a black hole (RFC 2923 s2.1).
    pub mtu_silence_ppm: u32,
    /// When the hosts fall into two groups that don't hear each other; this link's host is in one of them.
    pub partition: Episodes,
    /// When one of two groups doesn't hear the other.
    pub one_way: Episodes,
    /// When the link has no carrier. Its NIC notices, and what is sent meanwhile is lost.
    pub flap: Episodes,
    /// ICMP errors that come late.
    pub icmp_delay_ppm: u32,
    /// The most by which they do.
    pub icmp_delay_max: Duration,
    /// Frames that a router marks, of those that are capable of it (RFC 3168 s5).
    pub mark_ppm: u32,
}

impl Faults {
    /// The same strengths, for the classes in `keep` only.
    #[must_use]
    pub fn only(self, keep: FaultSet) -> Self {
        let ppm = |class, value| if keep.contains(class) { value } else { 0 };
        let episodes = |class, episodes: Episodes| episodes.kept(keep.contains(class));
        Self {
            loss_ppm: ppm(FaultSet::LOSS, self.loss_ppm),
            duplication_ppm: ppm(FaultSet::DUPLICATION, self.duplication_ppm),
            reordering_ppm: ppm(FaultSet::REORDERING, self.reordering_ppm),
            corruption_ppm: ppm(FaultSet::CORRUPTION, self.corruption_ppm),
            burst_ppm: ppm(FaultSet::BURST_LOSS, self.burst_ppm),
            hidden_corruption_ppm: ppm(FaultSet::HIDDEN_CORRUPTION, self.hidden_corruption_ppm),
            icmp_delay_ppm: ppm(FaultSet::ICMP, self.icmp_delay_ppm),
            mark_ppm: ppm(FaultSet::MARK, self.mark_ppm),
            delay: episodes(FaultSet::DELAY, self.delay),
            bandwidth: episodes(FaultSet::BANDWIDTH, self.bandwidth),
            mtu: episodes(FaultSet::MTU, self.mtu),
            partition: episodes(FaultSet::PARTITION, self.partition),
            one_way: episodes(FaultSet::ONE_WAY, self.one_way),
            flap: episodes(FaultSet::FLAP, self.flap),
            ..self
        }
    }

    /// When `class` strikes a link; never, if it is none of a link's that strike in episodes.
    pub(crate) fn episodes(&self, class: FaultSet) -> Episodes {
        match class {
            FaultSet::DELAY => self.delay,
            FaultSet::BANDWIDTH => self.bandwidth,
            FaultSet::MTU => self.mtu,
            FaultSet::PARTITION => self.partition,
            FaultSet::ONE_WAY => self.one_way,
            FaultSet::FLAP => self.flap,
            _ => Episodes::default(),
        }
    }
}
