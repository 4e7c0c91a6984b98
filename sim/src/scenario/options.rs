//! What a seed draws. Each option has a stream of its own: a new one changes nothing for those that were there before.

use core::fmt;
use core::time::Duration;

use ringway_stack::device::Steering;
use ringway_stack::tcp::congestion::Algorithm;
use ringway_stack::tcp::{Config, Ecn, FastOpen, Keepalive};

use super::Scenario;
use crate::addresses::Family;
use crate::fabric::LinkConfig;
use crate::faults::{Faults, HostFaults};
use crate::nic::{NicConfig, NicFault, NicFaults, Strength};
use crate::random::{Purpose, RandomStream};
use crate::sockets::Lending;
use crate::workloads::{self, Workload};

/// Options by their streams' index. Add at the end, never renumber.
#[derive(Clone, Copy)]
enum Drawn {
    Hosts,
    Introduce,
    Safety,
    Nic,
    Link,
    Faults,
    PollDelay,
    Tcp,
    // Three that workloads' own streams replaced.
    TimeWait = 11,
    Vlan,
    Batch,
    Capabilities,
    NicFaults,
    HostFaults,
    Rings,
    RxBuffers,
    Lending,
    Nap,
    RuleDelay,
    ReadsFirst,
    FastOpen,
}

/// One host's options.
#[derive(Clone, Debug)]
pub struct HostOptions {
    /// Its NIC.
    pub nic: NicConfig,
    /// Its link, faults included.
    pub link: LinkConfig,
    /// What goes wrong with the host itself.
    pub faults: HostFaults,
    /// Its rings; its programs are spread over them.
    pub rings: usize,
    /// See [`crate::HostConfig::lending`].
    pub lending: Vec<Option<Lending>>,
    /// See [`crate::HostConfig::reads_first`].
    pub reads_first: bool,
    /// See [`crate::HostConfig::poll_delay`].
    pub poll_delay: Duration,
    /// The configuration of its connections and listeners.
    pub tcp: Config,
    /// How long its connections stay in TIME-WAIT.
    pub time_wait: Duration,
    /// Frames that its ring takes at a time.
    pub batch: usize,
    /// Which IP it speaks.
    pub family: Family,
}

/// A single flow can hold all of so many receive buffers.
const RX_BUFFERS_FEW: usize = 256;

impl HostOptions {
    /// Whether a single flow can hold all of its receive buffers.
    pub(crate) fn has_few_rx_buffers(&self) -> bool {
        self.nic.rx_buffers_max <= RX_BUFFERS_FEW
    }

    /// The longest datagram in bytes that it can send unfragmented, from as many buffers as its NIC gathers.
    pub(crate) fn datagram_max(&self) -> usize {
        (self.nic.mtu - if self.family == Family::V6 { 48 } else { 28 }).min(self.nic.tx_buffer_bytes * self.nic.gather_max)
    }
}

/// Everything that a scenario draws.
#[derive(Debug)]
pub struct Options {
    /// The hosts.
    pub hosts: Vec<HostOptions>,
    /// Whether they know each other's Ethernet addresses from the start.
    pub introduce: bool,
    /// The VLAN that all of them are in (IEEE 802.1Q).
    pub vlan: Option<u16>,
    /// How long the safety phase lasts.
    pub safety: Duration,
    /// What hosts do.
    pub workloads: Vec<Box<dyn Workload>>,
}

impl Options {
    /// Draws them.
    pub(super) fn draw(scenario: &Scenario) -> Self {
        let hosts: Vec<_> = (0..host_count(&mut dice(scenario, Drawn::Hosts, 0))).map(|i| host(scenario, i)).collect();
        let mut vlan = dice(scenario, Drawn::Vlan, 0);
        Self {
            introduce: dice(scenario, Drawn::Introduce, 0).chance_ppm(300_000),
            vlan: vlan.chance_ppm(150_000).then(|| u16::try_from(vlan.between(1, 4094)).unwrap_or(1)),
            safety: millis(&mut dice(scenario, Drawn::Safety, 0), 50, 20_000),
            workloads: workloads::draw(scenario.seed, scenario.scale, scenario.workloads, &hosts),
            hosts,
        }
    }
}

impl fmt::Display for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "safety phase {:?}, introduced {}, VLAN {:?}", self.safety, self.introduce, self.vlan)?;
        for (i, HostOptions { nic, link, faults, rings, lending, reads_first, poll_delay, tcp, time_wait, batch, family }) in
            self.hosts.iter().enumerate()
        {
            writeln!(
                f,
                "host {i}: {nic:?}\n  {link:?}\n  {faults:?}\n  rings {rings}, which lend {lending:?}, reads first {reads_first}, poll delay {poll_delay:?}, TIME-WAIT {time_wait:?}, batch {batch}, {family:?}\n  {tcp:?}"
            )?;
        }
        self.workloads.iter().try_for_each(|workload| write!(f, "{workload}"))
    }
}

fn dice(scenario: &Scenario, option: Drawn, sub: u8) -> RandomStream {
    RandomStream::new(scenario.seed, Purpose::Options, option as u32, sub)
}

/// Mostly few: what many hosts show, a few of them show sooner.
fn host_count(stream: &mut RandomStream) -> u8 {
    let (low, high) = stream.pick(&[(2, 2), (2, 4), (2, 4), (2, 4), (2, 4), (2, 4), (3, 6), (3, 6), (5, 8), (8, 16)]);
    u8::try_from(stream.between(low, high)).unwrap_or(2)
}

fn size(stream: &mut RandomStream, low: usize, high: usize) -> usize {
    usize::try_from(stream.magnitude(low as u64, high as u64)).unwrap_or(high)
}

fn millis(stream: &mut RandomStream, low: u64, high: u64) -> Duration {
    Duration::from_millis(stream.magnitude(low, high))
}

/// The one place where faults, and what NICs can do, are drawn: a class or capability that is added is drawn here.
fn host(scenario: &Scenario, i: u8) -> HostOptions {
    let faults = Faults::draw(&mut dice(scenario, Drawn::Faults, i)).only(scenario.faults);
    let rings = dice(scenario, Drawn::Rings, i).pick(&[1, 1, 1, 2, 3, 4]);
    let nic_faults = nic_faults(&mut dice(scenario, Drawn::NicFaults, i)).only(scenario.faults);
    let nic = capabilities(&mut dice(scenario, Drawn::Capabilities, i), nic(&mut dice(scenario, Drawn::Nic, i)), rings);
    let mut poll = dice(scenario, Drawn::PollDelay, i);
    let mut loans = dice(scenario, Drawn::Lending, i);
    // (RFC 8200 s5: every link carries 1280 bytes.)
    let (mtu_min, faults) = match scenario.family {
        Family::V4 => (0, faults),
        Family::V6 => (1280, Faults { mtu_min: faults.mtu_min.max(1280), ..faults }),
    };
    let by_ip = if scenario.family == Family::V6 { Steering::IPV6 } else { Steering::empty() };
    let nic = NicConfig { mtu: nic.mtu.max(mtu_min), steering: nic.steering | by_ip, ..nic };
    let nic = NicConfig { rule_delay: rule_delay(&mut dice(scenario, Drawn::RuleDelay, i)), ..nic };
    let nic = NicConfig { lends_heads: loans.chance_ppm(800_000), nap: nap(&mut dice(scenario, Drawn::Nap, i)), ..nic };
    HostOptions {
        nic: rx_buffers(&mut dice(scenario, Drawn::RxBuffers, i), NicConfig { faults: nic_faults, ..nic }),
        link: LinkConfig { faults, ..link(&mut dice(scenario, Drawn::Link, i)) },
        faults: HostFaults::draw(&mut dice(scenario, Drawn::HostFaults, i)).only(scenario.faults),
        rings,
        lending: (0..rings).map(|_| lending(&mut loans)).collect(),
        reads_first: dice(scenario, Drawn::ReadsFirst, i).chance_ppm(500_000),
        poll_delay: if poll.chance_ppm(500_000) { Duration::ZERO } else { Duration::from_nanos(poll.magnitude(100, 100_000)) },
        tcp: Config { fast_open: fast_open(&mut dice(scenario, Drawn::FastOpen, i)), ..tcp(&mut dice(scenario, Drawn::Tcp, i)) },
        time_wait: millis(&mut dice(scenario, Drawn::TimeWait, i), 1_000, 60_000),
        batch: size(&mut dice(scenario, Drawn::Batch, i), 1, 64),
        family: scenario.family,
    }
}

/// On every second ring, programs read by reference. Most give back soon.
fn lending(stream: &mut RandomStream) -> Option<Lending> {
    let lends = stream.chance_ppm(500_000);
    let lending = Lending {
        from_start: stream.chance_ppm(700_000),
        hold_max: Duration::from_nanos(stream.pick(&[1_000, 1_000_000, 20_000_000, 20_000_000, 500_000_000])),
        keeps_ppm: stream.pick(&[0, 0, 0, 100_000, 500_000]),
    };
    lends.then_some(lending)
}

/// On about every second host, listeners give and take cookies, and programs that open one connection after the other show theirs.
fn fast_open(stream: &mut RandomStream) -> FastOpen {
    FastOpen { under_way_max: stream.pick(&[0, 0, 0, 1, 2, 16, 128]), ..FastOpen::default() }
}

/// How long sleepers sleep through acknowledgments: seldom for long, lest timers be all that is seen of them.
fn nap(stream: &mut RandomStream) -> Duration {
    if stream.chance_ppm(500_000) { Duration::ZERO } else { Duration::from_nanos(stream.magnitude(100, 100_000)) }
}

/// How long firmware takes for a flow rule: on most NICs, no time at all.
fn rule_delay(stream: &mut RandomStream) -> Duration {
    if stream.chance_ppm(750_000) { Duration::ZERO } else { Duration::from_nanos(stream.magnitude(1_000, 20_000_000)) }
}

/// Limits.
fn nic(stream: &mut RandomStream) -> NicConfig {
    let mtu_any = size(stream, 576, 9000);
    NicConfig {
        mtu: stream.pick(&[576, 1280, 1500, 1500, 9000, mtu_any]),
        inline_max: stream.pick(&[0, 60, 128, 256, 1024]),
        gather_max: size(stream, 2, 16),
        tx_checksum: stream.chance_ppm(500_000),
        rx_checksum: stream.chance_ppm(500_000),
        tx_queue_max: size(stream, 4, 1024),
        rx_queue_max: size(stream, 32, 1024),
        tx_buffers_max: size(stream, 64, 16 << 10),
        tx_buffer_bytes: size(stream, 128, 8 << 10),
        rx_buffers_max: size(stream, 512, 8 << 10),
        ..NicConfig::full()
    }
}

/// Some have few receive buffers.
fn rx_buffers(stream: &mut RandomStream, nic: NicConfig) -> NicConfig {
    let few = stream.chance_ppm(150_000).then(|| size(stream, 16, RX_BUFFERS_FEW));
    NicConfig { rx_buffers_max: few.unwrap_or(nic.rx_buffers_max), ..nic }
}

/// What else it can do: everything, but for what is switched off.
fn capabilities(stream: &mut RandomStream, nic: NicConfig, rings: usize) -> NicConfig {
    let mut on = || stream.chance_ppm(600_000);
    let [tso, lro, vlan_insert, vlan_strip, vxlan, pacing, moderation, hardware_time, cyclic, memory] = core::array::from_fn(|_| on());
    NicConfig {
        tso_max: tso.then(|| size(stream, 4 << 10, 65_535)),
        lro,
        vlan_insert,
        vlan_strip,
        vxlan,
        pacing,
        moderation,
        hardware_time,
        cyclic_queues_max: if cyclic { nic.cyclic_queues_max } else { 0 },
        device_memory: if memory { nic.device_memory } else { 0 },
        steering: Steering::from_bits_truncate(stream.pick(&[u16::MAX, u16::MAX, 0x5555, 0xaaaa])),
        // One more: a raw queue can be had on any host.
        rings_max: stream.pick(&[rings + 2, 16]),
        ..nic
    }
}

/// Strengths of what befalls a NIC. Calls are many and must get through in the end; what loses frames is as rare as other losses.
fn nic_faults(stream: &mut RandomStream) -> NicFaults {
    let mut faults = NicFaults::default();
    for fault in NicFault::ALL {
        let (ppm_max, lasts_max) = match fault {
            NicFault::Reset | NicFault::CqOverrun => (5_000, 300_000_000),
            NicFault::SendError | NicFault::RxExhausted => (50_000, 50_000_000),
            NicFault::SendFull | NicFault::Registration => (100_000, 50_000_000),
            NicFault::Doorbell => (250_000, 20_000_000),
            NicFault::Completion => (50_000, 20_000_000),
        };
        let ppm = u32::try_from(stream.magnitude(100, ppm_max)).unwrap_or(0);
        *faults.strength_mut(fault) = Strength { ppm, lasts_max: Duration::from_nanos(stream.magnitude(1_000, lasts_max)) };
    }
    faults
}

fn link(stream: &mut RandomStream) -> LinkConfig {
    LinkConfig {
        latency: Duration::from_nanos(stream.magnitude(500, 60_000_000)),
        bandwidth_bps: stream.pick(&[None, Some(10_000_000), Some(100_000_000), Some(1_000_000_000), Some(25_000_000_000)]),
        queue_bytes_max: size(stream, 32 << 10, 1 << 20),
        mark_bytes: None,
        mtu: None,
        faults: Faults::default(),
    }
}

fn tcp(stream: &mut RandomStream) -> Config {
    let mut buffer = |low| stream.chance_ppm(300_000).then(|| size(stream, low, 256 << 10));
    let (rcvbuf, sndbuf) = (buffer(2304), buffer(4608));
    Config {
        mss_max: u16::MAX,
        mss_user: stream.chance_ppm(150_000).then(|| u16::try_from(stream.magnitude(88, 8960)).unwrap_or(536)),
        rcvbuf,
        sndbuf,
        nodelay: stream.chance_ppm(500_000),
        cork: stream.chance_ppm(50_000),
        quickack: stream.chance_ppm(200_000),
        delayed_ack: millis(stream, 1, 100),
        timestamps: stream.chance_ppm(800_000),
        sack: stream.chance_ppm(800_000),
        window_scaling: stream.chance_ppm(800_000),
        // Always on: whoever only reads learns of a peer's end by nothing else if its reset is lost. Within 40 s or less.
        keepalive: Some(Keepalive {
            idle: millis(stream, 2_000, 20_000),
            interval: millis(stream, 1_500, 5_000),
            count: u32::try_from(stream.between(3, 4)).unwrap_or(3),
        }),
        user_timeout: stream.chance_ppm(200_000).then(|| millis(stream, 10_000, 120_000)),
        fin_wait2: millis(stream, 1_000, 60_000),
        ttl: u8::try_from(stream.between(1, 255)).unwrap_or(64),
        tos: stream.pick(&[0, 0, 0x10, 0xb8]),
        // (NewReno's window is known to the byte, CUBIC's has bounds.)
        congestion: if stream.chance_ppm(500_000) { Algorithm::Reno } else { Algorithm::Cubic },
        ecn: stream.pick(&[Ecn::Asked, Ecn::Asked, Ecn::Accepted, Ecn::Off]),
        ..Config::default()
    }
}
