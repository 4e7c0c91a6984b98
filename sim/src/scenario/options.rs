//! What a seed draws. Each option has a stream of its own: a new one changes nothing for those that were there before.

use core::fmt;
use core::time::Duration;

use ringway_stack::tcp::{Config, Keepalive};

use super::Scenario;
use crate::apps::{Dialogue, Pace, Parting, Pattern, Side};
use crate::fabric::LinkConfig;
use crate::faults::Faults;
use crate::nic::NicConfig;
use crate::random::{Purpose, Stream};

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
    Talks,
    Talk,
    Pings,
    TimeWait,
}

/// One host's options.
#[derive(Clone, Debug)]
pub struct HostOptions {
    /// Its NIC.
    pub nic: NicConfig,
    /// Its link, faults included.
    pub link: LinkConfig,
    /// See [`crate::HostConfig::poll_delay`].
    pub poll_delay: Duration,
    /// The configuration of its connections and listeners.
    pub tcp: Config,
    /// How long its connections stay in TIME-WAIT.
    pub time_wait: Duration,
}

/// One conversation with the server, which is host 0.
#[derive(Clone, Copy, Debug)]
pub struct TalkOptions {
    /// The client's host.
    pub host: usize,
    /// The kind of conversation.
    pub kind: &'static str,
    /// From the client's point of view.
    pub dialogue: Dialogue,
}

/// One series of pings to the server.
#[derive(Clone, Copy, Debug)]
pub struct PingOptions {
    /// The client's host.
    pub host: usize,
    /// How many must come back.
    pub wanted: u64,
    /// The shortest and the longest datagram.
    pub len: (usize, usize),
    /// The time between two.
    pub interval: Duration,
    /// The key of their contents.
    pub pattern: Pattern,
}

/// Everything that a scenario draws.
#[derive(Clone, Debug)]
pub struct Options {
    /// The hosts; the first one is the server.
    pub hosts: Vec<HostOptions>,
    /// Whether they know each other's Ethernet addresses from the start.
    pub introduce: bool,
    /// How long the safety phase lasts.
    pub safety: Duration,
    /// Conversations over TCP.
    pub talks: Vec<TalkOptions>,
    /// Pings over UDP.
    pub pings: Vec<PingOptions>,
}

impl Options {
    /// Draws them.
    pub(super) fn draw(scenario: &Scenario) -> Self {
        let hosts = usize::try_from(dice(scenario, Drawn::Hosts, 0).between(2, 4)).unwrap_or(2);
        let hosts: Vec<_> = (0..hosts).map(|i| host(scenario, sub(i))).collect();
        let datagram_max = hosts.iter().map(datagram_max).min().unwrap_or(0);
        let talks = dice(scenario, Drawn::Talks, 0).between(1, 4);
        let talks = (0..talks).map(|i| talk(scenario, u8::try_from(i).unwrap_or(0), hosts.len())).collect();
        Self {
            introduce: dice(scenario, Drawn::Introduce, 0).chance_ppm(300_000),
            safety: millis(&mut dice(scenario, Drawn::Safety, 0), 50, 20_000),
            talks,
            pings: pings(scenario, hosts.len(), datagram_max),
            hosts,
        }
    }
}

impl fmt::Display for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "safety phase {:?}, introduced {}", self.safety, self.introduce)?;
        for (i, HostOptions { nic, link, poll_delay, tcp, time_wait }) in self.hosts.iter().enumerate() {
            writeln!(f, "host {i}: {nic:?}\n  {link:?}\n  poll delay {poll_delay:?}, TIME-WAIT {time_wait:?}\n  {tcp:?}")?;
        }
        for TalkOptions { host, kind, dialogue } in &self.talks {
            writeln!(f, "host {host} talks, {kind}:\n  client {:?}\n  server {:?}", dialogue.own, dialogue.peer)?;
        }
        for pings in &self.pings {
            writeln!(f, "{pings:?}")?;
        }
        Ok(())
    }
}

fn dice(scenario: &Scenario, option: Drawn, sub: u8) -> Stream {
    Stream::new(scenario.seed, Purpose::Options, option as u32, sub)
}

fn sub(index: usize) -> u8 {
    u8::try_from(index).unwrap_or(u8::MAX)
}

fn size(stream: &mut Stream, low: usize, high: usize) -> usize {
    usize::try_from(stream.magnitude(low as u64, high as u64)).unwrap_or(high)
}

fn millis(stream: &mut Stream, low: u64, high: u64) -> Duration {
    Duration::from_millis(stream.magnitude(low, high))
}

fn host(scenario: &Scenario, i: u8) -> HostOptions {
    let faults = faults(&mut dice(scenario, Drawn::Faults, i)).only(scenario.faults);
    let mut poll = dice(scenario, Drawn::PollDelay, i);
    HostOptions {
        nic: nic(&mut dice(scenario, Drawn::Nic, i)),
        link: LinkConfig { faults, ..link(&mut dice(scenario, Drawn::Link, i)) },
        poll_delay: if poll.chance_ppm(500_000) { Duration::ZERO } else { Duration::from_nanos(poll.magnitude(100, 100_000)) },
        tcp: tcp(&mut dice(scenario, Drawn::Tcp, i)),
        time_wait: millis(&mut dice(scenario, Drawn::TimeWait, i), 1_000, 60_000),
    }
}

fn nic(stream: &mut Stream) -> NicConfig {
    NicConfig {
        mtu: stream.pick(&[576, 1280, 1500, 1500, 9000]),
        inline_max: stream.pick(&[0, 60, 128, 256, 1024]),
        gather_max: size(stream, 2, 8),
        tx_checksum: stream.chance_ppm(500_000),
        rx_checksum: stream.chance_ppm(500_000),
        tx_queue_max: size(stream, 4, 1024),
        rx_queue_max: size(stream, 32, 1024),
        tx_buffers_max: size(stream, 64, 16 << 10),
        tx_buffer_bytes: size(stream, 128, 8 << 10),
        rx_buffers_max: size(stream, 512, 8 << 10),
        ..NicConfig::default()
    }
}

fn link(stream: &mut Stream) -> LinkConfig {
    LinkConfig {
        latency: Duration::from_nanos(stream.magnitude(500, 60_000_000)),
        bandwidth_bps: stream.pick(&[None, Some(10_000_000), Some(100_000_000), Some(1_000_000_000), Some(25_000_000_000)]),
        queue_bytes_max: size(stream, 32 << 10, 1 << 20),
        mtu: None,
        faults: Faults::default(),
    }
}

fn faults(stream: &mut Stream) -> Faults {
    let mut ppm = || u32::try_from(stream.magnitude(1_000, 250_000)).unwrap_or(0);
    let [loss_ppm, duplication_ppm, reordering_ppm, corruption_ppm] = [ppm(), ppm(), ppm(), ppm()];
    let mut delay = || Duration::from_nanos(stream.magnitude(1_000, 300_000_000));
    let (duplication_delay_max, reordering_delay_max) = (delay(), delay());
    Faults { loss_ppm, duplication_ppm, duplication_delay_max, reordering_ppm, reordering_delay_max, corruption_ppm, ..Faults::default() }
}

fn tcp(stream: &mut Stream) -> Config {
    let mut buffer = |low| stream.chance_ppm(300_000).then(|| size(stream, low, 256 << 10));
    let (rcvbuf, sndbuf) = (buffer(2304), buffer(4608));
    Config {
        mss_max: u16::MAX,
        rcvbuf,
        sndbuf,
        nodelay: stream.chance_ppm(500_000),
        timestamps: stream.chance_ppm(800_000),
        sack: stream.chance_ppm(800_000),
        window_scaling: stream.chance_ppm(800_000),
        // Always on: whoever only reads learns of a peer's end by nothing else if its reset is lost.
        keepalive: Some(Keepalive { idle: Duration::from_secs(20), interval: Duration::from_secs(5), count: 5 }),
        ..Config::default()
    }
}

fn talk(scenario: &Scenario, i: u8, hosts: usize) -> TalkOptions {
    let stream = &mut dice(scenario, Drawn::Talk, i);
    let host = usize::try_from(stream.between(1, hosts as u64 - 1)).unwrap_or(1);
    let kind = stream.pick(&["upload", "download", "both ways", "request", "half-close", "client aborts", "server aborts"]);
    let (mut client, mut server) = (side(stream, scenario.scale), side(stream, scenario.scale));
    match kind {
        "upload" => server.total = 0,
        "download" => client.total = 0,
        "request" => {
            let (request, response) = (stream.magnitude(1, 4096), stream.magnitude(1, 16 << 10));
            let rounds = stream.magnitude(1, 4 << scenario.scale.min(4));
            (client.pace, client.total) = (Pace::Asks { request, response }, rounds * request);
            (server.pace, server.total) = (Pace::Answers { request, response }, rounds * response);
        }
        "half-close" => server.pace = Pace::AfterPeer,
        "client aborts" => client.parting = Parting::Abort,
        "server aborts" => server.parting = Parting::Abort,
        _ => {}
    }
    let dialogue = Dialogue { own: paced(client, server.total), peer: paced(server, client.total) };
    TalkOptions { host, kind, dialogue }
}

fn side(stream: &mut Stream, scale: u8) -> Side {
    let total_max = 1024 << scale;
    let (small, large) = (stream.magnitude(1, total_max), stream.between(1, total_max));
    let total = if stream.chance_ppm(100_000) { 0 } else { stream.pick(&[small, large]) };
    let pause = if stream.chance_ppm(700_000) { 0 } else { stream.magnitude(1_000, 50_000_000) };
    Side {
        pattern: Pattern(stream.bits()),
        total,
        write_max: size(stream, 1, 64 << 10),
        read_max: size(stream, 1, 64 << 10),
        read_pause: Duration::from_nanos(pause),
        ..Side::silent()
    }
}

/// Keeps the number of calls, and the time that a slow reader takes, within reason.
fn paced(side: Side, peer_total: u64) -> Side {
    const CALLS_MAX: u64 = 512;
    const READING_MAX: Duration = Duration::from_secs(20);
    let least = |total: u64| usize::try_from(total / CALLS_MAX).unwrap_or(0) + 1;
    let read_max = side.read_max.max(least(peer_total));
    let reads = u32::try_from(peer_total / read_max as u64 + 1).unwrap_or(u32::MAX);
    Side { write_max: side.write_max.max(least(side.total)), read_max, read_pause: side.read_pause.min(READING_MAX / reads), ..side }
}

/// The longest datagram that a host can send unfragmented, from as many buffers as its NIC gathers.
fn datagram_max(host: &HostOptions) -> usize {
    (host.nic.mtu - 28).min(host.nic.tx_buffer_bytes * host.nic.gather_max)
}

fn pings(scenario: &Scenario, hosts: usize, len_max: usize) -> Vec<PingOptions> {
    let stream = &mut dice(scenario, Drawn::Pings, 0);
    let series = stream.below(3);
    let one = |_| {
        let (a, b) = (size(stream, 8, len_max), size(stream, 8, len_max));
        PingOptions {
            host: usize::try_from(stream.between(1, hosts as u64 - 1)).unwrap_or(1),
            wanted: stream.magnitude(1, 64),
            len: (a.min(b), a.max(b)),
            interval: Duration::from_nanos(stream.magnitude(100_000, 100_000_000)),
            pattern: Pattern(stream.bits()),
        }
    };
    (0..series).map(one).collect()
}
