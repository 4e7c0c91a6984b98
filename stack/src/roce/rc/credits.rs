//! The encodings of credits and of RNR waits (IBTA spec, volume 1, tables 45 and 46).

use core::time::Duration;

/// There are no credits to count.
pub(super) const UNCOUNTED: u8 = 31;

/// How many receives each of the codes from 0 to 30 stands for.
const CREDITS: [u32; 31] = [
    0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384,
    24576, 32768,
];

/// The waits of the 32 codes, in units of 10 us.
const WAITS: [u32; 32] = [
    65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288,
    16384, 24576, 32768, 49152,
];

/// The code of the most credits that are not more than `receives`.
pub(super) fn encode(receives: usize) -> u8 {
    let above = CREDITS.partition_point(|credits| *credits as usize <= receives);
    (above - 1) as u8
}

/// How many receives a code stands for; `None` for the one that says that they are not counted.
pub(super) fn decode(code: u8) -> Option<u32> {
    CREDITS.get(usize::from(code)).copied()
}

/// How long to wait after an RNR NAK with this code, of which the low five bits count.
pub fn rnr_wait(code: u8) -> Duration {
    Duration::from_micros(u64::from(WAITS[usize::from(code & 31)]) * 10)
}
