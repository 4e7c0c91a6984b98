//! What a seed draws: two hosts with their cards, the link between them, what they say to each other, and what goes wrong, and when.

use core::time::Duration;

use ringway_mlx5::Settings;
use ringway_sim::random::{Purpose, RandomStream};
use ringway_sim::{Faults, LinkConfig};
use ringway_stack::Instant;
use ringway_stack::device::MacAddr;

use super::card::{Fault, Life, Trouble};

pub(super) const MACS: [MacAddr; 2] = [MacAddr([2, 0, 0, 0, 0, 0x0a]), MacAddr([2, 0, 0, 0, 0, 0x0b])];
/// When everything ends that goes wrong.
const FAULTS_END_MS: u64 = 400;

/// A stream: how many bytes each way, and how many are written at once.
#[derive(Clone, Copy, Debug)]
pub(super) struct StreamPlan {
    pub(super) bytes: [usize; 2],
    pub(super) chunk: usize,
}

/// A host.
#[derive(Clone, Debug)]
pub(super) struct HostPlan {
    pub(super) settings: Settings,
    pub(super) khz: u64,
    /// It sleeps while nothing happens; else it looks again and again.
    pub(super) sleeps: bool,
    /// How long it takes to look.
    pub(super) looks_after: Duration,
    pub(super) datagrams: u32,
    pub(super) frames: u32,
    pub(super) lanes: LanesPlan,
}

/// What is done by rings with queues of strides, groups, rules that move, rates and memory on the card.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LanesPlan {
    /// Frames sent, and how often something is changed.
    pub(super) frames: u32,
    pub(super) changes: u32,
    pub(super) begin: Instant,
}

/// What a seed comes to.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) seed: u64,
    pub(super) hosts: [HostPlan; 2],
    pub(super) link: LinkConfig,
    pub(super) streams: Vec<StreamPlan>,
    /// Sorted by time.
    pub(super) faults: Vec<(Instant, usize, Fault)>,
    pub(super) faults_end: Instant,
    /// Nothing goes wrong: then nothing is lost.
    pub(super) is_calm: bool,
    /// Whose card is removed.
    pub(super) gone: Option<usize>,
}

pub(super) fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Dice for one purpose of a world's. (The simulator's streams, apart from its own by the index.)
pub(super) fn dice(seed: u64, index: u32) -> RandomStream {
    RandomStream::new(seed, Purpose::Options, 0x6d_6c78_u32.wrapping_add(index << 24), 5)
}

impl Plan {
    pub(super) fn of_seed(seed: u64) -> Self {
        let mut dice = dice(seed, 0);
        let is_calm = dice.chance_ppm(150_000);
        let gone = (!is_calm && dice.chance_ppm(80_000)).then(|| dice.below(2) as usize);
        let faults = if is_calm || dice.chance_ppm(300_000) { Faults::default() } else { fabric(&mut dice) };
        let link = LinkConfig { latency: Duration::from_nanos(dice.magnitude(1_000, 500_000)), faults, ..LinkConfig::default() };
        // (Where nothing goes wrong, nothing is lost either, however much comes at once.)
        let link = if is_calm { LinkConfig { queue_bytes_max: 1 << 26, ..link } } else { link };
        let bandwidth_bps = Some(dice.pick(&[1_000_000_000, 10_000_000_000, 100_000_000_000]));
        let streams = (0..dice.between(0, 3)).map(|_| stream(&mut dice)).collect();
        let mut hosts = [0, 1].map(|number| host(&mut dice, number));
        add_lanes(seed, is_calm, &mut hosts);
        let faults_end = Instant::ZERO + ms(FAULTS_END_MS);
        let faults = if is_calm { Vec::new() } else { of_cards(&mut dice, gone) };
        Self { seed, hosts, link: LinkConfig { bandwidth_bps, ..link }, streams, faults, faults_end, is_calm, gone }
    }

    /// What goes wrong again and again with a host's card.
    pub(super) fn trouble(&self, host: usize) -> Trouble {
        let mut drawn = dice(self.seed, 1 + host as u32);
        let mut ppm = |one_in: u64, low, high| if drawn.below(one_in) == 0 { drawn.magnitude(low, high) as u32 } else { 0 };
        let (lost_bells_ppm, late_bells_ppm) = (ppm(3, 10_000, 500_000), ppm(3, 10_000, 500_000));
        let refused_ppm = ppm(4, 10_000, 700_000);
        let late_max = Duration::from_nanos(drawn.magnitude(1_000, 50_000_000));
        let [has_long_cqes, has_long_receives, shares_registers] = [(); 3].map(|()| drawn.chance_ppm(250_000));
        let own_memory = drawn.pick(&[0, 2048, 16_384, 131_072]);
        Trouble {
            until: if self.is_calm { Instant::ZERO } else { self.faults_end },
            lost_bells_ppm,
            late_bells_ppm,
            late_max,
            refused_ppm,
            has_long_cqes,
            has_long_receives,
            shares_registers,
            own_memory,
            life: Life::Works,
            unheard: std::collections::BTreeSet::new(),
            dice: drawn,
        }
    }
}

fn fabric(dice: &mut RandomStream) -> Faults {
    let mut ppm = |one_in: u64, low, high| if dice.below(one_in) == 0 { dice.magnitude(low, high) as u32 } else { 0 };
    Faults {
        loss_ppm: ppm(2, 1_000, 150_000),
        duplication_ppm: ppm(2, 1_000, 200_000),
        reordering_ppm: ppm(2, 1_000, 200_000),
        corruption_ppm: ppm(3, 1_000, 150_000),
        burst_ppm: ppm(4, 200, 20_000),
        burst_frames: 16,
        burst_loss_ppm: 700_000,
        duplication_delay_max: ms(5),
        reordering_delay_max: ms(5),
        ..Faults::default()
    }
}

fn stream(dice: &mut RandomStream) -> StreamPlan {
    let mut bytes = || dice.magnitude(1, 200_000) as usize;
    let bytes = [bytes(), bytes()];
    StreamPlan { bytes, chunk: dice.magnitude(1, 65_536).max(64) as usize }
}

fn host(dice: &mut RandomStream, number: usize) -> HostPlan {
    let settings = Settings {
        mac: Some(MACS[number]),
        mtu: Some(1500),
        is_beside_kernel: false,
        received_frames: dice.pick(&[16, 32, 64, 128]),
        copied_frames: dice.pick(&[0, 16, 64]),
        send_blocks: dice.pick(&[64, 128, 512]),
        send_buffers: dice.pick(&[16, 32, 64, 128]),
        compresses: dice.chance_ppm(400_000),
        ..Settings::new("simulated")
    };
    let mut many = |one_in: u64| if dice.below(one_in) == 0 { dice.magnitude(1, 200) as u32 } else { 0 };
    let (datagrams, frames) = (many(2), many(2));
    HostPlan {
        settings,
        khz: dice.pick(&[1_000_000, 156_250, 276_000]),
        sleeps: dice.chance_ppm(500_000),
        looks_after: Duration::from_nanos(dice.magnitude(100, 200_000)),
        datagrams,
        frames,
        lanes: LanesPlan::default(),
    }
}

/// (By dice of their own.)
fn add_lanes(seed: u64, is_calm: bool, hosts: &mut [HostPlan; 2]) {
    let mut dice = dice(seed, 16);
    if dice.chance_ppm(300_000) {
        return;
    }
    for host in hosts {
        let mut many = |most| if dice.chance_ppm(800_000) { dice.magnitude(1, most) as u32 } else { 0 };
        // (What waits for a neighbour's address is lost if that takes long: so, where nothing may be, they know each other first.)
        let begin = Instant::ZERO + if is_calm { ms(10) } else { Duration::ZERO };
        host.lanes = LanesPlan { frames: many(200), changes: many(60), begin };
        host.settings.staged_bytes = dice.pick(&[0, 0, 1024, 8192, 65_536]);
    }
}

/// Faults of the two cards that strike once, while others may.
fn of_cards(dice: &mut RandomStream, gone: Option<usize>) -> Vec<(Instant, usize, Fault)> {
    const KINDS: [Fault; 7] = [
        Fault::SendSpoiled,
        Fault::ReceiveSpoiled,
        Fault::SendFails,
        Fault::ReceiveFails,
        Fault::SendCqFails,
        Fault::ReceiveCqFails,
        Fault::PortDown,
    ];
    // (Most of what is said is said within the first milliseconds.)
    let at = |dice: &mut RandomStream| Instant::from_nanos(dice.magnitude(10_000, (FAULTS_END_MS - 1) * 1_000_000));
    let mut faults = Vec::new();
    for _ in 0..dice.between(0, 8) {
        let (at, host, fault) = (at(dice), dice.below(2) as usize, dice.pick(&KINDS));
        faults.push((at, host, fault));
        if fault == Fault::PortDown {
            let up_at = at + Duration::from_nanos(dice.magnitude(1_000, 200_000_000));
            faults.push((up_at.min(Instant::ZERO + ms(FAULTS_END_MS)), host, Fault::PortUp));
        }
    }
    faults.extend(gone.map(|host| (at(dice), host, Fault::Gone)));
    faults.sort_by_key(|(at, _, _)| *at);
    faults
}
