use std::collections::VecDeque;
use std::io::{IoSlice, IoSliceMut};
use std::net::SocketAddr;

use ringway_stack::ring::{FlowId, Readiness, RecvFlags, SendFlags};
use ringway_stack::tcp::{Config, Ecn, Keepalive};
use ringway_stack::{Error, Instant};

use super::*;
use crate::addresses::neighbour;
use crate::apps::Shared;
use crate::faults::{FaultCounts, Faults, Forgery, HostFaults};
use crate::host::{App, Context, HostConfig, Step};
use crate::report::{Report, assert_deterministic};
use crate::trace::What;
use crate::{Capture, LinkConfig, WorldConfig};

const PORT: u16 = 80;
/// Longer than the smallest path carries, and more than one segment.
const REQUEST: usize = 3000;

fn millis(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn at(n: u64) -> Instant {
    Instant::ZERO + millis(n)
}

fn config() -> Config {
    let keepalive = Keepalive { idle: Duration::from_secs(5), interval: Duration::from_secs(1), count: 5 };
    Config { keepalive: Some(keepalive), ecn: Ecn::Asked, ..Config::default() }
}

/// Asks for echoes until it got so many; connects anew when its connection fails.
struct Asker {
    server: SocketAddr,
    port: u16,
    left: u32,
    socket: Option<FlowId>,
    /// Bytes of an echo that are awaited.
    awaited: usize,
    next_at: Instant,
    errors: Shared<Vec<Error>>,
}

impl Asker {
    fn new(server: SocketAddr, left: u32, errors: Shared<Vec<Error>>) -> Self {
        Self { server, port: 40_000, left, socket: None, awaited: 0, next_at: Instant::ZERO, errors }
    }

    fn talk(&mut self, cx: &mut Context<'_>, socket: FlowId) -> Result<(), Error> {
        let ready = cx.ring.readiness(socket);
        if let Some(error) = cx.ring.take_error(socket) {
            return Err(error);
        }
        while self.awaited > 0 && ready.contains(Readiness::IN) {
            match cx.ring.tcp_recv(cx.now, socket, &mut [IoSliceMut::new(&mut [0; 8192])], RecvFlags::empty()) {
                Ok(0) => return Err(Error::Pipe),
                Ok(len) => self.awaited -= len,
                Err(Error::WouldBlock) => return Ok(()),
                Err(error) => return Err(error),
            }
            if self.awaited == 0 {
                self.left -= 1;
                self.next_at = cx.now + millis(10);
            }
        }
        if self.awaited == 0 && self.left > 0 && self.next_at <= cx.now && ready.contains(Readiness::OUT) {
            let sent = cx.ring.tcp_send(cx.now, socket, &[IoSlice::new(&[7; REQUEST])], SendFlags::empty())?;
            self.awaited = sent;
        }
        Ok(())
    }
}

impl App for Asker {
    fn step(&mut self, cx: &mut Context<'_>) -> Step {
        let socket = match self.socket {
            Some(socket) => socket,
            None if self.next_at > cx.now => return Step::Until(self.next_at),
            None => {
                let local = SocketAddr::new(cx.ip, self.port);
                self.port += 1;
                let socket = cx.ring.tcp_connect(cx.now, local, self.server, neighbour(self.server), &config()).unwrap();
                *self.socket.insert(socket)
            }
        };
        if let Err(error) = self.talk(cx, socket) {
            self.errors.change(|errors| errors.push(error));
            cx.ring.close(cx.now, socket, true);
            (self.socket, self.awaited, self.next_at) = (None, 0, cx.now + millis(20));
            return Step::Until(self.next_at);
        }
        match self.left {
            0 => {
                cx.ring.close(cx.now, socket, false);
                Step::Finished
            }
            _ if self.next_at > cx.now => Step::Until(self.next_at),
            _ => Step::Wait,
        }
    }
}

/// Echoes whatever comes.
#[derive(Default)]
struct Echoer {
    listener: Option<FlowId>,
    connections: Vec<(FlowId, VecDeque<u8>)>,
}

impl App for Echoer {
    fn step(&mut self, cx: &mut Context<'_>) -> Step {
        let local = SocketAddr::new(cx.ip, PORT);
        let listener = *self.listener.get_or_insert_with(|| cx.ring.tcp_listen(local, 64, &config()).unwrap());
        while let Ok(socket) = cx.ring.tcp_accept(listener) {
            self.connections.push((socket, VecDeque::new()));
        }
        self.connections.retain_mut(|(socket, pending)| {
            let mut bytes = [0; 8192];
            let open = loop {
                match cx.ring.tcp_recv(cx.now, *socket, &mut [IoSliceMut::new(&mut bytes)], RecvFlags::empty()) {
                    Ok(0) => break false,
                    Ok(len) => pending.extend(&bytes[..len]),
                    Err(error) => break error == Error::WouldBlock,
                }
            };
            while let Ok(len) = cx.ring.tcp_send(cx.now, *socket, &[IoSlice::new(pending.make_contiguous())], SendFlags::empty()) {
                pending.drain(..len);
                if pending.is_empty() {
                    break;
                }
            }
            if !open {
                cx.ring.close(cx.now, *socket, false);
            }
            open
        });
        Step::Idle
    }
}

struct Run {
    world: World,
    hosts: [HostId; 3],
    errors: Shared<Vec<Error>>,
}

impl Run {
    /// Where everybody stands, and what happened last.
    fn describe(&self) -> String {
        let mut lines = vec![format!("{:?}", self.errors.read())];
        for host in self.hosts.map(|h| self.world.host(h)) {
            let ring = host.ring();
            lines.push(format!("{}: ahead {:?}, deadline {:?}", host.name(), host.clock_ahead(), ring.next_deadline()));
            lines.extend(ring.open_flows().into_iter().map(|s| format!("  {:?} {:?}", ring.info(s), ring.readiness(s))));
        }
        let text = crate::trace::render(self.world.trace());
        let last = text.lines().count().saturating_sub(40);
        lines.extend(text.lines().skip(last).map(str::to_owned));
        lines.join("\n")
    }
}

/// A server and two clients who want `echoes` each.
fn begin(seed: u64, faults: Faults, host_faults: HostFaults, echoes: u32) -> Run {
    let mut world = World::new(WorldConfig { seed, capture: Capture::Frames });
    let link = LinkConfig { latency: millis(1), faults, ..LinkConfig::default() };
    let hosts = ["server", "one", "two"].map(|name| world.add_host(HostConfig::named(name).link(link).faults(host_faults)));
    let errors = Shared::new(Vec::new());
    world.add_restartable(hosts[0], || Box::new(Echoer::default()));
    let server = SocketAddr::new(world.host(hosts[0]).ip(), PORT);
    for &client in &hosts[1..] {
        let errors = errors.clone();
        world.add_restartable(client, move || Box::new(Asker::new(server, echoes, errors.clone())));
    }
    Run { world, hosts, errors }
}

/// Three seconds of faults, then none: everyone must get done. Returns the world at its end.
fn weather(seed: u64, faults: Faults, host_faults: HostFaults) -> Run {
    let mut run = begin(seed, faults, host_faults, 200);
    run.world.run_until(at(3000));
    run.world.set_faults(false);
    let finished = run.world.run_until_finished(at(3000) + Duration::from_secs(300));
    assert!(finished.is_ok(), "seed {seed}: {finished:?}\n{}", run.describe());
    run
}

fn every(ms: u64, length_max: u64) -> Episodes {
    Episodes { every: millis(ms), length_max: millis(length_max) }
}

fn mishaps(world: &World) -> Vec<(Instant, usize, Mishap)> {
    let befell = world.trace().records().iter();
    befell.filter_map(|r| if let What::Befell(mishap) = r.what { Some((r.at, r.host, mishap)) } else { None }).collect()
}

/// A class alone: it strikes, the programs get done, and a second run is the same.
fn check(seed: u64, faults: Faults, host_faults: HostFaults, counts: &[fn(&FaultCounts) -> u64]) -> Run {
    let run = |seed| weather(seed, faults, host_faults).world.report();
    let report: Report = assert_deterministic(seed, run);
    for (i, count) in counts.iter().enumerate() {
        assert!(count(&report.faults) > 0, "count {i} of {:?}", report.faults);
    }
    weather(seed, faults, host_faults)
}

fn link(faults: Faults, counts: &[fn(&FaultCounts) -> u64]) -> Run {
    check(1, faults, HostFaults::default(), counts)
}

fn host(faults: HostFaults, counts: &[fn(&FaultCounts) -> u64]) -> Run {
    check(1, Faults::default(), faults, counts)
}

#[test]
fn calm() {
    let run = link(Faults::default(), &[]);
    assert_eq!(run.world.trace().faults(), FaultCounts::default());
    assert!(run.errors.read().is_empty());
    assert!(mishaps(&run.world).is_empty());
}

#[test]
fn slow_links() {
    let faults = Faults { delay: every(200, 300), delay_max: millis(50), jitter_max: millis(20), ..Faults::default() };
    link(faults, &[|c| c.delayed]);
}

#[test]
fn narrow_links() {
    let faults = Faults { bandwidth: every(200, 300), bandwidth_bps_min: 100_000, queue_bytes_min: 2000, ..Faults::default() };
    link(faults, &[|c| c.bandwidth_changes]);
}

#[test]
fn short_paths_with_routers_that_say_so() {
    let faults = Faults { mtu: every(300, 400), mtu_min: 576, ..Faults::default() };
    let run = link(faults, &[|c| c.mtu_changes, |c| c.too_long, |c| c.fragmentation_needed]);
    assert!(run.errors.read().is_empty());
    assert_eq!(run.world.trace().faults().too_long, run.world.trace().faults().fragmentation_needed);
    // Whoever was told needed no timeout.
    assert!(run.world.trace().silence_max() < millis(150), "{:?}", run.world.trace().silence_max());
}

#[test]
fn short_paths_with_routers_that_do_not() {
    let faults = Faults { mtu: every(500, 3000), mtu_min: 576, mtu_silence_ppm: 1_000_000, ..Faults::default() };
    let run = link(faults, &[|c| c.mtu_changes, |c| c.too_long]);
    assert_eq!(run.world.trace().faults().fragmentation_needed, 0);
}

/// A path that stays as short as it is: whoever is told needs no timeout, whoever isn't finds out.
#[test]
fn a_short_path_that_stays() {
    for (mtu_silence_ppm, by) in [(0, 700), (1_000_000, 10_000)] {
        let faults = Faults { mtu_silence_ppm, ..Faults::default() };
        let Run { mut world, hosts: [_, one, _], errors } = begin(1, faults, HostFaults::default(), 40);
        world.change_link(one, |link| link.mtu = Some(1000));
        assert!(world.run_until_finished(at(by)).is_ok(), "silence {mtu_silence_ppm}");
        let counts = world.trace().faults();
        assert_eq!((counts.too_long > 0, counts.fragmentation_needed > 0), (true, mtu_silence_ppm == 0));
        assert!(errors.read().is_empty());
    }
}

#[test]
fn partitions() {
    link(Faults { partition: every(300, 500), ..Faults::default() }, &[|c| c.partitions, |c| c.partitioned]);
    link(Faults { one_way: every(300, 500), ..Faults::default() }, &[|c| c.partitions, |c| c.one_way]);
}

#[test]
fn flapping_links() {
    let run = link(Faults { flap: every(300, 800), ..Faults::default() }, &[|c| c.flaps, |c| c.link_down]);
    let ups = mishaps(&run.world).iter().filter(|m| m.2 == Mishap::CarrierFound).count() as u64;
    assert_eq!(ups, run.world.trace().faults().flaps, "each comes up again");
}

#[test]
fn jumping_clocks() {
    let run = host(HostFaults { clock: every(200, 2000), ..HostFaults::default() }, &[|c| c.clock_jumps]);
    assert!(run.hosts.iter().all(|&h| run.world.host(h).clock_ahead() > Duration::ZERO));
    assert!(run.errors.read().is_empty());
}

#[test]
fn pausing_hosts() {
    let run = host(HostFaults { pause: every(200, 500), ..HostFaults::default() }, &[|c| c.pauses]);
    assert!(run.errors.read().is_empty());
}

#[test]
fn crashing_hosts() {
    let run = host(HostFaults { crash: every(400, 300), ..HostFaults::default() }, &[|c| c.crashes, |c| c.host_down]);
    assert!(run.hosts.iter().all(|&h| run.world.host(h).boots() > 0));
    assert!(run.errors.read().contains(&Error::Reset), "{:?}", run.errors.read());
}

#[test]
fn moving_neighbours() {
    let run = host(HostFaults { neighbour: every(400, 1), ..HostFaults::default() }, &[|c| c.neighbour_changes]);
    assert!(mishaps(&run.world).iter().any(|m| matches!(m.2, Mishap::Moved { announced: true })));
    assert!(mishaps(&run.world).iter().any(|m| matches!(m.2, Mishap::Moved { announced: false })));
    assert!(mishaps(&run.world).iter().any(|m| m.2 == Mishap::Forgot));
}

/// RFC 5927: nobody off the path can do a connection harm by ICMP.
#[test]
fn forged_errors_harm_nobody() {
    for seed in 0..5 {
        let icmp = HostFaults { icmp: every(5, 1), ..HostFaults::default() };
        let Run { mut world, hosts, errors } = begin(seed, Faults::default(), icmp, 100_000);
        world.run_until(at(5000));
        assert!(world.trace().faults().icmp_forged > 1000, "{:?}", world.trace().faults());
        assert!(errors.read().is_empty());
        for client in &hosts[1..] {
            let ring = world.host(*client).ring();
            let connections: Vec<_> = ring.open_flows().into_iter().filter_map(|s| ring.info(s)).collect();
            assert_eq!(connections.len(), 1);
            assert_eq!((connections[0].mss, connections[0].counters.retransmissions), (1448, 0));
        }
    }
}

/// RFC 5961, RFC 5927, RFC 7323: nobody who leaves an exact reset alone does a connection harm.
#[test]
fn forged_frames_harm_nobody() {
    let mut seen = BTreeSet::new();
    for seed in 0..8 {
        let forge = HostFaults { forge_ppm: 150_000, ..HostFaults::default() };
        let Run { mut world, errors, .. } = begin(seed, Faults::default(), forge, 300_000);
        world.run_until(at(5000));
        assert!(errors.read().is_empty(), "{:?}", errors.read());
        assert_eq!(world.trace().faults().lied, 0);
        seen.extend(mishaps(&world).iter().filter_map(|(.., mishap)| match mishap {
            Mishap::Forged { what, .. } => Some(*what),
            _ => None,
        }));
    }
    // (Nobody there connects anew with the same addresses.)
    let tcp = Forgery::ALL.iter().take_while(|&&kind| kind != Forgery::NoChecksum).filter(|&&kind| kind != Forgery::Incarnation);
    let missing: Vec<_> = tcp.filter(|kind| !seen.contains(kind)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn late_errors() {
    let faults = Faults { mtu: every(300, 400), mtu_min: 576, icmp_delay_ppm: 500_000, icmp_delay_max: millis(800), ..Faults::default() };
    link(faults, &[|c| c.icmp_delayed, |c| c.fragmentation_needed]);
}

#[test]
fn bursts_and_losses() {
    let faults = Faults { burst_ppm: 20_000, burst_frames: 5, burst_loss_ppm: 800_000, ..Faults::default() };
    link(faults, &[|c| c.burst_lost]);
    link(Faults { hidden_corruption_ppm: 20_000, ..Faults::default() }, &[|c| c.hidden_corrupted]);
}

/// (A mark takes half of a window, and loses nothing.)
#[test]
fn marks_of_congestion() {
    let run = link(Faults { mark_ppm: 100_000, ..Faults::default() }, &[|c| c.marked]);
    assert!(run.errors.read().is_empty());
}

/// Everything at once, as a swarm would draw it.
#[test]
fn all_weather() {
    let mut stream = RandomStream::new(1, Purpose::Options, 0, 0);
    for seed in 0..40 {
        let (faults, host_faults) = (Faults::draw(&mut stream), HostFaults::draw(&mut stream));
        assert_deterministic(seed, |seed| weather(seed, faults, host_faults).world.report());
    }
}

/// Strength zero is as if the class did not exist, whatever its other settings.
#[test]
fn a_class_at_zero_changes_nothing() {
    let mut stream = RandomStream::new(1, Purpose::Options, 0, 0);
    let (drawn, drawn_host) = (Faults::draw(&mut stream), HostFaults::draw(&mut stream));
    let loss = Faults { loss_ppm: 50_000, ..Faults::default() };
    let hash = |faults, host_faults| weather(7, faults, host_faults).world.report().hash;
    let alone = hash(loss, HostFaults::default());
    assert_eq!(hash(Faults { loss_ppm: 50_000, ..drawn.only(FaultSet::empty()) }, drawn_host.only(FaultSet::empty())), alone);
}

/// When one class strikes doesn't depend on any other.
#[test]
fn an_episode_class_reshuffles_no_other() {
    let flaps = |faults: Faults, host_faults| {
        let world = weather(3, faults, host_faults).world;
        mishaps(&world).into_iter().filter(|m| m.0 < at(3000) && m.2 == Mishap::CarrierLost).collect::<Vec<_>>()
    };
    let flap = Faults { flap: every(100, 100), ..Faults::default() };
    let alone = flaps(flap, HostFaults::default());
    assert!(alone.len() > 20);
    let others = HostFaults { crash: every(300, 200), clock: every(100, 1000), ..HostFaults::default() };
    assert_eq!(flaps(Faults { one_way: every(100, 100), loss_ppm: 10_000, ..flap }, others), alone);
}

#[test]
fn a_crashed_host_says_nothing_and_its_heir_resets_what_it_finds() {
    let Run { mut world, hosts: [server, one, two], errors } = begin(1, Faults::default(), HostFaults::default(), 1000);
    world.run_until(at(100));
    let before = world.host(server).ring().open_flows().len();
    assert!(before >= 3, "two connections and a listener");
    world.crash(server);
    assert!(world.host(server).ring().open_flows().is_empty() && !world.host(server).finished());
    let sent = world.trace().records().len();
    world.run_until(at(400));
    let silent = world.trace().records()[sent..].iter().all(|r| r.host != 0 || r.what != What::Sent);
    assert!(silent && errors.read().is_empty(), "nobody was told");
    world.restart(server);
    world.run_until(at(5000));
    assert_eq!(errors.read()[..], [Error::Reset; 2]);
    assert_eq!(world.host(server).ring().open_flows().len(), before);
    for client in [one, two] {
        assert_eq!(world.host(client).boots(), 0);
    }
}

#[test]
fn mishaps_are_told_in_traces() {
    let run =
        weather(1, Faults { flap: every(300, 100), ..Faults::default() }, HostFaults { pause: every(300, 100), ..HostFaults::default() });
    let text = crate::trace::render(run.world.trace());
    for line in ["server ! [the link goes down]", "one ! [the link comes up]", "two ! [the host pauses]", "two ! [the host goes on]"] {
        assert!(text.contains(line), "{line}");
    }
    let mut pcap = Vec::new();
    run.world.trace().write_pcapng(&mut pcap).unwrap();
    let told = |words: &[u8]| pcap.windows(words.len()).any(|w| w == words);
    assert!(told(b"ms: the link comes up") && told(b"ms: the host goes on") && told(b"dropped: no carrier"));
}

/// The client's port, and its connection at the server, are from before the crash.
#[test]
fn a_client_that_crashed_gets_its_old_port_back() {
    let Run { mut world, hosts: [_, one, _], errors } = begin(1, Faults::default(), HostFaults::default(), 50);
    world.run_until(at(100));
    world.crash(one);
    world.run_until(at(150));
    world.restart(one);
    assert!(world.run_until_finished(at(10_000)).is_ok());
    assert!(errors.read().is_empty());
}

#[test]
fn who_is_cut_off_hears_nothing_until_it_heals() {
    let Run { mut world, hosts: [server, one, two], .. } = begin(1, Faults::default(), HostFaults::default(), 100_000);
    world.run_until(at(100));
    let heard = |world: &World, from: u64, host: HostId| {
        let delivered = world.trace().records().iter().filter(|r| r.what == What::Delivered);
        delivered.filter(|r| r.at > at(from) && r.host == host.0).count()
    };
    world.partition(&[one], &[server, two]);
    world.run_until(at(110));
    world.run_until(at(1000));
    assert_eq!((heard(&world, 110, one), heard(&world, 110, two) > 10), (0, true));
    world.heal();
    world.partition_one_way(&[server], &[two]);
    world.run_until(at(3000));
    assert_eq!((heard(&world, 1010, one) > 10, heard(&world, 1010, two)), (true, 0));
    assert!(heard(&world, 1010, server) > 10);
}
