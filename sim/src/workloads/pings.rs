//! Datagrams and their echoes.

use core::fmt;
use core::time::Duration;
use std::net::SocketAddr;

use ringway_stack::device::Steering;
use ringway_stack::ring::{Reuse, UdpOptions};

use super::{Ground, Site, Standing, Verdict, Workload};
use crate::apps::{Echo, Pattern, Pinger, Pings, Shared};
use crate::host::App;
use crate::world::World;

/// A port that nobody sends from.
const NOBODY: u16 = 9;

/// One series of datagrams from a client's host to a server's.
#[derive(Debug)]
struct Series {
    client: usize,
    server: usize,
    options: UdpOptions,
    pings: Shared<Pings>,
    /// The echo's socket, and others that share its port.
    echoes: Vec<Narrowed>,
}

/// Whose datagrams a socket gets, beside the port's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Narrowed {
    wildcard: bool,
    peer: Option<Peer>,
}

/// Whose datagrams alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Peer {
    Client,
    /// Of somebody who never sends any.
    Nobody,
}

/// All of them.
#[derive(Debug)]
pub(super) struct PingSeries {
    series: Vec<Series>,
    standing: Standing,
}

impl PingSeries {
    pub(super) fn draw(ground: &mut Ground<'_>) -> Self {
        let len_max = ground.hosts.iter().map(|host| host.datagram_max()).min().unwrap_or(0);
        let count = ground.stream.between(1, 3);
        Self { series: (0..count).map(|_| series(ground, len_max)).collect(), standing: Standing::default() }
    }
}

fn series(ground: &mut Ground<'_>, len_max: usize) -> Series {
    let [client, server] = ground.two_hosts();
    let (a, b) = (ground.size(8, len_max), ground.size(8, len_max));
    let wanted = ground.stream.magnitude(1, 64);
    let interval = Duration::from_nanos(ground.stream.magnitude(100_000, 100_000_000));
    let options = options(ground, len_max);
    let pings = Pings::new(wanted, (a.min(b), a.max(b)), interval, Pattern(ground.stream.bits()));
    let (reuse, echoes) = echoes(ground, server);
    Series { client, server, options: UdpOptions { reuse, ..options }, pings: Shared::new(pings), echoes }
}

/// One echo, as most often; or several on one port, one of which is for everybody, where the device has rules that are shared.
fn echoes(ground: &mut Ground<'_>, server: usize) -> (Reuse, Vec<Narrowed>) {
    let everybody = Narrowed { wildcard: ground.stream.chance_ppm(300_000), peer: None };
    let others = ground.stream.pick(&[0, 0, 1, 2, 3]);
    let mut echoes = vec![everybody];
    for _ in 0..others {
        let narrowed = Narrowed {
            wildcard: ground.stream.chance_ppm(500_000),
            peer: ground.stream.pick(&[None, Some(Peer::Client), Some(Peer::Client), Some(Peer::Nobody)]),
        };
        let at = ground.index(echoes.len() + 1);
        echoes.insert(at, narrowed);
    }
    let reuse = ground.stream.pick(&[Reuse::Address, Reuse::Port]);
    match others > 0 && ground.hosts[server].nic.steering.contains(Steering::RSS) {
        true => (reuse, echoes),
        false => (Reuse::No, vec![everybody]),
    }
}

/// A UDP socket's options; its queue holds at least one datagram.
pub(super) fn options(ground: &mut Ground<'_>, len_max: usize) -> UdpOptions {
    let least = len_max + 512;
    UdpOptions {
        rcvbuf: ground.size(least, 256 << 10),
        ttl: u8::try_from(ground.stream.between(1, 255)).unwrap_or(64),
        tos: ground.stream.pick(&[0, 0x10, 0xb8]),
        ..UdpOptions::default()
    }
}

impl fmt::Display for PingSeries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Series { client, server, options, pings, echoes } in &self.series {
            let Pings { wanted, len, interval, .. } = &*pings.read();
            writeln!(f, "host {client} pings host {server}: {wanted} of {len:?} bytes every {interval:?}, {options:?}, {echoes:?}")?;
        }
        Ok(())
    }
}

impl Workload for PingSeries {
    fn set_up(&mut self, site: &mut Site<'_>) {
        for (series, number) in self.series.iter().zip(0..) {
            let (port, host, options) = (site.server_port(number), site.hosts[series.server], series.options);
            let ring = site.ring(series.server);
            let client = site.address(series.client, site.client_port(number));
            for &Narrowed { wildcard, peer } in &series.echoes {
                let peer = peer.map(|peer| match peer {
                    Peer::Client => client,
                    Peer::Nobody => SocketAddr::new(client.ip(), NOBODY),
                });
                let socket = self.standing.add(host, ring);
                let make = move || -> Box<dyn App> {
                    socket.set(None);
                    Box::new(Echo::new(port, socket.clone()).options(options).narrowed(wildcard, peer))
                };
                site.world.add_restartable_on(host, ring, make);
            }
            let server = site.address(series.server, port);
            let (port, pings, ring) = (site.client_port(number), series.pings.clone(), site.ring(series.client));
            let options = UdpOptions { reuse: Reuse::No, ..options };
            let make = move || -> Box<dyn App> { Box::new(Pinger::new(port, server, pings.clone()).options(options)) };
            site.world.add_restartable_on(site.hosts[series.client], ring, make);
        }
    }

    fn progress(&self) -> Vec<String> {
        let line = |Series { client, server, pings, .. }: &Series| {
            let Pings { sent, wanted, echoed, .. } = &*pings.read();
            format!("host {client} pings host {server}: {sent} sent, {} of {wanted} came back", echoed.len())
        };
        self.series.iter().map(line).collect()
    }

    fn check(&self, verdict: &Verdict) {
        for series in &self.series {
            let pings = series.pings.read();
            let twice = !pings.echoed.iter().all(|(&number, &times)| verdict.may_be_heard(&pings, number, times));
            let refused = pings.refused;
            assert!(refused == 0 || verdict.may_refuse(), "{refused} datagrams were refused, though the echo was there");
            assert!(!twice, "an echo came twice, though nothing was duplicated");
        }
    }

    fn wind_down(&mut self, world: &mut World) {
        self.standing.close(world);
    }
}
