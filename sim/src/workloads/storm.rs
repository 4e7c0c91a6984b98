//! Many sockets behind one epoll instance, whose interests change between edge, level and one-shot all the time. Whoever misses an
//! edge there hangs, and the liveness phase notices.

use core::fmt;
use core::time::Duration;

use ringway_stack::Instant;

use super::caller::Caller;
use super::{Ground, Site, Standing, Verdict, Workload, exchanges, sides};
use crate::apps::{Dialogue, Listening, Reactor, Registry, Shared, Transfer};
use crate::random::{Purpose, RandomStream};
use crate::world::World;

/// All of them, and their server.
#[derive(Debug)]
pub(super) struct Storm {
    seed: u64,
    server: usize,
    clients: Vec<Caller>,
    registry: Shared<Registry>,
    standing: Standing,
}

impl Storm {
    pub(super) fn draw(ground: &mut Ground<'_>) -> Self {
        let [server, _] = ground.two_hosts();
        let count = ground.stream.magnitude(2, 48);
        let total_max = ((1024 << ground.scale) / count).clamp(64, 32 << 10);
        let spread = ground.stream.pick(&[0, 1_000_000, 100_000_000]);
        let clients = (0..count).map(|_| client(ground, server, total_max, spread)).collect();
        Self { seed: ground.seed, server, clients, registry: Shared::default(), standing: Standing::default() }
    }
}

fn client(ground: &mut Ground<'_>, server: usize, total_max: u64, spread: u64) -> Caller {
    let [host, other] = ground.two_hosts();
    let at = Instant::ZERO + Duration::from_nanos(ground.stream.below(spread + 1));
    let mut dialogue = Dialogue { own: sides::side(ground, total_max), peer: sides::side(ground, total_max) };
    dialogue.own.total = dialogue.own.total.max(sides::NAME_LEN);
    let dialogue = match ground.stream.chance_ppm(400_000) {
        true => sides::exchange(ground.stream, 16, 1024, 2048),
        false => sides::paced(dialogue),
    };
    let transfers = [(); 2].map(|()| Shared::new(Transfer::default()));
    Caller { host: if host == server { other } else { host }, at, dialogue, transfers }
}

impl fmt::Display for Storm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "a storm of {} conversations with host {}", self.clients.len(), self.server)?;
        for Caller { host, at, dialogue, .. } in &self.clients {
            writeln!(f, "  host {host} at {} ns\n  client {:?}\n  server {:?}", at.as_nanos(), dialogue.own, dialogue.peer)?;
        }
        Ok(())
    }
}

impl Workload for Storm {
    fn set_up(&mut self, site: &mut Site<'_>) {
        let (port, seed) = (site.server_port(0), self.seed);
        let whims = move |host: usize| RandomStream::new(seed, Purpose::Workload, u32::try_from(host).unwrap_or(0), 0);
        let (server, registry) = (self.server, self.registry.clone());
        site.add_server(server, &mut self.standing, move |config, socket| {
            let accept_every = Duration::ZERO;
            let listening = Listening { port, backlog: 128, config, registry: registry.clone(), socket, accept_every };
            Reactor::new().listening(listening).whimsical(whims(server))
        });
        for host in 0..site.hosts.len() {
            let own = self.clients.iter().zip(0..).filter(|(client, _)| client.host == host);
            let openings: Vec<_> = own.map(|(client, number)| client.opening(site, &self.registry, number, (self.server, port))).collect();
            if !openings.is_empty() {
                let ring = site.ring(host);
                site.world.add_app_on(site.hosts[host], ring, Reactor::new().opening(openings).whimsical(whims(host)));
            }
        }
    }

    fn progress(&self) -> Vec<String> {
        let line = |Caller { host, dialogue, transfers, .. }: &Caller| {
            format!("host {host} in the storm: {}", exchanges::progress(dialogue, *transfers[0].read(), *transfers[1].read()))
        };
        self.clients.iter().map(line).collect()
    }

    fn check(&self, verdict: &Verdict) {
        for client in &self.clients {
            client.transfers.iter().for_each(|transfer| verdict.check_ending(&"in the storm", &transfer.read(), verdict.may_misread()));
        }
    }

    fn wind_down(&mut self, world: &mut World) {
        self.standing.close(world);
    }
}
