//! What a seed's swarm consists of: its fault classes, its workloads.

use crate::faults::FaultSet;
use crate::random::{Purpose, RandomStream};
use crate::workloads::WorkloadSet;

/// Indices of streams, from the end, where no option will ever get.
const FAULTS: u32 = u32::MAX - 1;
const WORKLOADS: u32 = u32::MAX - 2;
const FAMILY: u32 = u32::MAX - 3;

const IPV6_PPM: u32 = 125_000;

/// Where a feature's density is drawn; features have the numbers of their bits.
const DENSITY: u8 = u8::MAX;

/// Each class has a stream of its own: a new one changes nothing for those that were there before.
pub(super) fn faults(seed: u64) -> FaultSet {
    // One seed in eight is calm: what must not happen without faults is only checked there.
    let density = RandomStream::new(seed, Purpose::Options, FAULTS, DENSITY)
        .pick(&[0, 125_000, 125_000, 125_000, 125_000, 250_000, 250_000, 500_000]);
    FaultSet::all().iter().filter(|class| chosen(seed, FAULTS, class.bits(), density)).collect()
}

/// At least one; on the average as many, however many kinds there are, so that a new kind makes no seed longer.
pub(super) fn workloads(seed: u64) -> WorkloadSet {
    let mut stream = RandomStream::new(seed, Purpose::Options, WORKLOADS, DENSITY);
    let all: Vec<_> = WorkloadSet::all().iter().collect();
    let wanted_ppm = stream.pick(&[0, 1_875_000, 1_875_000, 3_750_000, 3_750_000, 6_000_000]);
    let density = wanted_ppm / u32::try_from(all.len()).unwrap_or(u32::MAX);
    let chosen: WorkloadSet = all.iter().copied().filter(|workload| chosen(seed, WORKLOADS, workload.bits(), density)).collect();
    if chosen.is_empty() { stream.pick(&all) } else { chosen }
}

/// One world in eight speaks IPv6.
pub(super) fn is_ipv6(seed: u64) -> bool {
    RandomStream::new(seed, Purpose::Options, FAMILY, 0).chance_ppm(IPV6_PPM)
}

fn chosen(seed: u64, index: u32, bit: u32, density: u32) -> bool {
    let number = u8::try_from(bit.trailing_zeros()).unwrap_or(DENSITY - 1);
    RandomStream::new(seed, Purpose::Options, index, number).chance_ppm(density)
}
