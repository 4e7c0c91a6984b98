//! Randomness, split so finely that nothing disturbs anything else.
//!
//! Each use has a ChaCha8 stream of its own. Its key spells out seed, purpose and place, so that a new fault class, another
//! link or one more drawn option takes no number away from a stream that was there before: an old seed keeps its story.

use rand_chacha::ChaCha8Rng;
use rand_core::{Rng, SeedableRng};

/// What a stream is for. The numbers are part of the key: add, never renumber.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Purpose {
    /// Whether a frame is lost.
    Loss = 1,
    /// Whether a frame arrives twice.
    Duplication = 2,
    /// Whether a frame is overtaken.
    Reordering = 3,
    /// Whether bits of a frame flip.
    Corruption = 4,
    /// Whether a NIC resets.
    NicReset = 16,
    /// Whether a send completes with an error.
    SendError = 17,
    /// Whether a completion queue overruns.
    CqOverrun = 18,
    /// Whether receive buffers run out.
    RxExhausted = 19,
    /// Whether a send queue is full.
    SendFull = 20,
    /// Whether registering a buffer or a rule fails.
    Registration = 21,
    /// Whether a doorbell takes effect late.
    Doorbell = 22,
    /// Whether a send's completion comes late.
    Completion = 23,
    /// When a burst of losses begins and ends, and which of its frames are lost.
    BurstLoss = 32,
    /// Whether a frame's payload changes unnoticed.
    HiddenCorruption = 33,
    /// How much later than others a frame of a slower link is.
    Jitter = 34,
    /// When a link is slower.
    Delay = 35,
    /// When a link has less bandwidth.
    Bandwidth = 36,
    /// When a path's MTU is smaller.
    Mtu = 37,
    /// When hosts are cut off from each other.
    Partition = 38,
    /// When some hosts don't hear others.
    OneWay = 39,
    /// When a link has no carrier.
    Flap = 40,
    /// Whether a router keeps to itself that it dropped a frame.
    MtuSilence = 41,
    /// Whether an ICMP error is late.
    IcmpDelay = 42,
    /// Whether a router marks a frame.
    Mark = 49,
    /// When an ICMP error is forged.
    IcmpForged = 43,
    /// What an attacker makes of what he sees.
    Forge = 48,
    /// When a host's clock jumps.
    Clock = 44,
    /// When a host doesn't poll.
    Pause = 45,
    /// When a host crashes.
    Crash = 46,
    /// When a host's Ethernet address changes.
    Neighbour = 47,
    /// The seed that a host's stack is given.
    Stack = 64,
    /// Options of a scenario: one stream an option, by its index.
    Options = 65,
    /// The bytes that a workload writes.
    Payload = 66,
    /// What a workload does when.
    Workload = 67,
    /// How long a program holds what it took by reference.
    Loans = 68,
    /// What a program decides about datagrams before they are read.
    RecvFilter = 69,
    /// What it decides about segments.
    StreamFilter = 70,
    /// What an async program draws.
    Program = 96,
    /// What a [`crate::program::Case`] draws.
    Case = 97,
}

/// One stream of random numbers.
#[derive(Clone, Debug)]
pub struct RandomStream(ChaCha8Rng);

impl RandomStream {
    /// The stream of one purpose at one place: a link or host by its `index`, a direction or part by `sub`.
    pub fn new(seed: u64, purpose: Purpose, index: u32, sub: u8) -> Self {
        let mut key = *b"ringway-sim stream key v1.......";
        key[..8].copy_from_slice(&seed.to_le_bytes());
        key[8..12].copy_from_slice(&index.to_le_bytes());
        key[12] = purpose as u8;
        key[13] = sub;
        Self(ChaCha8Rng::from_seed(key))
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A number in `0..bound`; zero if `bound` is zero. (Multiply and shift: the bias is below 2^-32 for the small bounds used here.)
    pub fn below(&mut self, bound: u64) -> u64 {
        scale(self.bits(), bound)
    }

    /// A number in `low..=high`.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below((high - low).saturating_add(1))
    }

    /// A number in `low..=high` whose order of magnitude is uniform: small values are as likely as large ones.
    pub fn magnitude(&mut self, low: u64, high: u64) -> u64 {
        let (low_log, high_log) = (low.max(1).ilog2(), high.max(1).ilog2());
        let log = self.between(u64::from(low_log), u64::from(high_log));
        let base = 1u64 << log;
        self.between(base, base.saturating_mul(2).saturating_sub(1)).clamp(low, high)
    }

    /// True in `ppm` of a million cases.
    pub fn chance_ppm(&mut self, ppm: u32) -> bool {
        self.below(1_000_000) < u64::from(ppm)
    }

    /// One of `choices`.
    pub fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[usize::try_from(self.below(choices.len() as u64)).unwrap_or(0)]
    }

    /// Fills `out`.
    pub fn fill(&mut self, out: &mut [u8]) {
        self.0.fill_bytes(out);
    }

    /// 32 bytes, as a seed for something else.
    pub fn seed(&mut self) -> [u8; 32] {
        let mut seed = [0; 32];
        self.0.fill_bytes(&mut seed);
        seed
    }
}

/// Maps 64 random bits to `0..bound`.
pub(crate) fn scale(bits: u64, bound: u64) -> u64 {
    let wide = u128::from(bits) * u128::from(bound);
    u64::try_from(wide >> 64).unwrap_or(0)
}

/// Expands one drawn number, without touching the stream it came from (Steele, Lea and Flood, OOPSLA 2014).
#[derive(Debug)]
pub(crate) struct SplitMix(pub(crate) u64);

impl SplitMix {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

#[cfg(test)]
mod tests;
