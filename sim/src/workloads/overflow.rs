//! More clients at once than a listener's backlog holds, while the server accepts one by one and slowly. SYNs are dropped and tried
//! again; nobody who got in is lost, and nobody is invented.

use core::fmt;
use core::time::Duration;

use ringway_stack::{Error, Instant};

use super::caller::Caller;
use super::{Ground, Site, Standing, Verdict, Workload, exchanges, sides};
use crate::apps::{Ending, Listening, Reactor, Registry, Shared, Transfer};
use crate::world::World;

/// All of them, and their server.
#[derive(Debug)]
pub(super) struct Overflow {
    server: usize,
    backlog: usize,
    accept_every: Duration,
    clients: Vec<Caller>,
    registry: Shared<Registry>,
    standing: Standing,
}

impl Overflow {
    pub(super) fn draw(ground: &mut Ground<'_>) -> Self {
        let [server, _] = ground.two_hosts();
        let backlog = ground.index(5);
        let accept_every = Duration::from_nanos(ground.stream.magnitude(100_000, 1_000_000_000));
        let spread = ground.stream.pick(&[0, 0, 1_000_000, 1_000_000_000]);
        let count = ground.stream.magnitude(2, 24);
        let clients = (0..count).map(|_| client(ground, server, spread)).collect();
        Self { server, backlog, accept_every, clients, registry: Shared::default(), standing: Standing::default() }
    }
}

fn client(ground: &mut Ground<'_>, server: usize, spread: u64) -> Caller {
    let [host, other] = ground.two_hosts();
    let at = Instant::ZERO + Duration::from_nanos(ground.stream.below(spread + 1));
    let dialogue = sides::exchange(ground.stream, 2, 512, 2048);
    let transfers = [(); 2].map(|()| Shared::new(Transfer::default()));
    Caller { host: if host == server { other } else { host }, at, dialogue, transfers }
}

impl fmt::Display for Overflow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { server, backlog, accept_every, clients, .. } = self;
        writeln!(f, "host {server} has a backlog of {backlog} and accepts every {accept_every:?};")?;
        for Caller { host, at, dialogue, .. } in clients {
            writeln!(f, "  host {host} connects at {} ns\n  client {:?}\n  server {:?}", at.as_nanos(), dialogue.own, dialogue.peer)?;
        }
        Ok(())
    }
}

impl Workload for Overflow {
    fn set_up(&mut self, site: &mut Site<'_>) {
        let port = site.server_port(0);
        let (backlog, registry, accept_every) = (self.backlog, self.registry.clone(), self.accept_every);
        site.add_server(self.server, &mut self.standing, move |config, socket| {
            Reactor::new().listening(Listening { port, backlog, config, registry: registry.clone(), socket, accept_every })
        });
        for host in 0..site.hosts.len() {
            let own = self.clients.iter().zip(0..).filter(|(client, _)| client.host == host);
            let openings: Vec<_> = own.map(|(client, number)| client.opening(site, &self.registry, number, (self.server, port))).collect();
            if !openings.is_empty() {
                let ring = site.ring(host);
                site.world.add_app_on(site.hosts[host], ring, Reactor::new().opening(openings));
            }
        }
    }

    fn pauses(&self) -> bool {
        true
    }

    fn progress(&self) -> Vec<String> {
        let line = |Caller { host, dialogue, transfers, .. }: &Caller| {
            format!("host {host} wants in: {}", exchanges::progress(dialogue, *transfers[0].read(), *transfers[1].read()))
        };
        self.clients.iter().map(line).collect()
    }

    fn check(&self, verdict: &Verdict) {
        let crowded = self.clients.len() > self.backlog + 1;
        let mut got_in = 0;
        for Caller { transfers: [own, peer], .. } in &self.clients {
            // Whoever never gets in hears nothing, and gives up in the end.
            let kept_out = crowded && own.read().ending == Some(Ending::Failed(Error::TimedOut)) && own.read().written == 0;
            verdict.check_ending(&"one of a crowd", &own.read(), kept_out || verdict.may_misread());
            verdict.check_ending(&"one of a crowd", &peer.read(), kept_out || verdict.may_misread());
            got_in += usize::from(!kept_out);
        }
        assert!(
            got_in > self.backlog.min(self.clients.len() - 1) || verdict.may_fail(),
            "{got_in} got in, with room for {}",
            self.backlog + 1
        );
    }

    fn wind_down(&mut self, world: &mut World) {
        self.standing.close(world);
    }
}
