//! Whole hosts on NICs with everything, with everything but one thing, and with everything going wrong.

use core::time::Duration;
use std::net::SocketAddr;

use ringway_sim::apps::{Client, Dialogue, Ending, Pattern, Server, Shared, Side, Transfer};
use ringway_sim::random::{Purpose, RandomStream};
use ringway_sim::{
    Capture, Faults, HostConfig, HostId, LinkConfig, NicConfig, NicFault, NicFaults, Outstanding, Strength, World, WorldConfig, trace,
};
use ringway_stack::Instant;
use ringway_stack::device::{Pacing, Steering};
use ringway_stack::ring::FlowId;
use ringway_stack::tcp::Config;

const SECOND: u64 = 1_000_000_000;
const MEGABYTE: u64 = 1 << 20;

fn sends(total: u64, key: u64) -> Side {
    Side { pattern: Pattern(key), total, write_max: 64 << 10, ..Side::silent() }
}

/// Two hosts, and a conversation of `total` bytes each way.
struct Exchange {
    world: World,
    hosts: [HostId; 2],
    transfers: [Shared<Transfer>; 2],
    listener: Shared<Option<FlowId>>,
}

impl Exchange {
    fn new(seed: u64, nics: [NicConfig; 2], total: u64) -> Self {
        Self::over(seed, nics, Faults::default(), total)
    }

    /// Over links with these faults.
    fn over(seed: u64, nics: [NicConfig; 2], faults: Faults, total: u64) -> Self {
        let mut world = World::new(WorldConfig { seed, capture: Capture::Hash });
        let mut add = |name: &str, nic: &NicConfig| {
            let link = LinkConfig { latency: Duration::from_micros(50), faults, ..LinkConfig::default() };
            let host = HostConfig { poll_delay: Duration::from_micros(5), ..HostConfig::named(name) };
            world.add_host(host.nic(nic.clone()).link(link))
        };
        let hosts = [add("client", &nics[0]), add("server", &nics[1])];
        let [from, to] = [(hosts[0], 40_000), (hosts[1], 80)].map(|(host, port)| SocketAddr::new(world.host(host).ip(), port));
        let dialogue = Dialogue { own: sends(total, 1), peer: sends(total, 2) };
        let transfers = [Shared::new(Transfer::default()), Shared::new(Transfer::default())];
        let listener = Shared::new(None);
        let config = Config { mss_max: u16::MAX, ..Config::default() };
        let mut server = Server::new(80, config.clone(), listener.clone());
        server.expect(from, dialogue.turned(), transfers[1].clone());
        world.add_app(hosts[1], server);
        world.add_app(hosts[0], Client::new(40_000, to, dialogue, config, transfers[0].clone()));
        Self { world, hosts, transfers, listener }
    }

    /// Lets it come to its end, which must be a good one that leaves nothing behind.
    fn finish(&mut self) {
        let finished = self.world.run_until_finished(Instant::from_nanos(600 * SECOND));
        assert!(finished.is_ok(), "{finished:?} {:?}", self.transfers.each_ref().map(|t| *t.read()));
        for transfer in &self.transfers {
            assert_eq!(transfer.read().ending, Some(Ending::Whole));
        }
        let listener = (*self.listener.read()).unwrap();
        self.world.call(self.hosts[1], |cx| cx.ring.close(cx.now, listener, false));
        self.world.run_for(Duration::from_secs(70));
        assert_eq!(self.world.outstanding(), [Outstanding::default(); 2]);
    }

    /// Frames that the server's NIC delivered, and that its stack was given.
    fn merged(&self) -> (u64, u64) {
        (self.world.trace().events(), self.world.host(self.hosts[1]).ring().counters().rx_packets)
    }
}

#[test]
fn every_capability_can_be_missing() {
    type Without = (&'static str, fn(&mut NicConfig));
    let without: [Without; 8] = [
        ("nothing", |_| {}),
        ("send checksums", |nic| nic.tx_checksum = false),
        ("receive checksums", |nic| nic.rx_checksum = false),
        ("TSO", |nic| nic.tso_max = None),
        ("receive coalescing", |nic| nic.lro = false),
        ("VLAN", |nic| (nic.vlan_insert, nic.vlan_strip) = (false, false)),
        ("steering", |nic| (nic.steering, nic.rings_max) = (Steering::empty(), 1)),
        ("anything", |nic| *nic = NicConfig::bare()),
    ];
    for (what, change) in without {
        let mut nic = NicConfig::full();
        change(&mut nic);
        let mut exchange = Exchange::new(3, [nic.clone(), NicConfig::full()], MEGABYTE);
        exchange.finish();
        let mut exchange = Exchange::new(3, [NicConfig::full(), nic], MEGABYTE);
        exchange.finish();
        println!("without {what}: {}", exchange.world.report());
    }
}

/// SO_MAX_PACING_RATE (socket(7)), on a NIC that paces flows: two connections of one ring, bytes over virtual time.
#[test]
fn two_connections_of_one_ring_keep_to_two_rates_and_a_third_to_none() {
    const RATES: [u64; 3] = [8_000_000, 24_000_000, 0];
    let mut world = World::new(WorldConfig { seed: 5, capture: Capture::Hash });
    let mut add = |name: &str| {
        let link = LinkConfig { latency: Duration::from_micros(50), bandwidth_bps: Some(100_000_000), ..LinkConfig::default() };
        world.add_host(HostConfig::named(name).nic(NicConfig::full()).link(link))
    };
    let hosts = [add("client"), add("server")];
    let ips = hosts.map(|host| world.host(host).ip());
    // (What waits in the NIC is not more than this.)
    let config = Config { sndbuf: Some(64 << 10), ..Config::default() };
    let transfers = [0, 1, 2].map(|i| {
        let [from, to] = [SocketAddr::new(ips[0], 40_000 + i), SocketAddr::new(ips[1], 80 + i)];
        let dialogue = Dialogue { own: sends(1 << 40, 1), peer: Side::silent() };
        let transfer = Shared::new(Transfer::default());
        let mut server = Server::new(to.port(), config.clone(), Shared::new(None));
        server.expect(from, dialogue.turned(), transfer.clone());
        world.add_app(hosts[1], server);
        world.add_app(hosts[0], Client::new(from.port(), to, dialogue, config.clone(), Shared::new(Transfer::default())));
        transfer
    });
    world.run_for(Duration::from_micros(60));
    world.call(hosts[0], |cx| {
        let flows = cx.ring.open_flows();
        assert_eq!(flows.len(), 3);
        for flow in flows {
            let port = cx.ring.info(flow).unwrap().local.port();
            let rate_bps = RATES[usize::from(port - 40_000)];
            cx.ring.set_rate(cx.now, flow, Pacing { rate_bps, burst_bytes: 3_028, typical_packet_bytes: 1_514 }).unwrap();
        }
    });
    world.run_for(Duration::from_millis(200));
    let before = transfers.each_ref().map(|transfer| transfer.read().read);
    world.run_for(Duration::from_secs(2));
    let bits: Vec<u64> = transfers.iter().zip(before).map(|(transfer, before)| (transfer.read().read - before) * 8 / 2).collect();
    for (bits, rate) in bits.iter().zip(RATES).filter(|(_, rate)| *rate > 0) {
        // A full segment's payload is 1448 of its frame's 1514 bytes.
        let payload = rate * 1_448 / 1_514;
        assert!(bits.abs_diff(payload) * 50 <= payload, "{bits} bits of payload a second, not {payload}");
    }
    assert!(bits[2] > 40_000_000, "the one without a rate gets the rest of the link: {bits:?}");
}

#[test]
fn coalescing_saves_the_stack_work() {
    let frames = |lro| {
        let mut exchange = Exchange::new(3, [NicConfig::full(), NicConfig { lro, ..NicConfig::full() }], 4 * MEGABYTE);
        exchange.finish();
        exchange.merged()
    };
    let ((_, with), (_, without)) = (frames(true), frames(false));
    assert!(with * 2 < without, "{with} of {without} frames");
}

#[test]
fn a_vlan_works_whoever_writes_the_tag() {
    for (insert, strip) in [(false, false), (true, false), (false, true), (true, true)] {
        let mut world = World::new(WorldConfig { seed: 1, capture: Capture::Frames });
        let nic = NicConfig { vlan_insert: insert, vlan_strip: strip, ..NicConfig::full() };
        let mut add = |name: &str, nic: NicConfig| {
            let mut host = HostConfig::named(name).nic(nic);
            host.ring.vlan = Some(0x2005);
            world.add_host(host)
        };
        let (client, server) = (add("client", nic), add("server", NicConfig::bare()));
        let transfer = Shared::new(Transfer::default());
        let [from, to] = [(client, 40_000), (server, 80)].map(|(host, port)| SocketAddr::new(world.host(host).ip(), port));
        let dialogue = Dialogue { own: sends(100_000, 1), peer: sends(100_000, 2) };
        let mut program = Server::new(80, Config::default(), Shared::new(None));
        program.expect(from, dialogue.turned(), Shared::new(Transfer::default()));
        world.add_app(server, program);
        world.add_app(client, Client::new(40_000, to, dialogue, Config::default(), transfer.clone()));
        world.run_until_finished(Instant::from_nanos(60 * SECOND)).unwrap();
        assert_eq!(transfer.read().ending, Some(Ending::Whole));
        let tagged = |record: &trace::Record| record.bytes[12..16] == [0x81, 0, 0x20, 5];
        assert!(world.trace().records().iter().all(tagged), "insert {insert}, strip {strip}");
    }
}

#[test]
fn each_fault_strikes_and_everything_ends_well_once_it_stops() {
    for fault in NicFault::ALL {
        let mut faults = NicFaults::default();
        // A reset and an overrun lose a window each time; the others may be frequent.
        let (ppm, lasts_ms) = if matches!(fault, NicFault::Reset | NicFault::CqOverrun) { (10_000, 20) } else { (20_000, 5) };
        *faults.strength_mut(fault) = Strength { ppm, lasts_max: Duration::from_millis(lasts_ms) };
        let nic = NicConfig { faults, ..NicConfig::full() };
        let story = || {
            let mut exchange = Exchange::new(11, [nic.clone(), nic.clone()], MEGABYTE);
            exchange.world.run_for(Duration::from_secs(2));
            exchange.world.set_faults(false);
            exchange.finish();
            exchange.world.report()
        };
        let report = story();
        assert_eq!(report, story(), "{fault:?}");
        let counts = &report.faults;
        let struck = [
            (NicFault::Reset, counts.nic_resets),
            (NicFault::SendError, counts.send_errors),
            (NicFault::CqOverrun, counts.cq_overruns),
            (NicFault::RxExhausted, counts.rx_exhausted),
            (NicFault::SendFull, counts.send_full),
            (NicFault::Registration, counts.registration_failures),
            (NicFault::Doorbell, counts.delayed_doorbells),
            (NicFault::Completion, counts.late_completions),
        ];
        for (class, times) in struck {
            assert!(if class == fault { times >= 3 } else { times == 0 }, "{fault:?} was to strike: {class:?} did, {times} times");
        }
    }
}

#[test]
fn rings_share_a_listener() {
    const CLIENTS: u16 = 40;
    const RINGS: usize = 4;
    let mut world = World::new(WorldConfig::seeded(5));
    let server = world.add_host(HostConfig { rings: RINGS, ..HostConfig::named("server") });
    let client = world.add_host(HostConfig { rings: 2, ..HostConfig::named("client") });
    let [from, to] = [(client, 0), (server, 80)].map(|(host, port)| SocketAddr::new(world.host(host).ip(), port));
    let config = Config { reuse_port: true, ..Config::default() };
    let dialogue = |i: u16| Dialogue { own: sends(20_000, u64::from(i)), peer: sends(5_000, u64::from(i) + 1000) };
    for ring in 0..RINGS {
        let mut program = Server::new(80, config.clone(), Shared::new(None));
        for i in 0..CLIENTS {
            program.expect(SocketAddr::new(from.ip(), 40_000 + i), dialogue(i).turned(), Shared::new(Transfer::default()));
        }
        world.add_app_on(server, ring, program);
    }
    let transfers: Vec<_> = (0..CLIENTS).map(|_| Shared::new(Transfer::default())).collect();
    for (i, transfer) in (0..CLIENTS).zip(&transfers) {
        world.add_app_on(client, usize::from(i % 2), Client::new(40_000 + i, to, dialogue(i), Config::default(), transfer.clone()));
    }
    world.run_until_finished(Instant::from_nanos(60 * SECOND)).unwrap();
    assert!(transfers.iter().all(|transfer| transfer.read().ending == Some(Ending::Whole)));
    let received: Vec<_> = world.host(server).rings().iter().map(|ring| ring.counters().rx_bytes).collect();
    assert_eq!(received.iter().sum::<u64>(), u64::from(CLIENTS) * 20_000, "each connection stayed on its ring");
    assert!(received.iter().all(|&bytes| bytes >= 60_000), "{received:?}");
}

/// A NIC with what the dice leave of everything, on which everything goes wrong now and then.
fn drawn(dice: &mut RandomStream) -> NicConfig {
    let mut faults = NicFaults::default();
    for fault in NicFault::ALL {
        let (ppm, lasts_ns) = (dice.magnitude(10, 10_000), dice.magnitude(1_000, 200_000_000));
        *faults.strength_mut(fault) = Strength { ppm: u32::try_from(ppm).unwrap(), lasts_max: Duration::from_nanos(lasts_ns) };
    }
    let mut on = || dice.chance_ppm(500_000);
    let (tx_checksum, rx_checksum, lro, cuts, steers) = (on(), on(), on(), on(), on());
    NicConfig {
        mtu: dice.pick(&[576, 1500, 9000]),
        inline_max: dice.pick(&[0, 128, 1024]),
        gather_max: usize::try_from(dice.between(2, 16)).unwrap(),
        tx_checksum,
        rx_checksum,
        tx_queue_max: usize::try_from(dice.magnitude(4, 1024)).unwrap(),
        rx_queue_max: usize::try_from(dice.magnitude(32, 1024)).unwrap(),
        tx_buffers_max: usize::try_from(dice.magnitude(64, 4096)).unwrap(),
        tx_buffer_bytes: usize::try_from(dice.magnitude(128, 32 << 10)).unwrap(),
        rx_buffers_max: usize::try_from(dice.magnitude(512, 8192)).unwrap(),
        rings_max: if steers { 16 } else { 1 },
        tso_max: cuts.then(|| usize::try_from(dice.between(10_000, 65_535)).unwrap()),
        lro,
        faults,
        ..NicConfig::full()
    }
}

#[test]
fn a_small_swarm_comes_through() {
    for seed in 0..60 {
        let mut dice = RandomStream::new(seed, Purpose::Options, 1000, 0);
        let nics = [drawn(&mut dice), drawn(&mut dice)];
        let lossy =
            Faults { loss_ppm: 5_000, reordering_ppm: 5_000, reordering_delay_max: Duration::from_micros(200), ..Faults::default() };
        let faults = if dice.chance_ppm(500_000) { lossy } else { Faults::default() };
        let mut exchange = Exchange::over(seed, nics, faults, 300_000);
        // A registration that fails at the very start is the program's to try again, and this one gives up.
        exchange.world.set_faults(false);
        exchange.world.run_for(Duration::from_micros(10));
        exchange.world.set_faults(true);
        exchange.world.run_for(Duration::from_secs(3));
        exchange.world.set_faults(false);
        println!("seed {seed}: {:?}", exchange.world.trace().faults());
        exchange.finish();
    }
}
