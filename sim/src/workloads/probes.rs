//! Somebody who speaks ARP, ICMP, IGMP and UDP by hand, and a program with UDP sockets of every kind at the other end. What must come of that, and what must not, is for
//! the checkers to say.

use core::fmt;
use core::time::Duration;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use ringway_stack::device::Steering;
use ringway_stack::raw::RawQueue;
use ringway_stack::ring::UdpOptions;

use super::{Ground, Site, Verdict, Workload};
use crate::addresses::{ipv4, v4};
use crate::apps::{Ports, Prober, Probing, Shared, Target};
use crate::host::App;
use crate::random::{Purpose, RandomStream};
use crate::world::World;

/// The prober's own network, which no host is in, and what nobody has.
const PROBER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 9, 0, 1));
const NOBODY: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 9, 0, 99));
const GROUP: IpAddr = IpAddr::V4(Ipv4Addr::new(239, 9, 0, 1));

/// A prober, and whom it probes.
#[derive(Debug)]
pub(super) struct Probes {
    prober: usize,
    target: usize,
    seed: u64,
    frames: u32,
    pause_max: Duration,
    rest_max: Duration,
    options: UdpOptions,
    wildcard: bool,
    shares: bool,
    done: Shared<bool>,
}

impl Probes {
    pub(super) fn draw(ground: &mut Ground<'_>) -> Self {
        let [prober, target] = ground.two_hosts();
        let stream = &mut *ground.stream;
        let frames = u32::try_from(stream.magnitude(16, 64 << ground.scale.min(3))).unwrap_or(16);
        let pause_max = Duration::from_nanos(stream.magnitude(100_000, 2_000_000_000));
        // What is probed for a minute in all tells as much as what is probed for longer.
        let pause_max = pause_max.min(Duration::from_secs(60) / frames);
        // (The host does not do so much meanwhile that the probes are lost in it.)
        let rest_max = Duration::from_nanos(stream.magnitude(100_000, 500_000_000)).max(pause_max * frames / 1000);
        let options = UdpOptions {
            rcvbuf: stream.pick(&[100, 600, 2000, 20_000, 212_992]),
            ttl: u8::try_from(stream.between(1, 255)).unwrap_or(64),
            tos: stream.pick(&[0, 0x10, 0xb8]),
            multicast_ttl: u8::try_from(stream.between(1, 4)).unwrap_or(1),
            multicast_loop: stream.chance_ppm(600_000),
            ..UdpOptions::default()
        };
        let wildcard = stream.chance_ppm(500_000);
        let shares = ground.hosts[target].nic.steering.contains(Steering::RSS);
        Self { prober, target, seed: ground.seed, frames, pause_max, rest_max, options, wildcard, shares, done: Shared::default() }
    }
}

impl fmt::Display for Probes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { prober, target, frames, pause_max, rest_max, options, wildcard, shares, .. } = self;
        writeln!(f, "somebody beside host {prober} probes host {target}: {frames} frames, at most {pause_max:?} apart")?;
        writeln!(f, "  which rests for at most {rest_max:?}, every address first: {wildcard}, ports shared: {shares}, {options:?}")
    }
}

impl Workload for Probes {
    fn set_up(&mut self, site: &mut Site<'_>) {
        let (open, paired) = (site.server_port(0), site.server_port(1));
        let prober = SocketAddr::new(PROBER, site.server_port(8));
        let (group, ring, host) = (SocketAddr::new(GROUP, open), site.ring(self.target), site.hosts[self.target]);
        let (wildcard, shares, rest_max) = (self.wildcard, self.shares, self.rest_max);
        let ports = Ports { open, paired, prober, nobody: NOBODY, group, wildcard, shares, rest_max };
        let number = site.workload.bits().trailing_zeros();
        let (options, done, seed) = (self.options, self.done.clone(), self.seed);
        let mut starts = 1;
        let make = move || -> Box<dyn App> {
            starts += 1;
            Box::new(Target::new(ports, options, done.clone(), RandomStream::new(seed, Purpose::Workload, number, starts)))
        };
        site.world.add_restartable_on(host, ring, make);
        let mac = site.world.host(host).mac();
        let addresses = [open, paired].map(|port| site.address(self.target, port));
        let queue = RawQueue::new(site.world.add_raw_ring(site.hosts[self.prober]));
        // (A frame is one head.)
        let probing = Probing { from: v4(prober), nobody: ipv4(NOBODY), frames: self.frames, pause_max: self.pause_max, len_max: 180 };
        let dice = RandomStream::new(self.seed, Purpose::Workload, number, 0);
        let addresses = [addresses[0], addresses[1], group];
        let program = Prober::new(queue, (mac, site.vlan), addresses.map(v4), probing, self.done.clone(), dice);
        site.world.add_app_on(site.hosts[self.prober], 0, program);
    }

    fn pauses(&self) -> bool {
        true
    }

    fn progress(&self) -> Vec<String> {
        vec![format!("host {} probed by somebody beside host {}: done {}", self.target, self.prober, *self.done.read())]
    }

    fn check(&self, _: &Verdict) {}

    fn wind_down(&mut self, _: &mut World) {}
}
