//! Connections by the hundred, sometimes by the thousand, that do nothing for a long time; then a few speak. Sometimes a few connections that do
//! nothing for hours, or for weeks: the timer wheel's highest levels, and timestamps that are too old to be compared (RFC 7323 s5.5).

use core::fmt;
use core::time::Duration;

use ringway_stack::tcp::Keepalive;

use super::{Ground, Site, Standing, Verdict, Workload, sides};
use crate::apps::{Dialogue, IdleCounts, Idler, Listening, Reactor, Registry, Shared, Transfer};
use crate::world::World;

const HOUR: Duration = Duration::from_secs(3600);

/// With more connections than this, keepalives would be most of what happens.
const KEPT_ALIVE_MAX: u32 = 128;

#[derive(Debug)]
struct Client {
    host: usize,
    connections: u16,
    speeches: Vec<(Dialogue, [Shared<Transfer>; 2])>,
    transfer: Shared<IdleCounts>,
}

/// All of them, and their server.
#[derive(Debug)]
pub(super) struct Idle {
    server: usize,
    clients: Vec<Client>,
    batch: usize,
    rest: Duration,
    keepalive: Option<Keepalive>,
    registry: Shared<Registry>,
    standing: Standing,
}

impl Idle {
    pub(super) fn draw(ground: &mut Ground<'_>) -> Self {
        let [server, host] = ground.two_hosts();
        // Thousands are rare: each connection costs half a dozen frames.
        let connections = match ground.stream.below(100) {
            0..=1 => ground.stream.between(1000, 4000),
            2..=21 => ground.stream.between(100, 400),
            _ => ground.stream.between(8, 64),
        };
        let hours = if ground.stream.chance_ppm(100_000) { ground.stream.magnitude(1, 30 * 24) } else { 0 };
        let connections = u16::try_from(if hours > 0 { connections % 16 + 1 } else { connections }).unwrap_or(8);
        let speeches = (0..ground.stream.between(0, 4)).map(|_| speech(ground)).collect();
        let keepalive = ground.stream.chance_ppm(500_000).then_some(Keepalive {
            idle: Duration::from_millis(ground.stream.magnitude(500, 10_000)),
            interval: Duration::from_millis(ground.stream.between(1_500, 5_000)),
            count: u32::try_from(ground.stream.between(3, 6)).unwrap_or(3),
        });
        let long = HOUR * u32::try_from(hours).unwrap_or(1);
        // As Linux has it, but for the first time (tcp(7), tcp_keepalive_intvl and tcp_keepalive_probes).
        let keepalive = if hours > 0 { Some(Keepalive { idle: long / 3, interval: Duration::from_secs(75), count: 9 }) } else { keepalive };
        Self {
            server,
            // Some hundred rounds at most, of up to a quarter of a second each: thousands must be there well within the liveness bound.
            batch: ground.size(1, 64).max(usize::from(connections) / 64),
            rest: Duration::from_millis(ground.stream.magnitude(1, 30_000)) + long,
            keepalive: keepalive.filter(|_| u32::from(connections) <= KEPT_ALIVE_MAX),
            clients: vec![Client { host, connections, speeches, transfer: Shared::default() }],
            registry: Shared::default(),
            standing: Standing::default(),
        }
    }
}

fn speech(ground: &mut Ground<'_>) -> (Dialogue, [Shared<Transfer>; 2]) {
    (sides::exchange(ground.stream, 4, 512, 4096), [(); 2].map(|()| Shared::new(Transfer::default())))
}

impl fmt::Display for Idle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { server, clients, batch, rest, keepalive, .. } = self;
        for Client { host, connections, speeches, .. } in clients {
            let speak = speeches.len();
            writeln!(f, "host {host} opens {connections} connections to host {server}, {batch} at a time, {keepalive:?};")?;
            writeln!(f, "  after {rest:?} {speak} speak")?;
            speeches.iter().try_for_each(|(dialogue, _)| writeln!(f, "  client {:?}\n  server {:?}", dialogue.own, dialogue.peer))?;
        }
        Ok(())
    }
}

impl Workload for Idle {
    fn set_up(&mut self, site: &mut Site<'_>) {
        let port = site.server_port(0);
        let options = site.options;
        let server = self.server;
        let config = |host: usize| {
            let drawn = &options[host].tcp;
            // Where nobody asks whether the other is still there, a program must not wait for ever: the drawn keepalive is the
            // server's substitute for the idle timeout that servers have.
            ringway_stack::tcp::Config { keepalive: self.keepalive.or(drawn.keepalive.filter(|_| host == server)), ..drawn.clone() }
        };
        let mut first = 0;
        for client in &self.clients {
            let ports = (first..first + client.connections).map(|p| site.client_port(p)).collect();
            first += client.connections;
            let address = site.address(self.server, port);
            let mut idler = Idler::new(ports, address, config(client.host), self.batch, self.rest, client.transfer.clone())
                .speaking_with(site.options[client.host].tcp.keepalive);
            for (dialogue, [own, peer]) in &client.speeches {
                self.registry.change(|r| r.announce(*dialogue, peer.clone()));
                idler.speech(*dialogue, own.clone());
            }
            let ring = site.ring(client.host);
            site.world.add_app_on(site.hosts[client.host], ring, idler);
        }
        let (registry, keepalive) = (self.registry.clone(), config(server).keepalive);
        site.add_server(server, &mut self.standing, move |config, socket| {
            Reactor::new().listening(Listening {
                port,
                backlog: usize::from(u16::MAX),
                config: ringway_stack::tcp::Config { keepalive, ..config },
                registry: registry.clone(),
                socket,
                accept_every: Duration::ZERO,
            })
        });
    }

    fn pauses(&self) -> bool {
        true
    }

    fn silence(&self) -> Duration {
        // Of who is gone, keepalive tells in the end.
        if self.rest >= HOUR { self.rest * 2 } else { Duration::ZERO }
    }

    fn progress(&self) -> Vec<String> {
        let line = |Client { host, connections, transfer, .. }: &Client| {
            let registry = self.registry.read();
            let (silent, broken) = (registry.silent, registry.broken);
            format!("host {host} holds {connections} connections: {:?}; the server saw {silent} silent, {broken} broken", transfer.read())
        };
        self.clients.iter().map(line).collect()
    }

    fn check(&self, verdict: &Verdict) {
        for Client { connections, speeches, transfer, .. } in &self.clients {
            let IdleCounts { established, failed, closed } = *transfer.read();
            let connections = u32::from(*connections);
            let spoke = u32::try_from(speeches.len()).unwrap_or(0).min(established);
            assert!(
                failed == 0 || verdict.may_fail() || verdict.may_refuse(),
                "{failed} idle connections failed, though nothing went wrong"
            );
            assert!(established <= connections && closed + spoke <= established, "connections were invented: {:?}", transfer.read());
            for (_, transfers) in &speeches[..spoke as usize] {
                transfers.iter().for_each(|transfer| {
                    verdict.check_ending(&"a few words after a long silence", &transfer.read(), verdict.may_misread());
                });
            }
        }
        let closed: u32 = self.clients.iter().map(|client| client.transfer.read().closed).sum();
        let registry = self.registry.read();
        let seen = registry.silent;
        assert!(
            verdict.may_fail() || verdict.may_misread() || seen == u64::from(closed) && registry.broken == 0,
            "{closed} closed, the server saw {seen}"
        );
    }

    fn wind_down(&mut self, world: &mut World) {
        self.standing.close(world);
    }
}
